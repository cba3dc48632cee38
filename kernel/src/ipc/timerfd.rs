//! `timerfd_create(2)`: timers with a descriptor that is read.
//!
//! A timer for a time of the real-time clock moves with that clock when it is set, and if it was
//! asked to, its reader is told that instead of expirations (`TFD_TIMER_CANCEL_ON_SET`;
//! fs/timerfd.c).
//!
//! Lock order: the state, then nothing. The timer is armed without it.

use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::time;

use crate::clock;
use crate::clock::Follower;
use crate::schedule::{Timer, TimerTarget, WaitQueue};
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::{O_NONBLOCK, O_RDWR};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::Output;

/// `TFD_TIMER_ABSTIME`
const ABSOLUTE: u32 = 1;
/// `TFD_TIMER_CANCEL_ON_SET`
const CANCEL_ON_SET: u32 = 2;

/// When a timer expires, in nanoseconds; 0 means never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// The first expiration: an interval from now, or a point in time.
    pub value: u64,
    /// The interval after that.
    pub interval: u64,
}

#[derive(Default)]
struct State {
    /// The next expiration on the monotonic clock; 0 means disarmed.
    deadline: u64,
    interval: u64,
    /// Expirations not yet read.
    expirations: u64,
    /// The deadline is this time of the real-time clock, and moves with it; 0 if it is none.
    goal: u64,
    /// The reader wants to be told when that clock is set.
    cancellable: bool,
    /// It was set since the reader was last told.
    cancelled: bool,
}

/// A timer behind a descriptor.
pub struct TimerFd {
    /// Whether absolute times are on the realtime clock.
    realtime: bool,
    /// The requested clock and the flags of the last setting; only shown in `fdinfo`.
    clock: i32,
    shown_flags: AtomicU32,
    state: SpinLock<State>,
    timer: Arc<Timer>,
    expired: WaitQueue,
    /// The clock knows of it.
    following: AtomicBool,
    me: Weak<TimerFd>,
}

/// Opens a timer on a clock; `realtime` tells the kind of the clock, `flags` may contain
/// `O_NONBLOCK`.
pub fn open(clock: i32, realtime: bool, flags: u32) -> Result<Arc<OpenFile>> {
    let timer = Arc::new_cyclic(|me: &Weak<TimerFd>| TimerFd {
        following: AtomicBool::new(false),
        me: me.clone(),
        realtime,
        clock,
        shown_flags: AtomicU32::new(0),
        state: SpinLock::new(State::default()),
        timer: Timer::new(me.clone()),
        expired: WaitQueue::new(),
    });
    anonymous::open("[timerfd]", timer, O_RDWR | flags & O_NONBLOCK)
}

impl State {
    /// Counts the expirations up to `now`; returns the next one.
    fn advance(&mut self, now: u64) -> Option<u64> {
        if self.deadline == 0 || now < self.deadline {
            return (self.deadline != 0).then_some(self.deadline);
        }
        if self.interval == 0 {
            self.expirations += 1;
            self.deadline = 0;
            return None;
        }
        let passed = (now - self.deadline) / self.interval + 1;
        self.expirations += passed;
        self.deadline += passed * self.interval;
        if self.goal != 0 {
            self.goal = self.goal.saturating_add(passed * self.interval);
        }
        Some(self.deadline)
    }

    fn remaining(&self, now: u64) -> Setting {
        let value = match self.deadline {
            0 => 0,
            // A timer that is armed and due returns one nanosecond: 0 would mean disarmed.
            deadline => deadline.saturating_sub(now).max(1),
        };
        Setting { value, interval: self.interval }
    }
}

impl TimerFd {
    /// `timerfd_gettime(2)`: returns the time left.
    pub fn get(&self) -> Setting {
        let now = time::monotonic_ns();
        let mut state = self.state.lock();
        state.advance(now);
        state.remaining(now)
    }

    /// `timerfd_settime(2)`: arms or disarms the timer; returns the previous setting, and whether a
    /// setting of the clock has cancelled the timer and the reader was not told of it. Then the
    /// call fails with `ECANCELED`, although the timer is armed. `ENOMEM`.
    pub fn set(&self, new: Setting, flags: u32) -> Result<(Setting, bool)> {
        let absolute = flags & ABSOLUTE != 0;
        let follows = self.realtime && absolute;
        if follows && !self.following.swap(true, Ordering::Relaxed) {
            let follower: Weak<dyn Follower> = self.me.clone();
            clock::follow(follower)
                .inspect_err(|_| self.following.store(false, Ordering::Relaxed))?;
        }
        self.shown_flags.store(flags, Ordering::Relaxed);
        let mut state = self.state.lock();
        // Under the lock: if the clock is set from here on, `clock_leapt` looks at it again.
        let now = time::monotonic_ns();
        let deadline = match (new.value, absolute) {
            (0, _) => 0,
            (value, false) => now.saturating_add(value),
            (value, true) if follows => until(value, now),
            (value, true) => value,
        };
        state.advance(now);
        let old = state.remaining(now);
        let cancellable = follows && flags & CANCEL_ON_SET != 0;
        let cancelled = cancellable && state.cancelled;
        *state = State {
            deadline,
            interval: new.interval,
            goal: if follows { new.value } else { 0 },
            cancellable,
            // A call that disarms does not tell (`timerfd_setup`).
            cancelled: cancelled && new.value == 0,
            ..State::default()
        };
        let due = state.advance(now);
        let expired = state.expirations != 0;
        drop(state);
        self.arm(due);
        if expired {
            self.expired.wake_all();
        }
        Ok((old, cancelled && new.value != 0))
    }

    fn arm(&self, due: Option<u64>) {
        match due {
            Some(deadline) => self.timer.arm(deadline),
            None => {
                self.timer.cancel();
            }
        }
    }

    /// The expirations that are to be read; `ECANCELED` if the clock was set.
    fn take(&self) -> Option<Result<u64>> {
        let mut state = self.state.lock();
        state.advance(time::monotonic_ns());
        let count = core::mem::take(&mut state.expirations);
        if core::mem::take(&mut state.cancelled) {
            return Some(Err(Errno::ECANCELED));
        }
        (count != 0).then_some(Ok(count))
    }
}

impl Follower for TimerFd {
    fn clock_leapt(&self, by: i64) {
        let now = time::monotonic_ns();
        let due = {
            let mut state = self.state.lock();
            if by == 0 {
                return;
            }
            state.cancelled |= state.cancellable;
            if state.goal == 0 || state.deadline == 0 {
                None
            } else {
                state.deadline = until(state.goal, now);
                state.advance(now)
            }
        };
        if let Some(deadline) = due {
            self.timer.arm(deadline);
        }
        self.expired.wake_all();
    }
}

/// When the monotonic clock, which shows `now`, has come to a time of the real-time clock.
fn until(goal: u64, now: u64) -> u64 {
    now.saturating_add(goal.saturating_sub(time::realtime_ns())).max(1)
}

impl TimerTarget for TimerFd {
    fn expire(&self, now: u64) -> Option<u64> {
        let next = self.state.lock().advance(now);
        self.expired.wake_all();
        next
    }
}

impl FileOps for TimerFd {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        if out.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let count = match self.take() {
            Some(count) => count?,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => self
                .expired
                .wait_interruptible(None, || self.take())
                .map_err(|_| Errno::ERESTARTSYS)??,
        };
        out.put(&count.to_le_bytes())
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.expired);
        let mut state = self.state.lock();
        state.advance(time::monotonic_ns());
        if state.expirations != 0 || state.cancelled { Events::READABLE } else { Events::empty() }
    }

    fn release(&self, _: &OpenFile) {
        self.timer.cancel();
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let now = time::monotonic_ns();
        let mut state = self.state.lock();
        state.advance(now);
        let left = state.remaining(now);
        let text = format!(
            "clockid: {}\nticks: {}\nsettime flags: 0{:o}\nit_value: ({}, {})\nit_interval: ({}, {})\n",
            self.clock,
            state.expirations,
            self.shown_flags.load(Ordering::Relaxed),
            left.value / 1_000_000_000,
            left.value % 1_000_000_000,
            left.interval / 1_000_000_000,
            left.interval % 1_000_000_000,
        );
        Some(text.into_bytes())
    }
}
