//! Open files that want a signal when something happens (`O_ASYNC`, fcntl(2)): the list that an
//! object keeps. `OpenFile::switch_signals` enters and removes open files; `signal_owner.rs` has
//! the process that gets an open file's signals.
//!
//! An object that can be waited for (a pipe, a socket, a terminal, an inotify instance) has a
//! [`Signals`]: the list of its open files with `O_ASYNC` switched on. Code that changes the object
//! calls [`Signals::tell`], which is one load and one branch while the list is empty. Where a wait
//! queue is woken for the same reason, the signal comes after it.
//!
//! Locks: the list is a spin lock and a leaf. No lock of the object may be held over `tell`:
//! signals go to processes, whose locks are no part of any order here.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::Result;
use hayate_machine::sync::SpinLock;

use super::signal_owner::{Band, SignalOwner};
use crate::reclaim::growth::Grow;

/// The events that an open file wants signals for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Data can be read.
    pub reads: bool,
    /// Data can be written.
    pub writes: bool,
}

impl Interest {
    /// Everything.
    pub const BOTH: Interest = Interest { reads: true, writes: true };

    fn has(self, band: Band) -> bool {
        if band == Band::Out { self.writes } else { self.reads }
    }
}

struct Asking {
    /// The address of the open file.
    file: usize,
    fd: i32,
    interest: Interest,
    owner: Arc<SignalOwner>,
}

/// The open files of one object that want signals.
pub struct Signals {
    wanted: AtomicBool,
    entries: SpinLock<Vec<Asking>>,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals::new()
    }
}

impl Signals {
    /// Makes an empty list.
    pub const fn new() -> Signals {
        Signals { wanted: AtomicBool::new(false), entries: SpinLock::new(Vec::new()) }
    }

    /// Signals the owners of the open files that want this event.
    #[inline(always)]
    pub fn tell(&self, band: Band) {
        if self.wanted.load(Ordering::Relaxed) {
            self.for_each(
                |entry| {
                    if entry.interest.has(band) {
                        Some((entry.fd, Arc::clone(&entry.owner)))
                    } else {
                        None
                    }
                },
                |(fd, owner)| owner.tell(fd, band),
            );
        }
    }

    /// Signals out-of-band data to the open files that chose a signal (`F_SETSIG`). The others get
    /// only SIGURG, which their owner is sent in any case (`kill_fasync_rcu`, fs/fcntl.c).
    pub fn tell_urgent(&self) {
        if self.wanted.load(Ordering::Relaxed) {
            self.for_each(
                |entry| (entry.owner.signal() != 0).then(|| (entry.fd, Arc::clone(&entry.owner))),
                |(fd, owner)| owner.tell(fd, Band::Priority),
            );
        }
    }

    /// Calls `tell` with each result of `choose`, with the lock released in between.
    #[cold]
    fn for_each<T>(&self, choose: impl Fn(&Asking) -> Option<T>, tell: impl Fn(T)) {
        let mut index = 0;
        loop {
            let chosen = match self.entries.lock().get(index) {
                Some(entry) => choose(entry),
                None => return,
            };
            if let Some(chosen) = chosen {
                tell(chosen);
            }
            index += 1;
        }
    }

    /// Adds an open file, named by its address, or changes the descriptor that its signals name.
    pub fn enter(
        &self,
        file: usize,
        fd: i32,
        interest: Interest,
        owner: &Arc<SignalOwner>,
    ) -> Result<()> {
        let owner = Arc::clone(owner);
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.file == file) {
            entry.fd = fd;
            return Ok(());
        }
        entries.make_room(1)?;
        entries.push(Asking { file, fd, interest, owner });
        self.wanted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes an open file.
    pub fn leave(&self, file: usize) {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|entry| entry.file == file);
        let left = at.map(|at| entries.swap_remove(at));
        self.wanted.store(!entries.is_empty(), Ordering::Relaxed);
        drop(entries);
        drop(left);
    }
}
