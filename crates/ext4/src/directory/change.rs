//! Entries of directories that change.
//!
//! An entry's record reaches to the next one; its free space is behind its name. A new entry takes
//! a record that names nothing, or the end of one that is longer than it needs. A removed one is
//! added to the record before it. Directories never shrink.
//!
//! A directory of one block gets an index when it needs a second one, if the volume has indexes
//! (`dir_index`); the others are searched from the begin.

use alloc::borrow::Cow;

use super::{HEAD, TAIL, check_block, has_tail};
use crate::checksum::Seed;
use crate::error::{Error, Result};
use crate::field::{put, put_u8, put_u16, put_u32, u8, u16, u32};
use crate::node::{Node, flag, kind};
use crate::volume::Device;
use crate::writer::Writer;

pub const CORRUPT: Error = Error::Corrupt("a directory");
/// The longest name.
const LONGEST: usize = 255;

/// A record of a block.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub offset: usize,
    pub length: usize,
    pub inode: u32,
    pub name: usize,
}

impl Record {
    /// Reads the record at `offset`, of which the entries end at `end`.
    pub fn read(block: &[u8], offset: usize, end: usize) -> Result<Record> {
        let rest = block.get(offset..).unwrap_or_default();
        let (length, name) = (usize::from(u16(rest, 4)), usize::from(u8(rest, 6)));
        // A false entry over a whole index node reaches over the checksum.
        let inside = offset + length <= end || offset + length == block.len();
        if length < space(name).max(HEAD + 4) || !length.is_multiple_of(4) || !inside {
            return Err(CORRUPT);
        }
        Ok(Record { offset, length, inode: u32(rest, 0), name })
    }

    pub fn name(self, block: &[u8]) -> &[u8] {
        block.get(self.offset + HEAD..self.offset + HEAD + self.name).unwrap_or_default()
    }

    /// Bytes that the entry itself needs.
    pub fn used(self) -> usize {
        if self.inode == 0 { 0 } else { space(self.name) }
    }
}

/// Bytes that an entry with a name of this length needs.
pub fn space(name: usize) -> usize {
    HEAD + name.next_multiple_of(4)
}

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Block of the volume.
    pub place: u64,
    pub offset: usize,
    /// The record before it in the block.
    before: Option<usize>,
    pub inode: u32,
}

/// The parts of a new entry.
#[derive(Clone, Copy)]
pub struct NewEntry<'a> {
    pub name: &'a [u8],
    pub inode: u32,
    /// The mode of the inode.
    pub mode: u16,
}

/// Fails for names that no directory has.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > LONGEST {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Writes an entry; its record has `length` bytes.
pub fn write_entry(block: &mut [u8], offset: usize, length: usize, entry: NewEntry<'_>, kind: u8) {
    put_u32(block, offset, entry.inode);
    put_u16(block, offset + 4, length as u16);
    put_u8(block, offset + 6, entry.name.len() as u8);
    put_u8(block, offset + 7, kind);
    put(block, offset + HEAD, entry.name);
}

impl Writer {
    /// Where the entries of a leaf end.
    pub(crate) fn leaf_end(&self, directory: &Node) -> usize {
        self.volume.block_size() - if directory.seed.is_some() { TAIL } else { 0 }
    }

    /// The number by which entries tell the type of `mode`, if this volume's do.
    pub(crate) fn entry_kind(&self, mode: u16) -> u8 {
        if !self.volume.file_types {
            return 0;
        }
        match mode & kind::MASK {
            kind::REGULAR => 1,
            kind::DIRECTORY => 2,
            kind::CHARACTER => 3,
            kind::BLOCK => 4,
            kind::FIFO => 5,
            kind::SOCKET => 6,
            kind::LINK => 7,
            _ => 0,
        }
    }

    /// The number of a directory's blocks.
    pub(crate) fn directory_blocks(&self, directory: &Node) -> Result<u32> {
        let blocks = directory.size() >> self.volume.block_shift;
        if blocks == 0 || blocks > self.volume.blocks {
            return Err(CORRUPT);
        }
        u32::try_from(blocks).map_err(|_| CORRUPT)
    }

    /// Where block `index` of a directory lies.
    pub(crate) fn directory_place(
        &self,
        device: &dyn Device,
        directory: &Node,
        index: u32,
    ) -> Result<u64> {
        let mapping = self.mapping_of(device, directory, index)?;
        match mapping.place {
            Some(place) if mapping.written => Ok(place),
            _ => Err(CORRUPT),
        }
    }

    /// Reads a block of a directory.
    pub(crate) fn directory_block(
        &self,
        device: &dyn Device,
        directory: &Node,
        place: u64,
    ) -> Result<Cow<'_, [u8]>> {
        let block = self.block(device, place)?;
        if let Cow::Owned(bytes) = &block {
            check_block(directory.seed, directory.flags() & flag::INDEX != 0, bytes)?;
        }
        Ok(block)
    }

    /// Makes the checksum of a leaf; the tail too.
    pub(crate) fn seal_leaf(&self, directory: &Node, block: &mut [u8]) {
        seal_leaf(directory.seed, block);
    }

    /// Searches one block.
    pub(crate) fn find_in_block(
        &self,
        device: &dyn Device,
        directory: &Node,
        place: u64,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let block = self.directory_block(device, directory, place)?;
        let end = self.leaf_end(directory);
        let (mut offset, mut before) = (0, None);
        while offset < end {
            let record = Record::read(&block, offset, end)?;
            if record.inode != 0 && record.name == name.len() && record.name(&block) == name {
                return Ok(Some(Found { place, offset, before, inode: record.inode }));
            }
            before = Some(offset);
            offset += record.length;
        }
        Ok(None)
    }

    /// Finds a name.
    pub(crate) fn find(
        &self,
        device: &dyn Device,
        directory: &Node,
        name: &[u8],
    ) -> Result<Option<Found>> {
        if !directory.is(kind::DIRECTORY) {
            return Err(Error::NotDirectory);
        }
        if self.is_indexed(directory) && name != b"." && name != b".." {
            return self.find_indexed(device, directory, name);
        }
        for index in 0..self.directory_blocks(directory)? {
            let place = self.directory_place(device, directory, index)?;
            if let Some(found) = self.find_in_block(device, directory, place, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Finds a name that must exist.
    pub(crate) fn find_existing(
        &self,
        device: &dyn Device,
        directory: &Node,
        name: &[u8],
    ) -> Result<Found> {
        self.find(device, directory, name)?.ok_or(Error::NotFound)
    }

    /// The inode that `name` names in `directory`.
    pub fn lookup(&self, device: &dyn Device, directory: u32, name: &[u8]) -> Result<Option<u32>> {
        if name.len() > LONGEST {
            return Err(Error::NameTooLong);
        }
        let node = self.node(device, directory)?;
        Ok(self.find(device, &node, name)?.map(|found| found.inode))
    }

    /// Whether the directory has an index that this volume's rules keep.
    pub(crate) fn is_indexed(&self, directory: &Node) -> bool {
        self.format.dir_index && directory.flags() & flag::INDEX != 0
    }

    /// Adds an entry to a leaf; false if it has no room.
    pub(crate) fn add_to_block(
        &mut self,
        device: &dyn Device,
        directory: &Node,
        place: u64,
        entry: NewEntry<'_>,
    ) -> Result<bool> {
        let block = self.directory_block(device, directory, place)?;
        if directory.seed.is_some() && !has_tail(&block) {
            return Err(CORRUPT);
        }
        let end = self.leaf_end(directory);
        let needed = space(entry.name.len());
        let mut offset = 0;
        let room = loop {
            if offset >= end {
                return Ok(false);
            }
            let record = Record::read(&block, offset, end)?;
            if record.length >= record.used() + needed {
                break record;
            }
            offset += record.length;
        };
        drop(block);
        let kind = self.entry_kind(entry.mode);
        let block = self.modify(device, place)?;
        let used = room.used();
        if used > 0 {
            put_u16(block, room.offset + 4, used as u16);
        }
        write_entry(block, room.offset + used, room.length - used, entry, kind);
        seal_leaf(directory.seed, block);
        Ok(true)
    }

    /// Adds an entry whose name the directory does not have. The caller puts `directory` back.
    pub(crate) fn add_entry(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        entry: NewEntry<'_>,
    ) -> Result<()> {
        if self.is_indexed(directory) {
            return self.add_indexed(device, directory, entry);
        }
        // Without the feature nothing keeps an index right.
        directory.set_flags(directory.flags() & !flag::INDEX);
        let blocks = self.directory_blocks(directory)?;
        for index in 0..blocks {
            let place = self.directory_place(device, directory, index)?;
            if self.add_to_block(device, directory, place, entry)? {
                return Ok(());
            }
        }
        if blocks == 1 && self.make_index(device, directory)? {
            return self.add_indexed(device, directory, entry);
        }
        let (_, place) = self.append_leaf(device, directory)?;
        if self.add_to_block(device, directory, place, entry)? { Ok(()) } else { Err(CORRUPT) }
    }

    /// Adds a block to a directory; its copy is all zeros. Returns its number in the directory,
    /// and on the volume.
    pub(crate) fn append_block(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
    ) -> Result<(u32, u64)> {
        let size = directory.size();
        let index = u32::try_from(size >> self.volume.block_shift).map_err(|_| Error::TooLarge)?;
        let bound = if self.format.large_dir { u64::MAX } else { 1 << 31 };
        if size + self.volume.block_size() as u64 > bound {
            return Err(Error::NoSpace);
        }
        let piece = self.provide(device, directory, index, 1, true)?;
        self.fresh(piece.place)?;
        directory.set_size(size + self.volume.block_size() as u64);
        Ok((index, piece.place))
    }

    /// Adds a leaf without entries.
    pub(crate) fn append_leaf(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
    ) -> Result<(u32, u64)> {
        let (index, place) = self.append_block(device, directory)?;
        let end = self.leaf_end(directory);
        let seed = directory.seed;
        let block = self.modify(device, place)?;
        put_u16(block, 4, end as u16);
        seal_leaf(seed, block);
        Ok((index, place))
    }

    /// Removes an entry that was found.
    pub(crate) fn remove_entry(
        &mut self,
        device: &dyn Device,
        directory: &Node,
        found: Found,
    ) -> Result<()> {
        let end = self.leaf_end(directory);
        let block = self.modify(device, found.place)?;
        let record = Record::read(block, found.offset, end)?;
        match found.before {
            Some(before) => {
                let length = Record::read(block, before, end)?.length + record.length;
                put_u16(block, before + 4, length as u16);
            }
            None => put_u32(block, found.offset, 0),
        }
        // The name does not stay on the volume.
        let from = found.offset + HEAD;
        if let Some(name) = block.get_mut(from..from + record.name) {
            name.fill(0);
        }
        if found.before.is_none() {
            put_u16(block, found.offset + 6, 0);
        }
        seal_leaf(directory.seed, block);
        Ok(())
    }

    /// Lets an entry that was found name another inode.
    pub(crate) fn redirect_entry(
        &mut self,
        device: &dyn Device,
        directory: &Node,
        found: Found,
        inode: u32,
        mode: u16,
    ) -> Result<()> {
        let kind = self.entry_kind(mode);
        // The entry `..` of an indexed directory lies in the root of its index.
        let is_root = self.is_indexed(directory)
            && found.place == self.directory_place(device, directory, 0)?;
        let block = self.modify(device, found.place)?;
        put_u32(block, found.offset, inode);
        put_u8(block, found.offset + 7, kind);
        if is_root {
            return self.seal_index(device, directory, found.place, true);
        }
        seal_leaf(directory.seed, block);
        Ok(())
    }

    /// Whether a directory has no entries but `.` and `..`.
    pub(crate) fn is_empty(&self, device: &dyn Device, directory: &Node) -> Result<bool> {
        let end = self.leaf_end(directory);
        for index in 0..self.directory_blocks(directory)? {
            let place = self.directory_place(device, directory, index)?;
            let block = self.directory_block(device, directory, place)?;
            let mut offset = 0;
            while offset < end {
                let record = Record::read(&block, offset, end)?;
                let name = record.name(&block);
                if record.inode != 0 && name != b"." && name != b".." {
                    return Ok(false);
                }
                offset += record.length;
            }
        }
        Ok(true)
    }

    /// Makes the first block of a new directory.
    pub(crate) fn init_directory(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        parent: u32,
    ) -> Result<()> {
        let (_, place) = self.append_block(device, directory)?;
        let end = self.leaf_end(directory);
        let kind = self.entry_kind(kind::DIRECTORY);
        let (number, seed) = (directory.number, directory.seed);
        let block = self.modify(device, place)?;
        let entry = |name, inode| NewEntry { name, inode, mode: 0 };
        write_entry(block, 0, 12, entry(b".", number), kind);
        write_entry(block, 12, end - 12, entry(b"..", parent), kind);
        seal_leaf(seed, block);
        Ok(())
    }

    /// The entry `..` of a directory.
    pub(crate) fn parent_entry(&self, device: &dyn Device, directory: &Node) -> Result<Found> {
        let place = self.directory_place(device, directory, 0)?;
        let block = self.directory_block(device, directory, place)?;
        let end = self.leaf_end(directory);
        let dot = Record::read(&block, 0, end)?;
        let parent = Record::read(&block, dot.length, end)?;
        if dot.name(&block) != b"." || parent.name(&block) != b".." {
            return Err(CORRUPT);
        }
        Ok(Found { place, offset: parent.offset, before: Some(0), inode: parent.inode })
    }
}

/// Makes the checksum of a leaf; the tail too.
fn seal_leaf(seed: Option<Seed>, block: &mut [u8]) {
    let Some(seed) = seed else { return };
    let at = block.len().saturating_sub(TAIL);
    put_u32(block, at, 0);
    put_u16(block, at + 4, TAIL as u16);
    put_u16(block, at + 6, 0xde00);
    let sum = seed.over(&[block.get(..at).unwrap_or_default()]);
    put_u32(block, at + 8, sum);
}
