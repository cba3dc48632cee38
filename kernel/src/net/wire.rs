//! Packets as bytes: for devices, raw sockets, packet sockets, and the errors of ICMP.
//!
//! The bytes of the payload stay where they are; only headers are written and read.

use hayate_abi::{Errno, Result};
use hayate_ip::checksum::Checksum;
use hayate_ip::header::{self, Extent, Header, Tcp, Udp};
use hayate_tcp::options::MAXIMUM;
use hayate_tcp::{Flags, Options, Segment, Seq};

use super::config::Network;
use super::packet::{Body, Packet, Ports};
use super::slice::{Payload, Slice};
use super::statistics::TcpCounter;

/// The longest headers: IPv6 with a fragment header, TCP with all options.
pub const HEADERS: usize = header::LENGTH_V6 + 8 + header::LENGTH_TCP + MAXIMUM;

/// Returns a packet as bytes, with its checksums.
///
/// # Errors
/// `ENOMEM`; `EMSGSIZE` if it is longer than a packet can be.
pub fn emit(packet: &Packet) -> Result<Payload> {
    let mut bytes = [0; HEADERS];
    let (length, data, _) = head(packet, &mut bytes, false)?;
    let mut whole = Payload::copy(&bytes[..length])?;
    for slice in data {
        whole.push(slice.clone())?;
    }
    Ok(whole)
}

/// Writes the headers of a packet. Returns their length, the data behind them and, if `completes`
/// is true and there is a checksum over the data, where it begins and where it is written, counted
/// from there: the device completes it.
///
/// # Errors
/// `EMSGSIZE` if it is longer than a packet can be.
#[allow(clippy::type_complexity, reason = "three results, as described")]
pub fn head<'a>(
    packet: &'a Packet,
    to: &mut [u8; HEADERS],
    completes: bool,
) -> Result<(usize, &'a [Slice], Option<(usize, usize)>)> {
    let ip = header::length(&packet.header);
    let (transport, at, data) = transport(packet, &mut to[ip..])?;
    let length = transport + data.iter().map(Slice::len).sum::<usize>();
    let head = Header { protocol: packet.protocol(), ..packet.header };
    header::emit(&head, length, &mut to[..ip]).ok_or(Errno::EMSGSIZE)?;
    let Some(at) = at else { return Ok((ip, data, None)) };
    let mut sum = Checksum::new();
    sum.add_pseudo(head.source, head.destination, head.protocol, length);
    let field = if completes {
        sum.folded()
    } else {
        sum.add(&to[ip..ip + transport]);
        data.iter().for_each(|slice| slice.add_to(&mut sum));
        // UDP's checksum of zero means that there is none (RFC 768).
        match sum.finish() {
            0 if head.protocol == header::UDP => u16::MAX,
            sum => sum,
        }
    };
    to[ip + at..ip + at + 2].copy_from_slice(&field.to_be_bytes());
    Ok((ip + transport, data, completes.then_some((ip, at))))
}

/// Writes the header of the transport protocol, with a checksum of 0; returns its length, the place
/// of the checksum in it if it has one, and the data behind it.
#[allow(clippy::type_complexity, reason = "three results, as described")]
fn transport<'a>(packet: &'a Packet, to: &mut [u8]) -> Result<(usize, Option<usize>, &'a [Slice])> {
    match &packet.body {
        Body::Bytes(payload) => Ok((0, None, payload.slices())),
        Body::Udp(ports, payload) => {
            let length = header::LENGTH_UDP + payload.len();
            let udp = Udp {
                source: ports.source,
                destination: ports.destination,
                checksum: 0,
                length: u16::try_from(length).map_err(|_| Errno::EMSGSIZE)?,
            };
            to[..header::LENGTH_UDP].copy_from_slice(&udp.to_bytes());
            Ok((header::LENGTH_UDP, Some(6), payload.slices()))
        }
        Body::Tcp(ports, segment) => {
            let mut room = [0; MAXIMUM];
            let options = segment.options.emit(&mut room);
            let tcp = Tcp {
                source: ports.source,
                destination: ports.destination,
                sequence: segment.seq.0,
                acknowledged: segment.ack.map(|ack| ack.0),
                flags: segment.flags.bits(),
                window: segment.window,
                urgent: segment.urgent,
                options: options.len(),
            };
            let length = header::LENGTH_TCP + options.len();
            to[..header::LENGTH_TCP].copy_from_slice(&tcp.to_bytes());
            to[header::LENGTH_TCP..length].copy_from_slice(options);
            Ok((length, Some(16), &segment.payload))
        }
    }
}

/// Reads a packet that arrived on an interface of a network namespace. `good`: the device has
/// checked the checksums. `None`: it has to be dropped. A fragment's body is [`Body::Bytes`].
pub fn parse(network: &Network, bytes: Payload, interface: u32, good: bool) -> Option<Packet> {
    let mut head = [0; header::MOST];
    let count = bytes.read(0, &mut head);
    let (header, Extent { offset, length }) = header::parse(&head[..count], bytes.len())?;
    let mut payload = bytes;
    payload.truncate(offset + length);
    payload.skip(offset);
    if header.fragment.is_some() {
        return Some(Packet { header, body: Body::Bytes(payload), interface, segment: 0 });
    }
    let body = parse_transport(network, &header, payload, good)?;
    Some(Packet { header, body, interface, segment: 0 })
}

/// Reads the transport protocol of a packet whose body is bytes. `None`: it has to be dropped.
pub fn parse_body(network: &Network, packet: Packet) -> Option<Packet> {
    let Packet { header, body: Body::Bytes(payload), interface, .. } = packet else { return None };
    let body = parse_transport(network, &header, payload, false)?;
    Some(Packet { header, body, interface, segment: 0 })
}

/// Reads the header of the transport protocol.
fn parse_transport(
    network: &Network,
    header: &Header,
    mut payload: Payload,
    good: bool,
) -> Option<Body> {
    let mut head = [0; header::LENGTH_TCP + MAXIMUM];
    let count = payload.read(0, &mut head);
    let head = &head[..count];
    let summed = |payload: &Payload| {
        let mut sum = Checksum::new();
        let (from, to) = (header.source, header.destination);
        sum.add_pseudo(from, to, header.protocol, payload.len());
        payload.add_to(&mut sum);
        sum.is_good()
    };
    match header.protocol {
        header::UDP => {
            let udp = Udp::parse(head, payload.len())?;
            payload.truncate(usize::from(udp.length));
            // Without a checksum only in IPv4 (RFC 8200, 8.1).
            let unsummed = udp.checksum == 0 && header.destination.is_v4();
            if !good && !unsummed && !summed(&payload) {
                return None;
            }
            payload.skip(header::LENGTH_UDP);
            let ports = Ports { source: udp.source, destination: udp.destination };
            Some(Body::Udp(ports, payload))
        }
        header::TCP => {
            let Some(tcp) = Tcp::parse(head, payload.len()) else {
                network.count_tcp(TcpCounter::Bad);
                return None;
            };
            if !good && !summed(&payload) {
                network.count_tcp(TcpCounter::Bad);
                network.count_tcp(TcpCounter::BadSums);
                return None;
            }
            let end = header::LENGTH_TCP + tcp.options;
            let options = Options::parse(head.get(header::LENGTH_TCP..end)?);
            payload.skip(end);
            let flags = Flags::from_bits_truncate(tcp.flags);
            let mut segment = Segment::new(Seq(tcp.sequence), tcp.acknowledged.map(Seq), flags);
            segment.window = tcp.window;
            segment.urgent = tcp.urgent;
            segment.options = options;
            let mut slices = payload.into_slices();
            if slices.len() > 1 {
                segment.payload.try_reserve(slices.len()).ok()?;
                segment.payload.extend(slices.drain(..));
            } else if let Some(slice) = slices.pop() {
                segment.payload.push(slice);
            }
            let ports = Ports { source: tcp.source, destination: tcp.destination };
            Some(Body::Tcp(ports, segment))
        }
        _ => Some(Body::Bytes(payload)),
    }
}
