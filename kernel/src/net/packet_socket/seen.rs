//! A packet as it passes an interface.

use hayate_packet_ring::status;

use crate::net::config::Interface;
use crate::net::filter::View;
use crate::net::neighbour::Hardware;
use crate::net::slice::Payload;

/// The length of an Ethernet header, which the loopback interface shows too.
pub const LINK: usize = 14;
/// `AF_PACKET`.
pub const FAMILY: u16 = 17;
/// `struct sockaddr_ll` without its address.
pub const ADDRESS: usize = 12;
/// `ETH_P_ALL`, and the numbers for frames whose header has a length in place of a protocol.
pub const ALL: u16 = 3;
const NOVELL: u16 = 1;
const LLC: u16 = 4;
/// The least number of a protocol in a frame's header (`ETH_P_802_3_MIN`).
pub const LEAST: u16 = 0x600;

/// To whom a packet goes (`PACKET_*` of packet(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To this machine.
    Host = 0,
    /// To all on the link.
    Broadcast = 1,
    /// To a group.
    Multicast = 2,
    /// To another machine.
    Other = 3,
    /// From this machine.
    Outgoing = 4,
}

impl Kind {
    /// Tells the kind of a frame that arrived.
    pub fn of(interface: &Interface, link: &[u8; LINK]) -> Kind {
        match &link[..6] {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Kind::Broadcast,
            to if to[0] & 1 != 0 => Kind::Multicast,
            to if *to == interface.hardware() => Kind::Host,
            _ => Kind::Other,
        }
    }
}

/// Returns the protocol of a frame (`eth_type_trans`).
pub fn protocol(link: &[u8; LINK], body: &Payload) -> u16 {
    let own = u16::from_be_bytes([link[12], link[13]]);
    let mut first = [0; 2];
    match own {
        LEAST.. => own,
        _ if body.read(0, &mut first) == 2 && first == [0xff; 2] => NOVELL,
        _ => LLC,
    }
}

/// Returns the header of a frame.
pub fn link_header(to: Hardware, from: Hardware, protocol: u16) -> [u8; LINK] {
    let mut link = [0; LINK];
    link[..6].copy_from_slice(&to);
    link[6..12].copy_from_slice(&from);
    link[12..].copy_from_slice(&protocol.to_be_bytes());
    link
}

/// The state of the checksum in a packet that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// It is there, and nobody has checked it.
    Unchecked,
    /// The device has checked it, or there was nothing to check.
    Good,
    /// It is not there yet: the packet never was on a wire.
    Missing,
}

/// A packet as it passes an interface.
pub struct Seen<'a> {
    /// The interface.
    pub interface: &'a Interface,
    /// To whom it goes.
    pub kind: Kind,
    /// Its header.
    pub link: [u8; LINK],
    /// The rest of its bytes.
    pub body: Payload,
    /// The state of its checksum.
    pub sum: Sum,
    /// When it passed, in nanoseconds since 1970.
    pub time: u64,
}

impl Seen<'_> {
    /// Returns the number of the protocol above the link.
    pub fn protocol(&self) -> u16 {
        protocol(&self.link, &self.body)
    }

    /// Returns its `struct sockaddr_ll`, with the sender's address.
    pub fn address(&self) -> [u8; ADDRESS + 8] {
        let from = self.link[6..12].first_chunk().copied().unwrap_or_default();
        address(self.interface, self.protocol(), self.kind as u8, from)
    }

    /// Returns the bits of a status (`TP_STATUS_*`) that tell of the checksum (`packet_rcv`):
    /// whether the device has checked it, or left it out.
    pub fn checksum_status(&self) -> u32 {
        match self.sum {
            Sum::Missing => status::CHECKSUM_NOT_READY,
            Sum::Good if self.kind != Kind::Outgoing => status::CHECKSUM_VALID,
            _ => 0,
        }
    }

    /// Returns it as a filter sees it: with the link's header or without.
    pub fn view(&self, cooked: bool) -> View<'_> {
        View {
            head: &self.link,
            body: &self.body,
            data: if cooked { LINK } else { 0 },
            network: LINK,
            link: Some(0),
            protocol: self.protocol(),
            kind: self.kind as u8,
            interface: self.interface.index,
            hardware: self.interface.hardware_type(),
        }
    }
}

/// Makes a `struct sockaddr_ll`.
pub fn address(
    interface: &Interface,
    protocol: u16,
    kind: u8,
    hardware: Hardware,
) -> [u8; ADDRESS + 8] {
    let mut bytes = [0; ADDRESS + 8];
    bytes[..2].copy_from_slice(&FAMILY.to_ne_bytes());
    bytes[2..4].copy_from_slice(&protocol.to_be_bytes());
    bytes[4..8].copy_from_slice(&interface.index.to_ne_bytes());
    bytes[8..10].copy_from_slice(&interface.hardware_type().to_ne_bytes());
    bytes[10] = kind;
    bytes[11] = hardware.len() as u8;
    bytes[12..18].copy_from_slice(&hardware);
    bytes
}
