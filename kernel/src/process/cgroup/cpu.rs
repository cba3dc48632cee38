//! The controller `cpu`: which group's processor time the threads of a process share, and their
//! rest when that is spent. The groups of the scheduler are in [`crate::schedule::share`].
//!
//! A group to which its parent gives the controller has one of those. Its members, and those of
//! groups below that have none, are in it ([`settle`]). A thread that a member starts is in its
//! maker's; the list of threads tells a mover of it, or it settles when it is in that list.
//!
//! A thread whose group has nothing left rests on its way back to user mode. It holds no lock
//! there, so nobody outside waits for it. (Linux 6.1 stops threads in the kernel as well.) Only the
//! end of its process ends the rest early.

use core::sync::atomic::Ordering;

use hayate_abi::Result;
use hayate_cgroup_rules::bandwidth::Limit;
use hayate_cgroup_rules::share::Shares;

use super::group::{Cpu, Group, Lock};
use super::rest::Rest;
use crate::process::record::Process;
use crate::process::thread::{Thread, try_current};
use crate::schedule;
use crate::schedule::WaitQueue;
use crate::schedule::share;

/// Where threads rest. One queue for all: a superfluous wake-up does no harm.
static RESTING: WaitQueue = WaitQueue::new();

impl Cpu {
    /// The number of the scheduler's group, if there is any.
    pub fn number(&self) -> Option<u32> {
        Some(self.number.load(Ordering::SeqCst)).filter(|&number| number != 0)
    }

    /// Its weight.
    pub fn shares(&self) -> Shares {
        *self.shares.lock()
    }

    /// Changes its weight by `change`, unless that fails.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_shares(&self, change: impl FnOnce(Shares) -> Result<Shares>) -> Result<()> {
        let mut shares = self.shares.lock();
        *shares = change(*shares)?;
        share::set_weight(self.number.load(Ordering::SeqCst), *shares);
        Ok(())
    }
}

/// The scheduler's group in which the members of a group are; 0: none.
fn group_of(group: &Group) -> u32 {
    group.levels().find_map(|level| level.cpu.number()).unwrap_or(0)
}

fn of(process: &Process) -> u32 {
    if process.is_grouped() { group_of(&process.cgroup()) } else { 0 }
}

/// Puts the threads of a process into the scheduler's group of its group. Call it without spin
/// locks.
#[cold]
pub fn settle(process: &Process) {
    let mut has_moved = false;
    loop {
        let number = of(process);
        process.for_each_thread(|thread| {
            if let Some(execution) = thread.execution()
                && execution.group() != number
            {
                execution.set_group(number);
                has_moved = true;
            }
        });
        if of(process) == number {
            break;
        }
    }
    if has_moved {
        // It may rest for the group that it has left.
        wake();
    }
}

/// Gives a group one of the scheduler's.
///
/// # Errors
/// `ENOMEM`; then it has none.
pub fn begin(group: &Group, _: &Lock) -> Result<()> {
    let number = share::open(group.parent().map_or(0, |parent| group_of(parent)))?;
    *group.cpu.shares.lock() = Shares::USUAL;
    group.cpu.number.store(number, Ordering::SeqCst);
    Ok(())
}

/// Takes it away. Returns its number: the caller gives that to [`close`] when all members have
/// settled.
pub fn end(group: &Group, _: &Lock) -> u32 {
    group.cpu.number.swap(0, Ordering::SeqCst)
}

/// A group of the scheduler in which nobody is any more may serve another one.
pub fn close(number: u32) {
    if number != 0 {
        share::close(number);
    }
}

/// Changes the limit of a group by `change`, which returns `None` if it is none.
///
/// # Errors
/// `ENODEV` (the controller is gone), `EINVAL`.
pub fn change_limit(number: u32, change: impl FnOnce(Limit) -> Option<Limit>) -> Result<()> {
    share::change_limit(number, change)?;
    wake();
    Ok(())
}

/// Lets all that rest look again.
fn wake() {
    RESTING.wake_all();
}

/// Rests, as the current thread on its way to user mode, as long as its group, or one around it,
/// has no processor time left.
#[cold]
pub fn rest() {
    let me = schedule::current();
    me.forget_spent();
    if let Some(thread) = try_current() {
        rest_as(&thread, &me);
    }
}

fn rest_as(thread: &Thread, me: &schedule::Execution) {
    let process = &thread.process;
    let mut rest = Rest::of(process);
    while let Some(until) = share::rests_until(me.group()).filter(|_| !process.is_exiting()) {
        let group = me.group();
        let goes_on = || {
            rest.note();
            let is_over = me.group() != group
                || process.is_exiting()
                || share::rests_until(group).is_none_or(|now| now < until);
            is_over.then_some(())
        };
        RESTING.wait_through(Some(until), goes_on);
    }
}
