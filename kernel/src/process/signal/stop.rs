//! The state of a stop, as a process and its parent know it (`SIGSTOP`, `SIGCONT`, job control).
//!
//! The state is a part of `Process::control`, whose lock covers it. The files that change it stand
//! above: `stopping.rs`, and `send.rs` for the signal that ends a stop.

use crate::schedule::WaitQueue;

/// The queue on which stopped threads sleep. One queue serves all processes: a superfluous wake-up
/// does no harm, and stops are rare.
pub(super) static STOPPED: WaitQueue = WaitQueue::new();

/// The progress of a stop.
#[derive(Default)]
pub struct Stop {
    /// The signal that stops the process; 0 while it is not to be stopped.
    pub(super) signal: u32,
    /// Which stop of the process it is, or was.
    pub(super) count: u64,
    /// The number of threads that have taken part in it.
    pub(super) asleep: usize,
    /// Every thread sleeps, and the parent was notified.
    pub(super) complete: bool,
    /// The signal that `wait(WUNTRACED)` has yet to report; 0 for none.
    pub(super) untold_stop: u32,
    /// `wait(WCONTINUED)` has yet to report that the process continued.
    pub(super) untold_continue: bool,
}

impl Stop {
    /// The signal of the stop that is going on, and which one it is.
    pub fn current(&self) -> Option<(u32, u64)> {
        (self.signal != 0).then_some((self.signal, self.count))
    }

    /// Counts a thread that takes part in the stop.
    pub fn joined(&mut self) {
        self.asleep += 1;
    }

    /// Ends the stop, since the process ends.
    pub fn cancel(&mut self) {
        self.signal = 0;
        self.complete = false;
        self.untold_stop = 0;
        self.untold_continue = false;
    }
}

/// Makes stopped threads check again whether to continue.
pub fn wake() {
    STOPPED.wake_all();
}

/// A change of a child that `wait` can report.
pub enum StopChange {
    /// It was stopped by this signal.
    Stopped(u32),
    /// It continued.
    Continued,
}
