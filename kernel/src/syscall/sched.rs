//! Scheduling: priorities, policies, affinity (sched(7), getpriority(2), sched_setaffinity(2)).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::{SchedAttr, SchedParam};
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::user::{self, UserPtr};

use crate::credentials::Capability;
use crate::process::{self, Thread, pids};
use crate::schedule::{self, Execution, Policy};

const SCHED_OTHER: i32 = 0;
const SCHED_FIFO: i32 = 1;
const SCHED_RR: i32 = 2;
const SCHED_BATCH: i32 = 3;
const SCHED_IDLE: i32 = 5;
const SCHED_DEADLINE: i32 = 6;
const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;
const RLIMIT_NICE: usize = 13;
const RLIMIT_RTPRIO: usize = 14;

/// sched_yield(2).
pub fn sched_yield() -> i32 {
    schedule::yield_now();
    0
}

/// The thread with this number, 0 for the caller: ESRCH.
fn find(pid: i32) -> Result<Arc<Thread>> {
    let id = u32::try_from(pid).map_err(|_| Errno::EINVAL)?;
    if id == 0 {
        return process::current().arc().ok_or(Errno::ESRCH);
    }
    pids::thread(id).ok_or(Errno::ESRCH)
}

fn execution_of(thread: &Thread) -> Result<Arc<Execution>> {
    thread.execution().ok_or(Errno::ESRCH)
}

/// EPERM unless the caller may set the scheduling of `thread` (check_same_owner of Linux).
fn check_owner(thread: &Thread) -> Result<()> {
    let own = process::current().credentials();
    let other = thread.credentials();
    if own.euid == other.euid || own.euid == other.uid || own.has(Capability::SysNice) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Visits the threads that `which` and `who` of getpriority(2) name; ESRCH when there are none.
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
            let group = if who == 0 { caller.process.group() } else { who as u32 };
            for process in pids::processes()? {
                if process.group() == group {
                    process.threads().iter().for_each(&mut each);
                }
            }
        }
        PRIO_USER => {
            let uid = if who == 0 { caller.credentials().uid } else { who as u32 };
            for process in pids::processes()? {
                for thread in process.threads().iter() {
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

/// getpriority(2): 20 minus the nice value, so that it is never negative; the highest of several.
pub fn getpriority(which: i32, who: i32) -> Result<i32> {
    let mut highest = None;
    for_each(which, who, |thread| {
        if let Some(execution) = thread.execution() {
            highest = highest.max(Some(20 - i32::from(execution.nice())));
        }
        Ok(())
    })?;
    highest.ok_or(Errno::ESRCH)
}

/// setpriority(2). EPERM for another user's thread, EACCES for a raise beyond RLIMIT_NICE.
pub fn setpriority(which: i32, who: i32, nice: i32) -> Result<()> {
    let nice = nice.clamp(-20, 19) as i8;
    for_each(which, who, |thread| {
        check_owner(thread)?;
        let execution = execution_of(thread)?;
        check_nice(thread, execution.nice(), nice).map_err(|_| Errno::EACCES)?;
        execution.set_nice(nice);
        Ok(())
    })
}

/// Whether a nice value may become `new`: upwards always, downwards as far as RLIMIT_NICE says.
fn check_nice(thread: &Thread, old: i8, new: i8) -> Result<()> {
    let limit = thread.process.limit(RLIMIT_NICE);
    let allowed = (20 - i64::from(new)) as u64 <= limit;
    if new >= old || allowed || process::current().credentials().has(Capability::SysNice) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
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

/// A policy and priority as programs give them: EINVAL.
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

/// The numbers of a policy: policy and priority.
fn numbers_of(policy: Policy) -> (i32, i32) {
    match policy {
        Policy::Other => (SCHED_OTHER, 0),
        Policy::Fifo(priority) => (SCHED_FIFO, i32::from(priority)),
        Policy::RoundRobin(priority) => (SCHED_RR, i32::from(priority)),
        Policy::Batch => (SCHED_BATCH, 0),
        Policy::Idle => (SCHED_IDLE, 0),
    }
}

/// Changes the policy of a thread: EPERM for another user's, and for a realtime priority beyond
/// RLIMIT_RTPRIO without privilege (sched(7)).
fn set_policy(thread: &Thread, new: Policy) -> Result<()> {
    check_owner(thread)?;
    let execution = execution_of(thread)?;
    let (_, priority) = numbers_of(new);
    if priority > 0 && !process::current().credentials().has(Capability::SysNice) {
        let (_, old) = numbers_of(execution.policy());
        let limit = thread.process.limit(RLIMIT_RTPRIO);
        if priority > old && priority as u64 > limit {
            return Err(Errno::EPERM);
        }
    }
    execution.set_policy(new);
    Ok(())
}

/// sched_setscheduler(2). SCHED_RESET_ON_FORK is refused.
pub fn sched_setscheduler(pid: i32, policy: i32, parameters: usize) -> Result<()> {
    if pid < 0 || parameters == 0 || policy & SCHED_RESET_ON_FORK != 0 {
        return Err(Errno::EINVAL);
    }
    let parameters: SchedParam = UserPtr::new(parameters).read()?;
    let thread = find(pid)?;
    set_policy(&thread, policy_of(policy, parameters.sched_priority)?)
}

/// sched_getscheduler(2).
pub fn sched_getscheduler(pid: i32) -> Result<i32> {
    Ok(numbers_of(execution_of(&*find(pid)?)?.policy()).0)
}

/// sched_setparam(2).
pub fn sched_setparam(pid: i32, parameters: usize) -> Result<()> {
    if pid < 0 || parameters == 0 {
        return Err(Errno::EINVAL);
    }
    let parameters: SchedParam = UserPtr::new(parameters).read()?;
    let thread = find(pid)?;
    let (policy, _) = numbers_of(execution_of(&thread)?.policy());
    set_policy(&thread, policy_of(policy, parameters.sched_priority)?)
}

/// sched_getparam(2).
pub fn sched_getparam(pid: i32, parameters: usize) -> Result<()> {
    if parameters == 0 {
        return Err(Errno::EINVAL);
    }
    let (_, priority) = numbers_of(execution_of(&*find(pid)?)?.policy());
    UserPtr::new(parameters).write(&SchedParam { sched_priority: priority })
}

/// sched_rr_get_interval(2): the slice of a round-robin thread; zero for FIFO.
pub fn sched_rr_get_interval(pid: i32, interval: usize) -> Result<()> {
    let policy = execution_of(&*find(pid)?)?.policy();
    let slice = match policy {
        Policy::Fifo(_) => 0,
        _ => schedule::SLICE_NS,
    };
    UserPtr::new(interval).write(&Timespec::from_nanos(slice))
}

/// sched_setaffinity(2).
pub fn sched_setaffinity(pid: i32, size: usize, mask: usize) -> Result<()> {
    let mut bytes = [0; 8];
    let length = size.min(bytes.len());
    user::copy_in(&mut bytes[..length], mask)?;
    let thread = find(pid)?;
    check_owner(&thread)?;
    execution_of(&thread)?.set_affinity(u64::from_le_bytes(bytes))
}

/// sched_getaffinity(2): returns the number of bytes written.
pub fn sched_getaffinity(pid: i32, size: usize, mask: usize) -> Result<usize> {
    if !size.is_multiple_of(8) || size.saturating_mul(8) < cpu::count() {
        return Err(Errno::EINVAL);
    }
    let allowed = execution_of(&*find(pid)?)?.affinity() & cpu::online_mask();
    let bytes = allowed.to_le_bytes();
    let length = size.min(bytes.len());
    user::copy_out(mask, &bytes[..length])?;
    Ok(length)
}

/// sched_setattr(2): the policies of sched_setscheduler(2) and the nice value, without flags.
pub fn sched_setattr(pid: i32, attributes: usize, how: u32) -> Result<()> {
    const FIRST_SIZE: u32 = 48;
    if pid < 0 || attributes == 0 || how != 0 {
        return Err(Errno::EINVAL);
    }
    let size: u32 = UserPtr::new(attributes).read()?;
    let size = if size == 0 { FIRST_SIZE } else { size };
    if !(FIRST_SIZE..=4096).contains(&size) {
        return Err(Errno::E2BIG);
    }
    let known = (size as usize).min(size_of::<SchedAttr>());
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(size as usize, 0);
    user::copy_in(&mut bytes, attributes)?;
    if bytes[known..].iter().any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    bytes.resize(size_of::<SchedAttr>(), 0);
    let wanted: SchedAttr =
        zerocopy::FromBytes::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)?;
    if wanted.sched_flags != 0 || wanted.sched_policy as i32 == SCHED_DEADLINE {
        return Err(Errno::EINVAL);
    }
    let thread = find(pid)?;
    let priority = i32::try_from(wanted.sched_priority).map_err(|_| Errno::EINVAL)?;
    let policy = policy_of(wanted.sched_policy as i32, priority)?;
    if matches!(policy, Policy::Other | Policy::Batch) {
        if !(-20..=19).contains(&wanted.sched_nice) {
            return Err(Errno::EINVAL);
        }
        let execution = execution_of(&thread)?;
        check_owner(&thread)?;
        check_nice(&thread, execution.nice(), wanted.sched_nice as i8)?;
        execution.set_nice(wanted.sched_nice as i8);
    }
    set_policy(&thread, policy)
}

/// sched_getattr(2).
pub fn sched_getattr(pid: i32, attributes: usize, size: u32, how: u32) -> Result<()> {
    const FIRST_SIZE: u32 = 48;
    if attributes == 0 || how != 0 || !(FIRST_SIZE..=4096).contains(&size) {
        return Err(Errno::EINVAL);
    }
    let execution = execution_of(&*find(pid)?)?;
    let (policy, priority) = numbers_of(execution.policy());
    let length = (size as usize).min(size_of::<SchedAttr>());
    let current = SchedAttr {
        size: length as u32,
        sched_policy: policy as u32,
        sched_nice: i32::from(execution.nice()),
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
