//! Clocks and sleeping: clock_gettime(2) and its relatives, nanosleep(2), gettimeofday(2).
//!
//! All clocks count from one source, the TSC: CLOCK_MONOTONIC since the kernel's first
//! instruction, CLOCK_REALTIME with an offset that can be set. There is no suspend, so
//! CLOCK_BOOTTIME is CLOCK_MONOTONIC, and nothing disciplines the clock, so the raw and the coarse
//! clocks are the fine ones.

use hayate_abi::time::{CLOCK_TICKS_PER_SEC, NANOS_PER_SEC, Timespec, Timeval, Timex, Timezone};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use crate::credentials::Capability;
use crate::process::{self, Process, Thread, pids};
use crate::schedule::{self, Woken, time};

const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
const CLOCK_MONOTONIC_RAW: i32 = 4;
const CLOCK_REALTIME_COARSE: i32 = 5;
const CLOCK_MONOTONIC_COARSE: i32 = 6;
const CLOCK_BOOTTIME: i32 = 7;
const CLOCK_REALTIME_ALARM: i32 = 8;
const CLOCK_BOOTTIME_ALARM: i32 = 9;
const CLOCK_TAI: i32 = 11;
const TIMER_ABSTIME: u32 = 1;

/// Processor time that all threads of a process have had, in nanoseconds.
pub fn process_cpu_time(process: &Process) -> u64 {
    let usage = process.usage();
    usage.user_ns + usage.system_ns
}

fn thread_cpu_time(thread: &Thread) -> u64 {
    thread.execution().map_or(0, |execution| execution.run_time())
}

/// The value of a clock in nanoseconds; EINVAL for a clock that is none.
///
/// Negative numbers name the processor time of a process or thread (`MAKE_PROCESS_CPUCLOCK`,
/// Linux `include/linux/posix-timers.h`), as clock_getcpuclockid(3) makes them.
pub fn read_clock(clock: i32) -> Result<u64> {
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_REALTIME_ALARM | CLOCK_TAI => {
            Ok(time::realtime_ns())
        }
        CLOCK_MONOTONIC
        | CLOCK_MONOTONIC_RAW
        | CLOCK_MONOTONIC_COARSE
        | CLOCK_BOOTTIME
        | CLOCK_BOOTTIME_ALARM => Ok(time::monotonic_ns()),
        CLOCK_PROCESS_CPUTIME_ID => Ok(process_cpu_time(&process::current().process)),
        CLOCK_THREAD_CPUTIME_ID => Ok(schedule::current().run_time()),
        clock if clock < 0 => {
            const PER_THREAD: i32 = 4;
            let id = !(clock >> 3) as u32;
            if clock & 3 == 3 {
                return Err(Errno::EINVAL);
            }
            if clock & PER_THREAD != 0 {
                let thread = match id {
                    0 => return Ok(schedule::current().run_time()),
                    id => pids::thread(id).ok_or(Errno::EINVAL)?,
                };
                return Ok(thread_cpu_time(&thread));
            }
            match id {
                0 => Ok(process_cpu_time(&process::current().process)),
                id => Ok(process_cpu_time(&*pids::process(id).ok_or(Errno::EINVAL)?)),
            }
        }
        _ => Err(Errno::EINVAL),
    }
}

/// clock_gettime(2).
pub fn clock_gettime(clock: i32, at: usize) -> Result<()> {
    let now = Timespec::from_nanos(read_clock(clock)?);
    UserPtr::new(at).write(&now)
}

/// clock_getres(2).
pub fn clock_getres(clock: i32, at: usize) -> Result<()> {
    read_clock(clock)?;
    match UserPtr::new(at).optional() {
        Some(pointer) => pointer.write(&Timespec { tv_sec: 0, tv_nsec: 1 }),
        None => Ok(()),
    }
}

/// clock_settime(2): only the real-time clock can be set.
pub fn clock_settime(clock: i32, at: usize) -> Result<()> {
    read_clock(clock)?;
    if clock != CLOCK_REALTIME {
        return Err(Errno::EINVAL);
    }
    let new: Timespec = UserPtr::new(at).read()?;
    set_real_time(new.to_nanos()?)
}

fn set_real_time(nanos: u64) -> Result<()> {
    process::current().credentials().require(Capability::SysTime)?;
    // Below what has passed since boot Linux refuses as well (timekeeping_inject_offset).
    if nanos < time::monotonic_ns() {
        return Err(Errno::EINVAL);
    }
    time::set_realtime(nanos);
    Ok(())
}

/// gettimeofday(2).
pub fn gettimeofday(at: usize, zone: usize) -> Result<()> {
    if let Some(pointer) = UserPtr::new(at).optional() {
        pointer.write(&Timeval::from_nanos(time::realtime_ns()))?;
    }
    if let Some(pointer) = UserPtr::new(zone).optional() {
        pointer.write(&Timezone::default())?;
    }
    Ok(())
}

/// settimeofday(2). A time zone is refused: the kernel keeps none.
pub fn settimeofday(at: usize, zone: usize) -> Result<()> {
    if zone != 0 {
        let zone: Timezone = UserPtr::new(zone).read()?;
        if zone.tz_minuteswest != 0 {
            return Err(Errno::EINVAL);
        }
    }
    match UserPtr::<Timeval>::new(at).optional() {
        Some(pointer) => set_real_time(pointer.read()?.to_nanos()?),
        None => Ok(()),
    }
}

/// time(2).
pub fn time(at: usize) -> Result<i64> {
    let now = (time::realtime_ns() / NANOS_PER_SEC) as i64;
    if let Some(pointer) = UserPtr::new(at).optional() {
        pointer.write(&now)?;
    }
    Ok(now)
}

/// clock_adjtime(2): the state can be read; nothing can be adjusted.
pub fn clock_adjtime(clock: i32, at: usize) -> Result<i32> {
    if clock != CLOCK_REALTIME {
        return Err(Errno::EINVAL);
    }
    adjtimex(at)
}

/// adjtimex(2): the state can be read; adjusting is refused.
pub fn adjtimex(at: usize) -> Result<i32> {
    const TIME_ERROR: i32 = 5;
    const STA_UNSYNC: i32 = 0x40;
    let pointer = UserPtr::<Timex>::new(at);
    let asked = pointer.read()?;
    if asked.modes != 0 {
        process::current().credentials().require(Capability::SysTime)?;
        return Err(Errno::EINVAL);
    }
    let now = Timeval::from_nanos(time::realtime_ns());
    let state = Timex {
        status: STA_UNSYNC,
        tick: (1_000_000 / CLOCK_TICKS_PER_SEC) as i64,
        time: now,
        maxerror: 16_000_000,
        esterror: 16_000_000,
        ..Timex::default()
    };
    pointer.write(&state)?;
    Ok(TIME_ERROR)
}

/// nanosleep(2).
pub fn nanosleep(request: usize, remaining: usize) -> Result<()> {
    let span: Timespec = UserPtr::new(request).read()?;
    let deadline = time::monotonic_ns().saturating_add(span.to_nanos()?);
    sleep(deadline, remaining)
}

/// Sleeps until `deadline` on the monotonic clock. Interrupted, the rest goes to `remaining` and
/// the call goes on after the signal unless a handler ran (restart_syscall(2)).
pub fn sleep(deadline: u64, remaining: usize) -> Result<()> {
    match schedule::sleep_until(deadline, true) {
        Ok(()) | Err(Woken::TimedOut) => Ok(()),
        Err(Woken::Interrupted) => {
            if let Some(pointer) = UserPtr::new(remaining).optional() {
                let rest = deadline.saturating_sub(time::monotonic_ns());
                pointer.write(&Timespec::from_nanos(rest))?;
            }
            let restart = process::Restart::Sleep { deadline, remaining };
            Err(process::current().restart_with(restart))
        }
    }
}

/// clock_nanosleep(2). ENOTSUP for processor-time clocks of threads, EINVAL for others that cannot
/// be slept on.
pub fn clock_nanosleep(clock: i32, how: u32, request: usize, remaining: usize) -> Result<()> {
    let offset = match clock {
        CLOCK_REALTIME | CLOCK_TAI => Some(time::realtime_ns().wrapping_sub(time::monotonic_ns())),
        CLOCK_MONOTONIC | CLOCK_BOOTTIME => Some(0),
        CLOCK_PROCESS_CPUTIME_ID => None,
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM => {
            process::current().credentials().require(Capability::WakeAlarm)?;
            let real = clock == CLOCK_REALTIME_ALARM;
            Some(if real { time::realtime_ns().wrapping_sub(time::monotonic_ns()) } else { 0 })
        }
        CLOCK_MONOTONIC_RAW | CLOCK_REALTIME_COARSE | CLOCK_MONOTONIC_COARSE => {
            return Err(Errno::ENOTSUP);
        }
        _ => return Err(Errno::EINVAL),
    };
    let request: Timespec = UserPtr::new(request).read()?;
    let request = request.to_nanos()?;
    let Some(offset) = offset else { return Err(Errno::ENOTSUP) };
    if how & TIMER_ABSTIME == 0 {
        return sleep(time::monotonic_ns().saturating_add(request), remaining);
    }
    match schedule::sleep_until(request.saturating_sub(offset), true) {
        Ok(()) | Err(Woken::TimedOut) => Ok(()),
        // Called again with the same absolute time, the call simply goes on.
        Err(Woken::Interrupted) => Err(Errno::ERESTARTNOHAND),
    }
}
