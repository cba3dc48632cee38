//! NETLINK_ROUTE (rtnetlink(7)): links, addresses, routes and neighbours.
//!
//! Each file has what an answer says of one of them, how it is written, and how the request for it
//! is read. The attributes are those that the C library and iproute2 use.

pub mod address;
pub mod link;
pub mod neighbour;
#[allow(clippy::module_inception)]
pub mod route;

use core::net::IpAddr;

use crate::Full;
use crate::message::Body;

pub use address::Address;
pub use link::Link;
pub use neighbour::Neighbour;
pub use route::Route;

/// Types of messages. They come in fours: new, deleted, get, set.
pub mod kind {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const NEWLINK: u16 = 16;
    pub const DELLINK: u16 = 17;
    pub const GETLINK: u16 = 18;
    pub const SETLINK: u16 = 19;
    pub const NEWADDR: u16 = 20;
    pub const DELADDR: u16 = 21;
    pub const GETADDR: u16 = 22;
    pub const NEWROUTE: u16 = 24;
    pub const DELROUTE: u16 = 25;
    pub const GETROUTE: u16 = 26;
    pub const NEWNEIGH: u16 = 28;
    pub const DELNEIGH: u16 = 29;
    pub const GETNEIGH: u16 = 30;
    /// The last type that Linux 6.1 has (`RTM_MAX`).
    pub const LAST: u16 = 123;
}

/// Groups that hear of changes (`RTNLGRP_*`).
pub mod group {
    #![allow(missing_docs, reason = "named as in rtnetlink(7)")]
    pub const LINK: u32 = 1;
    pub const NEIGHBOUR: u32 = 3;
    pub const ADDRESS_V4: u32 = 5;
    pub const ROUTE_V4: u32 = 7;
    pub const ADDRESS_V6: u32 = 9;
    pub const ROUTE_V6: u32 = 11;
}

/// The families of what a message is about.
pub mod family {
    #![allow(missing_docs, reason = "named as in socket(2)")]
    pub const UNSPEC: u8 = 0;
    pub const INET: u8 = 2;
    pub const INET6: u8 = 10;
    pub const PACKET: u8 = 17;
}

/// Returns the family of an address.
pub fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => family::INET,
        IpAddr::V6(_) => family::INET6,
    }
}

/// Adds an address.
fn put_address(body: &mut Body<'_>, kind: u16, address: IpAddr) -> Result<(), Full> {
    match address {
        IpAddr::V4(v4) => body.attribute(kind, &v4.octets()),
        IpAddr::V6(v6) => body.attribute(kind, &v6.octets()),
    }
}
