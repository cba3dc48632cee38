//! Addresses of links (RTM_NEWADDR).

use core::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::link::Name;
use super::{family_of, put_address};
use crate::Full;
use crate::message::{Header, Request, Writer};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_BROADCAST: u16 = 4;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;

/// Flags of addresses (`IFA_F_*`).
pub mod flag {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const PERMANENT: u32 = 0x80;
    pub const NODAD: u32 = 0x2;
    pub const TENTATIVE: u32 = 0x40;
    pub const NOPREFIXROUTE: u32 = 0x200;
}

/// A time without end.
pub const FOREVER: u32 = u32::MAX;

/// `struct ifaddrmsg`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in rtnetlink(7)")]
pub struct Fixed {
    pub family: u8,
    pub prefix: u8,
    pub flags: u8,
    pub scope: u8,
    pub index: u32,
}

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The link.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix in bits.
    pub prefix: u8,
    /// How far it is valid (`RT_SCOPE_*`).
    pub scope: u8,
    /// Its [`flag`]s.
    pub flags: u32,
    /// The broadcast address of its network.
    pub broadcast: Option<IpAddr>,
    /// The name that it is known by; of IPv4 addresses the link's.
    pub label: Option<Name>,
    /// For how many seconds it is preferred, and valid.
    pub preferred: u32,
    /// See [`preferred`](Self::preferred).
    pub valid: u32,
    /// When it was made and last changed, in hundredths of a second since the start.
    pub made: u32,
    /// See [`made`](Self::made).
    pub changed: u32,
}

impl Address {
    /// Writes a message about it.
    pub fn write(&self, to: &mut Writer<'_>, header: Header) -> Result<(), Full> {
        to.message(header, |body| {
            let fixed = Fixed {
                family: family_of(self.address),
                prefix: self.prefix,
                flags: self.flags as u8,
                scope: self.scope,
                index: self.index,
            };
            body.put(fixed.as_bytes())?;
            put_address(body, IFA_ADDRESS, self.address)?;
            // Without a peer at the other end both are the same; IPv6 has only the first.
            if self.address.is_ipv4() {
                put_address(body, IFA_LOCAL, self.address)?;
            }
            if let Some(broadcast) = self.broadcast {
                put_address(body, IFA_BROADCAST, broadcast)?;
            }
            if let Some(label) = &self.label {
                body.text(IFA_LABEL, label)?;
            }
            body.number(IFA_FLAGS, self.flags)?;
            let times = [self.preferred, self.valid, self.made, self.changed];
            body.attribute(IFA_CACHEINFO, times.as_bytes())
        })
    }
}

/// A request about addresses.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The fixed part.
    pub fixed: Fixed,
    /// The own address.
    pub local: Option<IpAddr>,
    /// The address of the other end; the own one if there is none.
    pub address: Option<IpAddr>,
    /// The broadcast address.
    pub broadcast: Option<IpAddr>,
    /// The name that it is to be known by.
    pub label: Option<Name>,
    /// All flags; those of the fixed part are the lowest eight.
    pub flags: u32,
    /// For how many seconds it is preferred, and valid.
    pub lifetime: Option<[u32; 2]>,
}

impl Asked {
    /// Reads a request. `None` if it is too short or a value is not what it should be.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, attributes) = request.parts::<Fixed>()?;
        let mut asked = Self { fixed, flags: u32::from(fixed.flags), ..Self::default() };
        for attribute in attributes {
            match attribute.kind {
                IFA_ADDRESS => asked.address = Some(attribute.address()?),
                IFA_LOCAL => asked.local = Some(attribute.address()?),
                IFA_BROADCAST => asked.broadcast = Some(attribute.address()?),
                IFA_LABEL => asked.label = Some(Name::try_from(attribute.text()).ok()?),
                IFA_FLAGS => asked.flags = attribute.number()?,
                IFA_CACHEINFO => {
                    let (times, _) = <[u32; 4]>::read_from_prefix(attribute.value).ok()?;
                    asked.lifetime = Some([times[0], times[1]]);
                }
                _ => {}
            }
        }
        Some(asked)
    }
}
