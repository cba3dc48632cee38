//! A fixed stack of frame numbers: one processor's private cache.
//!
//! One processor changes it; the others may read how many frames it holds. So each word is an
//! atomic that is loaded and stored, never exchanged: that takes the same instructions as a plain
//! word.

use core::sync::atomic::Ordering::Relaxed;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicUsize};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicUsize};

/// At most `N` frame numbers, last in first out (the last one freed is the one still in the
/// caches).
pub struct Stack<const N: usize> {
    count: AtomicUsize,
    frames: [AtomicU32; N],
}

impl<const N: usize> Default for Stack<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Stack<N> {
    /// An empty stack.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Stack { count: AtomicUsize::new(0), frames: [const { AtomicU32::new(0) }; N] }
    }

    /// An empty stack in a model, whose atomic types are created at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        let frames = core::array::from_fn(|_| AtomicU32::new(0));
        Stack { count: AtomicUsize::new(0), frames }
    }

    /// Returns how many frames it holds. Other processors may call this as well.
    #[inline]
    pub fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the frame that was put last.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let count = self.len().checked_sub(1)?;
        let frame = self.frames.get(count)?.load(Relaxed);
        self.count.store(count, Relaxed);
        Some(frame)
    }

    /// Puts a frame; `false` when there is no room.
    #[inline]
    pub fn push(&self, frame: u32) -> bool {
        let count = self.len();
        match self.frames.get(count) {
            Some(slot) => {
                slot.store(frame, Relaxed);
                self.count.store(count + 1, Relaxed);
                true
            }
            None => false,
        }
    }

    /// Fills an empty half: `fill` writes frames to the slice and returns how many.
    pub fn refill(&self, fill: impl FnOnce(&[AtomicU32]) -> usize) -> usize {
        let count = self.len();
        let end = (count + N / 2).min(N);
        let taken = fill(&self.frames[count..end]).min(end - count);
        // Frames that the allocator gave first are taken first.
        let row = &self.frames[count..count + taken];
        for (low, high) in row.iter().zip(row.iter().rev()).take(taken / 2) {
            let frame = low.load(Relaxed);
            low.store(high.load(Relaxed), Relaxed);
            high.store(frame, Relaxed);
        }
        self.count.store(count + taken, Relaxed);
        taken
    }

    /// Takes out the older half (or all frames, when `all`): those that were put in first.
    pub fn spill(&self, all: bool, mut take: impl FnMut(u32)) {
        let count = self.len();
        let out = if all { count } else { count / 2 };
        for frame in &self.frames[..out] {
            take(frame.load(Relaxed));
        }
        for (to, from) in self.frames.iter().zip(&self.frames[out..count]) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.count.store(count - out, Relaxed);
    }
}
