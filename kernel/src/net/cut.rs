//! Packets that are longer than a link takes are cut into fragments (RFC 791, 3.2; RFC 8200, 4.5).
//!
//! [`fragments`](super::fragments) puts them together where they arrive. That stands above ICMP, by
//! which it tells of missing pieces; this stands below, for everything that is sent may be cut.

use hayate_abi::{Errno, Result};
use hayate_ip::header::{self, Fragment, Header};

use super::packet::{Body, Packet};
use super::wire;
use crate::random;

/// Cuts a packet into fragments of at most `mtu` bytes with their headers, and gives each to
/// `send`.
///
/// # Errors
/// Those of `send`; `EMSGSIZE` if no fragment fits, `ENOMEM`.
pub(super) fn cut(packet: &Packet, mtu: usize, send: impl Fn(Packet) -> Result<()>) -> Result<()> {
    let mut rest = wire::emit(packet)?;
    rest.skip(header::length(&packet.header));
    let is_v4 = packet.header.destination.is_v4();
    let identification = if is_v4 { random::word() & 0xffff } else { random::word() } as u32;
    let mut fragment = Fragment { identification, offset: 0, more: true };
    let mut header = Header { protocol: packet.protocol(), ..packet.header };
    header.fragment = Some(fragment);
    let room = mtu.saturating_sub(header::length(&header)) & !7;
    if room == 0 {
        return Err(Errno::EMSGSIZE);
    }
    while !rest.is_empty() {
        let piece = rest.part(0, room)?;
        rest.skip(room);
        fragment.more = !rest.is_empty();
        header.fragment = Some(fragment);
        fragment.offset += piece.len();
        send(Packet { header, body: Body::Bytes(piece), interface: packet.interface, segment: 0 })?;
    }
    Ok(())
}
