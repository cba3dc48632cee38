//! Extent trees that change.
//!
//! The root lies in the inode, other nodes in blocks; leaves hold extents, inner nodes the first
//! block of each child. A path leads from the root to the leaf where a block is or would be.
//! Insertion finds a path; if the leaf is full, it splits one full node whose parent has room, or
//! puts a level below the root, and finds the path again. Deletion gives back empty nodes, and a
//! level when all of a child fits into the root. The first key of a node is always its parent's
//! key, as e2fsck demands.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::error::{Error, Result, owned};
use crate::field::{put_u16, put_u32, split, u16, u32};
use crate::map::{DEEPEST, ENTRY, EXTENT_MAGIC, UNWRITTEN};
use crate::node::{MAP_LENGTH, Node};
use crate::volume::Device;
use crate::writer::Writer;

const CORRUPT: Error = Error::Corrupt("an extent tree");

/// An extent of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub block: u32,
    pub count: u32,
    pub place: u64,
    pub written: bool,
}

impl Piece {
    fn decode(raw: &[u8]) -> Piece {
        let length = u16(raw, 4);
        let written = length <= UNWRITTEN;
        Piece {
            block: u32(raw, 0),
            count: u32::from(if written { length } else { length - UNWRITTEN }),
            place: split(u16(raw, 6).into(), u32(raw, 8)),
            written,
        }
    }

    fn encode(self) -> [u8; ENTRY] {
        let mut raw = [0; ENTRY];
        let length = self.count as u16;
        put_u32(&mut raw, 0, self.block);
        put_u16(&mut raw, 4, if self.written { length } else { length + UNWRITTEN });
        put_u16(&mut raw, 6, (self.place >> 32) as u16);
        put_u32(&mut raw, 8, self.place as u32);
        raw
    }

    /// The block behind it.
    pub fn end(self) -> u64 {
        u64::from(self.block) + u64::from(self.count)
    }

    fn most(self) -> u32 {
        if self.written { UNWRITTEN.into() } else { u32::from(UNWRITTEN) - 1 }
    }

    /// Both as one, if `next` continues it on the volume too.
    fn joined(self, next: Piece) -> Option<Piece> {
        let follows = self.end() == u64::from(next.block)
            && self.place + u64::from(self.count) == next.place
            && self.written == next.written
            && self.count + next.count <= self.most();
        follows.then(|| Piece { count: self.count + next.count, ..self })
    }
}

/// One level of a path.
#[derive(Clone, Copy)]
struct Level {
    /// The node's block; 0 for the root.
    block: u64,
    /// The child that the path takes; in a leaf the number of extents that begin at or before the
    /// wanted block.
    at: usize,
}

/// A way from the root to a leaf.
struct Path {
    levels: Vec<Level>,
    /// The first block that lies beyond the leaf, if there is another leaf.
    limit: Option<u32>,
}

impl Path {
    fn leaf(&self) -> Result<Level> {
        self.levels.last().copied().ok_or(CORRUPT)
    }
}

fn count(node: &[u8]) -> usize {
    u16(node, 2).into()
}

fn most(node: &[u8]) -> usize {
    u16(node, 4).into()
}

fn depth(node: &[u8]) -> u16 {
    u16(node, 6)
}

fn entry(node: &[u8], at: usize) -> Option<&[u8]> {
    if at < count(node) { node.get(ENTRY * (at + 1)..ENTRY * (at + 2)) } else { None }
}

/// The number of entries whose first block is at or before `block`.
fn entries_until(node: &[u8], block: u32) -> usize {
    let (mut low, mut high) = (0, count(node));
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(node, middle).is_some_and(|raw| u32(raw, 0) <= block) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn child(entry: &[u8]) -> u64 {
    split(u16(entry, 8).into(), u32(entry, 4))
}

fn index_entry(key: u32, block: u64) -> [u8; ENTRY] {
    let mut raw = [0; ENTRY];
    put_u32(&mut raw, 0, key);
    put_u32(&mut raw, 4, block as u32);
    put_u16(&mut raw, 8, (block >> 32) as u16);
    raw
}

fn head(node: &mut [u8], count: usize, most: usize, depth: u16) {
    put_u16(node, 0, EXTENT_MAGIC);
    put_u16(node, 2, count as u16);
    put_u16(node, 4, most as u16);
    put_u16(node, 6, depth);
}

/// Makes the root of an empty tree.
pub fn empty(root: &mut [u8]) {
    root.fill(0);
    head(root, 0, MAP_LENGTH / ENTRY - 1, 0);
}

fn insert(node: &mut [u8], at: usize, raw: &[u8; ENTRY]) {
    let number = count(node);
    let (from, end) = (ENTRY * (at + 1), ENTRY * (number + 1));
    if at <= number && end + ENTRY <= node.len() {
        node.copy_within(from..end, from + ENTRY);
        crate::field::put(node, from, raw);
        put_u16(node, 2, number as u16 + 1);
    }
}

fn remove(node: &mut [u8], at: usize) {
    let number = count(node);
    let (from, end) = (ENTRY * (at + 1), ENTRY * (number + 1));
    if at < number && end <= node.len() {
        node.copy_within(from + ENTRY..end, from);
        put_u16(node, 2, number as u16 - 1);
    }
}

impl Writer {
    fn tree_room(&self) -> usize {
        // The checksum lies behind the entries: a block has four bytes left over in any case.
        (self.volume.block_size() - ENTRY) / ENTRY
    }

    /// Reads a node, the root or a block, and checks that its head can be believed.
    fn tree_node<'a>(
        &'a self,
        device: &dyn Device,
        node: &'a Node,
        block: u64,
        expected: Option<u16>,
    ) -> Result<Cow<'a, [u8]>> {
        let bytes = if block == 0 {
            Cow::Borrowed(node.map())
        } else {
            if self.volume.place(block, 1).is_none() || self.system.overlaps(block, 1) {
                return Err(CORRUPT);
            }
            self.block(device, block)?
        };
        let room = if block == 0 { MAP_LENGTH / ENTRY - 1 } else { self.tree_room() };
        let good = u16(&bytes, 0) == EXTENT_MAGIC
            && count(&bytes) <= most(&bytes)
            && most(&bytes) <= room
            && depth(&bytes) <= DEEPEST
            && expected.is_none_or(|expected| depth(&bytes) == expected);
        if !good {
            return Err(CORRUPT);
        }
        if let (Cow::Owned(bytes), Some(seed)) = (&bytes, node.seed) {
            let end = ENTRY * (most(bytes) + 1);
            if seed.over(&[bytes.get(..end).unwrap_or_default()]) != u32(bytes, end) {
                return Err(Error::Checksum("an extent tree"));
            }
        }
        Ok(bytes)
    }

    /// Changes a node, and makes its checksum.
    fn edit_tree<T>(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        block: u64,
        edit: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T> {
        if block == 0 {
            return Ok(edit(node.map_mut()));
        }
        let bytes = self.modify(device, block)?;
        let result = edit(bytes);
        if let Some(seed) = node.seed {
            let end = ENTRY * (most(bytes) + 1);
            let sum = seed.over(&[bytes.get(..end).unwrap_or_default()]);
            put_u32(bytes, end, sum);
        }
        Ok(result)
    }

    /// The path to the leaf where `block` is or would be.
    fn path(&self, device: &dyn Device, node: &Node, block: u32) -> Result<Path> {
        let mut path = Path { levels: Vec::new(), limit: None };
        path.levels.try_reserve_exact(usize::from(DEEPEST) + 2).map_err(|_| Error::Memory)?;
        let (mut number, mut expected) = (0, None);
        loop {
            let bytes = self.tree_node(device, node, number, expected)?;
            let before = entries_until(&bytes, block);
            if depth(&bytes) == 0 {
                path.levels.push(Level { block: number, at: before });
                return Ok(path);
            }
            let at = before.saturating_sub(1);
            let raw = entry(&bytes, at).ok_or(CORRUPT)?;
            if let Some(next) = entry(&bytes, at + 1) {
                path.limit = Some(u32(next, 0));
            }
            path.levels.push(Level { block: number, at });
            (number, expected) = (child(raw), Some(depth(&bytes) - 1));
            if number == 0 {
                return Err(CORRUPT);
            }
        }
    }

    /// The extent with `block`, or else the next one, if there is any.
    pub(crate) fn extent_from(
        &self,
        device: &dyn Device,
        node: &Node,
        block: u32,
    ) -> Result<Option<Piece>> {
        let mut block = block;
        loop {
            let path = self.path(device, node, block)?;
            let leaf = path.leaf()?;
            let bytes = self.tree_node(device, node, leaf.block, Some(0))?;
            let piece = |at: usize| entry(&bytes, at).map(Piece::decode);
            let before = leaf.at.checked_sub(1).and_then(piece);
            let found = match before {
                Some(before) if before.end() > block.into() => Some(before),
                _ => piece(leaf.at),
            };
            match (found, path.limit) {
                (Some(piece), _) => return self.check_piece(piece).map(Some),
                (None, None) => return Ok(None),
                // Keys rise along a path, so this ends.
                (None, Some(next)) if next > block => block = next,
                _ => return Err(CORRUPT),
            }
        }
    }

    /// The extent before `block`, if it is in the same leaf.
    pub(crate) fn extent_before(
        &self,
        device: &dyn Device,
        node: &Node,
        block: u32,
    ) -> Result<Option<Piece>> {
        let path = self.path(device, node, block)?;
        let leaf = path.leaf()?;
        let bytes = self.tree_node(device, node, leaf.block, Some(0))?;
        let before = leaf.at.checked_sub(1).and_then(|at| entry(&bytes, at)).map(Piece::decode);
        before.map(|piece| self.check_piece(piece)).transpose()
    }

    fn check_piece(&self, piece: Piece) -> Result<Piece> {
        let good = piece.count > 0
            && piece.end() <= 1 << 32
            && self.volume.place(piece.place, piece.count.into()).is_some()
            && !self.system.overlaps(piece.place, piece.count.into());
        if good { Ok(piece) } else { Err(CORRUPT) }
    }

    /// After the first key of the node at `level` has become `key`: corrects the parents.
    fn correct_keys(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        levels: &[Level],
        key: u32,
    ) -> Result<()> {
        for level in levels.iter().rev() {
            self.edit_tree(device, node, level.block, |bytes| {
                put_u32(bytes, ENTRY * (level.at + 1), key);
            })?;
            if level.at > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Replaces extent `at` of the path's leaf.
    fn replace_extent(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        path: &Path,
        at: usize,
        piece: Piece,
    ) -> Result<()> {
        let leaf = path.leaf()?;
        self.edit_tree(device, node, leaf.block, |bytes| {
            crate::field::put(bytes, ENTRY * (at + 1), &piece.encode());
        })?;
        let parents = path.levels.split_last().map_or(&[][..], |(_, parents)| parents);
        if at == 0 { self.correct_keys(device, node, parents, piece.block) } else { Ok(()) }
    }

    /// Adds an extent where there is a hole; joins it with its neighbours.
    pub(crate) fn insert_extent(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        piece: Piece,
    ) -> Result<()> {
        // Each round splits a node or adds a level; a tree has at most DEEPEST + 1.
        for _ in 0..4 * DEEPEST {
            let path = self.path(device, node, piece.block)?;
            let leaf = path.leaf()?;
            let bytes = self.tree_node(device, node, leaf.block, Some(0))?;
            let get = |at: usize| entry(&bytes, at).map(Piece::decode);
            let (before, behind) = (leaf.at.checked_sub(1).and_then(get), get(leaf.at));
            let joined = before.and_then(|before| before.joined(piece));
            let full = count(&bytes) >= most(&bytes);
            drop(bytes);
            if let Some(joined) = joined {
                let whole = behind.and_then(|behind| joined.joined(behind));
                self.replace_extent(device, node, &path, leaf.at - 1, whole.unwrap_or(joined))?;
                return match whole {
                    Some(_) => self.edit_tree(device, node, leaf.block, |bytes| {
                        remove(bytes, leaf.at);
                    }),
                    None => Ok(()),
                };
            }
            if let Some(joined) = behind.and_then(|behind| piece.joined(behind)) {
                return self.replace_extent(device, node, &path, leaf.at, joined);
            }
            if !full {
                self.edit_tree(device, node, leaf.block, |bytes| {
                    insert(bytes, leaf.at, &piece.encode());
                })?;
                let parents = path.levels.split_last().map_or(&[][..], |(_, parents)| parents);
                if leaf.at == 0 {
                    self.correct_keys(device, node, parents, piece.block)?;
                }
                return Ok(());
            }
            self.make_room(device, node, &path)?;
        }
        Err(CORRUPT)
    }

    /// Splits the lowest full node of a path whose parent has room, or adds a level.
    fn make_room(&mut self, device: &dyn Device, node: &mut Node, path: &Path) -> Result<()> {
        for (parent, child) in path.levels.iter().zip(path.levels.iter().skip(1)).rev() {
            let bytes = self.tree_node(device, node, parent.block, None)?;
            if count(&bytes) < most(&bytes) {
                let (parent, child) = (*parent, *child);
                drop(bytes);
                return self.split(device, node, parent, child);
            }
        }
        self.deepen(device, node)
    }

    /// Moves the upper part of `child` into a new node.
    fn split(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        parent: Level,
        child: Level,
    ) -> Result<()> {
        let old = owned(self.tree_node(device, node, child.block, None)?)?;
        let number = count(&old);
        // A file that grows at its end leaves full nodes behind.
        let from = if child.at + 1 >= number { number - 1 } else { number / 2 };
        let new = self.new_metadata(device, child.block)?;
        self.charge(node, 1)?;
        let moved = old.get(ENTRY * (from + 1)..ENTRY * (number + 1)).ok_or(CORRUPT)?;
        let room = self.tree_room();
        self.edit_tree(device, node, new, |bytes| {
            head(bytes, number - from, room, depth(&old));
            crate::field::put(bytes, ENTRY, moved);
        })?;
        self.edit_tree(device, node, child.block, |bytes| put_u16(bytes, 2, from as u16))?;
        let raw = index_entry(u32(moved, 0), new);
        self.edit_tree(device, node, parent.block, |bytes| insert(bytes, parent.at + 1, &raw))
    }

    /// Moves the root's entries into a new node below it.
    fn deepen(&mut self, device: &dyn Device, node: &mut Node) -> Result<()> {
        let level = depth(node.map());
        if level >= DEEPEST {
            return Err(Error::TooLarge);
        }
        let mut root = [0; MAP_LENGTH];
        root.copy_from_slice(node.map());
        let goal = entry(&root, 0)
            .map_or(0, |raw| if level == 0 { Piece::decode(raw).place } else { child(raw) });
        let new = self.new_metadata(device, goal)?;
        self.charge(node, 1)?;
        let room = self.tree_room();
        self.edit_tree(device, node, new, |bytes| {
            crate::field::put(bytes, 0, &root);
            head(bytes, count(&root), room, level);
        })?;
        let key = u32(&root, ENTRY);
        let map = node.map_mut();
        map.fill(0);
        head(map, 0, MAP_LENGTH / ENTRY - 1, level + 1);
        insert(map, 0, &index_entry(key, new));
        Ok(())
    }

    /// Removes extent `at` of the path's leaf, and the nodes that become empty.
    fn delete_extent(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        path: &Path,
        at: usize,
    ) -> Result<()> {
        let mut at = at;
        for (index, level) in path.levels.iter().enumerate().rev() {
            let first = self.edit_tree(device, node, level.block, |bytes| {
                remove(bytes, at);
                entry(bytes, 0).map(|raw| u32(raw, 0))
            })?;
            let parents = path.levels.get(..index).unwrap_or_default();
            match first {
                Some(key) => {
                    if at == 0 {
                        self.correct_keys(device, node, parents, key)?;
                    }
                    break;
                }
                None if level.block == 0 => empty(node.map_mut()),
                None => {
                    self.free_metadata(device, level.block)?;
                    self.charge(node, -1)?;
                    at = parents.last().map_or(0, |parent| parent.at);
                }
            }
        }
        self.flatten(device, node)
    }

    /// Takes levels away while all of the root's only child fits into the root.
    fn flatten(&mut self, device: &dyn Device, node: &mut Node) -> Result<()> {
        let room = MAP_LENGTH / ENTRY - 1;
        while depth(node.map()) > 0 && count(node.map()) == 1 {
            let below = depth(node.map()) - 1;
            let block = entry(node.map(), 0).map(child).ok_or(CORRUPT)?;
            let bytes = owned(self.tree_node(device, node, block, Some(below))?)?;
            if count(&bytes) > room {
                break;
            }
            let entries = bytes.get(ENTRY..ENTRY * (count(&bytes) + 1)).ok_or(CORRUPT)?;
            let map = node.map_mut();
            map.fill(0);
            head(map, count(&bytes), room, below);
            crate::field::put(map, ENTRY, entries);
            self.free_metadata(device, block)?;
            self.charge(node, -1)?;
        }
        Ok(())
    }

    /// Takes `from..to` out of the first extent that overlaps it; returns what was taken, or
    /// `None` if there is no such extent. The blocks are still allocated.
    pub(crate) fn cut_extent(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        from: u32,
        to: u64,
    ) -> Result<Option<Piece>> {
        let Some(piece) = self.extent_from(device, node, from)? else { return Ok(None) };
        let start = piece.block.max(from);
        let end = piece.end().min(to);
        if u64::from(start) >= end {
            return Ok(None);
        }
        let path = self.path(device, node, piece.block)?;
        let at = path.leaf()?.at.checked_sub(1).ok_or(CORRUPT)?;
        let taken = Piece {
            block: start,
            count: (end - u64::from(start)) as u32,
            place: piece.place + u64::from(start - piece.block),
            written: piece.written,
        };
        let rest = Piece {
            block: end as u32,
            count: (piece.end() - end) as u32,
            place: piece.place + (end - u64::from(piece.block)),
            written: piece.written,
        };
        match (start > piece.block, rest.count > 0) {
            (false, false) => self.delete_extent(device, node, &path, at)?,
            (false, true) => self.replace_extent(device, node, &path, at, rest)?,
            (true, keeps_rest) => {
                let left = Piece { count: start - piece.block, ..piece };
                self.replace_extent(device, node, &path, at, left)?;
                if keeps_rest {
                    self.insert_extent(device, node, rest)?;
                }
            }
        }
        Ok(Some(taken))
    }

    /// Makes `from..to`, which lies in one unwritten extent, written.
    pub(crate) fn convert_extent(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        from: u32,
        to: u64,
    ) -> Result<()> {
        let taken = self.cut_extent(device, node, from, to)?.ok_or(CORRUPT)?;
        self.insert_extent(device, node, Piece { written: true, ..taken })
    }
}
