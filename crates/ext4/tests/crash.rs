//! The machine stops at many points of a load. The device keeps a log of its requests; an image is
//! made of all writes before the last flush and of some, or parts of some, after it. Our own
//! recovery and e2fsck's must both make a consistent volume of it, with one of the two states that
//! the transaction before and after allow, and nothing in between.
//!
//! Data is ordered: a file that was not written since the commit must be there whole, also if it
//! was removed since.
//!
//! `CRASH_POINTS` sets how many points of each volume are tried (default 40), `FUZZ_SEED` the load.

mod common;

use std::collections::BTreeSet;

use common::model::{Model, Pair, Snapshot, read_volume};
use common::random::{Mix, operations};
use common::{Disk, Request, Scratch, assert_clean, e2fsck, make, now};
use hayate_ext4::{Result, Writer};
use hayate_fuzzing::{Random, seed};

const SECTOR: usize = 512;

fn points() -> usize {
    std::env::var("CRASH_POINTS").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// Puts a write that was not flushed into `image`: whole, some of its sectors, or not at all.
fn apply_some(image: &mut [u8], offset: u64, bytes: &[u8], random: &mut Random) {
    let offset = offset as usize;
    // The superblock's sectors are taken to be one, as Linux takes them.
    let is_superblock = offset < 2048;
    match random.below(5) {
        0 | 1 => {}
        2 if !is_superblock => {
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                if random.one_in(2) {
                    let at = offset + index * SECTOR;
                    image[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        _ => image[offset..offset + bytes.len()].copy_from_slice(bytes),
    }
}

/// Why `found` is not the state of a snapshot; the data of `touched` may be newer.
fn difference(expected: &Model, found: &Model, touched: &BTreeSet<u32>) -> Option<String> {
    let expected = expected.reachable();
    let keys = |model: &Model| model.nodes.keys().copied().collect::<Vec<_>>();
    if keys(&expected) != keys(found) {
        return Some(format!("inodes {:?}, not {:?}", keys(found), keys(&expected)));
    }
    for (number, node) in &expected.nodes {
        let mut other = found.nodes[number].clone();
        if touched.contains(number) && other.bytes.len() == node.bytes.len() {
            other.bytes.clone_from(&node.bytes);
        }
        if other != *node {
            let short = |node: &common::model::Node| {
                let mut node = node.clone();
                node.bytes.truncate(16);
                node
            };
            return Some(format!("inode {number}: {:?}, not {:?}", short(&other), short(node)));
        }
    }
    None
}

/// Fails unless `found` is the state before or after the transaction at the crash.
fn judge(snapshots: &[Snapshot], at: usize, found: &Model, context: &str) {
    let mut reasons = Vec::new();
    for (index, touched) in [(Some(at), true), (at.checked_add(1), false)] {
        let Some(snapshot) = index.and_then(|index| snapshots.get(index)) else { continue };
        let Some(model) = &snapshot.model else { return };
        let empty = BTreeSet::new();
        let newer = snapshots.get(at + 1).map_or(&empty, |next| &next.touched);
        match difference(model, found, if touched { newer } else { &empty }) {
            None => return,
            Some(reason) => reasons.push(reason),
        }
    }
    panic!("{context}: neither state: {reasons:#?}");
}

/// Recovers by our own code; returns the unmounted volume.
fn recover(image: Vec<u8>) -> Result<Vec<u8>> {
    let disk = Disk::new(image);
    let mut writer = Writer::open(&disk, disk.size(), now(1_000_000))?;
    writer.unmount(&disk, now(1_000_001))?;
    Ok(disk.bytes.into_inner())
}

/// Where in the log the machine stops, ascending: anywhere, before a flush, and in the end of a
/// checkpoint, which is rare: before the flush that follows the write of the journal's superblock.
fn places(log: &[Request], random: &mut Random) -> Vec<usize> {
    let flushes: Vec<usize> =
        (0..log.len()).filter(|&at| matches!(log[at], Request::Flush)).collect();
    let ends_checkpoint = |at: &&usize| {
        let before = at.checked_sub(1).map(|before| &log[before]);
        matches!(before, Some(Request::Write(_, bytes)) if bytes.len() == 1024)
    };
    let checkpoints: Vec<usize> = flushes.iter().filter(ends_checkpoint).copied().collect();
    assert!(checkpoints.len() > 3, "a load that fills the journal");
    let mut places: Vec<usize> = (0..points())
        .map(|number| match number % 4 {
            0 => flushes[random.below(flushes.len())],
            1 => checkpoints[random.below(checkpoints.len())],
            _ => random.below(log.len() + 1),
        })
        .collect();
    places.sort_unstable();
    places
}

fn crash(name: &str, options: &[&str]) {
    let scratch = Scratch::new(name);
    let mut random = Random::new(seed());
    let mut pair = Pair::open(make(&scratch, options, 16_384));
    operations(&mut pair, &mut random, Mix::SMALL, 60);
    pair.commit().unwrap();
    let base = pair.disk.bytes.borrow().clone();
    *pair.disk.log.borrow_mut() = Some(Vec::new());
    pair.snapshots = Some(Vec::new());
    pair.commit().unwrap();
    for _ in 0..400 {
        let count = 1 + random.below(4);
        operations(&mut pair, &mut random, Mix::SMALL, count);
        pair.commit().unwrap();
    }
    let log = pair.disk.log.borrow_mut().take().unwrap();
    let snapshots = pair.snapshots.take().unwrap();
    let places = places(&log, &mut random);
    // The image up to the last flush before the crash, and where this flush is in the log.
    let (mut stable, mut flushed) = (base, 0);
    for (number, place) in places.into_iter().enumerate() {
        let context = format!("{options:?}, FUZZ_SEED={}, request {place}", seed());
        let is_flush = |request: &Request| matches!(request, Request::Flush);
        let last = log[..place].iter().rposition(is_flush).map_or(0, |at| at + 1);
        for request in &log[flushed..last.max(flushed)] {
            if let Request::Write(offset, bytes) = request {
                let offset = *offset as usize;
                stable[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
        flushed = flushed.max(last);
        let mut image = stable.clone();
        for request in &log[flushed..place] {
            if let Request::Write(offset, bytes) = request {
                apply_some(&mut image, *offset, bytes, &mut random);
            }
        }
        let at = snapshots.iter().rposition(|snapshot| snapshot.requests <= place).unwrap_or(0);
        // A reader that writes nothing sees the same.
        let seen = read_volume(&image).unwrap_or_else(|error| panic!("{context}: {error}"));
        judge(&snapshots, at, &seen, &format!("{context}, read only"));
        let recovered = recover(image.clone()).unwrap_or_else(|error| panic!("{context}: {error}"));
        judge(&snapshots, at, &read_volume(&recovered).unwrap(), &context);
        if number % 2 == 0 {
            assert_clean(&scratch, &recovered, &context);
        } else {
            let file = scratch.0.join("crashed");
            std::fs::write(&file, &image).unwrap();
            let (status, said) = e2fsck(&file, "-fy");
            assert!(status <= 1, "{context}: e2fsck -fy: {status}\n{said}");
            let (status, said) = e2fsck(&file, "-fn");
            assert_eq!(status, 0, "{context}: e2fsck -fn after -fy\n{said}");
            let bytes = std::fs::read(&file).unwrap();
            judge(&snapshots, at, &read_volume(&bytes).unwrap(), &format!("{context}, e2fsck"));
        }
    }
}

#[test]
fn crashes_on_ext4() {
    crash("crash-ext4", &["-t", "ext4", "-b", "4096", "-J", "size=4"]);
}

#[test]
fn crashes_on_small_blocks() {
    crash("crash-small", &["-t", "ext4", "-b", "1024"]);
}

#[test]
fn crashes_without_checksums() {
    crash("crash-plain", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"]);
}

#[test]
fn crashes_on_ext3() {
    crash("crash-ext3", &["-t", "ext3", "-b", "1024"]);
}
