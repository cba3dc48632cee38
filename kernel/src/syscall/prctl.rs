//! Attributes of the calling thread and process (`prctl(2)`).

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};

use crate::credentials::{Capability, CapabilitySet, LAST_CAPABILITY, securebits};
use crate::process;
use crate::process::Thread;
use crate::process::signal::is_signal;
use crate::schedule;
use crate::syscall::seccomp;

#[allow(missing_docs, reason = "named as in prctl(2)")]
mod option {
    pub const PR_SET_PDEATHSIG: i32 = 1;
    pub const PR_GET_PDEATHSIG: i32 = 2;
    pub const PR_GET_DUMPABLE: i32 = 3;
    pub const PR_SET_DUMPABLE: i32 = 4;
    pub const PR_GET_KEEPCAPS: i32 = 7;
    pub const PR_SET_KEEPCAPS: i32 = 8;
    pub const PR_GET_TIMING: i32 = 13;
    pub const PR_SET_TIMING: i32 = 14;
    pub const PR_SET_NAME: i32 = 15;
    pub const PR_GET_NAME: i32 = 16;
    pub const PR_GET_SECCOMP: i32 = 21;
    pub const PR_SET_SECCOMP: i32 = 22;
    pub const PR_CAPBSET_READ: i32 = 23;
    pub const PR_CAPBSET_DROP: i32 = 24;
    pub const PR_GET_TSC: i32 = 25;
    pub const PR_SET_TSC: i32 = 26;
    pub const PR_TSC_ENABLE: i32 = 1;
    pub const PR_TSC_SIGSEGV: i32 = 2;
    pub const PR_GET_SECUREBITS: i32 = 27;
    pub const PR_SET_SECUREBITS: i32 = 28;
    pub const PR_SET_TIMERSLACK: i32 = 29;
    pub const PR_GET_TIMERSLACK: i32 = 30;
    pub const PR_SET_CHILD_SUBREAPER: i32 = 36;
    pub const PR_GET_CHILD_SUBREAPER: i32 = 37;
    pub const PR_SET_NO_NEW_PRIVS: i32 = 38;
    pub const PR_GET_NO_NEW_PRIVS: i32 = 39;
    pub const PR_GET_TID_ADDRESS: i32 = 40;
    pub const PR_CAP_AMBIENT: i32 = 47;
}
use option::*;

fn flag(value: usize) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

fn edit_securebits(thread: &Thread, bit: u32, on: bool) {
    let mut new = (*thread.credentials()).clone();
    if on {
        new.securebits |= bit;
    } else {
        new.securebits &= !bit;
    }
    thread.set_credentials(alloc::sync::Arc::new(new));
}

/// `prctl(2)`
pub fn prctl(which: i32, second: usize, third: usize, fourth: usize, fifth: usize) -> Result<i64> {
    let thread = process::current();
    let process = &thread.process;
    let rest_is_zero = third == 0 && fourth == 0 && fifth == 0;
    match which {
        PR_SET_PDEATHSIG => set_parent_death_signal(&thread, second)?,
        PR_GET_PDEATHSIG => {
            let signal = thread.parent_death_signal.load(Ordering::Relaxed);
            UserPtr::new(second).write(&signal)?;
        }
        PR_GET_DUMPABLE => return Ok(i64::from(process.dumpable.load(Ordering::Relaxed))),
        PR_SET_DUMPABLE => process.dumpable.store(u32::from(flag(second)?), Ordering::Relaxed),
        PR_GET_KEEPCAPS => {
            return Ok(i64::from(thread.credentials().securebits & securebits::KEEP_CAPS != 0));
        }
        PR_SET_KEEPCAPS => edit_securebits(&thread, securebits::KEEP_CAPS, flag(second)?),
        // Statistical timing is the only implemented mode.
        PR_GET_TIMING => {}
        PR_SET_TIMING if second == 0 => {}
        PR_SET_NAME => set_name(&thread, second)?,
        PR_GET_NAME => user::copy_out(second, &thread.name())?,
        PR_GET_SECCOMP => {
            return Ok(thread.filters.get().map_or(0, |state| state.mode().into()));
        }
        PR_SET_SECCOMP => return seccomp::set_mode(second, third),
        PR_CAPBSET_READ => {
            let bit = capability(second)?;
            return Ok(i64::from(thread.credentials().bounding.0 & bit != 0));
        }
        PR_CAPBSET_DROP => drop_from_bounding(&thread, second)?,
        PR_GET_TSC => {
            let may = schedule::current().may_read_tsc();
            UserPtr::new(second).write(if may { &PR_TSC_ENABLE } else { &PR_TSC_SIGSEGV })?;
        }
        PR_SET_TSC => set_tsc(second)?,
        PR_GET_SECUREBITS => return Ok(i64::from(thread.credentials().securebits)),
        PR_SET_SECUREBITS => set_securebits(&thread, second)?,
        PR_SET_TIMERSLACK => {
            let slack = if second == 0 { thread.default_timer_slack } else { second as u64 };
            thread.timer_slack.store(slack, Ordering::Relaxed);
        }
        PR_GET_TIMERSLACK => return Ok(thread.timer_slack.load(Ordering::Relaxed) as i64),
        PR_SET_CHILD_SUBREAPER => process.subreaper.store(second != 0, Ordering::Relaxed),
        PR_GET_CHILD_SUBREAPER => {
            let on = i32::from(process.subreaper.load(Ordering::Relaxed));
            UserPtr::new(second).write(&on)?;
        }
        PR_SET_NO_NEW_PRIVS if second == 1 && rest_is_zero => {
            thread.no_new_privileges.store(true, Ordering::Relaxed);
        }
        PR_GET_NO_NEW_PRIVS if second == 0 && rest_is_zero => {
            return Ok(i64::from(thread.no_new_privileges.load(Ordering::Relaxed)));
        }
        PR_GET_TID_ADDRESS => {
            UserPtr::new(second).write(&thread.clear_tid.load(Ordering::Relaxed))?;
        }
        PR_CAP_AMBIENT => return ambient(&thread, second, third, fourth == 0 && fifth == 0),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn set_parent_death_signal(thread: &Thread, signal: usize) -> Result<()> {
    let signal = u32::try_from(signal).map_err(|_| Errno::EINVAL)?;
    if signal != 0 && !is_signal(signal) {
        return Err(Errno::EINVAL);
    }
    thread.parent_death_signal.store(signal, Ordering::Relaxed);
    Ok(())
}

/// Removes a capability from the bounding set (capabilities(7)).
fn drop_from_bounding(thread: &Thread, number: usize) -> Result<()> {
    let bit = capability(number)?;
    thread.credentials().require_own(Capability::Setpcap)?;
    let mut new = (*thread.credentials()).clone();
    new.bounding = CapabilitySet(new.bounding.0 & !bit);
    thread.set_credentials(alloc::sync::Arc::new(new));
    Ok(())
}

/// Lets the thread read the time-stamp counter, or makes that a fault.
fn set_tsc(mode: usize) -> Result<()> {
    match i32::try_from(mode) {
        Ok(PR_TSC_ENABLE) => schedule::current().let_read_tsc(true),
        Ok(PR_TSC_SIGSEGV) => schedule::current().let_read_tsc(false),
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// The bit of a capability's number. Fails with `EINVAL` for an unknown number.
fn capability(number: usize) -> Result<u64> {
    if number as u64 <= u64::from(LAST_CAPABILITY) { Ok(1 << number) } else { Err(Errno::EINVAL) }
}

fn set_name(thread: &Thread, address: usize) -> Result<()> {
    let mut name = [0; 16];
    let length = match user::read_cstr(&mut name, address) {
        Ok(length) => length,
        // A longer name is cut off.
        Err(Errno::ENAMETOOLONG) => name.len() - 1,
        Err(error) => return Err(error),
    };
    thread.set_name(name.get(..length).unwrap_or(&name));
    Ok(())
}

/// Sets the securebits. Each bit has a second one that locks it.
fn set_securebits(thread: &Thread, wanted: usize) -> Result<()> {
    const ALL: u32 = 0xff;
    let old = thread.credentials().securebits;
    let wanted = u32::try_from(wanted).map_err(|_| Errno::EPERM)?;
    let locks = 0xaa;
    let locked = (old & locks) >> 1;
    if locked & (old ^ wanted) != 0 || old & locks & !wanted != 0 || wanted & !ALL != 0 {
        return Err(Errno::EPERM);
    }
    thread.credentials().require_own(Capability::Setpcap)?;
    edit_securebits(thread, ALL, false);
    edit_securebits(thread, wanted, true);
    Ok(())
}

fn ambient(thread: &Thread, operation: usize, number: usize, rest_is_zero: bool) -> Result<i64> {
    const IS_SET: usize = 1;
    const RAISE: usize = 2;
    const LOWER: usize = 3;
    const CLEAR_ALL: usize = 4;
    if !rest_is_zero {
        return Err(Errno::EINVAL);
    }
    let mut new = (*thread.credentials()).clone();
    if operation == CLEAR_ALL {
        if number != 0 {
            return Err(Errno::EINVAL);
        }
        new.ambient = CapabilitySet::EMPTY;
    } else {
        let bit = capability(number)?;
        match operation {
            IS_SET => return Ok(i64::from(new.ambient.0 & bit != 0)),
            RAISE => {
                let raisable = new.permitted.0 & new.inheritable.0 & bit != 0
                    && new.securebits & securebits::NO_CAP_AMBIENT_RAISE == 0;
                if !raisable {
                    return Err(Errno::EPERM);
                }
                new.ambient.0 |= bit;
            }
            LOWER => new.ambient.0 &= !bit,
            _ => return Err(Errno::EINVAL),
        }
    }
    thread.set_credentials(alloc::sync::Arc::new(new));
    Ok(0)
}
