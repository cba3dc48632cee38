//! An execution: the part of a thread that the scheduler puts on a processor.
//!
//! Whether it runs, sleeps or waits is one word, [`Sleep`], whose states and rules are described in
//! `hayate_protocols::sleep`.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hayate_abi::Result;
use hayate_machine::context::{Context, Principal};
use hayate_machine::cpu::{self, Here, Local, OfOwner};
use hayate_machine::fpu::FpuState;
use hayate_machine::stack::KernelStack;
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::time;
use hayate_machine::trap::{self, UserRegs, attention};
use hayate_protocols::sleep::{Sleep, State};
use intrusive_collections::{LinkedListAtomicLink, RBTreeAtomicLink};

use super::policy::{GUARDED, NAMESPACES, NO_TSC, Policy, Scheduling, rank_base};
use super::real_time;
use super::timer::Timer;
use super::wake_affinity::WakeAffinity;
use super::weight;
use crate::reclaim;
#[cfg(debug_assertions)]
use crate::reclaim::refusal::Executions;

/// The user thread that an execution runs. It is also the [`Principal`] of the execution's context,
/// which sets the current thread and handles the floating-point state.
pub trait UserThread: Send + Sync {
    /// Loads the page table and the FS and GS bases, as the execution is about to run here. Called
    /// with interrupts off, on the stack of the execution that leaves; must not sleep.
    fn switch_in(&self);
    /// Saves what the registers hold, as the execution is about to stop running here.
    fn switch_out(&self);
    /// Called when a tick found the execution running and has accounted its time, under the same
    /// conditions as `switch_in`.
    fn tick(&self) {}
    /// Whether an interrupt that found the program at `regs` was pending when the gate of
    /// supervisor mode returned to it. Called under the same conditions.
    fn left_gate(&self, _regs: &UserRegs) -> bool {
        false
    }
}

/// Where the memory policy is in [`Execution::own`].
const POLICY_AT: u32 = 32;

/// An execution; see the module.
pub struct Execution {
    id: u64,
    this: Weak<Execution>,
    pub(super) context: Context<Execution>,
    pub(super) thread: Option<Arc<dyn UserThread>>,
    pub(super) work: SpinLock<Option<Box<dyn FnOnce() + Send>>>,
    pub(super) sleep: Sleep,
    /// The CPU it runs on, or ran on last.
    pub(super) cpu: AtomicU32,
    pub(super) affinity: AtomicU64,
    /// Policy in bits 8 to 15, priority in bits 0 to 7, whether that ends with a fork, [`NO_TSC`].
    policy: AtomicU32,
    /// The virtual time is added to this to give the rank (see `policy.rs`).
    pub(super) rank_base: AtomicU64,
    /// It is the idle execution: the flow of control with which its CPU was started.
    pub(super) idle: bool,
    /// The nice value in bits 0 to 7, what `io_priority.rs` keeps in bits 8 to 31, the memory
    /// policy in bits 32 to 47, what `share.rs` keeps above.
    pub(super) own: AtomicU64,
    pub(super) weight: AtomicU32,
    pub(super) virtual_time: AtomicU64,
    /// Nanoseconds on a processor, up to `since`.
    pub(super) run_time: AtomicU64,
    /// When it began to run on its CPU or was last accounted, in monotonic nanoseconds.
    pub(super) since: AtomicU64,
    pub(super) user_ticks: AtomicU64,
    pub(super) system_ticks: AtomicU64,
    /// What was told of its times last: neither ever decreases.
    told_user: AtomicU64,
    told_system: AtomicU64,
    pub(super) voluntary: AtomicU64,
    pub(super) involuntary: AtomicU64,
    /// Attention bits that anyone wants of it: `INTERRUPTED`, `SPENT`, those of
    /// [`Execution::demand`], and `GUARDED` once and for all.
    pub(super) wanted: AtomicU32,
    pub(super) interruptible: AtomicBool,
    /// It is about to exit: an execution that it wakes may take over its CPU.
    pub(super) ending: AtomicBool,
    pub(super) wake_affinity: WakeAffinity,
    /// Attention bits of this execution, kept here while it is off its CPU.
    pub(super) kept_attention: AtomicU64,
    pub(super) wait_link: LinkedListAtomicLink,
    /// Its link in a run queue; `rank` is its key there.
    pub(super) run_link: RBTreeAtomicLink,
    /// The order among those that wait in a run queue: the lowest runs first.
    pub rank: AtomicU64,
    pub(super) alarm: Once<Arc<Timer>>,
    /// Which of its requests for memory are refused: those of this arming
    /// ([`crate::reclaim::refusal`]).
    #[cfg(debug_assertions)]
    arming: AtomicU64,
}

hayate_machine::per_cpu! {
    pub(super) static CURRENT: Local<Execution, OfOwner> = Local::new();
}

/// The execution that runs on this CPU.
#[inline(always)]
pub fn current() -> Here<Execution> {
    running().unwrap_or_else(|| cpu::empty_slot())
}

hayate_machine::read_slot!(
    /// The execution that runs on this CPU; `None` before [`init`](super::init).
    pub(super) fn running = CURRENT: Execution, OfOwner
);

/// The arming of refusals ([`crate::reclaim::refusal`]) to which the execution that runs on this
/// CPU belongs; 0: none. The executions that it starts belong to the same one.
#[cfg(debug_assertions)]
fn arming() -> u64 {
    running().map_or(0, |execution| execution.arming.load(Ordering::Relaxed))
}

/// Makes the execution that runs on this CPU a member of `arming`.
#[cfg(debug_assertions)]
fn set_arming(arming: u64) {
    current().arming.store(arming, Ordering::Relaxed);
}

/// The view that refusals of memory have of executions.
#[cfg(debug_assertions)]
pub static ARMED_EXECUTIONS: Executions =
    Executions { arming, set_arming, current: || current().id() };

/// A counted reference to the execution that runs on this CPU.
pub fn current_arc() -> Arc<Execution> {
    current().arc()
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Execution {
    pub(super) fn with_context(
        context: Context<Execution>,
        thread: Option<Arc<dyn UserThread>>,
        work: Option<Box<dyn FnOnce() + Send>>,
        idle: bool,
    ) -> Arc<Execution> {
        #[cfg(debug_assertions)]
        let arming = AtomicU64::new(if thread.is_some() { arming() } else { 0 });
        Arc::new_cyclic(|this| Execution {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            this: this.clone(),
            context,
            thread,
            work: SpinLock::new(work),
            sleep: Sleep::new(),
            cpu: AtomicU32::new(cpu::id() as u32),
            affinity: AtomicU64::new(u64::MAX),
            policy: AtomicU32::new(0),
            rank_base: AtomicU64::new(rank_base(Policy::Other)),
            idle,
            own: AtomicU64::new(0),
            weight: AtomicU32::new(weight::UNIT),
            virtual_time: AtomicU64::new(0),
            run_time: AtomicU64::new(0),
            since: AtomicU64::new(0),
            user_ticks: AtomicU64::new(0),
            system_ticks: AtomicU64::new(0),
            told_user: AtomicU64::new(0),
            told_system: AtomicU64::new(0),
            voluntary: AtomicU64::new(0),
            involuntary: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            interruptible: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            wake_affinity: WakeAffinity::default(),
            kept_attention: AtomicU64::new(0),
            wait_link: LinkedListAtomicLink::new(),
            run_link: RBTreeAtomicLink::new(),
            rank: AtomicU64::new(0),
            alarm: Once::new(),
            #[cfg(debug_assertions)]
            arming,
        })
    }

    /// Makes an execution that goes to user mode with `regs` and `fpu` when it is
    /// [started](fn@super::start). Fails with ENOMEM if memory for its stack is exhausted.
    pub fn new_user(
        thread: Arc<impl UserThread + Principal>,
        regs: &UserRegs,
        fpu: FpuState,
    ) -> Result<Arc<Execution>> {
        let stack = reclaim::obtain(KernelStack::new)?;
        let context = Context::for_user(stack, regs, fpu, thread.clone());
        Ok(Execution::with_context(context, Some(thread), None, false))
    }

    /// Makes the idle execution of this CPU from the flow of control with which the CPU was
    /// started.
    pub(super) fn new_idle() -> Arc<Execution> {
        let idle = Execution::with_context(Context::running(), None, None, true);
        idle.sleep.run();
        idle
    }

    /// Its number, which is never used again.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A counted reference to it.
    pub fn arc(&self) -> Arc<Execution> {
        self.this.upgrade().expect("an execution in use is owned")
    }

    pub(super) fn weak(&self) -> Weak<Execution> {
        self.this.clone()
    }

    /// Whether it runs a user thread (and is not a kernel or idle execution).
    pub fn is_user(&self) -> bool {
        self.thread.is_some()
    }

    pub(super) fn first_start(&self) -> bool {
        self.sleep.begin()
    }

    /// Marks it as about to exit: an execution it wakes from now on, such as its parent, may wait
    /// for this CPU instead of being sent to an idle one, which takes longer. For the current
    /// execution.
    pub fn begin_end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether it is about to exit.
    pub fn is_at_end(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Notes that it waits for a child to end. If it does so soon after making the child, its next
    /// child begins on its own CPU. For the current execution.
    #[inline]
    pub fn waits_for_child(&self) {
        self.wake_affinity.waits();
    }

    /// Notes that it continues after a vfork. For the current execution.
    #[inline]
    pub fn goes_on(&self) {
        self.wake_affinity.goes_on();
    }

    /// Whether the interrupted flag is set.
    #[inline]
    pub fn is_interrupted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) & trap::INTERRUPTED as u32 != 0
    }

    /// Clears the interrupted flag; the signal code does so before it looks for signals.
    pub fn clear_interrupt(&self) {
        self.wanted.fetch_and(!(trap::INTERRUPTED as u32), Ordering::SeqCst);
        if current().id == self.id {
            attention::clear(trap::INTERRUPTED);
        }
    }

    /// The CPUs it may run on.
    pub fn affinity(&self) -> u64 {
        self.affinity.load(Ordering::Relaxed)
    }

    /// The CPU it runs on, or ran on last.
    pub fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed) as usize
    }

    /// Its nice value.
    pub fn nice(&self) -> i8 {
        self.own.load(Ordering::Relaxed) as i8
    }

    /// Sets its nice value, cut to -20..=19.
    pub fn set_nice(&self, nice: i8) {
        let nice = nice.clamp(-20, 19);
        let set = |word| Some(word & !0xff | u64::from(nice as u8));
        let _ = self.own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        self.weigh();
    }

    /// Its policy.
    pub fn policy(&self) -> Policy {
        Policy::unpack(self.policy.load(Ordering::Relaxed))
    }

    /// Sets its policy, which takes effect when it is next queued.
    pub fn set_policy(&self, policy: Policy) {
        self.set_scheduling(Scheduling { policy, ..self.scheduling() });
    }

    /// How it is scheduled, in the form of [`Scheduling::pack`].
    #[inline]
    pub fn packed_scheduling(&self) -> u64 {
        u64::from(self.own.load(Ordering::Relaxed) as u8) << 32
            | u64::from(self.policy.load(Ordering::Relaxed))
    }

    /// Whether an execution that it makes inherits anything from it beside the processors.
    #[inline]
    pub fn bequeaths(&self) -> bool {
        self.own.load(Ordering::Relaxed) | u64::from(self.policy.load(Ordering::Relaxed)) != 0
    }

    /// Its memory policy, as [`hayate_memory_policy::Policy::pack`] packs it; 0: none.
    pub fn memory_policy(&self) -> u16 {
        (self.own.load(Ordering::Relaxed) >> POLICY_AT) as u16
    }

    /// Sets its memory policy.
    pub fn set_memory_policy(&self, policy: u16) {
        let others = !(0xffff << POLICY_AT);
        let set = |word| Some(word & others | u64::from(policy) << POLICY_AT);
        let _ = self.own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// How it is scheduled.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling::unpack(self.packed_scheduling())
    }

    /// Sets how it is scheduled, which takes effect when it is next queued.
    pub fn set_scheduling(&self, new: Scheduling) {
        if matches!(new.policy, Policy::Fifo(_) | Policy::RoundRobin(_)) {
            real_time::note();
        }
        self.set_nice(new.nice);
        let packed = |old| Some(new.pack() as u32 | old & (NO_TSC | GUARDED | NAMESPACES));
        let _ = self.policy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, packed);
        self.rank_base.store(rank_base(new.policy), Ordering::Relaxed);
    }

    /// Whether its program may read the time stamp counter.
    pub fn may_read_tsc(&self) -> bool {
        self.policy.load(Ordering::Relaxed) & NO_TSC == 0
    }

    /// Sets whether its program may read the time stamp counter. For the current execution.
    pub fn let_read_tsc(&self, may: bool) {
        if may {
            self.policy.fetch_and(!NO_TSC, Ordering::Relaxed);
            attention::clear(trap::NO_TSC);
            cpu::allow_tsc();
        } else {
            self.policy.fetch_or(NO_TSC, Ordering::Relaxed);
            attention::raise(trap::NO_TSC);
        }
    }

    /// Takes the right to read the time stamp counter from an execution that is not started yet.
    pub fn starts_without_tsc(&self) {
        self.policy.fetch_or(NO_TSC, Ordering::Relaxed);
        self.kept_attention.fetch_or(trap::NO_TSC, Ordering::Relaxed);
    }

    /// Lets its system calls be looked at from now on: for good, as that is what filters need. If
    /// it runs on another processor, that is to [look](hayate_machine::smp::look_again).
    pub fn guard(&self) {
        self.policy.fetch_or(GUARDED, Ordering::Relaxed);
        self.wanted.fetch_or(trap::GUARDED as u32, Ordering::SeqCst);
        if current().id == self.id {
            attention::raise(trap::GUARDED);
        }
    }

    /// Raises attention bits of the kernel's own for it when it is looked at or switched to next. If
    /// it runs on another processor, that is to [look](hayate_machine::smp::look_again).
    pub fn demand(&self, bits: u64) {
        self.wanted.fetch_or(bits as u32, Ordering::SeqCst);
    }

    /// Whether one of these bits was demanded since this was asked last. For the current execution.
    pub fn take_demand(&self, bits: u64) -> bool {
        let bits = bits as u32;
        self.wanted.load(Ordering::SeqCst) & bits != 0
            && self.wanted.fetch_and(!bits, Ordering::SeqCst) & bits != 0
    }

    /// Whether its system calls are looked at.
    pub fn is_guarded(&self) -> bool {
        self.policy.load(Ordering::Relaxed) & GUARDED != 0
    }

    /// Notes that its thread is in other namespaces than the first, and so are those it makes.
    pub fn note_namespaces(&self) {
        self.policy.fetch_or(NAMESPACES, Ordering::Relaxed);
    }

    /// Nanoseconds it has run on processors.
    pub fn run_time(&self) -> u64 {
        self.run_time_at(time::monotonic_ns())
    }

    /// Like [`run_time`](Self::run_time), with `now` as the time of a clock that was read a moment
    /// ago.
    pub fn run_time_at(&self, now: u64) -> u64 {
        let counted = self.run_time.load(Ordering::Relaxed);
        if self.sleep.is_running() {
            counted + now.saturating_sub(self.since.load(Ordering::Relaxed))
        } else {
            counted
        }
    }

    /// The run time divided into (user, system) in the proportion in which ticks found it in each.
    /// Neither is ever less than before (`cputime_adjust`, kernel/sched/cputime.c of Linux).
    pub fn user_system_time(&self) -> (u64, u64) {
        let total = self.run_time();
        let system = self.system_ticks.load(Ordering::Relaxed);
        if system == 0 {
            self.told_user.fetch_max(total, Ordering::Relaxed);
            return (total, 0);
        }
        self.divide(total, system)
    }

    #[cold]
    fn divide(&self, total: u64, system: u64) -> (u64, u64) {
        let ticks = self.user_ticks.load(Ordering::Relaxed) + system;
        let system = (u128::from(total) * u128::from(system) / u128::from(ticks)) as u64;
        let told_user = self.told_user.load(Ordering::Relaxed);
        let told_system = self.told_system.load(Ordering::Relaxed);
        let system = system.min(total.saturating_sub(told_user)).max(told_system);
        let user = total.saturating_sub(system).max(told_user);
        self.told_user.fetch_max(user, Ordering::Relaxed);
        self.told_system.fetch_max(system, Ordering::Relaxed);
        (user, system)
    }

    /// How often it gave up its CPU: (voluntarily, preempted).
    pub fn switches(&self) -> (u64, u64) {
        (self.voluntary.load(Ordering::Relaxed), self.involuntary.load(Ordering::Relaxed))
    }

    /// Whether it runs or waits for a CPU (state R in /proc).
    pub fn is_runnable(&self) -> bool {
        matches!(self.sleep.state(), State::Running | State::Runnable | State::Woken)
    }

    /// Whether it sleeps interruptibly (state S in /proc; else D).
    pub fn is_interruptible(&self) -> bool {
        self.interruptible.load(Ordering::Relaxed)
    }
}
