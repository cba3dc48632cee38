//! Things that are found by a number, without a lock: a table that only grows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use machine::sync::Once;

/// Things that are made at a time.
const CHUNK: u32 = 64;

/// A table of up to `CHUNKS` times 64 things.
pub struct Numbered<T, const CHUNKS: usize> {
    chunks: [Once<Box<[T]>>; CHUNKS],
}

impl<T, const CHUNKS: usize> Numbered<T, CHUNKS> {
    /// One past the largest number.
    pub const END: u32 = CHUNKS as u32 * CHUNK;

    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made in constants, where no Default is")]
    pub const fn new() -> Self {
        Numbered { chunks: [const { Once::new() }; CHUNKS] }
    }

    /// The thing with a number, if it was made.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.chunks.get((number / CHUNK) as usize)?.get()?.get((number % CHUNK) as usize)
    }

    /// The same; it is made by `fresh`, with those around it, if it was not. The caller holds a lock
    /// against others that make.
    ///
    /// # Errors
    /// `ENOMEM`, also if there are no such numbers.
    pub fn make(&self, number: u32, fresh: impl Fn() -> T) -> Result<&T> {
        let chunk = self.chunks.get((number / CHUNK) as usize).ok_or(Errno::ENOMEM)?;
        if chunk.get().is_none() {
            let mut things = Vec::new();
            // By itself: what `growth` does for want of memory may ask for an account in such a
            // table.
            things.try_reserve_exact(CHUNK as usize).map_err(|_| Errno::ENOMEM)?;
            things.extend((0..CHUNK).map(|_| fresh()));
            chunk.call_once(|| things.into_boxed_slice());
        }
        self.get(number).ok_or(Errno::ENOMEM)
    }
}
