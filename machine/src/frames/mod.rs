//! Physical frames: the frame table, counted references, the allocator.
//!
//! Every 4 KiB frame of memory has a [`FrameInfo`] in one table in the direct map. A [`Frame`] is
//! a counted reference: cloning adds one, dropping takes one away, and the last one gives the
//! frame back. The content of a frame is reached only through methods that copy, because a
//! program may be writing to the same frame on another processor; no Rust reference to it exists.
//!
//! Allocation: one stack of free frames per processor ([`hayate_frames::Stack`]) before one buddy
//! allocator behind a spin lock, entered once in 64 allocations. Besides it each processor has a
//! stack of frames that were zeroed while it had nothing else to do ([`prepare`]).
//!
//! Watermark: the last [`reserve`](counts) frames are for the kernel itself. What a program asks
//! for ([`Frame::allocate`], [`Block::allocate`]) is refused below it; small kernel objects
//! ([`allocate_kernel`]) may use it up. So a program that eats all memory meets an error at a place
//! that can tell it so, and not in the middle of an operation that cannot.
//!
//! Lock order: the buddy's lock is a leaf. A processor's own stacks are touched only by that
//! processor with interrupts off and need no lock.
//!
//! Road not taken: compound pages with one count for a large block. The entries that map a large page
//! hold one reference to each of its 512 frames instead (`paging/large.rs`): it can then be split and
//! partly freed without ever asking who the head is.

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
    /// Takes a free frame with undefined content. `None`: memory has run out down to the kernel's
    /// reserve; reclaim and try again, or answer `ENOMEM`.
    ///
    /// The old content may be another program's: overwrite all of it before a program sees it.
    #[inline]
    pub fn allocate() -> Option<Frame> {
        stock::take(stock::Need::Program).map(Self::adopt)
    }

    /// Takes a frame full of zeroes: from the stock zeroed ahead, or zeroed now.
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
        // SAFETY: the number came from the allocator, or of an entry or area by `from_number`.
        unsafe { info(self.number()) }
    }

    /// The frame's number: its physical address / 4096.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.get()
    }

    /// The frame's physical address.
    #[inline]
    pub fn address(&self) -> u64 {
        u64::from(self.0.get()) << PAGE_SHIFT
    }

    /// How many references there are, this one included. Others may come and go meanwhile unless
    /// the answer is 1.
    #[inline]
    pub fn references(&self) -> u32 {
        self.info().refs.load(Acquire)
    }

    /// Whether this is the only reference. Then nobody else can make one.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.references() == 1
    }

    /// Gives the reference up without counting it down: a page-table entry holds it from now on.
    #[inline]
    pub(crate) fn into_number(self) -> u32 {
        ManuallyDrop::new(self).0.get()
    }

    /// Gives the reference up; the frame's number if it was the last one, which nobody but the
    /// caller knows of any more: it must be given back with [`give_run`].
    #[inline]
    pub(crate) fn into_last(self) -> Option<u32> {
        let info = self.info();
        if info.refs.load(Acquire) != 1 {
            // Counted down by the drop, which also sees to it if the others leave meanwhile.
            return None;
        }
        info.refs.store(0, Relaxed);
        Some(self.into_number())
    }

    /// The reference that a page-table entry held.
    ///
    /// # Safety
    /// The entry must have come from [`into_number`](Self::into_number) and be gone.
    #[inline]
    pub(crate) unsafe fn from_number(number: u32) -> Frame {
        debug_assert!(number != 0);
        Frame(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }

    /// A further reference to the frame of a live page-table entry.
    ///
    /// # Safety
    /// Somebody must hold a reference to the frame during the call.
    #[inline]
    pub(crate) unsafe fn another(number: u32) -> Frame {
        // SAFETY: a frame that somebody holds; this is not dropped, so the reference stays theirs.
        let held = ManuallyDrop::new(unsafe { Self::from_number(number) });
        Frame::clone(&held)
    }
}

impl Clone for Frame {
    #[inline]
    fn clone(&self) -> Frame {
        /// So many references cannot come to be but by somebody who forgets them, and the count
        /// must not begin anew.
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
        // The only holder needs no locked instruction: nobody else can be counting.
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

/// A row of frames that belong together: memory for a device, a stack, a large heap object.
#[derive(Debug)]
pub struct Block {
    first: NonZeroU32,
    count: u32,
}

impl Block {
    /// Takes `count` frames in a row, aligned to the next power of two, content undefined. `None`
    /// when there is no such row or memory has run out down to the kernel's reserve.
    pub fn allocate(count: u32) -> Option<Block> {
        let first = NonZeroU32::new(stock::take_range(count)?)?;
        Some(Block { first, count })
    }

    /// The physical address of the first byte.
    pub fn address(&self) -> u64 {
        u64::from(self.first.get()) << PAGE_SHIFT
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.count as usize * PAGE_SIZE
    }

    /// The numbers of its frames.
    pub fn frames(&self) -> Range<u32> {
        self.first.get()..self.first.get() + self.count
    }

    /// The address of the first byte in the direct map. Reading and writing through it is the
    /// caller's unsafe business.
    pub(crate) fn pointer(&self) -> *mut u8 {
        direct(self.address())
    }

    /// Fills it with zeroes.
    pub fn zero(&self) {
        for frame in self.frames() {
            content::zero(frame);
        }
    }

    /// Breaks it up into single frames: `take` gets each, in order, with one reference.
    pub(crate) fn into_frames(self, mut take: impl FnMut(Frame)) {
        for number in ManuallyDrop::new(self).frames() {
            take(Frame::adopt(number));
        }
    }

    /// Leaves it to the caller for ever (or until [`from_raw`](Self::from_raw)).
    pub(crate) fn into_raw(self) -> (u32, u32) {
        let block = ManuallyDrop::new(self);
        (block.first.get(), block.count)
    }

    /// Takes back what [`into_raw`](Self::into_raw) gave; `None` for frame 0.
    ///
    /// # Safety
    /// The numbers must be those of a block given away and not taken back, which nobody uses.
    pub(crate) unsafe fn from_raw(first: u32, count: u32) -> Option<Block> {
        Some(Block { first: NonZeroU32::new(first)?, count })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        stock::give_range(self.first.get(), self.count);
    }
}
