//! The options of a socket at the levels of IPv4 and IPv6 (ip(7), ipv6(7)).
//!
//! All are one small value that a sender or a receiver copies under a lock which is a leaf. Numbers
//! may be given as one byte or as an `int` at the level of IPv4, and come back in the size that the
//! program asks for (`do_ip_setsockopt`, `do_ip_getsockopt`, net/ipv4/ip_sockglue.c of Linux 6.1).

use hayate_abi::{Errno, Result};
use hayate_ip::Address;
use hayate_ip::path_mtu::LEAST_V6;
use hayate_netlink::diag::option as told;

use super::config::Network;
use super::settings::Settings;
use crate::credentials::Capability;
use crate::vfs::caller;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

/// `SOL_IP`.
pub const SOL_IP: i32 = 0;
/// `SOL_IPV6`.
pub const SOL_IPV6: i32 = 41;

/// Options of the level `SOL_IP`.
pub mod ip {
    #![allow(missing_docs, reason = "named as in ip(7)")]
    pub const TOS: i32 = 1;
    pub const TTL: i32 = 2;
    pub const HDRINCL: i32 = 3;
    pub const PKTINFO: i32 = 8;
    pub const MTU_DISCOVER: i32 = 10;
    pub const MTU: i32 = 14;
    pub const RECVERR: i32 = 11;
    pub const RECVTTL: i32 = 12;
    pub const RECVTOS: i32 = 13;
    pub const FREEBIND: i32 = 15;
    pub const TRANSPARENT: i32 = 19;
    pub const BIND_ADDRESS_NO_PORT: i32 = 24;
    pub const MULTICAST_IF: i32 = 32;
    pub const MULTICAST_TTL: i32 = 33;
    pub const MULTICAST_LOOP: i32 = 34;
    pub const ADD_MEMBERSHIP: i32 = 35;
    pub const DROP_MEMBERSHIP: i32 = 36;
    pub const UNBLOCK_SOURCE: i32 = 37;
    pub const BLOCK_SOURCE: i32 = 38;
    pub const ADD_SOURCE_MEMBERSHIP: i32 = 39;
    pub const DROP_SOURCE_MEMBERSHIP: i32 = 40;
    pub const MSFILTER: i32 = 41;
    pub const MULTICAST_ALL: i32 = 49;
}

/// Options of the level `SOL_IPV6`.
pub mod ipv6 {
    #![allow(missing_docs, reason = "named as in ipv6(7)")]
    pub const UNICAST_HOPS: i32 = 16;
    pub const MULTICAST_IF: i32 = 17;
    pub const MULTICAST_HOPS: i32 = 18;
    pub const MULTICAST_LOOP: i32 = 19;
    pub const ADD_MEMBERSHIP: i32 = 20;
    pub const DROP_MEMBERSHIP: i32 = 21;
    pub const MTU_DISCOVER: i32 = 23;
    pub const MTU: i32 = 24;
    pub const RECVERR: i32 = 25;
    pub const V6ONLY: i32 = 26;
    pub const RECVPKTINFO: i32 = 49;
    pub const PKTINFO: i32 = 50;
    pub const RECVHOPLIMIT: i32 = 51;
    pub const HOPLIMIT: i32 = 52;
    pub const RECVPATHMTU: i32 = 60;
    pub const PATHMTU: i32 = 61;
    pub const DONTFRAG: i32 = 62;
    pub const RECVTCLASS: i32 = 66;
    pub const TCLASS: i32 = 67;
    pub const TRANSPARENT: i32 = 75;
    pub const FREEBIND: i32 = 78;
}

bitflags::bitflags! {
    /// Options that are switched on and off.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Wishes: u16 {
        /// IP_PKTINFO.
        const PACKET_INFO = 1;
        /// IP_RECVTTL.
        const TTL = 2;
        /// IP_RECVTOS.
        const TOS = 4;
        /// IP_RECVERR.
        const ERRORS = 8;
        /// IP_FREEBIND.
        const FREE_BIND = 16;
        /// IP_BIND_ADDRESS_NO_PORT.
        const BIND_NO_PORT = 32;
        /// IP_MULTICAST_LOOP.
        const MULTICAST_LOOP = 64;
        /// IP_MULTICAST_ALL.
        const MULTICAST_ALL = 128;
        /// IPV6_RECVPKTINFO.
        const PACKET_INFO_V6 = 256;
        /// IPV6_RECVHOPLIMIT.
        const HOP_LIMIT_V6 = 512;
        /// IPV6_RECVTCLASS.
        const TRAFFIC_CLASS_V6 = 1024;
        /// IPV6_RECVERR.
        const ERRORS_V6 = 2048;
        /// IPV6_V6ONLY.
        const ONLY_V6 = 4096;
        /// IP_TRANSPARENT and IPV6_TRANSPARENT, which are one.
        const TRANSPARENT = 8192;
        /// IPV6_RECVPATHMTU.
        const PATH_MTU_V6 = 16384;
        /// IPV6_DONTFRAG.
        const DONT_FRAGMENT_V6 = 32768;
    }
}

/// How a socket finds out what a path takes (ip(7), IP_MTU_DISCOVER).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Discovery {
    /// It does not: packets are cut to what is known, and routers may cut them.
    Dont,
    /// Packets that are longer than what is known are cut, others no router may cut.
    Want,
    /// No packet is cut.
    Do,
    /// No packet is cut, and what is known of the path does not bound it.
    Probe,
    /// No packet is cut here but routers may cut it; routers are not believed.
    Interface,
    /// Packets are cut to what the interface takes; routers are not believed.
    Omit,
}

impl Discovery {
    const ALL: [Discovery; 6] = {
        use Discovery::{Do, Dont, Interface, Omit, Probe, Want};
        [Dont, Want, Do, Probe, Interface, Omit]
    };

    /// Whether packets are no longer than what is known of the path (`ip_sk_use_pmtu`).
    #[inline]
    pub fn heeds_path(self) -> bool {
        self < Discovery::Probe
    }

    /// Whether it believes routers (`ip_sk_accept_pmtu`).
    pub fn believes(self) -> bool {
        self < Discovery::Interface
    }

    /// Whether packets are cut here (`ip_sk_ignore_df`).
    #[inline]
    pub fn cuts(self) -> bool {
        matches!(self, Discovery::Dont | Discovery::Want | Discovery::Omit)
    }
}

/// The values of a socket.
#[derive(Clone, Copy, Debug)]
pub struct IpOptions {
    /// Those that are on.
    pub wishes: Wishes,
    /// IP_TTL; 0 for the system's (`net.ipv4.ip_default_ttl`).
    ttl: u8,
    /// IP_TOS.
    pub tos: u8,
    /// IPV6_UNICAST_HOPS.
    pub hop_limit: u8,
    /// IPV6_TCLASS.
    pub traffic_class: u8,
    /// IP_MULTICAST_TTL and IPV6_MULTICAST_HOPS.
    pub multicast_ttl: u8,
    /// IP_MULTICAST_IF and IPV6_MULTICAST_IF: the index, 0 for none.
    pub multicast_interface: u32,
    /// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER.
    discover: [Discovery; 2],
    /// IPV6_MTU: the longest fragment of IPv6 in bytes; 0 for as long as the path takes.
    pub most_v6: u32,
}

/// The default hop limit of IPv6.
const HOP_LIMIT: u8 = 64;

impl Default for IpOptions {
    fn default() -> Self {
        Self {
            wishes: Wishes::MULTICAST_LOOP | Wishes::MULTICAST_ALL,
            ttl: 0,
            tos: 0,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            multicast_ttl: 1,
            multicast_interface: 0,
            discover: [Discovery::Want; 2],
            most_v6: 0,
        }
    }
}

fn flag_of(level: i32, option: i32) -> Option<Wishes> {
    Some(match (level, option) {
        (SOL_IP, ip::PKTINFO) => Wishes::PACKET_INFO,
        (SOL_IP, ip::RECVTTL) => Wishes::TTL,
        (SOL_IP, ip::RECVTOS) => Wishes::TOS,
        (SOL_IP, ip::RECVERR) => Wishes::ERRORS,
        (SOL_IP, ip::FREEBIND) | (SOL_IPV6, ipv6::FREEBIND) => Wishes::FREE_BIND,
        (SOL_IP, ip::TRANSPARENT) | (SOL_IPV6, ipv6::TRANSPARENT) => Wishes::TRANSPARENT,
        (SOL_IP, ip::BIND_ADDRESS_NO_PORT) => Wishes::BIND_NO_PORT,
        (SOL_IP, ip::MULTICAST_LOOP) | (SOL_IPV6, ipv6::MULTICAST_LOOP) => Wishes::MULTICAST_LOOP,
        (SOL_IP, ip::MULTICAST_ALL) => Wishes::MULTICAST_ALL,
        (SOL_IPV6, ipv6::RECVPKTINFO) => Wishes::PACKET_INFO_V6,
        (SOL_IPV6, ipv6::RECVHOPLIMIT) => Wishes::HOP_LIMIT_V6,
        (SOL_IPV6, ipv6::RECVTCLASS) => Wishes::TRAFFIC_CLASS_V6,
        (SOL_IPV6, ipv6::RECVERR) => Wishes::ERRORS_V6,
        (SOL_IPV6, ipv6::V6ONLY) => Wishes::ONLY_V6,
        (SOL_IPV6, ipv6::RECVPATHMTU) => Wishes::PATH_MTU_V6,
        (SOL_IPV6, ipv6::DONTFRAG) => Wishes::DONT_FRAGMENT_V6,
        _ => return None,
    })
}

/// Reads a number of the level of IPv4: an `int` or a byte.
fn number(level: i32, value: OptionValue) -> Result<i32> {
    if level == SOL_IP && (1..4).contains(&value.length) {
        let mut byte = [0];
        return Ok(i32::from(value.bytes(&mut byte)?.first().copied().unwrap_or(0)));
    }
    value.number()
}

/// A number within bounds, or -1 for the default.
fn within(number: i32, least: i32, default: u8) -> Result<u8> {
    match number {
        -1 => Ok(default),
        _ if (least..=255).contains(&number) => Ok(number as u8),
        _ => Err(Errno::EINVAL),
    }
}

impl Wishes {
    /// Whether a socket may be bound to an address that this machine has not
    /// (`inet_can_nonlocal_bind`).
    pub fn may_bind_foreign(self) -> bool {
        self.intersects(Wishes::FREE_BIND | Wishes::TRANSPARENT)
    }

    /// Checks the source of packets of IPv4: only a transparent socket sends from an address that
    /// this machine has not (`FLOWI_FLAG_ANYSRC`; Linux checks none of IPv6).
    ///
    /// # Errors
    /// `ENETUNREACH`.
    pub fn check_source(self, network: &Network, source: Address) -> Result<()> {
        if !self.may_bind_foreign() || self.contains(Wishes::TRANSPARENT) {
            return Ok(());
        }
        if !source.is_v4() || !source.is_unicast() {
            return Ok(());
        }
        if network.current().is_local(source) { Ok(()) } else { Err(Errno::ENETUNREACH) }
    }
}

impl IpOptions {
    fn ttl(&self, settings: &Settings) -> u8 {
        if self.ttl == 0 { settings.default_ttl() } else { self.ttl }
    }

    /// Returns TTL and TOS (hop limit and traffic class) for packets to an address of this version.
    pub fn marks(&self, settings: &Settings, v4: bool, multicast: bool) -> (u8, u8) {
        let (ttl, tos) = match v4 {
            true => (self.ttl(settings), self.tos),
            false => (self.hop_limit, self.traffic_class),
        };
        (if multicast { self.multicast_ttl } else { ttl }, tos)
    }

    /// Returns how packets to an address of this version find out what their path takes.
    #[inline]
    pub fn discovery(&self, v4: bool) -> Discovery {
        self.discover[usize::from(!v4)]
    }

    /// Returns the options that sock_diag(7) tells.
    pub fn diagnosed(&self) -> u16 {
        [
            (Wishes::ERRORS, told::RECVERR),
            (Wishes::FREE_BIND, told::FREEBIND),
            (Wishes::MULTICAST_LOOP, told::MC_LOOP),
            (Wishes::TRANSPARENT, told::TRANSPARENT),
            (Wishes::MULTICAST_ALL, told::MC_ALL),
            (Wishes::BIND_NO_PORT, told::BIND_ADDRESS_NO_PORT),
        ]
        .into_iter()
        .filter(|(wish, _)| self.wishes.contains(*wish))
        .fold(0, |told, (_, bit)| told | bit)
    }

    /// Sets an option of a socket of `network`. Returns `false` if it is none of these.
    ///
    /// # Errors
    /// `EINVAL`, `ENODEV`.
    pub fn set(&mut self, network: &Network, level: i32, option: i32, value: i32) -> Result<bool> {
        if let Some(flag) = flag_of(level, option) {
            self.wishes.set(flag, value != 0);
            return Ok(true);
        }
        match (level, option) {
            (SOL_IP, ip::TOS) => self.tos = value as u8,
            (SOL_IP, ip::TTL) => self.ttl = within(value, 1, 0)?,
            (SOL_IP, ip::MULTICAST_TTL) | (SOL_IPV6, ipv6::MULTICAST_HOPS) => {
                self.multicast_ttl = within(value, 0, 1)?;
            }
            (SOL_IPV6, ipv6::UNICAST_HOPS) => self.hop_limit = within(value, 0, HOP_LIMIT)?,
            (SOL_IPV6, ipv6::TCLASS) => self.traffic_class = within(value, 0, 0)?,
            (SOL_IP, ip::MTU_DISCOVER) | (SOL_IPV6, ipv6::MTU_DISCOVER) => {
                let way = usize::try_from(value).ok().and_then(|at| Discovery::ALL.get(at));
                let way = *way.ok_or(Errno::EINVAL)?;
                self.discover[usize::from(level == SOL_IPV6)] = way;
            }
            (SOL_IPV6, ipv6::MTU) => {
                self.most_v6 = match u32::try_from(value).map_err(|_| Errno::EINVAL)? {
                    1..LEAST_V6 => return Err(Errno::EINVAL),
                    most => most,
                };
            }
            (SOL_IPV6, ipv6::MULTICAST_IF) => {
                let index = u32::try_from(value).map_err(|_| Errno::ENODEV)?;
                if index != 0 && network.current().interface(index).is_none() {
                    return Err(Errno::ENODEV);
                }
                self.multicast_interface = index;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns an option; `None` if it is none of these.
    pub fn get(&self, settings: &Settings, level: i32, option: i32) -> Option<i32> {
        if let Some(flag) = flag_of(level, option) {
            return Some(i32::from(self.wishes.contains(flag)));
        }
        Some(match (level, option) {
            (SOL_IP, ip::TOS) => i32::from(self.tos),
            (SOL_IP, ip::TTL) => i32::from(self.ttl(settings)),
            (SOL_IP, ip::MULTICAST_TTL) | (SOL_IPV6, ipv6::MULTICAST_HOPS) => {
                i32::from(self.multicast_ttl)
            }
            (SOL_IPV6, ipv6::UNICAST_HOPS) => i32::from(self.hop_limit),
            (SOL_IPV6, ipv6::TCLASS) => i32::from(self.traffic_class),
            (SOL_IP, ip::MTU_DISCOVER) => self.discover[0] as i32,
            (SOL_IPV6, ipv6::MTU_DISCOVER) => self.discover[1] as i32,
            (SOL_IPV6, ipv6::MULTICAST_IF) => self.multicast_interface as i32,
            _ => return None,
        })
    }
}

/// Reads the number that a program gives a socket of `network` for an option of these levels.
///
/// # Errors
/// `EINVAL` if it is too short, `EFAULT`; `EPERM` if the option is not for the program.
pub fn read(network: &Network, level: i32, option: i32, value: OptionValue) -> Result<i32> {
    let number = number(level, value)?;
    let is_transparent =
        matches!((level, option), (SOL_IP, ip::TRANSPARENT) | (SOL_IPV6, ipv6::TRANSPARENT));
    let has_not = |capability| caller::require_in(&network.owner, capability).is_err();
    if is_transparent && number != 0 && has_not(Capability::NetRaw) {
        caller::require_in(&network.owner, Capability::NetAdmin)?;
    }
    Ok(number)
}

/// Returns the priority (SO_PRIORITY) that a type of service gives a socket
/// (`rt_tos2priority`, net/ipv4/route.c).
pub fn priority_of_service(tos: i32) -> u32 {
    const PRIORITIES: [u32; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
    PRIORITIES[(tos >> 1 & 15) as usize]
}

/// Whether an option is IP_MTU, IPV6_MTU or IPV6_PATHMTU, which only connected sockets have.
pub fn is_mtu(level: i32, option: i32) -> bool {
    matches!((level, option), (SOL_IP, ip::MTU) | (SOL_IPV6, ipv6::MTU | ipv6::PATHMTU))
}

/// Writes one of these options; `mtu`: the MTU of the path.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn write_mtu(level: i32, option: i32, mtu: u32, out: OptionOutput) -> Result<()> {
    if option != ipv6::PATHMTU || level == SOL_IP {
        return write(level, mtu as i32, out);
    }
    // `struct ip6_mtuinfo`, without an address.
    let mut info = [0; MTU_INFO];
    info[MTU_INFO - 4..].copy_from_slice(&mtu.to_ne_bytes());
    if out.room()? < info.len() {
        return Err(Errno::EINVAL);
    }
    out.put(&info)
}

/// The bytes of a `struct ip6_mtuinfo`: an address and an MTU.
const MTU_INFO: usize = 32;

/// Writes a number in the size that the program asks for.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn write(level: i32, number: i32, out: OptionOutput) -> Result<()> {
    let room = out.room()?;
    if level == SOL_IP && (1..4).contains(&room) && (0..=255).contains(&number) {
        return out.put(&[number as u8]);
    }
    out.put_number(number)
}
