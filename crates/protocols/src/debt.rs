//! Deferred frees: how much waits to be given back.
//!
//! A process that ends puts its page tables on a list instead of giving them back, and counts them
//! here *before* ([`reserve`](Debt::reserve)). A payer takes something off the list, gives it back,
//! and counts it off *afterwards* ([`paid`](Debt::paid)). So the count is never less than what will
//! be free, and an allocator that finds it at zero after it found nothing free may refuse.

use crate::atomic::{AtomicUsize, const_new};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What is owed, in frames.
#[derive(Debug)]
pub struct Debt(AtomicUsize);

impl Default for Debt {
    fn default() -> Debt {
        Debt::new()
    }
}

impl Debt {
    const_new! {
        /// Nothing is owed.
        pub fn new() -> Debt { Debt(AtomicUsize::new(0)) }
    }

    /// How much is owed at most. What was paid before a value that this returns is free.
    #[inline]
    pub fn owed(&self) -> usize {
        self.0.load(Acquire)
    }

    /// Adds `size` if the debt stays within `bound`. The caller then puts that much on the list.
    #[inline]
    pub fn reserve(&self, size: usize, bound: usize) -> bool {
        let fits = self.0.fetch_add(size, Relaxed).saturating_add(size) <= bound;
        if !fits {
            self.0.fetch_sub(size, Relaxed);
        }
        fits
    }

    /// `size` was given back.
    #[inline]
    pub fn paid(&self, size: usize) {
        self.0.fetch_sub(size, Release);
    }

    /// Pays a part, or waits until others have paid the last of it. False: nothing was owed.
    ///
    /// * `pay` - gives back a part and counts it; `None` if the list is empty.
    /// * `relax` - one round of waiting for other processors.
    pub fn pay(&self, mut pay: impl FnMut() -> Option<usize>, mut relax: impl FnMut()) -> bool {
        if self.owed() == 0 {
            return false;
        }
        while pay().is_none() && self.owed() != 0 {
            relax();
        }
        true
    }
}
