//! The events that a volume's committing thread waits for.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::schedule::WaitQueue;

/// The events that a committing thread waits for.
#[derive(Default)]
pub struct Clock {
    pub queue: WaitQueue,
    pub is_dirty: AtomicBool,
    /// There are inodes to be freed.
    pub is_pressed: AtomicBool,
    is_over: AtomicBool,
}

impl Clock {
    /// Notes that there is something to commit.
    pub fn start(&self) {
        if !self.is_dirty.swap(true, Ordering::AcqRel) {
            self.queue.wake_all();
        }
    }

    /// Wakes the thread at once, to free inodes. Spin locks may be held.
    pub fn press(&self) {
        self.is_pressed.store(true, Ordering::Release);
        self.queue.wake_all();
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.queue.wake_all();
    }

    /// Whether the thread is to end.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether the thread has something to do at once.
    pub fn is_pressed(&self) -> bool {
        self.is_over() || self.is_pressed.load(Ordering::Acquire)
    }
}
