//! `timerfd_create(2)`: timers with a descriptor that is read.

use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::time;

use super::anonymous;
use super::open_file::flags::{O_NONBLOCK, O_RDWR};
use super::open_file::{FileOps, OpenFile, Traits};
use super::poll::{Events, Registrar};
use super::transfer::Output;
use crate::schedule::{Timer, TimerTarget, WaitQueue};

/// `TFD_TIMER_ABSTIME`
const ABSOLUTE: u32 = 1;

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
}

/// Opens a timer on a clock; `realtime` tells the kind of the clock, `flags` may contain
/// `O_NONBLOCK`.
pub fn open(clock: i32, realtime: bool, flags: u32) -> Result<Arc<OpenFile>> {
    let timer = Arc::new_cyclic(|me: &Weak<TimerFd>| TimerFd {
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

    /// `timerfd_settime(2)`: arms or disarms the timer; returns the previous setting.
    pub fn set(&self, new: Setting, flags: u32) -> Setting {
        let absolute = flags & ABSOLUTE != 0;
        let now = time::monotonic_ns();
        self.shown_flags.store(flags, Ordering::Relaxed);
        let deadline = match (new.value, absolute) {
            (0, _) => 0,
            (value, false) => now.saturating_add(value),
            (value, true) if self.realtime => {
                let ahead = value.saturating_sub(time::realtime_ns());
                now.saturating_add(ahead).max(1)
            }
            (value, true) => value,
        };
        let mut state = self.state.lock();
        state.advance(now);
        let old = state.remaining(now);
        *state = State { deadline, interval: new.interval, expirations: 0 };
        let due = state.advance(now);
        let expired = state.expirations != 0;
        drop(state);
        match due {
            Some(deadline) => self.timer.arm(deadline),
            None => {
                self.timer.cancel();
            }
        }
        if expired {
            self.expired.wake_all();
        }
        old
    }

    fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.advance(time::monotonic_ns());
        let count = core::mem::take(&mut state.expirations);
        (count != 0).then_some(count)
    }
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
            Some(count) => count,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => self
                .expired
                .wait_interruptible(None, || self.take())
                .map_err(|_| Errno::ERESTARTSYS)?,
        };
        out.put(&count.to_le_bytes())
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.expired);
        let mut state = self.state.lock();
        state.advance(time::monotonic_ns());
        if state.expirations != 0 { Events::READABLE } else { Events::empty() }
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
