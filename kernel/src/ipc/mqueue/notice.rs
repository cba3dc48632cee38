//! How a process is told that a message came to an empty queue (`mq_notify(3)`).

use alloc::boxed::Box;
use alloc::sync::Arc;

use hayate_abi::Result;
use hayate_abi::signal::{SI_MESGQ, Siginfo};

use crate::ipc::actor::Actor;
use crate::vfs::signal_owner;
use crate::vfs::signal_owner::{Addressee, Asker};
use crate::vfs::socket::Letter;

/// The last byte of a letter: a message came (`NOTIFY_WOKENUP`).
const WOKEN_UP: u8 = 1;
/// The last byte of a letter: the notice is withdrawn (`NOTIFY_REMOVED`).
const REMOVED: u8 = 2;

/// The way in which it is told.
pub enum Way {
    /// `SIGEV_NONE`: not at all, but nobody else can ask to be told.
    Nothing,
    /// `SIGEV_SIGNAL`: by a signal with a value; by none if its number is 0.
    Signal(u32, u64),
    /// `SIGEV_THREAD`: by a letter to a netlink socket. A thread of the C library reads it.
    Letter(Box<dyn Letter>),
}

/// What a queue tells once.
pub struct Notice {
    owner: Arc<dyn Addressee>,
    process: u32,
    way: Way,
}

/// What the file of a queue shows of a notice; all 0 if there is none.
#[derive(Clone, Copy, Default)]
pub struct Shown {
    /// `sigev_notify`
    pub way: i32,
    /// `sigev_signo`, for a signal.
    pub signal: u32,
    /// The process.
    pub process: u32,
}

impl Notice {
    /// A notice for the calling process.
    pub fn new(actor: &Actor, way: Way) -> Result<Notice> {
        let owner = signal_owner::calling_program()?;
        Ok(Notice { owner, process: actor.process, way })
    }

    /// The process for which it is, if that has this number. It may have ended since; then another
    /// process may have the number.
    pub fn owner(&self, process: u32) -> Option<&Arc<dyn Addressee>> {
        (self.process == process).then_some(&self.owner)
    }

    /// Tells that this thread sent a message (`__do_notify`).
    pub fn tell(self, sender: &Actor) {
        match self.way {
            Way::Nothing | Way::Signal(0, _) => {}
            Way::Signal(signal, value) => {
                let user = sender.credentials.uid;
                let info = Siginfo::from_queue(signal, SI_MESGQ, sender.process, user, value);
                // The process asked for it, so that the sender's rights do not matter; a signal that
                // its queue has no place for is lost, as in Linux.
                let _ = self.owner.send(Asker::default(), info);
            }
            Way::Letter(letter) => letter.send(WOKEN_UP),
        }
    }

    /// Tells that it is withdrawn (`remove_notification`).
    pub fn withdraw(self) {
        if let Way::Letter(letter) = self.way {
            letter.send(REMOVED);
        }
    }

    /// What is shown of it.
    pub fn shown(&self) -> Shown {
        let (way, signal) = match self.way {
            Way::Signal(signal, _) => (0, signal),
            Way::Nothing => (1, 0),
            Way::Letter(_) => (2, 0),
        };
        Shown { way, signal, process: self.process }
    }
}
