//! A counted reference to a frame.

use super::allocator::{self, Need};
use super::info::{FrameInfo, Given, info};
use super::owner;
use crate::layout::PAGE_SHIFT;
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;

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
        allocator::take(Need::Program).map(Self::adopt)
    }

    /// Takes a frame full of zeroes: one that was zeroed ahead, or one that is zeroed now.
    #[inline]
    pub fn allocate_zeroed() -> Option<Frame> {
        if let Some(number) = allocator::take_zeroed() {
            return Some(Self::adopt(number));
        }
        let frame = Self::allocate()?;
        frame.zero();
        Some(frame)
    }

    /// Makes the first reference to a frame that the allocator gave out.
    #[inline]
    pub(super) fn adopt(number: u32) -> Frame {
        debug_assert!(number != 0);
        let frame = Frame(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
        debug_assert!(frame.info().tag() == 0, "frame {number:#x} has a tag");
        frame.info().set_refs(1);
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
        self.info().refs()
    }

    /// Whether this is the only reference. If so, no other reference can appear.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.references() == 1
    }

    /// Notes that the frame is charged to `owner`, which is not 0, until its last reference is
    /// dropped ([`owner`]). Returns false, and notes nothing, if somebody else refers to the frame
    /// or it is charged already. It is exclusive, so that nobody makes another reference meanwhile.
    pub fn belong(&mut self, owner: u32) -> bool {
        let is_free = self.info().is_plain();
        if is_free {
            self.info().charge_to(owner);
        }
        is_free
    }

    /// Returns whom the frame is charged to; 0: nobody.
    #[inline]
    pub fn owner(&self) -> u32 {
        if self.info().is_charged() { self.info().tag() } else { 0 }
    }

    /// Gives the reference up without counting it down: a page-table entry holds it from now on.
    #[inline]
    pub(crate) fn into_number(self) -> u32 {
        ManuallyDrop::new(self).0.get()
    }

    /// Gives the reference up. If it was the last one, returns the frame's number, which only the
    /// caller knows now: the caller must give the frame back, for instance with
    /// [`give_run`](super::give_run).
    #[inline]
    pub(crate) fn count_down(self) -> Option<u32> {
        let last = match self.info().give_up() {
            Given::Shared => false,
            Given::Last => true,
            Given::Charged => owner::release(self.info()),
        };
        let number = self.into_number();
        last.then_some(number)
    }

    /// Takes over the reference that a page-table entry held.
    ///
    /// # Safety
    /// The entry must have come from [`into_number`](Self::into_number) and be gone.
    #[inline]
    pub(crate) unsafe fn from_number(number: u32) -> Frame {
        debug_assert!(number != 0);
        // SAFETY: the number is that of a frame that `into_number` consumed.
        Frame(unsafe { NonZeroU32::new_unchecked(number) })
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
        /// Only a leak of references can reach this bit, and the count must not wrap around.
        const MOST: u32 = 1 << 30;
        if self.info().add_ref() & MOST != 0 {
            too_many_references();
        }
        Frame(self.0)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // One call at each end, and none that returns: a function that drops frames needs no stack
        // for it.
        match self.info().give_up() {
            Given::Shared => {}
            Given::Last => allocator::give(self.number()),
            Given::Charged => owner::give(self.number()),
        }
    }
}

#[cold]
#[inline(never)]
fn too_many_references() -> ! {
    panic!("a frame has more references than can be counted")
}
