//! Addresses of both versions in one type.
//!
//! An IPv4 address is kept as the IPv4-mapped IPv6 address `::ffff:a.b.c.d` (RFC 4291, 2.5.5.2), so
//! one hash table finds sockets of both versions, and a dual-stack socket needs no second look. The
//! wildcard addresses of the two versions stay different: `::` and `::ffff:0.0.0.0`.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 or IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u128);

const MAPPED: u128 = 0xffff_0000_0000;

impl Address {
    /// `::`, the wildcard address of IPv6.
    pub const ANY_V6: Address = Address(0);
    /// `0.0.0.0`, the wildcard address of IPv4.
    pub const ANY_V4: Address = Address(MAPPED);
    /// `::1`.
    pub const LOOPBACK_V6: Address = Address(1);
    /// `127.0.0.1`.
    pub const LOOPBACK_V4: Address = Address(MAPPED | 0x7f00_0001);
    /// `255.255.255.255`.
    pub const BROADCAST: Address = Address(MAPPED | 0xffff_ffff);

    /// Makes an IPv4 address of its four bytes, the first in the highest bits.
    pub const fn v4(bits: u32) -> Address {
        Address(MAPPED | bits as u128)
    }

    /// Makes an IPv6 address, or an IPv4 address if the bits are those of a mapped one.
    pub const fn v6(bits: u128) -> Address {
        Address(bits)
    }

    /// Returns the wildcard address of the same version.
    pub const fn wildcard(self) -> Address {
        if self.is_v4() { Address::ANY_V4 } else { Address::ANY_V6 }
    }

    /// Whether it is an IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.0 >> 32 == 0xffff
    }

    /// Returns the four bytes of an IPv4 address.
    #[inline]
    pub const fn to_v4(self) -> Option<u32> {
        if self.is_v4() { Some(self.0 as u32) } else { None }
    }

    /// Returns all bits; an IPv4 address as a mapped one.
    #[inline]
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Returns the bytes as IPv6 has them in a header.
    pub const fn octets(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Whether it is the wildcard address of its version.
    #[inline]
    pub const fn is_any(self) -> bool {
        self.0 == 0 || self.0 == MAPPED
    }

    /// Whether it is 127.0.0.0/8 or `::1`.
    #[inline]
    pub const fn is_loopback(self) -> bool {
        match self.to_v4() {
            Some(bits) => bits >> 24 == 127,
            None => self.0 == 1,
        }
    }

    /// Whether it is 224.0.0.0/4 or ff00::/8.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        match self.to_v4() {
            Some(bits) => bits >> 28 == 0xe,
            None => self.0 >> 120 == 0xff,
        }
    }

    /// Whether it is 255.255.255.255.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.0 == Address::BROADCAST.0
    }

    /// Whether it is 169.254.0.0/16 or fe80::/10.
    pub const fn is_link_local(self) -> bool {
        match self.to_v4() {
            Some(bits) => bits >> 16 == 0xa9fe,
            None => self.0 >> 118 == 0x3fa,
        }
    }

    /// Whether it says nothing without an interface: an address of IPv6 of the link, or a group of
    /// the link or of the interface (RFC 4007, 6; Linux' `__ipv6_addr_needs_scope_id`).
    pub const fn needs_scope(self) -> bool {
        let group = self.0 >> 120 == 0xff && matches!(self.0 >> 112 & 15, 1 | 2);
        !self.is_v4() && (self.is_link_local() || group)
    }

    /// Whether a packet can have it as its source: it names one host.
    pub const fn is_unicast(self) -> bool {
        !self.is_any() && !self.is_multicast() && !self.is_broadcast()
    }

    /// Whether the first `length` bits (of 32 for IPv4, of 128 for IPv6) are those of `network`,
    /// and the versions are the same.
    pub const fn is_in(self, network: Address, length: u8) -> bool {
        if self.is_v4() != network.is_v4() {
            return false;
        }
        let kept = if self.is_v4() { 96 + length as u32 } else { length as u32 };
        let differing = self.0 ^ network.0;
        kept == 0 || (if kept >= 128 { differing == 0 } else { differing >> (128 - kept) == 0 })
    }

    /// Returns the last address of the network with a prefix of `length` bits: the directed
    /// broadcast of IPv4. `None` for IPv6 and for prefixes that have none (RFC 3021).
    pub const fn broadcast(self, length: u8) -> Option<Address> {
        match self.to_v4() {
            Some(bits) if length < 31 => Some(Address::v4(bits | (u32::MAX >> length))),
            _ => None,
        }
    }

    /// Returns the first address of the network with a prefix of `length` bits.
    pub const fn network(self, length: u8) -> Address {
        let kept = if self.is_v4() { 96 + length as u32 } else { length as u32 };
        match kept {
            0 => Address(0),
            1..=127 => Address(self.0 & !(u128::MAX >> kept)),
            _ => self,
        }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(address: Ipv4Addr) -> Self {
        Address::v4(address.to_bits())
    }
}

impl From<Ipv6Addr> for Address {
    fn from(address: Ipv6Addr) -> Self {
        Address(address.to_bits())
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address.to_v4() {
            Some(bits) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.0)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse::<IpAddr>().map(Address::from).unwrap_or(Address::ANY_V6)
    }

    #[test]
    fn kinds_of_addresses_are_told_apart() {
        assert!(address("127.3.2.1").is_loopback() && address("::1").is_loopback());
        assert!(!address("128.0.0.1").is_loopback() && !address("::2").is_loopback());
        assert!(address("239.1.1.1").is_multicast() && address("ff02::1").is_multicast());
        assert!(address("0.0.0.0").is_any() && address("::").is_any());
        assert_ne!(address("0.0.0.0"), address("::"));
        assert!(address("fe80::1").is_link_local() && address("169.254.7.7").is_link_local());
        assert!(!address("fec0::1").is_link_local());
        assert!(address("fe80::1").needs_scope() && address("ff12::1").needs_scope());
        assert!(address("ff01::1").needs_scope() && !address("ff05::1").needs_scope());
        assert!(!address("169.254.7.7").needs_scope() && !address("2001::1").needs_scope());
        assert!(address("::ffff:1.2.3.4").is_v4());
        assert_eq!(address("::ffff:1.2.3.4"), address("1.2.3.4"));
    }

    #[test]
    fn prefixes_are_compared_by_their_bits() {
        assert!(address("10.0.2.15").is_in(address("10.0.2.0"), 24));
        assert!(!address("10.0.3.15").is_in(address("10.0.2.0"), 24));
        assert!(address("10.0.3.15").is_in(address("0.0.0.0"), 0));
        assert!(!address("10.0.3.15").is_in(address("::"), 0));
        assert!(address("fe80::1").is_in(address("fe80::"), 64));
        assert!(address("1.2.3.4").is_in(address("1.2.3.4"), 32));
        assert!(!address("1.2.3.5").is_in(address("1.2.3.4"), 32));
        assert_eq!(address("10.0.2.15").broadcast(24), Some(address("10.0.2.255")));
        assert_eq!(address("10.0.2.15").broadcast(31), None);
        assert_eq!(address("10.0.2.15").network(24), address("10.0.2.0"));
        assert_eq!(address("10.0.2.15").network(0), address("0.0.0.0"));
        assert_eq!(address("fe80::9").network(64), address("fe80::"));
    }
}
