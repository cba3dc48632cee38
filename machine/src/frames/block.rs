//! Contiguous frames.

use super::allocator;
use super::bytes::{direct, zero};
use super::frame::Frame;
use crate::layout::{PAGE_SHIFT, PAGE_SIZE};
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;
use core::ops::Range;

/// A block of contiguous frames: memory for a device, a stack, a large heap object.
#[derive(Debug)]
pub struct Block {
    first: NonZeroU32,
    count: u32,
}

impl Block {
    /// Takes `count` contiguous frames, aligned to the next power of two, content undefined.
    /// `None`: there are no such frames, or memory is exhausted down to the kernel's reserve.
    pub fn allocate(count: u32) -> Option<Block> {
        let first = NonZeroU32::new(allocator::take_range(count)?)?;
        Some(Block { first, count })
    }

    /// Like [`allocate`](Self::allocate), but may use the kernel's reserve.
    pub fn allocate_kernel(count: u32) -> Option<Block> {
        let first = NonZeroU32::new(allocator::take_kernel_range(count)?)?;
        Some(Block { first, count })
    }

    /// Returns the physical address of the first byte.
    pub fn address(&self) -> u64 {
        u64::from(self.first.get()) << PAGE_SHIFT
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.count as usize * PAGE_SIZE
    }

    /// Returns the numbers of the block's frames.
    pub fn frames(&self) -> Range<u32> {
        self.first.get()..self.first.get() + self.count
    }

    /// Returns the address of the first byte in the direct map. The caller must justify each access
    /// through it (unsafe).
    pub(crate) fn pointer(&self) -> *mut u8 {
        direct(self.address())
    }

    /// Fills it with zeroes.
    pub fn zero(&self) {
        for frame in self.frames() {
            zero(frame);
        }
    }

    /// Breaks the block up into single frames: calls `take` with each in order, with one reference.
    pub(crate) fn into_frames(self, mut take: impl FnMut(Frame)) {
        for number in ManuallyDrop::new(self).frames() {
            take(Frame::adopt(number));
        }
    }

    /// Gives the block to the caller for ever (or until [`from_raw`](Self::from_raw)).
    pub(crate) fn into_raw(self) -> (u32, u32) {
        let block = ManuallyDrop::new(self);
        (block.first.get(), block.count)
    }

    /// Takes back a block that [`into_raw`](Self::into_raw) gave; `None` for frame 0.
    ///
    /// # Safety
    /// The numbers must be those of a block given away and not taken back, and the block must be
    /// unused.
    pub(crate) unsafe fn from_raw(first: u32, count: u32) -> Option<Block> {
        Some(Block { first: NonZeroU32::new(first)?, count })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        allocator::give_range(self.first.get(), self.count);
    }
}
