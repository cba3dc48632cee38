//! A counted reference to contiguous frames: large buffers that are shared, such as the payload of
//! packets.
//!
//! The first frame's count is that of all of them; the others have none. So a second reference
//! costs as much as one to a [`Frame`], whatever the size. A run of one frame is that frame.
//!
//! Runs of [`RUN`] frames come from a cache of each processor, which takes the allocator's lock
//! once for several of them. They are a convenience: a caller to whom [`Run::allocate`] gives
//! nothing, because memory is scarce or scattered, takes single frames.

use super::allocator;
use super::bytes::{bytes, copy, sum};
use super::frame::Frame;
use crate::layout::{FRAME_NUMBERS, PAGE_SHIFT, PAGE_SIZE};
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;

pub use super::per_cpu_cache::RUN;

/// The bit of a run of [`RUN`] frames; without it the run is one frame. A reference has the size of
/// a frame's, for they are moved often.
const LONG: u32 = FRAME_NUMBERS;

/// A counted reference to contiguous frames.
#[derive(Debug, PartialEq, Eq)]
pub struct Run(NonZeroU32);

impl Run {
    /// Takes [`RUN`] contiguous frames with undefined content, if that takes no effort. `None`:
    /// take single frames.
    ///
    /// The old content may be another program's: overwrite every byte before a program sees it.
    pub fn allocate() -> Option<Run> {
        let first = Frame::adopt(allocator::take_run()?).into_number();
        NonZeroU32::new(first | LONG).map(Run)
    }

    #[inline]
    fn first(&self) -> u32 {
        self.0.get() & !LONG
    }

    /// The first frame, whose count is the run's.
    #[inline]
    fn head(&self) -> ManuallyDrop<Frame> {
        // SAFETY: this run holds a reference to its first frame; it is not dropped here.
        ManuallyDrop::new(unsafe { Frame::from_number(self.first()) })
    }

    /// Returns its size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        if self.0.get() & LONG == 0 { PAGE_SIZE } else { RUN as usize * PAGE_SIZE }
    }

    /// Returns the physical address of the first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        u64::from(self.first()) << PAGE_SHIFT
    }

    /// Copies bytes out, from `offset`. Returns the number of bytes, which is less than `to.len()`
    /// only at the end.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> usize {
        let offset = offset.min(self.size());
        let len = to.len().min(self.size() - offset);
        copy(to.as_mut_ptr(), self.pointer().wrapping_add(offset), len);
        len
    }

    /// Appends `count` bytes from `offset` to a list, which has room for them. Returns whether the
    /// list has the room, and the run the bytes.
    #[must_use]
    pub fn append_to(&self, list: &mut Vec<u8>, offset: usize, count: usize) -> bool {
        let is_inside = offset <= self.size() && count <= self.size() - offset;
        let room = list.spare_capacity_mut();
        if !is_inside || room.len() < count {
            return false;
        }
        copy(room.as_mut_ptr().cast(), self.pointer().wrapping_add(offset), count);
        // SAFETY: so many bytes of the list's room were written.
        unsafe { list.set_len(list.len() + count) };
        true
    }

    /// Returns the sum of `count` bytes from `offset`, as many of them as there are, as
    /// little-endian words of 64 bits with the carries added below (RFC 1071).
    pub fn sum(&self, offset: usize, count: usize) -> u64 {
        let offset = offset.min(self.size());
        sum(self.pointer().wrapping_add(offset), count.min(self.size() - offset))
    }

    /// Copies bytes in, to `offset`. Returns the number of bytes, which is less than `from.len()`
    /// only at the end.
    pub fn write(&self, offset: usize, from: &[u8]) -> usize {
        let offset = offset.min(self.size());
        let len = from.len().min(self.size() - offset);
        copy(self.pointer().wrapping_add(offset), from.as_ptr(), len);
        len
    }

    /// The first byte in the direct map, where the run is contiguous too.
    #[inline]
    pub(crate) fn pointer(&self) -> *mut u8 {
        bytes(self.first())
    }
}

impl From<Frame> for Run {
    #[inline]
    fn from(frame: Frame) -> Run {
        debug_assert!(frame.number() < FRAME_NUMBERS);
        // No frame has the number 0.
        Run(NonZeroU32::new(frame.into_number()).unwrap_or(NonZeroU32::MIN))
    }
}

impl Clone for Run {
    #[inline]
    fn clone(&self) -> Run {
        // The reference is this new run's.
        let _ = ManuallyDrop::new(Frame::clone(&self.head()));
        Run(self.0)
    }
}

impl Drop for Run {
    #[inline]
    fn drop(&mut self) {
        let head = ManuallyDrop::into_inner(self.head());
        if self.0.get() & LONG == 0 {
            return drop(head);
        }
        if let Some(first) = head.count_down() {
            allocator::give_run_of(first);
        }
    }
}
