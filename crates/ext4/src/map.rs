//! Block maps: which runs of the volume hold a file's content.
//!
//! A file's extent tree, or its tree of indirect blocks, is read once into a sorted list; after
//! that, a read of any length finds its run by binary search.

use alloc::vec::Vec;

use crate::error::{Error, Result, buffer};
use crate::field::{split, u16, u32};
use crate::inode::Inode;
use crate::volume::{Source, Volume};

pub(crate) const EXTENT_MAGIC: u16 = 0xf30a;
/// Bytes of a node's header and of each of its entries.
pub(crate) const ENTRY: usize = 12;
/// Linux' `EXT4_MAX_EXTENT_DEPTH`.
pub(crate) const DEEPEST: u16 = 5;
/// Lengths over this mark an extent that was allocated but never written.
pub(crate) const UNWRITTEN: u16 = 32768;

/// Consecutive blocks of a file that are also consecutive on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block, counted within the file.
    pub block: u32,
    /// Number of blocks, at least one.
    pub count: u32,
    /// First block, counted within the volume.
    pub place: u64,
}

/// The content at a byte of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// `length` bytes from byte `place` of the volume.
    Data {
        /// First byte on the volume.
        place: u64,
        /// Contiguous bytes from there.
        length: u64,
    },
    /// `length` bytes of zero that have no blocks.
    Hole {
        /// Bytes up to the next data; `u64::MAX` after the last.
        length: u64,
    },
}

/// A file's extents, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    extents: Vec<Extent>,
    block_shift: u32,
}

impl Volume {
    /// Reads the block map of `inode`, a regular file, a directory or a long symbolic link.
    pub fn map<S: Source + ?Sized>(&self, source: &S, inode: &Inode) -> Result<Map> {
        let mut builder =
            Builder { volume: self, source, inode, extents: Vec::new(), budget: self.blocks };
        if inode.has_extents() {
            builder.extent_node(&inode.block, None, 0, 1 << 32)?;
        } else {
            builder.indirect()?;
        }
        Ok(Map { extents: builder.extents, block_shift: self.block_shift })
    }
}

impl Map {
    /// Returns the content at byte `offset` of the file.
    pub fn run(&self, offset: u64) -> Run {
        let block = offset >> self.block_shift;
        let next = self.extents.partition_point(|extent| u64::from(extent.block) <= block);
        if let Some(extent) = next.checked_sub(1).and_then(|index| self.extents.get(index)) {
            let start = u64::from(extent.block) << self.block_shift;
            let length = u64::from(extent.count) << self.block_shift;
            if offset - start < length {
                return Run::Data {
                    place: (extent.place << self.block_shift) + (offset - start),
                    length: length - (offset - start),
                };
            }
        }
        let length = self
            .extents
            .get(next)
            .map_or(u64::MAX, |extent| (u64::from(extent.block) << self.block_shift) - offset);
        Run::Hole { length }
    }

    /// The extents in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Fills `into` from byte `offset` of the file; holes read as zero. The caller must respect the
    /// file's size.
    pub fn read<S: Source + ?Sized>(
        &self,
        volume: &Volume,
        source: &S,
        mut offset: u64,
        mut into: &mut [u8],
    ) -> Result<()> {
        debug_assert_eq!(volume.block_shift, self.block_shift);
        while !into.is_empty() {
            let run = self.run(offset);
            let (Run::Data { length, .. } | Run::Hole { length }) = run;
            let here = usize::try_from(length).unwrap_or(usize::MAX).min(into.len());
            let (part, rest) = into.split_at_mut(here);
            match run {
                Run::Data { place, .. } => volume.read(source, place, part)?,
                Run::Hole { .. } => part.fill(0),
            }
            into = rest;
            offset = offset.saturating_add(here as u64);
        }
        Ok(())
    }
}

/// Gathers the extents of one inode.
struct Builder<'a, S: Source + ?Sized> {
    volume: &'a Volume,
    source: &'a S,
    inode: &'a Inode,
    extents: Vec<Extent>,
    /// How many blocks the tree and the content may still use: in total no more than the volume
    /// has.
    budget: u64,
}

impl<S: Source + ?Sized> Builder<'_, S> {
    fn spend(&mut self, blocks: u64) -> Result<()> {
        self.budget = self.budget.checked_sub(blocks).ok_or(Error::Corrupt("a block map"))?;
        Ok(())
    }

    /// Adds an extent. Blocks of a file's content that are newer in the journal are read from
    /// there; all other blocks are read by [`Volume::read`], which checks the journal itself.
    fn push(&mut self, extent: Extent) -> Result<()> {
        self.spend(extent.count.into())?;
        if !self.inode.is(0o100_000) {
            return self.append(extent);
        }
        let Extent { mut block, mut count, mut place } = extent;
        let copies = &self.volume.copies;
        for &(moved, copy) in copies.range(place..place + u64::from(count)) {
            if copy.escaped {
                return Err(Error::Unsupported("a file's escaped block in the journal"));
            }
            let before = (moved - place) as u32;
            if before > 0 {
                self.append(Extent { block, count: before, place })?;
            }
            self.append(Extent { block: block + before, count: 1, place: copy.place })?;
            (block, count, place) = (block + before + 1, count - before - 1, moved + 1);
        }
        if count > 0 { self.append(Extent { block, count, place }) } else { Ok(()) }
    }

    fn append(&mut self, extent: Extent) -> Result<()> {
        if let Some(last) = self.extents.last_mut() {
            let follows = last.block.checked_add(last.count) == Some(extent.block)
                && last.place + u64::from(last.count) == extent.place;
            if follows && let Some(count) = last.count.checked_add(extent.count) {
                last.count = count;
                return Ok(());
            }
        }
        self.extents.try_reserve(1).map_err(|_| Error::Memory)?;
        self.extents.push(extent);
        Ok(())
    }

    fn tree_block(&mut self, block: u64) -> Result<Vec<u8>> {
        let place = self.volume.place(block, 1).ok_or(Error::Corrupt("a block map"))?;
        self.spend(1)?;
        let mut node = buffer(self.volume.block_size())?;
        self.volume.read(self.source, place, &mut node)?;
        Ok(node)
    }

    /// Adds an extent node whose blocks must lie in `from..to` of the file. The ranges of a node's
    /// children are disjoint, so no part of the volume is read twice; the depth falls with each
    /// step.
    fn extent_node(&mut self, node: &[u8], depth: Option<u16>, from: u64, to: u64) -> Result<()> {
        const CORRUPT: Error = Error::Corrupt("an extent tree");
        let (count, room) = (usize::from(u16(node, 2)), usize::from(u16(node, 4)));
        let found = u16(node, 6);
        if u16(node, 0) != EXTENT_MAGIC
            || count > room
            || ENTRY * (room + 1) > node.len()
            || depth.is_some_and(|depth| depth != found)
            || found > DEEPEST
        {
            return Err(CORRUPT);
        }
        if let (Some(_), Some(seed)) = (depth, self.inode.seed) {
            let end = ENTRY * (room + 1);
            if end + 4 > node.len()
                || seed.over(&[node.get(..end).unwrap_or_default()]) != u32(node, end)
            {
                return Err(Error::Checksum("an extent tree"));
            }
        }
        let entry =
            |index: usize| node.get(ENTRY * (index + 1)..ENTRY * (index + 2)).unwrap_or_default();
        let mut low = from;
        for index in 0..count {
            let raw = entry(index);
            let block = u32(raw, 0);
            if u64::from(block) < low || u64::from(block) >= to {
                return Err(CORRUPT);
            }
            if found == 0 {
                let length = u16(raw, 4);
                let written = length <= UNWRITTEN;
                let length = u32::from(if written { length } else { length - UNWRITTEN });
                let place = split(u32::from(u16(raw, 6)), u32(raw, 8));
                low = u64::from(block) + u64::from(length);
                if length == 0 || low > to || self.volume.place(place, length.into()).is_none() {
                    return Err(CORRUPT);
                }
                if written {
                    self.push(Extent { block, count: length, place })?;
                }
            } else {
                let next = if index + 1 < count { u64::from(u32(entry(index + 1), 0)) } else { to };
                if next <= u64::from(block) || next > to {
                    return Err(CORRUPT);
                }
                let child = self.tree_block(split(u32::from(u16(raw, 8)), u32(raw, 4)))?;
                self.extent_node(&child, Some(found - 1), block.into(), next)?;
                low = next;
            }
        }
        Ok(())
    }

    /// Adds the twelve direct and three indirect blocks of an ext2 or ext3 file.
    fn indirect(&mut self) -> Result<()> {
        let blocks = self.inode.size.div_ceil(self.volume.block_size() as u64);
        let mut next = 0u64;
        for slot in 0..15u32 {
            if next >= blocks {
                break;
            }
            let place = u32(&self.inode.block, slot as usize * 4);
            self.indirect_slot(place, slot.saturating_sub(11), &mut next, blocks)?;
        }
        Ok(())
    }

    /// Adds the blocks of one pointer of `level` (0: data), from block `next` of the file on.
    fn indirect_slot(&mut self, place: u32, level: u32, next: &mut u64, blocks: u64) -> Result<()> {
        let fan_shift = self.volume.block_shift - 2;
        if place == 0 {
            *next += 1u64 << (fan_shift * level);
            return Ok(());
        }
        if level == 0 {
            let block = u32::try_from(*next).map_err(|_| Error::Corrupt("a file's size"))?;
            self.volume.place(place.into(), 1).ok_or(Error::Corrupt("a block map"))?;
            *next += 1;
            return self.push(Extent { block, count: 1, place: place.into() });
        }
        let table = self.tree_block(place.into())?;
        for pointer in table.chunks_exact(4) {
            if *next >= blocks {
                break;
            }
            self.indirect_slot(u32(pointer, 0), level - 1, next, blocks)?;
        }
        Ok(())
    }
}
