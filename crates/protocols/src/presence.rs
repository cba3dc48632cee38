//! Whether a queue has anybody in it, told without its lock.
//!
//! A sleeper [enters](Presence::enter) and looks at its condition afterwards; a waker makes the
//! condition true and asks [`is_any`](Presence::is_any) afterwards. Both have a full barrier
//! between their two steps, so at least one of them sees what the other did (the pattern that is
//! called store buffering).

use crate::atomic::{AtomicUsize, after_locked, const_new, fence};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A count of those who are there.
#[derive(Debug)]
pub struct Presence(AtomicUsize);

impl Default for Presence {
    fn default() -> Presence {
        Presence::new()
    }
}

impl Presence {
    const_new! {
        /// Nobody is there.
        pub fn new() -> Presence { Presence(AtomicUsize::new(0)) }
    }

    /// One more is there; a full barrier follows.
    #[inline]
    pub fn enter(&self) {
        self.0.fetch_add(1, SeqCst);
        after_locked();
    }

    /// One fewer is there.
    #[inline]
    pub fn leave(&self) {
        self.0.fetch_sub(1, SeqCst);
    }

    /// Whether anybody is there; a full barrier comes before.
    #[inline]
    pub fn is_any(&self) -> bool {
        fence(SeqCst);
        self.0.load(Relaxed) != 0
    }
}
