//! Executions (threads of the kernel and of programs), run queues, sleeping and waking, timers.
//!
//! The kernel is not preempted: an execution gives up its CPU only where it sleeps, yields, or
//! returns to user mode with [`RESCHEDULE`](hayate_machine::trap::RESCHEDULE) set. Each CPU has a
//! run queue ordered by virtual run time, with real-time policies before all others. An idle CPU
//! steals from the queues of the others.
//!
//! Lock order: [`Mutex`]/[`RwMutex`] (may sleep) before any spin lock; a [`WaitQueue`]'s lock, then
//! a [`Timer`]'s, then a timer queue's or a run queue's. A run queue's lock is innermost, and no
//! two run queues are locked at once.
//!
//! Road not taken: one global queue, because every wake-up would take its lock; and EEVDF's
//! deadlines, because a plain virtual time with a small bonus for sleepers gives the same order for
//! our few threads.

pub mod execution;
mod idle;
mod lock;
pub mod real_time;
mod run_queue;
mod statistics;
mod steal;
mod switch;
mod timer;
mod wait;
pub mod waiting;
pub mod wake_affinity;
mod weight;

pub use execution::{Agent, Execution, Policy, Scheduling};
pub use idle::run_idle;
pub use lock::{Mutex, MutexGuard, RwMutex, RwMutexReadGuard, RwMutexWriteGuard};
pub use real_time::{MOST_NS, SHARE_NS};
#[cfg(debug_assertions)]
pub use run_queue::try_current_id;
pub use run_queue::{SLICE_NS, current, current_arc, init};
pub use statistics::{
    CpuTimes, count_blocked, count_runnable, cpu_times, idle_ns, load_average, switches,
};
pub use switch::{attend, breathe, exit_current, tick, yield_now};
pub use timer::{Timer, TimerTarget};
pub use wait::{Listener, WaitQueue, Woken, sleep_until};

pub use hayate_machine::time;

use alloc::sync::Arc;

/// Makes `execution` runnable for the first time, on an idle CPU if there is one.
pub fn start(execution: &Arc<Execution>) {
    run_queue::start(execution, false);
}

/// Like [`start`], for a child process of the current execution: starts it on this CPU if the
/// parent is expected to wait for it at once (wake affinity, [`wake_affinity`]).
pub fn start_child(execution: &Arc<Execution>) {
    run_queue::start(execution, current().haste.makes());
}

/// Like [`start`], but on this CPU: for a vfork child, whose parent is about to sleep.
pub fn start_here(execution: &Arc<Execution>) {
    current().haste.makes_and_sleeps();
    run_queue::start(execution, true);
}

/// Makes and starts an execution that runs `work` in the kernel and ends. Fails with ENOMEM if
/// memory for its stack is exhausted.
pub fn start_kernel(name: &str, work: impl FnOnce() + Send + 'static) -> hayate_abi::Result<()> {
    start(&Execution::new_kernel(name, work)?);
    Ok(())
}

/// Runs `work` on every processor in turn by moving the caller there: for rare work on per-CPU
/// state. The caller sleeps on the way and must hold no spin lock. If another thread changes the
/// caller's affinity meanwhile, that change is lost.
pub fn on_each_cpu(mut work: impl FnMut()) {
    /// Tries to reach one processor before it is skipped, since another thread may change the
    /// affinity.
    const PATIENCE: usize = 1000;
    let me = current_arc();
    let before = me.affinity();
    for cpu in 0..hayate_machine::cpu::count() {
        if me.set_affinity(1 << cpu).is_err() {
            continue;
        }
        let mut patience = PATIENCE;
        while hayate_machine::cpu::id() != cpu && patience > 0 {
            yield_now();
            patience -= 1;
        }
        work();
    }
    // The mask was in force before, so a processor of it is online.
    let _ = me.set_affinity(before);
}
