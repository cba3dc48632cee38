//! Attributes: a length, a type, a value; each begins at a multiple of four bytes
//! (`struct nlattr`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::align;

/// Bits of the type that say how the value is to be read (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const READING: u16 = 0xc000;
/// `NLA_HDRLEN`.
const HEAD: usize = 4;

/// The attributes of a request, in their order. Ends at the first that is not whole.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [u8]);

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Those in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that no attribute was taken from yet; at the end, those that are none.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let (head, _) = self.0.split_first_chunk::<HEAD>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = self.0.get(HEAD..length)?;
        self.0 = self.0.get(align(length)..).unwrap_or_default();
        Some(Attribute { kind: u16::from_ne_bytes([head[2], head[3]]) & !READING, value })
    }
}

impl<'a> Attribute<'a> {
    /// The value as a number. `None` if it is too short.
    pub fn number(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.value.first_chunk()?))
    }

    /// The value as one byte.
    pub fn byte(&self) -> Option<u8> {
        self.value.first().copied()
    }

    /// The value as a text, without its terminating zero.
    pub fn text(&self) -> &'a [u8] {
        self.value.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// The value as the address of an Internet protocol, by its length.
    pub fn address(&self) -> Option<IpAddr> {
        if let Ok(v4) = <[u8; 4]>::try_from(self.value) {
            return Some(Ipv4Addr::from(v4).into());
        }
        <[u8; 16]>::try_from(self.value).ok().map(|v6| Ipv6Addr::from(v6).into())
    }

    /// The value as a hardware address of six bytes.
    pub fn hardware(&self) -> Option<[u8; 6]> {
        self.value.try_into().ok()
    }
}
