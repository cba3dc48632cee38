//! TLB shootdown: when every processor has dropped a stale translation.
//!
//! Each processor has one [`Request`], which only it fills, and one [`Inbox`], a bit for each
//! processor whose request it has to answer. The initiator changes the page table, fills its
//! request, sets its bit in the inbox of every target, interrupts the targets, and waits until the
//! request is
//! [answered](Request::is_answered). It answers its own inbox meanwhile, so two that wait for each
//! other both go on. A target flushes, and only then answers.

use crate::atomic::{AtomicU64, const_new};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// What one processor wants of others.
#[derive(Debug)]
pub struct Request {
    start: AtomicU64,
    end: AtomicU64,
    /// The processors that have not answered.
    waiting: AtomicU64,
}

impl Default for Request {
    fn default() -> Request {
        Request::new()
    }
}

impl Request {
    const_new! {
        /// Nothing is wanted.
        pub fn new() -> Request {
            Request {
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
                waiting: AtomicU64::new(0),
            }
        }
    }

    /// Fills it, for the processors in the mask `targets`. For its owner, when all have answered
    /// the one before.
    #[inline]
    pub fn fill(&self, start: u64, end: u64, targets: u64) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
        self.waiting.store(targets, SeqCst);
    }

    /// What is to be flushed, as it was filled in.
    #[inline]
    pub fn range(&self) -> (u64, u64) {
        (self.start.load(Relaxed), self.end.load(Relaxed))
    }

    /// The processors in the mask `who` have flushed.
    #[inline]
    pub fn answer(&self, who: u64) {
        self.waiting.fetch_and(!who, SeqCst);
    }

    /// Whether all have answered; what they did before that has happened.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.waiting.load(Acquire) == 0
    }
}

/// Whose requests a processor has to answer.
#[derive(Debug)]
pub struct Inbox(AtomicU64);

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

impl Inbox {
    const_new! {
        /// Nobody's.
        pub fn new() -> Inbox { Inbox(AtomicU64::new(0)) }
    }

    /// Adds the processors in a mask, whose requests are filled.
    #[inline]
    pub fn put(&self, who: u64) {
        self.0.fetch_or(who, SeqCst);
    }

    /// Whether nobody waits; one that has just put itself there may be missed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Takes all, as a mask. The caller flushes for each and answers.
    #[inline]
    pub fn take(&self) -> u64 {
        self.0.swap(0, SeqCst)
    }
}
