//! Sending signals (`kill(2)`, `kernel/signal.c` of Linux 6.1).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::RLIMIT_SIGPENDING;
use hayate_abi::signal::*;
use hayate_abi::time::{CLOCK_TICKS_PER_SEC, NANOS_PER_SEC};
use hayate_abi::{Errno, Result};

use super::sets::{IGNORED_BY_DEFAULT, STOPS, is_signal};
use super::stop;
use crate::process::pids;
use crate::process::record::{Process, notice};
use crate::process::thread::{Thread, current};
use crate::process::tracing;
use crate::process::{numbers, visible};
use crate::reclaim::growth::Grow;

/// Sends a signal to a process: one of its threads takes it.
///
/// Fails with `EAGAIN` if the queue is full for a realtime signal. A signal to a process that has
/// ended, or that ignores it, is a success.
pub fn to_process(process: &Arc<Process>, info: Siginfo) -> Result<()> {
    post(process, None, info)
}

/// Sends a signal to one thread.
pub fn to_thread(thread: &Thread, info: Siginfo) -> Result<()> {
    post(&thread.process, Some(thread), info)
}

/// Sends a signal that an instruction of the current thread raised. If the signal is blocked or
/// ignored, it ends the process (`force_sig_info`).
pub fn force(thread: &Thread, info: Siginfo) {
    let signal = info.si_signo as u32;
    let process = &thread.process;
    let actions = process.actions();
    let (ignored, _) = actions.ignored_and_caught();
    if thread.blocked() & bit(signal) != 0 || ignored & bit(signal) != 0 {
        actions.reset(signal);
        thread.set_blocked_quietly(thread.blocked() & !bit(signal));
    }
    if process.is_unkillable() && actions.get(signal).sa_handler == SIG_DFL {
        process.give_up_sparing();
    }
    if process.id() == 1 && actions.get(signal).sa_handler == SIG_DFL {
        // pid 1 does not get signals without a handler, but an instruction that cannot be executed
        // would fail again and again.
        process.begin_exit(signal as i32);
        return;
    }
    let _ = thread.queue.push(info, u64::MAX);
    thread.interrupt();
}

/// Ends a process at once; the process cannot prevent it (`SIGKILL`).
pub fn kill(process: &Process) {
    process.begin_exit(SIGKILL as i32);
    process.cut_dump();
}

fn post(process: &Arc<Process>, thread: Option<&Thread>, info: Siginfo) -> Result<()> {
    let signal = info.si_signo as u32;
    if !is_signal(signal) {
        return Err(Errno::EINVAL);
    }
    if process.is_exiting() {
        if signal == SIGKILL {
            process.cut_dump();
            if process.is_involved() {
                tracing::link::killed(process);
            }
        }
        return Ok(());
    }
    if STOPS & bit(signal) != 0 {
        discard_everywhere(process, bit(SIGCONT));
    } else if signal == SIGCONT {
        discard_everywhere(process, STOPS);
        continue_process(process);
        if process.is_involved() {
            tracing::link::continued(process);
        }
    }
    if is_ignored(process, thread, &info) {
        return Ok(());
    }
    if signal == SIGKILL {
        kill(process);
        return Ok(());
    }
    let limit = process.limits().soft(RLIMIT_SIGPENDING);
    match thread {
        Some(thread) => {
            thread.queue.push(info, limit)?;
            if thread.blocked() & bit(signal) == 0 {
                thread.interrupt();
            }
        }
        None => {
            process.queue.push(info, limit)?;
            process.interrupt_one(bit(signal));
        }
    }
    process.signal_events.wake_all();
    Ok(())
}

fn discard_everywhere(process: &Process, signals: SignalSet) {
    process.queue.discard(signals);
    process.for_each_thread(|thread| thread.queue.discard(signals));
}

/// Whether a signal would have no effect, so that it need not be queued (`sig_ignored`). A blocked
/// signal is never ignored, because the action may change before it is unblocked.
fn is_ignored(process: &Process, thread: Option<&Thread>, info: &Siginfo) -> bool {
    let signal = info.si_signo as u32;
    let blocked = match thread {
        Some(thread) => thread.blocked(),
        None => process.blocked_by_all(),
    };
    if blocked & bit(signal) != 0 {
        return false;
    }
    if signal != SIGKILL && process.is_involved() && is_shown_to_tracer(process, thread) {
        return false;
    }
    let (ignored, caught) = process.actions().ignored_and_caught();
    if process.is_unkillable()
        && caught & bit(signal) == 0
        && !(process.is_reaper() && is_forced(process, info))
    {
        // An init gets only signals for which it has a handler (SIGNAL_UNKILLABLE).
        return true;
    }
    (ignored | IGNORED_BY_DEFAULT & !caught) & bit(signal) != 0
}

/// Whether a signal reaches the init of a PID namespace that is not the first though it has no
/// handler for it: the kernel, or a process outside, ends or stops it (`send_signal_locked`).
#[cold]
fn is_forced(init: &Process, info: &Siginfo) -> bool {
    let is_kernel_only = matches!(info.si_signo as u32, SIGKILL | SIGSTOP);
    let from_outside = || numbers::names_a_sender(info) && !visible::is_seen_by(init);
    is_kernel_only && (info.si_code == SI_KERNEL || from_outside())
}

/// Whether a tracer may want to know of a signal to this thread, or to the process.
#[cold]
fn is_shown_to_tracer(process: &Process, thread: Option<&Thread>) -> bool {
    match thread {
        Some(thread) => tracing::is_traced(thread),
        None => process.first_thread().is_some_and(|first| tracing::is_traced(&first)),
    }
}

/// Sends a signal to every process of a group for which `may` holds. Returns how many processes the
/// group has, and how many got the signal.
///
/// A member that forks during the walk could leave a child that was not in the table yet. So the
/// walk is repeated until it meets no new process, and a parent that has got the signal does not
/// complete a fork before it has taken the signal.
pub fn to_group(
    group: u32,
    info: Siginfo,
    mut may: impl FnMut(&Process) -> bool,
) -> Result<(usize, usize)> {
    let mut met: Vec<u64> = Vec::new();
    let mut reached = 0;
    loop {
        let before = met.len();
        for process in pids::processes()? {
            if process.group() != group {
                continue;
            }
            let Err(place) = met.binary_search(&process.serial()) else { continue };
            met.make_room(1)?;
            met.insert(place, process.serial());
            if may(&process) && to_process(&process, info).is_ok() {
                reached += 1;
            }
        }
        if met.len() == before {
            return Ok((before, reached));
        }
    }
}

/// Continues a stopped process (`SIGCONT`).
fn continue_process(process: &Arc<Process>) {
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
    stop::wake();
    if was_stopped {
        tell_change(process, CLD_CONTINUED, SIGCONT);
    }
}

/// Notifies the parent that a child stopped or continued.
pub fn tell_change(child: &Arc<Process>, code: i32, signal: u32) {
    let Some(parent) = child.parent() else { return };
    if parent.actions().about_children().1 {
        let _ = to_process(&parent, about_child(child, code, signal as i32));
    }
    parent.child_events.wake_all();
}

/// The news that a parent gets of a child.
pub fn about_child(child: &Process, code: i32, status: i32) -> Siginfo {
    let usage = child.usage();
    let ticks = |nanos: u64| (nanos / (NANOS_PER_SEC / CLOCK_TICKS_PER_SEC)) as i64;
    let uid = child.first_thread().map_or(0, |thread| thread.credentials().uid);
    let (user, system) = (ticks(usage.user_ns), ticks(usage.system_ns));
    Siginfo::from_child(code, child.id(), uid, status, user, system)
}

impl Thread {
    /// Sends itself a signal about an action of its own.
    pub fn signal_self(&self, signal: u32) {
        let pid = self.process.id();
        let uid = self.credentials().uid;
        // A full queue loses only the information, not a standard signal.
        let _ = to_thread(self, Siginfo::from_sender(signal, SI_USER, pid, uid));
    }
}

/// Sends the current thread a signal about an action of its own (SIGPIPE, SIGXFSZ).
pub fn raise(signal: u32) {
    current().signal_self(signal);
}
