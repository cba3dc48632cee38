//! The counts of the scheduler: switches, times, load averages.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_machine::cpu;
use hayate_machine::time;

use super::run_queue::{QUEUE, SLICE_NS};

/// Executions that wait for a device.
pub(super) static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// The load average, times 2048, over 1, 5 and 15 minutes.
static LOAD: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static LOAD_DUE: AtomicU64 = AtomicU64::new(0);

/// The number of executions that run or wait for a CPU.
pub fn count_runnable() -> usize {
    (0..cpu::count())
        .filter_map(|other| QUEUE.of(other))
        .map(|queue| {
            let running = usize::from(queue.rank.load(Ordering::Relaxed) != u64::MAX);
            running + queue.length.load(Ordering::Relaxed)
        })
        .sum()
}

/// The number of executions that wait for a device (`procs_blocked` of proc(5)).
pub fn count_blocked() -> usize {
    BLOCKED.load(Ordering::Relaxed)
}

/// The number of context switches on all CPUs since boot.
pub fn switches() -> u64 {
    (0..cpu::count())
        .filter_map(|other| QUEUE.of(other))
        .map(|queue| queue.switches.load(Ordering::Relaxed))
        .sum()
}

/// The time of a CPU by use, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTimes {
    /// In programs.
    pub user_ns: u64,
    /// In programs with a positive nice value.
    pub nice_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
    /// Idle.
    pub idle_ns: u64,
}

/// The times of CPU `cpu` since boot. Programs, and the kernel on their behalf, have the time of
/// the ticks that found them; an idle CPU knows how long it slept and how long it worked.
pub fn cpu_times(cpu: usize) -> CpuTimes {
    let Some(queue) = QUEUE.of(cpu) else { return CpuTimes::default() };
    let idle = queue.inner.lock().idle.clone();
    let slept = queue.idle_ns.load(Ordering::Relaxed);
    let in_idle = idle.map_or(0, |idle| idle.run_time.load(Ordering::Relaxed));
    let time_of = |ticks: &AtomicU64| ticks.load(Ordering::Relaxed) * SLICE_NS;
    CpuTimes {
        user_ns: time_of(&queue.user_ticks),
        nice_ns: time_of(&queue.nice_ticks),
        system_ns: time_of(&queue.system_ticks) + in_idle.saturating_sub(slept),
        idle_ns: idle_ns(cpu),
    }
}

/// Nanoseconds for which CPU `cpu` has been idle.
pub fn idle_ns(cpu: usize) -> u64 {
    QUEUE.of(cpu).map_or(0, |queue| {
        let since = queue.idle_since.load(Ordering::Relaxed);
        let sleeps = time::monotonic_ns().saturating_sub(since);
        queue.idle_ns.load(Ordering::Relaxed) + sleeps
    })
}

/// Updates the load averages every five seconds (Linux kernel/sched/loadavg.c).
pub(super) fn update_load(now: u64) {
    const PERIOD: u64 = 5_000_000_000;
    const DECAY: [u64; 3] = [1884, 2014, 2037];
    let due = LOAD_DUE.load(Ordering::Relaxed);
    if now < due
        || LOAD_DUE
            .compare_exchange(due, now + PERIOD, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    let active = count_runnable() as u64 * 2048;
    // No execution ran in the periods that passed without a tick.
    let missed = if due == 0 { 0 } else { (now - due) / PERIOD };
    for (load, decay) in LOAD.iter().zip(DECAY) {
        let mut value = load.load(Ordering::Relaxed);
        for _ in 0..missed.min(1000) {
            value = value * decay / 2048;
        }
        value = (value * decay + active * (2048 - decay)) / 2048;
        load.store(value, Ordering::Relaxed);
    }
}

/// The load averages over 1, 5 and 15 minutes, times 2048.
pub fn load_average() -> [u64; 3] {
    [0, 1, 2].map(|i| LOAD[i].load(Ordering::Relaxed))
}
