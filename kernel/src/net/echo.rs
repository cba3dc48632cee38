//! ICMP echo for sockets without privilege: "ping" sockets (icmp(7), `net/ipv4/ping.c`).
//!
//! A program writes an echo request, header and all; the kernel sets the identifier, which is the
//! socket's port, and the checksum. It reads answers with their headers.

use hayate_abi::{Errno, Result};
use hayate_ip::header::{self, Header, Icmp, LENGTH_ICMP};
use hayate_ip::icmp::{v4, v6};

use super::icmp_message;
use super::packet::Packet;
use super::slice::Payload;

/// Makes the packet of an echo request.
///
/// # Errors
/// `EINVAL` if it is no echo request, `ENOMEM`.
pub fn request(header: Header, identifier: u16, mut payload: Payload) -> Result<Packet> {
    let mut head = [0; LENGTH_ICMP];
    if payload.read(0, &mut head) < LENGTH_ICMP {
        return Err(Errno::EINVAL);
    }
    let mut message = Icmp::parse(&head).ok_or(Errno::EINVAL)?;
    let is_v4 = header.destination.is_v4();
    if message.code != 0 || message.kind != if is_v4 { v4::ECHO } else { v6::ECHO } {
        return Err(Errno::EINVAL);
    }
    message.rest[..2].copy_from_slice(&identifier.to_be_bytes());
    payload.skip(LENGTH_ICMP);
    let protocol = if is_v4 { header::ICMP } else { header::ICMP_V6 };
    icmp_message::packet(Header { protocol, ..header }, message, payload)
}
