//! Futexes and the per-thread areas of the C library (`futex(2)`, `futex_waitv(2)`,
//! `set_robust_list(2)`, `rseq(2)`).

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::process::FutexWaitv;
use hayate_abi::rseq::RSEQ_FLAG_UNREGISTER;
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::time::{CLOCK_MONOTONIC, CLOCK_REALTIME};
use crate::process;
use crate::process::futex::Awaited;
use crate::process::{Restart, Until, futex, sequences, visible};
use crate::reclaim::growth::Grow;
use crate::schedule::time;

const FUTEX_WAIT: i32 = 0;
const FUTEX_WAKE: i32 = 1;
const FUTEX_REQUEUE: i32 = 3;
const FUTEX_CMP_REQUEUE: i32 = 4;
const FUTEX_WAKE_OP: i32 = 5;
const FUTEX_WAIT_BITSET: i32 = 9;
const FUTEX_WAKE_BITSET: i32 = 10;
const FUTEX_PRIVATE_FLAG: i32 = 128;
const FUTEX_CLOCK_REALTIME: i32 = 256;
const ALL: u32 = u32::MAX;

/// A number of waiters; fails with EINVAL if it is negative as Linux' `int`.
fn count(value: usize) -> Result<usize> {
    usize::try_from(value as i32).map_err(|_| Errno::EINVAL)
}

/// `futex(2)`
pub fn futex(
    address: usize,
    operation: i32,
    value: u32,
    timeout: usize,
    second: usize,
    third: u32,
) -> Result<usize> {
    let private = operation & FUTEX_PRIVATE_FLAG != 0;
    let realtime = operation & FUTEX_CLOCK_REALTIME != 0;
    let command = operation & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    if realtime && command != FUTEX_WAIT_BITSET && command != FUTEX_WAIT {
        return Err(Errno::ENOSYS);
    }
    match command {
        FUTEX_WAIT => {
            let deadline = deadline(timeout, false, realtime)?;
            wait(address, private, value, deadline, ALL)
        }
        FUTEX_WAIT_BITSET => {
            if third == 0 {
                return Err(Errno::EINVAL);
            }
            let deadline = deadline(timeout, true, realtime)?;
            wait(address, private, value, deadline, third)
        }
        // A negative number wakes one waiter, as in Linux, which compares after the first waiter.
        FUTEX_WAKE => futex::wake(address, private, (value as i32).max(1) as usize, ALL),
        FUTEX_WAKE_BITSET => {
            if third == 0 {
                return Err(Errno::EINVAL);
            }
            futex::wake(address, private, (value as i32).max(1) as usize, third)
        }
        FUTEX_REQUEUE => {
            let (wakes, moves) = (count(value as usize)?, count(timeout)?);
            futex::requeue(address, second, private, wakes, moves, None)
                .map(|(woken, moved)| woken + moved)
        }
        FUTEX_CMP_REQUEUE => {
            let (wakes, moves) = (count(value as usize)?, count(timeout)?);
            futex::requeue(address, second, private, wakes, moves, Some(third))
                .map(|(woken, moved)| woken + moved)
        }
        FUTEX_WAKE_OP => {
            futex::wake_op(address, second, private, value as usize, timeout as u32 as usize, third)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// The end of a wait.
fn deadline(timeout: usize, absolute: bool, realtime: bool) -> Result<Option<Until>> {
    if timeout == 0 {
        return Ok(None);
    }
    let given = UserPtr::<Timespec>::new(timeout).read()?.to_nanos()?;
    Ok(Some(match (absolute, realtime) {
        (false, _) => Until::Monotonic(time::monotonic_ns().saturating_add(given)),
        (true, false) => Until::Monotonic(given),
        (true, true) => Until::Realtime(given),
    }))
}

fn wait(
    address: usize,
    private: bool,
    value: u32,
    until: Option<Until>,
    bits: u32,
) -> Result<usize> {
    match futex::wait(address, private, value, until, bits) {
        Ok(()) => Ok(0),
        Err(Errno::ERESTARTSYS) => match until {
            // A relative time must not start again: the restarted wait has the same end.
            Some(until) => Err(process::current().restart_with(Restart::Futex {
                address,
                value,
                private,
                until,
                bits,
            })),
            None => Err(Errno::ERESTARTSYS),
        },
        Err(error) => Err(error),
    }
}

/// Continues an interrupted wait.
pub fn wait_again(
    address: usize,
    value: u32,
    private: bool,
    until: Until,
    bits: u32,
) -> Result<()> {
    wait(address, private, value, Some(until), bits).map(|_| ())
}

/// `futex_waitv(2)`
pub fn futex_waitv(
    waiters: usize,
    count: u32,
    flags: u32,
    timeout: usize,
    clock: i32,
) -> Result<usize> {
    if flags != 0 || waiters == 0 || !(1..=futex::WORDS).contains(&(count as usize)) {
        return Err(Errno::EINVAL);
    }
    let until = match (timeout, clock) {
        (0, _) => None,
        (_, CLOCK_REALTIME | CLOCK_MONOTONIC) => {
            let given = UserPtr::<Timespec>::new(timeout).read()?.to_nanos()?;
            Some(match clock {
                CLOCK_REALTIME => Until::Realtime(given),
                _ => Until::Monotonic(given),
            })
        }
        _ => return Err(Errno::EINVAL),
    };
    let mut words = Vec::new();
    words.make_room_exact(count as usize)?;
    let first = UserPtr::<FutexWaitv>::new(waiters);
    for index in 0..count as usize {
        words.push(awaited(&first.at(index).read()?)?);
    }
    // The time is absolute: a call that is made again after a signal has the same end.
    futex::wait_any(&words, until)
}

/// One word of `futex_waitv(2)` (`futex_parse_waitv`). Fails with `EINVAL`.
fn awaited(given: &FutexWaitv) -> Result<Awaited> {
    const FUTEX_32: u32 = 2;
    const PRIVATE: u32 = FUTEX_PRIVATE_FLAG as u32;
    let known = given.flags & !(FUTEX_32 | PRIVATE) == 0 && given.flags & FUTEX_32 != 0;
    if !known || given.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Awaited {
        address: given.uaddr as usize,
        private: given.flags & PRIVATE != 0,
        // The upper half means nothing for a word of 32 bits (`futex_wait_multiple_setup`, 6.1).
        value: given.val as u32,
    })
}

/// `rseq(2)`
pub fn rseq(area: usize, size: u32, flags: u32, signature: u32) -> Result<()> {
    let thread = process::current();
    match flags {
        0 => thread.sequences.register(area, size, signature),
        RSEQ_FLAG_UNREGISTER => sequences::unregister(&thread, area, size, signature),
        _ => Err(Errno::EINVAL),
    }
}

/// `set_robust_list(2)`
pub fn set_robust_list(head: usize, size: usize) -> Result<()> {
    if size != size_of::<hayate_abi::process::RobustListHead>() {
        return Err(Errno::EINVAL);
    }
    process::current().robust_list.store(head, Ordering::Relaxed);
    Ok(())
}

/// `get_robust_list(2)`
pub fn get_robust_list(pid: i32, head: usize, size: usize) -> Result<()> {
    let found = if pid == 0 {
        process::current().robust_list.load(Ordering::Relaxed)
    } else {
        let number = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
        let thread = visible::thread(number).ok_or(Errno::ESRCH)?;
        // Only a caller that could look into the memory may get the address.
        process::foreign_space(pid)?;
        thread.robust_list.load(Ordering::Relaxed)
    };
    UserPtr::new(size).write(&size_of::<hayate_abi::process::RobustListHead>())?;
    UserPtr::new(head).write(&found)
}
