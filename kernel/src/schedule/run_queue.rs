//! Run queues: where an execution waits for a processor, and which processor that is.
//!
//! Each CPU has the executions that wait for it in order of rank ([`Waiting`]): real-time priority
//! first, then virtual run time. Who wakes chooses the CPU: the one the sleeper last ran on if it
//! is idle, else any idle one, else the last one again; but who wakes while it exits leaves its own
//! CPU to the sleeper (the parent that waits for it), which is free before an idle one has come to.
//! A CPU that runs dry steals; a busy one looks at each tick whether another queue is longer by
//! two.
//!
//! What takes an execution out again, and the change to it, is in [`switch`](super::switch).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_machine::context;
use hayate_machine::cpu::{self, Here, Local, OfOwner, PerCpu};
use hayate_machine::per_cpu;
use hayate_machine::smp;
use hayate_machine::sync::SpinLock;
use hayate_machine::time;
use hayate_machine::trap::{self, attention};

use super::execution::{Execution, Policy};
use super::real_time::Share;
use super::waiting::Waiting;

/// How long an execution runs while others wait.
pub const SLICE_NS: u64 = 4_000_000;
/// A sleeper comes back at most this much (of virtual time) before the others...
const SLEEPER_BONUS: u64 = 3_000_000;
/// ...and takes the CPU from a running one only if it is this much before it.
const WAKE_GRANULARITY: u64 = 1_000_000;
/// Ranks: real-time below, ordinary from here, SCHED_IDLE from `IDLE_RANK`.
pub(super) const FAIR_RANK: u64 = 1 << 48;
pub(super) const IDLE_RANK: u64 = 1 << 62;

pub(super) struct Inner {
    pub(super) waiting: Waiting,
    pub(super) idle: Option<Arc<Execution>>,
    /// No ordinary execution here has had less virtual time.
    pub(super) floor: u64,
    sequence: u64,
    /// What real-time executions leave to the others.
    pub(super) share: Share,
}

pub(super) struct RunQueue {
    pub(super) inner: SpinLock<Inner>,
    /// Length of `waiting`.
    pub(super) length: AtomicUsize,
    /// Rank of the running execution (`u64::MAX`: idle).
    pub(super) rank: AtomicU64,
    /// When the tick of the running execution is due.
    pub(super) tick: AtomicU64,
    pub(super) switches: AtomicU64,
    pub(super) idle_ns: AtomicU64,
    /// Ticks that found user code, and that came due in the kernel.
    pub(super) user_ticks: AtomicU64,
    pub(super) system_ticks: AtomicU64,
}

per_cpu! {
    pub(super) static QUEUE: PerCpu<RunQueue> = PerCpu::new(RunQueue {
        inner: SpinLock::new(Inner {
            waiting: Waiting::new(),
            idle: None,
            floor: 0,
            sequence: 0,
            share: Share::new(),
        }),
        length: AtomicUsize::new(0),
        rank: AtomicU64::new(u64::MAX),
        tick: AtomicU64::new(u64::MAX),
        switches: AtomicU64::new(0),
        idle_ns: AtomicU64::new(0),
        user_ticks: AtomicU64::new(0),
        system_ticks: AtomicU64::new(0),
    });
    pub(super) static CURRENT: Local<Execution, OfOwner> = Local::new();
}

/// The CPUs that have nothing to run.
pub(super) static IDLE: AtomicU64 = AtomicU64::new(0);

/// The execution that runs here.
#[inline(always)]
pub fn current() -> Here<Execution> {
    running().unwrap_or_else(|| cpu::empty_slot())
}

hayate_machine::read_slot!(
    /// The execution that runs here; nothing before [`init`].
    fn running = CURRENT: Execution, OfOwner
);

/// The number of the execution that runs here; nothing before [`init`].
#[cfg(debug_assertions)]
pub fn try_current_id() -> Option<u64> {
    running().map(|execution| execution.id())
}

/// The execution that runs here, counted.
pub fn current_arc() -> Arc<Execution> {
    current().arc()
}

/// Makes the flow of control this CPU was started with its idle execution.
pub fn init() {
    let idle = Execution::new_idle();
    context::begin(idle.clone());
    QUEUE.here().inner.lock().idle = Some(idle);
}

/// What `policy` ranks from. Real-time priorities are 1 << 40 apart, in which the order of arrival
/// counts; for the others virtual time is added.
pub(super) fn rank_base(policy: Policy) -> u64 {
    match policy {
        Policy::Fifo(p) | Policy::RoundRobin(p) => (99 - u64::from(p.min(99))) << 40,
        Policy::Idle => IDLE_RANK,
        _ => FAIR_RANK,
    }
}

impl Inner {
    /// The rank of `execution` if it came now; in front of its equals if it `keeps` its place.
    #[inline]
    pub(super) fn rank_now(&mut self, execution: &Execution, keeps: bool) -> u64 {
        self.sequence += 1;
        let base = execution.rank_base.load(Ordering::Relaxed);
        if base >= FAIR_RANK {
            base + execution.virtual_time.load(Ordering::Relaxed)
        } else if keeps {
            base
        } else {
            base | self.sequence & ((1 << 40) - 1)
        }
    }

    /// Lets `execution` wait in `queue`, which this is a part of, with a virtual time between
    /// `earliest` and `latest`; its rank.
    #[inline]
    pub(super) fn put(
        &mut self,
        queue: &RunQueue,
        execution: Arc<Execution>,
        earliest: u64,
        latest: u64,
    ) -> u64 {
        let own = execution.virtual_time.load(Ordering::Relaxed);
        execution.virtual_time.store(own.max(earliest).min(latest), Ordering::Relaxed);
        let rank = self.rank_now(&execution, false);
        self.waiting.put(rank, execution);
        queue.length.store(self.waiting.length(), Ordering::SeqCst);
        rank
    }

    /// The latest virtual time of one that comes now.
    #[inline]
    pub(super) fn latest(&self) -> u64 {
        self.floor.saturating_add(10 * SLICE_NS)
    }
}

/// Puts `execution` into CPU `target`'s queue and makes that CPU look if it should; if it is busy,
/// an idle one.
pub(super) fn enqueue_on(target: usize, execution: Arc<Execution>, woken: bool) {
    let allowed = execution.affinity();
    if put_into(target, execution, woken) {
        call_idle(allowed);
    }
}

/// Calls an idle CPU of `allowed`, if there is one, to what was queued on a busy one.
#[inline]
pub(super) fn call_idle(allowed: u64) {
    // One that went idle after the CPU was chosen has looked at this queue before the entry was
    // in it, and sleeps: the order here (store the length, load IDLE) is the reverse of its own.
    let idle = IDLE.load(Ordering::SeqCst) & allowed;
    if idle != 0 {
        smp::reschedule(idle.trailing_zeros() as usize);
    }
}

/// The first half of [`enqueue_on`]. Whether the CPU is busy with something else.
fn put_into(target: usize, execution: Arc<Execution>, woken: bool) -> bool {
    let queue = QUEUE.of(target).unwrap_or_else(|| QUEUE.here());
    let preempts = execution.policy() != Policy::Batch;
    let rank;
    {
        let mut inner = queue.inner.lock();
        let earliest = inner.floor.saturating_sub(if woken { SLEEPER_BONUS } else { 0 });
        let latest = inner.latest();
        execution.cpu.store(target as u32, Ordering::SeqCst);
        rank = inner.put(queue, execution, earliest, latest);
    }
    let running = queue.rank.load(Ordering::SeqCst);
    let better = running == u64::MAX
        || preempts
            && rank.saturating_add(if rank < FAIR_RANK { 1 } else { WAKE_GRANULARITY }) < running;
    if target == cpu::id() {
        if better {
            attention::raise(trap::RESCHEDULE);
        } else {
            shorten_tick(queue);
        }
    } else if better || queue.tick.load(Ordering::Relaxed) > time::monotonic_ns() + SLICE_NS {
        smp::reschedule(target);
    }
    running != u64::MAX
}

/// Somebody waits: the running execution's tick must not be further away than a slice.
fn shorten_tick(queue: &RunQueue) {
    let limit = time::monotonic_ns() + SLICE_NS;
    if queue.tick.load(Ordering::Relaxed) > limit {
        queue.tick.store(limit, Ordering::Relaxed);
        time::set_timer_before(limit);
    }
}

/// The CPU a woken or new execution should go to.
pub(super) fn choose_cpu(execution: &Execution) -> usize {
    let last = execution.cpu() as u32;
    if cpu::count() == 1 {
        return last as usize;
    }
    let allowed = match execution.affinity() & cpu::online_mask() {
        0 => cpu::online_mask(),
        mask => mask,
    };
    let idle = IDLE.load(Ordering::SeqCst) & allowed;
    let chosen = if idle >> last & 1 != 0 || idle == 0 && allowed >> last & 1 != 0 {
        last as usize
    } else if idle != 0 {
        idle.trailing_zeros() as usize
    } else {
        return allowed.trailing_zeros() as usize;
    };
    // Claimed: the next one to be woken shall find another.
    if idle != 0 {
        IDLE.fetch_and(!(1 << chosen), Ordering::SeqCst);
    }
    chosen
}

pub(super) fn enqueue_woken(execution: Arc<Execution>) {
    if cpu::count() > 1 && returns_here(&execution) {
        put_behind(execution);
    } else if cpu::count() > 1 && is_left_to(&execution) {
        put_into(cpu::id(), execution, true);
    } else {
        enqueue_on(choose_cpu(&execution), execution, true);
    }
}

/// Whether this CPU will be free for `execution` in a moment, sooner than an idle one could be told:
/// what runs here is ending, and nobody else waits here.
fn is_left_to(execution: &Execution) -> bool {
    current().ending.load(Ordering::Relaxed)
        && QUEUE.here().length.load(Ordering::Relaxed) == 0
        && execution.affinity() >> cpu::id() & 1 != 0
}

/// Whether `execution`, a parent by vfork, has time until its child, which runs here, sleeps or ends; see
/// [`haste`](super::haste).
fn returns_here(execution: &Execution) -> bool {
    execution.haste.returns_here()
        && execution.affinity() >> cpu::id() & 1 != 0
        && execution.policy() == Policy::Other
}

/// Puts `execution` into this CPU's queue, for when what runs here sleeps or ends, or at its next tick.
fn put_behind(execution: Arc<Execution>) {
    let queue = QUEUE.here();
    {
        let mut inner = queue.inner.lock();
        execution.cpu.store(cpu::id() as u32, Ordering::SeqCst);
        let earliest = inner.floor;
        inner.put(queue, execution, earliest, u64::MAX);
    }
    shorten_tick(queue);
}

pub(super) fn start(execution: &Arc<Execution>, here: bool) {
    if !execution.first_start() {
        return;
    }
    let me = cpu::id();
    execution.cpu.store(me as u32, Ordering::Relaxed);
    let here = here && execution.affinity() >> me & 1 != 0;
    if here {
        // The caller is about to wait for it: nobody shall come and take it away.
        put_into(me, execution.clone(), false);
    } else {
        enqueue_on(choose_cpu(execution), execution.clone(), false);
    }
}
