//! `eventfd(2)`: a counter that can be waited for.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use crate::schedule::WaitQueue;
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::{O_NONBLOCK, O_RDWR};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// `EFD_SEMAPHORE`
const SEMAPHORE: u32 = 1;

/// The largest value that a counter can have.
const MAXIMUM: u64 = u64::MAX - 1;

struct EventFd {
    count: SpinLock<u64>,
    semaphore: bool,
    /// Woken at every change.
    changes: WaitQueue,
}

/// Opens an eventfd. `flags`: `EFD_SEMAPHORE` and `O_NONBLOCK`, checked by the caller.
pub fn open(initial: u32, flags: u32) -> Result<Arc<OpenFile>> {
    let event = EventFd {
        count: SpinLock::new(u64::from(initial)),
        semaphore: flags & SEMAPHORE != 0,
        changes: WaitQueue::new(),
    };
    anonymous::open("[eventfd]", Arc::new(event), O_RDWR | flags & O_NONBLOCK)
}

/// Whether an open file is an eventfd.
pub fn is(file: &OpenFile) -> bool {
    file.ops_as::<EventFd>().is_some()
}

/// Adds one to the counter of an eventfd, unless it is at its largest value (`eventfd_signal`,
/// fs/eventfd.c).
pub fn signal(file: &OpenFile) {
    if let Some(event) = file.ops_as::<EventFd>()
        && event.add(1).is_some()
    {
        event.changes.wake_all();
    }
}

impl EventFd {
    fn take(&self) -> Option<u64> {
        let mut count = self.count.lock();
        match *count {
            0 => None,
            _ if self.semaphore => {
                *count -= 1;
                Some(1)
            }
            value => {
                *count = 0;
                Some(value)
            }
        }
    }

    fn add(&self, value: u64) -> Option<()> {
        let mut count = self.count.lock();
        *count = count.checked_add(value).filter(|&sum| sum <= MAXIMUM)?;
        Some(())
    }
}

impl FileOps for EventFd {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        if out.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let value = match self.take() {
            Some(value) => value,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => self
                .changes
                .wait_interruptible(None, || self.take())
                .map_err(|_| Errno::ERESTARTSYS)?,
        };
        self.changes.wake_all();
        out.put(&value.to_le_bytes())
    }

    fn write(&self, file: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        if input.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 8];
        if input.take(&mut bytes)? < 8 {
            return Err(Errno::EFAULT);
        }
        let value = u64::from_le_bytes(bytes);
        if value > MAXIMUM {
            return Err(Errno::EINVAL);
        }
        match self.add(value) {
            Some(()) => {}
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => self
                .changes
                .wait_interruptible(None, || self.add(value))
                .map_err(|_| Errno::ERESTARTSYS)?,
        }
        self.changes.wake_all();
        Ok(8)
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.changes);
        let count = *self.count.lock();
        let mut events = Events::empty();
        if count > 0 {
            events |= Events::READABLE;
        }
        if count < MAXIMUM {
            events |= Events::WRITABLE;
        }
        events
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let count = *self.count.lock();
        Some(format!("eventfd-count: {count:16x}\n").into_bytes())
    }
}
