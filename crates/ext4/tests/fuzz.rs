//! Mutations of whole volumes, aimed at the fields that decide how a volume is read. Mounting,
//! listing, examining every inode, and reading files and links must end with a result or an error,
//! and without a panic. So must mounting for writing and operations of all kinds.
//!
//! `FUZZ_ROUNDS` sets how many mutations of each volume are tried (default 400) and `FUZZ_SEED` the
//! first one; a failure prints both and the changes. Most volumes have no checksums, so that the
//! damage reaches the code behind them; one has them. `mke2fs` (Debian: e2fsprogs) must be
//! installed.

mod common;

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use common::{Disk, now};
use hayate_ext4::{
    Change, Condition, Content, Error, Fill, New, Progress, ROOT, Rename, Result, Source, Volume,
    Writer,
};
use hayate_fuzzing::{Random, rounds, seed};

/// A volume in memory that counts reads.
struct Image<'a> {
    bytes: &'a [u8],
    reads: Cell<u64>,
}

impl Source for Image<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.reads.set(self.reads.get() + 1);
        let start = usize::try_from(offset).map_err(|_| Error::Io)?;
        let end = start.checked_add(into.len()).ok_or(Error::Io)?;
        into.copy_from_slice(self.bytes.get(start..end).ok_or(Error::Io)?);
        Ok(())
    }
}

const BLOCK: usize = 1024;

/// Makes a volume of 2 MiB with 1 KiB blocks and files of every kind.
fn make(kind: &str, features: &str) -> Vec<u8> {
    let name = format!("hayate-ext4-fuzz-{}-{kind}-{features}", std::process::id());
    let scratch = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&scratch);
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::create_dir(tree.join("many")).unwrap();
    for index in 0..120 {
        fs::write(tree.join(format!("many/some-longer-name-{index:05}")), [index]).unwrap();
    }
    fs::write(tree.join("a/large"), vec![7; 400_000]).unwrap();
    fs::write(tree.join("a/b/small"), b"small").unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"end", 300_000).unwrap();
    symlink("a/large", tree.join("short")).unwrap();
    symlink("x/".repeat(200), tree.join("long")).unwrap();
    let output = Command::new("/sbin/mke2fs")
        .args(["-q", "-F", "-t", kind, "-b", "1024", "-O", features, "-d"])
        .arg(&tree)
        .arg(&image)
        .arg("2048k")
        .output()
        .expect("mke2fs; install e2fsprogs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Attributes behind the inode's fields and in a block, where inodes are large enough.
    for name in ["user.short", "trusted.other", "security.third"] {
        for file in ["/a/b/small", "/many"] {
            let value = "v".repeat(4 + 30 * name.len());
            let request = format!("ea_set {file} {name} {value}");
            let mut set = Command::new("/sbin/debugfs");
            let set = set.args(["-w", "-R", &request]).arg(&image).output();
            assert!(set.expect("debugfs; install e2fsprogs").status.success());
        }
    }
    let bytes = fs::read(&image).unwrap();
    let _ = fs::remove_dir_all(&scratch);
    bytes
}

const INTERESTING: [u64; 14] =
    [0, 1, 2, 3, 4, 8, 0x7f, 0xff, 0x400, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_fffe, 0xffff_ffff];
/// Offsets of the inode fields that a reader uses: mode, size, links, flags, the map (header of
/// extents and two of them, or blocks), attributes, the upper half of the size, extra size.
const INODE: [usize; 24] = [
    0, 2, 4, 26, 28, 32, 40, 42, 44, 46, 48, 52, 56, 60, 64, 88, 100, 104, 108, 118, 128, 160, 164,
    168,
];

/// Changes one place; returns where, how wide, and the value.
fn change(random: &mut Random, good: &[u8]) -> (usize, usize, u64) {
    let word = |at: usize| {
        good.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().unwrap()) as usize)
    };
    let inode_size = usize::from(good[1024 + 0x58]) | usize::from(good[1024 + 0x59]) << 8;
    let at = match random.below(8) {
        // The superblock, the group's descriptor.
        0 => 1024 + 4 * random.below(256),
        1 => 2048 + 4 * random.below(16),
        // An inode, mostly a used one.
        2..=4 => {
            let table = word(2048 + 8) * BLOCK;
            let number = if random.below(4) == 0 { random.below(256) } else { random.below(24) };
            table + number * inode_size + INODE[random.below(INODE.len())]
        }
        // The beginning of a block: headers of directories, extents, the journal.
        5 | 6 => random.below(good.len() / BLOCK) * BLOCK + 4 * random.below(16),
        _ => random.below(good.len()),
    };
    let width = [1, 2, 2, 4, 4, 8][random.below(6)];
    let value = if random.below(3) == 0 {
        random.word()
    } else {
        INTERESTING[random.below(INTERESTING.len())]
    };
    (at, width, value)
}

/// Mounts the volume and reads everything.
fn visit(bytes: &[u8]) {
    let image = Image { bytes, reads: Cell::new(0) };
    let Ok(volume) = Volume::open(&image, bytes.len() as u64) else { return };
    let _ = volume.statistics();
    let size = volume.block_size();
    assert!((1024..=65_536).contains(&size), "blocks of {size} bytes");
    let mut names = vec![ROOT];
    let mut seen = 0;
    let mut block = vec![0; size];
    while let Some(number) = names.pop() {
        let Ok(inode) = volume.inode(&image, number) else { continue };
        let Ok(map) = volume.map(&image, &inode) else { continue };
        for index in 0..inode.size.div_ceil(size as u64).min(64) {
            if map.read(&volume, &image, index * size as u64, &mut block).is_err()
                || volume.check_directory(&inode, &block).is_err()
            {
                continue;
            }
            let mut room = size;
            for entry in volume.entries(&block, 0) {
                let Ok(entry) = entry else { break };
                assert!(entry.name.len() <= 255);
                room = room.checked_sub(8).expect("more entries than fit into a block");
                seen += 1;
                if entry.name != b"." && entry.name != b".." && seen < 400 {
                    names.push(entry.inode);
                }
            }
        }
    }
    for number in 0..300 {
        let Ok(inode) = volume.inode(&image, number) else { continue };
        if let Ok(target) = volume.link_target(&image, &inode) {
            assert!(target.len() <= 65_536, "a link of {} bytes", target.len());
        }
        if let Ok(names) = volume.attributes(&image, &inode) {
            assert!(names.len() <= 65_536, "{} bytes of names", names.len());
            for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).take(40) {
                if let Ok(value) = volume.attribute(&image, &inode, name) {
                    assert!(value.is_none_or(|value| value.len() <= 65_536));
                }
            }
        }
        let Ok(map) = volume.map(&image, &inode) else { continue };
        assert!(map.extents().len() <= bytes.len(), "more extents than bytes");
        let mut piece = vec![0; 5000];
        for offset in [0, 1, inode.size / 2, inode.size.wrapping_sub(3), u64::MAX - 4000] {
            let _ = map.run(offset);
            let _ = map.read(&volume, &image, offset, &mut piece);
        }
    }
    assert!(image.reads.get() < 2_000_000, "{} reads of a small volume", image.reads.get());
}

/// Repeats an operation of several steps, with commits between.
fn repeat(
    writer: &mut Writer,
    disk: &Disk,
    mut operation: impl FnMut(&mut Writer, &Disk) -> Result<Progress>,
) {
    for step in 0.. {
        assert!(step < 3000, "an operation without an end");
        if writer.needs_commit() && writer.commit(disk, now(2)).is_err() {
            return;
        }
        match operation(writer, disk) {
            Ok(Progress::More) => {}
            _ => return,
        }
    }
}

/// A random operation on inodes that exist or do not.
fn change_something(writer: &mut Writer, disk: &Disk, random: &mut Random) {
    const KINDS: [u16; 5] = [0o100_644, 0o040_755, 0o120_777, 0o010_600, 0o100_600];
    let number = |random: &mut Random| match random.below(4) {
        0 => ROOT,
        1 => random.below(300) as u32,
        _ => 11 + random.below(16) as u32,
    };
    let (one, other) = (number(random), number(random));
    // Names that are there, in a directory of the volume, or new ones.
    let mut names = vec![b"new".to_vec(), b"other".to_vec(), vec![b'x'; 200]];
    let bits = 1 + random.below(62);
    let from = random.word() >> bits;
    let _ = writer.list(disk, one, from, &mut |entry, _| {
        names.push(entry.name.to_vec());
        names.len() < 20
    });
    let name = names[random.below(names.len())].clone();
    let second = names[random.below(names.len())].clone();
    let bits = random.below(31);
    let (block, count) = (random.below(1 << bits) as u32, 1 + random.below(60) as u32);
    let time = now(3);
    let mode = KINDS[random.below(KINDS.len())];
    let long = [b't'; 300];
    let target = &long[..1 + random.below(299)];
    let content = if mode == 0o120_777 { Content::Target(target) } else { Content::Nothing };
    let new = New { mode, uid: 1, gid: 2, content };
    match random.below(14) {
        0..=2 => drop(writer.create(disk, one, &name, &new, time)),
        3 => drop(writer.link(disk, other, one, &name, time)),
        4 => drop(writer.unlink(disk, one, &name, time)),
        5 => drop(writer.rmdir(disk, one, &name, time)),
        6 => {
            let kinds = [Rename::Replace, Rename::Exchange, Rename::Whiteout(0, 0)];
            let kind = kinds[random.below(3)];
            let _ = writer.rename(disk, (one, &name), (other, &second), kind, time);
        }
        7 => {
            let fill = if random.one_in(2) { Fill::Written } else { Fill::Unwritten };
            let _ = writer.allocate(disk, one, block, count, fill);
            let _ = writer.extend(disk, other, block, count, u64::from(block) * 1024);
        }
        8 => repeat(writer, disk, |writer, disk| {
            writer.set_size(disk, one, u64::from(block) * 100, time)
        }),
        9 => repeat(writer, disk, |writer, disk| {
            writer.punch(disk, one, block, block.saturating_add(count), time)
        }),
        10 => repeat(writer, disk, |writer, disk| writer.release(disk, one, time)),
        11 => {
            let attribute = ["user.short", "trusted.other", "security.third", "user.new"];
            let attribute = attribute[random.below(4)].as_bytes();
            let value = if random.one_in(3) { None } else { Some(target) };
            let _ = writer.set_attribute(disk, one, attribute, value, Condition::Any, time);
        }
        12 => {
            let change = Change { permissions: Some(0o7777), uid: Some(7), ..Change::default() };
            let _ = writer.change(disk, one, &change);
            let _ = writer.create_unnamed(disk, other, &new, time);
        }
        _ => {
            if let Ok(inode) = writer.inode(disk, one) {
                let _ = writer.mapping(disk, &inode, block);
            }
            let _ = writer.lookup(disk, one, &name);
            let _ = writer.parent(disk, one);
        }
    }
}

/// Mounts the volume for writing, and changes things at random.
fn change_all(bytes: &[u8], random: &mut Random) {
    let disk = Disk::new(bytes.to_vec());
    let Ok(mut writer) = Writer::open(&disk, disk.size(), now(1)) else { return };
    for _ in 0..60 {
        change_something(&mut writer, &disk, random);
        if (writer.needs_commit() || random.one_in(8)) && writer.commit(&disk, now(4)).is_err() {
            break;
        }
    }
    let _ = writer.unmount(&disk, now(5));
    assert!(disk.reads.get() < 2_000_000, "{} reads of a small volume", disk.reads.get());
}

fn fuzz(good: &[u8]) {
    let rounds = rounds(400);
    let seed = seed();
    visit(good);
    let mut bytes = good.to_vec();
    for round in 0..rounds {
        let mut random = Random::new(seed << 32 ^ round);
        let count = 1 + random.below(12);
        let changes: Vec<_> = (0..count).map(|_| change(&mut random, good)).collect();
        for &(at, width, value) in &changes {
            for (to, from) in bytes.iter_mut().skip(at).zip(&value.to_le_bytes()[..width]) {
                *to = *from;
            }
        }
        // Without its magic number the mutation would test nothing else.
        bytes[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xef]);
        let both = AssertUnwindSafe(|| {
            visit(&bytes);
            change_all(&bytes, &mut random);
        });
        if let Err(failure) = catch_unwind(both) {
            eprintln!(
                "FUZZ_SEED={seed}, round {round}, changes (place, width, value) {changes:x?}"
            );
            std::panic::resume_unwind(failure);
        }
        for &(at, width, _) in &changes {
            for (to, from) in bytes.iter_mut().zip(good).skip(at).take(width) {
                *to = *from;
            }
        }
    }
}

#[test]
fn mutated_ext4_volumes_are_used_safely() {
    fuzz(&make("ext4", "^metadata_csum"));
}

#[test]
fn mutated_volumes_with_checksums_are_used_safely() {
    fuzz(&make("ext4", "metadata_csum"));
}

#[test]
fn mutated_ext3_volumes_are_used_safely() {
    fuzz(&make("ext3", "^dir_index"));
}

#[test]
fn mutated_ext2_volumes_are_used_safely() {
    fuzz(&make("ext2", "^dir_index"));
}

#[test]
fn mutated_volumes_without_a_journal_are_used_safely() {
    fuzz(&make("ext4", "^metadata_csum,^has_journal"));
}
