//! Messages of ICMP and ICMPv6 as packets.

use hayate_abi::Result;
use hayate_ip::Address;
use hayate_ip::checksum::Checksum;
use hayate_ip::header::{self, Header, Icmp, LENGTH_ICMP};
use hayate_ip::neighbour::{ADVERTISEMENT, Discovery, SOLICITATION};

use super::neighbour::Hardware;
use super::packet::{Body, Packet};
use super::slice::Payload;

/// Makes the packet of a message.
///
/// # Errors
/// `ENOMEM`.
pub fn packet(header: Header, message: Icmp, data: Payload) -> Result<Packet> {
    let mut sum = Checksum::new();
    if !header.destination.is_v4() {
        let length = LENGTH_ICMP + data.len();
        sum.add_pseudo(header.source, header.destination, header::ICMP_V6, length);
    }
    sum.add(&message.to_bytes(0));
    data.add_to(&mut sum);
    packet_with_sum(header, message, sum.finish(), data)
}

/// Makes the packet of a message whose checksum is known.
///
/// # Errors
/// `ENOMEM`.
pub fn packet_with_sum(header: Header, message: Icmp, sum: u16, data: Payload) -> Result<Packet> {
    let mut payload = Payload::copy(&message.to_bytes(sum))?;
    for slice in data.into_slices() {
        payload.push(slice)?;
    }
    Ok(Packet { header, body: Body::Bytes(payload), interface: 0, segment: 0 })
}

/// Types of multicast listener discovery (RFC 2710, 3.1).
pub const LISTENER_QUERY: u8 = 130;
/// See [`LISTENER_QUERY`].
pub const LISTENER_REPORT: u8 = 131;

/// Makes a message of neighbour discovery about `target` with the sender's hardware address.
fn discovery(header: Header, message: Icmp, target: Address, hardware: Hardware) -> Result<Packet> {
    let bytes = Discovery::bytes(message.kind, target, hardware);
    packet(header, message, Payload::copy(&bytes)?)
}

fn on_link(source: Address, destination: Address) -> Header {
    Header {
        source,
        destination,
        protocol: header::ICMP_V6,
        hop_limit: 255,
        traffic_class: 0,
        dont_fragment: true,
        fragment: None,
    }
}

/// Makes the question for a host's hardware address, to the group of such hosts (RFC 4291, 2.7.1).
///
/// # Errors
/// `ENOMEM`.
pub fn solicitation(source: Address, target: Address, hardware: Hardware) -> Result<Packet> {
    const GROUP: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    let group = Address::v6(GROUP | target.bits() & 0xff_ffff);
    let message = Icmp { kind: SOLICITATION, code: 0, rest: [0; 4] };
    discovery(on_link(source, group), message, target, hardware)
}

/// Makes the answer; to all hosts if the question has no sender.
///
/// # Errors
/// `ENOMEM`.
pub fn advertisement(target: Address, to: Address, hardware: Hardware) -> Result<Packet> {
    const ALL: u128 = 0xff02_0000_0000_0000_0000_0000_0000_0001;
    const SOLICITED: u8 = 0x40;
    const OVERRIDE: u8 = 0x20;
    let (to, flags) =
        if to.is_any() { (Address::v6(ALL), OVERRIDE) } else { (to, SOLICITED | OVERRIDE) };
    let message = Icmp { kind: ADVERTISEMENT, code: 0, rest: [flags, 0, 0, 0] };
    discovery(on_link(target, to), message, target, hardware)
}
