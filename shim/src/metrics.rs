//! What a container has used, as containerd takes it from a host with control groups of version 2:
//! the message `io.containerd.cgroups.v2.Metrics` (cgroup2/stats/metrics.proto of
//! github.com/containerd/cgroups).
//!
//! The crates of containerd's API have that of version 1 alone. A message of numbers is a list of
//! fields, so it is written here, and no generator of code runs for it.

use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::protobuf::{CodedOutputStream, Result};

/// The name of the message.
const NAME: &str = "io.containerd.cgroups.v2.Metrics";

/// Fields of a part of the message: the file, the key in it, and the number. A file of one number
/// has no key.
type Fields = &'static [(&'static str, &'static str, u32)];

/// The parts: their numbers and fields.
const PARTS: [(u32, Fields); 4] = [
    (1, &[("pids.current", "", 1), ("pids.max", "", 2)]),
    (
        2,
        &[
            ("cpu.stat", "usage_usec", 1),
            ("cpu.stat", "user_usec", 2),
            ("cpu.stat", "system_usec", 3),
            ("cpu.stat", "nr_periods", 4),
            ("cpu.stat", "nr_throttled", 5),
            ("cpu.stat", "throttled_usec", 6),
        ],
    ),
    (
        4,
        &[
            ("memory.stat", "anon", 1),
            ("memory.stat", "file", 2),
            ("memory.stat", "shmem", 6),
            ("memory.current", "", 32),
            ("memory.max", "", 33),
            ("memory.peak", "", 36),
        ],
    ),
    (
        8,
        &[
            ("memory.events", "low", 1),
            ("memory.events", "high", 2),
            ("memory.events", "max", 3),
            ("memory.events", "oom", 4),
            ("memory.events", "oom_kill", 5),
        ],
    ),
];
/// The part that tells of disks, and its entries.
const DISKS: (u32, u32) = (6, 1);
/// Fields of an entry behind the numbers of its disk.
const DISK: [(&str, u32); 4] = [("rbytes", 3), ("wbytes", 4), ("rios", 5), ("wios", 6)];

/// Makes the message of the guest's lines: each a file of the control group, and a line of it.
pub fn message(text: &str) -> Result<Any> {
    let mut bytes = Vec::new();
    let mut out = CodedOutputStream::vec(&mut bytes);
    for (number, fields) in PARTS {
        let numbers =
            fields.iter().filter_map(|&(file, key, number)| Some((number, find(text, file, key)?)));
        out.write_bytes(number, &part(numbers)?)?;
    }
    let mut disks = Vec::new();
    let mut entries = CodedOutputStream::vec(&mut disks);
    for line in text.lines().filter_map(|line| line.strip_prefix("io.stat ")) {
        entries.write_bytes(DISKS.1, &part(disk(line))?)?;
    }
    entries.flush()?;
    drop(entries);
    out.write_bytes(DISKS.0, &disks)?;
    out.flush()?;
    drop(out);
    Ok(Any { type_url: NAME.into(), value: bytes, ..Any::default() })
}

/// A number of a file; `None`: the guest does not tell it.
pub fn find(text: &str, file: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(file)?.strip_prefix(' '));
    let value = match key {
        "" => lines.next(),
        key => lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')),
    };
    match value?.trim() {
        "max" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// The fields of a disk: `MAJOR:MINOR rbytes=N wbytes=N ...`.
fn disk(line: &str) -> impl Iterator<Item = (u32, u64)> {
    let mut words = line.split_whitespace();
    let (major, minor) = words.next().and_then(|name| name.split_once(':')).unwrap_or_default();
    let named = [(1, major.parse().ok()), (2, minor.parse().ok())];
    let named = named.into_iter().filter_map(|(number, value)| Some((number, value?)));
    named.chain(words.filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        let (_, number) = DISK.iter().find(|(name, _)| *name == key)?;
        Some((*number, value.parse().ok()?))
    }))
}

fn part(fields: impl Iterator<Item = (u32, u64)>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut out = CodedOutputStream::vec(&mut bytes);
    for (number, value) in fields {
        out.write_uint64(number, value)?;
    }
    out.flush()?;
    drop(out);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_guest_are_a_message() {
        let text = "cpu.stat usage_usec 300\ncpu.stat user_usec 2\nio.stat 254:16 rbytes=5 wios=1\n\
                    memory.current 9\nmemory.max max\nmemory.stat anon 4\nmemory.stat anon_thp 8\n\
                    pids.current 1\n";
        let any = message(text).unwrap();
        assert_eq!(any.type_url, "io.containerd.cgroups.v2.Metrics");
        // Keys are the number and the wire type; 300 is two bytes of seven bits (protobuf.dev,
        // "Encoding").
        let mut wanted = vec![0x0a, 2, 0x08, 1, 0x12, 5, 0x08, 0xac, 2, 0x10, 2];
        wanted.extend([0x22, 17, 0x08, 4, 0x80, 2, 9, 0x88, 2]);
        wanted.extend([0xff; 9]);
        wanted.extend([1, 0x42, 0, 0x32, 11, 0x0a, 9, 0x08, 0xfe, 1, 0x10, 16, 0x18, 5, 0x30, 1]);
        assert_eq!(any.value, wanted);
        assert_eq!(find(text, "memory.stat", "anon"), Some(4));
        assert_eq!(find(text, "memory.events", "oom"), None);
    }

    #[test]
    fn other_lines_say_nothing() {
        let empty = message("").unwrap().value;
        assert_eq!(
            message("io\npids.current x\nmemory.stat\ncpu.stat usage_usec\n").unwrap().value,
            empty
        );
        assert!(message("io.stat\nio.stat 1:x a=b rbytes\n").is_ok());
    }
}
