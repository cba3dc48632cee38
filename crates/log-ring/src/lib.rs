//! The records of a kernel's log in a ring of bytes, and the forms in which programs read them.
//!
//! [`LogRing`] keeps the newest records whose bytes fit: a new one overwrites the oldest. Records
//! are numbered from 0 on without a gap. A reader keeps a [`Cursor`] of its own: reading finds the
//! record at it, or the oldest one if that was overwritten, so the reader sees by the number that
//! records are gone.
//!
//! [`plain`] is the form of `syslog(2)`, [`extended`] that of `/dev/kmsg` (Linux 6.1,
//! kernel/printk/printk.c: `record_print_text`, `msg_print_ext_body`).
//!
//! Positions count all bytes ever written, so a cursor that was overwritten is recognised by its
//! number, and no position is used twice. The ring is initialised with zeroes only: a static one
//! takes no room in the kernel's file.
//!
//! The road not taken: the ring of descriptors of Linux, which is written without a lock by
//! interrupts and NMIs. Here no interrupt handler runs while a lock is held, and an NMI logs
//! nothing.

#![no_std]
#![forbid(unsafe_code)]

mod form;

pub use form::{EXTENDED_MOST, PLAIN_MOST, extended, plain};

/// The longest text of a record, in bytes (`LOG_LINE_MAX` of Linux 6.1).
pub const LONGEST: usize = 992;

/// Bytes before the text of a record: microseconds, priority, length.
const HEADER: usize = 12;

/// A place in a log: that of a record, or of the next one to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The number of the record.
    pub sequence: u64,
    position: u64,
}

impl Cursor {
    /// The place of the first record of all.
    pub const START: Cursor = Cursor { sequence: 0, position: 0 };
}

/// A record without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub sequence: u64,
    /// When it was written, in microseconds since boot.
    pub microseconds: u64,
    /// `facility << 3 | level` (syslog(3)).
    pub priority: u16,
    /// The length of its text.
    pub length: usize,
    /// The place behind it.
    pub next: Cursor,
}

/// The newest records of a log, in `N` bytes; `N` must exceed the largest record.
pub struct LogRing<const N: usize> {
    bytes: [u8; N],
    first: Cursor,
    next: Cursor,
}

impl<const N: usize> Default for LogRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> LogRing<N> {
    /// An empty ring.
    pub const fn new() -> Self {
        const { assert!(N >= HEADER + LONGEST) };
        LogRing { bytes: [0; N], first: Cursor::START, next: Cursor::START }
    }

    /// The place of the oldest record.
    pub fn first(&self) -> Cursor {
        self.first
    }

    /// The place of the record that comes next.
    pub fn end(&self) -> Cursor {
        self.next
    }

    /// Adds a record. A text is cut after [`LONGEST`] bytes.
    pub fn append(&mut self, microseconds: u64, priority: u16, text: &[u8]) {
        let text = text.get(..LONGEST).unwrap_or(text);
        let end = self.next.position + (HEADER + text.len()) as u64;
        while end - self.first.position > N as u64 {
            self.first = self.header(self.first).next;
        }
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&microseconds.to_le_bytes());
        header[8..10].copy_from_slice(&priority.to_le_bytes());
        header[10..].copy_from_slice(&(text.len() as u16).to_le_bytes());
        self.store(self.next.position, &header);
        self.store(self.next.position + HEADER as u64, text);
        self.next = Cursor { sequence: self.next.sequence + 1, position: end };
    }

    /// Returns the record at `at`, or the oldest one if that was overwritten; its text goes to the
    /// beginning of `text`, as much of it as fits. `None`: it has not been written yet.
    pub fn read(&self, at: Cursor, text: &mut [u8]) -> Option<Record> {
        let at = if at.sequence < self.first.sequence { self.first } else { at };
        if at.sequence >= self.next.sequence {
            return None;
        }
        let record = self.header(at);
        let length = record.length.min(text.len());
        self.load(at.position + HEADER as u64, &mut text[..length]);
        Some(record)
    }

    fn header(&self, at: Cursor) -> Record {
        let mut bytes = [0; HEADER];
        self.load(at.position, &mut bytes);
        let [a, b, c, d, e, f, g, h, low, high, short, long] = bytes;
        let length = usize::from(u16::from_le_bytes([short, long]));
        let position = at.position + (HEADER + length) as u64;
        Record {
            sequence: at.sequence,
            microseconds: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            priority: u16::from_le_bytes([low, high]),
            length,
            next: Cursor { sequence: at.sequence + 1, position },
        }
    }

    fn store(&mut self, position: u64, from: &[u8]) {
        let at = (position % N as u64) as usize;
        let (head, tail) = from.split_at(from.len().min(N - at));
        self.bytes[at..at + head.len()].copy_from_slice(head);
        self.bytes[..tail.len()].copy_from_slice(tail);
    }

    fn load(&self, position: u64, to: &mut [u8]) {
        let at = (position % N as u64) as usize;
        let (head, tail) = to.split_at_mut(to.len().min(N - at));
        head.copy_from_slice(&self.bytes[at..at + head.len()]);
        tail.copy_from_slice(&self.bytes[..tail.len()]);
    }
}
