//! The record of a process's timers, for [`super::timer`] and [`super::cpu_time`] to work on.
//!
//! `P` is the process, which has the record: the type of a process is above this one.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use crate::schedule::{Timer, WaitQueue};

/// The timers of a process.
pub struct Timers<P> {
    pub(super) real: Option<Arc<Interval<P>>>,
    pub(super) posix: Vec<Option<Arc<Posix<P>>>>,
    /// `ITIMER_VIRTUAL` and `ITIMER_PROF`.
    pub(super) cpu: [CpuInterval; 2],
    /// Threads, of this or another process, that sleep until this process has used some processor
    /// time.
    pub(super) sleepers: Vec<Arc<Sleeper>>,
}

impl<P> Default for Timers<P> {
    fn default() -> Self {
        Timers {
            real: None,
            posix: Vec::new(),
            cpu: [CpuInterval::default(); 2],
            sleepers: Vec::new(),
        }
    }
}

/// A thread that sleeps on processor time (`clock_nanosleep(2)`).
pub struct Sleeper {
    pub(super) clock: Clock,
    pub(super) due: u64,
    pub(super) queue: WaitQueue,
}

/// A timer on processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuInterval {
    /// The processor time at which it expires; 0 when disarmed.
    pub due: u64,
    /// Period; 0 to expire once.
    pub interval: u64,
}

/// `ITIMER_REAL`.
pub struct Interval<P> {
    pub(super) process: Weak<P>,
    pub(super) timer: Arc<Timer>,
    /// The next expiry, or the last one.
    pub(super) due: AtomicU64,
    pub(super) interval: AtomicU64,
}

/// The action of a POSIX timer when it expires.
#[derive(Clone, Copy, Debug)]
pub enum Notify {
    /// Nothing (`SIGEV_NONE`).
    Nothing,
    /// A signal to the process.
    Process(u32),
    /// A signal to the thread with this number.
    Thread(u32, u32),
}

/// A timer of `timer_create(2)`.
pub struct Posix<P> {
    pub(super) id: i32,
    pub(super) process: Weak<P>,
    pub(super) clock: Clock,
    pub(super) notify: Notify,
    pub(super) value: u64,
    pub(super) timer: Arc<Timer>,
    /// The next expiry, or the last one: monotonic time, which may be before the boot, or processor
    /// time, where 0 is a disarmed timer.
    pub(super) due: AtomicI64,
    pub(super) interval: AtomicU64,
    /// It is armed for an absolute time of a clock that can be set.
    pub(super) follows: AtomicBool,
    /// Expiries since the pending signal was queued, not counting the one it reports.
    pub(super) overrun: AtomicU64,
    /// The same count of the signal that was taken last (`timer_getoverrun(2)`).
    pub(super) told: AtomicU64,
}

/// The clocks a timer can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time of day.
    Realtime,
    /// The same without leap seconds.
    Tai,
    /// Time since boot.
    Monotonic,
    /// Processor time of the process.
    Process,
    /// Processor time of the thread with this number.
    Thread(u32),
}
