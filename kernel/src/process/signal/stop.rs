//! Stopping and continuing a process (`SIGSTOP`, `SIGCONT`, job control).
//!
//! A stop is asked for by the thread that takes the signal: it raises the notice and interrupts
//! the others. Each thread then counts itself in and sleeps; the last one tells the parent. All
//! counting happens under `Process::control`.

use alloc::sync::Arc;

use hayate_abi::signal::*;

use super::super::record::{Process, notice};
use super::super::{Thread, family};
use crate::schedule::WaitQueue;

/// Where stopped threads sleep. One queue for all processes: a wake-up too many does no harm, and
/// stops are rare.
static STOPPED: WaitQueue = WaitQueue::new();

/// How far a process is with stopping.
#[derive(Default)]
pub struct Stop {
    /// The signal that stops the process; 0 while it is not to be stopped.
    signal: u32,
    /// Threads that sleep because of it.
    asleep: usize,
    /// Every thread sleeps, and the parent was told.
    complete: bool,
    /// `wait(WUNTRACED)` has this signal to tell; 0 for nothing.
    untold_stop: u32,
    /// `wait(WCONTINUED)` has something to tell.
    untold_continue: bool,
}

impl Stop {
    /// The process ends: it is not to be stopped any more.
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

/// The current thread stops, if its process is to be stopped; returns when it goes on.
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

/// Tells the parent if the last thread of a process has stopped; also called when a thread ends.
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

/// Lets a stopped process go on (`SIGCONT`).
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

/// Makes stopped threads look again whether they are to go on.
pub fn wake(_process: &Process) {
    STOPPED.wake_all();
}

/// What `wait` can be told about a living child.
pub enum Change {
    /// It was stopped by this signal.
    Stopped(u32),
    /// It went on.
    Continued,
}

impl Process {
    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.control.lock().stop.complete
    }

    /// What has not been told by `wait` yet; told with this, unless `keep`.
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
