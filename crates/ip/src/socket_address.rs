//! Socket addresses as programs give and get them: `struct sockaddr_in` and `sockaddr_in6` (ip(7),
//! ipv6(7)).

use crate::Address;
use arrayvec::ArrayVec;

/// `AF_UNSPEC`.
pub const UNSPECIFIED: u16 = 0;
/// `AF_INET`.
pub const INET: u16 = 2;
/// `AF_INET6`.
pub const INET6: u16 = 10;
/// The shortest `struct sockaddr_in6`: without the scope (RFC 2133; `SIN6_LEN_RFC2133` in Linux).
const SHORT_V6: usize = 24;
const LENGTH_V4: usize = 16;
const LENGTH_V6: usize = 28;

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketAddress {
    /// The address.
    pub address: Address,
    /// The port, 0 for none.
    pub port: u16,
    /// The interface that a link-local address belongs to (`sin6_scope_id`), 0 for none.
    pub scope: u32,
}

/// Why bytes are not a socket address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too short for the family: `EINVAL`.
    Short,
    /// Another family: `EAFNOSUPPORT`.
    Family(u16),
}

impl SocketAddress {
    /// Makes a socket address without a scope.
    pub const fn new(address: Address, port: u16) -> Self {
        Self { address, port, scope: 0 }
    }

    /// Reads the family of a socket address; `None` if there is not even that.
    pub fn family(bytes: &[u8]) -> Option<u16> {
        bytes.first_chunk().map(|family| u16::from_ne_bytes(*family))
    }

    /// Reads a `struct sockaddr_in` or, if `v6`, a `struct sockaddr_in6`.
    ///
    /// # Errors
    /// What is wrong with it. A too short address of another family is too short first, as in
    /// `inet_bind` and `inet6_bind` of Linux 6.1.
    pub fn parse(bytes: &[u8], v6: bool) -> Result<Self, Refused> {
        if bytes.len() < if v6 { SHORT_V6 } else { LENGTH_V4 } {
            return Err(Refused::Short);
        }
        let family = Self::family(bytes).ok_or(Refused::Short)?;
        if family != if v6 { INET6 } else { INET } {
            return Err(Refused::Family(family));
        }
        let port = bytes[2..].first_chunk().map_or(0, |port| u16::from_be_bytes(*port));
        if !v6 {
            let bits = bytes[4..].first_chunk().map_or(0, |bits| u32::from_be_bytes(*bits));
            return Ok(Self::new(Address::v4(bits), port));
        }
        let bits = bytes[8..].first_chunk().map_or(0, |bits| u128::from_be_bytes(*bits));
        let scope = bytes[SHORT_V6..].first_chunk().map_or(0, |scope| u32::from_ne_bytes(*scope));
        Ok(Self { address: Address::v6(bits), port, scope })
    }

    /// Writes it for a socket of one of the two families; an IPv4 address for an IPv6 socket as a
    /// mapped one.
    pub fn to_bytes(self, v6: bool) -> ArrayVec<u8, LENGTH_V6> {
        let mut bytes = [0; LENGTH_V6];
        let family = if v6 { INET6 } else { INET };
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        let length = if v6 {
            bytes[8..24].copy_from_slice(&self.address.octets());
            bytes[24..].copy_from_slice(&self.scope.to_ne_bytes());
            LENGTH_V6
        } else {
            bytes[4..8].copy_from_slice(&(self.address.bits() as u32).to_be_bytes());
            LENGTH_V4
        };
        let mut bytes = ArrayVec::from(bytes);
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            v6 in any::<bool>(),
        ) {
            let _ = SocketAddress::parse(&bytes, v6);
        }

        #[test]
        fn an_address_comes_back_as_it_was(bits in any::<u128>(), port in any::<u16>(),
                                           scope in any::<u32>()) {
            let address = SocketAddress { address: Address::v6(bits), port, scope };
            prop_assert_eq!(SocketAddress::parse(&address.to_bytes(true), true), Ok(address));
            let v4 = SocketAddress::new(Address::v4(bits as u32), port);
            prop_assert_eq!(SocketAddress::parse(&v4.to_bytes(false), false), Ok(v4));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let v4 = SocketAddress::new(Address::LOOPBACK_V4, 80).to_bytes(false);
        assert_eq!(SocketAddress::parse(&v4[..15], false), Err(Refused::Short));
        assert_eq!(SocketAddress::parse(&v4, true), Err(Refused::Short));
        let v6 = SocketAddress::new(Address::LOOPBACK_V6, 80).to_bytes(true);
        assert_eq!(SocketAddress::parse(&v6, false), Err(Refused::Family(INET6)));
        assert!(SocketAddress::parse(&v6[..24], true).is_ok());
    }
}
