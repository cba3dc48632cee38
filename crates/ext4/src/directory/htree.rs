//! The index of a directory's names: a tree of hashes, whose leaves are blocks of entries.
//!
//! The root lies in the directory's first block, behind `.` and `..`; inner nodes in blocks that
//! look like one entry without a name. An index entry is a hash and a block: the leaf has names
//! from that hash on, up to the next entry's. The first entry's hash is not stored (it is the
//! smallest); its place holds how many entries there are and fit. If names with one hash lie in two
//! leaves, the second leaf's hash has its lowest bit set, and a search goes on there.
//!
//! An insertion that finds its leaf full splits one thing, and begins again: the leaf, if the node
//! above it has room; otherwise the lowest full node whose parent has room; otherwise the tree gets
//! a level. Two levels of nodes are the most, three with the feature `largedir`.

use alloc::vec::Vec;

use super::HEAD;
use super::change::{CORRUPT, Found, NewEntry, Record, space, write_entry};
use super::hash::Hasher;
use crate::checksum::Seed;
use crate::error::{Error, Result, buffer, owned};
use crate::field::{put, put_u8, put_u16, put_u32, u8, u16, u32};
use crate::node::{Node, flag};
use crate::volume::Device;
use crate::writer::Writer;

/// Where the entries begin in the root and in other nodes.
pub(super) const ROOT: usize = 32;
pub(super) const NODE: usize = 8;
/// Bytes of an index entry.
pub(super) const ENTRY: usize = 8;
/// Splits of one insertion: each level, and the leaf, once or twice.
const SPLITS: u32 = 12;

/// A node on the way to a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    place: u64,
    /// Where its entries begin.
    base: usize,
    count: usize,
    limit: usize,
    /// The entry that the way takes.
    at: usize,
}

impl Frame {
    fn hash(&self, block: &[u8], at: usize) -> u32 {
        if at == 0 { 0 } else { u32(block, self.base + at * ENTRY) }
    }

    fn child(&self, block: &[u8], at: usize) -> u32 {
        u32(block, self.base + at * ENTRY + 4)
    }
}

/// The way to a leaf.
pub struct Probe {
    pub frames: Vec<Frame>,
    /// The leaf's number in the directory.
    pub leaf: u32,
}

impl Writer {
    /// The hash function of a directory, from the root of its index.
    pub(crate) fn hasher(&self, root: &[u8]) -> Result<Hasher> {
        let (_, unsigned, seed) = self.format.hash;
        Hasher::new(u8(root, 28), unsigned, seed)
            .ok_or(Error::Unsupported("an unknown hash of names"))
    }

    /// The hash function of a directory that has no index yet, if the volume names one.
    pub(crate) fn default_hasher(&self) -> Option<Hasher> {
        let (version, unsigned, seed) = self.format.hash;
        Hasher::new(version, unsigned, seed)
    }

    fn node_limit(&self, directory: &Node, base: usize) -> usize {
        let tail = if directory.seed.is_some() { ENTRY } else { 0 };
        (self.volume.block_size() - base - tail) / ENTRY
    }

    /// Reads the root and returns it with the number of levels below it.
    pub(crate) fn index_root(
        &self,
        device: &dyn Device,
        directory: &Node,
    ) -> Result<(u64, Hasher, u8)> {
        let place = self.directory_place(device, directory, 0)?;
        let block = self.block(device, place)?;
        let levels = u8(&block, 30);
        let most = if self.format.large_dir { 2 } else { 1 };
        if u32(&block, 24) != 0 || u8(&block, 29) != 8 || u8(&block, 31) & 1 != 0 || levels > most {
            return Err(CORRUPT);
        }
        Ok((place, self.hasher(&block)?, levels))
    }

    /// Reads the head of a node and verifies it.
    fn frame(
        &self,
        device: &dyn Device,
        directory: &Node,
        place: u64,
        base: usize,
    ) -> Result<Frame> {
        let block = self.block(device, place)?;
        let limit = usize::from(u16(&block, base));
        let count = usize::from(u16(&block, base + 2));
        if limit != self.node_limit(directory, base) || count == 0 || count > limit {
            return Err(CORRUPT);
        }
        if let (alloc::borrow::Cow::Owned(block), Some(seed)) = (&block, directory.seed)
            && index_sum(seed, block, base, count, limit) != u32(block, base + limit * ENTRY + 4)
        {
            return Err(Error::Checksum("a directory's index"));
        }
        Ok(Frame { place, base, count, limit, at: 0 })
    }

    /// The child that a frame's way takes.
    fn child(&self, device: &dyn Device, directory: &Node, frame: &Frame) -> Result<u32> {
        let block = self.block(device, frame.place)?;
        let child = frame.child(&block, frame.at);
        if child == 0 || child >= self.directory_blocks(directory)? {
            return Err(CORRUPT);
        }
        Ok(child)
    }

    /// The way to the leaf where `hash` begins.
    pub(crate) fn probe(
        &self,
        device: &dyn Device,
        directory: &Node,
        root: u64,
        levels: u8,
        hash: u32,
    ) -> Result<Probe> {
        let mut frames = Vec::new();
        frames.try_reserve_exact(4).map_err(|_| Error::Memory)?;
        let (mut place, mut base) = (root, ROOT);
        for level in 0..=levels {
            let mut frame = self.frame(device, directory, place, base)?;
            let block = self.block(device, place)?;
            let (mut low, mut high) = (1, frame.count);
            while low < high {
                let middle = low + (high - low) / 2;
                if frame.hash(&block, middle) > hash {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            frame.at = low - 1;
            let child = self.child(device, directory, &frame)?;
            frames.push(frame);
            if level == levels {
                return Ok(Probe { frames, leaf: child });
            }
            (place, base) = (self.directory_place(device, directory, child)?, NODE);
        }
        Err(CORRUPT)
    }

    /// Goes on to the next leaf; returns its hash, or `None` behind the last.
    pub(crate) fn next_leaf(
        &self,
        device: &dyn Device,
        directory: &Node,
        probe: &mut Probe,
    ) -> Result<Option<u32>> {
        let more = |frame: &Frame| frame.at + 1 < frame.count;
        let Some(level) = probe.frames.iter().rposition(more) else { return Ok(None) };
        let levels = probe.frames.len();
        let frame = probe.frames.get_mut(level).ok_or(CORRUPT)?;
        frame.at += 1;
        let mut frame = *frame;
        let hash = frame.hash(&self.block(device, frame.place)?, frame.at);
        probe.frames.truncate(level + 1);
        let mut child = self.child(device, directory, &frame)?;
        while probe.frames.len() < levels {
            let place = self.directory_place(device, directory, child)?;
            frame = self.frame(device, directory, place, NODE)?;
            child = self.child(device, directory, &frame)?;
            probe.frames.push(frame);
        }
        probe.leaf = child;
        Ok(Some(hash))
    }

    /// Finds a name by the index.
    pub(crate) fn find_indexed(
        &self,
        device: &dyn Device,
        directory: &Node,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let (root, hasher, levels) = self.index_root(device, directory)?;
        let (hash, _) = hasher.hash(name);
        let mut probe = self.probe(device, directory, root, levels, hash)?;
        loop {
            let place = self.directory_place(device, directory, probe.leaf)?;
            let found = self.find_in_block(device, directory, place, name)?;
            if found.is_some() {
                return Ok(found);
            }
            // Only a hash that goes on leads to the next leaf.
            match self.next_leaf(device, directory, &mut probe)? {
                Some(next) if next & !1 == hash && next & 1 == 1 => {}
                _ => return Ok(None),
            }
        }
    }

    /// Adds an entry to an indexed directory.
    pub(crate) fn add_indexed(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        entry: NewEntry<'_>,
    ) -> Result<()> {
        for _ in 0..SPLITS {
            let (root, hasher, levels) = self.index_root(device, directory)?;
            let (hash, _) = hasher.hash(entry.name);
            let probe = self.probe(device, directory, root, levels, hash)?;
            let place = self.directory_place(device, directory, probe.leaf)?;
            if self.add_to_block(device, directory, place, entry)? {
                return Ok(());
            }
            let has_room = |frame: &Frame| frame.count < frame.limit;
            match probe.frames.iter().rposition(has_room) {
                Some(level) if level + 1 == probe.frames.len() => {
                    let frame = *probe.frames.get(level).ok_or(CORRUPT)?;
                    self.split_leaf(device, directory, hasher, frame, place)?;
                }
                Some(level) => {
                    let parent = *probe.frames.get(level).ok_or(CORRUPT)?;
                    let child = *probe.frames.get(level + 1).ok_or(CORRUPT)?;
                    self.split_node(device, directory, parent, child)?;
                }
                None => self.add_level(device, directory, root, levels)?,
            }
        }
        Err(CORRUPT)
    }

    /// Adds an index entry behind the one that the frame's way takes.
    fn insert_index(
        &mut self,
        device: &dyn Device,
        directory: &Node,
        frame: Frame,
        hash: u32,
        child: u32,
    ) -> Result<()> {
        let block = self.modify(device, frame.place)?;
        let from = frame.base + (frame.at + 1) * ENTRY;
        let end = frame.base + frame.count * ENTRY;
        block.copy_within(from..end, from + ENTRY);
        put_u32(block, from, hash);
        put_u32(block, from + 4, child);
        put_u16(block, frame.base + 2, frame.count as u16 + 1);
        self.seal_index(device, directory, frame.place, frame.base == ROOT)
    }

    /// Makes the checksum of a node.
    pub(crate) fn seal_index(
        &mut self,
        device: &dyn Device,
        directory: &Node,
        place: u64,
        is_root: bool,
    ) -> Result<()> {
        let Some(seed) = directory.seed else { return Ok(()) };
        let base = if is_root { ROOT } else { NODE };
        let block = self.modify(device, place)?;
        let (limit, count) = (u16(block, base).into(), u16(block, base + 2).into());
        // The sum covers the reserved field before it, which in a root that Linux made holds what
        // was the end of a leaf.
        put_u32(block, base + limit * ENTRY, 0);
        let sum = index_sum(seed, block, base, count, limit);
        put_u32(block, base + limit * ENTRY + 4, sum);
        Ok(())
    }

    /// Moves about half of a leaf's bytes, those with the greater hashes, into a new leaf.
    fn split_leaf(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        hasher: Hasher,
        frame: Frame,
        place: u64,
    ) -> Result<()> {
        let end = self.leaf_end(directory);
        let old = owned(self.directory_block(device, directory, place)?)?;
        let mut records: Vec<(u32, Record)> = Vec::new();
        let mut offset = 0;
        while offset < end {
            let record = Record::read(&old, offset, end)?;
            if record.inode != 0 {
                records.try_reserve(1).map_err(|_| Error::Memory)?;
                records.push((hasher.hash(record.name(&old)).0, record));
            }
            offset += record.length;
        }
        records.sort_unstable_by_key(|(hash, record)| (*hash, record.offset));
        let half = end / 2;
        let mut moved = 0;
        let mut from = records.len();
        while from > 1 {
            let size = records.get(from - 1).map_or(0, |(_, record)| record.used());
            if moved + size > half && from < records.len() {
                break;
            }
            moved += size;
            from -= 1;
        }
        let (low, high) = records.split_at(from);
        let (Some((last, _)), Some((first, _))) = (low.last(), high.first()) else {
            return Err(CORRUPT);
        };
        let continues = u32::from(last == first);
        let (index, new) = self.append_block(device, directory)?;
        self.pack(device, directory, new, &old, high)?;
        self.pack(device, directory, place, &old, low)?;
        self.insert_index(device, directory, frame, first | continues, index)
    }

    /// Fills a leaf with records of `from`, one behind the other.
    fn pack(
        &mut self,
        device: &dyn Device,
        directory: &Node,
        place: u64,
        from: &[u8],
        records: &[(u32, Record)],
    ) -> Result<()> {
        let end = self.leaf_end(directory);
        let mut packed = buffer(self.volume.block_size())?;
        let mut at = 0;
        for (index, (_, record)) in records.iter().enumerate() {
            let used = space(record.name);
            let length = if index + 1 == records.len() { end - at } else { used };
            let name = HEAD + record.name;
            let bytes = from.get(record.offset..record.offset + name).ok_or(CORRUPT)?;
            put(&mut packed, at, bytes);
            put_u16(&mut packed, at + 4, length as u16);
            at += used;
        }
        self.seal_leaf(directory, &mut packed);
        self.modify(device, place)?.copy_from_slice(&packed);
        Ok(())
    }

    /// Makes an inner node of `entries`, in a new block; returns its number in the directory.
    fn new_node_block(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        entries: &[u8],
    ) -> Result<u32> {
        let (index, place) = self.append_block(device, directory)?;
        let limit = self.node_limit(directory, NODE);
        let block = self.modify(device, place)?;
        let length = block.len() as u16;
        put_u16(block, 4, length);
        put(block, NODE, entries);
        put_u16(block, NODE, limit as u16);
        put_u16(block, NODE + 2, (entries.len() / ENTRY) as u16);
        self.seal_index(device, directory, place, false)?;
        Ok(index)
    }

    /// Moves the upper half of a full node into a new one.
    fn split_node(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        parent: Frame,
        child: Frame,
    ) -> Result<()> {
        let old = owned(self.block(device, child.place)?)?;
        let keep = child.count / 2;
        let range = child.base + keep * ENTRY..child.base + child.count * ENTRY;
        let entries = old.get(range).ok_or(CORRUPT)?;
        let hash = child.hash(&old, keep);
        let index = self.new_node_block(device, directory, entries)?;
        put_u16(self.modify(device, child.place)?, child.base + 2, keep as u16);
        self.seal_index(device, directory, child.place, false)?;
        self.insert_index(device, directory, parent, hash, index)
    }

    /// Moves the root's entries into a new node below it.
    fn add_level(
        &mut self,
        device: &dyn Device,
        directory: &mut Node,
        root: u64,
        levels: u8,
    ) -> Result<()> {
        let most = if self.format.large_dir { 2 } else { 1 };
        if levels >= most {
            // Linux: "Directory index full!"
            return Err(Error::NoSpace);
        }
        let frame = self.frame(device, directory, root, ROOT)?;
        let old = owned(self.block(device, root)?)?;
        let entries = old.get(ROOT..ROOT + frame.count * ENTRY).ok_or(CORRUPT)?;
        let index = self.new_node_block(device, directory, entries)?;
        let block = self.modify(device, root)?;
        put_u8(block, 30, levels + 1);
        put_u16(block, ROOT + 2, 1);
        put_u32(block, ROOT + 4, index);
        self.seal_index(device, directory, root, true)
    }

    /// Gives a directory of one full block an index; false if the volume's function is not known.
    pub(crate) fn make_index(&mut self, device: &dyn Device, directory: &mut Node) -> Result<bool> {
        let version = self.format.hash.0;
        if !self.format.dir_index || self.default_hasher().is_none() {
            return Ok(false);
        }
        let place = self.directory_place(device, directory, 0)?;
        let end = self.leaf_end(directory);
        let old = owned(self.directory_block(device, directory, place)?)?;
        let dot = Record::read(&old, 0, end)?;
        let parent = Record::read(&old, dot.length, end)?;
        if dot.name(&old) != b"." || parent.name(&old) != b".." {
            return Err(CORRUPT);
        }
        let mut records: Vec<(u32, Record)> = Vec::new();
        let mut offset = parent.offset + parent.length;
        while offset < end {
            let record = Record::read(&old, offset, end)?;
            if record.inode != 0 {
                records.try_reserve(1).map_err(|_| Error::Memory)?;
                records.push((0, record));
            }
            offset += record.length;
        }
        if records.is_empty() {
            return Ok(false);
        }
        let (index, leaf) = self.append_block(device, directory)?;
        self.pack(device, directory, leaf, &old, &records)?;
        let limit = self.node_limit(directory, ROOT);
        let kind = self.entry_kind(crate::node::kind::DIRECTORY);
        let number = directory.number;
        let block = self.modify(device, place)?;
        block.fill(0);
        let entry = |name, inode| NewEntry { name, inode, mode: 0 };
        write_entry(block, 0, 12, entry(b".", number), kind);
        let length = block.len() - 12;
        write_entry(block, 12, length, entry(b"..", parent.inode), kind);
        put_u8(block, 28, version);
        put_u8(block, 29, 8);
        put_u16(block, ROOT, limit as u16);
        put_u16(block, ROOT + 2, 1);
        put_u32(block, ROOT + 4, index);
        directory.set_flags(directory.flags() | flag::INDEX);
        self.seal_index(device, directory, place, true)?;
        Ok(true)
    }
}

/// The checksum of a node: over its entries and the tail's reserved field.
pub(super) fn index_sum(seed: Seed, block: &[u8], base: usize, count: usize, limit: usize) -> u32 {
    let entries = block.get(..base + count * ENTRY).unwrap_or_default();
    let tail = base + limit * ENTRY;
    seed.over(&[entries, block.get(tail..tail + 4).unwrap_or_default(), &[0; 4]])
}
