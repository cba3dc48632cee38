//! The real-time clock as programs set it: at once, or by making the clock run faster or slower
//! (`clock_settime(2)`, `adjtimex(2)`).
//!
//! [`hayate_clock_discipline`] decides the rate for each second of real time: a timer calls it at
//! the beginning of each second as long as that changes something. `hayate_machine::time` applies
//! the decision, to CLOCK_MONOTONIC and CLOCK_REALTIME alike; CLOCK_MONOTONIC_RAW does not change.
//!
//! A clock that is set leaps, and waiters for one of its times must check again: sleepers wait in
//! [`SET`], timers are [`Follower`]s, and a thread that waits for something else besides is watched
//! by a [`Watch`]. A watch begins in the tree of its processor and ends there in logarithmic time:
//! threads that wait for a futex until a time of this clock are many, and share no lock.
//!
//! Lock order: [`DISCIPLINE`], then nothing; [`FOLLOWERS`], then nothing; a processor's part of
//! [`WATCHES`], then a wait queue. Followers are called without locks.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_clock_discipline::Discipline;
use hayate_machine::cpu::{self, PerCpu};
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};
use intrusive_collections::{KeyAdapter, RBTree, RBTreeAtomicLink};

#[allow(unsafe_code)]
mod adapter {
    use alloc::sync::Arc;

    use crate::clock::Watched;
    use intrusive_collections::{RBTreeAtomicLink, intrusive_adapter};
    intrusive_adapter!(pub WatchedAdapter = Arc<Watched>: Watched { link => RBTreeAtomicLink });
}
use adapter::WatchedAdapter;

use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::schedule::{Listener, Timer, TimerTarget, WaitQueue, time};

const SECOND: u64 = 1_000_000_000;

static DISCIPLINE: SpinLock<Discipline> = SpinLock::new(Discipline::new());
/// Nanoseconds that CLOCK_TAI is ahead of CLOCK_REALTIME.
static TAI: AtomicI64 = AtomicI64::new(0);
/// Woken whenever the real-time clock was set.
pub static SET: WaitQueue = WaitQueue::new();
/// The number of times that it was set.
static SETTINGS: AtomicU64 = AtomicU64::new(0);
static FOLLOWERS: SpinLock<Vec<Weak<dyn Follower>>> = SpinLock::new(Vec::new());

/// What a [`Watch`] tells.
pub struct Watched {
    link: RBTreeAtomicLink,
    number: u64,
    listener: Arc<dyn Listener>,
}

impl<'a> KeyAdapter<'a> for WatchedAdapter {
    type Key = u64;
    fn get_key(&self, watched: &'a Watched) -> u64 {
        watched.number
    }
}

per_cpu! {
    static WATCHES: PerCpu<SpinLock<RBTree<WatchedAdapter>>> =
        PerCpu::new(SpinLock::new(RBTree::new(WatchedAdapter::NEW)));
    /// The number of the watches that began on this processor.
    static BEGUN: PerCpu<AtomicU64> = PerCpu::new(AtomicU64::new(0));
}

/// Tells a listener when the real-time clock is set, as long as this exists.
pub struct Watch {
    number: u64,
    cpu: usize,
}

impl Watch {
    /// Begins to tell `listener`, which is called with a spin lock held.
    pub fn begin(listener: Arc<dyn Listener>) -> Watch {
        let number = BEGUN.here().fetch_add(1, Ordering::Relaxed);
        let watched = Arc::new(Watched { link: RBTreeAtomicLink::new(), number, listener });
        WATCHES.here().lock().insert(watched);
        Watch { number, cpu: cpu::id() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(watches) = WATCHES.of(self.cpu) else { return };
        // The removed watch is dropped without the lock.
        let watched = watches.lock().find_mut(&self.number).remove();
        drop(watched);
    }
}

/// A timer that waits for a time of the real-time clock.
pub trait Follower: Send + Sync {
    /// The clock was moved by this many nanoseconds. May be called with interrupts off.
    fn clock_leapt(&self, by: i64);
}

/// Registers a follower, which is called when the clock leaps, as long as it exists. Fails with
/// `ENOMEM`.
pub fn follow(follower: Weak<dyn Follower>) -> Result<()> {
    let mut followers = FOLLOWERS.lock();
    followers.retain(|other| other.strong_count() > 0);
    followers.make_room(1)?;
    followers.push(follower);
    Ok(())
}

/// How often the real-time clock was set. A thread that sleeps until one of its times compares
/// this.
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

/// Moves the real-time clock. Fails with `EINVAL` if it would show less than has passed since boot.
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
    for watches in (0..cpu::count()).filter_map(|cpu| WATCHES.of(cpu)) {
        watches.lock().iter().for_each(|watched| watched.listener.notify(u32::MAX));
    }
    let mut index = 0;
    loop {
        // One at a time, since the follower is called without the lock.
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

/// Changes the discipline and applies it to the clock from now on. The caller may sleep.
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

/// Applies the discipline to the clock; returns true if the clock followed the TSC alone until now.
fn run(discipline: &Discipline) -> bool {
    // Nanoseconds per second with 32 fraction bits, divided by a second, are units of 2^-32.
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

/// The timer that expires at the beginning of each second.
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
