//! Extended attributes that change.
//!
//! A change takes the entries of both places out, and writes the places that differ anew: behind
//! the inode's fields as long as there is room, the rest in the block. A block may belong to many
//! inodes, which its reference count says: one that is shared is never changed, the inode gets its
//! own copy. Blocks are not searched for equal ones to share, as Linux does.

use alloc::vec::Vec;

use super::{CORRUPT, HEAD, IN_BLOCK, IN_INODE, MAGIC, SUM};
use crate::checksum::Seed;
use crate::error::{Error, Result, buffer};
use crate::field::{put, put_u8, put_u16, put_u32, u8, u16, u32};
use crate::inode::Time;
use crate::node::Node;
use crate::superblock;
use crate::volume::Device;
use crate::writer::Writer;

/// The longest name, without its beginning.
const LONGEST_NAME: usize = 255;
/// Linux' `EXT4_XATTR_REFCOUNT_MAX`.
const MOST_REFERENCES: u32 = 1024;

/// Conditions of setting an attribute (`XATTR_CREATE`, `XATTR_REPLACE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None.
    Any,
    /// It must not exist: [`Error::Exists`].
    Absent,
    /// It must exist: [`Error::NotFound`].
    Present,
}

/// An attribute: the number of its name's beginning, the rest, and its value.
#[derive(PartialEq, Eq)]
struct Item {
    prefix: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Item {
    fn is(&self, prefix: u8, name: &[u8]) -> bool {
        self.prefix == prefix && self.name == name
    }

    /// Bytes that the entry and its value take.
    fn space(&self) -> usize {
        HEAD + self.name.len().next_multiple_of(4) + self.value.len().next_multiple_of(4)
    }

    /// The entry's hash: name, then value.
    fn hash(&self) -> u32 {
        let name = self.name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
        self.value.chunks(4).fold(name, |hash, word| {
            let mut bytes = [0; 4];
            put(&mut bytes, 0, word);
            hash.rotate_left(16) ^ u32::from_le_bytes(bytes)
        })
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = buffer(bytes.len())?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}

/// Reads the entries of `area` from byte `first` on; values count from `area`'s begin.
fn items(area: &[u8], first: usize) -> Result<Vec<Item>> {
    let mut list = Vec::new();
    let mut at = first;
    while u32(area, at) != 0 {
        let head = area.get(at..at + HEAD).ok_or(CORRUPT)?;
        let name = usize::from(u8(head, 0));
        at += HEAD;
        let bytes = area.get(at..at + name).ok_or(CORRUPT)?;
        at += name.next_multiple_of(4);
        let (start, size) = (usize::from(u16(head, 2)), u32(head, 8) as usize);
        if u32(head, 4) != 0 || size > area.len() {
            return Err(CORRUPT);
        }
        let value = if size == 0 { &[] } else { area.get(start..start + size).ok_or(CORRUPT)? };
        let item = Item { prefix: u8(head, 1), name: copied(bytes)?, value: copied(value)? };
        list.try_reserve(1).map_err(|_| Error::Memory)?;
        list.push(item);
    }
    Ok(list)
}

/// Writes entries to `area` from byte `first` on, values from its end downwards; the rest becomes
/// zero. With `hashes` each entry has its hash, as in a block.
fn write(area: &mut [u8], first: usize, list: &[Item], hashes: bool) {
    if let Some(rest) = area.get_mut(first..) {
        rest.fill(0);
    }
    let (mut at, mut end) = (first, area.len());
    for item in list {
        end -= item.value.len().next_multiple_of(4);
        put_u8(area, at, item.name.len() as u8);
        put_u8(area, at + 1, item.prefix);
        put_u16(area, at + 2, if item.value.is_empty() { 0 } else { end as u16 });
        put_u32(area, at + 8, item.value.len() as u32);
        put_u32(area, at + 12, if hashes { item.hash() } else { 0 });
        put(area, at + HEAD, &item.name);
        put(area, end, &item.value);
        at += HEAD + item.name.len().next_multiple_of(4);
    }
}

/// Whether entries fit into `room` bytes, with the zeros behind them.
fn fits(list: &[Item], room: usize) -> bool {
    list.is_empty() || list.iter().map(Item::space).sum::<usize>() + 4 <= room
}

/// The number of a name's beginning, and the rest.
fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    let beginnings: [(u8, &[u8]); 3] = [(1, b"user."), (4, b"trusted."), (6, b"security.")];
    for (number, beginning) in beginnings {
        if let Some(rest) = name.strip_prefix(beginning) {
            return match rest.len() {
                0 => Err(Error::Invalid),
                1..=LONGEST_NAME if !rest.contains(&0) => Ok((number, rest)),
                1..=LONGEST_NAME => Err(Error::Invalid),
                _ => Err(Error::NameTooLong),
            };
        }
    }
    Err(Error::Unsupported("attributes with such a name"))
}

impl Writer {
    /// Sets an extended attribute, or removes it (`None`; [`Error::NotFound`] without it).
    /// [`Error::Unsupported`] for names that do not begin with `user.`, `trusted.` or
    /// `security.`; [`Error::NoSpace`] when inode and block have no room for it.
    pub fn set_attribute(
        &mut self,
        device: &dyn Device,
        inode: u32,
        name: &[u8],
        value: Option<&[u8]>,
        condition: Condition,
        now: Time,
    ) -> Result<()> {
        let (prefix, rest) = split_name(name)?;
        if value.is_some_and(|value| value.len() > self.volume.block_size()) {
            return Err(Error::NoSpace);
        }
        self.operate(|writer| {
            let mut node = writer.node(device, inode)?;
            let mut inside = inside_items(&node)?;
            let mut outside = writer.block_items(device, &node)?;
            let before = (inside.len(), outside.len());
            inside.retain(|item| !item.is(prefix, rest));
            outside.retain(|item| !item.is(prefix, rest));
            let was = before != (inside.len(), outside.len());
            let mut outside_changed = before.1 != outside.len();
            match (was, value, condition) {
                (false, None, _) | (false, _, Condition::Present) => return Err(Error::NotFound),
                (true, Some(_), Condition::Absent) => return Err(Error::Exists),
                _ => {}
            }
            if let Some(value) = value {
                let item = Item { prefix, name: copied(rest)?, value: copied(value)? };
                inside.try_reserve(1).map_err(|_| Error::Memory)?;
                outside.try_reserve(1).map_err(|_| Error::Memory)?;
                inside.push(item);
                if !fits(&inside, inside_room(&node)) {
                    outside.extend(inside.pop());
                    outside_changed = true;
                }
            }
            if !fits(&outside, writer.volume.block_size() - IN_BLOCK) {
                return Err(Error::NoSpace);
            }
            // Values that overlap take more room one behind the other.
            if !fits(&inside, inside_room(&node)) {
                return Err(CORRUPT);
            }
            write_inside(&mut node, &inside);
            if outside_changed {
                writer.write_block(device, &mut node, outside)?;
            }
            node.set_changed(now);
            writer.put_node(device, &mut node)
        })
    }

    /// The entries of the block of attributes.
    fn block_items(&self, device: &dyn Device, node: &Node) -> Result<Vec<Item>> {
        let number = node.attributes();
        if number == 0 {
            return Ok(Vec::new());
        }
        if self.volume.place(number, 1).is_none() || self.system.overlaps(number, 1) {
            return Err(CORRUPT);
        }
        let block = self.block(device, number)?;
        self.volume.check_attributes(number, &block)?;
        items(&block, IN_BLOCK)
    }

    /// Gives the inode a block with these entries, in the place of its old one.
    fn write_block(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        mut list: Vec<Item>,
    ) -> Result<()> {
        let old = node.attributes();
        let references = if old == 0 { 0 } else { u32(&self.block(device, old)?, 4) };
        if list.is_empty() {
            return self.drop_attributes(device, node);
        }
        // The order that e2fsck and Linux expect in a block.
        list.sort_unstable_by(|one, other| {
            let key = |item: &Item| (item.prefix, item.name.len());
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        let number = if references == 1 {
            old
        } else {
            self.drop_attributes(device, node)?;
            let goal = self.volume.group_start(self.inode_group(node.number).0);
            let number = self.new_metadata(device, goal)?;
            self.charge(node, 1)?;
            node.set_attributes(number);
            self.edit_superblock(device, superblock::set_attributes)?;
            number
        };
        let hash = list.iter().fold(0u32, |hash, item| hash.rotate_left(16) ^ item.hash());
        let any_zero = list.iter().any(|item| item.hash() == 0);
        let seed = self.volume.seed;
        let block = self.modify(device, number)?;
        block.fill(0);
        put_u32(block, 0, MAGIC);
        put_u32(block, 4, 1);
        put_u32(block, 8, 1);
        put_u32(block, 12, if any_zero { 0 } else { hash });
        write(block, IN_BLOCK, &list, true);
        seal(seed, number, block);
        Ok(())
    }

    /// Gives up the inode's reference to its block of attributes.
    pub(crate) fn drop_attributes(&mut self, device: &dyn Device, node: &mut Node) -> Result<()> {
        let number = node.attributes();
        if number == 0 {
            return Ok(());
        }
        self.volume.place(number, 1).ok_or(CORRUPT)?;
        let references = u32(&self.block(device, number)?, 4);
        if u32(&self.block(device, number)?, 0) != MAGIC || references > MOST_REFERENCES {
            return Err(CORRUPT);
        }
        if references <= 1 {
            self.free_metadata(device, number)?;
        } else {
            let seed = self.volume.seed;
            let block = self.modify(device, number)?;
            put_u32(block, 4, references - 1);
            seal(seed, number, block);
        }
        node.set_attributes(0);
        self.charge(node, -1)
    }
}

/// Makes the checksum of a block of attributes.
fn seal(seed: Option<Seed>, number: u64, block: &mut [u8]) {
    if let Some(seed) = seed {
        put_u32(block, SUM, 0);
        put_u32(block, SUM, seed.over(&[&number.to_le_bytes(), block]));
    }
}

/// Bytes behind the inode's fields for entries and values.
fn inside_room(node: &Node) -> usize {
    if node.extra() == 0 {
        return 0;
    }
    node.raw.len().saturating_sub(128 + node.extra() + IN_INODE)
}

fn inside_items(node: &Node) -> Result<Vec<Item>> {
    let at = 128 + node.extra();
    if node.extra() == 0 || u32(&node.raw, at) != MAGIC {
        return Ok(Vec::new());
    }
    items(node.raw.get(at + IN_INODE..).unwrap_or_default(), 0)
}

fn write_inside(node: &mut Node, list: &[Item]) {
    let at = 128 + node.extra();
    if node.extra() == 0 {
        return;
    }
    put_u32(&mut node.raw, at, if list.is_empty() { 0 } else { MAGIC });
    if let Some(area) = node.raw.get_mut(at + IN_INODE..) {
        write(area, 0, list, false);
    }
}
