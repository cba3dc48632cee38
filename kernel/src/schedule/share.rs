//! Groups of executions that share processor time (the controller `cpu` of control groups).
//!
//! A group is a number, which its executions have in a word that a fork reads anyway
//! ([`Execution::group`]), and an entry of a table here with its weight and its limit. The rules
//! are in [`hayate_cgroup_rules::share`] and [`hayate_cgroup_rules::bandwidth`].
//!
//! **Nobody else pays.** The weight of an execution in a group has the bit [`GROUPED`], so the
//! accounting of time, which compares the weight with the usual one anyway, takes another way for
//! it. Ticks look at the group of what they find.
//!
//! **Weight.** Only the time of the execution that runs is counted, so only its weight is needed. A
//! tick finds it out from what waits on its processor. If the outermost group runs on several
//! processors, it has a part of its weight on each.
//!
//! **Limits.** The time that an execution ran is charged, at each tick and switch, to its group and
//! to those around it that have a limit. When one has nothing left, a tick marks what it finds on
//! its processor, and what waits there, with [`SPENT`](trap::SPENT): these rest on their way
//! back to user mode. An execution that wakes up elsewhere meanwhile runs until its next tick.
//! What is used beyond the limit is a debt.
//!
//! Locks: the lock of a group's account is a leaf, taken with interrupts off and under a run
//! queue's lock. Groups come and go under [`CHANGES`].

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::bandwidth::{Bandwidth, Limit, NO_QUOTA, Told};
use hayate_cgroup_rules::share::{self, Competitor, FINE, Shares, Tree};
use hayate_machine::cpu;
use hayate_machine::sync::SpinLock;
use hayate_machine::time;
use hayate_machine::trap::{self, attention};

use super::execution::Execution;
use super::policy::FAIR_RANK;
use super::run_queue::{QUEUE, RunQueue};
use super::weight::{UNIT, weight};
use crate::reclaim::numbered::Numbered;

/// The bit of an execution's weight that says that it is in a group. The others are in parts of
/// [`FINE`] then.
pub(super) const GROUPED: u32 = 1 << 31;
/// Where the group is in [`Execution::own`].
const GROUP_AT: u32 = 48;
/// How many that wait are looked at to find out a weight.
const MOST: usize = 64;

struct Group {
    /// The group around it; 0: none.
    around: AtomicU32,
    weight: AtomicU32,
    /// It has a limit.
    is_limited: AtomicBool,
    /// It had nothing left when it was charged last.
    is_spent: AtomicBool,
    is_taken: AtomicBool,
    account: SpinLock<Bandwidth>,
}

/// As many as the bits of [`Execution::group`] name.
type Table = Numbered<Group, 1024>;
static GROUPS: Table = Table::new();
static CHANGES: SpinLock<()> = SpinLock::new(());

fn group(number: u32) -> Option<&'static Group> {
    if number == 0 { None } else { GROUPS.get(number) }
}

/// A group and those around it.
fn levels(number: u32) -> impl Iterator<Item = &'static Group> {
    core::iter::successors(group(number), |here| group(here.around.load(Relaxed)))
}

fn fresh() -> Group {
    Group {
        around: AtomicU32::new(0),
        weight: AtomicU32::new(UNIT),
        is_limited: AtomicBool::new(false),
        is_spent: AtomicBool::new(false),
        is_taken: AtomicBool::new(false),
        account: SpinLock::new(Bandwidth::new()),
    }
}

/// Makes a group in that with the number `around`, 0: in none, with the usual weight and without a
/// limit.
///
/// # Errors
/// `ENOMEM`, also if there are too many.
pub fn open(around: u32) -> Result<u32> {
    let _lock = CHANGES.lock();
    let is_free = |&number: &u32| group(number).is_none_or(|one| !one.is_taken.load(Relaxed));
    let number = (1..Table::END).find(is_free).ok_or(Errno::ENOMEM)?;
    let own = GROUPS.make(number, fresh)?;
    own.is_taken.store(true, Relaxed);
    own.around.store(around, Relaxed);
    own.weight.store(UNIT, Relaxed);
    own.is_spent.store(false, Relaxed);
    own.is_limited.store(false, Relaxed);
    *own.account.lock() = Bandwidth::new();
    Ok(number)
}

/// Takes a group away. No execution is in it.
pub fn close(number: u32) {
    let _lock = CHANGES.lock();
    if let Some(own) = group(number) {
        own.is_limited.store(false, Relaxed);
        own.is_taken.store(false, Relaxed);
    }
}

/// Sets a group's weight.
pub fn set_weight(number: u32, shares: Shares) {
    if let Some(own) = group(number) {
        own.weight.store(shares.weight(), Relaxed);
    }
}

/// A group's limit.
pub fn limit(number: u32) -> Limit {
    group(number).map_or(Limit::NONE, |own| own.account.lock().limit())
}

/// Changes a group's limit by `change`, which fails if it is none; wake what rests afterwards.
pub fn change_limit(number: u32, change: impl FnOnce(Limit) -> Option<Limit>) -> Result<()> {
    let own = group(number).ok_or(Errno::ENODEV)?;
    let mut account = own.account.lock();
    let limit = change(account.limit()).ok_or(Errno::EINVAL)?;
    account.set_limit(time::monotonic_ns(), limit);
    own.is_spent.store(false, Relaxed);
    own.is_limited.store(limit.quota != NO_QUOTA, Relaxed);
    Ok(())
}

/// The events of a group.
pub fn told(number: u32) -> Told {
    let Some(own) = group(number) else { return Told::default() };
    let mut account = own.account.lock();
    account.waits_until(time::monotonic_ns());
    account.told()
}

/// When what is in a group may run again, in monotonic nanoseconds. `None`: now.
pub fn rests_until(number: u32) -> Option<u64> {
    let mut latest = None;
    for own in levels(number).filter(|own| own.is_limited.load(Relaxed)) {
        let until = own.account.lock().waits_until(time::monotonic_ns());
        own.is_spent.store(until.is_some(), Relaxed);
        latest = latest.max(until);
    }
    latest
}

/// The virtual time of `spent` nanoseconds of the execution that runs here, whose weight is not the
/// usual one. Charges them to its group.
#[cold]
pub(super) fn charge(execution: &Execution, now: u64, spent: u64) -> u64 {
    let own = execution.weight.load(Relaxed);
    if own & GROUPED == 0 {
        return spent * u64::from(UNIT) / u64::from(own.max(1));
    }
    // Limits are not for real-time executions (cgroup-v2.rst, "CPU").
    if execution.rank_base.load(Relaxed) >= FAIR_RANK {
        for level in levels(execution.group()).filter(|level| level.is_limited.load(Relaxed)) {
            if level.account.lock().charge(now, spent) {
                level.is_spent.store(true, Relaxed);
                attention::raise(trap::SPENT);
            }
        }
    }
    spent.saturating_mul(u64::from(UNIT * FINE)) / u64::from((own & !GROUPED).max(1))
}

/// The tree as the rules see it.
struct Groups;

impl Tree for Groups {
    fn around(&self, number: u32) -> u32 {
        group(number).map_or(0, |own| own.around.load(Relaxed))
    }

    fn weight(&self, number: u32) -> u32 {
        group(number).map_or(UNIT, |own| own.weight.load(Relaxed))
    }
}

fn competitor(execution: &Execution) -> Competitor {
    Competitor { group: execution.group(), weight: weight(execution.nice()) }
}

/// The outermost group around one.
fn outermost(number: u32) -> u32 {
    let around = |&inner: &u32| Some(Groups.around(inner)).filter(|&outer| outer != 0);
    core::iter::successors(Some(number), around).last().unwrap_or(0)
}

/// A tick has found an execution of a group here and has charged it.
#[cold]
pub(super) fn tick(me: &Execution, queue: &RunQueue) {
    let whole = outermost(me.group());
    queue.group.store(whole, Relaxed);
    let elsewhere = (0..cpu::count()).filter(|&other| other != cpu::id());
    let runs_there = |other: &usize| {
        QUEUE.of(*other).is_some_and(|queue| {
            queue.rank.load(Relaxed) != u64::MAX && queue.group.load(Relaxed) == whole
        })
    };
    let places = 1 + elsewhere.filter(runs_there).count() as u32;
    let inner = queue.inner.lock();
    let others = inner.waiting.iter().take(MOST).map(competitor);
    let own = share::weight_of(competitor(me), others, &Groups) / places;
    me.weight.store(own.max(1) | GROUPED, Relaxed);
    if attention::get() & trap::SPENT == 0 {
        return;
    }
    for waiting in inner.waiting.iter() {
        if levels(waiting.group()).any(|level| level.is_spent.load(Relaxed)) {
            waiting.wanted.fetch_or(trap::SPENT as u32, core::sync::atomic::Ordering::SeqCst);
        }
    }
}

impl Execution {
    /// The group that it shares the processor time of; 0: none.
    #[inline]
    pub fn group(&self) -> u32 {
        (self.own.load(Relaxed) >> GROUP_AT) as u32
    }

    /// Puts it into a group, with all its weight until it is known what else is there; 0: into
    /// none.
    pub fn set_group(&self, number: u32) {
        let others = (1u64 << GROUP_AT) - 1;
        let set = |word| Some(word & others | u64::from(number) << GROUP_AT);
        let _ = self.own.fetch_update(Relaxed, Relaxed, set);
        self.weigh();
    }

    /// Finds its weight after a change of its group or nice value.
    pub(super) fn weigh(&self) {
        let plain = weight(self.nice());
        let weight = match self.group() {
            0 => plain,
            _ => share::weight_of(competitor(self), core::iter::empty(), &Groups) | GROUPED,
        };
        self.weight.store(weight, Relaxed);
    }

    /// How many times the usual weight is its own; at least 1.
    #[inline]
    pub(super) fn times_lighter(&self) -> u64 {
        match self.weight.load(Relaxed) {
            UNIT => 1,
            own if own & GROUPED == 0 => u64::from(UNIT / own.max(1)).max(1),
            own => u64::from(UNIT * FINE / (own & !GROUPED).max(1)).max(1),
        }
    }

    /// Forgets that the time of its group was spent; whoever rests looks for itself. For the
    /// current execution.
    pub fn forget_spent(&self) {
        self.wanted.fetch_and(!(trap::SPENT as u32), core::sync::atomic::Ordering::SeqCst);
        attention::clear(trap::SPENT);
    }
}
