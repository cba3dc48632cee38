//! What real-time executions leave to the others.
//!
//! Real-time policies come before everything else (sched(7)), so a loop under SCHED_FIFO would keep
//! its CPU for good, and with as many loops as CPUs nobody could kill them. As under Linux
//! (`sched_rt_runtime_us`, 950 ms of each second), ordinary executions that wait get a share: when
//! a CPU has run nothing but real-time for [`MOST_NS`], they have it for [`SHARE_NS`].
//!
//! The state is part of the run queue and under its lock. A system that never had a real-time
//! execution pays one look at [`exist`] per switch. The road not taken: a budget per period as
//! Linux keeps it, which needs a timer; looking when an execution is chosen, which a tick sees to
//! every few milliseconds while anybody waits, bounds the wait as well.

use core::sync::atomic::{AtomicBool, Ordering};

/// A CPU runs only real-time executions for at most so long while others wait.
pub const MOST_NS: u64 = 950_000_000;
/// What the others get then.
pub const SHARE_NS: u64 = 50_000_000;

static EXIST: AtomicBool = AtomicBool::new(false);

/// Notes that there is a real-time execution.
pub fn note() {
    EXIST.store(true, Ordering::Relaxed);
}

/// Whether there ever was a real-time execution.
#[inline(always)]
pub fn exist() -> bool {
    EXIST.load(Ordering::Relaxed)
}

/// Who may run next on a CPU.
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
    /// Until when the ordinary ones have the CPU; 0: they do not.
    until: u64,
}

impl Share {
    pub const fn new() -> Share {
        Share { since: 0, until: 0 }
    }

    /// Whose turn it is at `now`. `before` tells whether a real-time execution has run until now,
    /// `next` whether one is the first by rank, `others` whether an ordinary one could run instead.
    pub fn turn(&mut self, now: u64, before: bool, next: bool, others: bool) -> Turn {
        if !next || !others {
            // They have what they want, or do not want it.
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
