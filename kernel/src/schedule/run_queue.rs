//! Run queues: where an execution waits for a processor, and which processor it waits for.
//!
//! Each CPU has the executions that wait for it in order of rank ([`Waiting`]): real-time priority
//! first, then virtual run time. The waker chooses the CPU: the one the sleeper last ran on if that
//! is idle, else any idle one, else the last one again. An execution that exits instead leaves its
//! own CPU to the sleeper it wakes (usually its waiting parent), because that CPU is free before an
//! idle one could be woken. A CPU whose queue becomes empty steals; a busy CPU looks at each tick
//! whether another queue is longer than its own by two.
//!
//! Taking an execution out again, and the switch to it, are in [`switch`](super::switch).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hayate_machine::context;
use hayate_machine::cpu::{self, PerCpu};
use hayate_machine::per_cpu;
use hayate_machine::smp;
use hayate_machine::sync::SpinLock;
use hayate_machine::trap::{self, attention};
use hayate_protocols::sleep::State;

use super::execution::{Execution, current};
use super::policy::{FAIR_RANK, Policy};
use super::real_time::Share;
use super::waiting::Waiting;

/// How long an execution runs while others wait, in nanoseconds.
pub const SLICE_NS: u64 = 4_000_000;
/// How much later than the others an execution is queued at most.
const LATEST_NS: u64 = 10 * SLICE_NS;
/// A sleeper is queued with at most this much less virtual time than the others...
const SLEEPER_BONUS: u64 = 3_000_000;
/// ...and preempts the running execution only if it has at least this much less.
const WAKE_GRANULARITY: u64 = 1_000_000;

pub(super) struct Inner {
    pub(super) waiting: Waiting,
    pub(super) idle: Option<Arc<Execution>>,
    /// The virtual time that the ordinary executions here have reached (Linux: `min_vruntime`).
    pub(super) floor: u64,
    sequence: u64,
    /// How long real-time executions have had the CPU for themselves.
    pub(super) share: Share,
}

pub(super) struct RunQueue {
    pub(super) inner: SpinLock<Inner>,
    /// Length of `waiting`.
    pub(super) length: AtomicUsize,
    /// Rank of the running execution (`u64::MAX`: idle).
    pub(super) rank: AtomicU64,
    /// When the next tick of the running execution is due, in monotonic nanoseconds; `u64::MAX`
    /// while this CPU is idle.
    pub(super) tick: AtomicU64,
    /// The time of that tick, also while this CPU is idle: a multiple of a slice.
    pub(super) next_sample: AtomicU64,
    pub(super) switches: AtomicU64,
    /// The outermost group of what ran at the last tick that found any ([`super::share`]).
    pub(super) group: AtomicU32,
    /// Nanoseconds for which it has slept, up to `idle_since`.
    pub(super) idle_ns: AtomicU64,
    /// When its present sleep began; `u64::MAX` if it does not sleep.
    pub(super) idle_since: AtomicU64,
    /// Ticks that found user code, of executions with a positive nice value apart, and ticks that
    /// became due in the kernel.
    pub(super) user_ticks: AtomicU64,
    pub(super) nice_ticks: AtomicU64,
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
        next_sample: AtomicU64::new(0),
        switches: AtomicU64::new(0),
        group: AtomicU32::new(0),
        idle_ns: AtomicU64::new(0),
        idle_since: AtomicU64::new(u64::MAX),
        user_ticks: AtomicU64::new(0),
        nice_ticks: AtomicU64::new(0),
        system_ticks: AtomicU64::new(0),
    });
}

/// The CPUs that have nothing to run.
pub(super) static IDLE: AtomicU64 = AtomicU64::new(0);

/// Makes the flow of control with which this CPU was started its idle execution.
pub fn init() {
    let idle = Execution::new_idle();
    context::begin(idle.clone());
    QUEUE.here().inner.lock().idle = Some(idle);
}

impl Inner {
    /// The rank of `execution` if it were queued now: ahead of others of its priority if it `keeps`
    /// its place, else behind them.
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

    /// Queues `execution` in `queue`, which contains `self`, with its virtual time limited to
    /// `earliest..=latest`, and returns its rank.
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

    /// The latest virtual time with which an execution is queued now.
    #[inline]
    pub(super) fn latest(&self) -> u64 {
        self.floor.saturating_add(LATEST_NS)
    }

    /// The same of one that ran here and that only others with more weight have made wait: it may
    /// be so much later as it has less weight.
    #[inline]
    pub(super) fn latest_of(&self, left: &Execution) -> u64 {
        /// No execution waits longer than two seconds for one other.
        const MOST: u64 = 50;
        match left.times_lighter() {
            1 => self.latest(),
            times => self.floor.saturating_add(LATEST_NS * times.min(MOST)),
        }
    }
}

/// Puts `execution` into the queue of CPU `target` and interrupts that CPU if the execution should
/// preempt or the CPU's next tick is too late. If that CPU is busy, also interrupts an idle one,
/// which can steal.
pub(super) fn enqueue_on(target: usize, execution: Arc<Execution>, woken: bool) {
    let allowed = execution.affinity();
    if put_into(target, execution, woken) {
        call_idle(allowed);
    }
}

/// Interrupts an idle CPU of `allowed`, if there is one, so that it steals what was queued on a
/// busy CPU.
#[inline]
pub(super) fn call_idle(allowed: u64) {
    // A CPU that went idle after `target` was chosen looked at this queue before the execution was
    // in it, and sleeps. The order here (store the length, load IDLE) is the reverse of that CPU's
    // order, so at least one of the two sees the other's store.
    let idle = IDLE.load(Ordering::SeqCst) & allowed;
    if idle != 0 {
        smp::reschedule(idle.trailing_zeros() as usize);
    }
}

/// The first half of [`enqueue_on`]. Returns whether the CPU is busy with another execution.
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
    // Otherwise it waits for the next tick, which is at most a slice away.
    if better {
        if target == cpu::id() {
            attention::raise(trap::RESCHEDULE);
        } else {
            smp::reschedule(target);
        }
    }
    running != u64::MAX
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
    // Claim the chosen CPU, so that the next execution to be woken gets another.
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

/// Whether this CPU will be free for `execution` sooner than an idle CPU could be woken: the
/// execution that runs here is ending, and no other waits here.
fn is_left_to(execution: &Execution) -> bool {
    current().ending.load(Ordering::Relaxed)
        && QUEUE.here().length.load(Ordering::Relaxed) == 0
        && execution.affinity() >> cpu::id() & 1 != 0
}

/// Whether `execution`, a parent by vfork, can wait until its child, which runs here, sleeps or
/// ends; see [`wake_affinity`](super::wake_affinity).
fn returns_here(execution: &Execution) -> bool {
    execution.wake_affinity.returns_here()
        && execution.affinity() >> cpu::id() & 1 != 0
        && execution.policy() == Policy::Other
}

/// Queues `execution` on this CPU, to run when the current one sleeps or ends, or at its next tick.
fn put_behind(execution: Arc<Execution>) {
    let queue = QUEUE.here();
    let mut inner = queue.inner.lock();
    execution.cpu.store(cpu::id() as u32, Ordering::SeqCst);
    let earliest = inner.floor;
    inner.put(queue, execution, earliest, u64::MAX);
}

pub(super) fn start(execution: &Arc<Execution>, here: bool) {
    if !execution.first_start() {
        return;
    }
    let me = cpu::id();
    execution.cpu.store(me as u32, Ordering::Relaxed);
    let here = here && execution.affinity() >> me & 1 != 0;
    if here {
        // The caller is about to wait for it: call no idle CPU to steal it.
        put_into(me, execution.clone(), false);
    } else {
        enqueue_on(choose_cpu(execution), execution.clone(), false);
    }
}

impl Execution {
    /// Makes it runnable if it sleeps; it then checks again the condition it waited for.
    pub fn wake(&self) {
        if self.sleep.wake() {
            enqueue_woken(self.arc());
        }
    }

    /// Sets the interrupted flag without ending a sleep: the attention handler is called when the
    /// execution returns to user mode, and soon if it is there.
    pub fn nudge(&self) {
        self.wanted.fetch_or(trap::INTERRUPTED as u32, Ordering::SeqCst);
        if self.sleep.state() == State::Running {
            let target = self.cpu.load(Ordering::SeqCst) as usize;
            if target == cpu::id() {
                if current().id() == self.id() {
                    attention::raise(trap::INTERRUPTED);
                }
            } else {
                smp::reschedule(target);
            }
        }
    }

    /// Sets the interrupted flag alone. For the current execution, if it does not return to user
    /// mode.
    pub fn note_interrupt(&self) {
        self.wanted.fetch_or(trap::INTERRUPTED as u32, Ordering::SeqCst);
    }

    /// Sets the interrupted flag. An interruptible sleep ends; an execution in user mode soon gets
    /// its attention handler called, on whatever CPU it is.
    pub fn interrupt(&self) {
        self.wanted.fetch_or(trap::INTERRUPTED as u32, Ordering::SeqCst);
        match self.sleep.state() {
            State::Running => {
                let target = self.cpu.load(Ordering::SeqCst) as usize;
                if target == cpu::id() {
                    if current().id() == self.id() {
                        attention::raise(trap::INTERRUPTED);
                    }
                } else {
                    smp::reschedule(target);
                }
            }
            State::Prepared | State::Parked if self.interruptible.load(Ordering::SeqCst) => {
                self.wake()
            }
            _ => {}
        }
    }
}
