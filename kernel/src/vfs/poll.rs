//! Readiness: event sets, and how a file's `poll` operation finds waiting threads.
//!
//! A [`FileOps::poll`](super::open_file::FileOps::poll) gets a [`Registrar`] and shows it every
//! wait queue that can change the answer. The registrar decides what to do with the queue: nothing
//! (a mere query), put a listener on it, or take the listener off again. Because taking off is the
//! same call, no references to queues are kept, and an operation is written only once. The rule
//! that makes this correct: an operation shows *the same queues whatever its state*.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};

use super::open_file::OpenFile;
use crate::schedule::{Listener, WaitQueue, Woken};

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

/// One file that a thread waits for.
pub struct Watched {
    /// The file; an entry with `None` is skipped.
    pub file: Option<Arc<OpenFile>>,
    /// The events that are waited for; errors and hang-ups always are.
    pub wanted: Events,
    /// The events that were found.
    pub found: Events,
}

impl Watched {
    fn look(&mut self, registrar: &mut Registrar<'_>) -> bool {
        if let Some(file) = &self.file {
            let always = Events::ERR | Events::HUP;
            self.found = file.poll(registrar) & (self.wanted | always);
        }
        !self.found.is_empty()
    }
}

/// The queue where the waiting thread sleeps, and whether an event came since it last looked.
struct Waiter {
    happened: AtomicBool,
    queue: WaitQueue,
}

impl Listener for Waiter {
    fn notify(&self, _: u32) {
        self.happened.store(true, Ordering::Release);
        self.queue.wake_all();
    }
}

fn look_at_all(watched: &mut [Watched], registrar: &mut Registrar<'_>) -> usize {
    watched.iter_mut().map(|one| usize::from(one.look(registrar))).sum()
}

/// Waits until one of the files has a wanted event, or until `deadline` (monotonic ns; `Some(0)`
/// does not wait, `None` waits for ever). Returns how many files are ready. `ERESTARTNOHAND` when
/// interrupted, `ENOMEM`. Entries whose `found` is set already count as ready.
pub fn wait(watched: &mut [Watched], deadline: Option<u64>) -> Result<usize> {
    let ready = look_at_all(watched, &mut Registrar::Query);
    if ready != 0 || deadline == Some(0) {
        return Ok(ready);
    }
    let waiter = Arc::new(Waiter { happened: AtomicBool::new(false), queue: WaitQueue::new() });
    let listener: Arc<dyn Listener> = waiter.clone();
    let mut registrar = Registrar::listen(&listener);
    let mut ready = look_at_all(watched, &mut registrar);
    let mut outcome = registrar.is_whole();
    while ready == 0 && outcome.is_ok() {
        let woken = waiter.queue.wait_interruptible(deadline, || {
            waiter.happened.swap(false, Ordering::AcqRel).then_some(())
        });
        match woken {
            Err(Woken::Interrupted) => outcome = Err(Errno::ERESTARTNOHAND),
            Err(Woken::TimedOut) => {
                ready = look_at_all(watched, &mut Registrar::Query);
                break;
            }
            Ok(()) => {}
        }
        ready = look_at_all(watched, &mut Registrar::Query);
    }
    for one in watched.iter() {
        if let Some(file) = &one.file {
            file.poll(&mut Registrar::Unlisten(&listener));
        }
    }
    if ready != 0 { Ok(ready) } else { outcome.map(|()| 0) }
}
