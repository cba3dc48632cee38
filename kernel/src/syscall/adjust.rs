//! adjtimex(2) and clock_adjtime(2): the interface to the clock's discipline.

use hayate_abi::time::{NANOS_PER_SEC, Timespec, Timeval, Timex};
use hayate_abi::{Errno, Result};
use hayate_clock_discipline::{Adjustment, Discipline, MOST_FREQUENCY, TICKS, modes, status};
use hayate_machine::user::UserPtr;

use super::time as clocks;
use super::time::is_file_clock;
use crate::clock;
use crate::credentials::Capability;
use crate::process;
use crate::schedule::time;

/// clock_adjtime(2): EINVAL for an unknown clock, EOPNOTSUPP for a clock that cannot be adjusted.
pub fn clock_adjtime(number: i32, at: usize) -> Result<i32> {
    // Linux copies the request first (`clock_adjtime`, kernel/time/posix-timers.c of Linux 6.1).
    let asked: Timex = UserPtr::new(at).read()?;
    if number == clocks::CLOCK_REALTIME {
        return adjust(&asked, at);
    }
    if is_file_clock(number) {
        return Err(Errno::EINVAL);
    }
    let exists = match number {
        number if number < 0 => true,
        clocks::CLOCK_TAI => true,
        number => (clocks::CLOCK_REALTIME..=clocks::CLOCK_BOOTTIME_ALARM).contains(&number),
    };
    Err(if exists { Errno::EOPNOTSUPP } else { Errno::EINVAL })
}

/// adjtimex(2)
pub fn adjtimex(at: usize) -> Result<i32> {
    adjust(&UserPtr::new(at).read()?, at)
}

/// Checks a request: EPERM, EINVAL (`timekeeping_validate_timex`, kernel/time/timekeeping.c).
fn check(asked: &Timex) -> Result<()> {
    let has = |mode| asked.modes & mode != 0;
    let require = || process::current().credentials().require(Capability::SysTime);
    if has(modes::ADJ_ADJTIME) {
        // "singleshot" must not be used with any other mode bits
        if !has(modes::ADJ_OFFSET) {
            return Err(Errno::EINVAL);
        }
        if !has(modes::ADJ_OFFSET_READONLY) {
            require()?;
        }
    } else {
        if asked.modes != 0 {
            require()?;
        }
        if has(modes::ADJ_TICK) && !TICKS.contains(&asked.tick) {
            return Err(Errno::EINVAL);
        }
    }
    if has(modes::ADJ_SETOFFSET) {
        require()?;
        let most = if has(modes::ADJ_NANO) { NANOS_PER_SEC as i64 } else { 1_000_000 };
        if !(0..most).contains(&asked.time.tv_usec) {
            return Err(Errno::EINVAL);
        }
    }
    /// Nanoseconds per second, with 32 fraction bits, in one unit of frequency (`PPM_SCALE`).
    const UNIT: i64 = 1000 << 16;
    let fits = (i64::MIN / UNIT..=i64::MAX / UNIT).contains(&asked.freq);
    if has(modes::ADJ_FREQUENCY) && !fits { Err(Errno::EINVAL) } else { Ok(()) }
}

fn adjust(asked: &Timex, at: usize) -> Result<i32> {
    check(asked)?;
    if asked.modes & modes::ADJ_SETOFFSET != 0 {
        let finer = if asked.modes & modes::ADJ_NANO != 0 { 1 } else { 1000 };
        let seconds = asked.time.tv_sec.checked_mul(NANOS_PER_SEC as i64).ok_or(Errno::EINVAL)?;
        clock::step(seconds.checked_add(asked.time.tv_usec * finer).ok_or(Errno::EINVAL)?)?;
    }
    let request = Adjustment {
        modes: asked.modes,
        offset: asked.offset,
        freq: asked.freq,
        maxerror: asked.maxerror,
        esterror: asked.esterror,
        status: asked.status,
        constant: asked.constant,
        tick: asked.tick,
    };
    let (shown, state) = clock::adjust(|discipline, now| {
        let offset = discipline.adjust(&request, now);
        (show(discipline, offset, asked.modes), discipline.state() as i32)
    });
    UserPtr::new(at).write(&shown)?;
    Ok(state)
}

fn show(discipline: &Discipline, offset: i64, modes: u32) -> Timex {
    let now = Timespec::from_nanos(time::realtime_ns());
    let finer = if discipline.status & status::STA_NANO != 0 { 1 } else { 1000 };
    Timex {
        modes,
        offset,
        freq: discipline.frequency(),
        maxerror: discipline.max_error,
        esterror: discipline.estimated_error,
        status: discipline.status,
        constant: discipline.constant,
        precision: 1,
        tolerance: MOST_FREQUENCY,
        time: Timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / finer },
        tick: discipline.tick,
        tai: discipline.tai as i32,
        ..Timex::default()
    }
}
