//! Changes of the clock's rate: it can run faster or slower than the TSC (`adjtimex(2)`).
//!
//! From the first [`bend`] on, monotonic time is a line with a starting point and a slope. The next
//! bend replaces it by a line that begins where the old one is at that moment, so time never jumps.
//! Before the first bend none of this is used.
//!
//! There are two lines. Readers use the one that [`Clock::turn`] selects, and then check that it is
//! still selected; a bend writes the other line and then changes the selection. So a reader never
//! waits for a writer, and may be a handler that interrupted a writer (Linux' `latch`,
//! include/linux/seqlock.h). Programs read the lines, too: [`crate::vdso`].

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use super::{CLOCK, Clock, raw_ns};
use crate::sync::SpinLock;

/// A line: when the TSC's time is `raw` ns, the clock shows `ns`; each further nanosecond of the
/// TSC adds 1 and `extra` times 2^-32 nanoseconds.
#[repr(C)]
pub(crate) struct Line {
    pub raw: AtomicU64,
    pub ns: AtomicU64,
    pub extra: AtomicI64,
}

impl Line {
    pub(super) const fn straight() -> Line {
        Line { raw: AtomicU64::new(0), ns: AtomicU64::new(0), extra: AtomicI64::new(0) }
    }

    fn at(&self, now: u64) -> u64 {
        let (raw, ns) = (self.raw.load(Ordering::Relaxed), self.ns.load(Ordering::Relaxed));
        let passed = i128::from(now) - i128::from(raw);
        let extra = (passed * i128::from(self.extra.load(Ordering::Relaxed))) >> 32;
        (i128::from(ns) + passed + extra) as u64
    }
}

/// Serialises bends.
static WRITER: SpinLock<()> = SpinLock::new(());

/// The most nanoseconds that a timer is set ahead while the clock is bent, because the rate may
/// change again.
const AHEAD: u64 = 50_000_000;

/// Whether the clock was ever made to run at another rate than the TSC.
#[inline(always)]
pub fn is_bent() -> bool {
    CLOCK.turn.load(Ordering::Relaxed) != 0
}

/// Returns the line that a turn selects.
fn line(turn: u64) -> &'static Line {
    let Clock { lines: [even, odd], .. } = &CLOCK;
    if turn & 1 == 0 { even } else { odd }
}

/// Calls `read` with the selected line, until the line was selected during the whole call.
fn with_line<T>(read: impl Fn(&Line) -> T) -> T {
    loop {
        let turn = CLOCK.turn.load(Ordering::Acquire);
        let value = read(line(turn));
        fence(Ordering::Acquire);
        if CLOCK.turn.load(Ordering::Relaxed) == turn {
            return value;
        }
    }
}

/// Returns the monotonic time of a bent clock.
#[cold]
pub(super) fn monotonic_ns() -> u64 {
    with_line(|line| line.at(raw_ns()))
}

/// Returns how many nanoseconds of the TSC pass in so many nanoseconds of the clock, or less:
/// timers check again.
#[inline]
pub(super) fn to_raw(wait: u64) -> u64 {
    if is_bent() { bent_to_raw(wait) } else { wait }
}

#[cold]
fn bent_to_raw(wait: u64) -> u64 {
    let extra = with_line(|line| line.extra.load(Ordering::Relaxed));
    let slope = (1i128 << 32) + i128::from(extra);
    (((i128::from(wait.min(AHEAD)) << 32) / slope.max(1)) + 1) as u64
}

/// Makes the clock gain `extra` times 2^-32 of each nanosecond from now on, at most a half. Returns
/// true if it was not bent before: timers are then still set by the TSC.
pub fn bend(extra: i64) -> bool {
    const MOST: i64 = 1 << 31;
    let _writer = WRITER.lock();
    let was_bent = is_bent();
    if !was_bent && extra == 0 {
        return false;
    }
    let turn = CLOCK.turn.load(Ordering::Relaxed);
    let (old, new) = (line(turn), line(turn + 1));
    // Readers that use the other line from the turn before last are done, or will see that the turn
    // has changed.
    fence(Ordering::SeqCst);
    let raw = raw_ns();
    let ns = old.at(raw);
    new.raw.store(raw, Ordering::Relaxed);
    new.ns.store(ns, Ordering::Relaxed);
    new.extra.store(extra.clamp(-MOST, MOST), Ordering::Relaxed);
    CLOCK.turn.store(turn + 1, Ordering::SeqCst);
    !was_bent
}
