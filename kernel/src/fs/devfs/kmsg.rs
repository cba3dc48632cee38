//! `/dev/kmsg`: the kernel's log, record by record (Documentation/ABI/testing/dev-kmsg of Linux
//! 6.1; `devkmsg_read` and its neighbours in kernel/printk/printk.c).
//!
//! Each open file has a place of its own in the log. A read gives one record. `crate::kernel_log`
//! has the rest.
//!
//! Lock order: an open file's room (it sleeps), then its place.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_log_ring::{Cursor, EXTENDED_MOST, LONGEST, extended};
use hayate_machine::log;
use hayate_machine::sync::SpinLock;

use super::add;
use crate::kernel_log::{self, READER, Writing};
use crate::reclaim::growth::Grow;
use crate::schedule::{Mutex, time};
use crate::vfs::device::{self, Device};
use crate::vfs::inode::{DeviceNumber, FileKind};
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits, Whence};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// Registers the device and adds its node.
pub fn init() {
    let number = DeviceNumber::new(1, 11);
    device::register(FileKind::CharDevice, number, "mem", Arc::new(Opener));
    add("kmsg", FileKind::CharDevice, number, 0o644);
}

struct Opener;

impl Device for Opener {
    fn open(&self, _: DeviceNumber, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        if Writing::now() == Writing::Off {
            return Err(Errno::EPERM);
        }
        let mut room = Vec::new();
        if request.reads() {
            kernel_log::check(request.credentials, false)?;
            room.make_room_exact(LONGEST + EXTENDED_MOST)?;
            room.resize(LONGEST + EXTENDED_MOST, 0);
        }
        Ok(Arc::new(Messages {
            at: SpinLock::new(log::first()),
            room: Mutex::new(room),
            limit: SpinLock::new(Limit::default()),
        }))
    }
}

/// Records that an open file may write in [`PERIOD`] (`ratelimit_default_init`).
const BURST: u32 = 10;
const PERIOD: u64 = 5_000_000_000;

/// How many records an open file wrote.
#[derive(Default)]
struct Limit {
    /// When the period began; 0: never.
    begun: u64,
    written: u32,
    suppressed: u64,
}

impl Limit {
    /// Counts one, and says whether it is within the limit.
    fn count(&mut self, now: u64) -> bool {
        if self.begun == 0 || now > self.begun + PERIOD {
            (self.begun, self.written) = (now, 0);
        }
        let within = self.written < BURST;
        if within {
            self.written += 1;
        } else {
            self.suppressed += 1;
        }
        within
    }
}

/// An open `/dev/kmsg`.
struct Messages {
    at: SpinLock<Cursor>,
    /// For the text of a record, then for its form. Held while a record is read.
    room: Mutex<Vec<u8>>,
    limit: SpinLock<Limit>,
}

impl FileOps for Messages {
    fn traits(&self) -> Traits {
        Traits::POLLABLE | Traits::ADDRESSABLE
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        let mut room = self.room.lock_interruptible().map_err(|_| Errno::ERESTARTSYS)?;
        let (text, form) = room.split_at_mut_checked(LONGEST).ok_or(Errno::EBADF)?;
        let at = *self.at.lock();
        let record = loop {
            if let Some(record) = kernel_log::read(at, text) {
                break record;
            }
            if file.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            kernel_log::wait(at)?;
        };
        if record.sequence != at.sequence {
            // Records are lost: the reader hears of it, and goes on at the oldest.
            *self.at.lock() = log::first();
            return Err(Errno::EPIPE);
        }
        // The record counts as read even if it does not arrive.
        *self.at.lock() = record.next;
        let length = extended(&record, text.get(..record.length).unwrap_or_default(), form);
        if length > out.remaining() {
            return Err(Errno::EINVAL);
        }
        let count = out.put(form.get(..length).unwrap_or_default())?;
        if count == length { Ok(length) } else { Err(Errno::EFAULT) }
    }

    fn write(&self, _: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let length = input.remaining();
        if length > LONGEST {
            return Err(Errno::EINVAL);
        }
        let writing = Writing::now();
        if writing == Writing::Off
            || writing == Writing::Limited && !self.limit.lock().count(time::monotonic_ns())
        {
            return Ok(input.discard());
        }
        let mut text = Vec::new();
        text.make_room_exact(length)?;
        text.resize(length, 0);
        if length != 0 && input.take(&mut text)? != length {
            return Err(Errno::EFAULT);
        }
        kernel_log::write(&text);
        Ok(length)
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&kernel_log::WAITING);
        log::write_kept();
        match kernel_log::look(*self.at.lock()) {
            None => Events::empty(),
            Some(false) => Events::READABLE,
            Some(true) => Events::READABLE | Events::ERR | Events::PRI,
        }
    }

    fn seek(&self, _: &OpenFile, _: u64, offset: i64, whence: Whence) -> Result<u64> {
        if offset != 0 {
            return Err(Errno::ESPIPE);
        }
        log::write_kept();
        let to = match whence {
            Whence::Set => log::first(),
            Whence::Data => READER.lock().cleared,
            Whence::End => log::end(),
            Whence::Current | Whence::Hole => return Err(Errno::EINVAL),
        };
        *self.at.lock() = to;
        Ok(0)
    }

    fn release(&self, _: &OpenFile) {
        let suppressed = self.limit.lock().suppressed;
        if suppressed != 0 {
            hayate_machine::warn!(
                "/dev/kmsg: {suppressed} lines suppressed, more than {BURST} in 5 s"
            );
        }
    }
}
