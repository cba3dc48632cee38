//! Priorities of input and output (`ioprio_set(2)`; block/ioprio.c of Linux 6.1).
//!
//! They are kept, inherited and told, and no device sorts by them
//! (`kernel/src/schedule/io_priority.rs`).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use crate::credentials::Capability;
use crate::process;
use crate::process::{Thread, numbers, pids, visible};
use crate::schedule::{Policy, Scheduling};

/// `IOPRIO_CLASS_*`
mod class {
    pub const NONE: u16 = 0;
    pub const REAL_TIME: u16 = 1;
    pub const BEST_EFFORT: u16 = 2;
    pub const IDLE: u16 = 3;
}
const CLASS_SHIFT: u32 = 13;
/// The levels of the classes that have some (`IOPRIO_NR_LEVELS`).
const LEVELS: u16 = 8;

/// What [`for_each`] visits.
const WHO_PROCESS: i32 = 1;
const WHO_GROUP: i32 = 2;
const WHO_USER: i32 = 3;

/// Visits the threads that `which` and `who` select, up to the first for which `visit` fails.
/// `ESRCH` if there are none, `EINVAL` for another `which`.
fn for_each(which: i32, who: i32, mut visit: impl FnMut(&Arc<Thread>) -> Result<()>) -> Result<()> {
    let caller = process::current();
    let id = u32::try_from(who);
    let wanted: &dyn Fn(&Thread) -> bool = match which {
        WHO_PROCESS => {
            let thread = match id {
                Ok(0) => caller.arc(),
                Ok(id) => visible::thread(id),
                Err(_) => None,
            };
            return visit(&thread.ok_or(Errno::ESRCH)?);
        }
        WHO_GROUP => {
            let group = if who == 0 { Ok(caller.process.group()) } else { id.map(visible::meant) };
            &move |thread| group.is_ok_and(|group| thread.process.group() == group)
        }
        // User 0 is user 0 and not the caller, and -1 is none.
        WHO_USER => {
            let user = numbers::user(who as u32);
            &move |thread| who != -1 && user.is_ok_and(|user| thread.credentials().uid == user)
        }
        _ => return Err(Errno::EINVAL),
    };
    let mut found = false;
    let all = if which == WHO_USER { visible::processes()? } else { pids::processes()? };
    for process in all {
        for thread in process.threads()?.iter().filter(|thread| wanted(thread)) {
            found = true;
            visit(thread)?;
        }
    }
    if found { Ok(()) } else { Err(Errno::ESRCH) }
}

/// `ioprio_set(2)`
pub fn ioprio_set(which: i32, who: i32, priority: i32) -> Result<()> {
    // Linux keeps 16 bits, and ignores the others.
    let priority = priority as u16;
    check(priority)?;
    let own = process::current().credentials();
    for_each(which, who, |thread| {
        let uid = thread.credentials().uid;
        if uid != own.euid && uid != own.uid {
            own.require(Capability::SysNice)?;
        }
        // A thread that has ended has no context, and gets none.
        if let Some(execution) = thread.execution() {
            execution.set_io_priority(priority);
        }
        Ok(())
    })
}

/// Fails with `EINVAL` for a priority that does not exist, `EPERM` for one that the caller may not
/// give (`ioprio_check_cap`).
fn check(priority: u16) -> Result<()> {
    let (class, data) = (priority >> CLASS_SHIFT, priority & ((1 << CLASS_SHIFT) - 1));
    if class == class::REAL_TIME {
        let own = process::current().credentials();
        if !own.has(Capability::SysAdmin) {
            own.require(Capability::SysNice)?;
        }
    }
    let is_there = match class {
        class::NONE => data == 0,
        class::REAL_TIME | class::BEST_EFFORT => data < LEVELS,
        class::IDLE => true,
        _ => false,
    };
    if is_there { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The priority that was set for a thread; 0: none.
fn own_priority(thread: &Thread) -> u16 {
    thread.execution().map_or(0, |execution| execution.io_priority())
}

/// The priority of a thread's requests: that which was set, or what follows from its scheduling
/// (`__get_task_ioprio`).
fn priority_in_force(thread: &Thread) -> u16 {
    let set = own_priority(thread);
    if set >> CLASS_SHIFT != class::NONE {
        return set;
    }
    let scheduling = match thread.execution() {
        Some(execution) => execution.scheduling(),
        None => thread.last_scheduling(),
    };
    let class = match scheduling.policy {
        Policy::Idle => class::IDLE,
        Policy::Fifo(_) | Policy::RoundRobin(_) => class::REAL_TIME,
        Policy::Other | Policy::Batch => class::BEST_EFFORT,
    };
    class << CLASS_SHIFT | level(&scheduling)
}

/// The level that follows from a nice value (`task_nice_ioprio`).
fn level(scheduling: &Scheduling) -> u16 {
    ((i16::from(scheduling.nice) + 20) / 5) as u16
}

/// `ioprio_get(2)`: for one thread the priority that was set, for several the highest in force.
pub fn ioprio_get(which: i32, who: i32) -> Result<i32> {
    let mut best: Option<u16> = None;
    for_each(which, who, |thread| {
        let found = match which {
            WHO_PROCESS => own_priority(thread),
            _ => priority_in_force(thread),
        };
        best = Some(best.map_or(found, |best| best.min(found)));
        Ok(())
    })?;
    best.map(i32::from).ok_or(Errno::ESRCH)
}
