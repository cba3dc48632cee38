//! Enumeration of a directory whose entries may move between two calls.
//!
//! A split of a leaf moves entries, so a byte is no position to go on from. As in Linux, a
//! directory that has an index, or will get one, is enumerated in the order of its names' hashes:
//! 31 bits of a position are the first hash, 24 of the second, and 8 count names that agree in
//! both. Other directories never move an entry: a position in them is a byte.

use alloc::vec::Vec;

use super::change::Record;
use super::hash::Hasher;
use super::{DirEntry, check_block};
use crate::error::{Error, Result};
use crate::node::{Node, flag, kind};
use crate::volume::Device;
use crate::writer::Writer;

/// The position behind all entries of a directory in the order of hashes.
const END: u64 = 0x7fff_ffff << 32;

/// A sink of entries, told the entry and the position behind it. False: it takes no more,
/// not even this one.
pub type Sink<'a> = dyn FnMut(&DirEntry<'_>, u64) -> bool + 'a;

/// An entry on its way to the sink: position, second hash, leaf of the chain, record.
type Item = (u64, u32, usize, Record);

impl Writer {
    /// Shows the entries of a directory to `sink`, without `.` and `..`, from position `from` on (0
    /// at first); returns the position to go on from. Each entry that exists all the time is shown
    /// once, whatever is added and removed meanwhile.
    pub fn list(
        &self,
        device: &dyn Device,
        directory: u32,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<u64> {
        let node = self.node(device, directory)?;
        if !node.is(kind::DIRECTORY) {
            return Err(Error::NotDirectory);
        }
        if self.is_indexed(&node) {
            return self.list_indexed(device, &node, from, sink);
        }
        match self.default_hasher() {
            Some(hasher) if self.format.dir_index && self.directory_blocks(&node)? == 1 => {
                if from >= END {
                    return Ok(END);
                }
                let place = self.directory_place(device, &node, 0)?;
                let stopped = self.list_leaves(device, &node, hasher, &[place], from, sink)?;
                Ok(stopped.unwrap_or(END))
            }
            _ => self.list_bytes(device, &node, from, sink),
        }
    }

    /// The number of the directory that a directory lies in.
    pub fn parent(&self, device: &dyn Device, directory: u32) -> Result<u32> {
        let node = self.node(device, directory)?;
        if !node.is(kind::DIRECTORY) {
            return Err(Error::NotDirectory);
        }
        Ok(self.parent_entry(device, &node)?.inode)
    }

    fn list_indexed(
        &self,
        device: &dyn Device,
        node: &Node,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<u64> {
        if from >= END {
            return Ok(END);
        }
        let (root, hasher, levels) = self.index_root(device, node)?;
        let start = ((from >> 32) as u32) << 1;
        let mut probe = self.probe(device, node, root, levels, start)?;
        let mut more = true;
        // No leaf comes twice on a good volume; a bad one must not keep this going for ever.
        let mut budget = self.directory_blocks(node)?;
        while more {
            // Leaves that share a hash are sorted as one.
            let mut places = Vec::new();
            loop {
                budget = budget.checked_sub(1).ok_or(super::change::CORRUPT)?;
                places.try_reserve(1).map_err(|_| Error::Memory)?;
                places.push(self.directory_place(device, node, probe.leaf)?);
                match self.next_leaf(device, node, &mut probe)? {
                    Some(next) if next & 1 == 1 => {}
                    next => {
                        more = next.is_some();
                        break;
                    }
                }
            }
            if let Some(stop) = self.list_leaves(device, node, hasher, &places, from, sink)? {
                return Ok(stop);
            }
        }
        Ok(END)
    }

    /// Shows the entries of some leaves in the order of hashes; returns where the sink has stopped,
    /// if it has.
    fn list_leaves(
        &self,
        device: &dyn Device,
        node: &Node,
        hasher: Hasher,
        places: &[u64],
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<Option<u64>> {
        let end = self.leaf_end(node);
        let mut items: Vec<Item> = Vec::new();
        for (leaf, &place) in places.iter().enumerate() {
            let block = self.directory_block(device, node, place)?;
            let mut offset = 0;
            while offset < end {
                let record = Record::read(&block, offset, end)?;
                offset += record.length;
                let name = record.name(&block);
                if record.inode != 0 && name != b"." && name != b".." {
                    let (major, minor) = hasher.hash(name);
                    let position = u64::from(major >> 1) << 32 | u64::from(minor & !0xff);
                    items.try_reserve(1).map_err(|_| Error::Memory)?;
                    items.push((position, minor, leaf, record));
                }
            }
        }
        items.sort_unstable_by_key(|item| (item.0, item.1, item.2, item.3.offset));
        let mut same = 0;
        let mut last = None;
        for (position, _, leaf, record) in items {
            same = if last == Some(position) { (same + 1).min(0xff) } else { 0 };
            last = Some(position);
            let position = position | same;
            if position < from {
                continue;
            }
            let place = places.get(leaf).copied().unwrap_or(0);
            let block = self.block(device, place)?;
            let mut entries = self.volume.entries(&block, record.offset);
            let Some(entry) = entries.next() else { continue };
            if !sink(&entry?, position + 1) {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Shows the entries in the order of their places.
    fn list_bytes(
        &self,
        device: &dyn Device,
        node: &Node,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<u64> {
        let shift = self.volume.block_shift;
        let first = u32::try_from(from >> shift).unwrap_or(u32::MAX);
        for index in first..self.directory_blocks(node)? {
            let place = self.directory_place(device, node, index)?;
            let block = self.block(device, place)?;
            check_block(node.seed, node.flags() & flag::INDEX != 0, &block)?;
            let start = u64::from(index) << shift;
            // From the begin: the entry where the last call ended may be gone.
            for entry in self.volume.entries(&block, 0) {
                let entry = entry?;
                let at = start + entry.offset as u64;
                let is_dot = entry.name == b"." || entry.name == b"..";
                if at >= from && !is_dot && !sink(&entry, start + entry.next as u64) {
                    return Ok(at);
                }
            }
        }
        Ok(node.size().max(from))
    }
}
