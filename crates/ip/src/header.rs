//! The headers of IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768), TCP (RFC 9293) and ICMP (RFC 792,
//! RFC 4443), by smoltcp's wire formats.
//!
//! A header is read from the first bytes of a packet, which the caller has copied to one place;
//! [`MOST`] bytes are enough for every header that is accepted. The payload need not be contiguous.

use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber, UdpPacket};

use crate::Address;
use crate::checksum::Checksum;

/// ICMP's number.
pub const ICMP: u8 = 1;
/// IGMP's number.
pub const IGMP: u8 = 2;
/// TCP's number.
pub const TCP: u8 = 6;
/// UDP's number.
pub const UDP: u8 = 17;
/// ICMPv6's number.
pub const ICMP_V6: u8 = 58;
/// `IPPROTO_RAW`.
pub const RAW: u8 = 255;

/// How many bytes of a packet's beginning hold every header that is accepted: an IPv4 header with
/// all options, or an IPv6 header with extension headers, and a TCP header with all options.
pub const MOST: usize = 256;
/// The length of an IPv4 header without options.
pub const LENGTH_V4: usize = 20;
/// The length of an IPv6 header without extension headers.
pub const LENGTH_V6: usize = 40;
/// The length of a UDP header.
pub const LENGTH_UDP: usize = 8;
/// The length of a TCP header without options.
pub const LENGTH_TCP: usize = 20;
/// The length of an ICMP header.
pub const LENGTH_ICMP: usize = 8;

/// The extension headers that are skipped (RFC 8200, 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The place of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The number that fragments of one packet have in common.
    pub identification: u32,
    /// The offset of its payload in the packet's, in bytes.
    pub offset: usize,
    /// Other fragments follow.
    pub more: bool,
}

/// The fields of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub source: Address,
    /// The receiver.
    pub destination: Address,
    /// The number of the protocol of the payload.
    pub protocol: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// Routers must not fragment it; always so in IPv6.
    pub dont_fragment: bool,
    /// It is a fragment.
    pub fragment: Option<Fragment>,
}

/// The place of the payload in a packet: offset and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length of the headers before it.
    pub offset: usize,
    /// Its length.
    pub length: usize,
}

/// Reads the headers at the beginning of a packet of `length` bytes; `head` are its first bytes, at
/// least [`MOST`] or all of them. `None`: a packet that has to be dropped.
pub fn parse(head: &[u8], length: usize) -> Option<(Header, Extent)> {
    match head.first()? >> 4 {
        4 => parse_v4(head, length, true),
        6 => parse_v6(head, length),
        _ => None,
    }
}

/// Reads the headers of a packet of which the beginning came back with an error of ICMP. The host
/// that reports it may have changed the header, so its checksum says nothing (`icmp_unreach` of
/// Linux 6.1 does not look at it); the length is that of the whole packet.
pub fn parse_returned(head: &[u8]) -> Option<(Header, Extent)> {
    let longest = usize::from(u16::MAX) + LENGTH_V6;
    match head.first()? >> 4 {
        4 => parse_v4(head, longest, false),
        6 => parse_v6(head, longest),
        _ => None,
    }
}

fn parse_v4(head: &[u8], length: usize, is_summed: bool) -> Option<(Header, Extent)> {
    if head.len() < LENGTH_V4 {
        return None;
    }
    let packet = Ipv4Packet::new_unchecked(head);
    let offset = usize::from(packet.header_len());
    let total = usize::from(packet.total_len());
    let mut sum = Checksum::new();
    sum.add(head.get(..offset)?);
    let is_good = !is_summed || sum.is_good();
    if offset < LENGTH_V4 || total < offset || total > length || !is_good {
        return None;
    }
    let start = usize::from(packet.frag_offset());
    let fragment = (packet.more_frags() || start != 0).then(|| Fragment {
        identification: u32::from(packet.ident()),
        offset: start,
        more: packet.more_frags(),
    });
    let header = Header {
        source: packet.src_addr().into(),
        destination: packet.dst_addr().into(),
        protocol: packet.next_header().into(),
        hop_limit: packet.hop_limit(),
        traffic_class: packet.dscp() << 2 | packet.ecn(),
        dont_fragment: packet.dont_frag(),
        fragment,
    };
    Some((header, Extent { offset, length: total - offset }))
}

fn parse_v6(head: &[u8], length: usize) -> Option<(Header, Extent)> {
    if head.len() < LENGTH_V6 {
        return None;
    }
    let packet = Ipv6Packet::new_unchecked(head);
    let end = LENGTH_V6 + usize::from(packet.payload_len());
    // A mapped address never stands in a packet (RFC 4291, 2.5.5.2): it would pass for IPv4.
    let (source, destination) = (Address::from(packet.src_addr()), packet.dst_addr().into());
    if end > length || source.is_v4() || Address::is_v4(destination) {
        return None;
    }
    let mut header = Header {
        source,
        destination,
        protocol: packet.next_header().into(),
        hop_limit: packet.hop_limit(),
        traffic_class: packet.traffic_class(),
        dont_fragment: true,
        fragment: None,
    };
    let mut offset = LENGTH_V6;
    loop {
        let next = match header.protocol {
            HOP_BY_HOP | DESTINATION | ROUTING => {
                let extension = head.get(offset..offset + 8)?;
                // A routing header with segments left is not for this host (RFC 5095).
                if header.protocol == ROUTING && extension[3] != 0 {
                    return None;
                }
                header.protocol = extension[0];
                offset + 8 + 8 * usize::from(extension[1])
            }
            FRAGMENT if header.fragment.is_none() => {
                let extension = head.get(offset..offset + 8)?;
                let place = u16::from_be_bytes([extension[2], extension[3]]);
                let fragment = Fragment {
                    identification: u32::from_be_bytes(*extension[4..].first_chunk()?),
                    offset: usize::from(place & !7),
                    more: place & 1 != 0,
                };
                header.protocol = extension[0];
                // A packet in one fragment is a whole packet (RFC 6946).
                header.fragment = (fragment.offset != 0 || fragment.more).then_some(fragment);
                offset + 8
            }
            FRAGMENT => return None,
            _ => break,
        };
        // The headers of later fragments are data.
        if header.fragment.is_some_and(|fragment| fragment.offset != 0) {
            offset = next;
            break;
        }
        offset = next;
    }
    let length = end.checked_sub(offset)?;
    Some((header, Extent { offset, length }))
}

/// Returns the length of the header that [`emit`] writes: 20 or 40 bytes, and 8 more for a fragment
/// of IPv6.
pub fn length(header: &Header) -> usize {
    match (header.destination.is_v4(), header.fragment.is_some()) {
        (true, _) => LENGTH_V4,
        (false, false) => LENGTH_V6,
        (false, true) => LENGTH_V6 + 8,
    }
}

/// Writes the header of a packet with `payload` bytes after it. Returns its length, or `None` if
/// `to` is too short or the packet too long.
pub fn emit(header: &Header, payload: usize, to: &mut [u8]) -> Option<usize> {
    let length = length(header);
    let to = to.get_mut(..length)?;
    to.fill(0);
    match (header.source.to_v4(), header.destination.to_v4()) {
        (Some(source), Some(destination)) => {
            let total = u16::try_from(length + payload).ok()?;
            let mut packet = Ipv4Packet::new_unchecked(to);
            packet.set_version(4);
            packet.set_header_len(LENGTH_V4 as u8);
            packet.set_dscp(header.traffic_class >> 2);
            packet.set_ecn(header.traffic_class & 3);
            packet.set_total_len(total);
            packet.clear_flags();
            packet.set_dont_frag(header.dont_fragment);
            if let Some(fragment) = header.fragment {
                packet.set_ident(fragment.identification as u16);
                packet.set_more_frags(fragment.more);
                packet.set_frag_offset(u16::try_from(fragment.offset).ok()?);
            }
            packet.set_hop_limit(header.hop_limit);
            packet.set_next_header(header.protocol.into());
            packet.set_src_addr(source.into());
            packet.set_dst_addr(destination.into());
            packet.fill_checksum();
        }
        (None, None) => {
            let rest = length - LENGTH_V6;
            let next = if rest == 0 { header.protocol } else { FRAGMENT };
            let (base, extension) = to.split_at_mut(LENGTH_V6);
            let mut packet = Ipv6Packet::new_unchecked(base);
            packet.set_version(6);
            packet.set_traffic_class(header.traffic_class);
            packet.set_payload_len(u16::try_from(rest + payload).ok()?);
            packet.set_next_header(next.into());
            packet.set_hop_limit(header.hop_limit);
            packet.set_src_addr(header.source.bits().into());
            packet.set_dst_addr(header.destination.bits().into());
            if let Some(fragment) = header.fragment {
                let place = u16::try_from(fragment.offset & !7).ok()? | u16::from(fragment.more);
                extension[0] = header.protocol;
                extension[2..4].copy_from_slice(&place.to_be_bytes());
                extension[4..8].copy_from_slice(&fragment.identification.to_be_bytes());
            }
        }
        _ => return None,
    }
    Some(length)
}

/// Ports and length of a UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The checksum as it stands there, 0 for none.
    pub checksum: u16,
    /// The length of header and data in bytes.
    pub length: u16,
}

impl Udp {
    /// Reads a UDP header; `available` bytes of header and data arrived. `None`: drop it.
    pub fn parse(head: &[u8], available: usize) -> Option<Udp> {
        let packet = UdpPacket::new_unchecked(head.get(..LENGTH_UDP)?);
        let length = packet.len();
        let whole = usize::from(length) >= LENGTH_UDP && usize::from(length) <= available;
        whole.then(|| Udp {
            source: packet.src_port(),
            destination: packet.dst_port(),
            checksum: packet.checksum(),
            length,
        })
    }

    /// Returns it as bytes.
    pub fn to_bytes(self) -> [u8; LENGTH_UDP] {
        let mut bytes = [0; LENGTH_UDP];
        let mut packet = UdpPacket::new_unchecked(&mut bytes[..]);
        packet.set_src_port(self.source);
        packet.set_dst_port(self.destination);
        packet.set_len(self.length);
        packet.set_checksum(self.checksum);
        bytes
    }
}

/// A TCP header without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledged number; `None` if the ACK bit is not set.
    pub acknowledged: Option<u32>,
    /// The bits FIN, SYN, RST, PSH and URG, as on the wire.
    pub flags: u8,
    /// The window as it stands there.
    pub window: u16,
    /// The urgent pointer as it stands there.
    pub urgent: u16,
    /// The length of the options in bytes, a multiple of four up to 40.
    pub options: usize,
}

/// FIN, SYN, RST, PSH and URG in a TCP header's flags; the ACK bit is not among them.
const TCP_FLAGS: u8 = 0b10_1111;
const TCP_ACK: u8 = 0b1_0000;

impl Tcp {
    /// Reads a TCP header; `available` bytes of header and data arrived. `None`: drop it.
    pub fn parse(head: &[u8], available: usize) -> Option<Tcp> {
        let head = head.get(..LENGTH_TCP)?;
        let packet = TcpPacket::new_unchecked(head);
        let length = usize::from(packet.header_len());
        if length < LENGTH_TCP || length > available {
            return None;
        }
        Some(Tcp {
            source: packet.src_port(),
            destination: packet.dst_port(),
            sequence: packet.seq_number().0 as u32,
            acknowledged: packet.ack().then(|| packet.ack_number().0 as u32),
            flags: head[13] & TCP_FLAGS,
            window: packet.window_len(),
            urgent: packet.urgent_at(),
            options: length - LENGTH_TCP,
        })
    }

    /// Returns it as bytes, with a checksum of 0.
    pub fn to_bytes(self) -> [u8; LENGTH_TCP] {
        let mut bytes = [0; LENGTH_TCP];
        bytes[13] = self.flags & TCP_FLAGS;
        if self.acknowledged.is_some() {
            bytes[13] |= TCP_ACK;
        }
        let mut packet = TcpPacket::new_unchecked(&mut bytes[..]);
        packet.set_src_port(self.source);
        packet.set_dst_port(self.destination);
        packet.set_seq_number(TcpSeqNumber(self.sequence as i32));
        packet.set_ack_number(TcpSeqNumber(self.acknowledged.unwrap_or(0) as i32));
        packet.set_header_len((LENGTH_TCP + self.options) as u8);
        packet.set_window_len(self.window);
        packet.set_urgent_at(self.urgent);
        bytes
    }
}

/// An ICMP or ICMPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The four bytes after the checksum: identifier and number of an echo, the MTU, a pointer.
    pub rest: [u8; 4],
}

impl Icmp {
    /// Reads an ICMP header.
    pub fn parse(head: &[u8]) -> Option<Icmp> {
        let head: &[u8; LENGTH_ICMP] = head.first_chunk()?;
        Some(Icmp { kind: head[0], code: head[1], rest: [head[4], head[5], head[6], head[7]] })
    }

    /// Returns it as bytes, with this checksum.
    pub fn to_bytes(self, checksum: u16) -> [u8; LENGTH_ICMP] {
        let [high, low] = checksum.to_be_bytes();
        let [a, b, c, d] = self.rest;
        [self.kind, self.code, high, low, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..MOST),
            version in 0u8..16,
            length in 0usize..70_000,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = version << 4 | *first & 15;
            }
            if let Some((_, extent)) = parse(&bytes, length) {
                prop_assert!(extent.offset + extent.length <= length.max(bytes.len()));
            }
            let _ = (Udp::parse(&bytes, length), Tcp::parse(&bytes, length), Icmp::parse(&bytes));
        }

        #[test]
        fn a_tcp_header_comes_back_as_it_was(
            source in any::<u16>(), destination in any::<u16>(), sequence in any::<u32>(),
            acknowledged in proptest::option::of(any::<u32>()), flags in any::<u8>(),
            window in any::<u16>(), urgent in any::<u16>(), options in 0usize..11,
        ) {
            let flags = flags & TCP_FLAGS;
            let options = options * 4;
            let header = Tcp {
                source, destination, sequence, acknowledged, flags, window, urgent, options,
            };
            prop_assert_eq!(Tcp::parse(&header.to_bytes(), 60), Some(header));
        }

        #[test]
        fn a_header_comes_back_as_it_was(
            v6 in any::<bool>(), from in any::<u128>(), to in any::<u128>(),
            protocol in 61u8..250, hop_limit in any::<u8>(), traffic_class in any::<u8>(),
            dont_fragment in any::<bool>(), fragmented in any::<bool>(),
            identification in any::<u16>(), offset in 0usize..8000, more in any::<bool>(),
            payload in 0usize..1400,
        ) {
            let address = |bits: u128| match v6 {
                true => Address::v6(bits | 1 << 127),
                false => Address::v4(bits as u32),
            };
            let fragment = (fragmented && (more || offset != 0)).then_some(Fragment {
                identification: u32::from(identification), offset: offset * 8, more,
            });
            let header = Header {
                source: address(from), destination: address(to), protocol, hop_limit,
                traffic_class, dont_fragment: dont_fragment || v6, fragment,
            };
            let mut bytes = [0; 2000];
            let length = emit(&header, payload, &mut bytes).expect("there is room");
            let parsed = parse(&bytes[..length + payload], length + payload);
            prop_assert_eq!(parsed, Some((header, Extent { offset: length, length: payload })));
        }
    }
}
