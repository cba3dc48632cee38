//! Packets on their way out of this machine, or back into it.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::header;
use hayate_ip::icmp::{v4, v6};

use super::config::Path;
use super::packet::{Body, Packet};
use super::statistics::Counter;
use super::{cut, link, loopback, path_mtu};
use crate::drivers::net::Owner;

/// Sends a packet on its path, in fragments if it is too long for that. The caller holds no lock of
/// a socket.
///
/// # Errors
/// `EMSGSIZE` if it is too long for the path and must not be cut, `ENOBUFS`.
pub fn send(path: &Path, packet: Packet) -> Result<()> {
    let mtu = path_mtu::of(path, packet.header.destination);
    send_within(path, packet, mtu.bytes as usize)
}

/// Sends a packet as [`send`] does, in fragments of at most `mtu` bytes.
///
/// # Errors
/// As [`send`].
pub fn send_within(path: &Path, mut packet: Packet, mtu: usize) -> Result<()> {
    note(path, &packet);
    packet.interface = path.interface.index;
    let length = packet.length();
    if length > mtu {
        if packet.header.dont_fragment {
            path.interface.counters.dropped_out.fetch_add(1, Ordering::Relaxed);
            return Err(Errno::EMSGSIZE);
        }
        return cut::cut(&packet, mtu, |piece| {
            let length = piece.length();
            give(path, length, piece, None)
        });
    }
    give(path, length, packet, None)
}

/// Sends a segment of TCP, and lets `owner` count the bytes that a device has to send. A segment
/// knows the MTU of its path; one that is longer finds out whether a router still tells less.
///
/// # Errors
/// `EMSGSIZE` if it is too long for the interface, `ENOBUFS`.
pub fn send_segment(path: &Path, mut packet: Packet, owner: Option<&Arc<dyn Owner>>) -> Result<()> {
    note(path, &packet);
    let length = packet.length();
    packet.interface = path.interface.index;
    let mtu = path.interface.mtu();
    if let Body::Tcp(_, segment) = &packet.body
        && segment.cut_at != 0
        && !path.interface.is_loopback()
    {
        let largest = length - segment.payload_len() + usize::from(segment.cut_at);
        return send_cut(path, (length, largest), packet, owner);
    }
    if length > mtu {
        path.interface.counters.dropped_out.fetch_add(1, Ordering::Relaxed);
        return Err(Errno::EMSGSIZE);
    }
    give(path, length, packet, owner)
}

/// Sends a segment that stands for several: whole if the device cuts it, as packet sockets see it
/// then, too; otherwise in pieces. The `largest` of these must not be too long for the link.
fn send_cut(
    path: &Path,
    (length, largest): (usize, usize),
    packet: Packet,
    owner: Option<&Arc<dyn Owner>>,
) -> Result<()> {
    if largest > path.interface.mtu() {
        path.interface.counters.dropped_out.fetch_add(1, Ordering::Relaxed);
        return Err(Errno::EMSGSIZE);
    }
    if link::cuts(&path.interface, packet.header.destination.is_v4()) {
        return give(path, length, packet, owner);
    }
    let mut result = Ok(());
    packet.cut(|piece| {
        let length = piece.length();
        result = result.and(give(path, length, piece, owner));
    });
    result
}

/// Counts a packet that a protocol sends.
#[inline]
fn note(path: &Path, packet: &Packet) {
    let Some(network) = path.interface.network.get() else { return };
    let is_v4 = packet.header.destination.is_v4();
    network.count(Counter::Sent, is_v4);
    let icmp = if is_v4 { header::ICMP } else { header::ICMP_V6 };
    if let Body::Bytes(payload) = &packet.body
        && packet.header.protocol == icmp
    {
        network.count(Counter::IcmpSent, is_v4);
        let mut kind = [0];
        let unreachable = if is_v4 { v4::UNREACHABLE } else { v6::UNREACHABLE };
        if payload.read(0, &mut kind) == 1 && kind[0] == unreachable {
            network.count(Counter::UnreachableSent, is_v4);
        }
    }
}

fn give(path: &Path, length: usize, packet: Packet, owner: Option<&Arc<dyn Owner>>) -> Result<()> {
    if path.interface.is_loopback() {
        loopback::send(&path.interface, length, packet);
        return Ok(());
    }
    link::send(path, length, packet, owner)
}
