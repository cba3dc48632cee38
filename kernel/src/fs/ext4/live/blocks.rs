//! Where the blocks of one regular file are, and the pages that are read from them and written to
//! them.
//!
//! The list has the blocks that were written. Preallocated ones read as zeroes and count as holes
//! here. A page becomes dirty only when all its blocks up to the end of the file have their places,
//! so that writing it back takes no lock that sleeps and no memory.
//!
//! `reach` is how far the content may be in memory: it is raised before a write copies its bytes
//! and before the size of the page cache grows. Bytes beyond it are zeroed before a page goes to
//! the disk: a mapping may have left some there (`block_write_full_page`, fs/buffer.c).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Extent, Run};
use hayate_machine::frames::Frame;
use hayate_machine::sync::{RwSpinLock, SpinLock};

use crate::drivers::block::{SECTOR, Segment};
use crate::fs::disk::Disk;
use crate::fs::ext4::content::fill;
use crate::page_cache::source::PageSource;
use crate::reclaim::growth::Grow;

const PAGE: u64 = 4096;

/// The file whose blocks these are.
pub trait Owner: Send + Sync {
    /// Makes a page that a mapping is about to change ready ([`PageSource::prepare`]).
    fn prepare(&self, index: u64) -> Result<()>;
}

/// The blocks of a file.
pub struct Blocks {
    disk: Arc<Disk>,
    /// Of a block's size.
    shift: u32,
    /// The largest size in bytes that the file can have.
    pub largest: u64,
    /// Sorted and disjoint.
    extents: RwSpinLock<Vec<Extent>>,
    /// Held while bytes beyond it are zeroed, so that none of a write that raises it goes as well.
    reach: SpinLock<u64>,
    /// The file, which a fault may have to give blocks to.
    owner: SpinLock<Option<Weak<dyn Owner>>>,
}

impl Blocks {
    /// The blocks of a file of `size` bytes, which can have `largest`.
    pub fn new(
        disk: Arc<Disk>,
        shift: u32,
        extents: &[Extent],
        size: u64,
        largest: u64,
    ) -> Result<Blocks> {
        let mut list = Vec::new();
        list.make_room_exact(extents.len())?;
        list.extend_from_slice(extents);
        Ok(Blocks {
            disk,
            shift,
            largest,
            extents: RwSpinLock::new(list),
            reach: SpinLock::new(size),
            owner: SpinLock::new(None),
        })
    }

    /// Tells whose blocks these are.
    pub fn belong_to(&self, owner: Weak<dyn Owner>) {
        *self.owner.lock() = Some(owner);
    }

    /// Raises the reach to `end`, or sets it.
    pub fn raise(&self, end: u64) {
        let mut reach = self.reach.lock();
        *reach = end.max(*reach);
    }

    /// Sets the reach.
    pub fn set_reach(&self, end: u64) {
        *self.reach.lock() = end;
    }

    /// Returns the content at byte `offset`.
    pub fn run(&self, offset: u64) -> Run {
        let block = offset >> self.shift;
        let extents = self.extents.read();
        let next = extents.partition_point(|extent| u64::from(extent.block) <= block);
        if let Some(extent) = next.checked_sub(1).and_then(|at| extents.get(at)) {
            let start = u64::from(extent.block) << self.shift;
            let length = u64::from(extent.count) << self.shift;
            if offset - start < length {
                let place = (extent.place << self.shift) + (offset - start);
                return Run::Data { place, length: length - (offset - start) };
            }
        }
        let next = extents.get(next);
        let length = next.map_or(u64::MAX, |next| (u64::from(next.block) << self.shift) - offset);
        Run::Hole { length }
    }

    /// The first blocks in a row of `from..to` that have no place: the first one, and how many.
    pub fn hole(&self, from: u64, to: u64) -> Option<(u32, u32)> {
        let mut at = from;
        while at < to {
            match self.run(at << self.shift) {
                Run::Data { length, .. } => at += (length >> self.shift).max(1),
                Run::Hole { length } => {
                    let count = (length >> self.shift).min(to - at);
                    return Some((u32::try_from(at).ok()?, u32::try_from(count).ok()?));
                }
            }
        }
        None
    }

    /// Makes room for a change of the list.
    pub fn make_room(&self) -> Result<()> {
        self.extents.write().make_room(2)
    }

    /// Enters blocks that have got their places; the caller has made room.
    pub fn insert(&self, new: Extent) {
        let mut extents = self.extents.write();
        let at = extents.partition_point(|extent| extent.block < new.block);
        let joins = |one: &Extent, other: &Extent| {
            one.block.checked_add(one.count) == Some(other.block)
                && one.place + u64::from(one.count) == other.place
        };
        let mut new = new;
        if let Some(next) = extents.get(at).copied()
            && joins(&new, &next)
        {
            new.count += next.count;
            extents.remove(at);
        }
        match at.checked_sub(1).and_then(|before| extents.get_mut(before)) {
            Some(before) if joins(before, &new) => before.count += new.count,
            _ => extents.insert(at, new),
        }
    }

    /// Forgets the blocks `from..to`; the caller has made room.
    pub fn remove(&self, from: u64, to: u64) {
        let mut extents = self.extents.write();
        let mut at = extents
            .partition_point(|extent| u64::from(extent.block) + u64::from(extent.count) <= from);
        while let Some(extent) = extents.get(at).copied() {
            let (start, end) =
                (u64::from(extent.block), u64::from(extent.block) + u64::from(extent.count));
            if start >= to {
                break;
            }
            let (kept, rest) = (from.saturating_sub(start), end.saturating_sub(to));
            if rest > 0 {
                let gone = (to - start) as u32;
                let tail = Extent {
                    block: extent.block + gone,
                    count: rest as u32,
                    place: extent.place + u64::from(gone),
                };
                match extents.get_mut(at) {
                    Some(there) if kept == 0 => *there = tail,
                    _ => extents.insert(at + 1, tail),
                }
            }
            if kept > 0 {
                if let Some(there) = extents.get_mut(at) {
                    there.count = kept as u32;
                }
                at += 1;
            } else if rest == 0 {
                extents.remove(at);
            }
            if rest > 0 {
                break;
            }
        }
    }

    /// The pieces of a page that have places, with their sectors.
    fn pieces<'a>(
        &'a self,
        index: u64,
        frame: &'a Frame,
    ) -> impl Iterator<Item = (u64, Segment<'a>)> + 'a {
        let length = (1u64 << self.shift).min(PAGE);
        (0..PAGE / length).filter_map(move |number| {
            let within = number * length;
            match self.run(index * PAGE + within) {
                Run::Hole { .. } => None,
                Run::Data { place, .. } => {
                    let (offset, length) = (within as usize, length as usize);
                    Some((place / SECTOR, Segment { frame, offset, length }))
                }
            }
        })
    }
}

impl PageSource for Blocks {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let size = *self.reach.lock();
        fill(&self.disk, size, first, frames, |offset| self.run(offset))
    }

    fn write_pages(&self, pages: &[(u64, Frame)]) -> Result<()> {
        {
            let reach = self.reach.lock();
            let last = pages.iter().rev().find(|(index, _)| *index <= *reach / PAGE);
            if let Some((_, frame)) = last.filter(|(index, _)| *index == *reach / PAGE) {
                let within = (*reach % PAGE) as usize;
                frame.zero_range(within, PAGE as usize - within);
            }
        }
        let mut pieces = pages.iter().flat_map(|(index, frame)| self.pieces(*index, frame));
        self.disk.device().write_content(&mut pieces)
    }

    fn device(&self) -> Option<usize> {
        Some(self.disk.device().at())
    }

    fn prepares(&self) -> bool {
        true
    }

    fn prepare(&self, index: u64) -> Result<()> {
        let owner = self.owner.lock().as_ref().and_then(Weak::upgrade);
        owner.ok_or(Errno::EIO)?.prepare(index)
    }
}
