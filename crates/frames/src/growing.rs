//! An allocator that takes memory section by section, when it is first needed.
//!
//! Every frame of memory has a record in the table, and a record has to be cleared before anything
//! reads it. For 16 GiB of memory that is 64 MiB of records, most of which a machine that runs one
//! small program never needs. So memory waits in sections, and the records of a section are cleared
//! when its frames are first needed. A section has the size of the largest block, therefore merging
//! blocks reads no record of another section.
//!
//! Sections are added from low addresses upwards, so that little memory is touched. Those with
//! memory in use since boot are added first, because the records of that memory are in use, too.
//!
//! Waiting frames count as free: an allocation fails only when no section is left.
//!
//! Road not taken: clearing sections in the background. That saves the first user of a section a
//! tenth of a millisecond, and makes the host provide memory for the whole table.

use core::ops::Range;
use core::sync::atomic::AtomicU32;

use arrayvec::ArrayVec;

use crate::{Buddy, ORDERS, Table};

/// Frames in a section: those of the largest block, 128 MiB.
pub const SECTION: u32 = 1 << (ORDERS - 1);

/// Ranges of frames. There is room for those of the loader's map and some more.
pub type Ranges = ArrayVec<Range<u32>, 136>;

/// A [`Table`] with undefined records.
pub trait Clear: Table {
    /// Clears the records of these frames, their links included ([`crate::Link::USED`]).
    fn clear(&mut self, frames: Range<u32>);
}

/// A [`Buddy`] allocator, and the memory that waits for it. See the [module](self).
pub struct Growing<T> {
    pub(crate) buddy: Buddy<T>,
    /// One past the highest frame number.
    end: u32,
    usable: Ranges,
    in_use: Ranges,
    /// The sections below this one were added.
    next: u32,
    /// How many usable frames were not added yet.
    waiting: u32,
}

fn overlap(one: &Range<u32>, other: &Range<u32>) -> Range<u32> {
    one.start.max(other.start)..one.end.min(other.end)
}

impl<T: Clear> Growing<T> {
    /// An allocator of the `usable` frames, below `end` and without frame 0. The ranges are
    /// disjoint. Records of frames that are in a section with frames of `in_use` can be used from
    /// now on, others from the first allocation of a frame in their section.
    pub fn new(table: T, end: u32, usable: Ranges, in_use: Ranges) -> Growing<T> {
        let waiting = usable.iter().map(|range| range.len() as u32).sum();
        let buddy = Buddy::new(table, end);
        let mut growing = Growing { buddy, end, usable, in_use, next: 0, waiting };
        for index in 0..growing.in_use.len() {
            let range = growing.in_use[index].clone();
            for section in range.start / SECTION..range.end.div_ceil(SECTION) {
                if !growing.in_use[..index].iter().any(|range| touches(range, section)) {
                    growing.add(section);
                }
            }
        }
        growing
    }

    /// Number of free frames, including those that were not needed yet.
    pub fn free_frames(&self) -> u32 {
        self.buddy.free_frames() + self.waiting
    }

    /// See [`Buddy::allocate`].
    pub fn allocate(&mut self, order: usize) -> Option<u32> {
        loop {
            let frame = self.buddy.allocate(order);
            if frame.is_some() || order >= ORDERS || !self.grow() {
                return frame;
            }
        }
    }

    /// See [`Buddy::allocate_range`].
    pub fn allocate_range(&mut self, count: u32) -> Option<u32> {
        loop {
            let first = self.buddy.allocate_range(count);
            if first.is_some() || !(1..=SECTION).contains(&count) || !self.grow() {
                return first;
            }
        }
    }

    /// See [`Buddy::allocate_many`].
    pub fn allocate_many(&mut self, frames: &[AtomicU32]) -> usize {
        let mut taken = self.buddy.allocate_many(frames);
        while taken < frames.len() && self.grow() {
            taken += self.buddy.allocate_many(&frames[taken..]);
        }
        taken
    }

    /// See [`Buddy::free`].
    pub fn free(&mut self, frame: u32, order: usize) {
        self.buddy.free(frame, order);
    }

    /// See [`Buddy::free_range`]. The frames may also be some that were in use at first.
    pub fn free_range(&mut self, first: u32, count: u32) {
        self.buddy.free_range(first, count);
    }

    /// One past the highest frame number.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Free frames that the host was told of.
    pub fn told_frames(&self) -> u32 {
        self.buddy.told_frames()
    }

    /// Looks for unused memory from `from` on, in one section at most; see [`Buddy::offer`].
    pub fn offer(&mut self, from: &mut u32, most: u32) -> Option<Range<u32>> {
        let section = frames(*from / SECTION);
        let end = section.end.min(self.end);
        if !self.has_records(*from / SECTION) {
            *from = end;
            return None;
        }
        self.buddy.offer(from, end, most)
    }

    /// See [`Buddy::restore`].
    pub fn restore(&mut self, run: Range<u32>, told: bool) {
        self.buddy.restore(run, told);
    }

    /// Whether the section's records were cleared.
    fn has_records(&self, section: u32) -> bool {
        let usable = || self.usable.iter().any(|range| touches(range, section));
        self.in_use.iter().any(|range| touches(range, section)) || section < self.next && usable()
    }

    /// Adds the next section that has usable frames; false if there is none.
    #[cold]
    fn grow(&mut self) -> bool {
        while self.waiting > 0 && self.next <= self.end / SECTION {
            let section = self.next;
            self.next += 1;
            let frames = frames(section);
            let is_usable = self.usable.iter().any(|range| !overlap(range, &frames).is_empty());
            if is_usable && !self.in_use.iter().any(|range| touches(range, section)) {
                self.add(section);
                return true;
            }
        }
        false
    }

    /// Clears a section's records and gives its usable frames to the allocator.
    fn add(&mut self, section: u32) {
        let frames = frames(section);
        self.buddy.table.clear(frames.start..frames.end.min(self.end));
        for range in &self.usable {
            let part = overlap(range, &frames);
            if !part.is_empty() {
                self.waiting -= part.len() as u32;
                self.buddy.free_range(part.start, part.len() as u32);
            }
        }
    }
}

/// The frames of a section.
fn frames(section: u32) -> Range<u32> {
    section * SECTION..section.saturating_add(1).saturating_mul(SECTION)
}

/// Whether any of the frames is in the section.
fn touches(range: &Range<u32>, section: u32) -> bool {
    !overlap(range, &frames(section)).is_empty()
}
