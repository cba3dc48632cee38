//! Waiting until one of several files is ready (`poll(2)`, `select(2)`). `poll.rs` has the events
//! and the registrar; a set that lasts is `ipc/epoll`.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};

use super::open_file::OpenFile;
use super::poll::{Events, Registrar};
use crate::schedule::{Listener, WaitQueue, Woken};

/// One file that a thread waits for.
pub struct PolledFile {
    /// The file; an entry with `None` is skipped.
    pub file: Option<Arc<OpenFile>>,
    /// The events that are waited for; errors and hang-ups always are.
    pub wanted: Events,
    /// The events that were found.
    pub found: Events,
}

impl PolledFile {
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

fn look_at_all(watched: &mut [PolledFile], registrar: &mut Registrar<'_>) -> usize {
    watched.iter_mut().map(|one| usize::from(one.look(registrar))).sum()
}

/// Waits until one of the files has a wanted event, or until `deadline` (monotonic ns; `Some(0)`
/// does not wait, `None` waits for ever). Returns how many files are ready. `ERESTARTNOHAND` when
/// interrupted, `ENOMEM`. Entries whose `found` is set already count as ready.
pub fn wait(watched: &mut [PolledFile], deadline: Option<u64>) -> Result<usize> {
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
