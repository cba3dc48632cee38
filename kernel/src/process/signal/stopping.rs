//! Stopping a process (`SIGSTOP`, job control); [`super::send`] continues it.
//!
//! The thread that takes the signal starts the stop: it raises the notice and interrupts the
//! others. Each thread then counts itself and sleeps; the last one notifies the parent. All
//! counting happens under `Process::control`, for each stop anew. A thread that is traced stops for
//! its tracer instead, which may let it go on while the stop lasts ([`crate::process::tracing`]).

use alloc::sync::Arc;

use hayate_abi::signal::*;

use hayate_machine::trap::UserRegs;

use super::send;
use super::stop::{STOPPED, StopChange};
use crate::process::cgroup::rest::Rest;
use crate::process::record::{Process, notice};
use crate::process::thread::Thread;
use crate::process::tracing;

/// Asks every thread of a process to stop.
pub fn stop_process(process: &Process, signal: u32) {
    let mut control = process.control.lock();
    if control.exit.is_some() || control.stop.signal != 0 {
        return;
    }
    control.stop.signal = signal;
    control.stop.count += 1;
    control.stop.asleep = 0;
    control.stop.untold_continue = false;
    process.raise_notice(notice::STOP);
    process.interrupt_all();
}

/// Stops the current thread if its process is to be stopped; returns when it continues. `false`: it
/// goes on although its process is stopped, since its tracer wants it to.
pub fn stop_here(thread: &Thread, regs: &mut UserRegs) -> bool {
    let process = &thread.process;
    if let Some(tracee) = tracing::of(thread) {
        return tracing::stop::group_stop(&tracee, regs);
    }
    let own = {
        let mut control = process.control.lock();
        let Some((_, count)) = control.stop.current() else { return true };
        control.stop.joined();
        count
    };
    tell_if_complete(process);
    let mut rest = Rest::of(process);
    let is_over = || {
        rest.note();
        let stopped = process.notice() & notice::STOP != 0
            && process.control.lock().stop.current().is_some_and(|(_, count)| count == own);
        (!stopped || tracing::is_traced(thread)).then_some(())
    };
    STOPPED.wait(is_over);
    true
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
    send::tell_change(process, CLD_STOPPED, signal);
}

impl Process {
    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.control.lock().stop.complete
    }

    /// Returns the change that `wait` has not reported yet, and marks it as reported unless `keep`.
    pub fn untold_change(&self, stops: bool, continues: bool, keep: bool) -> Option<StopChange> {
        let mut control = self.control.lock();
        let stop = &mut control.stop;
        if stops && stop.untold_stop != 0 {
            let signal = stop.untold_stop;
            if !keep {
                stop.untold_stop = 0;
            }
            return Some(StopChange::Stopped(signal));
        }
        if continues && stop.untold_continue {
            if !keep {
                stop.untold_continue = false;
            }
            return Some(StopChange::Continued);
        }
        None
    }
}
