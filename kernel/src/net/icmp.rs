//! ICMP and ICMPv6: echo, and errors in both directions (RFC 792, RFC 1122, RFC 4443).

use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::SocketAddress;
use hayate_ip::checksum::{Checksum, changed};
use hayate_ip::header::{self, Header, Icmp, LENGTH_ICMP};
use hayate_ip::icmp::{Failure, failure_v4, failure_v6, is_error, v4, v6};
use hayate_ip::neighbour::{ADVERTISEMENT, SOLICITATION};

use super::config::{self, Network};
use super::datagram;
use super::datagram::{Protocol, Reported};
use super::groups;
use super::icmp_message::{LISTENER_QUERY, LISTENER_REPORT, packet, packet_with_sum};
use super::link;
use super::output;
use super::packet::{Body, Packet};
use super::slice::Payload;
use super::statistics::Counter;
use super::wire;
use crate::schedule::time::{monotonic_ns, realtime_ns};

/// How much of a packet comes back with an error: all that fits in a packet of this length, which
/// every link takes.
const BACK_V4: usize = 576 - header::LENGTH_V4 - LENGTH_ICMP;
const BACK_V6: usize = 1280 - header::LENGTH_V6 - LENGTH_ICMP;
/// The least time between two errors to hosts outside, in nanoseconds (1,000 a second, Linux'
/// `icmp_msgs_per_sec`).
const PACE: u64 = 1_000_000;
/// The code of a time that was exceeded while a packet was put together (RFC 792; RFC 4443, 3.3).
const REASSEMBLY: u8 = 1;
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

/// Handles a message that arrived in a network namespace.
pub fn receive(network: &Network, packet: &Packet) {
    let Body::Bytes(payload) = &packet.body else { return };
    let header = &packet.header;
    let is_v4 = header.destination.is_v4();
    network.count(Counter::IcmpReceived, is_v4);
    let mut sum = Checksum::new();
    if !is_v4 {
        sum.add_pseudo(header.source, header.destination, header::ICMP_V6, payload.len());
    }
    payload.add_to(&mut sum);
    let mut head = [0; LENGTH_ICMP];
    let count = payload.read(0, &mut head);
    let Some(message) = Icmp::parse(&head[..count]) else { return };
    if !sum.is_good() {
        return;
    }
    let [high, low, ..] = message.rest;
    match (is_v4, message.kind) {
        (true, v4::ECHO) | (false, v6::ECHO) => {
            answer(network, packet, message, &head, payload);
        }
        (true, v4::ECHO_REPLY) | (false, v6::ECHO_REPLY) => {
            let identifier = u16::from_be_bytes([high, low]);
            datagram::receive_echo_reply(network, packet, identifier, payload);
        }
        (true, v4::TIMESTAMP) if message.code == 0 => {
            answer_time(network, packet, message, payload);
        }
        (false, SOLICITATION | ADVERTISEMENT) => {
            // One that is not good is dropped.
            let _ = link::receive_discovery(packet, message, payload);
        }
        (false, LISTENER_QUERY | LISTENER_REPORT) => groups::receive(packet),
        _ => fail(network, packet, message, payload),
    }
}

/// Answers an echo request, whose first bytes are `head`. One to a group or a broadcast address
/// gets no answer (Linux' `icmp_echo_ignore_broadcasts`).
///
/// The answer differs from the request in its type alone, and the sum of the pseudo-header of
/// ICMPv6 is the same with the addresses exchanged: the checksum follows from the request's.
fn answer(
    network: &Network,
    request: &Packet,
    message: Icmp,
    head: &[u8; LENGTH_ICMP],
    payload: &Payload,
) {
    let header = &request.header;
    if !header.destination.is_unicast() || !header.source.is_unicast() {
        return;
    }
    let kind = if header.source.is_v4() { v4::ECHO_REPLY } else { v6::ECHO_REPLY };
    // Without memory there is no answer: it is lost, as any packet may be.
    let Ok(data) = payload.part(LENGTH_ICMP, payload.len()) else { return };
    let [old_kind, code, high, low, ..] = *head;
    let word = |kind| u16::from_be_bytes([kind, code]);
    let sum = changed(u16::from_be_bytes([high, low]), word(old_kind), word(kind));
    let message = Icmp { kind, ..message };
    send_back(network, request, |back| packet_with_sum(back, message, sum, data));
}

/// Answers a timestamp request: when it arrived and when the answer leaves, in milliseconds since
/// midnight (RFC 792; `icmp_timestamp`).
fn answer_time(network: &Network, request: &Packet, message: Icmp, payload: &Payload) {
    let header = &request.header;
    let mut times = [0; 12];
    if payload.read(LENGTH_ICMP, &mut times) < times.len()
        || !header.destination.is_unicast()
        || !header.source.is_unicast()
    {
        return;
    }
    let now = (realtime_ns() / 1_000_000 % DAY) as u32;
    times[4..8].copy_from_slice(&now.to_be_bytes());
    times[8..].copy_from_slice(&now.to_be_bytes());
    let Ok(data) = Payload::copy(&times) else { return };
    let message = Icmp { kind: v4::TIMESTAMP_REPLY, ..message };
    send_back(network, request, |back| packet(back, message, data));
}

/// Sends what `make` makes with a header back to the sender of a message. What cannot be sent is
/// lost, as any packet may be.
fn send_back(network: &Network, request: &Packet, make: impl FnOnce(Header) -> Result<Packet>) {
    let header = &request.header;
    let back = Header {
        source: header.destination,
        destination: header.source,
        hop_limit: hop_limit(network, header.source.is_v4()),
        dont_fragment: false,
        ..*header
    };
    let scope = request_scope(request);
    let Ok(path) = network.current().path(header.source, scope) else { return };
    if let Ok(reply) = make(back) {
        let _ = output::send(&path, reply);
    }
}

/// The TTL or hop limit of what the kernel sends by itself.
fn hop_limit(network: &Network, is_v4: bool) -> u8 {
    if is_v4 { network.settings.default_ttl() } else { 64 }
}

fn request_scope(packet: &Packet) -> u32 {
    if packet.header.source.is_link_local() { packet.interface } else { 0 }
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::NetworkUnreachable => Errno::ENETUNREACH,
        Failure::HostUnreachable => Errno::EHOSTUNREACH,
        Failure::NoProtocol => Errno::ENOPROTOOPT,
        Failure::Refused => Errno::ECONNREFUSED,
        Failure::TooBig(_) => Errno::EMSGSIZE,
        Failure::SourceRoute => Errno::EOPNOTSUPP,
        Failure::HostDown => Errno::EHOSTDOWN,
        Failure::Isolated => Errno::ENONET,
        Failure::Forbidden => Errno::EACCES,
        Failure::Protocol => Errno::EPROTO,
    }
}

/// Tells the socket that sent a packet why it did not arrive. The part of the packet that came back
/// is an allegation: a socket is found only if addresses and ports are right.
fn fail(network: &Network, packet: &Packet, message: Icmp, payload: &Payload) {
    let is_v4 = packet.header.destination.is_v4();
    let failure = if is_v4 { failure_v4 } else { failure_v6 };
    let Some((failure, is_hard)) = failure(message.kind, message.code, message.rest) else {
        return;
    };
    // Without memory nobody learns of it, as if the message were lost.
    let Ok(mut inner) = payload.part(LENGTH_ICMP, payload.len()) else { return };
    let mut head = [0; header::MOST];
    let count = inner.read(0, &mut head);
    let Some((sent, extent)) = header::parse_returned(&head[..count]) else { return };
    inner.skip(extent.offset);
    let information = if let Failure::TooBig(mtu) = failure { mtu } else { 0 };
    let reported = |protocol, from, to, payload| Reported {
        protocol,
        from,
        to,
        errno: errno(failure),
        is_hard,
        icmp: (message.kind, message.code, information),
        reporter: packet.header.source,
        interface: packet.interface,
        payload,
    };
    let (source, target) = (sent.source, sent.destination);
    let (source, target) = (SocketAddress::new(source, 0), SocketAddress::new(target, 0));
    let raw = Protocol::Raw(sent.protocol);
    datagram::failed(network, &reported(raw, source, target, &inner));
    let mut ports = [0; 8];
    if inner.read(0, &mut ports) < ports.len() {
        return;
    }
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let from = |port| SocketAddress::new(sent.source, port);
    let to = |port| SocketAddress::new(sent.destination, port);
    let (protocol, from, to, skipped) = match sent.protocol {
        header::UDP => (Protocol::Udp, from(port(0)), to(port(2)), header::LENGTH_UDP),
        header::ICMP | header::ICMP_V6 => (Protocol::Echo, from(port(4)), to(0), 0),
        header::TCP => {
            let sequence = u32::from_be_bytes([ports[4], ports[5], ports[6], ports[7]]);
            super::tcp::failed(network, from(port(0)), to(port(2)), sequence, failure);
            return;
        }
        _ => return,
    };
    let Ok(data) = inner.part(skipped, inner.len()) else { return };
    datagram::failed(network, &reported(protocol, from, to, &data));
}

/// Tells the sender of a packet to a device, which is this machine, that the host does not answer
/// (`arp_error_report`).
pub fn report_unreachable(packet: &Packet) {
    let network = &config::FIRST;
    let header = &packet.header;
    let from = |port| SocketAddress::new(header.source, port);
    let to = |port| SocketAddress::new(header.destination, port);
    match &packet.body {
        Body::Tcp(ports, segment) => {
            let (from, to) = (from(ports.source), to(ports.destination));
            super::tcp::failed(network, from, to, segment.seq.0, Failure::HostUnreachable);
        }
        Body::Udp(ports, payload) => {
            let reported = Reported {
                protocol: Protocol::Udp,
                from: from(ports.source),
                to: to(ports.destination),
                errno: Errno::EHOSTUNREACH,
                is_hard: false,
                icmp: (v4::UNREACHABLE, 1, 0),
                reporter: header.source,
                interface: packet.interface,
                payload,
            };
            datagram::failed(network, &reported);
        }
        Body::Bytes(_) => {}
    }
}

/// A fault of a packet that this machine got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwanted {
    /// No socket has its port.
    Port,
    /// Nothing handles its protocol.
    Protocol,
    /// Its other fragments did not come in time.
    Incomplete,
}

/// Tells the sender of a packet that it is not wanted here, unless that is forbidden (RFC 1122,
/// 3.2.2; RFC 4443, 2.4) or too many errors were sent.
pub fn refuse(network: &Network, original: &Packet, why: Unwanted) {
    let header = &original.header;
    if !header.destination.is_unicast() || !header.source.is_unicast() {
        return;
    }
    let is_v4 = header.destination.is_v4();
    if let Body::Bytes(payload) = &original.body
        && matches!(header.protocol, header::ICMP | header::ICMP_V6)
    {
        let mut kind = [0];
        if payload.read(0, &mut kind) == 0 || is_error(is_v4, kind[0]) {
            return;
        }
    }
    let Ok(path) = network.current().path(header.source, request_scope(original)) else { return };
    if !path.is_local && !is_due() {
        return;
    }
    let (kind, code) = match (is_v4, why) {
        (true, Unwanted::Port) => (v4::UNREACHABLE, v4::PORT),
        (true, Unwanted::Protocol) => (v4::UNREACHABLE, v4::PROTOCOL),
        (false, Unwanted::Port) => (v6::UNREACHABLE, v6::PORT),
        (false, Unwanted::Protocol) => (v6::PARAMETER_PROBLEM, v6::NEXT_HEADER),
        (true, Unwanted::Incomplete) => (v4::TIME_EXCEEDED, REASSEMBLY),
        (false, Unwanted::Incomplete) => (v6::TIME_EXCEEDED, REASSEMBLY),
    };
    // The next header stands in the sixth byte of an IPv6 header.
    let pointer = u32::from(kind == v6::PARAMETER_PROBLEM && !is_v4) * 6;
    let Ok(mut data) = wire::emit(original) else { return };
    data.truncate(if is_v4 { BACK_V4 } else { BACK_V6 });
    let back = Header {
        source: header.destination,
        destination: header.source,
        protocol: if is_v4 { header::ICMP } else { header::ICMP_V6 },
        hop_limit: hop_limit(network, is_v4),
        // Internetwork control (RFC 1812, 4.3.2.5), as Linux' `icmp_send`.
        traffic_class: header.traffic_class & 0x1e | 0xc0,
        dont_fragment: false,
        fragment: None,
    };
    if let Ok(error) = packet(back, Icmp { kind, code, rest: pointer.to_be_bytes() }, data) {
        // An error that cannot be sent is lost.
        let _ = output::send(&path, error);
    }
}

/// Whether an error to a host outside may be sent now.
fn is_due() -> bool {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = monotonic_ns();
    let next = NEXT.load(Ordering::Relaxed);
    now >= next
        && NEXT.compare_exchange(next, now + PACE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
