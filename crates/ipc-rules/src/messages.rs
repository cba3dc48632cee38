//! Messages of System V queues: which of them a receiver gets (`ipc/msg.c` of Linux 6.1).

use alloc::collections::VecDeque;

use crate::NoMemory;

/// `MSG_EXCEPT`
pub const EXCEPT: u32 = 0o20000;
/// `MSG_COPY`
pub const COPY: u32 = 0o40000;

/// The messages that a receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The first.
    Any,
    /// The first of this type.
    Type(i64),
    /// The first of another type.
    Other(i64),
    /// The first of the smallest type, if that is at most this one.
    AtMost(i64),
    /// The one with this number, counted from 0.
    Number(i64),
}

impl Wanted {
    /// What the arguments of `msgrcv(2)` mean (`convert_mode`).
    pub fn of(kind: i64, flags: u32) -> Wanted {
        match kind {
            _ if flags & COPY != 0 => Wanted::Number(kind),
            0 => Wanted::Any,
            // The smallest number has no counterpart.
            ..0 => Wanted::AtMost(kind.checked_neg().unwrap_or(i64::MAX)),
            _ if flags & EXCEPT != 0 => Wanted::Other(kind),
            _ => Wanted::Type(kind),
        }
    }

    /// Whether a receiver that waits takes a message of this type.
    pub fn takes(self, kind: i64) -> bool {
        match self {
            Wanted::Any | Wanted::Number(_) => true,
            Wanted::Type(wanted) => kind == wanted,
            Wanted::Other(other) => kind != other,
            Wanted::AtMost(most) => kind <= most,
        }
    }
}

/// Messages in the order in which they came, each with its type.
#[derive(Debug)]
pub struct Messages<M> {
    all: VecDeque<(i64, M)>,
}

impl<M> Default for Messages<M> {
    fn default() -> Self {
        Messages { all: VecDeque::new() }
    }
}

impl<M> Messages<M> {
    /// The number of messages.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(&mut self) -> Result<(), NoMemory> {
        self.all.try_reserve(1).map_err(|_| NoMemory)
    }

    /// Adds a message, for which [`reserve`](Self::reserve) made room.
    pub fn push(&mut self, kind: i64, message: M) {
        self.all.push_back((kind, message));
    }

    /// The place of the message that a receiver gets.
    pub fn find(&self, wanted: Wanted) -> Option<usize> {
        let kinds = self.all.iter().map(|message| message.0);
        match wanted {
            Wanted::Number(number) => {
                usize::try_from(number).ok().filter(|&number| number < self.all.len())
            }
            Wanted::AtMost(_) => {
                let fitting = kinds.enumerate().filter(|&(_, kind)| wanted.takes(kind));
                fitting.min_by_key(|&(place, kind)| (kind, place)).map(|found| found.0)
            }
            _ => kinds.enumerate().find(|&(_, kind)| wanted.takes(kind)).map(|found| found.0),
        }
    }

    /// The message at a place.
    pub fn get(&self, place: usize) -> Option<(i64, &M)> {
        self.all.get(place).map(|(kind, message)| (*kind, message))
    }

    /// Takes out the message at a place.
    pub fn take(&mut self, place: usize) -> Option<(i64, M)> {
        self.all.remove(place)
    }

    /// Takes out all messages.
    pub fn drain(&mut self) -> impl Iterator<Item = (i64, M)> {
        self.all.drain(..)
    }
}
