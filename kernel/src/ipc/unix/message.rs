//! Messages between two endpoints, and the descriptors that they carry.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::socket::Ucred;

use super::account::Charge;
use super::address::Name;
use crate::vfs::open_file::OpenFile;
use crate::vfs::users::Holdings;

/// SCM_MAX_FD: the most descriptors that one message carries (unix(7)).
pub const MOST_DESCRIPTORS: usize = 253;

/// The sender of a message.
pub trait Sender: Send + Sync {
    /// The message is no longer in flight.
    fn arrived(&self);
}

/// Open files in flight: counted from [`send`](Self::send) to [`take`](Self::take), or until they
/// are dropped (see [`super::flight`]).
#[derive(Default)]
pub struct Descriptors {
    pub(super) files: Vec<Arc<OpenFile>>,
    /// The user they count for; `None` if there are no files.
    pub(super) user: Option<Arc<Holdings>>,
}

impl Descriptors {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Calls `visit` with each file.
    pub fn for_each(&self, visit: &mut dyn FnMut(&Arc<OpenFile>)) {
        self.files.iter().for_each(visit);
    }

    /// Returns references to the files and leaves them in flight (MSG_PEEK).
    pub fn peek(&self) -> Vec<Arc<OpenFile>> {
        self.files.clone()
    }
}

/// One message: a datagram, a packet, or a piece of a stream.
pub struct Message {
    /// Its bytes; those before `taken` have been read already (streams only).
    pub bytes: Vec<u8>,
    /// The number of `bytes` that have been read.
    pub taken: usize,
    /// It is empty, and MSG_PEEK has seen it.
    pub was_seen: bool,
    /// It is out-of-band data that is not yet read; see [`super::urgent`].
    pub urgent: bool,
    /// Descriptors that it carries.
    pub descriptors: Descriptors,
    /// Credentials of the sender.
    pub sender: Ucred,
    /// The sending endpoint's name, for recvfrom(2).
    pub from: Option<Name>,
    /// The sending endpoint, which may wait for space.
    pub origin: Weak<dyn Sender>,
    /// Its part of the bytes that the sender has in flight, once it is in a queue.
    pub charge: Option<Charge>,
}

impl Message {
    /// Returns the bytes that have not been read yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}
