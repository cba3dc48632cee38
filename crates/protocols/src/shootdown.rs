//! TLB shootdown: determines when every processor has flushed a stale translation.
//!
//! Each processor has one [`FlushRequest`], which only that processor fills, and one [`Inbox`],
//! with a bit for each processor whose request it has to answer. The initiator changes the page
//! table, fills its request, sets its bit in the inbox of every target, interrupts the targets, and
//! waits until the request is [answered](FlushRequest::is_answered). It answers its own inbox
//! meanwhile, so two processors that wait for each other both make progress. A target flushes
//! first, and then answers.

use crate::atomic::{AtomicU64, const_new};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// One processor's request to others.
#[derive(Debug)]
pub struct FlushRequest {
    start: AtomicU64,
    end: AtomicU64,
    /// The processors that have not answered.
    waiting: AtomicU64,
}

impl Default for FlushRequest {
    fn default() -> FlushRequest {
        FlushRequest::new()
    }
}

impl FlushRequest {
    const_new! {
        /// Returns a request that is answered.
        pub fn new() -> FlushRequest {
            FlushRequest {
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
                waiting: AtomicU64::new(0),
            }
        }
    }

    /// Fills the request, for the processors in the mask `targets`. Called by its owner, after all
    /// processors have answered the previous request.
    #[inline]
    pub fn fill(&self, start: u64, end: u64, targets: u64) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
        self.waiting.store(targets, SeqCst);
    }

    /// Returns the range to be flushed.
    #[inline]
    pub fn range(&self) -> (u64, u64) {
        (self.start.load(Relaxed), self.end.load(Relaxed))
    }

    /// Records that the processors in the mask `who` have flushed.
    #[inline]
    pub fn answer(&self, who: u64) {
        self.waiting.fetch_and(!who, SeqCst);
    }

    /// Whether all processors have answered; their earlier actions are then visible.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.waiting.load(Acquire) == 0
    }
}

/// The processors whose requests a processor has to answer.
#[derive(Debug)]
pub struct Inbox(AtomicU64);

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

impl Inbox {
    const_new! {
        /// Returns an empty inbox.
        pub fn new() -> Inbox { Inbox(AtomicU64::new(0)) }
    }

    /// Adds the processors in a mask; their requests must be filled.
    #[inline]
    pub fn put(&self, who: u64) {
        self.0.fetch_or(who, SeqCst);
    }

    /// Whether the inbox is empty; a processor that is just adding itself may be missed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Takes all processors out, as a mask. The caller flushes for each and answers.
    #[inline]
    pub fn take(&self) -> u64 {
        self.0.swap(0, SeqCst)
    }
}
