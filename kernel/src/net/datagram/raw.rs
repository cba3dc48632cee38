//! Raw sockets: packets of any IP protocol (raw(7); net/ipv4/raw.c and net/ipv6/raw.c of Linux
//! 6.1).
//!
//! A raw socket is a datagram socket whose port is the number of its protocol, as in Linux, and
//! which is found by it from the beginning. Every packet of the protocol goes to each raw socket
//! that matches and then to the protocol itself. An IPv4 socket gets the packet with its header, an
//! IPv6 socket without.
//!
//! A machine without raw sockets pays one relaxed load for each packet ([`COUNT`]).
//!
//! Not there: IP options in a header that the program writes, and IPV6_HDRINCL.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::checksum::Checksum;
use hayate_ip::header::{self, Fragment, Header};
use hayate_ip::{Address, SocketAddress};

use super::raw_options::{CHECKSUM, FILTER, SOL_ICMP_V6, SOL_RAW};
use super::{Protocol, Reported, Socket};
use crate::net::config::Network;
use crate::net::filter::View;
use crate::net::packet::{Body, Packet};
use crate::net::slice::Payload;
use crate::net::wire;
use crate::reclaim::growth::Grow;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

/// The least header that a program writes.
const HEADER: usize = header::LENGTH_V4;

/// The number of raw sockets in all network namespaces.
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Socket {
    /// Makes a raw socket, which receives from now on.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_raw(number: u8, v6: bool) -> Result<Arc<Socket>> {
        let socket = Socket::new(Protocol::Raw(number), v6);
        {
            let mut setup = socket.setup.lock();
            let any = setup.local.address;
            socket.enter_port(&mut setup, any, u16::from(number))?;
            setup.port_given = true;
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(socket)
    }

    /// Notes the end of a raw socket.
    pub(super) fn end_raw(&self) {
        if let Protocol::Raw(_) = self.protocol {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sets the filter of ICMP's types or the place of the checksum.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the protocol has no filter, `ENOPROTOOPT`, `EINVAL`, `EFAULT`.
    pub(super) fn set_raw(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        if option == CHECKSUM && self.v6 && level != SOL_ICMP_V6 {
            return self.set_checksum(level, value);
        }
        self.check_filter(option)?;
        let mut bytes = [0; 32];
        let whole = if self.v6 { 32 } else { 4 };
        let length = value.bytes(&mut bytes)?.len().min(whole);
        let mut blocked = self.raw.blocked.lock();
        for (at, byte) in bytes[..length].iter().enumerate() {
            let shift = at % 4 * 8;
            let word = &mut blocked[at / 4];
            *word = *word & !(0xff << shift) | u32::from(*byte) << shift;
        }
        Ok(())
    }

    /// Returns the filter or the place of the checksum.
    ///
    /// # Errors
    /// As [`set_raw`](Self::set_raw).
    pub(super) fn get_raw(&self, level: i32, option: i32, out: OptionOutput) -> Result<()> {
        if option == CHECKSUM && self.v6 && level != SOL_ICMP_V6 {
            return out.put_number(self.raw.checksum());
        }
        self.check_filter(option)?;
        let blocked = *self.raw.blocked.lock();
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(4).zip(blocked) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let whole = if self.v6 { 32 } else { 4 };
        out.put(&bytes[..out.room()?.min(whole)])
    }

    fn check_filter(&self, option: i32) -> Result<()> {
        if option != FILTER {
            return Err(Errno::ENOPROTOOPT);
        }
        let icmp = if self.v6 { header::ICMP_V6 } else { header::ICMP };
        if self.protocol == Protocol::Raw(icmp) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// IPV6_CHECKSUM. ICMPv6 always has its own (`do_rawv6_setsockopt`).
    fn set_checksum(&self, level: i32, value: OptionValue) -> Result<()> {
        let offset = value.number()?;
        let is_icmp = self.protocol == Protocol::Raw(header::ICMP_V6) && level != SOL_RAW;
        if is_icmp || offset > 0 && offset % 2 != 0 {
            return Err(Errno::EINVAL);
        }
        self.raw.checksum.store(offset.max(-1), Ordering::Relaxed);
        Ok(())
    }

    /// Makes the packet of a message.
    ///
    /// # Errors
    /// `EINVAL` if the header that the program wrote, or the place of the checksum, is not in the
    /// message; `ENOMEM`.
    pub(super) fn raw_packet(&self, header: Header, payload: Payload) -> Result<Packet> {
        let Protocol::Raw(number) = self.protocol else { return Err(Errno::EINVAL) };
        if !self.v6 && self.raw.header_included() {
            return with_header(header, payload);
        }
        let header = Header { protocol: number, ..header };
        let offset = usize::try_from(self.raw.checksum()).ok().filter(|_| self.v6);
        let payload = match offset {
            Some(offset) => summed(&header, payload, offset)?,
            None => payload,
        };
        Ok(Packet { header, body: Body::Bytes(payload), interface: 0, segment: 0 })
    }

    /// Whether a packet is for this raw socket.
    fn wants(&self, packet: &Packet, from: SocketAddress, body: &Payload) -> bool {
        let to = packet.header.destination;
        if self.v6 == to.is_v4() || self.accepts(from).is_none() || !self.listens_to(to, packet) {
            return false;
        }
        let mut kind = [0];
        let is_icmp = matches!(packet.header.protocol, header::ICMP | header::ICMP_V6);
        if is_icmp && body.read(0, &mut kind) == 1 && !self.raw.passes(kind[0]) {
            return false;
        }
        self.raw.checksum() < 0 || is_sum_good(&packet.header, body)
    }

    /// Takes a packet, or its `body` if it is a socket of IPv6, if it and its filter want it.
    fn take_filtered(&self, packet: &Packet, from: SocketAddress, whole: &Payload, body: &Payload) {
        if !self.wants(packet, from, body) {
            return;
        }
        let shown = if self.v6 { body } else { whole };
        let mut most = usize::MAX;
        if self.filter.is_set() {
            let data = whole.len() - shown.len();
            most = self.filter.verdict(&View::of_packet(packet, &[], whole, data));
        }
        if most > 0 {
            self.take(packet, from, shown, most);
        }
    }
}

/// Reads the header that a program wrote. The kernel fills in the lengths, the checksum, and a
/// source that is 0 (`raw_send_hdrinc`).
fn with_header(header: Header, mut payload: Payload) -> Result<Packet> {
    let mut head = [0; HEADER];
    if payload.read(0, &mut head) < HEADER {
        return Err(Errno::EINVAL);
    }
    let [first, class, _, _, id0, id1, place0, place1, ttl, protocol, ..] = head;
    if usize::from(first & 15) * 4 != HEADER {
        return Err(Errno::EINVAL);
    }
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let place = u16::from_be_bytes([place0, place1]);
    let (offset, more) = (usize::from(place & 0x1fff) * 8, place & 0x2000 != 0);
    let identification = u32::from(u16::from_be_bytes([id0, id1]));
    payload.skip(HEADER);
    let header = Header {
        source: if word(12) == 0 { header.source } else { Address::v4(word(12)) },
        destination: Address::v4(word(16)),
        protocol,
        hop_limit: ttl,
        traffic_class: class,
        dont_fragment: place & 0x4000 != 0,
        fragment: (more || offset != 0).then_some(Fragment { identification, offset, more }),
    };
    Ok(Packet { header, body: Body::Bytes(payload), interface: 0, segment: 0 })
}

/// Writes the checksum of an IPv6 packet at an offset in its payload (RFC 3542, 3.1).
fn summed(header: &Header, mut payload: Payload, offset: usize) -> Result<Payload> {
    let end = offset + 2;
    if end > payload.len() {
        return Err(Errno::EINVAL);
    }
    let mut head = Vec::new();
    head.make_room(end)?;
    head.resize(end, 0);
    payload.read(0, &mut head);
    head[offset..].fill(0);
    let length = payload.len();
    payload.skip(end);
    let mut sum = Checksum::new();
    sum.add_pseudo(header.source, header.destination, header.protocol, length);
    sum.add(&head);
    payload.add_to(&mut sum);
    head[offset..].copy_from_slice(&sum.finish().to_be_bytes());
    let mut whole = Payload::copy(&head)?;
    for slice in payload.into_slices() {
        whole.push(slice)?;
    }
    Ok(whole)
}

fn is_sum_good(header: &Header, body: &Payload) -> bool {
    let mut sum = Checksum::new();
    sum.add_pseudo(header.source, header.destination, header.protocol, body.len());
    body.add_to(&mut sum);
    sum.is_good()
}

/// Gives a packet to the raw sockets of its protocol. Returns whether one of them matches.
pub fn receive_raw(network: &Network, packet: &Packet) -> bool {
    COUNT.load(Ordering::Relaxed) != 0 && give(network, packet)
}

fn give(network: &Network, packet: &Packet) -> bool {
    let to = packet.header.destination;
    let from = SocketAddress::new(packet.header.source, 0);
    let number = u16::from(packet.protocol());
    let found = super::RAW.find_all(network.key, number, to, packet.interface);
    let Ok(sockets) = found else { return false };
    if sockets.is_empty() {
        return false;
    }
    // A socket of IPv6 sees what follows the packet's header, which is bytes already if no other
    // part of the kernel knows the protocol, and a filter or a socket of IPv4 all of it.
    let mut emitted = None;
    for socket in sockets {
        match &packet.body {
            Body::Bytes(body) if socket.v6 && !socket.filter.is_set() => {
                if socket.wants(packet, from, body) {
                    socket.take(packet, from, body, usize::MAX);
                }
            }
            _ => {
                // Without memory the packet is lost for raw sockets, as it is when their queues
                // are full.
                let Ok((whole, body)) = emit_once(&mut emitted, packet) else { return true };
                socket.take_filtered(packet, from, whole, body);
            }
        }
    }
    true
}

/// Returns a packet as bytes, all of them and those behind its header, which are made the first
/// time. `ENOMEM`.
fn emit_once<'a>(
    emitted: &'a mut Option<(Payload, Payload)>,
    packet: &Packet,
) -> Result<(&'a Payload, &'a Payload)> {
    let (whole, body) = match emitted {
        Some(emitted) => emitted,
        None => {
            let whole = wire::emit(packet)?;
            let body = whole.part(header::length(&packet.header), whole.len())?;
            emitted.insert((whole, body))
        }
    };
    Ok((whole, body))
}

/// Tells the raw sockets that may have sent a packet of an error.
pub fn failed_raw(network: &Network, number: u8, reported: &Reported<'_>) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let (from, to) = (reported.from.address, SocketAddress { port: 0, ..reported.to });
    let found = super::RAW.find_all(network.key, u16::from(number), from, 0);
    let Ok(sockets) = found else { return };
    for socket in sockets {
        if socket.v6 != from.is_v4() && socket.accepts(to).is_some() {
            socket.fail(reported);
        }
    }
}
