//! Executes mutated ELF files and checks that the kernel survives and behaves consistently.
//!
//! A small static program is changed in its headers, its program headers or anywhere, truncated or
//! extended. Each result is executed as the user nobody under tight limits, and may do anything as
//! long as its parent survives. It is executed twice, the second time from the resources that the
//! first one left, and must end the same way. Every hundred rounds the unchanged program must still
//! run and exit correctly, and after every tenth of all rounds the kernel's memory is checked.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::exit;

use hayate_stress::balance::Ledger;
use hayate_stress::{Ended, Options, Random, become_nobody, c_path, fork, limit, wait, wait_now};

const USAGE: &str = "elfmut [--seed N] [--count N] [--keep DIR] FILE
  --seed N     the seed of the mutations (1)
  --count N    how many mutated files to execute (10000)
  --first N    begin with this round, to repeat one of an earlier run (0)
  --keep DIR   write every file before it is executed to DIR/mutant, and leave it there
  FILE         a small static ELF program that exits with its number of arguments
Example: elfmut --seed 7 --count 1000 /tests/stress/tiny";

/// The values most likely to be limits, for fields of any width.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    0x38,
    0x40,
    0xfff,
    0x1000,
    0x1001,
    0xffff,
    0x1_0000,
    0x40_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_f000,
    0x7fff_ffff_ffff,
    0x8000_0000_0000,
    0xffff_8000_0000_0000,
    0xffff_ffff_8000_0000,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

/// Offset and width of the fields of an ELF64 header (elf(5)).
const HEADER: [(usize, usize); 19] = [
    (0, 4),
    (4, 1),
    (5, 1),
    (6, 1),
    (7, 1),
    (8, 8),
    (16, 2),
    (18, 2),
    (20, 4),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 4),
    (52, 2),
    (54, 2),
    (56, 2),
    (58, 2),
    (60, 2),
    (62, 2),
];

/// Offset and width of the fields of a program header.
const SEGMENT: [(usize, usize); 8] =
    [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8)];

fn field(image: &[u8], at: usize, width: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(from) = image.get(at..at + width) {
        bytes[..width].copy_from_slice(from);
    }
    u64::from_le_bytes(bytes)
}

fn set_field(image: &mut [u8], at: usize, width: usize, value: u64) {
    if let Some(to) = image.get_mut(at..at + width) {
        to.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// Returns a value near the old one, a limit, or any value.
fn new_value(random: &mut Random, old: u64) -> u64 {
    match random.below(5) {
        0 => old.wrapping_add(random.below(17)).wrapping_sub(8),
        1 => old ^ (1 << random.below(64)),
        2 => old.wrapping_mul(random.pick(&[2, 0x1000, 3])),
        3 => random.bits() >> random.below(64),
        _ => random.pick(&EDGES),
    }
}

fn mutate(random: &mut Random, original: &[u8]) -> Vec<u8> {
    let mut image = original.to_vec();
    let segments = field(original, 32, 8) as usize;
    let count = (field(original, 56, 2) as usize).max(1);
    for _ in 0..1 + random.below(4) {
        match random.below(12) {
            0..=2 => {
                let (at, width) = random.pick(&HEADER);
                let value = new_value(random, field(&image, at, width));
                set_field(&mut image, at, width, value);
            }
            3..=7 => {
                let (at, width) = random.pick(&SEGMENT);
                let at = segments + 56 * random.below(count as u64) as usize + at;
                let value = new_value(random, field(&image, at, width));
                set_field(&mut image, at, width, value);
            }
            8 => {
                for _ in 0..1 + random.below(16) {
                    let at = random.below(image.len() as u64) as usize;
                    if let Some(byte) = image.get_mut(at) {
                        *byte = random.bits() as u8;
                    }
                }
            }
            9 => image.truncate(random.below(image.len() as u64 + 1) as usize),
            10 => {
                // The type of a segment: an interpreter, a note, TLS, a stack mark.
                let kind = random.pick(&[2, 3, 4, 6, 7, 0x6474_e550, 0x6474_e551, 0x6474_e553]);
                let at = segments + 56 * random.below(count as u64) as usize;
                set_field(&mut image, at, 4, kind);
            }
            _ => {
                // More segments: copies of the first, each changed in one field, at the end.
                let more = 1 + random.below(70);
                let from = image.get(segments..segments + 56).map(<[u8]>::to_vec);
                if let Some(first) = from {
                    let start = image.len() as u64;
                    for _ in 0..more {
                        let mut copy = first.clone();
                        let (at, width) = random.pick(&SEGMENT);
                        let value = new_value(random, field(&copy, at, width));
                        set_field(&mut copy, at, width, value);
                        image.extend_from_slice(&copy);
                    }
                    set_field(&mut image, 32, 8, start);
                    set_field(&mut image, 56, 2, more);
                }
            }
        }
        if image.is_empty() {
            image.push(0x7f);
        }
    }
    image
}

/// Waits at most five seconds, then kills. `None` when even that does not end the child.
fn reap(pid: i32) -> Option<Ended> {
    for pause in 0..2600 {
        if let Some((_, ended)) = wait_now(pid) {
            return Some(ended);
        }
        // The first checks come at once: nearly all children end quickly.
        let time =
            libc::timespec { tv_sec: 0, tv_nsec: if pause < 100 { 50_000 } else { 2_000_000 } };
        // SAFETY: `time` lives during the call; the remaining time is not requested.
        unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    }
    // SAFETY: a plain call with numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid).map(|(_, ended)| ended)
}

/// Executes the file with two arguments in a confined child, at random addresses or always the
/// same.
fn execute(path: &CString, random_places: bool) -> Result<Ended, String> {
    let argv = [c"mutant".as_ptr(), c"one".as_ptr(), c"two".as_ptr(), std::ptr::null()];
    let envp = [std::ptr::null()];
    let pid = fork().map_err(|e| format!("fork: {e}"))?;
    if pid == 0 {
        limit(libc::RLIMIT_CORE as libc::c_int, 0);
        limit(libc::RLIMIT_CPU as libc::c_int, 1);
        limit(libc::RLIMIT_AS as libc::c_int, 256 << 20);
        limit(libc::RLIMIT_FSIZE as libc::c_int, 1 << 20);
        become_nobody();
        limit(libc::RLIMIT_NPROC as libc::c_int, 1);
        // SAFETY: the vectors end with null and their strings are constants.
        unsafe {
            if !random_places {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            }
            libc::alarm(3);
            libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
            let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            libc::_exit(if error < 100 { 100 + error } else { 250 })
        }
    }
    reap(pid).ok_or_else(|| format!("child {pid} vanished"))
}

/// Executes the file twice; returns how it ended.
fn execute_twice(path: &CString, random_places: bool) -> Result<Ended, String> {
    let first = execute(path, random_places)?;
    let second = execute(path, random_places)?;
    // A process that a time limit ends may be ended by one limit or another. With random addresses
    // one start may fail because of its addresses, and the other not.
    let by_clock =
        |ended| matches!(ended, Ended::Killed(libc::SIGALRM | libc::SIGXCPU | libc::SIGKILL));
    if first != second && !random_places && !by_clock(first) && !by_clock(second) {
        return Err(format!("ended as {first:?}, and as {second:?} when started again"));
    }
    Ok(second)
}

fn put(path: &str, image: &[u8]) -> Result<(), String> {
    fs::write(path, image).map_err(|e| format!("write {path}: {e}"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("chmod {path}: {e}"))
}

fn print_outcomes(outcomes: &BTreeMap<Ended, u64>) {
    for (ended, times) in outcomes {
        match ended {
            Ended::Exited(status) if *status >= 100 => {
                println!("{times:8} refused by execve with error {}", status - 100);
            }
            Ended::Exited(status) => println!("{times:8} exited with {status}"),
            Ended::Killed(signal) => println!("{times:8} killed by signal {signal}"),
        }
    }
}

/// Reads the original program, which must be an ELF file.
fn read_original(options: &Options) -> Vec<u8> {
    let Some(file) = options.plain.clone() else { options.wrong("name the FILE to mutate") };
    match fs::read(&file) {
        Ok(bytes) if bytes.len() >= 64 && bytes.starts_with(b"\x7fELF") => bytes,
        Ok(_) => options.wrong(&format!("{file} is not an ELF file")),
        Err(e) => options.wrong(&format!("cannot read {file}: {e}")),
    }
}

fn main() {
    let options = Options::parse(USAGE, &["seed", "count", "first", "keep"], &[]);
    let seed: u64 = options.get("seed", 1);
    let count: u64 = options.get("count", 10_000);
    let first: u64 = options.get("first", 0);
    let original = read_original(&options);
    let directory = options.get("keep", format!("/tmp/elfmut.{}", std::process::id()));
    if let Err(e) = fs::create_dir_all(&directory)
        .and_then(|()| fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)))
    {
        eprintln!("elfmut: {directory}: {e}");
        exit(1);
    }
    let path = format!("{directory}/mutant");
    let good = c_path(&format!("{directory}/original"));
    let mut outcomes: BTreeMap<Ended, u64> = BTreeMap::new();
    let mut ledger = Ledger::default();
    let mut balanced = false;
    let tenth = (count / 10).max(1);
    let mut failure = put(&format!("{directory}/original"), &original).err();
    let mut round = first;
    while round < first + count && failure.is_none() {
        if (round - first).is_multiple_of(100) {
            match execute(&good, true) {
                Ok(Ended::Exited(2)) => {}
                other => failure = Some(format!("the unchanged program ended as {other:?}")),
            }
        }
        // Each round has a seed of its own, so that it can be repeated alone.
        let mut random = Random::new(seed.wrapping_mul(0x1_0000_01b3).wrapping_add(round));
        let image = mutate(&mut random, &original);
        // In two rounds of three a file is started at the same addresses each time.
        let random_places = round.is_multiple_of(3);
        match put(&path, &image).and_then(|()| execute_twice(&c_path(&path), random_places)) {
            Ok(ended) => *outcomes.entry(ended).or_default() += 1,
            Err(why) => failure = Some(format!("round {round}: {why}")),
        }
        round += 1;
        if round.is_multiple_of(1000) {
            println!("elfmut: {round} rounds");
        }
        if !options.has("keep") {
            let _ = fs::remove_file(&path);
            if (round - first).is_multiple_of(tenth) {
                balanced |= ledger.is_as_before(2 * tenth);
            }
        }
    }
    if failure.is_none() && !balanced && count >= 100 && !options.has("keep") {
        failure = Some(ledger.complaint());
    }
    print_outcomes(&outcomes);
    if !options.has("keep") {
        let _ = fs::remove_dir_all(&directory);
    }
    if let Some(why) = failure {
        println!("elfmut: FAILED: {why} (seed {seed})");
        exit(1);
    }
    println!("elfmut: ok, {count} files of seed {seed}, each started twice");
}
