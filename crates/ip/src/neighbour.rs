//! The messages by which the hosts of a link tell their hardware addresses: ARP (RFC 826) and
//! neighbour discovery (RFC 4861, 4.3 and 4.4), whose header is that of ICMPv6.

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use crate::Address;

/// A hardware address.
pub type Hardware = [u8; 6];

/// The length of an ARP message about IPv4 on Ethernet.
pub const ARP_LENGTH: usize = 28;

/// A message of ARP about IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// It is a question and no answer.
    pub asks: bool,
    /// The sender's addresses.
    pub source: (Hardware, Address),
    /// Those of the host that is asked for, or that asked.
    pub target: (Hardware, Address),
}

impl Arp {
    /// Reads a message. `None`: it is about other networks, or neither question nor answer.
    pub fn parse(bytes: &[u8]) -> Option<Arp> {
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_hardware_addr,
            target_protocol_addr,
        } = ArpRepr::parse(&ArpPacket::new_checked(bytes).ok()?).ok()?
        else {
            return None;
        };
        let asks = match operation {
            ArpOperation::Request => true,
            ArpOperation::Reply => false,
            ArpOperation::Unknown(_) => return None,
        };
        let source = (source_hardware_addr.0, source_protocol_addr.into());
        Some(Arp { asks, source, target: (target_hardware_addr.0, target_protocol_addr.into()) })
    }

    /// Returns its bytes; `None` if an address is none of IPv4.
    pub fn to_bytes(&self) -> Option<[u8; ARP_LENGTH]> {
        let operation = if self.asks { ArpOperation::Request } else { ArpOperation::Reply };
        let message = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.source.0),
            source_protocol_addr: self.source.1.to_v4()?.into(),
            target_hardware_addr: EthernetAddress(self.target.0),
            target_protocol_addr: self.target.1.to_v4()?.into(),
        };
        let mut bytes = [0; ARP_LENGTH];
        message.emit(&mut ArpPacket::new_unchecked(&mut bytes[..]));
        Some(bytes)
    }
}

/// ICMPv6's type of a question (RFC 4861, 4.3).
pub const SOLICITATION: u8 = 135;
/// That of an answer (RFC 4861, 4.4).
pub const ADVERTISEMENT: u8 = 136;
/// The length of what stands behind the header of ICMPv6, as this machine sends it.
pub const DISCOVERY_LENGTH: usize = 24;

/// A message of neighbour discovery, without the header of ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The host that it is about.
    pub target: Address,
    /// The sender's hardware address in a question, the target's in an answer.
    pub hardware: Option<Hardware>,
}

impl Discovery {
    /// Reads what stands behind the header of a message of this type. `None`: it is none of
    /// neighbour discovery, it is cut, or its target is no host (RFC 4861, 7.1).
    pub fn parse(kind: u8, bytes: &[u8]) -> Option<Discovery> {
        let wanted = option_of(kind)?;
        let (target, mut options) = bytes.split_first_chunk::<16>()?;
        let target = Address::v6(u128::from_be_bytes(*target));
        if !target.is_unicast() {
            return None;
        }
        let mut hardware = None;
        while let [kind, length, rest @ ..] = options {
            let size = usize::from(*length) * 8;
            // An option without length makes the whole message void (RFC 4861, 4.6).
            if size == 0 || size > options.len() {
                return None;
            }
            if *kind == wanted && hardware.is_none() {
                hardware = rest.first_chunk().copied();
            }
            options = &options[size..];
        }
        Some(Discovery { target, hardware })
    }

    /// Returns the bytes behind the header of a message of this type, with the hardware address.
    pub fn bytes(kind: u8, target: Address, hardware: Hardware) -> [u8; DISCOVERY_LENGTH] {
        let mut bytes = [0; DISCOVERY_LENGTH];
        bytes[..16].copy_from_slice(&target.octets());
        bytes[16] = option_of(kind).unwrap_or(0);
        bytes[17] = 1;
        bytes[18..].copy_from_slice(&hardware);
        bytes
    }
}

/// The option with the hardware address that counts: the source's in a question, the target's in an
/// answer.
fn option_of(kind: u8) -> Option<u8> {
    match kind {
        SOLICITATION => Some(1),
        ADVERTISEMENT => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (one, two) = ((*b"\x02\0\0\0\0\x01", Address::v4(1)), ([0; 6], Address::v4(2)));
        let question = Arp { asks: true, source: one, target: two };
        assert_eq!(Arp::parse(&question.to_bytes().unwrap()), Some(question));
        let mut other = question.to_bytes().unwrap();
        other[7] = 3;
        assert_eq!(Arp::parse(&other), None);
        assert_eq!(Arp::parse(&other[..27]), None);
        let target = Address::v6(0xfe80 << 112 | 7);
        for kind in [SOLICITATION, ADVERTISEMENT] {
            let bytes = Discovery::bytes(kind, target, one.0);
            let read = Discovery { target, hardware: Some(one.0) };
            assert_eq!(Discovery::parse(kind, &bytes), Some(read));
            // The other's option says nothing.
            let other = ADVERTISEMENT - (kind - SOLICITATION);
            assert_eq!(Discovery::parse(other, &bytes), Some(Discovery { hardware: None, ..read }));
        }
        assert_eq!(Discovery::parse(134, &[0; 24]), None);
    }

    #[test]
    fn messages_that_are_void() {
        let target = Address::v6(0xfe80 << 112 | 7);
        let good = Discovery::bytes(ADVERTISEMENT, target, [2; 6]);
        let parse = |bytes: &[u8]| Discovery::parse(ADVERTISEMENT, bytes);
        assert!(parse(&good[..16]).is_some());
        assert_eq!(parse(&good[..15]), None);
        assert_eq!(parse(&good[..20]), None);
        let mut without_length = good;
        without_length[17] = 0;
        assert_eq!(parse(&without_length), None);
        let mut of_a_group = good;
        of_a_group[0] = 0xff;
        assert_eq!(parse(&of_a_group), None);
    }
}
