//! Routes (RTM_NEWROUTE).

use core::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{family_of, put_address};
use crate::Full;
use crate::message::{Header, Request, Writer};

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTA_PREF: u16 = 20;
const RTA_ENCAP: u16 = 22;
const RTA_UID: u16 = 25;

/// Tables of routes (`RT_TABLE_*`).
pub mod table {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const UNSPEC: u32 = 0;
    pub const MAIN: u32 = 254;
    pub const LOCAL: u32 = 255;
    /// In the fixed part, of a table whose number does not fit there.
    pub const COMPAT: u8 = 252;
}

/// Types of routes (`RTN_*`).
pub mod kind {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const UNSPEC: u8 = 0;
    pub const UNICAST: u8 = 1;
    pub const LOCAL: u8 = 2;
    pub const BROADCAST: u8 = 3;
    pub const ANYCAST: u8 = 4;
    pub const MULTICAST: u8 = 5;
    pub const UNREACHABLE: u8 = 7;
}

/// The origin of a route (`RTPROT_*`).
pub mod protocol {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const KERNEL: u8 = 2;
    pub const BOOT: u8 = 3;
    pub const STATIC: u8 = 4;
    pub const RA: u8 = 9;
    pub const DHCP: u8 = 16;
}

/// How far a destination is (`RT_SCOPE_*`).
pub mod scope {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const UNIVERSE: u8 = 0;
    pub const LINK: u8 = 253;
    pub const HOST: u8 = 254;
    pub const NOWHERE: u8 = 255;
}

/// Of a request for the way to a destination: the answer is the route that it was found by
/// (`RTM_F_FIB_MATCH`).
pub const FIB_MATCH: u32 = 0x2000;
/// Of such an answer: it is the way to one destination (`RTM_F_CLONED`).
pub const CLONED: u32 = 0x200;

/// `struct rtmsg`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in rtnetlink(7)")]
pub struct Fixed {
    pub family: u8,
    pub destination_prefix: u8,
    pub source_prefix: u8,
    pub service: u8,
    pub table: u8,
    pub protocol: u8,
    pub scope: u8,
    pub kind: u8,
    pub flags: u32,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination network; its address is written only if it has a prefix.
    pub destination: IpAddr,
    /// The length of its prefix in bits.
    pub prefix: u8,
    /// The next host, if it is not the destination.
    pub gateway: Option<IpAddr>,
    /// The index of the link that packets leave by; 0 for none.
    pub interface: u32,
    /// Its [`table`].
    pub table: u32,
    /// Its origin ([`protocol`]).
    pub protocol: u8,
    /// How far the destination is ([`scope`]).
    pub scope: u8,
    /// Its [`kind`].
    pub kind: u8,
    /// Flags (`RTM_F_*`, `RTNH_F_*`).
    pub flags: u32,
    /// The source address for packets without one.
    pub source: Option<IpAddr>,
    /// Of several routes to a destination, that with the least metric is taken.
    pub metric: u32,
    /// The user that the way was looked for (answers to a request for one destination).
    pub user: Option<u32>,
}

impl Route {
    /// Writes a message about it.
    pub fn write(&self, to: &mut Writer<'_>, header: Header) -> Result<(), Full> {
        to.message(header, |body| {
            let v6 = self.destination.is_ipv6();
            let fixed = Fixed {
                family: family_of(self.destination),
                destination_prefix: self.prefix,
                source_prefix: 0,
                service: 0,
                table: u8::try_from(self.table).unwrap_or(table::COMPAT),
                protocol: self.protocol,
                scope: self.scope,
                kind: self.kind,
                flags: self.flags,
            };
            body.put(fixed.as_bytes())?;
            body.number(RTA_TABLE, self.table)?;
            if self.prefix != 0 {
                put_address(body, RTA_DST, self.destination)?;
            }
            if v6 || self.metric != 0 {
                body.number(RTA_PRIORITY, self.metric)?;
            }
            if let Some(source) = self.source {
                put_address(body, RTA_PREFSRC, source)?;
            }
            if let Some(gateway) = self.gateway {
                put_address(body, RTA_GATEWAY, gateway)?;
            }
            if self.interface != 0 {
                body.number(RTA_OIF, self.interface)?;
            }
            if let Some(user) = self.user {
                body.number(RTA_UID, user)?;
            }
            if v6 || self.user.is_some() {
                body.attribute(RTA_CACHEINFO, &[0; 32])?;
            }
            if v6 { body.attribute(RTA_PREF, &[0]) } else { Ok(()) }
        })
    }
}

/// A request about routes.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The fixed part.
    pub fixed: Fixed,
    /// The destination.
    pub destination: Option<IpAddr>,
    /// The source of the packets that a way is looked for.
    pub source: Option<IpAddr>,
    /// The next host.
    pub gateway: Option<IpAddr>,
    /// The source address for packets without one.
    pub preferred_source: Option<IpAddr>,
    /// The link that packets leave by.
    pub interface: Option<u32>,
    /// The link that packets come in by.
    pub from_interface: Option<u32>,
    /// The metric.
    pub metric: Option<u32>,
    /// The table; 0 for any.
    pub table: u32,
    /// It has an attribute that is none of these: several next hosts, tunnels and others.
    pub has_more: bool,
}

impl Asked {
    /// Reads a request. `None` if it is too short or a value is not what it should be.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, attributes) = request.parts::<Fixed>()?;
        let mut asked = Self { fixed, table: u32::from(fixed.table), ..Self::default() };
        for attribute in attributes {
            match attribute.kind {
                RTA_DST => asked.destination = Some(attribute.address()?),
                RTA_SRC => asked.source = Some(attribute.address()?),
                RTA_GATEWAY => asked.gateway = Some(attribute.address()?),
                RTA_PREFSRC => asked.preferred_source = Some(attribute.address()?),
                RTA_OIF => asked.interface = Some(attribute.number()?),
                RTA_IIF => asked.from_interface = Some(attribute.number()?),
                RTA_PRIORITY => asked.metric = Some(attribute.number()?),
                RTA_TABLE => asked.table = attribute.number()?,
                RTA_MULTIPATH | RTA_ENCAP | RTA_METRICS | RTA_MARK => asked.has_more = true,
                _ => {}
            }
        }
        Some(asked)
    }
}
