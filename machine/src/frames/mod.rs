//! Physical frames: the frame table, counted references, the allocator.
//!
//! Every 4 KiB frame of memory has a [`FrameInfo`] in one table in the direct map. A [`Frame`] is a
//! counted reference: cloning adds one, dropping takes one away, and dropping the last one frees
//! the frame. The content of a frame is accessed only through methods that copy, because a program
//! may be writing to the same frame on another processor; no Rust reference to it exists.
//!
//! Allocation: each processor has a stack of free frames ([`hayate_frames::Stack`]) in front of one
//! buddy allocator behind a spin lock, which is taken once in 64 allocations. In addition each
//! processor has a stack of frames that were zeroed while it was idle ([`prepare`]).
//!
//! Watermark: the last [`reserve`](counts) frames are for the kernel itself. Requests for a program
//! ([`Frame::allocate`], [`Block::allocate`]) are refused below it; small kernel objects
//! ([`allocate_kernel`]) may use it up. So a program that uses all memory meets an error where the
//! kernel can report it to the program, and not in the middle of an operation that cannot.
//!
//! Lock order: the buddy's lock is a leaf. A processor's own stacks are touched only by that
//! processor with interrupts off and need no lock.
//!
//! Road not taken: compound pages with one count for a large block. The entries that map a large
//! page hold one reference to each of its 512 frames instead (`paging/large.rs`): it can then be
//! split and partly freed without finding a head frame.

mod content;
mod info;
mod stock;

use crate::layout::{PAGE_SHIFT, PAGE_SIZE};
pub(crate) use content::{copy_numbered, zero as zero_numbered};
pub(crate) use content::{direct, physical};
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
pub(crate) use info::{FrameInfo, extend, info};
pub use stock::{Counts, counts, is_low, is_plentiful, is_scarce, prepare, total};
pub(crate) use stock::{adopt, allocate_kernel, give_run, give_zeroed, init};

/// A counted reference to one 4 KiB frame of physical memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame(NonZeroU32);

impl Frame {
    /// Takes a free frame with undefined content. `None`: memory is exhausted down to the kernel's
    /// reserve; reclaim and try again, or fail with `ENOMEM`.
    ///
    /// The old content may be another program's: overwrite all of it before a program sees it.
    #[inline]
    pub fn allocate() -> Option<Frame> {
        stock::take(stock::Need::Program).map(Self::adopt)
    }

    /// Takes a frame full of zeroes: one that was zeroed ahead, or one that is zeroed now.
    #[inline]
    pub fn allocate_zeroed() -> Option<Frame> {
        if let Some(number) = stock::take_zeroed() {
            return Some(Self::adopt(number));
        }
        let frame = Self::allocate()?;
        frame.zero();
        Some(frame)
    }

    /// Makes the first reference to a frame that the allocator gave out.
    #[inline]
    fn adopt(number: u32) -> Frame {
        debug_assert!(number != 0);
        let frame = Frame(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
        frame.info().refs.store(1, Relaxed);
        frame
    }

    #[inline]
    fn info(&self) -> &'static FrameInfo {
        // SAFETY: the number came from the allocator, or from an entry or area by `from_number`.
        unsafe { info(self.number()) }
    }

    /// Returns the frame's number: its physical address / 4096.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.get()
    }

    /// Returns the frame's physical address.
    #[inline]
    pub fn address(&self) -> u64 {
        u64::from(self.0.get()) << PAGE_SHIFT
    }

    /// Returns the number of references, this one included. Other references may be added and
    /// dropped meanwhile, unless the result is 1.
    #[inline]
    pub fn references(&self) -> u32 {
        self.info().refs.load(Acquire)
    }

    /// Whether this is the only reference. If so, no other reference can appear.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.references() == 1
    }

    /// Gives the reference up without counting it down: a page-table entry holds it from now on.
    #[inline]
    pub(crate) fn into_number(self) -> u32 {
        ManuallyDrop::new(self).0.get()
    }

    /// Gives the reference up. If it was the last one, returns the frame's number, which only the
    /// caller knows now: the caller must give the frame back with [`give_run`].
    #[inline]
    pub(crate) fn into_last(self) -> Option<u32> {
        let info = self.info();
        if info.refs.load(Acquire) != 1 {
            // The drop counts down, and frees the frame if the other references were dropped
            // meanwhile.
            return None;
        }
        info.refs.store(0, Relaxed);
        Some(self.into_number())
    }

    /// Takes over the reference that a page-table entry held.
    ///
    /// # Safety
    /// The entry must have come from [`into_number`](Self::into_number) and be gone.
    #[inline]
    pub(crate) unsafe fn from_number(number: u32) -> Frame {
        debug_assert!(number != 0);
        Frame(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }

    /// Makes a further reference to the frame of a live page-table entry.
    ///
    /// # Safety
    /// A reference to the frame must exist during the whole call.
    #[inline]
    pub(crate) unsafe fn another(number: u32) -> Frame {
        // SAFETY: a reference to the frame exists; `held` is not dropped, so that reference stays
        // counted.
        let held = ManuallyDrop::new(unsafe { Self::from_number(number) });
        Frame::clone(&held)
    }
}

impl Clone for Frame {
    #[inline]
    fn clone(&self) -> Frame {
        /// Only a leak of references can reach this number, and the count must not wrap around.
        const MOST: u32 = u32::MAX / 2;
        if self.info().refs.fetch_add(1, Relaxed) > MOST {
            too_many_references();
        }
        Frame(self.0)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        let info = self.info();
        // The only holder needs no locked instruction: no other processor can be counting.
        if info.refs.load(Acquire) == 1 {
            info.refs.store(0, Relaxed);
        } else if info.refs.fetch_sub(1, Release) != 1 {
            return;
        } else {
            core::sync::atomic::fence(Acquire);
        }
        stock::give(self.number());
    }
}

#[cold]
#[inline(never)]
fn too_many_references() -> ! {
    panic!("a frame has more references than can be counted")
}

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
        let first = NonZeroU32::new(stock::take_range(count)?)?;
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
            content::zero(frame);
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
        stock::give_range(self.first.get(), self.count);
    }
}
