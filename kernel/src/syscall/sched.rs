//! Scheduling: priorities, policies, affinity (sched(7), getpriority(2), sched_setaffinity(2)).

use alloc::sync::Arc;

use hayate_abi::process::{SchedAttr, SchedParam};
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::user::{self, UserPtr};

use crate::credentials::Capability;
use crate::process;
use crate::process::{Thread, numbers, pids, visible};
use crate::schedule;
use crate::schedule::{Execution, Policy, Scheduling};

const SCHED_OTHER: i32 = 0;
const SCHED_FIFO: i32 = 1;
const SCHED_RR: i32 = 2;
const SCHED_BATCH: i32 = 3;
const SCHED_IDLE: i32 = 5;
const SCHED_DEADLINE: i32 = 6;
const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;
const RLIMIT_NICE: usize = 13;
const RLIMIT_RTPRIO: usize = 14;

/// Flags of sched_setattr(2).
mod flag {
    pub const RESET_ON_FORK: u64 = 0x01;
    pub const KEEP_POLICY: u64 = 0x08;
    pub const KEEP_PARAMS: u64 = 0x10;
    pub const UTIL_CLAMP: u64 = 0x60;
    pub const ALL: u64 = 0x7f;
}

/// sched_yield(2).
pub fn sched_yield() -> i32 {
    schedule::yield_now();
    0
}

/// The thread with this number, 0 for the caller. Fails with ESRCH.
fn find(pid: i32) -> Result<Arc<Thread>> {
    let id = u32::try_from(pid).map_err(|_| Errno::EINVAL)?;
    if id == 0 {
        return process::current().arc().ok_or(Errno::ESRCH);
    }
    visible::thread(id).ok_or(Errno::ESRCH)
}

/// The object of a scheduling call. A thread that has ended and was not waited for can still be
/// queried and set, as in Linux, where a zombie is a task like any other.
enum Subject {
    Live(Arc<Execution>),
    Ended(Arc<Thread>),
}

impl Subject {
    fn of(thread: &Arc<Thread>) -> Subject {
        match thread.execution() {
            Some(execution) => Subject::Live(execution),
            None => Subject::Ended(thread.clone()),
        }
    }

    fn find(pid: i32) -> Result<Subject> {
        Ok(Subject::of(&find(pid)?))
    }

    fn scheduling(&self) -> Scheduling {
        match self {
            Subject::Live(execution) => execution.scheduling(),
            Subject::Ended(thread) => thread.last_scheduling(),
        }
    }

    fn set(&self, new: Scheduling) {
        match self {
            Subject::Live(execution) => execution.set_scheduling(new),
            Subject::Ended(thread) => thread.set_last_scheduling(new),
        }
    }
}

/// Fails with EPERM unless the caller may set the scheduling of `thread` (check_same_owner of
/// Linux).
fn check_owner(thread: &Thread) -> Result<()> {
    let own = process::current().credentials();
    let other = thread.credentials();
    if own.euid == other.euid
        || own.euid == other.uid
        || own.has_in(&other.user, Capability::SysNice)
    {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Visits the threads that `which` and `who` of getpriority(2) select; ESRCH if there are none.
fn for_each(which: i32, who: i32, mut visit: impl FnMut(&Arc<Thread>) -> Result<()>) -> Result<()> {
    const PRIO_PROCESS: i32 = 0;
    const PRIO_PGRP: i32 = 1;
    const PRIO_USER: i32 = 2;
    let caller = process::current();
    let mut found = false;
    let mut result = Ok(());
    let mut each = |thread: &Arc<Thread>| {
        found = true;
        if let Err(error) = visit(thread) {
            result = Err(error);
        }
    };
    match which {
        PRIO_PROCESS => each(&find(who).map_err(|_| Errno::ESRCH)?),
        PRIO_PGRP => {
            let group = match who {
                0 => caller.process.group(),
                who => visible::meant(who as u32),
            };
            for process in pids::processes()? {
                if process.group() == group {
                    process.threads()?.iter().for_each(&mut each);
                }
            }
        }
        PRIO_USER => {
            let uid = match who {
                0 => caller.credentials().uid,
                who => numbers::user(who as u32).map_err(|_| Errno::ESRCH)?,
            };
            for process in visible::processes()? {
                for thread in process.threads()?.iter() {
                    if thread.credentials().uid == uid {
                        each(thread);
                    }
                }
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    if found { result } else { Err(Errno::ESRCH) }
}

/// getpriority(2): 20 minus the nice value, so that the result is never negative; the highest of
/// several.
pub fn getpriority(which: i32, who: i32) -> Result<i32> {
    let mut highest = None;
    for_each(which, who, |thread| {
        let nice = Subject::of(thread).scheduling().nice;
        highest = highest.max(Some(20 - i32::from(nice)));
        Ok(())
    })?;
    highest.ok_or(Errno::ESRCH)
}

/// setpriority(2). EPERM for another user's thread, EACCES for a raise beyond RLIMIT_NICE.
pub fn setpriority(which: i32, who: i32, nice: i32) -> Result<()> {
    let nice = nice.clamp(-20, 19) as i8;
    for_each(which, who, |thread| {
        check_owner(thread)?;
        let subject = Subject::of(thread);
        let old = subject.scheduling();
        let privileged = || process::current().credentials().has(Capability::SysNice);
        if nice < old.nice && !nice_is_granted(thread, nice) && !privileged() {
            return Err(Errno::EACCES);
        }
        subject.set(Scheduling { nice, ..old });
        Ok(())
    })
}

/// Whether RLIMIT_NICE allows the thread this nice value (`is_nice_reduction`).
fn nice_is_granted(thread: &Thread, nice: i8) -> bool {
    (20 - i64::from(nice)) as u64 <= thread.process.limit(RLIMIT_NICE)
}

/// sched_get_priority_max(2).
pub fn sched_get_priority_max(policy: i32) -> Result<i32> {
    match policy {
        SCHED_FIFO | SCHED_RR => Ok(99),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// sched_get_priority_min(2).
pub fn sched_get_priority_min(policy: i32) -> Result<i32> {
    sched_get_priority_max(policy).map(|most| most.min(1))
}

/// Decodes a policy and priority. Fails with EINVAL.
fn policy_of(policy: i32, priority: i32) -> Result<Policy> {
    let real = || match u8::try_from(priority) {
        Ok(priority @ 1..=99) => Ok(priority),
        _ => Err(Errno::EINVAL),
    };
    let policy = match policy {
        SCHED_FIFO => return Ok(Policy::Fifo(real()?)),
        SCHED_RR => return Ok(Policy::RoundRobin(real()?)),
        SCHED_OTHER => Policy::Other,
        SCHED_BATCH => Policy::Batch,
        SCHED_IDLE => Policy::Idle,
        _ => return Err(Errno::EINVAL),
    };
    if priority == 0 { Ok(policy) } else { Err(Errno::EINVAL) }
}

/// Encodes a policy as policy and priority.
fn numbers_of(policy: Policy) -> (i32, i32) {
    match policy {
        Policy::Other => (SCHED_OTHER, 0),
        Policy::Fifo(priority) => (SCHED_FIFO, i32::from(priority)),
        Policy::RoundRobin(priority) => (SCHED_RR, i32::from(priority)),
        Policy::Batch => (SCHED_BATCH, 0),
        Policy::Idle => (SCHED_IDLE, 0),
    }
}

/// A request to change how a thread is scheduled.
struct Wanted {
    /// The policy; `None` to keep the policy and whether it is reset on fork.
    policy: Option<i32>,
    priority: i32,
    /// For SCHED_OTHER and SCHED_BATCH; `None` to keep it.
    nice: Option<i8>,
    /// The flags of sched_setattr(2).
    flags: u64,
}

/// Changes how a thread is scheduled, with the checks of `__sched_setscheduler`
/// (kernel/sched/core.c of Linux 6.1) in the same order: EINVAL, EPERM, EOPNOTSUPP.
fn set_scheduling(thread: &Arc<Thread>, wanted: &Wanted) -> Result<()> {
    let subject = Subject::of(thread);
    let old = subject.scheduling();
    let (number, reset_on_fork) = match wanted.policy {
        Some(number) => (number, wanted.flags & flag::RESET_ON_FORK != 0),
        None => (numbers_of(old.policy).0, old.reset_on_fork),
    };
    let policy = policy_of(number, wanted.priority)?;
    if wanted.flags & !flag::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    let is_fair = matches!(policy, Policy::Other | Policy::Batch);
    let nice = wanted.nice.filter(|_| is_fair).unwrap_or(old.nice);
    let new = Scheduling { policy, nice, reset_on_fork };
    if !is_granted(thread, old, new) {
        process::current().credentials().require(Capability::SysNice)?;
    }
    if wanted.flags & flag::UTIL_CLAMP != 0 {
        // As in a Linux built without CONFIG_UCLAMP_TASK.
        return Err(Errno::EOPNOTSUPP);
    }
    match wanted.flags & flag::KEEP_PARAMS {
        0 => subject.set(new),
        // The policy is one of the parameters (`__sched_setscheduler`).
        _ => subject.set(Scheduling { reset_on_fork, ..old }),
    }
    Ok(())
}

/// Whether this change needs no privilege (`user_check_sched_setscheduler`, sched(7)).
fn is_granted(thread: &Thread, old: Scheduling, new: Scheduling) -> bool {
    let (old_number, old_priority) = numbers_of(old.policy);
    let (number, priority) = numbers_of(new.policy);
    if new.nice < old.nice && !nice_is_granted(thread, new.nice) {
        return false;
    }
    if priority > 0 {
        let limit = thread.process.limit(RLIMIT_RTPRIO);
        if (number != old_number && limit == 0)
            || (priority > old_priority && priority as u64 > limit)
        {
            return false;
        }
    }
    let leaves_idle = old.policy == Policy::Idle && new.policy != Policy::Idle;
    if leaves_idle && !nice_is_granted(thread, old.nice) {
        return false;
    }
    let loses_reset = old.reset_on_fork && !new.reset_on_fork;
    !loses_reset && check_owner(thread).is_ok()
}

/// sched_setscheduler(2)
pub fn sched_setscheduler(pid: i32, policy: i32, parameters: usize) -> Result<()> {
    if policy < 0 {
        return Err(Errno::EINVAL);
    }
    let reset = policy & SCHED_RESET_ON_FORK != 0;
    let flags = if reset { flag::RESET_ON_FORK } else { 0 };
    set_parameters(pid, Some(policy & !SCHED_RESET_ON_FORK), flags, parameters)
}

/// sched_setparam(2)
pub fn sched_setparam(pid: i32, parameters: usize) -> Result<()> {
    set_parameters(pid, None, 0, parameters)
}

fn set_parameters(pid: i32, policy: Option<i32>, flags: u64, parameters: usize) -> Result<()> {
    if pid < 0 || parameters == 0 {
        return Err(Errno::EINVAL);
    }
    let parameters: SchedParam = UserPtr::new(parameters).read()?;
    let priority = parameters.sched_priority;
    set_scheduling(&find(pid)?, &Wanted { policy, priority, nice: None, flags })
}

/// sched_getscheduler(2)
pub fn sched_getscheduler(pid: i32) -> Result<i32> {
    let found = Subject::find(pid)?.scheduling();
    let reset = if found.reset_on_fork { SCHED_RESET_ON_FORK } else { 0 };
    Ok(numbers_of(found.policy).0 | reset)
}

/// sched_getparam(2)
pub fn sched_getparam(pid: i32, parameters: usize) -> Result<()> {
    if parameters == 0 {
        return Err(Errno::EINVAL);
    }
    let (_, priority) = numbers_of(Subject::find(pid)?.scheduling().policy);
    UserPtr::new(parameters).write(&SchedParam { sched_priority: priority })
}

/// sched_rr_get_interval(2): the slice of a round-robin thread; zero for FIFO.
pub fn sched_rr_get_interval(pid: i32, interval: usize) -> Result<()> {
    let slice = match Subject::find(pid)?.scheduling().policy {
        Policy::Fifo(_) => 0,
        _ => schedule::SLICE_NS,
    };
    UserPtr::new(interval).write(&Timespec::from_nanos(slice))
}

/// The thread with this number; unlike in [`find`], a negative number gives ESRCH.
fn find_any(pid: i32) -> Result<Arc<Thread>> {
    if pid < 0 { Err(Errno::ESRCH) } else { find(pid) }
}

/// sched_setaffinity(2).
pub fn sched_setaffinity(pid: i32, size: usize, mask: usize) -> Result<()> {
    let mut bytes = [0; 8];
    let length = size.min(bytes.len());
    user::copy_in(&mut bytes[..length], mask)?;
    let thread = find_any(pid)?;
    check_owner(&thread)?;
    let mask = u64::from_le_bytes(bytes);
    match thread.execution() {
        Some(execution) => execution.set_affinity(mask),
        None if mask & cpu::online_mask() == 0 => Err(Errno::EINVAL),
        None => Ok(()),
    }
}

/// sched_getaffinity(2): returns the number of bytes written.
pub fn sched_getaffinity(pid: i32, size: usize, mask: usize) -> Result<usize> {
    if !size.is_multiple_of(8) || size.saturating_mul(8) < cpu::count() {
        return Err(Errno::EINVAL);
    }
    let allowed = find_any(pid)?.execution().map_or(u64::MAX, |execution| execution.affinity());
    let bytes = (allowed & cpu::online_mask()).to_le_bytes();
    let length = size.min(bytes.len());
    user::copy_out(mask, &bytes[..length])?;
    Ok(length)
}

/// The first size of `struct sched_attr` (`SCHED_ATTR_SIZE_VER0`), and the one with utilisation
/// bounds.
const FIRST_ATTR_SIZE: u32 = 48;
const SECOND_ATTR_SIZE: u32 = 56;

/// Reads the attributes of sched_setattr(2) (`sched_copy_attr`). Fails with E2BIG if it does not
/// understand them, and then writes the size that the kernel knows into the program's structure.
fn read_attributes(at: usize) -> Result<SchedAttr> {
    const PAGE: u32 = 4096;
    let pointer = UserPtr::<u32>::new(at);
    let too_big = || match pointer.write(&(size_of::<SchedAttr>() as u32)) {
        Ok(()) => Errno::E2BIG,
        Err(error) => error,
    };
    let size = match pointer.read()? {
        0 => FIRST_ATTR_SIZE,
        size => size,
    };
    if !(FIRST_ATTR_SIZE..=PAGE).contains(&size) {
        return Err(too_big());
    }
    let mut bytes = [0; size_of::<SchedAttr>()];
    user::copy_in_growing(&mut bytes, at, size as usize).map_err(|error| match error {
        Errno::E2BIG => too_big(),
        other => other,
    })?;
    let attributes: SchedAttr = zerocopy::transmute!(bytes);
    if attributes.sched_flags & flag::UTIL_CLAMP != 0 && size < SECOND_ATTR_SIZE {
        return Err(Errno::EINVAL);
    }
    Ok(attributes)
}

/// sched_setattr(2): the policies of sched_setscheduler(2) and the nice value.
pub fn sched_setattr(pid: i32, attributes: usize, how: u32) -> Result<()> {
    if pid < 0 || attributes == 0 || how != 0 {
        return Err(Errno::EINVAL);
    }
    let given = read_attributes(attributes)?;
    let number = i32::try_from(given.sched_policy).map_err(|_| Errno::EINVAL)?;
    let thread = find(pid)?;
    let mut wanted = Wanted {
        policy: (given.sched_flags & flag::KEEP_POLICY == 0).then_some(number),
        priority: i32::try_from(given.sched_priority).map_err(|_| Errno::EINVAL)?,
        nice: Some(given.sched_nice.clamp(-20, 19) as i8),
        flags: given.sched_flags,
    };
    if given.sched_flags & flag::KEEP_PARAMS != 0 {
        wanted.nice = None;
        wanted.priority = numbers_of(Subject::of(&thread).scheduling().policy).1;
    }
    set_scheduling(&thread, &wanted)
}

/// sched_getattr(2).
pub fn sched_getattr(pid: i32, attributes: usize, size: u32, how: u32) -> Result<()> {
    if attributes == 0 || how != 0 || !(FIRST_ATTR_SIZE..=4096).contains(&size) {
        return Err(Errno::EINVAL);
    }
    let found = Subject::find(pid)?.scheduling();
    let (policy, priority) = numbers_of(found.policy);
    let length = (size as usize).min(size_of::<SchedAttr>());
    let current = SchedAttr {
        size: length as u32,
        sched_policy: policy as u32,
        sched_flags: if found.reset_on_fork { flag::RESET_ON_FORK } else { 0 },
        // A thread with a priority has no nice value (`get_params`).
        sched_nice: if priority > 0 { 0 } else { i32::from(found.nice) },
        sched_priority: priority as u32,
        ..SchedAttr::default()
    };
    let bytes = zerocopy::IntoBytes::as_bytes(&current);
    user::copy_out(attributes, &bytes[..length])
}

/// getcpu(2): there is one memory node.
pub fn getcpu(number: usize, node: usize, _cache: usize) -> Result<()> {
    if let Some(pointer) = UserPtr::new(number).optional() {
        pointer.write(&(cpu::id() as u32))?;
    }
    match UserPtr::new(node).optional() {
        Some(pointer) => pointer.write(&0u32),
        None => Ok(()),
    }
}
