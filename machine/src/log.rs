//! The kernel log: lines `[    0.012345] text` on COM1.
//!
//! Levels are Linux' (`loglevel=N` on the command line, 0 to 7; default 6: information is shown,
//! debugging is not). Without a UART nothing is written.
//!
//! Lock order: the writer's, then that of the kept lines.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use arrayvec::ArrayVec;

use crate::sync::SpinLock;
use crate::{clock, serial};

static LEVEL: AtomicU8 = AtomicU8::new(6);
static WRITER: SpinLock<()> = SpinLock::new(());

/// The importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something failed.
    Error = 3,
    /// Something is unusual.
    Warn = 4,
    /// Normal progress.
    Info = 6,
    /// Details for developers.
    Debug = 7,
}

/// Shows lines of level `level` and more important ones.
pub fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Whether lines of this level are shown.
#[inline]
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes one line; use the macros [`error!`](crate::error), [`warn!`](crate::warn),
/// [`info!`](crate::info), [`debug!`](crate::debug).
pub fn line(level: Level, text: fmt::Arguments) {
    if enabled(level) {
        let now = clock::monotonic_ns() / 1000;
        let _one = WRITER.lock();
        write_kept_locked();
        stamped(now, text);
    }
}

/// How many lines may be kept before they are written.
const KEPT: usize = 64;

/// A line whose text has not been formatted yet.
struct KeptLine {
    microseconds: u64,
    text: fn(&[u64; 4], &mut fmt::Formatter<'_>) -> fmt::Result,
    words: [u64; 4],
}

static KEPT_LINES: SpinLock<ArrayVec<KeptLine, KEPT>> = SpinLock::new(ArrayVec::new_const());
/// Whether lines are kept: an idle processor checks it in each of its rounds.
static ANY_KEPT: AtomicBool = AtomicBool::new(false);

impl fmt::Display for KeptLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.text)(&self.words, f)
    }
}

fn stamped(microseconds: u64, text: fmt::Arguments) {
    serial::print(format_args!(
        "[{:5}.{:06}] {}\n",
        microseconds / 1_000_000,
        microseconds % 1_000_000,
        text
    ));
}

/// Keeps a line that `text` will format from `words`. For frequent lines on hot paths: it costs
/// some dozen instructions instead of a thousand. The line is written before the next line, by an
/// idle processor, or when sixty-four lines wait.
pub fn later(
    level: Level,
    words: [u64; 4],
    text: fn(&[u64; 4], &mut fmt::Formatter<'_>) -> fmt::Result,
) {
    if !enabled(level) {
        return;
    }
    let mut line = KeptLine { microseconds: clock::monotonic_ns() / 1000, text, words };
    loop {
        let full = KEPT_LINES.lock().try_push(line);
        ANY_KEPT.store(true, Ordering::Relaxed);
        match full {
            Ok(()) => return,
            Err(full) => line = full.element(),
        }
        write_kept();
    }
}

/// Writes the lines that were kept.
#[inline]
pub fn write_kept() {
    if ANY_KEPT.load(Ordering::Relaxed) {
        let _one = WRITER.lock();
        write_kept_locked();
    }
}

/// Called with the writer's lock held, so that lines come in order.
fn write_kept_locked() {
    if !ANY_KEPT.swap(false, Ordering::Relaxed) {
        return;
    }
    // One by one: together they would fill a good part of a kernel stack.
    loop {
        let next = KEPT_LINES.lock().pop_at(0);
        let Some(line) = next else { return };
        stamped(line.microseconds, format_args!("{line}"));
    }
}

/// Writes the kept lines if the lock is free: for a panic.
pub(crate) fn write_kept_at_the_end() {
    if let Some(lines) = KEPT_LINES.try_lock() {
        for line in lines.iter() {
            stamped(line.microseconds, format_args!("{line}"));
        }
    }
}

/// Writes a line without the time stamp, even if the log's lock is held: for a panic.
pub(crate) fn raw(text: fmt::Arguments) {
    serial::print(text);
}

/// Logs a failure.
#[macro_export]
macro_rules! error {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Error, format_args!($($arg)*)) };
}

/// Logs something unusual.
#[macro_export]
macro_rules! warn {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Warn, format_args!($($arg)*)) };
}

/// Logs normal progress.
#[macro_export]
macro_rules! info {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Info, format_args!($($arg)*)) };
}

/// Logs a detail.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Debug, format_args!($($arg)*)) };
}
