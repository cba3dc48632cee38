//! The blocks of files: where they are, giving them, taking them away.
//!
//! Taking away goes in steps of bounded size, each an operation of its own. An inode that is being
//! cut is on the orphan list, so that a crash between two steps is made good at the next mount.

use crate::error::{Error, Result};
use crate::extent_tree::Piece;
use crate::indirect::Cut;
use crate::inode::{Inode, Time};
use crate::map::Extent;
use crate::node::{Node, kind};
use crate::superblock;
use crate::volume::Device;
use crate::writer::Writer;

/// Blocks of the journal that the removal of one extent may need.
const STEP: usize = 40;

/// Blocks that a file that grows has ahead: as many as it has, in these bounds.
const LEAST_AHEAD: u32 = 8;
const MOST_AHEAD: u32 = 512;

/// The state of a range of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Blocks from the asked one on that are alike; at least one.
    pub count: u32,
    /// First block on the volume; `None` in a hole.
    pub place: Option<u64>,
    /// Whether it was written; an unwritten one reads as zero.
    pub written: bool,
}

/// How blocks are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The caller writes the blocks whole before this transaction commits: the inode is listed by
    /// [`crate::Sealed::inodes`]. Preallocated blocks of the range become written ones.
    Written,
    /// They read as zero until they are allocated as `Written` (`fallocate`). Where the file has
    /// no extents (ext2, ext3) this is `Unsupported` (Linux: EOPNOTSUPP).
    Unwritten,
}

/// Whether work is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// Call the same again (after a commit, if [`Writer::needs_commit`]).
    More,
}

impl Writer {
    /// Returns the mapping of the file's block `block`.
    pub fn mapping(&self, device: &dyn Device, inode: &Inode, block: u32) -> Result<Mapping> {
        let node = self.node(device, inode.number)?;
        self.mapping_of(device, &node, block)
    }

    /// The largest size in bytes that a file with this inode may have.
    pub fn largest_size(&self, inode: &Inode) -> u64 {
        self.largest(inode.has_extents())
    }

    fn largest(&self, has_extents: bool) -> u64 {
        let blocks = if has_extents { u64::from(u32::MAX) } else { self.most_indirect() };
        blocks << self.volume.block_shift
    }

    pub(crate) fn mapping_of(
        &self,
        device: &dyn Device,
        node: &Node,
        block: u32,
    ) -> Result<Mapping> {
        if !node.has_extents() {
            if u64::from(block) >= self.most_indirect() {
                return Ok(Mapping { count: u32::MAX - block, place: None, written: false });
            }
            let (place, count) = self.indirect_run(device, node, block)?;
            return Ok(Mapping { count, place, written: place.is_some() });
        }
        Ok(match self.extent_from(device, node, block)? {
            Some(piece) if piece.block <= block => Mapping {
                count: (piece.end() - u64::from(block)) as u32,
                place: Some(piece.place + u64::from(block - piece.block)),
                written: piece.written,
            },
            Some(next) => Mapping { count: next.block - block, place: None, written: false },
            None => Mapping { count: (u32::MAX - block).max(1), place: None, written: false },
        })
    }

    /// The place that a new block should have: behind the one before it, or else near the inode.
    fn goal(&self, device: &dyn Device, node: &Node, block: u32) -> Result<u64> {
        if node.has_extents() {
            if let Some(before) = self.extent_before(device, node, block)? {
                // A file with holes keeps their room, as far as the next block is near.
                return Ok(before.place + u64::from(block - before.block));
            }
            if let Some(next) = self.extent_from(device, node, block)? {
                return Ok(next.place.saturating_sub(u64::from(next.block - block)));
            }
        } else if let Some(before) = block.checked_sub(1)
            && let Some(place) = self.mapping_of(device, node, before)?.place
        {
            return Ok(place + 1);
        }
        Ok(self.volume.group_start(self.inode_group(node.number).0))
    }

    /// Gives blocks to a part of `block..block + count` of a file, from `block` on, and returns
    /// this part with its place: at least one block, which may have had its place before. Call it
    /// again for the rest. The size is left as it is: written blocks behind it must not be there
    /// when the transaction commits, see [`Writer::extend`].
    pub fn allocate(
        &mut self,
        device: &dyn Device,
        inode: u32,
        block: u32,
        count: u32,
        fill: Fill,
    ) -> Result<Extent> {
        self.give(device, inode, (block, count), fill, 0)
    }

    /// As [`Writer::allocate`] of written blocks, for a write that ends at byte `size`: in the same
    /// operation the file's size becomes at least `size`, or the end of the blocks that were given
    /// if that is less.
    pub fn extend(
        &mut self,
        device: &dyn Device,
        inode: u32,
        block: u32,
        count: u32,
        size: u64,
    ) -> Result<Extent> {
        self.give(device, inode, (block, count), Fill::Written, size)
    }

    fn give(
        &mut self,
        device: &dyn Device,
        inode: u32,
        (block, count): (u32, u32),
        fill: Fill,
        size: u64,
    ) -> Result<Extent> {
        if count == 0 {
            return Err(Error::Invalid);
        }
        self.operate(|writer| {
            let mut node = writer.node(device, inode)?;
            if !node.is(kind::REGULAR) {
                return Err(Error::Invalid);
            }
            if fill == Fill::Unwritten && !node.has_extents() {
                return Err(Error::Unsupported("preallocation in a file without extents"));
            }
            let end = u64::from(block) + u64::from(count);
            if end > writer.largest(node.has_extents()) >> writer.volume.block_shift {
                return Err(Error::TooLarge);
            }
            let piece = writer.provide(device, &mut node, block, count, fill == Fill::Written)?;
            if fill == Fill::Written {
                writer.order(inode)?;
            }
            let size = size.min(piece.end() << writer.volume.block_shift);
            if size > node.size() {
                writer.grow(device, &mut node, size)?;
            }
            writer.put_node(device, &mut node)?;
            Ok(Extent { block, count: piece.count, place: piece.place })
        })
    }

    /// Gives blocks to a part of a range; with `written` preallocated ones become written.
    pub(crate) fn provide(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        block: u32,
        count: u32,
        written: bool,
    ) -> Result<Piece> {
        let found = self.mapping_of(device, node, block)?;
        let count = count.min(found.count);
        if let Some(place) = found.place {
            if written && !found.written {
                let end = u64::from(block) + u64::from(count);
                self.convert_extent(device, node, block, end)?;
            }
            return Ok(Piece { block, count, place, written });
        }
        let goal = self.goal(device, node, block)?;
        // A file that is written at once is complete; one that is written at its end again grows.
        let offset = u64::from(block) << self.volume.block_shift;
        let grows = block > 0 && node.is(kind::REGULAR) && offset >= node.size();
        let ahead = if grows { block.clamp(LEAST_AHEAD, MOST_AHEAD) } else { 0 };
        if !node.has_extents() {
            return self.fill_indirect(device, node, block, count, (goal, ahead));
        }
        // An unwritten extent may have one block less than a written one.
        let count = count.min(32767);
        let (place, count) = self.allocate_blocks(device, goal, count, node.number, ahead)?;
        let piece = Piece { block, count, place, written };
        self.insert_extent(device, node, piece)?;
        self.charge(node, count.into())?;
        Ok(piece)
    }

    /// Sets a size that is not smaller than before.
    pub(crate) fn grow(&mut self, device: &dyn Device, node: &mut Node, size: u64) -> Result<()> {
        if size < node.size() || !node.is(kind::REGULAR) {
            return if size == node.size() { Ok(()) } else { Err(Error::Invalid) };
        }
        if size > self.largest(node.has_extents()) {
            return Err(Error::TooLarge);
        }
        node.set_size(size);
        if size > i32::MAX as u64 && !self.format.large_file {
            self.edit_superblock(device, superblock::set_large_file)?;
        }
        Ok(())
    }

    /// Sets the size, and frees the blocks behind it, in bounded steps. The caller zeroes the
    /// rest of the last block.
    pub fn set_size(
        &mut self,
        device: &dyn Device,
        inode: u32,
        size: u64,
        now: Time,
    ) -> Result<Progress> {
        self.operate(|writer| {
            let mut node = writer.node(device, inode)?;
            if !node.is(kind::REGULAR) {
                return Err(Error::Invalid);
            }
            node.set_modified(now);
            node.set_changed(now);
            if size >= node.size() {
                writer.grow(device, &mut node, size)?;
            } else {
                node.set_size(size);
            }
            let progress = writer.cut_to_size(device, &mut node)?;
            writer.put_node(device, &mut node)?;
            Ok(progress)
        })
    }

    /// Frees blocks behind the size; the inode is on the orphan list until all are free.
    pub(crate) fn cut_to_size(&mut self, device: &dyn Device, node: &mut Node) -> Result<Progress> {
        let first = node.size().div_ceil(self.volume.block_size() as u64);
        let progress = match u32::try_from(first) {
            Ok(first) => self.cut(device, node, first, 1 << 32)?,
            Err(_) => Progress::Done,
        };
        if node.links() > 0 {
            match progress {
                Progress::Done => self.remove_orphan(device, node)?,
                Progress::More => self.add_orphan(device, node)?,
            }
        }
        Ok(progress)
    }

    /// Frees the blocks `from..to` of a file, in bounded steps. The caller zeroes parts of blocks.
    pub fn punch(
        &mut self,
        device: &dyn Device,
        inode: u32,
        from: u32,
        to: u32,
        now: Time,
    ) -> Result<Progress> {
        self.operate(|writer| {
            let mut node = writer.node(device, inode)?;
            if !node.is(kind::REGULAR) {
                return Err(Error::Invalid);
            }
            node.set_modified(now);
            node.set_changed(now);
            let progress = writer.cut(device, &mut node, from, to.into())?;
            writer.put_node(device, &mut node)?;
            Ok(progress)
        })
    }

    /// Frees blocks of a range, as many as this operation may.
    pub(crate) fn cut(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        from: u32,
        to: u64,
    ) -> Result<Progress> {
        let is_metadata = !node.is(kind::REGULAR);
        self.windows.drop_of(node.number);
        let mut next = from;
        // Holes of a file without extents are passed in steps too.
        let mut budget = 4096u32;
        loop {
            if self.room() < STEP || budget == 0 {
                return Ok(Progress::More);
            }
            budget -= 1;
            if node.has_extents() {
                match self.extent_from(device, node, next)? {
                    Some(piece) => next = next.max(piece.block),
                    None => return Ok(Progress::Done),
                }
            }
            let piece = if node.has_extents() {
                // Each block of metadata is revoked by itself; an extent may lie in many groups.
                let step =
                    if is_metadata { 1024 } else { 8 * u64::from(self.volume.blocks_per_group) };
                self.cut_extent(device, node, next, to.min(u64::from(next) + step))?
            } else {
                match self.cut_indirect(device, node, next, to)? {
                    Cut::Run(piece) => Some(piece),
                    Cut::Hole(at) => {
                        next = at;
                        continue;
                    }
                    Cut::End => None,
                }
            };
            let Some(piece) = piece else { return Ok(Progress::Done) };
            self.free_blocks(device, piece.place, piece.count)?;
            self.charge(node, -i64::from(piece.count))?;
            if is_metadata {
                for step in 0..piece.count {
                    self.forget(piece.place + u64::from(step))?;
                }
            }
            match u32::try_from(piece.end()) {
                Ok(end) => next = end,
                Err(_) => return Ok(Progress::Done),
            }
        }
    }
}
