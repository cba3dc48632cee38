//! Readiness: event sets, and how a file's `poll` operation finds waiting threads.
//!
//! A [`FileOps::poll`](super::open_file::FileOps::poll) gets a [`Registrar`] and shows it every
//! wait queue that can change the answer. The registrar decides what to do with the queue: nothing
//! (a mere query), put a listener on it, or take the listener off again. Because taking off is the
//! same call, no references to queues are kept, and an operation is written only once. The rule
//! that makes this correct: an operation shows *the same queues whatever its state*.

use alloc::sync::{Arc, Weak};
use core::any::Any;

use hayate_abi::{Errno, Result};

use crate::schedule::{Listener, WaitQueue};

bitflags::bitflags! {
    /// Events of `poll(2)` and `epoll(7)`; the two agree on the numbers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u32 {
        /// Data can be read.
        const IN = 0x1;
        /// There is an exceptional condition (out-of-band data, a pty's packet).
        const PRI = 0x2;
        /// Writing would not block.
        const OUT = 0x4;
        /// An error, or a pipe without readers.
        const ERR = 0x8;
        /// The other side hung up.
        const HUP = 0x10;
        /// Not an open descriptor.
        const NVAL = 0x20;
        /// Normal data can be read.
        const RDNORM = 0x40;
        /// Priority data can be read.
        const RDBAND = 0x80;
        /// Normal data can be written.
        const WRNORM = 0x100;
        /// Priority data can be written.
        const WRBAND = 0x200;
        /// Unused by Linux.
        const MSG = 0x400;
        /// The other side shut down writing.
        const RDHUP = 0x2000;
    }
}

impl Events {
    /// Readable.
    pub const READABLE: Events = Events::IN.union(Events::RDNORM);
    /// Writable.
    pub const WRITABLE: Events = Events::OUT.union(Events::WRNORM);
    /// The answer of a file without readiness of its own (`DEFAULT_POLLMASK`).
    pub const ALWAYS: Events = Events::READABLE.union(Events::WRITABLE);
}

/// The action for a queue that is shown; see the module's documentation.
pub enum Registrar<'a> {
    /// Only ask for the events.
    Query,
    /// Put this listener on every queue. Becomes false when there was no memory for one; then the
    /// caller takes the listener off again.
    Listen(&'a Arc<dyn Listener>, bool),
    /// Take this listener off every queue.
    Unlisten(&'a Arc<dyn Listener>),
}

impl<'a> Registrar<'a> {
    /// Returns a registrar that puts `listener` on every queue.
    pub fn listen(listener: &'a Arc<dyn Listener>) -> Self {
        Registrar::Listen(listener, true)
    }

    /// Whether the listener is on every queue that was shown (`ENOMEM`).
    pub fn is_whole(&self) -> Result<()> {
        if matches!(self, Registrar::Listen(_, false)) { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Shows a queue that can change the answer.
    pub fn register(&mut self, queue: &WaitQueue) {
        match self {
            Registrar::Query => {}
            Registrar::Listen(listener, whole) => *whole &= queue.listen(Arc::clone(listener)),
            Registrar::Unlisten(listener) => queue.unlisten(listener),
        }
    }
}

/// One open file as an entry of a set that watches it (epoll).
pub trait Watcher: Any + Send + Sync {
    /// Called when the open file ends: takes the entry out of its set.
    fn file_ended(&self);
}

/// The link from an open file back to an entry of a set that watches it, kept by the open file.
pub struct Watch {
    /// The entry.
    pub watcher: Weak<dyn Watcher>,
    /// The entry on the file's wait queues for it.
    pub listener: Arc<dyn Listener>,
}

impl Watch {
    /// Tells the set that the open file ends.
    pub fn tell_end(&self) {
        if let Some(watcher) = self.watcher.upgrade() {
            watcher.file_ended();
        }
    }
}
