//! The real-time clock as programs set it: at once, or by making the clock run faster or slower
//! (`clock_settime(2)`, `adjtimex(2)`).
//!
//! What is to be done is decided by [`hayate_clock_discipline`], for each second of real time: a
//! timer calls it at the beginning of each as long as that changes something. What it decides is
//! done by `hayate_machine::time`, for CLOCK_MONOTONIC and CLOCK_REALTIME alike;
//! CLOCK_MONOTONIC_RAW stays.
//!
//! A clock that is set leaps, and what waits for a time of it must look again: sleepers wait in
//! [`SET`], timers are [`Follower`]s.
//!
//! Lock order: [`DISCIPLINE`], then nothing; [`FOLLOWERS`], then nothing. Followers are called
//! without.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_clock_discipline::Discipline;
use hayate_machine::sync::{Once, SpinLock};

use crate::schedule::{self, Timer, TimerTarget, WaitQueue, time};

const SECOND: u64 = 1_000_000_000;

static DISCIPLINE: SpinLock<Discipline> = SpinLock::new(Discipline::new());
/// Nanoseconds that CLOCK_TAI is ahead of CLOCK_REALTIME.
static TAI: AtomicI64 = AtomicI64::new(0);
/// Woken whenever the real-time clock was set.
pub static SET: WaitQueue = WaitQueue::new();
/// How often it was set.
static SETTINGS: AtomicU64 = AtomicU64::new(0);
static FOLLOWERS: SpinLock<Vec<Weak<dyn Follower>>> = SpinLock::new(Vec::new());

/// What waits for a time of the real-time clock.
pub trait Follower: Send + Sync {
    /// The clock was moved by so many nanoseconds. May be called with interrupts off.
    fn clock_leapt(&self, by: i64);
}

/// Has a follower called when the clock leaps, until it is gone. `ENOMEM`
pub fn follow(follower: Weak<dyn Follower>) -> Result<()> {
    let mut followers = FOLLOWERS.lock();
    followers.retain(|other| other.strong_count() > 0);
    followers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    followers.push(follower);
    Ok(())
}

/// How often the real-time clock was set: who sleeps until a time of it compares.
pub fn settings() -> u64 {
    SETTINGS.load(Ordering::SeqCst)
}

/// Nanoseconds that CLOCK_TAI is ahead of CLOCK_REALTIME.
pub fn tai_ahead() -> i64 {
    TAI.load(Ordering::Relaxed)
}

/// Sets the real-time clock.
pub fn set(nanos: u64) {
    leap(nanos.wrapping_sub(time::realtime_ns()) as i64);
    let mut discipline = DISCIPLINE.lock();
    discipline.clear();
    run(&discipline);
}

/// Moves the real-time clock. `EINVAL` where it would show less than has passed since boot.
pub fn step(by: i64) -> Result<()> {
    let goal = i128::from(time::realtime_ns()) + i128::from(by);
    if goal < i128::from(time::monotonic_ns()) || goal > i128::from(i64::MAX) {
        return Err(Errno::EINVAL);
    }
    set(goal as u64);
    Ok(())
}

fn leap(by: i64) {
    time::step_realtime(by);
    SETTINGS.fetch_add(1, Ordering::SeqCst);
    SET.wake_all();
    let mut index = 0;
    loop {
        // One at a time: it is told without the lock.
        let follower = match FOLLOWERS.lock().get(index) {
            Some(follower) => follower.upgrade(),
            None => return,
        };
        index += 1;
        if let Some(follower) = follower {
            follower.clock_leapt(by);
        }
    }
}

/// Changes the discipline, and has the clock run accordingly from now on. The caller may sleep.
pub fn adjust<T>(change: impl FnOnce(&mut Discipline, i64) -> T) -> T {
    let (value, is_first) = {
        let mut discipline = DISCIPLINE.lock();
        let value = change(&mut discipline, (time::realtime_ns() / SECOND) as i64);
        TAI.store(discipline.tai * SECOND as i64, Ordering::Relaxed);
        (value, run(&discipline))
    };
    if is_first {
        schedule::on_each_cpu(time::program_again);
    }
    value
}

/// Has the clock run as its discipline says; true if it never ran but as the TSC does.
fn run(discipline: &Discipline) -> bool {
    // Nanoseconds a second, with 32 bits behind the point, are parts of 2^32 times a second's.
    let is_first = time::bend((discipline.rate() / i128::from(SECOND)) as i64);
    if discipline.is_busy() {
        let timer = timer();
        if timer.deadline().is_none() {
            timer.arm(next_second());
        }
    }
    is_first
}

fn next_second() -> u64 {
    time::monotonic_ns() + SECOND - time::realtime_ns() % SECOND
}

fn timer() -> &'static Arc<Timer> {
    static TIMER: Once<(Arc<Seconds>, Arc<Timer>)> = Once::new();
    let (_, timer) = TIMER.call_once(|| {
        let target = Arc::new(Seconds);
        let weak: Weak<dyn TimerTarget> = Arc::<Seconds>::downgrade(&target);
        (target, Timer::new(weak))
    });
    timer
}

/// Is called as each second begins.
struct Seconds;

impl TimerTarget for Seconds {
    fn expire(&self, _: u64) -> Option<u64> {
        let mut discipline = DISCIPLINE.lock();
        let leap_by = discipline.second((time::realtime_ns() / SECOND) as i64);
        TAI.store(discipline.tai * SECOND as i64, Ordering::Relaxed);
        run(&discipline);
        let is_busy = discipline.is_busy();
        drop(discipline);
        if leap_by != 0 {
            leap(leap_by * SECOND as i64);
        }
        is_busy.then(next_second)
    }
}
