//! The clocks: nanoseconds computed from the time stamp counter.
//!
//! Monotonic time begins at the kernel's first instruction; real time is monotonic time plus an
//! offset. The counter's frequency is assumed to be constant and the same on all processors, as it
//! is in every virtual machine of today; [`crate::time`] finds it out.
//!
//! The clock can run faster or slower than the counter (`adjtimex(2)`). From the first [`bend`] on,
//! monotonic time is a line with a starting point and a slope. The next bend replaces it by a line
//! that begins where the old one is at that moment, so time never jumps. Before the first bend none
//! of this is used.
//!
//! There are two lines. Readers use the one that [`Clock::turn`] selects, and then check that the
//! turn is still the same. A bend first makes the turn odd, then reads the counter and writes the
//! other line, then makes the turn even again, which selects it. A reader waits while the turn is
//! odd: if it read the old line behind the point where the new one begins, and the new one is
//! flatter, its next reading would be the lower one (Linux waits in the same way, `timekeeper_lock`
//! and `tk_core.seq` of kernel/time/timekeeping.c). A handler that interrupted the writer would
//! wait for ever, so the kernel's readers give up after some time and use the old line, which is
//! whole meanwhile. Programs read the lines, too: [`crate::vdso`].

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use crate::sync::SpinLock;

/// The data that the clocks are computed from. Programs read it themselves ([`crate::vdso`]), so it
/// has a page of its own.
#[repr(C, align(4096))]
pub(crate) struct Clock {
    /// The TSC at monotonic time 0: the first instruction.
    pub origin: AtomicU64,
    /// Nanoseconds per tick of the TSC, times 2^32.
    pub scale: AtomicU64,
    /// The real time minus the monotonic time.
    pub real_offset: AtomicI64,
    /// Counts by two the changes of rate ([`bend`]), one more while a change is being made; the bit
    /// above selects the line in use. 0: the rate was never changed.
    pub turn: AtomicU64,
    /// The lines: see [`bend`].
    pub lines: [Line; 2],
}

pub(crate) static CLOCK: Clock = Clock {
    origin: AtomicU64::new(0),
    scale: AtomicU64::new(1 << 32),
    real_offset: AtomicI64::new(0),
    turn: AtomicU64::new(0),
    lines: [Line::straight(), Line::straight()],
};

/// A line: when the TSC's time is `raw` ns, the clock shows `ns`; each further nanosecond of the
/// TSC adds 1 and `extra` times 2^-32 nanoseconds.
#[repr(C)]
pub(crate) struct Line {
    pub raw: AtomicU64,
    pub ns: AtomicU64,
    pub extra: AtomicI64,
}

impl Line {
    const fn straight() -> Line {
        Line { raw: AtomicU64::new(0), ns: AtomicU64::new(0), extra: AtomicI64::new(0) }
    }

    fn at(&self, now: u64) -> u64 {
        let (raw, ns) = (self.raw.load(Ordering::Relaxed), self.ns.load(Ordering::Relaxed));
        let passed = i128::from(now) - i128::from(raw);
        let extra = (passed * i128::from(self.extra.load(Ordering::Relaxed))) >> 32;
        (i128::from(ns) + passed + extra) as u64
    }
}

/// Reads the time stamp counter.
#[inline(always)]
pub fn tsc() -> u64 {
    // SAFETY: every 64-bit CPU has it, and the kernel does not restrict it.
    unsafe { _rdtsc() }
}

/// Lets the instructions that follow begin only when those before are done (Intel SDM vol. 2,
/// LFENCE).
#[inline(always)]
fn order() {
    // SAFETY: it changes nothing; every 64-bit processor has it.
    unsafe { core::arch::asm!("lfence", options(nostack, preserves_flags)) };
}

/// Returns the nanoseconds since the first instruction of the kernel as the TSC counts them,
/// without any adjustment of the clock (CLOCK_MONOTONIC_RAW).
#[inline]
pub fn raw_ns() -> u64 {
    let ticks = tsc().saturating_sub(CLOCK.origin.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(CLOCK.scale.load(Ordering::Relaxed))) >> 32) as u64
}

/// Returns the nanoseconds since the first instruction of the kernel. Never goes back.
#[inline]
pub fn monotonic_ns() -> u64 {
    // A clock whose rate was never changed costs only this check.
    if is_bent() { bent_ns() } else { raw_ns() }
}

/// Returns the nanoseconds since 1970-01-01 UTC.
#[inline]
pub fn realtime_ns() -> u64 {
    monotonic_ns().wrapping_add_signed(CLOCK.real_offset.load(Ordering::Relaxed))
}

/// Sets the real-time clock (nanoseconds since 1970).
pub fn set_realtime(ns: u64) {
    CLOCK.real_offset.store(ns.wrapping_sub(monotonic_ns()) as i64, Ordering::Relaxed);
}

/// Moves the real-time clock by so many nanoseconds.
pub fn step_realtime(by: i64) {
    CLOCK.real_offset.fetch_add(by, Ordering::Relaxed);
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
    if turn & 2 == 0 { even } else { odd }
}

/// Calls `read` with the selected line, until the line was selected during the whole call.
fn with_line<T>(read: impl Fn(&Line) -> T) -> T {
    // How often a change that is being made is waited for: its maker may be what this interrupts.
    let mut patience = 1 << 20;
    loop {
        let turn = CLOCK.turn.load(Ordering::Acquire);
        if turn & 1 != 0 && patience > 0 {
            patience -= 1;
            core::hint::spin_loop();
            continue;
        }
        let value = read(line(turn));
        fence(Ordering::Acquire);
        if CLOCK.turn.load(Ordering::Relaxed) == turn {
            return value;
        }
    }
}

/// Returns the monotonic time of a bent clock.
#[cold]
fn bent_ns() -> u64 {
    with_line(|line| {
        // The counter is read between the two readings of the turn.
        order();
        let raw = raw_ns();
        order();
        line.at(raw)
    })
}

/// Returns how many nanoseconds of the TSC pass in so many nanoseconds of the clock, or less:
/// timers check again.
#[inline]
pub(crate) fn to_raw(wait: u64) -> u64 {
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
    if !was_bent {
        // Readers that found the clock straight do not look at the turn again. The first line is as
        // straight as the counter, and when the next one follows they are done.
        begin_line(0);
        let since = raw_ns();
        while raw_ns() - since < GRACE {
            core::hint::spin_loop();
        }
    }
    begin_line(extra.clamp(-MOST, MOST));
    !was_bent
}

/// How long the first change of rate waits for the readers of a straight clock, in nanoseconds:
/// they are two instructions away from having read it, with interrupts off.
const GRACE: u64 = 50_000;

/// Begins a line with the slope `extra` where the clock is now. The caller holds [`WRITER`].
fn begin_line(extra: i64) {
    let turn = CLOCK.turn.load(Ordering::Relaxed);
    let (old, new) = (line(turn), line(turn + 2));
    CLOCK.turn.store(turn + 1, Ordering::SeqCst);
    // No reader reads the counter from here on; those that read it before used the old line.
    fence(Ordering::SeqCst);
    order();
    let raw = raw_ns();
    let ns = old.at(raw);
    new.raw.store(raw, Ordering::Relaxed);
    new.ns.store(ns, Ordering::Relaxed);
    new.extra.store(extra, Ordering::Relaxed);
    CLOCK.turn.store(turn + 2, Ordering::SeqCst);
}

/// Sets where monotonic time begins and how fast the counter runs. Called once, at boot.
pub(crate) fn start(origin: u64, hz: u64) {
    CLOCK.scale.store(((1_000_000_000u128 << 32) / u128::from(hz)) as u64, Ordering::Relaxed);
    CLOCK.origin.store(origin, Ordering::Relaxed);
}

/// Changes how fast the counter is taken to run; time goes on where it is. Called at boot, before
/// any program runs and before any bend. A processor that reads the clock at this moment may be
/// wrong by the difference, once.
pub(crate) fn correct(hz: u64) {
    let now = tsc();
    let ticks = now.saturating_sub(CLOCK.origin.load(Ordering::Relaxed));
    let ns = (u128::from(ticks) * u128::from(CLOCK.scale.load(Ordering::Relaxed))) >> 32;
    let ticks = (ns * u128::from(hz)).div_ceil(1_000_000_000) as u64;
    start(now.saturating_sub(ticks), hz);
}
