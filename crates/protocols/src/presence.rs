//! Tells whether a queue has a sleeper in it, without its lock.
//!
//! A sleeper [enters](Presence::enter) and checks its condition afterwards; a waker makes the
//! condition true and calls [`is_any`](Presence::is_any) afterwards. Both have a full barrier
//! between their two steps, so at least one of them sees the other's step (the pattern that is
//! called store buffering).

use crate::atomic::{AtomicUsize, after_locked, const_new, fence};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The number of sleepers.
#[derive(Debug)]
pub struct Presence(AtomicUsize);

impl Default for Presence {
    fn default() -> Presence {
        Presence::new()
    }
}

impl Presence {
    const_new! {
        /// Returns a count of zero.
        pub fn new() -> Presence { Presence(AtomicUsize::new(0)) }
    }

    /// Adds one sleeper, followed by a full barrier.
    #[inline]
    pub fn enter(&self) {
        self.0.fetch_add(1, SeqCst);
        after_locked();
    }

    /// Removes one sleeper.
    #[inline]
    pub fn leave(&self) {
        self.0.fetch_sub(1, SeqCst);
    }

    /// Whether there is a sleeper; a full barrier comes before.
    #[inline]
    pub fn is_any(&self) -> bool {
        fence(SeqCst);
        self.0.load(Relaxed) != 0
    }
}
