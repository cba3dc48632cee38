//! Timers and limits on the processor time of a process: `ITIMER_VIRTUAL`, `ITIMER_PROF`, POSIX
//! timers on processor time, and `RLIMIT_CPU`.
//!
//! They are checked on each tick of a thread whose process uses them, so they are as exact as ticks
//! are, as in Linux without high-resolution ticks.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::process::{RLIM_INFINITY, RLIMIT_CPU, Rlimit};
use hayate_abi::signal::*;
use hayate_abi::time::NANOS_PER_SEC;

use super::record::Process;
use super::signal::send;
use super::timer;
use super::timer::Setting;
use super::timers::CpuInterval;

/// Which timer on processor time.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// Time in user mode (`ITIMER_VIRTUAL`).
    Virtual = 0,
    /// Time in user mode and in the kernel (`ITIMER_PROF`).
    Profiling = 1,
}

impl Which {
    fn now(self, process: &Process) -> u64 {
        let usage = process.usage();
        match self {
            Which::Virtual => usage.user_ns,
            Which::Profiling => usage.cpu_ns(),
        }
    }
}

/// The time left of a timer.
pub fn get(process: &Process, which: Which) -> Setting {
    let timer = match process.timers.lock().as_ref() {
        Some(timers) => timers.cpu[which as usize],
        None => return Setting::default(),
    };
    let value =
        if timer.due == 0 { 0 } else { timer.due.saturating_sub(which.now(process)).max(1) };
    Setting { value, interval: timer.interval }
}

/// Sets a timer; returns the time that was left.
pub fn set(process: &Process, which: Which, new: Setting) -> Setting {
    let old = get(process, which);
    let due = if new.value == 0 { 0 } else { which.now(process).saturating_add(new.value).max(1) };
    timer::with_timers(process, |timers| {
        timers.cpu[which as usize] = CpuInterval { due, interval: new.interval };
    });
    if due != 0 {
        process.watch_cpu_time();
    }
    old
}

/// Checks all timers and limits on the processor time of a process.
pub fn check(process: &Arc<Process>) {
    // Before the look: a thread that sets a timer or begins to sleep meanwhile sets the flag after
    // that, and is seen at the next tick.
    process.cpu_time_watched.store(false, Ordering::Relaxed);
    let mut wanted = check_limit(process);
    for (which, signal) in [(Which::Virtual, SIGVTALRM), (Which::Profiling, SIGPROF)] {
        wanted |= check_timer(process, which, signal);
    }
    wanted |= timer::check_cpu_time(process);
    if wanted {
        process.watch_cpu_time();
    }
}

fn check_timer(process: &Arc<Process>, which: Which, signal: u32) -> bool {
    let armed = match process.timers.lock().as_ref() {
        Some(timers) => timers.cpu[which as usize].due != 0,
        None => false,
    };
    if !armed {
        return false;
    }
    let now = which.now(process);
    let mut expired = false;
    let mut again = true;
    timer::with_timers(process, |timers| {
        let timer = &mut timers.cpu[which as usize];
        if timer.due != 0 && now >= timer.due {
            expired = true;
            timer.due = timer::next(timer.due, timer.interval, now).unwrap_or(0);
            again = timer.due != 0;
        }
    });
    if expired {
        let _ = send::to_process(process, Siginfo::new(signal, SI_KERNEL));
    }
    again
}

/// `RLIMIT_CPU`: SIGXCPU at the soft limit and each second after it, SIGKILL at the hard one
/// (`check_process_timers`).
fn check_limit(process: &Arc<Process>) -> bool {
    let Some(limit) = process.limits().get(RLIMIT_CPU) else { return false };
    if limit.rlim_cur == RLIM_INFINITY {
        return false;
    }
    let seconds = process.usage().cpu_ns() / NANOS_PER_SEC;
    if seconds >= limit.rlim_max {
        send::kill(process);
    } else if seconds >= limit.rlim_cur {
        let raised = Rlimit { rlim_cur: seconds + 1, ..limit };
        process.change_limits(|limits| limits.set(RLIMIT_CPU, raised));
        let _ = send::to_process(process, Siginfo::new(SIGXCPU, SI_KERNEL));
    }
    true
}
