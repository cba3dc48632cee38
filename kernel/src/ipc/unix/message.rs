//! Messages between two endpoints.

use alloc::sync::Weak;
use alloc::vec::Vec;

use hayate_abi::socket::Ucred;

use super::account::Charge;
use super::address::Name;
use super::endpoint::Endpoint;
use super::flight::Descriptors;

/// SCM_MAX_FD: the most descriptors that one message carries (unix(7)).
pub const MOST_DESCRIPTORS: usize = 253;

/// One message: a datagram, a packet, or a piece of a stream.
pub struct Message {
    /// Its bytes; those before `taken` have been read already (streams only).
    pub bytes: Vec<u8>,
    /// The number of `bytes` that have been read.
    pub taken: usize,
    /// It is out-of-band data that is not yet read; see [`super::urgent`].
    pub urgent: bool,
    /// Descriptors that it carries.
    pub descriptors: Descriptors,
    /// Credentials of the sender.
    pub sender: Ucred,
    /// The sending endpoint's name, for recvfrom(2).
    pub from: Option<Name>,
    /// The sending endpoint, which may wait for space.
    pub origin: Weak<Endpoint>,
    /// Its part of the bytes that the sender has in flight, once it is in a queue.
    pub charge: Option<Charge>,
}

impl Message {
    /// Returns the bytes that have not been read yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}
