//! Interval timers and POSIX timers (`setitimer(2)`, `timer_create(2)`).
//!
//! A process that uses timers has a [`Timers`] record behind one lock (the lock of the followers of
//! the clock, `clock.rs`, comes before it); the other processes have an empty slot. Timers on a
//! clock are timers of the scheduler; those on processor time are checked on each tick
//! (`cpu_time.rs`). A timer expires on the processor on which it was armed, with interrupts off,
//! and there only queues a signal and counts.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};

use super::pids;
use super::record::Process;
use super::signal::send;
use super::thread::{Thread, current};
pub use super::timers::{Clock, CpuInterval, Notify};
use super::timers::{Interval, Posix, Sleeper, Timers};
use super::visible;
use crate::clock;
use crate::clock::Follower;
use crate::reclaim::growth::Grow;
use crate::schedule::time;
use crate::schedule::{Timer, TimerTarget, WaitQueue};

/// The most timers of a process.
const TIMERS_MAX: usize = 1024;

/// The time to a timer's next expiry, and its period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Time to the next expiry in nanoseconds; 0 when disarmed.
    pub value: u64,
    /// Period in nanoseconds; 0 to expire once.
    pub interval: u64,
}

impl TimerTarget for Interval<Process> {
    fn expire(&self, now: u64) -> Option<u64> {
        let process = self.process.upgrade()?;
        let _ = send::to_process(&process, Siginfo::new(SIGALRM, SI_KERNEL));
        let last = self.due.load(Ordering::Relaxed);
        let following = next(last, self.interval.load(Ordering::Relaxed), now);
        self.due.store(following.unwrap_or(last), Ordering::Relaxed);
        following
    }
}

/// The next expiry of a periodic timer after `now`.
pub(super) fn next(last: u64, interval: u64, now: u64) -> Option<u64> {
    if interval == 0 {
        return None;
    }
    let missed = now.saturating_sub(last) / interval;
    Some(last.saturating_add(interval.saturating_mul(missed + 1)).max(now + 1))
}

pub(super) fn with_timers<T>(
    process: &Process,
    action: impl FnOnce(&mut Timers<Process>) -> T,
) -> T {
    let mut slot = process.timers.lock();
    action(slot.get_or_insert_with(Box::default))
}

fn interval_timer(process: &Arc<Process>) -> Arc<Interval<Process>> {
    with_timers(process, |timers| {
        timers
            .real
            .get_or_insert_with(|| {
                Arc::new_cyclic(|this: &Weak<Interval<Process>>| Interval {
                    process: Arc::downgrade(process),
                    timer: Timer::new(this.clone()),
                    due: AtomicU64::new(0),
                    interval: AtomicU64::new(0),
                })
            })
            .clone()
    })
}

/// The time left of `ITIMER_REAL`.
pub fn real(process: &Process) -> Setting {
    let interval = process.timers.lock().as_ref().and_then(|timers| timers.real.clone());
    interval.map_or(Setting::default(), |interval| Setting {
        value: remaining(&interval.timer),
        interval: interval.interval.load(Ordering::Relaxed),
    })
}

/// Sets `ITIMER_REAL`; returns the time that was left.
pub fn set_real(process: &Arc<Process>, new: Setting) -> Setting {
    let old = real(process);
    let interval = interval_timer(process);
    interval.timer.cancel();
    interval.interval.store(new.interval, Ordering::Relaxed);
    if new.value != 0 {
        let due = time::monotonic_ns().saturating_add(new.value);
        interval.due.store(due, Ordering::Relaxed);
        interval.timer.arm(due);
    }
    old
}

fn remaining(timer: &Timer) -> u64 {
    let now = time::monotonic_ns();
    // The least value for a timer that is due is 1: zero would mean disarmed.
    timer.deadline().map_or(0, |deadline| deadline.saturating_sub(now).max(1))
}

impl Clock {
    /// The time of this clock for a process, in nanoseconds.
    pub fn now(self, process: &Process) -> u64 {
        match self {
            Clock::Realtime => time::realtime_ns(),
            Clock::Tai => time::realtime_ns().saturating_add_signed(clock::tai_ahead()),
            Clock::Monotonic => time::monotonic_ns(),
            Clock::Process => process.usage().cpu_ns(),
            Clock::Thread(id) => process.thread(id).map_or(0, |thread| thread.usage().cpu_ns()),
        }
    }

    /// Whether it can be set.
    fn can_leap(self) -> bool {
        matches!(self, Clock::Realtime | Clock::Tai)
    }

    /// Whether the clock advances only while the process or thread runs.
    fn is_cpu_time(self) -> bool {
        matches!(self, Clock::Process | Clock::Thread(_))
    }
}

impl TimerTarget for Posix<Process> {
    fn expire(&self, now: u64) -> Option<u64> {
        let process = self.process.upgrade()?;
        let last = self.due.load(Ordering::Relaxed);
        let (missed, following) = passed(last, self.interval.load(Ordering::Relaxed), now);
        self.due.store(following.unwrap_or(last), Ordering::Relaxed);
        self.signal(&process, missed);
        following.map(|due| (due.max(0) as u64).max(now + 1))
    }
}

impl Follower for Posix<Process> {
    fn clock_leapt(&self, by: i64) {
        // A timer that expires at this moment is left alone: it was due in any case.
        if self.follows.load(Ordering::Relaxed) && self.timer.cancel() {
            let due = self.due.load(Ordering::Relaxed).saturating_sub(by);
            self.due.store(due, Ordering::Relaxed);
            self.timer.arm(due.max(0) as u64);
        }
    }
}

/// Computes, for a timer that was due at `last`, how many expiries were missed up to `now` (as far
/// as the count can be reported), and when the next one is.
fn passed(last: i64, interval: u64, now: u64) -> (u64, Option<i64>) {
    if interval == 0 {
        return (0, None);
    }
    let (last, interval) = (i128::from(last), i128::from(interval));
    let missed = (i128::from(now) - last).max(0) / interval;
    let next = last.saturating_add(interval.saturating_mul(missed + 1));
    (missed.min(i128::from(i32::MAX)) as u64, Some(next.min(i128::from(i64::MAX)) as i64))
}

impl Posix<Process> {
    /// Signals a timer on processor time if it is due.
    fn check_cpu_time(&self, process: &Arc<Process>) {
        let due = self.due.load(Ordering::Relaxed);
        let now = self.clock.now(process);
        if due == 0 || now < due as u64 {
            return;
        }
        let (missed, following) = passed(due, self.interval.load(Ordering::Relaxed), now);
        self.due.store(following.unwrap_or(0), Ordering::Relaxed);
        self.signal(process, missed);
    }

    /// Queues the signal, or counts an overrun if the last one is still pending.
    fn signal(&self, process: &Arc<Process>, missed: u64) {
        let (signal, thread) = match self.notify {
            Notify::Nothing => return,
            Notify::Process(signal) => (signal, None),
            Notify::Thread(signal, id) => match pids::thread(id) {
                Some(thread) if Arc::ptr_eq(&thread.process, process) => (signal, Some(thread)),
                _ => return,
            },
        };
        let queue = match &thread {
            Some(thread) => &thread.queue,
            None => &process.queue,
        };
        if queue.mask() & bit(signal) != 0 && queue.has_timer(self.id) {
            self.overrun.fetch_add(missed + 1, Ordering::Relaxed);
            return;
        }
        self.overrun.store(missed, Ordering::Relaxed);
        let overrun = missed.min(i32::MAX as u64) as i32;
        let info = Siginfo::from_timer(signal, self.id, overrun, self.value);
        let _ = match &thread {
            Some(thread) => send::to_thread(thread, info),
            None => send::to_process(process, info),
        };
    }
}

/// Makes a POSIX timer; returns its number. Fails with `EAGAIN` if there are too many.
pub fn create(process: &Arc<Process>, clock: Clock, notify: Option<(Notify, u64)>) -> Result<i32> {
    with_timers(process, |timers| {
        let free = timers.posix.iter().position(Option::is_none);
        let index = match free {
            Some(index) => index,
            None => {
                if timers.posix.len() >= TIMERS_MAX {
                    return Err(Errno::EAGAIN);
                }
                timers.posix.make_room(1)?;
                timers.posix.push(None);
                timers.posix.len() - 1
            }
        };
        let id = index as i32;
        let (notify, value) = notify.unwrap_or((Notify::Process(SIGALRM), index as u64));
        let timer = Arc::new_cyclic(|this: &Weak<Posix<Process>>| Posix {
            id,
            process: Arc::downgrade(process),
            clock,
            notify,
            value,
            timer: Timer::new(this.clone()),
            due: AtomicI64::new(0),
            interval: AtomicU64::new(0),
            follows: AtomicBool::new(false),
            overrun: AtomicU64::new(0),
            told: AtomicU64::new(0),
        });
        if clock.can_leap() {
            let follower: Weak<dyn Follower> = Arc::<Posix<Process>>::downgrade(&timer);
            clock::follow(follower)?;
        }
        if let Some(slot) = timers.posix.get_mut(index) {
            *slot = Some(timer);
        }
        Ok(id)
    })
}

fn find(process: &Process, id: i32) -> Result<Arc<Posix<Process>>> {
    let slot = process.timers.lock();
    let timers = slot.as_ref().ok_or(Errno::EINVAL)?;
    let index = usize::try_from(id).map_err(|_| Errno::EINVAL)?;
    timers.posix.get(index).cloned().flatten().ok_or(Errno::EINVAL)
}

/// Arms a timer; returns the time that was left. `absolute`: the value is a time of its clock.
pub fn set(process: &Arc<Process>, id: i32, new: Setting, absolute: bool) -> Result<Setting> {
    let posix = find(process, id)?;
    let old = get(process, id)?;
    posix.timer.cancel();
    posix.follows.store(absolute && posix.clock.can_leap(), Ordering::Relaxed);
    posix.interval.store(new.interval, Ordering::Relaxed);
    posix.overrun.store(0, Ordering::Relaxed);
    posix.told.store(0, Ordering::Relaxed);
    posix.due.store(0, Ordering::Relaxed);
    if new.value == 0 {
        return Ok(old);
    }
    let clock_now = posix.clock.now(process);
    if posix.clock.is_cpu_time() {
        let due = if absolute { new.value } else { clock_now.saturating_add(new.value) };
        posix.due.store(due.clamp(1, i64::MAX as u64) as i64, Ordering::Relaxed);
        process.watch_cpu_time();
        posix.check_cpu_time(process);
    } else {
        // A time in the past counts from there: its overruns are those since then.
        let ahead = match absolute {
            true => i128::from(new.value) - i128::from(clock_now),
            false => i128::from(new.value),
        };
        let due = (i128::from(time::monotonic_ns()) + ahead).min(i128::from(i64::MAX)) as i64;
        posix.due.store(due, Ordering::Relaxed);
        posix.timer.arm(due.max(0) as u64);
    }
    Ok(old)
}

/// The time left of a timer.
pub fn get(process: &Process, id: i32) -> Result<Setting> {
    let posix = find(process, id)?;
    let value = if posix.clock.is_cpu_time() {
        match posix.due.load(Ordering::Relaxed) {
            0 => 0,
            due => (due as u64).saturating_sub(posix.clock.now(process)).max(1),
        }
    } else {
        remaining(&posix.timer)
    };
    Ok(Setting { value, interval: posix.interval.load(Ordering::Relaxed) })
}

/// How often a timer expired after the expiry that the last signal reported.
pub fn overrun(process: &Process, id: i32) -> Result<i32> {
    let posix = find(process, id)?;
    Ok(posix.told.load(Ordering::Relaxed).min(i32::MAX as u64) as i32)
}

/// Handles the taking of a timer's signal: further expiries count towards the next signal.
pub fn taken(process: &Process, info: &mut Siginfo) {
    let Ok(posix) = find(process, info.fields[0] as u32 as i32) else { return };
    let overrun = posix.overrun.swap(0, Ordering::Relaxed).min(i32::MAX as u64);
    posix.told.store(overrun, Ordering::Relaxed);
    info.fields[0] = info.fields[0] & 0xffff_ffff | overrun << 32;
}

/// Checks the timers on processor time; returns whether any must be checked again.
pub(super) fn check_cpu_time(process: &Arc<Process>) -> bool {
    let mut any = false;
    let mut index = 0;
    loop {
        // One at a time, since a signal is sent without the lock.
        let posix = match process.timers.lock().as_ref().map(|timers| timers.posix.get(index)) {
            Some(Some(slot)) => slot.clone(),
            _ => break,
        };
        index += 1;
        if let Some(posix) = posix.filter(|posix| posix.clock.is_cpu_time()) {
            posix.check_cpu_time(process);
            any |= posix.due.load(Ordering::Relaxed) != 0;
        }
    }
    any | wake_sleepers(process)
}

/// Wakes the sleepers whose processor time has come; returns whether there are sleepers.
fn wake_sleepers(process: &Arc<Process>) -> bool {
    let mut index = 0;
    loop {
        let sleeper = match process.timers.lock().as_ref().map(|timers| timers.sleepers.get(index))
        {
            Some(Some(sleeper)) => sleeper.clone(),
            _ => return index > 0,
        };
        index += 1;
        if sleeper.clock.now(process) >= sleeper.due {
            sleeper.queue.wake_all();
        }
    }
}

/// Sleeps until a clock of processor time of `process` reaches `due`. Fails with `ENOMEM`, or
/// `ERESTARTNOHAND` if a signal comes first.
pub fn sleep_on(process: &Arc<Process>, clock: Clock, due: u64) -> Result<()> {
    let sleeper = Arc::new(Sleeper { clock, due, queue: WaitQueue::new() });
    with_timers(process, |timers| {
        timers.sleepers.make_room(1)?;
        timers.sleepers.push(sleeper.clone());
        Ok::<(), Errno>(())
    })?;
    process.watch_cpu_time();
    let is_due = || (clock.now(process) >= due).then_some(());
    let result = sleeper.queue.wait_interruptible(None, is_due);
    with_timers(process, |timers| timers.sleepers.retain(|other| !Arc::ptr_eq(other, &sleeper)));
    result.map_err(|_| Errno::ERESTARTNOHAND)
}

/// Deletes a timer.
pub fn delete(process: &Process, id: i32) -> Result<()> {
    let posix = find(process, id)?;
    posix.timer.cancel();
    let mut slot = process.timers.lock();
    let entry = slot.as_mut().and_then(|timers| timers.posix.get_mut(id as usize));
    let gone = entry.and_then(Option::take);
    drop(slot);
    drop(gone);
    Ok(())
}

/// Deletes the POSIX timers, as the process executes another program.
pub fn release_posix(process: &Process) {
    let gone = match process.timers.lock().as_mut() {
        Some(timers) => core::mem::take(&mut timers.posix),
        None => return,
    };
    gone.iter().flatten().for_each(|posix| {
        posix.timer.cancel();
    });
}

/// Deletes all timers, as the process ends.
pub fn release_all(process: &Process) {
    let gone = process.timers.lock().take();
    let Some(gone) = gone else { return };
    if let Some(real) = &gone.real {
        real.timer.cancel();
    }
    gone.posix.iter().flatten().for_each(|posix| {
        posix.timer.cancel();
    });
}

/// Returns a thread of the caller's process, which a timer may signal.
pub fn own_thread(id: i32) -> Option<Arc<Thread>> {
    current().process.thread(visible::meant(u32::try_from(id).ok()?))
}
