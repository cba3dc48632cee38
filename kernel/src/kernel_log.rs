//! The kernel's log as programs read it: `syslog(2)`, `/dev/kmsg`, and the settings of both
//! (kernel/printk/printk.c of Linux 6.1).
//!
//! The records lie in `hayate_machine::log`. Here are the readers that wait for the next one, the
//! place up to which `syslog(2)` has read, and who may read at all.
//!
//! A line can be written under any lock of the kernel, and waking takes locks. So the writer of a
//! record wakes nobody: if somebody waits, it sends its own processor an interrupt, which is taken
//! when no lock is held, and that wakes. A reader holds the lock of the records only while it
//! copies one, and logs nothing then.
//!
//! Lock order: [`Reader`]'s (it sleeps), then the locks of the log.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use hayate_abi::{Errno, Result};
use hayate_log_ring::{Cursor, LONGEST, PLAIN_MOST, Record, plain};
use hayate_machine::interrupt::OwnInterrupt;
use hayate_machine::log;
use hayate_machine::sync::Once;

use crate::credentials::{Capability, Credentials};
use crate::schedule::{Mutex, WaitQueue, breathe};

/// Executions and files that wait for the next record.
pub static WAITING: WaitQueue = WaitQueue::new();

static WAKE: Once<OwnInterrupt> = Once::new();

/// Lets the log tell of new records; at boot.
pub fn init() {
    let Some(interrupt) = OwnInterrupt::new(Box::new(|| WAITING.wake_all())) else {
        panic!("no vector for the readers of the log");
    };
    WAKE.call_once(|| interrupt);
    log::listen(|| {
        if WAITING.is_wanted()
            && let Some(wake) = WAKE.get()
        {
            wake.raise();
        }
    });
}

/// Whether only the privileged may read the log (`kernel.dmesg_restrict`): as in Debian's
/// kernel (`CONFIG_SECURITY_DMESG_RESTRICT`).
pub static RESTRICTED: AtomicBool = AtomicBool::new(true);

/// What becomes of records that programs write (`kernel.printk_devkmsg`), a [`Writing`].
static WRITING: AtomicU8 = AtomicU8::new(Writing::Limited as u8);

/// What becomes of records that programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Writing {
    /// Each is taken.
    On,
    /// None is taken, and the device cannot be opened.
    Off,
    /// Of each open file ten in five seconds.
    Limited,
}

impl Writing {
    /// The three, with their names.
    const ALL: [(Writing, &'static str); 3] =
        [(Writing::On, "on"), (Writing::Off, "off"), (Writing::Limited, "ratelimit")];

    /// The setting.
    pub fn now() -> Writing {
        let now = WRITING.load(Ordering::Relaxed);
        Self::ALL.iter().find(|(known, _)| *known as u8 == now).map_or(Writing::On, |known| known.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(known, _)| *known == self).map_or("", |known| known.1)
    }

    /// Changes the setting to the one with this name: `EINVAL`.
    pub fn set(name: &[u8]) -> Result<()> {
        let known = Self::ALL.iter().find(|(_, known)| known.as_bytes() == name);
        WRITING.store(known.ok_or(Errno::EINVAL)?.0 as u8, Ordering::Relaxed);
        Ok(())
    }
}

/// The level of records whose writer names none (`default_message_loglevel`).
static MESSAGES: AtomicI32 = AtomicI32::new(4);
/// The least level that `syslog(2)` sets (`minimum_console_loglevel`).
static LEAST: AtomicI32 = AtomicI32::new(1);
/// `default_console_loglevel`, which nothing reads but `kernel.printk`.
static USUAL: AtomicI32 = AtomicI32::new(7);
/// The level that `SYSLOG_ACTION_CONSOLE_OFF` replaced; -1: none.
static SAVED: AtomicI32 = AtomicI32::new(-1);

/// The four levels of `kernel.printk` (proc_sys_kernel(5)).
pub fn levels() -> [i32; 4] {
    let [messages, least, usual] = [&MESSAGES, &LEAST, &USUAL].map(|it| it.load(Ordering::Relaxed));
    [log::shown_below(), messages, least, usual]
}

/// Changes the four levels.
pub fn set_levels([shown, messages, least, usual]: [i32; 4]) {
    log::show_below(shown);
    MESSAGES.store(messages, Ordering::Relaxed);
    LEAST.store(least, Ordering::Relaxed);
    USUAL.store(usual, Ordering::Relaxed);
}

/// Shows no more than the least.
pub fn silence() {
    // A second call keeps what the first one saved.
    let _ = SAVED.compare_exchange(-1, log::shown_below(), Ordering::Relaxed, Ordering::Relaxed);
    log::show_below(LEAST.load(Ordering::Relaxed));
}

/// Shows what was shown before [`silence`].
pub fn unsilence() {
    let saved = SAVED.swap(-1, Ordering::Relaxed);
    if saved != -1 {
        log::show_below(saved);
    }
}

/// Shows lines below this level, or below the least one.
pub fn set_console(level: i32) {
    log::show_below(level.max(LEAST.load(Ordering::Relaxed)));
    SAVED.store(-1, Ordering::Relaxed);
}

/// Checks the right to read the log, or with `more` to change what others read and what is shown
/// (`check_syslog_permissions`): `EPERM`.
pub fn check(credentials: &Credentials, more: bool) -> Result<()> {
    let free = !more && !RESTRICTED.load(Ordering::Relaxed);
    let allowed = [Capability::Syslog, Capability::SysAdmin];
    if free || allowed.into_iter().any(|capability| credentials.has(capability)) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Returns the record at `at`, or the oldest if that is gone, with its text in `text`. Lines that
/// the kernel has yet to format are written first.
pub fn read(at: Cursor, text: &mut [u8]) -> Option<Record> {
    log::write_kept();
    log::read(at, text)
}

/// Whether there is a record at `at`, and whether it is another one because that is gone. For the
/// condition of a wait, so it writes no lines.
pub fn look(at: Cursor) -> Option<bool> {
    log::read(at, &mut []).map(|record| record.sequence != at.sequence)
}

/// Waits until there is a record at `at`: `ERESTARTSYS`.
pub fn wait(at: Cursor) -> Result<()> {
    log::write_kept();
    WAITING.wait_interruptible(None, || look(at).map(drop)).map_err(|_| Errno::ERESTARTSYS)
}

/// The record of a program: a text that may begin with `<PRIORITY>`. The kernel's facility, 0,
/// becomes that of programs, 1 (`devkmsg_write`).
pub fn write(text: &[u8]) {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let level = MESSAGES.load(Ordering::Relaxed) as u16 & 7;
    let (priority, text) = match prefix(text) {
        Some((priority, text)) => (priority, text),
        None => (u64::from(level), text),
    };
    let facility = match priority >> 3 & 0xff {
        0 => 1,
        facility => facility as u16,
    };
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    log::append(facility << 3 | (priority & 7) as u16, text);
}

/// Splits `<NUMBER>text`; the number is that of `simple_strtoul`, which wraps and may have no
/// digit.
fn prefix(text: &[u8]) -> Option<(u64, &[u8])> {
    let rest = text.strip_prefix(b"<")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at_checked(digits)?;
    let number = digits
        .iter()
        .fold(0_u64, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
    Some((number, rest.strip_prefix(b">")?))
}

/// How far `syslog(2)` has read: one place for all who read by it.
pub struct Reader {
    /// The next record.
    pub at: Cursor,
    /// The bytes of its form that were read already.
    pub partial: usize,
    /// The first record since the log was cleared.
    pub cleared: Cursor,
}

/// The place of `syslog(2)`.
pub static READER: Mutex<Reader> =
    Mutex::new(Reader { at: Cursor::START, partial: 0, cleared: Cursor::START });

/// Room for one record in the form of `syslog(2)`, and for its text.
pub struct Room {
    /// The form.
    pub form: [u8; PLAIN_MOST],
    text: [u8; LONGEST],
}

impl Room {
    /// Room, on the heap: stacks of the kernel are short.
    pub fn new() -> Box<Room> {
        Box::new(Room { form: [0; PLAIN_MOST], text: [0; LONGEST] })
    }

    /// Writes the form of the record at `at`, or of the oldest, and returns its length.
    pub fn fill(&mut self, at: Cursor) -> Option<(Record, usize)> {
        let record = read(at, &mut self.text)?;
        let text = self.text.get(..record.length).unwrap_or_default();
        let length = plain(&record, text, &mut self.form);
        Some((record, length))
    }
}

/// Takes what nobody took before, at most `size` bytes, and waits for the first record
/// (`syslog_print`). `put` gets each piece with the number of bytes before it. The last record may
/// be taken in part.
pub fn take(size: usize, put: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<usize> {
    let mut room = Room::new();
    let mut reader = loop {
        let at = READER.lock().at;
        wait(at)?;
        let reader = READER.lock();
        if reader.at == at {
            break reader;
        }
        // Another reader was quicker.
    };
    let mut done = 0;
    while done < size {
        let Some((record, length)) = room.fill(reader.at) else { break };
        if record.sequence != reader.at.sequence {
            // The record that was read in part is gone.
            reader.partial = 0;
        }
        let from = reader.partial.min(length);
        let mut count = length - from;
        let before = (reader.at, reader.partial);
        if count <= size - done {
            (reader.at, reader.partial) = (record.next, 0);
        } else if done == 0 {
            count = size;
            reader.partial = from + count;
        } else {
            break;
        }
        let piece = room.form.get(from..from + count).unwrap_or_default();
        if let Err(error) = put(done, piece) {
            (reader.at, reader.partial) = before;
            return if done == 0 { Err(error) } else { Ok(done) };
        }
        done += count;
    }
    Ok(done)
}

/// Calls `each` for the records from `from` up to `end`, with their lengths in the form of this
/// call, as long as it returns true.
pub fn walk(
    room: &mut Room,
    from: Cursor,
    end: Cursor,
    mut each: impl FnMut(&Room, usize) -> bool,
) {
    let mut at = from;
    while let Some((record, length)) = room.fill(at) {
        if record.sequence >= end.sequence || !each(room, length) {
            return;
        }
        at = record.next;
        // Nothing is held here: interrupts may come. A signal does not end the call.
        let _ = breathe();
    }
}

/// How many bytes a reader gets before it waits.
pub fn unread() -> usize {
    let mut room = Room::new();
    log::write_kept();
    let end = log::end();
    let (at, partial) = {
        let mut reader = READER.lock();
        if look(reader.at) == Some(true) {
            (reader.at, reader.partial) = (log::first(), 0);
        }
        (reader.at, reader.partial)
    };
    let mut total = 0;
    walk(&mut room, at, end, |_, length| {
        total += length;
        true
    });
    total.saturating_sub(partial)
}
