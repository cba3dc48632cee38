//! Mutations of archives: everything that the reader yields lies inside its input and keeps the
//! reader's promises, and nothing panics.
//!
//! `FUZZ_ROUNDS` sets how many mutations are tried (default 100,000, a second or two) and
//! `FUZZ_SEED` the first one; a failure prints both and the bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayate_cpio::{Item, Reader, components};
use hayate_fuzzing::{Random, rounds, seed};

/// One entry of the format that `find | cpio -o -H newc` writes.
fn entry(archive: &mut Vec<u8>, magic: &str, name: &[u8], mode: u32, links: u32, content: &[u8]) {
    let fields = [7, mode, 1000, 100, links, 1_700_000_000, content.len() as u32, 8, 1, 5, 1];
    archive.extend_from_slice(magic.as_bytes());
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(format!("{:08x}{:08x}", name.len() + 1, 0).as_bytes());
    archive.extend_from_slice(name);
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

fn corpus() -> Vec<Vec<u8>> {
    let mut plain = Vec::new();
    entry(&mut plain, "070701", b".", 0o040_755, 3, b"");
    entry(&mut plain, "070701", b"bin/sh", 0o100_755, 2, b"");
    entry(&mut plain, "070701", b"bin/dash", 0o100_755, 2, b"\x7fELF and so on");
    entry(&mut plain, "070701", b"link", 0o120_777, 1, b"bin/sh");
    entry(&mut plain, "070701", b"dev/null", 0o020_666, 1, b"");
    entry(&mut plain, "070701", b"TRAILER!!!", 0, 1, b"");
    let mut summed = Vec::new();
    entry(&mut summed, "070702", b"../up//./x", 0o100_644, 1, &[0xff; 77]);
    entry(&mut summed, "070702", b"TRAILER!!!", 0, 1, b"");
    // Two archives with zeroes between them, as early and main initramfs are combined.
    let mut two = plain.clone();
    two.resize(two.len().next_multiple_of(512), 0);
    two.extend_from_slice(&summed);
    vec![plain, summed, two, b"07070".to_vec(), Vec::new()]
}

const FIELDS: [&[u8; 8]; 8] = [
    b"00000000",
    b"00000001",
    b"7fffffff",
    b"ffffffff",
    b"fffffffe",
    b"80000000",
    b"0000000g",
    b"00001001",
];

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.word() as u8;
                }
            }
            2 => {
                // A field of some header.
                let heads: Vec<usize> = bytes
                    .windows(5)
                    .enumerate()
                    .filter_map(|(at, text)| (text == b"07070").then_some(at))
                    .collect();
                let head = heads.get(random.below(heads.len())).copied().unwrap_or(0);
                let field = FIELDS[random.below(FIELDS.len())];
                for (to, from) in bytes.iter_mut().skip(head + 6 + 8 * random.below(13)).zip(field)
                {
                    *to = *from;
                }
            }
            3 => bytes.truncate(at),
            4 => bytes.extend_from_within(at..),
            _ => {
                let zeroes = random.below(9);
                bytes.splice(at..at, std::iter::repeat_n(0, zeroes));
            }
        }
        bytes.truncate(1 << 16);
    }
}

fn check(bytes: &[u8]) {
    let inside = |part: &[u8]| {
        let (own, whole) = (part.as_ptr_range(), bytes.as_ptr_range());
        part.is_empty() || whole.start <= own.start && own.end <= whole.end
    };
    let (mut ended, mut count) = (false, 0);
    for item in Reader::new(bytes) {
        assert!(!ended, "something came after an error");
        count += 1;
        assert!(count <= bytes.len(), "more entries than bytes");
        let entry = match item {
            Ok(Item::Entry(entry)) => entry,
            Ok(Item::End) => continue,
            Err(error) => {
                assert!(error.offset <= bytes.len());
                ended = true;
                continue;
            }
        };
        assert!(inside(entry.name) && inside(entry.content));
        // A name that is split into components stays below the root.
        for part in components(entry.name).into_iter().flatten() {
            assert!(!part.is_empty() && part != b"." && part != b"..");
            assert!(!part.contains(&b'/') && !part.contains(&0));
        }
    }
}

#[test]
fn mutated_archives_are_read_safely() {
    let rounds = rounds(100_000);
    let seed = seed();
    let corpus = corpus();
    corpus.iter().for_each(|bytes| check(bytes));
    for round in 0..rounds {
        let mut random = Random::new(seed << 32 ^ round);
        let mut bytes = corpus[random.below(corpus.len())].clone();
        mutate(&mut random, &mut bytes);
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| check(&bytes))) {
            eprintln!("FUZZ_SEED={seed}, round {round}, bytes {bytes:02x?}");
            std::panic::resume_unwind(failure);
        }
    }
}
