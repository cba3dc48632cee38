//! Stopping and continuing a process (`SIGSTOP`, `SIGCONT`, job control).
//!
//! The thread that takes the signal starts the stop: it raises the notice and interrupts the
//! others. Each thread then counts itself and sleeps; the last one notifies the parent. All
//! counting happens under `Process::control`.

use alloc::sync::Arc;

use hayate_abi::signal::*;

use crate::process::record::{Process, notice};
use crate::process::{Thread, family};
use crate::schedule::WaitQueue;

/// The queue on which stopped threads sleep. One queue serves all processes: a superfluous wake-up
/// does no harm, and stops are rare.
static STOPPED: WaitQueue = WaitQueue::new();

/// The progress of a stop.
#[derive(Default)]
pub struct Stop {
    /// The signal that stops the process; 0 while it is not to be stopped.
    signal: u32,
    /// The number of threads that sleep because of it.
    asleep: usize,
    /// Every thread sleeps, and the parent was notified.
    complete: bool,
    /// The signal that `wait(WUNTRACED)` has yet to report; 0 for none.
    untold_stop: u32,
    /// `wait(WCONTINUED)` has yet to report that the process continued.
    untold_continue: bool,
}

impl Stop {
    /// Ends the stop, since the process ends.
    pub fn cancel(&mut self) {
        self.signal = 0;
        self.complete = false;
        self.untold_stop = 0;
        self.untold_continue = false;
    }
}

/// Asks every thread of a process to stop.
pub fn stop_process(process: &Process, signal: u32) {
    let mut control = process.control.lock();
    if control.exit.is_some() || control.stop.signal != 0 {
        return;
    }
    control.stop.signal = signal;
    control.stop.untold_continue = false;
    process.raise_notice(notice::STOP);
    process.interrupt_all();
}

/// Stops the current thread if its process is to be stopped; returns when it continues.
pub fn stop_here(thread: &Thread) {
    let process = &thread.process;
    {
        let mut control = process.control.lock();
        if control.stop.signal == 0 {
            return;
        }
        control.stop.asleep += 1;
    }
    tell_if_complete(process);
    STOPPED.wait(|| (process.notice() & notice::STOP == 0).then_some(()));
    process.control.lock().stop.asleep -= 1;
}

/// Notifies the parent if the last thread of a process has stopped; also called when a thread ends.
pub fn tell_if_complete(process: &Arc<Process>) {
    let signal = {
        let mut control = process.control.lock();
        let all = process.thread_count();
        let stop = &mut control.stop;
        if stop.signal == 0 || stop.complete || stop.asleep < all {
            return;
        }
        stop.complete = true;
        stop.untold_stop = stop.signal;
        stop.signal
    };
    family::tell_change(process, CLD_STOPPED, signal);
}

/// Continues a stopped process (`SIGCONT`).
pub fn continue_process(process: &Arc<Process>) {
    let was_stopped = {
        let mut control = process.control.lock();
        if control.stop.signal == 0 {
            return;
        }
        let was_stopped = control.stop.complete;
        control.stop.cancel();
        control.stop.untold_continue = was_stopped;
        process.clear_notice(notice::STOP);
        was_stopped
    };
    STOPPED.wake_all();
    if was_stopped {
        family::tell_change(process, CLD_CONTINUED, SIGCONT);
    }
}

/// Makes stopped threads check again whether to continue.
pub fn wake(_process: &Process) {
    STOPPED.wake_all();
}

/// A change of a child that `wait` can report.
pub enum Change {
    /// It was stopped by this signal.
    Stopped(u32),
    /// It continued.
    Continued,
}

impl Process {
    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.control.lock().stop.complete
    }

    /// Returns the change that `wait` has not reported yet, and marks it as reported unless `keep`.
    pub fn untold_change(&self, stops: bool, continues: bool, keep: bool) -> Option<Change> {
        let mut control = self.control.lock();
        let stop = &mut control.stop;
        if stops && stop.untold_stop != 0 {
            let signal = stop.untold_stop;
            if !keep {
                stop.untold_stop = 0;
            }
            return Some(Change::Stopped(signal));
        }
        if continues && stop.untold_continue {
            if !keep {
                stop.untold_continue = false;
            }
            return Some(Change::Continued);
        }
        None
    }
}
