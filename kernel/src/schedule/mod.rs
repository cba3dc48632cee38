//! Executions (threads of the kernel and of programs), run queues, sleeping and waking, timers.
//!
//! The kernel is not preempted: an execution gives up its CPU only where it sleeps, yields, or
//! returns to user mode with [`RESCHEDULE`](hayate_machine::trap::RESCHEDULE) set. Each CPU has a
//! run queue ordered by virtual run time, with real-time policies before all others. An idle CPU
//! steals from the queues of the others.
//!
//! The layers, lowest first; a file knows only those above it in this table:
//!
//! | file | contents |
//! |---|---|
//! | [`weight`], [`real_time`], [`policy`] | nice values, the share of real time, policies, ranks |
//! | [`wake_affinity`] | where the child of a waiting parent begins |
//! | [`timer`] | timers |
//! | [`execution`] | an execution, and the one that runs here |
//! | [`io_priority`] | the priority of its input and output |
//! | [`waiting`], [`run_queue`] | the order of a queue, queues, waking, interrupting |
//! | [`share`] | groups that share processor time |
//! | [`statistics`], [`steal`] | counts and loads, work of other processors |
//! | [`look`] | a look for the kernel's own work |
//! | [`switch`] | the choice of the next execution, the switch to it, the tick |
//! | [`idle`], [`mod@start`] | the idle loop, new executions |
//! | [`wait`], [`lock`] | wait queues, locks that sleep |
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
mod io_priority;
mod lock;
mod look;
pub mod policy;
pub mod real_time;
mod run_queue;
pub mod share;
mod start;
mod statistics;
mod steal;
mod switch;
mod timer;
mod wait;
pub mod waiting;
pub mod wake_affinity;
pub mod weight;

#[cfg(debug_assertions)]
pub use execution::ARMED_EXECUTIONS;
pub use execution::{Execution, UserThread, current, current_arc};
pub use idle::run_idle;
pub use lock::{Mutex, MutexGuard, RwMutex, RwMutexReadGuard, RwMutexWriteGuard};
pub use look::register_look;
pub use policy::{Policy, Scheduling};
pub use real_time::{MOST_NS, SHARE_NS};
pub use run_queue::{SLICE_NS, init};
pub use start::{on_each_cpu, start, start_child, start_here, start_kernel};
pub use statistics::{
    CpuTimes, count_blocked, count_runnable, cpu_times, idle_ns, load_average, switches,
};
pub use switch::{attend, breathe, exit_current, tick, yield_now};
pub use timer::{Timer, TimerTarget};
pub use wait::{Listener, WaitQueue, Woken, sleep_until};

pub use hayate_machine::time;
