//! Work that is due some time after the machine's free memory has changed.
//!
//! Neither an allocation nor a free does anything for it. A processor that is about to sleep, and
//! one at its ticks, compares an amount of free memory with what it was when there was last nothing
//! to do ([`Lookout::look`]), and arms the timer if it differs. So a machine whose memory does not
//! change runs no timer.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

use hayate_machine::sync::Once;

use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget, WaitQueue};

/// When an execution has work, which it waits for.
pub struct Lookout {
    /// Tells the amount of free memory, in frames.
    amount: fn() -> u32,
    /// From a change of the free memory to the work, in nanoseconds.
    pause: u64,
    /// Woken when it is time.
    work: WaitQueue,
    /// One for ever: those who count the kernel's objects find the same number always.
    timer: Once<Arc<Timer>>,
    /// Whether the timer was armed since the work was last done.
    is_armed: AtomicBool,
    /// Whether it is time.
    is_time: AtomicBool,
    /// The amount when there was nothing more to do.
    settled: AtomicU32,
}

impl Lookout {
    /// One whose work is due `pause` nanoseconds after a change of the `amount`.
    pub fn new(amount: fn() -> u32, pause: u64) -> Arc<Lookout> {
        let lookout = Arc::new(Lookout {
            amount,
            pause,
            work: WaitQueue::new(),
            timer: Once::new(),
            is_armed: AtomicBool::new(false),
            is_time: AtomicBool::new(false),
            settled: AtomicU32::new(0),
        });
        let target: Weak<dyn TimerTarget> = Arc::downgrade(&lookout) as _;
        lookout.timer.call_once(|| Timer::new(target));
        lookout
    }

    /// Sets the time of the work if the free memory has changed.
    pub fn look(&self) {
        if (self.amount)() != self.settled.load(Relaxed)
            && !self.is_armed.load(Relaxed)
            && !self.is_armed.swap(true, Relaxed)
            && let Some(timer) = self.timer.get()
        {
            timer.arm(monotonic_ns() + self.pause);
        }
    }

    /// Sleeps until it is time.
    pub fn wait(&self) {
        self.work.wait(|| self.is_time.swap(false, Relaxed).then_some(()));
    }

    /// Notes that the work was done, and whether it is to be done again though the free memory does
    /// not change.
    pub fn done(&self, again: bool) {
        let settled = if again { u32::MAX } else { (self.amount)() };
        self.settled.store(settled, Relaxed);
        self.is_armed.store(false, Relaxed);
    }
}

impl TimerTarget for Lookout {
    fn expire(&self, _: u64) -> Option<u64> {
        self.is_time.store(true, Relaxed);
        self.work.wake_all();
        None
    }
}
