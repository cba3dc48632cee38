//! Neighbours: the hardware addresses of hosts on a link (RTM_NEWNEIGH).

use core::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{family_of, put_address};
use crate::Full;
use crate::message::{Header, Request, Writer};

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_CACHEINFO: u16 = 3;
const NDA_PROBES: u16 = 4;
const NDA_IFINDEX: u16 = 8;
const NDA_MASTER: u16 = 9;

/// States (`NUD_*`).
pub mod state {
    #![allow(missing_docs, reason = "named as in arp(7)")]
    pub const INCOMPLETE: u16 = 0x01;
    pub const REACHABLE: u16 = 0x02;
    pub const STALE: u16 = 0x04;
    pub const DELAY: u16 = 0x08;
    pub const PROBE: u16 = 0x10;
    pub const FAILED: u16 = 0x20;
    pub const NOARP: u16 = 0x40;
    pub const PERMANENT: u16 = 0x80;
}

/// `struct ndmsg`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in rtnetlink(7)")]
pub struct Fixed {
    pub family: u8,
    pub padding: u8,
    pub padding_2: u16,
    pub index: i32,
    pub state: u16,
    pub flags: u8,
    pub kind: u8,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The link that it is on.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address, if that is known.
    pub hardware: Option<[u8; 6]>,
    /// How far it is known ([`state`]).
    pub state: u16,
    /// Flags (`NTF_*`).
    pub flags: u8,
    /// The type of the route to it.
    pub kind: u8,
    /// How many times it was asked without an answer.
    pub probes: u32,
    /// How long ago it was confirmed, used and changed, in hundredths of a second.
    pub ages: [u32; 3],
}

impl Neighbour {
    /// Writes a message about it.
    pub fn write(&self, to: &mut Writer<'_>, header: Header) -> Result<(), Full> {
        to.message(header, |body| {
            let fixed = Fixed {
                family: family_of(self.address),
                index: self.index as i32,
                state: self.state,
                flags: self.flags,
                kind: self.kind,
                ..Fixed::default()
            };
            body.put(fixed.as_bytes())?;
            put_address(body, NDA_DST, self.address)?;
            if let Some(hardware) = self.hardware {
                body.attribute(NDA_LLADDR, &hardware)?;
            }
            body.number(NDA_PROBES, self.probes)?;
            let [confirmed, used, updated] = self.ages;
            body.attribute(NDA_CACHEINFO, [confirmed, used, updated, 0].as_bytes())
        })
    }
}

/// A request about neighbours.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The fixed part.
    pub fixed: Fixed,
    /// Its address.
    pub address: Option<IpAddr>,
    /// Its hardware address.
    pub hardware: Option<[u8; 6]>,
    /// Only neighbours on this link are wanted; 0 for all.
    pub interface: u32,
    /// Only neighbours on links of a master are wanted, of which there are none.
    pub is_narrow: bool,
}

impl Asked {
    /// Reads a request. `None` if it is too short or a value is not what it should be.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, attributes) = request.parts::<Fixed>()?;
        let mut asked = Self { fixed, ..Self::default() };
        for attribute in attributes {
            match attribute.kind {
                NDA_DST => asked.address = Some(attribute.address()?),
                NDA_LLADDR => asked.hardware = Some(attribute.hardware()?),
                NDA_IFINDEX => asked.interface = attribute.number()?,
                NDA_MASTER => asked.is_narrow |= attribute.number()? != 0,
                _ => {}
            }
        }
        Some(asked)
    }
}
