//! Deferred frees: the number of frames that wait to be freed.
//!
//! A process that ends puts its page tables on a list instead of freeing them, and adds them to
//! this count *before* that ([`reserve`](Deferred::reserve)). A processor that frees them takes an
//! item off the list, frees it, and subtracts it *afterwards* ([`freed`](Deferred::freed)). So the
//! count is never less than the number of frames that will become free, and an allocator that finds
//! the count at zero after it found nothing free may refuse.

use crate::atomic::{AtomicUsize, const_new};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of deferred frees, in frames.
#[derive(Debug)]
pub struct Deferred(AtomicUsize);

impl Default for Deferred {
    fn default() -> Deferred {
        Deferred::new()
    }
}

impl Deferred {
    const_new! {
        /// Returns a count of zero.
        pub fn new() -> Deferred { Deferred(AtomicUsize::new(0)) }
    }

    /// Returns an upper bound of the deferred frees. Frames that were subtracted before the
    /// returned value was read are free.
    #[inline]
    pub fn pending(&self) -> usize {
        self.0.load(Acquire)
    }

    /// Adds `size` if the count stays within `bound`. The caller then puts that much on the list.
    #[inline]
    pub fn reserve(&self, size: usize, bound: usize) -> bool {
        let fits = self.0.fetch_add(size, Relaxed).saturating_add(size) <= bound;
        if !fits {
            self.0.fetch_sub(size, Relaxed);
        }
        fits
    }

    /// Subtracts `size`, which was freed.
    #[inline]
    pub fn freed(&self, size: usize) {
        self.0.fetch_sub(size, Release);
    }

    /// Frees a part, or waits until other processors have freed the last part. False: the count was
    /// zero.
    ///
    /// * `free` - frees a part and subtracts it; `None` if the list is empty.
    /// * `relax` - one round of waiting for other processors.
    pub fn free_some(
        &self,
        mut free: impl FnMut() -> Option<usize>,
        mut relax: impl FnMut(),
    ) -> bool {
        if self.pending() == 0 {
            return false;
        }
        while free().is_none() && self.pending() != 0 {
            relax();
        }
        true
    }
}
