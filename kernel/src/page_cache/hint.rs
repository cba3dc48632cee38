//! The expected lifetime of data that is written to a file (`F_SET_RW_HINT`, fcntl(2)), as it is
//! kept. [`crate::vfs::hint`] says which object of a file keeps it.

use core::sync::atomic::{AtomicU8, Ordering};

/// A hint; 0 means none was given.
#[derive(Default)]
pub struct LifetimeHint(AtomicU8);

impl LifetimeHint {
    /// Makes an empty hint.
    pub const fn new() -> LifetimeHint {
        LifetimeHint(AtomicU8::new(0))
    }

    /// Returns the hint.
    pub fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the hint.
    pub fn set(&self, hint: u8) {
        self.0.store(hint, Ordering::Relaxed);
    }
}
