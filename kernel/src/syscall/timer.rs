//! Interval timers and POSIX timers (`setitimer(2)`, `alarm(2)`, `timer_create(2)`).

use alloc::sync::Arc;

use hayate_abi::signal::Sigevent;
use hayate_abi::time::{Itimerspec, Itimerval, NANOS_PER_SEC, Timespec, Timeval};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::time;
use crate::process;
use crate::process::cpu_time;
use crate::process::signal::is_signal;
use crate::process::timer;
use crate::process::timer::{Clock, Notify, Setting};

/// The three interval timers.
enum Which {
    Real,
    Cpu(cpu_time::Which),
}

impl Which {
    fn decode(number: i32) -> Result<Which> {
        const ITIMER_REAL: i32 = 0;
        const ITIMER_VIRTUAL: i32 = 1;
        const ITIMER_PROF: i32 = 2;
        match number {
            ITIMER_REAL => Ok(Which::Real),
            ITIMER_VIRTUAL => Ok(Which::Cpu(cpu_time::Which::Virtual)),
            ITIMER_PROF => Ok(Which::Cpu(cpu_time::Which::Profiling)),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn to_itimerval(setting: Setting) -> Itimerval {
    // The time left of an armed timer is never shown as zero.
    let value = if setting.value == 0 { 0 } else { setting.value.max(1000) };
    Itimerval {
        it_interval: Timeval::from_nanos(setting.interval),
        it_value: Timeval::from_nanos(value),
    }
}

fn to_itimerspec(setting: Setting) -> Itimerspec {
    Itimerspec {
        it_interval: Timespec::from_nanos(setting.interval),
        it_value: Timespec::from_nanos(setting.value),
    }
}

/// `alarm(2)`: returns the seconds that were left, rounded so that 0 means that there was no alarm.
pub fn alarm(seconds: u32) -> u32 {
    let value = u64::from(seconds) * NANOS_PER_SEC;
    let old = timer::set_real(&process::current().process, Setting { value, interval: 0 });
    if old.value == 0 {
        0
    } else {
        (old.value.saturating_add(NANOS_PER_SEC / 2) / NANOS_PER_SEC).clamp(1, u64::from(u32::MAX))
            as u32
    }
}

/// `getitimer(2)`
pub fn getitimer(which: i32, current: usize) -> Result<()> {
    let own = process::current();
    let found = match Which::decode(which)? {
        Which::Real => timer::real(&own.process),
        Which::Cpu(which) => cpu_time::get(&own.process, which),
    };
    UserPtr::new(current).write(&to_itimerval(found))
}

/// `setitimer(2)`
pub fn setitimer(which: i32, new: usize, old: usize) -> Result<()> {
    let which = Which::decode(which)?;
    let setting = match new {
        // Linux treats a null pointer as a timer of zeroes.
        0 => Setting::default(),
        address => {
            let new: Itimerval = UserPtr::new(address).read()?;
            Setting { value: new.it_value.to_nanos()?, interval: new.it_interval.to_nanos()? }
        }
    };
    let own = process::current();
    let before = match which {
        Which::Real => timer::set_real(&own.process, setting),
        Which::Cpu(which) => cpu_time::set(&own.process, which, setting),
    };
    if old != 0 {
        UserPtr::new(old).write(&to_itimerval(before))?;
    }
    Ok(())
}

/// `timer_create(2)`
pub fn timer_create(clock: i32, event: usize, id: usize) -> Result<()> {
    let event: Option<Sigevent> = match event {
        0 => None,
        address => Some(UserPtr::new(address).read()?),
    };
    let clock = timer_clock(clock)?;
    let notify = match event {
        None => None,
        Some(event) => Some((notification(&event)?, event.sigev_value)),
    };
    let own = process::current();
    let made = timer::create(&own.process, clock, notify)?;
    UserPtr::new(id).write(&made).inspect_err(|_| {
        let _ = timer::delete(&own.process, made);
    })
}

/// The clock of a timer: EINVAL for an unknown clock, EOPNOTSUPP for a clock without timers
/// (`clockid_to_kclock` and `timer_create` of the clocks, kernel/time/posix-timers.c of Linux 6.1).
fn timer_clock(clock: i32) -> Result<Clock> {
    match clock {
        time::CLOCK_REALTIME => Ok(Clock::Realtime),
        time::CLOCK_TAI => Ok(Clock::Tai),
        time::CLOCK_MONOTONIC | time::CLOCK_BOOTTIME => Ok(Clock::Monotonic),
        time::CLOCK_PROCESS_CPUTIME_ID => Ok(Clock::Process),
        time::CLOCK_THREAD_CPUTIME_ID => Ok(Clock::Thread(process::current().id())),
        time::CLOCK_MONOTONIC_RAW
        | time::CLOCK_REALTIME_COARSE
        | time::CLOCK_MONOTONIC_COARSE
        | time::CLOCK_REALTIME_ALARM
        | time::CLOCK_BOOTTIME_ALARM => Err(Errno::EOPNOTSUPP),
        clock if time::is_file_clock(clock) => Err(Errno::EOPNOTSUPP),
        clock => {
            let (process, clock) = time::cpu_clock(clock)?;
            let is_own = Arc::ptr_eq(&process, &process::current().process);
            if is_own { Ok(clock) } else { Err(Errno::EOPNOTSUPP) }
        }
    }
}

/// Decodes the notification of an event (`good_sigevent`). Fails with EINVAL.
fn notification(event: &Sigevent) -> Result<Notify> {
    const SIGEV_SIGNAL: i32 = 0;
    const SIGEV_NONE: i32 = 1;
    const SIGEV_THREAD: i32 = 2;
    const SIGEV_THREAD_ID: i32 = 4;
    let signal = || match u32::try_from(event.sigev_signo) {
        Ok(signal) if is_signal(signal) => Ok(signal),
        _ => Err(Errno::EINVAL),
    };
    match event.sigev_notify {
        SIGEV_NONE => Ok(Notify::Nothing),
        // The C library makes the thread; for the kernel it is an ordinary signal.
        SIGEV_SIGNAL | SIGEV_THREAD => Ok(Notify::Process(signal()?)),
        SIGEV_THREAD_ID => {
            let thread = timer::own_thread(event.sigev_notify_thread_id).ok_or(Errno::EINVAL)?;
            Ok(Notify::Thread(signal()?, thread.id()))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `timer_settime(2)`
pub fn timer_settime(id: i32, flags: u32, new: usize, old: usize) -> Result<()> {
    const TIMER_ABSTIME: u32 = 1;
    let new = UserPtr::<Itimerspec>::new(new).optional().ok_or(Errno::EINVAL)?;
    let wanted = new.read()?;
    let setting =
        Setting { value: wanted.it_value.to_nanos()?, interval: wanted.it_interval.to_nanos()? };
    let own = process::current();
    let before = timer::set(&own.process, id, setting, flags & TIMER_ABSTIME != 0)?;
    if old != 0 {
        UserPtr::new(old).write(&to_itimerspec(before))?;
    }
    Ok(())
}

/// `timer_gettime(2)`
pub fn timer_gettime(id: i32, current: usize) -> Result<()> {
    let found = timer::get(&process::current().process, id)?;
    UserPtr::new(current).write(&to_itimerspec(found))
}

/// `timer_getoverrun(2)`
pub fn timer_getoverrun(id: i32) -> Result<i32> {
    timer::overrun(&process::current().process, id)
}

/// `timer_delete(2)`
pub fn timer_delete(id: i32) -> Result<()> {
    timer::delete(&process::current().process, id)
}
