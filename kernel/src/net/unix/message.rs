//! What travels between two endpoints.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};

use super::account::Charge;
use super::address::Name;
use super::endpoint::Endpoint;
use crate::file::open_file::OpenFile;

/// SCM_MAX_FD: descriptors that one message carries at most (unix(7)).
pub const MOST_DESCRIPTORS: usize = 253;
/// Descriptors that are in flight at most, in the whole system.
pub const MOST_IN_FLIGHT: usize = 16 * 1024;

static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// Open files on their way; counted while they are.
#[derive(Default)]
pub struct Descriptors(Vec<Arc<OpenFile>>);

impl Descriptors {
    /// Sends these files off. ETOOMANYREFS when too many are in flight already.
    pub fn send(files: Vec<Arc<OpenFile>>) -> Result<Self> {
        if files.is_empty() {
            return Ok(Self::default());
        }
        let before = IN_FLIGHT.fetch_add(files.len(), Ordering::Relaxed);
        let sent = Self(files);
        // On failure dropping `sent` takes the count back.
        if before + sent.0.len() > MOST_IN_FLIGHT { Err(Errno::ETOOMANYREFS) } else { Ok(sent) }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The files, arrived.
    pub fn take(&mut self) -> Vec<Arc<OpenFile>> {
        let files = core::mem::take(&mut self.0);
        IN_FLIGHT.fetch_sub(files.len(), Ordering::Relaxed);
        files
    }

    /// References to the files that leave them where they are (MSG_PEEK).
    pub fn peek(&self) -> Vec<Arc<OpenFile>> {
        self.0.clone()
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// One message: a datagram, a packet, or a piece of a stream.
pub struct Message {
    /// Its bytes; those before `taken` were read already (streams only).
    pub bytes: Vec<u8>,
    /// How many of `bytes` were read.
    pub taken: usize,
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
