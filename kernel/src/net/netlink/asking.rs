//! The socket that asks, and how it is answered.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_netlink::Full;
use hayate_netlink::message::{Header, Request, Writer};

use super::endpoint::{Datagram, Endpoint};
use super::options::Options;
use crate::reclaim::growth::Grow;

/// The socket that asks.
pub struct Asking<'a> {
    /// Its endpoint, which gets the answers.
    pub endpoint: &'a Arc<Endpoint>,
    /// Its port.
    pub port: u32,
    /// Its options.
    pub options: Options,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// A dump began, whose end acknowledges it.
    Dumping,
}

impl Asking<'_> {
    /// The header of an answer.
    pub fn header(&self, request: &Request<'_>, kind: u16, flags: u16) -> Header {
        Header { kind, flags, sequence: request.header.sequence, port: self.port, length: 0 }
    }

    /// Sends an answer of at most `room` bytes, which `write` writes. A socket without room for it
    /// learns that it lost one.
    pub fn answer(
        &self,
        room: usize,
        write: impl FnOnce(&mut Writer<'_>) -> core::result::Result<(), Full>,
    ) -> Result<()> {
        let sent = message(room, write)
            .and_then(|bytes| self.endpoint.deliver(Datagram::of_kernel(bytes)));
        if sent.is_err() && !self.options.contains(Options::NO_ENOBUFS) {
            self.endpoint.overrun();
        }
        sent
    }
}

/// Makes a message of at most `room` bytes.
pub fn message(
    room: usize,
    write: impl FnOnce(&mut Writer<'_>) -> core::result::Result<(), Full>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.make_room_exact(room).map_err(|_| Errno::ENOBUFS)?;
    bytes.resize(room, 0);
    let mut writer = Writer::new(&mut bytes);
    write(&mut writer).map_err(|Full| Errno::EMSGSIZE)?;
    let length = writer.length();
    bytes.truncate(length);
    Ok(bytes)
}
