//! Volumes made by mke2fs are written, unmounted, judged by e2fsck, and read back. Random
//! operations are done on a model too, which says what the result of each must be.
//!
//! `MODEL_ROUNDS` sets how many sequences are tried of each volume and `FUZZ_SEED` the first one.
//! `mke2fs`, `e2fsck` and `debugfs` (Debian: e2fsprogs) must be installed.

mod common;

use common::model::{DIRECTORY, Pair, REGULAR, assert_same, read_volume};
use common::random::{Mix, operations};
use common::{Disk, Scratch, assert_clean, content, debugfs, e2fsck, make, now};
use hayate_ext4::{Condition, Content, Error, Fill, New, Progress, ROOT, Rename, Writer};
use hayate_fuzzing::{Random, seed};

fn new(mode: u16) -> New<'static> {
    New { mode, uid: 1000, gid: 100_000, content: Content::Nothing }
}

/// How many sequences to try. A setting of its own: a fuzzer's rounds are a thousand times shorter.
fn rounds(default: u64) -> u64 {
    std::env::var("MODEL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The sets of options that are tried: options of mke2fs, and the size in KiB.
const VOLUMES: [(&[&str], u32); 12] = [
    (&["-t", "ext4"], 16_384),
    (&["-t", "ext4", "-b", "1024"], 16_384),
    (&["-t", "ext4", "-b", "2048", "-J", "size=2"], 16_384),
    (&["-t", "ext4", "-b", "4096", "-I", "128"], 16_384),
    (&["-t", "ext4", "-O", "^has_journal"], 16_384),
    (&["-t", "ext4", "-O", "^metadata_csum,^64bit"], 16_384),
    (&["-t", "ext4", "-O", "^metadata_csum,^64bit,uninit_bg", "-b", "1024", "-g", "1024"], 16_384),
    (&["-t", "ext4", "-b", "1024", "-g", "512", "-O", "meta_bg,^resize_inode"], 16_384),
    (&["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^flex_bg"], 32_768),
    (&["-t", "ext3", "-b", "1024"], 16_384),
    (&["-t", "ext2", "-b", "1024"], 8192),
    (&["-t", "ext2", "-O", "^dir_index,^filetype", "-I", "128"], 8192),
];

/// Unmounts, and fails unless e2fsck is content and the volume is the model.
fn check(scratch: &Scratch, pair: Pair, context: &str) -> Vec<u8> {
    pair.compare();
    let (bytes, model) = pair.unmount();
    assert_clean(scratch, &bytes, context);
    assert_same(&model, &read_volume(&bytes).unwrap());
    bytes
}

fn random_sequences(number: usize, mix: Mix, default: u64, length: usize) {
    let (options, kib) = VOLUMES[number];
    let scratch = Scratch::new(&format!("random-{number}"));
    let good = make(&scratch, options, kib);
    for round in 0..rounds(default) {
        let start = seed() << 32 ^ round;
        let context = format!("{options:?}, FUZZ_SEED={}, round {round}", seed());
        eprintln!("{context}");
        let mut random = Random::new(start);
        let mut bytes = good.clone();
        // Mounted twice, so that what the first left is the base of the second.
        for _ in 0..2 {
            let mut pair = Pair::open(bytes);
            operations(&mut pair, &mut random, mix, length);
            bytes = check(&scratch, pair, &context);
        }
    }
}

macro_rules! random_tests {
    ($($name:ident: $number:expr;)*) => {
        $(
            #[test]
            fn $name() {
                random_sequences($number, Mix::ALL, 6, 300);
            }
        )*
    };
}

random_tests! {
    random_operations_on_ext4: 0;
    random_operations_on_small_blocks: 1;
    random_operations_on_blocks_of_2_kib: 2;
    random_operations_on_small_inodes: 3;
    random_operations_without_a_journal: 4;
    random_operations_without_checksums: 5;
    random_operations_on_uninitialised_groups: 6;
    random_operations_on_meta_groups: 7;
    random_operations_on_many_groups: 8;
    random_operations_on_ext3: 9;
    random_operations_on_ext2: 10;
    random_operations_on_plain_ext2: 11;
}

#[test]
fn full_volumes_say_so_and_stay_whole() {
    for (index, (options, kib)) in [
        (&["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-N", "128"][..], 3000),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "64"], 3000),
        (&["-t", "ext2", "-b", "1024"], 1200),
    ]
    .into_iter()
    .enumerate()
    {
        let scratch = Scratch::new(&format!("full-{index}"));
        let good = make(&scratch, options, kib);
        for round in 0..rounds(4) {
            let context = format!("{options:?}, round {round}");
            let mut random = Random::new(seed() << 32 ^ round);
            let mut pair = Pair::open(good.clone());
            let full = operations(&mut pair, &mut random, Mix::GROWING, 1200);
            assert!(full > 0, "{context}: never full");
            check(&scratch, pair, &context);
        }
    }
}

#[test]
fn directories_of_thousands_of_names_are_indexed() {
    for (index, (options, kib, count)) in [
        // Two levels of nodes: a leaf has about twelve of these names, a node 123 leaves.
        (&["-t", "ext4", "-b", "1024", "-N", "8192"][..], 32_768, 4000),
        (&["-t", "ext3", "-b", "1024", "-N", "8192"], 32_768, 3000),
        (&["-t", "ext4", "-b", "4096", "-O", "large_dir", "-N", "8192"], 32_768, 3000),
        (&["-t", "ext2", "-O", "^dir_index", "-b", "1024", "-N", "2048"], 16_384, 1000),
    ]
    .into_iter()
    .enumerate()
    {
        let scratch = Scratch::new(&format!("many-{index}"));
        let mut pair = Pair::open(make(&scratch, options, kib));
        let directory = pair.create(ROOT, b"many", &new(DIRECTORY | 0o755)).unwrap();
        let first = pair.create(directory, b"first", &new(REGULAR | 0o644)).unwrap();
        let mut random = Random::new(seed());
        let long = "a-name-that-is-long-enough-to-fill-leaves-soon-".repeat(2);
        for number in 0..count {
            let name = format!("{long}{number}");
            if number % 5 == 4 {
                pair.create(directory, name.as_bytes(), &new(REGULAR | 0o600)).unwrap();
            } else {
                pair.link(first, directory, name.as_bytes()).unwrap();
            }
            if random.one_in(9) {
                let name = format!("{long}{}", random.below(count));
                let _ = pair.unlink(directory, name.as_bytes());
            }
        }
        let bytes = check(&scratch, pair, &format!("{options:?}"));
        let mut pair = Pair::open(bytes);
        for number in (0..count).filter(|number| number % 7 != 0) {
            let _ = pair.unlink(directory, format!("{long}{number}").as_bytes());
        }
        for number in 0..300 {
            let _ = pair.create(directory, format!("again-{number}").as_bytes(), &new(REGULAR));
        }
        pair.rename((ROOT, b"many"), (ROOT, b"renamed"), Rename::Replace).unwrap();
        check(&scratch, pair, &format!("{options:?}, thinned out"));
    }
}

/// CRC-32C as it is chained, without inversions, bit by bit.
fn chained(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0x82f6_3b78))
    })
}

/// Linux leaves in the reserved field of an index' root what was the end of a leaf, and the
/// checksum covers it (fs/ext4/namei.c, `make_indexed_dir` and `ext4_dx_csum`).
#[test]
fn an_index_that_linux_began_goes_on() {
    const BLOCK: usize = 1024;
    let scratch = Scratch::new("reserved");
    let mut pair = Pair::open(make(&scratch, &["-t", "ext4", "-b", "1024"], 16_384));
    let directory = pair.create(ROOT, b"d", &new(DIRECTORY | 0o755)).unwrap();
    let fill = |pair: &mut Pair, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let name = format!("a name that is rather long, number {number}");
            pair.create(directory, name.as_bytes(), &new(REGULAR | 0o644)).unwrap();
        }
    };
    fill(&mut pair, 0..60);
    let mut bytes = check(&scratch, pair, "before");

    let image = scratch.0.join("reserved");
    std::fs::write(&image, &bytes).unwrap();
    let root = debugfs(&image, "bmap d 0").trim().parse::<usize>().unwrap() * BLOCK;
    let told = debugfs(&image, "stat d");
    let (_, rest) = told.split_once("Generation: ").unwrap();
    let generation: u32 = rest.split_whitespace().next().unwrap().parse().unwrap();
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (limit, count) = (half(root + 32), half(root + 34));
    let tail = root + 32 + limit * 8;
    bytes[tail..tail + 4].copy_from_slice(&[12, 0, 0, 0xde]);
    let seed = chained(!0, &bytes[1024 + 0x68..1024 + 0x78]);
    let seed = chained(chained(seed, &directory.to_le_bytes()), &generation.to_le_bytes());
    let sum = chained(chained(seed, &bytes[root..root + 32 + count * 8]), &bytes[tail..tail + 4]);
    let sum = chained(sum, &[0; 4]);
    bytes[tail + 4..tail + 8].copy_from_slice(&sum.to_le_bytes());
    assert_clean(&scratch, &bytes, "as Linux leaves it");

    // The first leaf that is split changes the root; a second would hide a wrong sum.
    let mut pair = Pair::open(bytes);
    let size = |pair: &Pair| pair.writer.inode(&pair.disk, directory).unwrap().size;
    let before = size(&pair);
    for number in 60.. {
        fill(&mut pair, number..number + 1);
        if size(&pair) > before {
            break;
        }
    }
    check(&scratch, pair, "after");
}

#[test]
fn extent_trees_grow_deep_and_shrink() {
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        let scratch = Scratch::new("deep");
        let mut pair = Pair::open(make(&scratch, options, 32_768));
        let file = pair.create(ROOT, b"comb", &new(REGULAR | 0o644)).unwrap();
        // Every other block, so that no extent joins another: 5000 extents are three levels.
        for block in 0..5000 {
            pair.write(file, block * 2048, &[block as u8 | 1]).unwrap();
        }
        let bytes = check(&scratch, pair, &format!("{options:?}, a comb"));
        let mut pair = Pair::open(bytes);
        let mut random = Random::new(seed());
        for _ in 0..40 {
            let from = random.below(10_000) as u32;
            pair.punch(file, from, from + random.below(300) as u32 + 1).unwrap();
            let at = random.below(10_000_000) as u64;
            let length = random.below(9000);
            pair.write(file, at, &content(at, length + 1)).unwrap();
        }
        for size in [8_000_000, 3_000_000, 90_000, 5000, 0] {
            pair.set_size(file, size).unwrap();
            pair.write(file, 70_000, b"again").unwrap();
        }
        check(&scratch, pair, &format!("{options:?}, cut"));
    }
}

#[test]
fn a_file_over_2_gib_sets_the_feature() {
    let scratch = Scratch::new("large");
    let mut pair =
        Pair::open(make(&scratch, &["-t", "ext4", "-b", "4096", "-O", "^large_file"], 16_384));
    let file = pair.create(ROOT, b"large", &new(REGULAR | 0o644)).unwrap();
    let inode = pair.writer.inode(&pair.disk, file).unwrap();
    assert_eq!(pair.writer.largest_size(&inode), u64::from(u32::MAX) << 12);
    let time = pair.tick();
    let last = (3 << 30) / 4096;
    pair.writer.allocate(&pair.disk, file, last, 1, Fill::Written).unwrap();
    pair.writer.set_size(&pair.disk, file, (3 << 30) + 100, time).unwrap();
    pair.commit().unwrap();
    let (bytes, _) = pair.unmount();
    assert_clean(&scratch, &bytes, "a large file");
    let image = scratch.0.join("check");
    assert!(debugfs(&image, "features").contains("large_file"));
    assert!(debugfs(&image, "stat large").contains("Size: 3221225572"));
}

#[test]
fn an_inode_in_use_without_names_is_an_orphan() {
    let scratch = Scratch::new("orphan");
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        let good = make(&scratch, options, 16_384);
        let mut pair = Pair::open(good);
        let free = pair.writer.statistics();
        let mut inodes = Vec::new();
        for index in 0..5 {
            let time = pair.tick();
            let file =
                pair.writer.create_unnamed(&pair.disk, ROOT, &new(REGULAR | 0o600), time).unwrap();
            pair.writer.extend(&pair.disk, file, 0, 50, 51_000).unwrap();
            inodes.push(file);
            assert_eq!(pair.writer.inode(&pair.disk, file).unwrap().links, 0, "{index}");
        }
        // One gets a name after all; one is released from the middle of the list.
        pair.writer.link(&pair.disk, inodes[1], ROOT, b"named", now(9)).unwrap();
        while pair.writer.release(&pair.disk, inodes[2], now(9)).unwrap() == Progress::More {}
        pair.commit().unwrap();
        // The machine stops here.
        let bytes = pair.disk.bytes.into_inner();
        let pair = Pair::open(bytes);
        assert_eq!(pair.writer.statistics().free_inodes, free.free_inodes - 1);
        let (bytes, _) = pair.unmount();
        if options[1] == "ext4" {
            assert_clean(&scratch, &bytes, "orphans");
        }
        assert_eq!(read_volume(&bytes).unwrap().nodes.len(), 3);
    }
}

#[test]
fn debugfs_reads_back_what_was_written() {
    let scratch = Scratch::new("debugfs");
    let mut pair = Pair::open(make(&scratch, &["-t", "ext4", "-b", "4096"], 16_384));
    let directory = pair.create(ROOT, b"dir", &new(DIRECTORY | 0o750)).unwrap();
    let file = pair.create(directory, b"file", &new(REGULAR | 0o640)).unwrap();
    let bytes = content(7, 300_001);
    pair.write(file, 0, &bytes).unwrap();
    let target = Content::Target(b"dir/file");
    pair.create(ROOT, b"link", &New { content: target, ..new(0o120_777) }).unwrap();
    let long = [b'x'; 500];
    let target = Content::Target(&long);
    pair.create(ROOT, b"long", &New { content: target, ..new(0o120_777) }).unwrap();
    let node = New { content: Content::Device(259, 70_000), ..new(0o060_660) };
    pair.create(ROOT, b"disk", &node).unwrap();
    pair.set_attribute(file, b"user.small", Some(b"value"), Condition::Any).unwrap();
    pair.set_attribute(file, b"trusted.large", Some(&[b'v'; 3000]), Condition::Absent).unwrap();
    let bytes_of_volume = check(&scratch, pair, "debugfs");
    let image = scratch.0.join("check");
    std::fs::write(&image, bytes_of_volume).unwrap();
    let copy = scratch.0.join("copy");
    debugfs(&image, &format!("dump /dir/file {}", copy.display()));
    assert!(std::fs::read(&copy).unwrap() == bytes);
    let shown = debugfs(&image, "stat /dir/file");
    assert!(shown.contains("Mode:  0640") && shown.contains("User:  1000"), "{shown}");
    assert!(shown.contains("Group: 100000") && shown.contains("user.small"), "{shown}");
    assert!(shown.contains("trusted.large (3000)"), "{shown}");
    assert!(debugfs(&image, "stat link").contains("Fast link dest: \"dir/file\""));
    assert!(debugfs(&image, "cat long").starts_with(&"x".repeat(500)));
    let shown = debugfs(&image, "stat disk");
    assert!(shown.contains("number: 259:70000"), "{shown}");
}

#[test]
fn features_that_writing_would_break_are_refused() {
    let scratch = Scratch::new("refused");
    for options in [
        &["-t", "ext4", "-O", "bigalloc"][..],
        &["-t", "ext4", "-O", "quota"],
        &["-t", "ext4", "-O", "mmp"],
        &["-t", "ext4", "-O", "ea_inode"],
        &["-t", "ext4", "-O", "verity"],
        &["-t", "ext4", "-O", "project,quota"],
    ] {
        let bytes = make(&scratch, options, 16_384);
        let disk = Disk::new(bytes.clone());
        let refused = Writer::open(&disk, disk.size(), now(1)).err();
        assert!(matches!(refused, Some(Error::Unsupported(_))), "{options:?}: {refused:?}");
        assert!(disk.bytes.into_inner() == bytes, "{options:?}: written");
    }
}

#[test]
fn a_failing_device_ends_writing_and_leaves_a_volume_that_can_be_recovered() {
    let scratch = Scratch::new("failing");
    let good = make(&scratch, &["-t", "ext4", "-b", "1024"], 8192);
    let mut failures = 0;
    for fuse in (0..160).step_by(3) {
        let mut pair = Pair::open(good.clone());
        pair.disk.fuse.set(Some(fuse));
        let mut random = Random::new(fuse);
        let mut names = 0;
        let failed = loop {
            let name = format!("file-{names}");
            names += 1;
            let time = pair.tick();
            let made = pair.writer.create(&pair.disk, ROOT, name.as_bytes(), &new(REGULAR), time);
            let committed = match made {
                Ok(_) if random.one_in(3) => pair.commit(),
                Err(Error::CommitFirst) => pair.commit(),
                made => made.map(drop),
            };
            match committed {
                Ok(()) if names < 2000 => {}
                result => break result,
            }
        };
        assert_eq!(failed, Err(Error::Io), "{fuse}");
        failures += 1;
        // No change is taken any more, and reading goes on.
        let time = pair.tick();
        let refused = pair.writer.create(&pair.disk, ROOT, b"later", &new(REGULAR), time);
        assert_eq!(refused, Err(Error::ReadOnly));
        assert!(pair.writer.failure().is_some());
        assert!(pair.writer.lookup(&pair.disk, ROOT, b"lost+found").unwrap().is_some());
        let image = scratch.0.join("failed");
        std::fs::write(&image, pair.disk.bytes.into_inner()).unwrap();
        let (status, said) = e2fsck(&image, "-fy");
        assert!(status <= 1, "{fuse}: {status} {said}");
        assert_eq!(e2fsck(&image, "-fn").0, 0, "{fuse}");
    }
    assert!(failures > 40);
}

#[test]
fn indexes_of_every_hash_are_those_of_e2fsprogs() {
    let scratch = Scratch::new("hashes");
    for hash in ["legacy", "half_md4", "tea"] {
        // Flags 1: bytes of names are signed; 2: unsigned. e2fsck -D would sort as they say.
        for flags in ["1", "2"] {
            let _ = make(&scratch, &["-t", "ext4", "-b", "1024"], 16_384);
            let image = scratch.0.join("image");
            for request in [format!("ssv def_hash_version {hash}"), format!("ssv flags {flags}")] {
                let mut set = std::process::Command::new("/sbin/debugfs");
                assert!(set.args(["-w", "-R", &request]).arg(&image).status().unwrap().success());
            }
            let mut pair = Pair::open(std::fs::read(&image).unwrap());
            let first = pair.create(ROOT, b"first", &new(REGULAR)).unwrap();
            for number in 0..400 {
                let name = format!("ein-längerer-Name-für-Blätter-{number}-ÿ");
                pair.link(first, ROOT, name.as_bytes()).unwrap();
            }
            check(&scratch, pair, &format!("{hash}, flags {flags}"));
        }
    }
}

#[test]
fn files_that_grow_side_by_side_stay_in_few_pieces() {
    for options in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "4096"]] {
        let scratch = Scratch::new("growing");
        let mut pair = Pair::open(make(&scratch, options, 32_768));
        let files: Vec<u32> = (0..4)
            .map(|name| pair.create(ROOT, &[b'a' + name], &new(REGULAR | 0o644)).unwrap())
            .collect();
        for step in 0..600 {
            for &file in &files {
                pair.write(file, step * 4096, &content(step, 4096)).unwrap();
                if step < 9 {
                    let i = pair.writer.inode(&pair.disk, file).unwrap();
                    eprintln!(
                        "{step} {file} {:?}",
                        pair.writer.mapping(&pair.disk, &i, (step * 4) as u32)
                    );
                }
            }
        }
        for &file in &files {
            let inode = pair.writer.inode(&pair.disk, file).unwrap();
            let map = pair.writer.volume().map(&pair.writer.view(&pair.disk), &inode).unwrap();
            let pieces = map.extents().len();
            assert!(pieces < 40, "{options:?}: {pieces} pieces");
        }
        check(&scratch, pair, &format!("{options:?}"));
    }
}
