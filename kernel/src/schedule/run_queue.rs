//! Run queues: which execution a CPU runs next, and the switch to it.
//!
//! Each CPU has a heap of runnable executions ordered by rank: real-time priority first, then
//! virtual run time. Who wakes chooses the CPU: the one the sleeper last ran on if it is idle, else
//! any idle one, else the last one again; but who wakes while it exits leaves its own CPU to the
//! sleeper (the parent that waits for it), which is free before an idle one has come to. A CPU that
//! runs dry steals; a busy one looks at each tick
//! whether another queue is longer by two.
//!
//! Between `switch` and [`arrived`] the execution that left is in `previous`: only then, on the
//! other stack, may anyone else run it or free its stack.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use core::cmp::Reverse;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_machine::context;
use hayate_machine::cpu::{self, Here, Local, PerCpu};
use hayate_machine::paging::teardown;
use hayate_machine::per_cpu;
use hayate_machine::smp;
use hayate_machine::sync::SpinLock;
use hayate_machine::time;
use hayate_machine::trap::{self, UserRegs, attention};

use super::execution::{DEAD, Execution, PARKED, PREPARED, Policy, RUNNABLE, RUNNING, WOKEN};
use super::real_time::{self, Share, Turn};
use super::statistics;
use super::steal::steal;
use super::timer;
use super::weight;

/// How long an execution runs while others wait, and how often a running one is looked at.
pub const SLICE_NS: u64 = 4_000_000;
const LONE_TICK: u64 = 10_000_000;
/// A sleeper comes back at most this much (of virtual time) before the others...
const SLEEPER_BONUS: u64 = 3_000_000;
/// ...and takes the CPU from a running one only if it is this much before it.
const WAKE_GRANULARITY: u64 = 1_000_000;
/// Ranks: real-time below, ordinary from here, SCHED_IDLE from `IDLE_RANK`.
const FAIR_RANK: u64 = 1 << 48;
const IDLE_RANK: u64 = 1 << 62;

pub(super) struct Entry {
    pub(super) rank: u64,
    pub(super) execution: Arc<Execution>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

pub(super) struct Inner {
    pub(super) waiting: BinaryHeap<Reverse<Entry>>,
    running: Option<Arc<Execution>>,
    previous: Option<Arc<Execution>>,
    idle: Option<Arc<Execution>>,
    /// No ordinary execution here has had less virtual time.
    pub(super) floor: u64,
    sequence: u64,
    /// What real-time executions leave to the others.
    share: Share,
}

pub(super) struct RunQueue {
    pub(super) inner: SpinLock<Inner>,
    /// Length of `waiting`.
    pub(super) length: AtomicUsize,
    /// Rank of the running execution (`u64::MAX`: idle).
    pub(super) rank: AtomicU64,
    /// When the tick of the running execution is due.
    tick: AtomicU64,
    pub(super) switches: AtomicU64,
    pub(super) idle_ns: AtomicU64,
    /// Ticks that found user code, and that came due in the kernel.
    pub(super) user_ticks: AtomicU64,
    pub(super) system_ticks: AtomicU64,
}

per_cpu! {
    pub(super) static QUEUE: PerCpu<RunQueue> = PerCpu::new(RunQueue {
        inner: SpinLock::new(Inner {
            waiting: BinaryHeap::new(),
            running: None,
            previous: None,
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
    static CURRENT: Local<Execution> = Local::new();
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
    fn running = CURRENT: Execution
);

/// The execution that runs here, counted.
pub fn current_arc() -> Arc<Execution> {
    current().arc()
}

/// Makes the flow of control this CPU was started with its idle execution.
pub fn init() {
    let idle = Execution::new_idle();
    CURRENT.lend(&idle);
    let mut inner = QUEUE.here().inner.lock();
    inner.waiting.reserve(64);
    inner.running = Some(idle.clone());
    inner.idle = Some(idle);
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

#[inline]
fn rank_of(execution: &Execution, sequence: u64) -> u64 {
    let base = execution.rank_base.load(Ordering::Relaxed);
    if base >= FAIR_RANK {
        base + execution.virtual_time.load(Ordering::Relaxed)
    } else {
        base | sequence & ((1 << 40) - 1)
    }
}

/// Adds the time since the last accounting to the execution that runs here.
fn account(execution: &Execution, now: u64) {
    let since = execution.since.swap(now, Ordering::Relaxed);
    let spent = now.saturating_sub(since);
    execution.run_time.fetch_add(spent, Ordering::Relaxed);
    let weight = execution.weight.load(Ordering::Relaxed);
    let charged = if weight == weight::UNIT {
        spent
    } else {
        spent * u64::from(weight::UNIT) / u64::from(weight)
    };
    execution.virtual_time.fetch_add(charged, Ordering::Relaxed);
}

/// Puts `execution` into CPU `target`'s queue and makes that CPU look if it should; if it is busy,
/// an idle one.
fn enqueue_on(target: usize, execution: Arc<Execution>, woken: bool) {
    let allowed = execution.affinity();
    if put_into(target, execution, woken) {
        // One that went idle after the CPU was chosen has looked at this queue before the entry was
        // in it, and sleeps: the order here (store the length, load IDLE) is the reverse of its own.
        let idle = IDLE.load(Ordering::SeqCst) & allowed;
        if idle != 0 {
            smp::reschedule(idle.trailing_zeros() as usize);
        }
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
        let latest = inner.floor.saturating_add(10 * SLICE_NS);
        let own = execution.virtual_time.load(Ordering::Relaxed);
        execution.virtual_time.store(own.clamp(earliest, latest), Ordering::Relaxed);
        execution.cpu.store(target as u32, Ordering::SeqCst);
        inner.sequence += 1;
        rank = rank_of(&execution, inner.sequence);
        inner.waiting.push(Reverse(Entry { rank, execution }));
        queue.length.store(inner.waiting.len(), Ordering::SeqCst);
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
fn choose_cpu(execution: &Execution) -> usize {
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
        let own = execution.virtual_time.load(Ordering::Relaxed);
        execution.virtual_time.store(own.max(inner.floor), Ordering::Relaxed);
        execution.cpu.store(cpu::id() as u32, Ordering::SeqCst);
        inner.sequence += 1;
        let rank = rank_of(&execution, inner.sequence);
        inner.waiting.push(Reverse(Entry { rank, execution }));
        queue.length.store(inner.waiting.len(), Ordering::SeqCst);
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

/// Takes this CPU's first entry. One that may not run here any more is put into `stray`, to be
/// queued elsewhere when the lock is released.
fn take_own(
    inner: &mut Inner,
    queue: &RunQueue,
    me: usize,
    stray: &mut Option<Arc<Execution>>,
) -> Option<Arc<Execution>> {
    let mut found = None;
    while let Some(Reverse(entry)) = inner.waiting.pop() {
        if entry.execution.affinity() >> me & 1 != 0 {
            found = Some(entry.execution);
            break;
        }
        if stray.is_some() {
            // The next time; it is there to be seen.
            inner.waiting.push(Reverse(entry));
            break;
        }
        *stray = Some(entry.execution);
    }
    queue.length.store(inner.waiting.len(), Ordering::SeqCst);
    found
}

/// Chooses the next execution and switches to it. The state of the current one says why it leaves:
/// RUNNING (it stays runnable), PREPARED (it sleeps), DEAD. Returns when it runs again, or at once
/// if nothing better is there.
pub(super) fn reschedule(yielding: bool) {
    let me = cpu::id();
    let queue = QUEUE.here();
    let prev = current();
    let now = time::monotonic_ns();
    attention::clear(trap::RESCHEDULE);
    if prev.is_interrupted() {
        attention::raise(trap::INTERRUPTED);
    }
    account(&prev, now);
    let stays = prev.state.load(Ordering::SeqCst) == RUNNING;
    let welcome = prev.affinity() >> me & 1 != 0;
    let mut stolen = None;
    if queue.length.load(Ordering::Relaxed) == 0 && (!stays || !welcome || !prev.is_user()) {
        stolen = steal(0);
    }
    if real_time::exist() && stolen.is_none() {
        match due_share(queue, &prev, stays && welcome && !prev.idle, now) {
            Due::Nothing => {}
            Due::Stay => return set_tick(queue, now),
            Due::Next(execution) => stolen = Some(execution),
        }
    }
    let mut stray = None;
    let next = choose(queue, &prev, stays, yielding, welcome, stolen, &mut stray);
    if let Some(stray) = stray {
        enqueue_on(choose_cpu(&stray), stray, false);
    }
    let Some(next) = next else {
        return set_tick(queue, now);
    };
    next.since.store(now, Ordering::Relaxed);
    queue.switches.fetch_add(1, Ordering::Relaxed);
    let counter = if stays { &prev.involuntary } else { &prev.voluntary };
    counter.fetch_add(1, Ordering::Relaxed);
    prev.kept_attention.store(attention::get() & !trap::RESCHEDULE, Ordering::Relaxed);
    attention::clear(u64::MAX);
    let mut wanted = next.kept_attention.load(Ordering::Relaxed);
    if next.is_interrupted() {
        wanted |= trap::INTERRUPTED;
    }
    attention::raise(wanted);
    set_tick(queue, now);
    if let Some(agent) = &prev.agent {
        agent.leave();
    }
    if let Some(agent) = &next.agent {
        agent.enter();
    }
    context::switch(&prev.context, &next.context);
    arrived();
}

/// What the share of ordinary executions asks for.
enum Due {
    Nothing,
    /// The one that runs goes on, though a real-time one ranks before it.
    Stay,
    /// This one comes before those that rank before it. It is in no queue any more.
    Next(Arc<Execution>),
}

/// Whether an ordinary execution must run here now although a real-time one is there; `stays` tells
/// whether the current one may go on.
#[cold]
fn due_share(queue: &RunQueue, prev: &Execution, stays: bool, now: u64) -> Due {
    let me = cpu::id();
    let mut inner = queue.inner.lock();
    let real = prev.rank_base.load(Ordering::Relaxed) < FAIR_RANK;
    let first = inner.waiting.peek().is_some_and(|first| first.0.rank < FAIR_RANK);
    let may = |entry: &&Reverse<Entry>| {
        entry.0.rank >= FAIR_RANK && entry.0.execution.affinity() >> me & 1 != 0
    };
    let ordinary = inner.waiting.iter().filter(may).min_by_key(|entry| entry.0.rank);
    let ordinary = ordinary.map(|entry| entry.0.execution.clone());
    let others = ordinary.is_some() || stays && !real;
    match (inner.share.turn(now, real, first || stays && real, others), ordinary) {
        (Turn::First, _) => Due::Nothing,
        (Turn::Ordinary, _) if stays && !real => Due::Stay,
        (Turn::Ordinary, None) => Due::Nothing,
        (Turn::Ordinary, Some(execution)) => {
            inner.waiting.retain(|entry| !Arc::ptr_eq(&entry.0.execution, &execution));
            queue.length.store(inner.waiting.len(), Ordering::SeqCst);
            Due::Next(execution)
        }
    }
}

/// Decides what runs next, and makes it current: `None` if that is what runs now.
#[inline(always)]
fn choose(
    queue: &RunQueue,
    prev: &Execution,
    stays: bool,
    yielding: bool,
    welcome: bool,
    stolen: Option<Arc<Execution>>,
    stray: &mut Option<Arc<Execution>>,
) -> Option<Here<Execution>> {
    let me = cpu::id();
    let mut inner = queue.inner.lock();
    let is_idle = prev.idle;
    if stays && !is_idle {
        inner.sequence += 1;
        // A FIFO execution makes room for its equals only when it says so.
        let keeps = !yielding && matches!(prev.policy(), Policy::Fifo(_));
        let own = rank_of(prev, if keeps { 0 } else { inner.sequence });
        queue.rank.store(own, Ordering::SeqCst);
        let better = inner.waiting.peek().is_some_and(|first| first.0.rank < own);
        if welcome && !better && stolen.is_none() {
            let virtual_time = prev.virtual_time.load(Ordering::Relaxed);
            inner.floor = inner.floor.max(virtual_time.min(own.saturating_sub(FAIR_RANK)));
            return None;
        }
    }
    let chosen = match stolen {
        Some(execution) => Some(execution),
        None => take_own(&mut inner, queue, me, stray),
    };
    let chosen = match chosen {
        Some(execution) => execution,
        None if is_idle || stays && welcome => return None,
        None => inner.idle.clone().expect("every CPU has an idle execution"),
    };
    inner.sequence += 1;
    let rank = if chosen.idle { u64::MAX } else { rank_of(&chosen, inner.sequence) };
    queue.rank.store(rank, Ordering::SeqCst);
    if (FAIR_RANK..IDLE_RANK).contains(&rank) {
        inner.floor = inner.floor.max(rank - FAIR_RANK);
    }
    chosen.cpu.store(me as u32, Ordering::SeqCst);
    chosen.state.store(RUNNING, Ordering::SeqCst);
    CURRENT.lend(&chosen);
    let leaving = inner.running.replace(chosen);
    inner.previous = leaving;
    Some(current())
}

/// Runs on the new stack after every switch: settles the execution that left.
pub(super) extern "C" fn arrived() {
    let Some(left) = QUEUE.here().inner.lock().previous.take() else { return };
    let mut seen = left.state.load(Ordering::SeqCst);
    loop {
        let next = match seen {
            RUNNING | WOKEN => RUNNABLE,
            PREPARED => PARKED,
            DEAD => return drop(left),
            _ => return,
        };
        match left.state.compare_exchange(seen, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(PREPARED) => return drop(left),
            Ok(_) => break,
            Err(other) => seen = other,
        }
    }
    if left.idle {
        left.state.store(RUNNABLE, Ordering::SeqCst);
        return;
    }
    let me = cpu::id();
    let target = if left.affinity() >> me & 1 != 0 { me } else { choose_cpu(&left) };
    enqueue_on(target, left, seen == WOKEN);
}

/// Decides when this CPU must be interrupted next.
fn set_tick(queue: &RunQueue, now: u64) {
    let tick = if queue.rank.load(Ordering::Relaxed) == u64::MAX {
        u64::MAX
    } else if queue.length.load(Ordering::Relaxed) != 0 {
        now + SLICE_NS
    } else {
        now + LONE_TICK
    };
    queue.tick.store(tick, Ordering::Relaxed);
    time::set_timer_before(tick.min(timer::first_deadline()));
}

/// Gives other executions of the same rank a chance.
pub fn yield_now() {
    let me = current();
    let now = time::monotonic_ns();
    account(&me, now);
    {
        // Behind the first of those who wait (as Linux' CFS without a buddy: a hint, not a promise).
        let inner = QUEUE.here().inner.lock();
        if let Some(Reverse(first)) = inner.waiting.peek()
            && first.rank >= FAIR_RANK
        {
            let target = (first.rank - FAIR_RANK).saturating_add(1);
            if first.rank < IDLE_RANK {
                me.virtual_time.fetch_max(target, Ordering::Relaxed);
            }
        }
    }
    reschedule(true);
}

/// Sleeps: the state is PREPARED (or WOKEN by now). Returns with state RUNNING.
pub(super) fn park() {
    let me = current();
    if me.state.load(Ordering::SeqCst) == PREPARED {
        reschedule(false);
    }
    me.state.store(RUNNING, Ordering::SeqCst);
}

/// Ends the current execution.
pub fn exit_current() -> ! {
    current().state.store(DEAD, Ordering::SeqCst);
    reschedule(false);
    panic!("a dead execution was continued")
}

/// The scheduler's part of the attention before a return to user mode.
pub fn attend() {
    if attention::get() & trap::RESCHEDULE != 0 {
        reschedule(false);
    }
}

/// For long loops of system calls: lets interrupts in, and others run whose turn it is. The caller
/// holds no spin lock. Says whether a signal waits for the current execution, so that a call that has
/// done a part of its work may end with that.
pub fn breathe() -> bool {
    cpu::interrupt_window();
    attend();
    current().is_interrupted()
}

/// The timer interrupt.
pub fn tick(regs: Option<&mut UserRegs>) {
    timer::run_expired();
    let queue = QUEUE.here();
    let now = time::monotonic_ns();
    let me = current();
    if queue.tick.load(Ordering::Relaxed) <= now {
        if let Some(regs) = regs {
            // Interrupts are off in the kernel: one that was due there arrives at the first
            // instruction after it, where rcx still holds the address `sysret` returned to.
            let (own, all) = if regs.rcx == regs.rip {
                (&me.system_ticks, &queue.system_ticks)
            } else {
                (&me.user_ticks, &queue.user_ticks)
            };
            own.fetch_add(1, Ordering::Relaxed);
            all.fetch_add(1, Ordering::Relaxed);
        }
        account(&me, now);
        if let Some(agent) = &me.agent {
            agent.tick();
        }
        statistics::update_load(now);
        let own = queue.length.load(Ordering::Relaxed);
        if cpu::count() > 1
            && let Some(stolen) = steal(own + 1)
        {
            enqueue_on(cpu::id(), stolen, false);
        }
        if queue.length.load(Ordering::Relaxed) != 0 {
            attention::raise(trap::RESCHEDULE);
        }
        // Somebody waits here while a CPU sleeps: it shall come and steal. Or ended programs owe
        // frames, of which nobody told it: it has time to give them back.
        if queue.length.load(Ordering::Relaxed) != 0 || teardown::owed() != 0 {
            let idle = IDLE.load(Ordering::SeqCst);
            if idle != 0 {
                smp::reschedule(idle.trailing_zeros() as usize);
            }
        }
        set_tick(queue, now);
    }
    time::set_timer_before(queue.tick.load(Ordering::Relaxed).min(timer::first_deadline()));
}
