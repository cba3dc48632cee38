//! The share of each CPU that real-time executions leave to ordinary ones.
//!
//! Real-time policies come before everything else (sched(7)), so a loop under SCHED_FIFO would keep
//! its CPU for good, and with as many such loops as CPUs no user could kill them. As under Linux
//! (`sched_rt_runtime_us`, 950 ms of each second), waiting ordinary executions get a share: when a
//! CPU has run nothing but real-time executions for [`MOST_NS`], the ordinary ones have it for
//! [`SHARE_NS`].
//!
//! The state is part of the run queue and under its lock. A system that never had a real-time
//! execution pays one look at [`exist`] per switch.
//!
//! Road not taken: a budget per period as Linux keeps it, which needs a timer. Checking whenever an
//! execution is chosen bounds the wait as well, because a tick does so every few milliseconds while
//! an execution waits.

use core::sync::atomic::{AtomicBool, Ordering};

/// The longest time that a CPU runs only real-time executions while others wait, in nanoseconds.
pub const MOST_NS: u64 = 950_000_000;
/// The time that the others get then, in nanoseconds.
pub const SHARE_NS: u64 = 50_000_000;

static EXIST: AtomicBool = AtomicBool::new(false);

/// Notes that a real-time execution exists.
pub fn note() {
    EXIST.store(true, Ordering::Relaxed);
}

/// Whether there ever was a real-time execution.
#[inline(always)]
pub fn exist() -> bool {
    EXIST.load(Ordering::Relaxed)
}

/// Which executions may run next on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The first by rank.
    First,
    /// The first that is not real-time.
    Ordinary,
}

/// How long real-time executions have had a CPU for themselves.
#[derive(Clone, Copy, Default)]
pub struct Share {
    /// When a real-time execution last took over from an ordinary one, in nanoseconds.
    since: u64,
    /// When the share of the ordinary ones ends, in nanoseconds; 0: they have none now.
    until: u64,
}

impl Share {
    /// A whole share.
    pub const fn new() -> Share {
        Share { since: 0, until: 0 }
    }

    /// Whose turn it is at `now`. `before` tells whether a real-time execution has run until now,
    /// `next` whether one is the first by rank, `others` whether an ordinary one could run instead.
    pub fn turn(&mut self, now: u64, before: bool, next: bool, others: bool) -> Turn {
        if !next || !others {
            // No real-time execution or no ordinary one wants the CPU: they do not compete.
            *self = Share { since: now, until: 0 };
            return Turn::First;
        }
        if self.until != 0 {
            if now < self.until {
                return Turn::Ordinary;
            }
            *self = Share { since: now, until: 0 };
        } else if !before {
            self.since = now;
        } else if now.saturating_sub(self.since) >= MOST_NS {
            self.until = now + SHARE_NS;
            return Turn::Ordinary;
        }
        Turn::First
    }
}
