//! The kernel log: lines `[    0.012345] text` on COM1, and the records that programs read.
//!
//! Levels are Linux' (`loglevel=N` on the command line, 0 to 7; default 6: information is shown,
//! debugging is not). Without a UART nothing is shown. Every line down to information becomes a
//! record, shown or not; details do only while they are shown, for else nobody pays for them.
//!
//! A line may be written under any other lock. So the lock of the records is held for the copy of
//! one record and for nothing else, by writers and readers; and the function that hears of new
//! records ([`listen`]) is called without locks of this module, but perhaps with others held: it
//! may send an interrupt, not wake an execution.
//!
//! Lock order: the writer's, then that of the kept lines or of the records.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use arrayvec::ArrayVec;
use hayate_log_ring::{Cursor, LONGEST, LogRing, Record};

use crate::sync::{Once, SpinGuard, SpinLock};
use crate::{clock, serial};

/// Bytes that the records may take.
pub const SIZE: usize = 1 << 16;

/// Lines of levels below this one are shown, as Linux' `console_loglevel`.
static SHOWN_BELOW: AtomicI32 = AtomicI32::new(7);
/// The text of the line that is being written.
static WRITER: SpinLock<ArrayVec<u8, LONGEST>> = SpinLock::new(ArrayVec::new_const());
static RECORDS: SpinLock<LogRing<SIZE>> = SpinLock::new(LogRing::new());
static LISTENER: Once<fn()> = Once::new();

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

/// Shows lines whose level is below `level`.
pub fn show_below(level: i32) {
    SHOWN_BELOW.store(level, Ordering::Relaxed);
}

/// The level below which lines are shown.
pub fn shown_below() -> i32 {
    SHOWN_BELOW.load(Ordering::Relaxed)
}

/// Whether lines of this level are written at all.
#[inline]
fn enabled(level: Level) -> bool {
    level <= Level::Info || is_shown(level as u16)
}

fn is_shown(priority: u16) -> bool {
    i32::from(priority & 7) < shown_below()
}

/// Registers the function that is called after each new record; once. See above what it may do.
pub fn listen(listener: fn()) {
    LISTENER.call_once(|| listener);
}

/// The place of the oldest record.
pub fn first() -> Cursor {
    RECORDS.lock().first()
}

/// The place of the record that comes next.
pub fn end() -> Cursor {
    RECORDS.lock().end()
}

/// Returns the record at `at`, or the oldest if that was overwritten, and its text to `text`.
/// `None`: it has not been written yet.
pub fn read(at: Cursor, text: &mut [u8]) -> Option<Record> {
    RECORDS.lock().read(at, text)
}

/// Adds the record of a program. It is shown behind a word that no line of the kernel begins with,
/// without control characters: the host believes what the kernel says.
pub fn append(priority: u16, text: &[u8]) {
    let now = clock::monotonic_ns() / 1000;
    let writer = WRITER.lock();
    write_kept_locked_by(writer, |_| {
        RECORDS.lock().append(now, priority, text);
        if is_shown(priority) {
            show_stamp(now);
            serial::write(b"program: ");
            for &byte in text {
                match byte {
                    0..32 | 127 => serial::print(format_args!("\\x{byte:02x}")),
                    _ => serial::write(&[byte]),
                }
            }
            serial::write(b"\n");
        }
    });
}

/// Writes one line; use the macros [`error!`](crate::error), [`warn!`](crate::warn),
/// [`info!`](crate::info), [`debug!`](crate::debug).
pub fn line(level: Level, text: fmt::Arguments) {
    if enabled(level) {
        let now = clock::monotonic_ns() / 1000;
        let writer = WRITER.lock();
        write_kept_locked_by(writer, |buffer| stamped(now, level, text, buffer));
    }
}

/// Writes the kept lines, then does `then`, and tells the listener.
fn write_kept_locked_by(
    mut writer: SpinGuard<'_, ArrayVec<u8, LONGEST>>,
    then: impl FnOnce(&mut ArrayVec<u8, LONGEST>),
) {
    write_kept_locked(&mut writer);
    then(&mut writer);
    drop(writer);
    if let Some(listener) = LISTENER.get() {
        listener();
    }
}

/// How many lines may be kept before they are written.
const KEPT: usize = 64;

/// A line whose text has not been formatted yet.
struct KeptLine {
    microseconds: u64,
    level: Level,
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

/// A text on its way to the records, and to the UART if it is shown.
struct Line<'a> {
    buffer: &'a mut ArrayVec<u8, LONGEST>,
    shown: bool,
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.shown {
            serial::write(text.as_bytes());
        }
        let room = self.buffer.remaining_capacity();
        let fits = text.as_bytes().get(..room).unwrap_or(text.as_bytes());
        let _ = self.buffer.try_extend_from_slice(fits);
        Ok(())
    }
}

fn show_stamp(microseconds: u64) {
    let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
    serial::print(format_args!("[{seconds:5}.{rest:06}] "));
}

/// Shows a line and makes it a record.
fn stamped(
    microseconds: u64,
    level: Level,
    text: fmt::Arguments,
    buffer: &mut ArrayVec<u8, LONGEST>,
) {
    buffer.clear();
    let shown = is_shown(level as u16);
    if shown {
        show_stamp(microseconds);
    }
    let _ = Line { buffer, shown }.write_fmt(text);
    if shown {
        serial::write(b"\n");
    }
    RECORDS.lock().append(microseconds, level as u16, buffer);
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
    let mut line = KeptLine { microseconds: clock::monotonic_ns() / 1000, level, text, words };
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
        write_kept_locked_by(WRITER.lock(), |_| ());
    }
}

/// Called with the writer's lock held, so that lines come in order.
fn write_kept_locked(buffer: &mut ArrayVec<u8, LONGEST>) {
    if !ANY_KEPT.swap(false, Ordering::Relaxed) {
        return;
    }
    // One by one: together they would fill a good part of a kernel stack.
    loop {
        let next = KEPT_LINES.lock().pop_at(0);
        let Some(line) = next else { return };
        stamped(line.microseconds, line.level, format_args!("{line}"), buffer);
    }
}

/// Writes the kept lines if the lock is free: for a panic.
pub(crate) fn write_kept_at_the_end() {
    if let Some(lines) = KEPT_LINES.try_lock() {
        for line in lines.iter() {
            show_stamp(line.microseconds);
            serial::print(format_args!("{line}\n"));
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
