//! Clocks and sleeping: clock_gettime(2) and its relatives, nanosleep(2), gettimeofday(2).
//!
//! All clocks count from one source, the TSC: CLOCK_MONOTONIC since the kernel's first
//! instruction, CLOCK_REALTIME with an offset that can be set. There is no suspend, so
//! CLOCK_BOOTTIME is CLOCK_MONOTONIC, and the coarse clocks are the fine ones. adjtimex(2) is in
//! `adjust.rs`.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hayate_abi::time::{NANOS_PER_SEC, Timespec, Timeval, Timezone};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use crate::clock;
use crate::credentials::Capability;
use crate::process;
use crate::process::timer;
use crate::process::timer::Clock;
use crate::process::{Process, pids, visible};
use crate::schedule;
use crate::schedule::{Woken, time};

/// The clocks (`clock_gettime(2)`).
#[allow(missing_docs, reason = "named as in clock_gettime(2)")]
mod clocks {
    pub const CLOCK_REALTIME: i32 = 0;
    pub const CLOCK_MONOTONIC: i32 = 1;
    pub const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
    pub const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    pub const CLOCK_MONOTONIC_RAW: i32 = 4;
    pub const CLOCK_REALTIME_COARSE: i32 = 5;
    pub const CLOCK_MONOTONIC_COARSE: i32 = 6;
    pub const CLOCK_BOOTTIME: i32 = 7;
    pub const CLOCK_REALTIME_ALARM: i32 = 8;
    pub const CLOCK_BOOTTIME_ALARM: i32 = 9;
    pub const CLOCK_TAI: i32 = 11;
}
pub use clocks::*;

const TIMER_ABSTIME: u32 = 1;

/// Whether a clock's number refers to an open file (`FD_TO_CLOCKID`); no such clocks exist here.
pub fn is_file_clock(clock: i32) -> bool {
    clock < 0 && clock & 7 == 3
}

/// The clock of processor time with this number, and its process. Fails with EINVAL.
///
/// Negative numbers name the processor time of a process or thread (`MAKE_PROCESS_CPUCLOCK`, Linux
/// `include/linux/posix-timers.h`), as clock_getcpuclockid(3) makes them. Threads of other
/// processes have none (`pid_for_clock`).
pub fn cpu_clock(clock: i32) -> Result<(Arc<Process>, Clock)> {
    const PER_THREAD: i32 = 4;
    let own = process::current();
    match clock {
        CLOCK_PROCESS_CPUTIME_ID => return Ok((own.process.clone(), Clock::Process)),
        CLOCK_THREAD_CPUTIME_ID => return Ok((own.process.clone(), Clock::Thread(own.id()))),
        clock if clock >= 0 || clock & 3 == 3 => return Err(Errno::EINVAL),
        _ => {}
    }
    let number = !(clock >> 3) as u32;
    let id = if number == 0 { 0 } else { visible::meant(number) };
    if clock & PER_THREAD != 0 {
        let id = if id == 0 { own.id() } else { id };
        own.process.thread(id).ok_or(Errno::EINVAL)?;
        return Ok((own.process.clone(), Clock::Thread(id)));
    }
    let process = match id {
        0 => own.process.clone(),
        // A thread may name its process by its own number.
        id if id == own.id() => own.process.clone(),
        id => pids::process(id).ok_or(Errno::EINVAL)?,
    };
    Ok((process, Clock::Process))
}

/// The value of a clock in nanoseconds; EINVAL for an unknown clock.
pub fn read_clock(clock: i32) -> Result<u64> {
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_REALTIME_ALARM => Ok(time::realtime_ns()),
        CLOCK_TAI => Ok(Clock::Tai.now(&process::current().process)),
        CLOCK_MONOTONIC_RAW => Ok(time::raw_ns()),
        CLOCK_MONOTONIC | CLOCK_MONOTONIC_COARSE | CLOCK_BOOTTIME | CLOCK_BOOTTIME_ALARM => {
            Ok(time::monotonic_ns())
        }
        CLOCK_THREAD_CPUTIME_ID => Ok(schedule::current().run_time()),
        clock => {
            let (process, clock) = cpu_clock(clock)?;
            Ok(clock.now(&process))
        }
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
    if clock < 0 && !is_file_clock(clock) {
        // Linux copies the time before it finds that processor time cannot be set
        // (`posix_cpu_clock_set`).
        let _: Timespec = UserPtr::new(at).read()?;
        cpu_clock(clock)?;
        return Err(Errno::EPERM);
    }
    if clock != CLOCK_REALTIME {
        return Err(Errno::EINVAL);
    }
    let new: Timespec = UserPtr::new(at).read()?;
    set_real_time(Some(new))
}

/// Sets the clock if `new` is given; EPERM without the privilege, whether or not it is given.
fn set_real_time(new: Option<Timespec>) -> Result<()> {
    /// Thirty years before the largest time in 64 bits of nanoseconds (`TIME_SETTOD_SEC_MAX`).
    const MOST_SECONDS: i64 = i64::MAX / NANOS_PER_SEC as i64 - 30 * 365 * 24 * 3600;
    let nanos = new.map(Timespec::to_nanos).transpose()?;
    if new.is_some_and(|new| new.tv_sec >= MOST_SECONDS) {
        return Err(Errno::EINVAL);
    }
    process::current().credentials().require(Capability::SysTime)?;
    let Some(nanos) = nanos else { return Ok(()) };
    // Linux also refuses a time below that since boot (`do_settimeofday64`).
    if nanos < time::monotonic_ns() {
        return Err(Errno::EINVAL);
    }
    clock::set(nanos);
    Ok(())
}

/// The time zone, which the kernel only stores for programs (`sys_tz`): minutes west of Greenwich,
/// and the kind of daylight saving in the upper half.
static ZONE: AtomicU64 = AtomicU64::new(0);
/// Whether the time zone was set before.
static ZONE_WAS_SET: AtomicBool = AtomicBool::new(false);

/// gettimeofday(2).
pub fn gettimeofday(at: usize, zone: usize) -> Result<()> {
    if let Some(pointer) = UserPtr::new(at).optional() {
        pointer.write(&Timeval::from_nanos(time::realtime_ns()))?;
    }
    if let Some(pointer) = UserPtr::new(zone).optional() {
        let kept = ZONE.load(Ordering::Relaxed);
        let (tz_minuteswest, tz_dsttime) = (kept as u32 as i32, (kept >> 32) as u32 as i32);
        pointer.write(&Timezone { tz_minuteswest, tz_dsttime })?;
    }
    Ok(())
}

/// settimeofday(2). The first time zone, if given without a time, tells that the clock showed that
/// zone's time: the clock is set to UTC (`do_sys_settimeofday64`, "warp clock").
pub fn settimeofday(at: usize, zone: usize) -> Result<()> {
    const MOST_MINUTES: i32 = 15 * 60;
    let new = match UserPtr::<Timeval>::new(at).optional() {
        Some(pointer) => {
            let given = pointer.read()?;
            given.to_nanos()?;
            Some(Timespec { tv_sec: given.tv_sec, tv_nsec: given.tv_usec * 1000 })
        }
        None => None,
    };
    let zone: Option<Timezone> = match UserPtr::new(zone).optional() {
        Some(pointer) => Some(pointer.read()?),
        None => None,
    };
    let own = process::current();
    own.credentials().require(Capability::SysTime)?;
    if let Some(zone) = zone {
        if !(-MOST_MINUTES..=MOST_MINUTES).contains(&zone.tz_minuteswest) {
            return Err(Errno::EINVAL);
        }
        let halves = (zone.tz_minuteswest as u32, zone.tz_dsttime as u32);
        ZONE.store(u64::from(halves.0) | u64::from(halves.1) << 32, Ordering::Relaxed);
        let is_first = !ZONE_WAS_SET.swap(true, Ordering::Relaxed);
        if is_first && new.is_none() && zone.tz_minuteswest != 0 {
            let west = i64::from(zone.tz_minuteswest) * 60 * NANOS_PER_SEC as i64;
            clock::step(west)?;
        }
    }
    set_real_time(new)
}

/// time(2).
pub fn time(at: usize) -> Result<i64> {
    let now = (time::realtime_ns() / NANOS_PER_SEC) as i64;
    if let Some(pointer) = UserPtr::new(at).optional() {
        pointer.write(&now)?;
    }
    Ok(now)
}

/// nanosleep(2).
pub fn nanosleep(request: usize, remaining: usize) -> Result<()> {
    let span: Timespec = UserPtr::new(request).read()?;
    let deadline = time::monotonic_ns().saturating_add(span.to_nanos()?);
    sleep(deadline, remaining)
}

/// Sleeps until `deadline` on the monotonic clock. If it is interrupted, the time left goes to
/// `remaining`, and the call continues after the signal unless a handler ran (restart_syscall(2)).
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

/// The clock of a sleep.
enum SleepClock {
    /// A clock that runs and is never set.
    Monotonic,
    /// A clock that can be set.
    Settable(Clock),
    /// Processor time of a process.
    Processor(Arc<Process>, Clock),
}

/// The clock of a sleep: EINVAL for an unknown clock, EOPNOTSUPP for a clock without sleep, as in
/// kernel/time/posix-timers.c of Linux 6.1 where clock_nanosleep(2) says EINVAL.
fn sleep_clock(clock: i32) -> Result<SleepClock> {
    const PER_THREAD: i32 = 4;
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_ALARM => Ok(SleepClock::Settable(Clock::Realtime)),
        CLOCK_TAI => Ok(SleepClock::Settable(Clock::Tai)),
        CLOCK_MONOTONIC | CLOCK_BOOTTIME | CLOCK_BOOTTIME_ALARM => Ok(SleepClock::Monotonic),
        CLOCK_THREAD_CPUTIME_ID
        | CLOCK_MONOTONIC_RAW
        | CLOCK_REALTIME_COARSE
        | CLOCK_MONOTONIC_COARSE => Err(Errno::EOPNOTSUPP),
        clock if is_file_clock(clock) => Err(Errno::EOPNOTSUPP),
        number => {
            let (process, clock) = cpu_clock(number)?;
            let is_own = clock == Clock::Thread(process::current().id());
            // A thread that sleeps uses no processor time: it would sleep for ever.
            if number & PER_THREAD != 0 && is_own {
                Err(Errno::EINVAL)
            } else {
                Ok(SleepClock::Processor(process, clock))
            }
        }
    }
}

/// clock_nanosleep(2)
pub fn clock_nanosleep(number: i32, how: u32, request: usize, remaining: usize) -> Result<()> {
    let clock = match sleep_clock(number) {
        // Errors in the request are reported before errors in the clock of a process.
        Err(Errno::EINVAL) if number < 0 => Err(Errno::EINVAL),
        found => Ok(found?),
    };
    let request: Timespec = UserPtr::new(request).read()?;
    let request = request.to_nanos()?;
    let clock = clock?;
    let absolute = how & TIMER_ABSTIME != 0;
    if let SleepClock::Processor(process, clock) = clock {
        return sleep_on_cpu_time(&process, clock, number, request, absolute, remaining);
    }
    if matches!(number, CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM) {
        if how & !TIMER_ABSTIME != 0 {
            return Err(Errno::EINVAL);
        }
        process::current().credentials().require(Capability::WakeAlarm)?;
    }
    if !absolute {
        return sleep(time::monotonic_ns().saturating_add(request), remaining);
    }
    let slept = match clock {
        SleepClock::Settable(clock) => sleep_until_time(clock, request),
        _ => schedule::sleep_until(request, true),
    };
    match slept {
        Ok(()) | Err(Woken::TimedOut) => Ok(()),
        // When the call is made again with the same absolute time, it simply continues.
        Err(Woken::Interrupted) => Err(Errno::ERESTARTNOHAND),
    }
}

/// Sleeps until a clock that can be set shows a time, by running or by being set.
fn sleep_until_time(clock: Clock, until: u64) -> core::result::Result<(), Woken> {
    let own = process::current();
    loop {
        let seen = clock::settings();
        let left = until.saturating_sub(clock.now(&own.process));
        let deadline = time::monotonic_ns().saturating_add(left);
        let was_set = || (clock::settings() != seen).then_some(());
        clock::SET.wait_interruptible(Some(deadline), was_set)?;
    }
}

/// Sleeps until a process has used some processor time.
fn sleep_on_cpu_time(
    process: &Arc<Process>,
    clock: Clock,
    number: i32,
    request: u64,
    absolute: bool,
    remaining: usize,
) -> Result<()> {
    if absolute {
        return timer::sleep_on(process, clock, request);
    }
    let due = clock.now(process).saturating_add(request);
    sleep_on_until(process, clock, number, due, remaining)
}

fn sleep_on_until(
    process: &Arc<Process>,
    clock: Clock,
    number: i32,
    due: u64,
    remaining: usize,
) -> Result<()> {
    match timer::sleep_on(process, clock, due) {
        Err(Errno::ERESTARTNOHAND) => {
            if let Some(pointer) = UserPtr::new(remaining).optional() {
                let rest = due.saturating_sub(clock.now(process));
                pointer.write(&Timespec::from_nanos(rest))?;
            }
            let restart = process::Restart::CpuSleep { clock: number, due, remaining };
            Err(process::current().restart_with(restart))
        }
        result => result,
    }
}

/// Continues a sleep on processor time (restart_syscall(2)).
pub fn sleep_on_again(number: i32, due: u64, remaining: usize) -> Result<()> {
    let (process, clock) = cpu_clock(number)?;
    sleep_on_until(&process, clock, number, due, remaining)
}
