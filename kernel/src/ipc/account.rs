//! What all objects of a kind may have together, and the memory of the kernel that semaphores and
//! messages of System V and POSIX take: an eighth of all memory at most.
//!
//! These objects stay when their processes have ended, and Linux' limits of their numbers allow
//! more than a machine has (32,000 sets of 32,000 semaphores). Beyond the eighth a call fails with
//! `ENOMEM`.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames;

use crate::namespace::Handle;

/// A sum with a bound, which the callers know.
#[derive(Default)]
pub struct Total(AtomicUsize);

impl Total {
    /// Nothing.
    pub const fn new() -> Total {
        Total(AtomicUsize::new(0))
    }

    /// Returns the sum.
    pub fn sum(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds an amount, if the sum is then no more than `most`; returns whether it was added.
    pub fn add(&self, amount: usize, most: usize) -> bool {
        let next = |sum: usize| sum.checked_add(amount).filter(|&sum| sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Subtracts what was added.
    pub fn subtract(&self, amount: usize) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Adds an amount that no bound is for.
    pub fn raise(&self, amount: usize) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}

impl Handle<Total> {
    /// A sum of a namespace of its own: nothing.
    pub fn another() -> Handle<Total> {
        Handle::Other(Arc::new(Total::new()))
    }

    /// Adds an amount as [`Total::add`] does, for as long as the result lives.
    pub fn share(&self, amount: usize, most: usize) -> Option<Share> {
        // Not made before it is added: its end subtracts.
        self.add(amount, most).then(|| Share { total: self.clone(), amount })
    }
}

/// An amount that counts in a [`Total`] as long as this lives.
pub struct Share {
    total: Handle<Total>,
    amount: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.subtract(self.amount);
    }
}

/// The bytes of semaphores and messages.
static BYTES: Total = Total::new();

/// Counts so many bytes of semaphores or messages, and something for the administration of each
/// object. `ENOMEM`.
pub fn charge(bytes: usize) -> Result<Share> {
    const OBJECT: usize = 256;
    let most = frames::total() / 8 * 4096;
    let bytes = bytes.checked_add(OBJECT).ok_or(Errno::ENOMEM)?;
    Handle::First(&BYTES).share(bytes, most).ok_or(Errno::ENOMEM)
}
