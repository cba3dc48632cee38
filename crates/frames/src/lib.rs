//! Physical frames: the buddy allocator's pure logic.
//!
//! A [`Buddy`] hands out blocks of 2^order frames and merges neighbours when they come back. It
//! handles only frame *numbers*; the caller decides where the links between free blocks are stored
//! (trait [`Table`]): the kernel keeps them in its frame table, the tests in a `Vec`.
//!
//! Invariants:
//! * a frame's link has [`Link::FREE`] set if and only if the frame is the first of a free block,
//!   and then carries the order of that block;
//! * every frame belongs to at most one free block, and no two free buddies of one order exist
//!   (they would have been merged), so free memory is always as little fragmented as it can be;
//! * frame number 0 is never handed out: 0 ends the lists.
//!
//! [`Growing`] adds memory to it when memory is first needed. [`unused`] finds the free memory that
//! the host can have back.
//!
//! There is no locking here: the machine layer wraps a `Buddy` in a spin lock and puts a small
//! [`Stack`] of frames for each processor in front of it, so that the lock is taken once in many
//! allocations.
//!
//! Road not taken: a bitmap per order. It needs less memory, but finding a block and merging walk
//! over words, while the links here take a constant number of loads and stores.
#![no_std]
#![forbid(unsafe_code)]

mod growing;
mod late;
mod stack;
#[cfg(test)]
mod tests;
mod unused;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

pub use growing::{Clear, Growing, Ranges, SECTION};
pub use late::{Refusal, admit};
pub use stack::Stack;
pub use unused::UNIT;
use unused::UNIT_ORDER;

/// Number of block sizes: orders 0 to 15, 4 KiB to 128 MiB.
pub const ORDERS: usize = 16;

/// The orders below a unit's, as bits of `stocked`.
const SMALL: u32 = (1 << UNIT_ORDER) - 1;

/// The storage of the allocator's links: one [`Link`] for each frame.
pub trait Table {
    /// The link of a frame.
    fn link(&self, frame: u32) -> Link;
    /// Replaces the link of a frame.
    fn set_link(&mut self, frame: u32, link: Link);
    /// Called when the number of free frames in whole units ([`unused`]) changes: those that the
    /// host was not told of, and those that it was told of.
    fn note_units(&mut self, untold: u32, told: u32) {
        let _ = (untold, told);
    }
}

/// The allocator's data about a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The next free block of the same order; 0 at the end.
    pub next: u32,
    /// The previous free block of the same order; 0 at the head.
    pub prev: u32,
    /// [`Link::FREE`] plus the order in the first frame of a free block, else 0. The first frame of
    /// a free unit has the unit's mark besides ([`unused`]).
    pub state: u32,
}

impl Link {
    /// The bit in `state` that marks the first frame of a free block.
    pub const FREE: u32 = 1 << 31;
    /// The link of a frame that is in use, or inside a block.
    pub const USED: Link = Link { next: 0, prev: 0, state: 0 };
}

/// The buddy allocator. See the [module](self).
pub struct Buddy<T> {
    table: T,
    /// One past the highest frame number.
    end: u32,
    heads: [u32; ORDERS],
    /// Bit `n` is set when `heads[n]` is not empty.
    stocked: u32,
    free: u32,
    /// Free frames in units that the host was not told of.
    untold: u32,
    /// Free frames in units that the host was told of.
    told: u32,
}

impl<T: Table> Buddy<T> {
    /// An allocator without any free frame, for frame numbers below `end`. Give it frames with
    /// [`free_range`](Self::free_range). Every link of `table` must be [`Link::USED`].
    pub fn new(table: T, end: u32) -> Self {
        Buddy { table, end, heads: [0; ORDERS], stocked: 0, free: 0, untold: 0, told: 0 }
    }

    /// Number of free frames.
    pub fn free_frames(&self) -> u32 {
        self.free
    }

    /// Number of free blocks of each order.
    pub fn free_blocks(&self) -> [u32; ORDERS] {
        let mut counts = [0; ORDERS];
        for (count, &head) in counts.iter_mut().zip(&self.heads) {
            let mut frame = head;
            while frame != 0 {
                *count += 1;
                frame = self.table.link(frame).next;
            }
        }
        counts
    }

    /// Takes a block of 2^`order` frames, aligned to its size; `None` when there is none.
    pub fn allocate(&mut self, order: usize) -> Option<u32> {
        if order >= ORDERS {
            return None;
        }
        let fitting = self.stocked >> order << order;
        // The common case costs nothing for the units: this test would be for zero otherwise.
        if fitting & SMALL == 0 {
            return self.allocate_unit(fitting, order);
        }
        let mut have = fitting.trailing_zeros() as usize;
        let frame = self.heads[have];
        self.unlink(frame, have);
        self.free -= 1 << order;
        // Give the upper halves back until the block has the wanted size.
        while have > order {
            have -= 1;
            self.link(frame + (1 << have), have);
        }
        Some(frame)
    }

    /// Takes `count` contiguous frames, aligned to the next power of two; `None` when there is no
    /// such block or `count` is 0.
    pub fn allocate_range(&mut self, count: u32) -> Option<u32> {
        if count == 0 {
            return None;
        }
        let order = count.checked_next_power_of_two()?.trailing_zeros() as usize;
        let first = self.allocate(order)?;
        let extra = (1u32 << order) - count;
        if extra > 0 {
            self.free_range(first + count, extra);
        }
        Some(first)
    }

    /// Fills `frames` with single frames as far as there are any; returns how many. The smallest
    /// blocks are used first, so that the remaining frames stay in large ones.
    pub fn allocate_many(&mut self, frames: &[AtomicU32]) -> usize {
        let mut taken = 0;
        while taken < frames.len() && self.stocked != 0 {
            let rest = (frames.len() - taken).ilog2();
            let order = self.stocked.trailing_zeros().min(rest) as usize;
            let Some(first) = self.allocate(order) else { break };
            for frame in first..first + (1 << order) {
                frames[taken].store(frame, Relaxed);
                taken += 1;
            }
        }
        taken
    }

    /// Gives a block of 2^`order` frames back and merges it with its free buddies.
    ///
    /// # Panics
    /// If the block is out of bounds, misaligned, or its first frame is free already.
    pub fn free(&mut self, frame: u32, order: usize) {
        assert!(order < ORDERS && frame != 0, "no such block");
        assert!(frame & ((1 << order) - 1) == 0, "misaligned block");
        assert!(frame < self.end && self.end - frame >= 1 << order, "block out of bounds");
        assert!(self.table.link(frame).state & Link::FREE == 0, "block freed twice");
        self.free += 1 << order;
        let (mut frame, mut order) = (frame, order);
        while order < UNIT_ORDER {
            let buddy = frame ^ (1 << order);
            if buddy >= self.end || self.table.link(buddy).state != Link::FREE | order as u32 {
                return self.link(frame, order);
            }
            self.unlink(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.free_units(frame, order);
    }

    /// Gives any contiguous frames back, in as few blocks as alignment allows.
    pub fn free_range(&mut self, first: u32, count: u32) {
        let (mut frame, mut left) = (first, count);
        while left > 0 {
            let aligned = frame.trailing_zeros().min(ORDERS as u32 - 1);
            let order = aligned.min(left.ilog2()) as usize;
            self.free(frame, order);
            frame += 1 << order;
            left -= 1 << order;
        }
    }

    fn link(&mut self, frame: u32, order: usize) {
        let next = self.heads[order];
        self.table.set_link(frame, Link { next, prev: 0, state: Link::FREE | order as u32 });
        if next != 0 {
            let mut link = self.table.link(next);
            link.prev = frame;
            self.table.set_link(next, link);
        }
        self.heads[order] = frame;
        self.stocked |= 1 << order;
    }

    fn unlink(&mut self, frame: u32, order: usize) {
        let Link { next, prev, .. } = self.table.link(frame);
        self.table.set_link(frame, Link::USED);
        if next != 0 {
            let mut link = self.table.link(next);
            link.prev = prev;
            self.table.set_link(next, link);
        }
        if prev != 0 {
            let mut link = self.table.link(prev);
            link.next = next;
            self.table.set_link(prev, link);
        } else {
            self.heads[order] = next;
            if next == 0 {
                self.stocked &= !(1 << order);
            }
        }
    }
}
