//! Which execution runs next on a CPU, the context switch to it, and the tick.
//!
//! The context switch hands the execution that left over to [`arrived`]. Only there, on the other
//! stack, may another CPU run it or free its stack.
//!
//! Only its own CPU adds up what an execution has consumed, so plain loads and stores are enough;
//! other CPUs read the sums.
//!
//! **Ticks** come at times that are the same for all CPUs, a slice apart, while one is not idle.
//! Each is a sample: did it find the program's code or the kernel's (`account_process_tick` of
//! Linux)? Times that no execution chooses are needed for that: if a tick came a slice after the
//! switch to an execution, one that sleeps earlier would never be seen. Interrupts are off in the
//! kernel, so a tick that becomes due there is taken in one of three places: in a window; at the
//! first instruction of the program, which the address tells (`returns_from_kernel`); or at a
//! switch. Neither system calls nor faults read a clock for this.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::context;
use hayate_machine::cpu;
use hayate_machine::paging::teardown;
use hayate_machine::smp;
use hayate_machine::time;
use hayate_machine::trap::{self, UserRegs, attention};
use hayate_protocols::sleep::Left;

use super::execution::{CURRENT, Execution, current};
use super::look::look;
use super::policy::{FAIR_RANK, IDLE_RANK, Policy};
use super::real_time;
use super::real_time::Turn;
use super::run_queue::{IDLE, Inner, QUEUE, RunQueue, SLICE_NS, call_idle, choose_cpu, enqueue_on};
use super::share;
use super::statistics;
use super::steal::steal;
use super::timer;
use super::weight;

hayate_machine::owner!(Execution, context, CURRENT, arrived);

/// Adds the time since the last accounting to the execution that runs here.
fn account(execution: &Execution, now: u64) {
    let spent = now.saturating_sub(execution.since.load(Ordering::Relaxed));
    execution.since.store(now, Ordering::Relaxed);
    add(&execution.run_time, spent);
    let is_usual = execution.weight.load(Ordering::Relaxed) == weight::UNIT;
    let charged = if is_usual { spent } else { share::charge(execution, now, spent) };
    add(&execution.virtual_time, charged);
}

/// Adds to a sum that only this CPU changes.
#[inline(always)]
fn add(sum: &AtomicU64, more: u64) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Takes the first execution of this CPU's queue. An execution that may not run here any more is
/// put into `stray`, to be queued elsewhere when the lock is released.
fn take_own(
    inner: &mut Inner,
    queue: &RunQueue,
    me: usize,
    stray: &mut Option<Arc<Execution>>,
) -> Option<Arc<Execution>> {
    let mut found = None;
    while let Some(first) = inner.waiting.take_first() {
        if first.affinity() >> me & 1 != 0 {
            found = Some(first);
            break;
        }
        if stray.is_some() {
            // Only one stray at a time. This one stays in the queue, so that the next call finds
            // it.
            let rank = first.rank.load(Ordering::Relaxed);
            inner.waiting.put(rank, first);
            break;
        }
        *stray = Some(first);
    }
    queue.length.store(inner.waiting.length(), Ordering::SeqCst);
    found
}

/// Chooses the next execution and switches to it. The state of the current one says why it leaves:
/// RUNNING (it stays runnable), PREPARED (it sleeps), DEAD. Returns when the current one runs
/// again, or at once if it should go on.
pub(super) fn reschedule(yielding: bool) {
    let me = cpu::id();
    let queue = QUEUE.here();
    let prev = current();
    let now = time::monotonic_ns();
    attention::clear(trap::RESCHEDULE);
    let wanted = prev.wanted.load(Ordering::SeqCst);
    if wanted != 0 {
        attention::raise(wanted.into());
    }
    account(&prev, now);
    if queue.tick.load(Ordering::Relaxed) <= now {
        // It became due in the kernel, and is not taken before this execution leaves.
        sample(queue, &prev, now, true);
    }
    let stays = prev.sleep.is_running();
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
    add(&queue.switches, 1);
    add(if stays { &prev.involuntary } else { &prev.voluntary }, 1);
    prev.kept_attention.store(attention::get() & !trap::RESCHEDULE, Ordering::Relaxed);
    attention::clear(u64::MAX);
    let wanted = u64::from(next.wanted.load(Ordering::SeqCst));
    attention::raise(wanted | next.kept_attention.load(Ordering::Relaxed));
    set_tick(queue, now);
    if let Some(thread) = &prev.thread {
        thread.switch_out();
    }
    if let Some(thread) = &next.thread {
        thread.switch_in();
    }
    arrived(context::switch(next));
}

/// The demand of the ordinary executions' share.
enum Due {
    Nothing,
    /// The running execution goes on, though a real-time one ranks before it.
    Stay,
    /// This execution runs, although others rank before it. It is in no queue any more.
    Next(Arc<Execution>),
}

/// Whether an ordinary execution must run here now although a real-time one could; `stays` tells
/// whether the current one may go on.
#[cold]
fn due_share(queue: &RunQueue, prev: &Execution, stays: bool, now: u64) -> Due {
    let me = cpu::id();
    let mut inner = queue.inner.lock();
    let real = prev.rank_base.load(Ordering::Relaxed) < FAIR_RANK;
    let first = inner.waiting.first_rank().is_some_and(|rank| rank < FAIR_RANK);
    let others = stays && !real || inner.waiting.has_allowed(me, FAIR_RANK);
    match inner.share.turn(now, real, first || stays && real, others) {
        Turn::First => Due::Nothing,
        Turn::Ordinary if stays && !real => Due::Stay,
        Turn::Ordinary => {
            let ordinary = inner.waiting.take_allowed(me, FAIR_RANK);
            queue.length.store(inner.waiting.length(), Ordering::SeqCst);
            ordinary.map_or(Due::Nothing, Due::Next)
        }
    }
}

/// Decides what runs next and marks it running. `None` if the current execution goes on.
#[inline(always)]
fn choose(
    queue: &RunQueue,
    prev: &Execution,
    stays: bool,
    yielding: bool,
    welcome: bool,
    stolen: Option<Arc<Execution>>,
    stray: &mut Option<Arc<Execution>>,
) -> Option<Arc<Execution>> {
    let me = cpu::id();
    let mut inner = queue.inner.lock();
    let is_idle = prev.idle;
    if stays && !is_idle {
        let first = inner.waiting.first_rank();
        if yielding {
            step_behind(prev, first);
        }
        // A FIFO execution makes room for others of its priority only when it yields.
        let keeps = !yielding && matches!(prev.policy(), Policy::Fifo(_));
        let own = inner.rank_now(prev, keeps);
        queue.rank.store(own, Ordering::SeqCst);
        let better = first.is_some_and(|first| first < own);
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
    let rank = if chosen.idle { u64::MAX } else { inner.rank_now(&chosen, false) };
    queue.rank.store(rank, Ordering::SeqCst);
    if (FAIR_RANK..IDLE_RANK).contains(&rank) {
        inner.floor = inner.floor.max(rank - FAIR_RANK);
    }
    chosen.cpu.store(me as u32, Ordering::SeqCst);
    chosen.sleep.run();
    Some(chosen)
}

/// Puts an execution that yields behind the first waiting one (like Linux' CFS without a buddy: a
/// hint, not a promise).
#[inline(always)]
fn step_behind(yielder: &Execution, first: Option<u64>) {
    if let Some(first) = first
        && (FAIR_RANK..IDLE_RANK).contains(&first)
    {
        let own = yielder.virtual_time.load(Ordering::Relaxed);
        yielder.virtual_time.store(own.max(first - FAIR_RANK + 1), Ordering::Relaxed);
    }
}

/// Runs on the new stack after every switch and requeues the execution that left, if it is
/// runnable.
pub(super) fn arrived(left: Arc<Execution>) {
    let queue = QUEUE.here();
    let mut inner = queue.inner.lock();
    let allowed = left.affinity();
    // It did not sleep, so no other CPU changes its state: it waits here for its next turn. The
    // tick was already set for that.
    if left.sleep.is_running() && !left.idle && allowed >> cpu::id() & 1 != 0 {
        left.sleep.preempt();
        let (earliest, latest) = (inner.floor, inner.latest_of(&left));
        inner.put(queue, left, earliest, latest);
        drop(inner);
        return call_idle(allowed);
    }
    drop(inner);
    settle(left);
}

/// The rest of [`arrived`], for an execution that slept, ended, or must go to another CPU.
fn settle(left: Arc<Execution>) {
    let how = left.sleep.leave();
    let is_runnable = matches!(how, Left::Preempted | Left::Woken);
    if !is_runnable || left.idle {
        return;
    }
    let me = cpu::id();
    let target = if left.affinity() >> me & 1 != 0 { me } else { choose_cpu(&left) };
    enqueue_on(target, left, how == Left::Woken);
}

/// Sets when this CPU must be interrupted next.
#[inline(always)]
fn set_tick(queue: &RunQueue, now: u64) {
    let tick = if queue.rank.load(Ordering::Relaxed) == u64::MAX {
        u64::MAX
    } else {
        let mut next = queue.next_sample.load(Ordering::Relaxed);
        if next <= now {
            next = now - now % SLICE_NS + SLICE_NS;
            queue.next_sample.store(next, Ordering::Relaxed);
        }
        next
    };
    queue.tick.store(tick, Ordering::Relaxed);
    time::set_timer_before(tick.min(timer::first_deadline()));
}

/// Counts the samples that were due until `now`, for the kernel or for the program.
#[cold]
fn sample(queue: &RunQueue, execution: &Execution, now: u64, in_kernel: bool) {
    let due = queue.tick.load(Ordering::Relaxed);
    if execution.idle || now < due {
        return;
    }
    let count = (now - due) / SLICE_NS + 1;
    let (own, all) = if in_kernel {
        (&execution.system_ticks, &queue.system_ticks)
    } else if execution.nice() > 0 {
        (&execution.user_ticks, &queue.nice_ticks)
    } else {
        (&execution.user_ticks, &queue.user_ticks)
    };
    add(own, count);
    add(all, count);
}

/// Whether an interrupt that found a program at `regs` was pending when the kernel returned to it.
fn returns_from_kernel(execution: &Execution, regs: &UserRegs) -> bool {
    // After a page fault the instruction is repeated. Where another execution or a signal comes in
    // between, or a loop comes back to the instruction, one sample is wrong.
    if trap::take_last_fault() == regs.rip {
        return true;
    }
    // `sysret` leaves the address to which it returns in rcx.
    if regs.rcx == regs.rip {
        return true;
    }
    execution.thread.as_ref().is_some_and(|thread| thread.left_gate(regs))
}

/// Lets other executions of the same rank run.
pub fn yield_now() {
    reschedule(true);
}

/// Sleeps. The state is PREPARED, or already WOKEN; it is RUNNING on return.
pub(super) fn park() {
    let me = current();
    if me.sleep.is_prepared() {
        reschedule(false);
    }
    me.sleep.run();
}

/// Ends the current execution.
pub fn exit_current() -> ! {
    current().sleep.die();
    reschedule(false);
    panic!("a dead execution was continued")
}

/// Handles the scheduler's attention bit before a return to user mode.
pub fn attend() {
    if attention::get() & trap::RESCHEDULE != 0 {
        reschedule(false);
    }
}

/// Takes pending interrupts and lets other executions run, in long loops of system calls. The
/// caller holds no spin lock. Returns whether the current execution is interrupted by a signal, so
/// that a call that has done a part of its work can return that part.
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
        let in_kernel = regs.is_none_or(|regs| returns_from_kernel(&me, regs));
        sample(queue, &me, now, in_kernel);
        account(&me, now);
        if me.group() != 0 {
            share::tick(&me, queue);
        }
        if let Some(thread) = &me.thread {
            thread.tick();
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
        // An execution waits here while another CPU sleeps: wake that CPU so that it steals. Or
        // frames of ended programs wait for their deferred free, of which an idle CPU is not told:
        // wake it to free them.
        if queue.length.load(Ordering::Relaxed) != 0 || teardown::pending() != 0 {
            let idle = IDLE.load(Ordering::SeqCst);
            if idle != 0 {
                smp::reschedule(idle.trailing_zeros() as usize);
            }
        }
        look();
        set_tick(queue, now);
    }
    time::set_timer_before(queue.tick.load(Ordering::Relaxed).min(timer::first_deadline()));
}

impl Execution {
    /// Restricts it to the CPUs of `mask`. Fails with EINVAL if none of them is online.
    pub fn set_affinity(&self, mask: u64) -> Result<()> {
        if mask & cpu::online_mask() == 0 {
            return Err(Errno::EINVAL);
        }
        self.affinity.store(mask, Ordering::SeqCst);
        let on = self.cpu.load(Ordering::SeqCst) as usize;
        if mask >> on & 1 == 0 && self.sleep.is_running() {
            if on == cpu::id() && current().id() == self.id() {
                // Leave at once, so that the caller of sched_setaffinity returns on an allowed CPU.
                yield_now();
            } else {
                smp::reschedule(on);
            }
        }
        Ok(())
    }
}
