//! How much one processor has in stock, told to others.
//!
//! A processor's stock of frames has one owner, which takes no lock. Others only want to know how
//! many frames it holds. So the number is a word of its own: the owner stores it plainly (two plain
//! instructions, no locked one), and others load it.

use crate::atomic::{AtomicU32, const_new};
use core::sync::atomic::Ordering::Relaxed;

/// The number of things in a stock that one processor owns.
#[derive(Debug)]
pub struct Level(AtomicU32);

impl Default for Level {
    fn default() -> Level {
        Level::new()
    }
}

impl Level {
    const_new! {
        /// An empty stock.
        pub fn new() -> Level { Level(AtomicU32::new(0)) }
    }

    /// How many there are. On another processor than the owner's: there were, a moment ago.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Says how many there are. For the owner.
    #[inline]
    pub fn set(&self, count: u32) {
        self.0.store(count, Relaxed);
    }
}
