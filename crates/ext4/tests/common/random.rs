//! Random operations on a volume and its model.

use hayate_ext4::{Condition, Content, Error, New, Rename, Result};
use hayate_fuzzing::Random;

use super::content;
use super::model::{DIRECTORY, LINK, MASK, Pair, REGULAR};

/// Which operations come how often.
#[derive(Clone, Copy)]
pub struct Mix {
    /// Of ten changes of the tree, so many remove.
    pub removals: usize,
    /// Longest write in bytes.
    pub longest: usize,
    /// Largest file.
    pub largest: usize,
}

impl Mix {
    pub const ALL: Mix = Mix { removals: 4, longest: 60_000, largest: 400_000 };
    /// More is made than removed.
    pub const GROWING: Mix = Mix { removals: 1, longest: 60_000, largest: 900_000 };
    /// Small files: crash tests read everything back often.
    pub const SMALL: Mix = Mix { removals: 4, longest: 9000, largest: 40_000 };
}

const MODES: [u16; 6] = [REGULAR, DIRECTORY, LINK, 0o020_000, 0o010_000, 0o140_000];

fn of_kind(pair: &Pair, random: &mut Random, kind: u16) -> Option<u32> {
    let numbers: Vec<u32> = pair
        .model
        .nodes
        .iter()
        .filter(|(_, node)| node.mode & MASK == kind)
        .map(|(number, _)| *number)
        .collect();
    if numbers.is_empty() { None } else { Some(numbers[random.below(numbers.len())]) }
}

/// A name: mostly of a small set, so that names meet; some long.
pub fn name(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => {
            let length = 1 + random.below(255);
            let letter = b"xyz\xe4"[random.below(4)];
            vec![letter; length]
        }
        _ => format!("n{}", random.below(40)).into_bytes(),
    }
}

fn existing(pair: &Pair, random: &mut Random, parent: u32) -> Vec<u8> {
    let children = &pair.model.nodes[&parent].children;
    match random.below(children.len() + 1) {
        0 => name(random),
        at => match children.keys().nth(at - 1).unwrap() {
            // e2fsck makes it again.
            name if name == b"lost+found" => b"n0".to_vec(),
            name => name.clone(),
        },
    }
}

/// One operation.
fn step(pair: &mut Pair, random: &mut Random, mix: Mix) -> Result<()> {
    let parent = of_kind(pair, random, DIRECTORY).unwrap();
    let file = of_kind(pair, random, REGULAR);
    let block = pair.writer.volume().block_size();
    match (random.below(20), file) {
        (0..=5, _) => {
            let kinds = if random.one_in(2) { 6 } else { 2 };
            let mode = MODES[random.below(kinds)];
            let target = content(random.word(), 400);
            let target: Vec<u8> = target.iter().map(|byte| byte | 1).collect();
            let length =
                if random.one_in(2) { 1 + random.below(70) } else { 1 + random.below(400) };
            let content = match mode {
                LINK => Content::Target(&target[..length]),
                0o020_000 => {
                    Content::Device(random.below(4096) as u32, random.below(1 << 20) as u32)
                }
                _ => Content::Nothing,
            };
            let permissions = random.below(0o10000) as u16;
            let (uid, gid) = (random.below(1 << 20) as u32, random.below(70_000) as u32);
            let new = New { mode: mode | permissions, uid, gid, content };
            pair.create(parent, &name(random), &new).map(drop)
        }
        (6 | 7, _) if random.below(10) < mix.removals * 2 => {
            let name = existing(pair, random, parent);
            if random.one_in(2) { pair.unlink(parent, &name) } else { pair.rmdir(parent, &name) }
        }
        (8 | 9, _) => {
            let to = of_kind(pair, random, DIRECTORY).unwrap();
            let (old, new) = (existing(pair, random, parent), existing(pair, random, to));
            let kind = match random.below(6) {
                0 => Rename::Exchange,
                1 => Rename::NoReplace,
                2 => Rename::Whiteout(random.below(9) as u32, 7),
                _ => Rename::Replace,
            };
            pair.rename((parent, &old), (to, &new), kind)
        }
        (10, Some(file)) => pair.link(file, parent, &name(random)),
        (11..=14, Some(file)) => {
            let offset = if random.one_in(2) {
                pair.model.nodes[&file].bytes.len()
            } else {
                random.below(mix.largest)
            };
            let most = if random.one_in(3) { mix.longest } else { 3000 };
            let length = 1 + random.below(most);
            if offset + length > mix.largest {
                return Ok(());
            }
            pair.write(file, offset as u64, &content(random.word(), length))
        }
        (15, Some(file)) => pair.set_size(file, random.below(mix.largest) as u64),
        (16, Some(file)) => {
            let blocks = mix.largest / block;
            let from = random.below(blocks);
            let count = 1 + random.below(blocks - from);
            if random.one_in(2) {
                return pair.punch(file, from as u32, (from + count) as u32);
            }
            match pair.preallocate(file, from as u32, count.min(40) as u32) {
                Err(Error::Unsupported(_)) => Ok(()),
                done => done,
            }
        }
        (17, _) => {
            let numbers: Vec<u32> = pair.model.nodes.keys().copied().collect();
            let number = numbers[random.below(numbers.len())];
            let prefix = ["user.", "trusted.", "security."][random.below(3)];
            let name = format!("{prefix}{}", &"abcdefgh"[..1 + random.below(7)]);
            let length = if random.one_in(3) { random.below(block) } else { random.below(60) };
            let value = content(random.word(), length);
            let value = if random.one_in(4) { None } else { Some(value.as_slice()) };
            let condition = [Condition::Any, Condition::Any, Condition::Absent, Condition::Present]
                [random.below(4)];
            match pair.set_attribute(number, name.as_bytes(), value, condition) {
                // The inode has no room for it; the volume may have.
                Err(Error::NoSpace) => Ok(()),
                done => done,
            }
        }
        (18, _) => {
            let numbers: Vec<u32> = pair.model.nodes.keys().copied().collect();
            let number = numbers[random.below(numbers.len())];
            let permissions = random.below(0o10000) as u16;
            pair.set_mode(number, permissions, random.word() as u32, random.word() as u32)
        }
        (19, _) => pair.commit(),
        _ => Ok(()),
    }
}

/// Does `count` operations; returns how many found the volume full.
pub fn operations(pair: &mut Pair, random: &mut Random, mix: Mix, count: usize) -> usize {
    let mut full = 0;
    for _ in 0..count {
        match step(pair, random, mix) {
            Ok(()) => {}
            Err(Error::NoSpace) => full += 1,
            Err(
                Error::Exists
                | Error::NotFound
                | Error::NotEmpty
                | Error::NotDirectory
                | Error::IsDirectory,
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
    full
}
