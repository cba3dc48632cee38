//! What travels between two endpoints.

use alloc::sync::Weak;
use alloc::vec::Vec;

use hayate_abi::socket::Ucred;

use super::account::Charge;
use super::address::Name;
use super::endpoint::Endpoint;
use super::flight::Descriptors;

/// SCM_MAX_FD: descriptors that one message carries at most (unix(7)).
pub const MOST_DESCRIPTORS: usize = 253;

/// One message: a datagram, a packet, or a piece of a stream.
pub struct Message {
    /// Its bytes; those before `taken` were read already (streams only).
    pub bytes: Vec<u8>,
    /// How many of `bytes` were read.
    pub taken: usize,
    /// It is out-of-band data that was not read yet; see [`super::urgent`].
    pub urgent: bool,
    /// Descriptors that it carries.
    pub descriptors: Descriptors,
    /// Who sent it.
    pub sender: Ucred,
    /// The sending endpoint's name, for recvfrom(2).
    pub from: Option<Name>,
    /// The sending endpoint, which waits for room perhaps.
    pub origin: Weak<Endpoint>,
    /// Its share of what the sender has in flight, once it is in a queue.
    pub charge: Option<Charge>,
}

impl Message {
    /// Bytes that were not read yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}
