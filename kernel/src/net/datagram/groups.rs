//! Multicast groups of a socket, and the sources of each that it wants: ip(7), ipv6(7), RFC 3678.
//!
//! The rules and errors are those of Linux 6.1: `do_ip_setsockopt` (net/ipv4/ip_sockglue.c) and
//! net/ipv4/igmp.c, `do_ipv6_setsockopt` (net/ipv6/ipv6_sockglue.c) and net/ipv6/mcast.c. The two
//! versions of IP differ in some, which are named where they are. What routers are told is in
//! [`groups`].
//!
//! Lock: that of the socket's groups, which the list of all groups follows. Nothing is copied from
//! or to the program with it held.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ip::Address;
use hayate_ip::socket_address::{INET, INET6};
use hayate_ip::source_filter::{Mode, Refused, SourceFilter};

use super::Socket;
use super::joined::Joined;
use crate::net::config::Network;
use crate::net::groups;
use crate::net::ip_options::{SOL_IP, SOL_IPV6, Wishes, ip, ipv6};
use crate::net::packet::Packet;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

/// Options of both versions (RFC 3678, 5).
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_BLOCK_SOURCE: i32 = 43;
const MCAST_UNBLOCK_SOURCE: i32 = 44;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
pub(super) const MCAST_MSFILTER: i32 = 48;

/// The most groups of a socket, and the error beyond. IPv4: the default of Linux'
/// `net.ipv4.igmp_max_memberships`. IPv6: as many as its `net.core.optmem_max` of 20 KiB holds
/// (`struct ipv6_mc_socklist`, 64 bytes each).
const MOST_V4: (usize, Errno) = (20, Errno::ENOBUFS);
const MOST_V6: (usize, Errno) = (320, Errno::ENOMEM);
/// `net.core.optmem_max`: the longest filter that is copied from a program.
const LONGEST: usize = 20480;

/// `struct sockaddr_storage`.
const STORAGE: usize = 128;
/// The group and the source in `struct group_req` and `struct group_source_req`, and their sizes.
const GROUP: usize = 8;
const SOURCE: usize = GROUP + STORAGE;
const GROUP_REQUEST: usize = GROUP + STORAGE;
const SOURCE_REQUEST: usize = SOURCE + STORAGE;
/// The mode, the number of sources and the sources in `struct group_filter` and `struct
/// ip_msfilter`.
const MODE: usize = GROUP + STORAGE;
const SOURCES: usize = MODE + 8;
const MODE_V4: usize = 8;
const SOURCES_V4: usize = 16;

/// A group as a program names it: on an interface by its index, or if that is 0 by an address.
#[derive(Clone, Copy)]
struct Named {
    group: Address,
    index: u32,
    local: Address,
}

/// Whether an option is about groups.
pub(super) fn is_option(level: i32, option: i32) -> bool {
    match level {
        SOL_IP => (ip::ADD_MEMBERSHIP..=MCAST_MSFILTER).contains(&option),
        SOL_IPV6 => {
            matches!(option, ipv6::ADD_MEMBERSHIP | ipv6::DROP_MEMBERSHIP)
                || (MCAST_JOIN_GROUP..=MCAST_MSFILTER).contains(&option)
        }
        _ => false,
    }
}

/// The error of a change that is refused.
fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::OtherMode => Errno::EINVAL,
        Refused::Source => Errno::EADDRNOTAVAIL,
        Refused::Full | Refused::NoMemory => Errno::ENOBUFS,
    }
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(word(bytes, at))
}

fn address_v4(bytes: &[u8], at: usize) -> Address {
    Address::v4(u32::from_be_bytes(word(bytes, at)))
}

fn address_v6(bytes: &[u8], at: usize) -> Address {
    let bits = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied();
    Address::v6(u128::from_be_bytes(bits.unwrap_or_default()))
}

/// The family, and the address, in a `struct sockaddr_storage`.
fn storage(bytes: &[u8], at: usize, v4: bool) -> (bool, Address) {
    let [low, high, ..] = word(bytes, at);
    let family = u16::from_ne_bytes([low, high]);
    if v4 {
        (family == INET, address_v4(bytes, at + 4))
    } else {
        (family == INET6, address_v6(bytes, at + 8))
    }
}

/// The mode with this number (MCAST_EXCLUDE, MCAST_INCLUDE).
fn mode_of(number: u32) -> Result<Mode> {
    match number {
        0 => Ok(Mode::Exclude),
        1 => Ok(Mode::Include),
        _ => Err(Errno::EINVAL),
    }
}

fn number_of(mode: Mode) -> u32 {
    u32::from(mode == Mode::Include)
}

impl Named {
    /// In a structure for both versions, at whose beginning the index is.
    fn in_storage(bytes: &[u8], v4: bool) -> (bool, Named) {
        let (is_family, group) = storage(bytes, GROUP, v4);
        (is_family, Named { group, index: number(bytes, 0), local: Address::ANY_V4 })
    }

    fn check(&self, v4: bool) -> Result<()> {
        let is_good = self.group.is_multicast() && self.group.is_v4() == v4;
        if is_good { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The interface (`ip_mc_find_dev`, `ip6_mc_find_dev_rtnl`).
    fn interface(&self, network: &Network) -> Option<u32> {
        let config = network.current();
        if self.index != 0 {
            return config.interface(self.index).map(|interface| interface.index);
        }
        if !self.local.is_any() {
            let own = config.addresses.iter().find(|own| own.address == self.local);
            return own.map(|own| own.interface);
        }
        config.path(self.group, 0).ok().map(|path| path.interface.index)
    }

    /// Whether it is this group. One of IPv6 without an interface is that of any.
    fn is(&self, joined: &Joined) -> bool {
        let is_any = self.index == 0 && !self.group.is_v4();
        joined.group == self.group && (is_any || joined.interface == self.index)
    }
}

impl Socket {
    /// Sets an option about groups.
    pub(super) fn set_group(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        let v4 = level == SOL_IP;
        let outcome = match option {
            ip::ADD_MEMBERSHIP if v4 => self.join(v4, named_v4(value)?, Mode::Exclude),
            ip::DROP_MEMBERSHIP if v4 => self.leave(v4, named_v4(value)?),
            ipv6::ADD_MEMBERSHIP if !v4 => self.join(v4, named_v6(value)?, Mode::Exclude),
            ipv6::DROP_MEMBERSHIP if !v4 => self.leave(v4, named_v6(value)?),
            MCAST_JOIN_GROUP => self.join(v4, named(value, v4)?, Mode::Exclude),
            MCAST_LEAVE_GROUP => self.leave(v4, named(value, v4)?),
            ip::MSFILTER if v4 => self.set_filter_v4(value),
            MCAST_MSFILTER => self.set_filter(v4, value),
            _ => self.set_source(v4, option, value),
        };
        groups::tell();
        outcome
    }

    /// Joins a group (`__ip_mc_join_group`, `__ipv6_sock_mc_join`).
    fn join(&self, v4: bool, mut named: Named, mode: Mode) -> Result<()> {
        named.check(v4)?;
        let interface = named.interface(self.network());
        if v4 {
            named.index = interface.ok_or(Errno::ENODEV)?;
        }
        let mut own = self.groups.lock();
        if own.iter().any(|joined| named.is(joined)) {
            return Err(Errno::EADDRINUSE);
        }
        let (most, lack) = if v4 { MOST_V4 } else { MOST_V6 };
        if own.iter().filter(|other| other.group.is_v4() == v4).count() >= most {
            return Err(lack);
        }
        let interface = interface.ok_or(Errno::ENODEV)?;
        own.make_room(1)?;
        let filter = SourceFilter::empty(mode);
        groups::change(self.network(), named.group, interface, None, &filter)?;
        own.push(Joined { group: named.group, interface, local: named.local, filter });
        Ok(())
    }

    /// Leaves a group (`ip_mc_leave_group`, `ipv6_sock_mc_drop`).
    fn leave(&self, v4: bool, mut named: Named) -> Result<()> {
        if v4 {
            // Linux does not look whether it is a group.
            let interface = named.interface(self.network());
            if interface.is_none() && named.index == 0 && named.local.is_any() {
                return Err(Errno::ENODEV);
            }
            named.index = interface.unwrap_or(named.index);
        } else {
            named.check(v4)?;
        }
        let is_it = |joined: &Joined| match named.index {
            0 if v4 => joined.group == named.group && joined.local == named.local,
            _ => named.is(joined),
        };
        let mut own = self.groups.lock();
        let place = own.iter().rposition(is_it).ok_or(Errno::EADDRNOTAVAIL)?;
        let left = own.remove(place);
        groups::leave(self.network(), left.group, left.interface, &left.filter);
        Ok(())
    }

    /// Leaves all groups.
    pub(super) fn leave_groups(&self) {
        let left = core::mem::take(&mut *self.groups.lock());
        if left.is_empty() {
            return;
        }
        for left in &left {
            groups::leave(self.network(), left.group, left.interface, &left.filter);
        }
        groups::tell();
    }

    /// Sets an option that names a source.
    fn set_source(&self, v4: bool, option: i32, value: OptionValue) -> Result<()> {
        let is_v4_alone = option < MCAST_JOIN_GROUP;
        let (mut named, source) =
            if is_v4_alone { source_v4(value)? } else { source_of(value, v4)? };
        named.check(v4)?;
        let (adds, mode) = match option {
            ip::BLOCK_SOURCE | MCAST_BLOCK_SOURCE => (true, Mode::Exclude),
            ip::UNBLOCK_SOURCE | MCAST_UNBLOCK_SOURCE => (false, Mode::Exclude),
            ip::ADD_SOURCE_MEMBERSHIP | MCAST_JOIN_SOURCE_GROUP => (true, Mode::Include),
            ip::DROP_SOURCE_MEMBERSHIP | MCAST_LEAVE_SOURCE_GROUP => (false, Mode::Include),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        if (adds, mode) == (true, Mode::Include) {
            match self.join(v4, named, mode) {
                Ok(()) | Err(Errno::EADDRINUSE) => {}
                Err(error) => return Err(error),
            }
        }
        let interface = named.interface(self.network()).ok_or(Errno::ENODEV)?;
        if v4 {
            named.index = interface;
        }
        let is_left = self.change_source(&named, source, mode, adds)?;
        if is_left { self.leave(v4, named) } else { Ok(()) }
    }

    /// A source comes to the filter of a group, or goes. Returns whether no source is wanted then:
    /// the group has to be left (`ip_mc_source`, `ip6_mc_source`).
    fn change_source(
        &self,
        named: &Named,
        source: Address,
        mode: Mode,
        adds: bool,
    ) -> Result<bool> {
        let mut own = self.groups.lock();
        // The program must have joined it.
        let joined = own.iter_mut().rev().find(|joined| named.is(joined)).ok_or(Errno::EINVAL)?;
        if joined.filter.has_to_turn(mode).map_err(errno)? {
            // Also if the change fails then.
            joined.replace(self.network(), SourceFilter::empty(mode))?;
        }
        if adds {
            let settings = &self.network().settings;
            let most = settings.most_sources(named.group.is_v4()) as usize;
            let filter = joined.filter.with(source, most).map_err(errno)?;
            joined.replace(self.network(), filter)?;
            return Ok(false);
        }
        match joined.filter.without(source).map_err(errno)? {
            Some(filter) => joined.replace(self.network(), filter).map(|()| false),
            None => Ok(true),
        }
    }

    /// IP_MSFILTER: `struct ip_msfilter`.
    fn set_filter_v4(&self, value: OptionValue) -> Result<()> {
        let most = self.network().settings.most_sources(true);
        let (bytes, count) = filter_bytes(value, SOURCES_V4, MODE_V4 + 4, 4, most)?;
        let local = address_v4(&bytes, 4);
        let named = Named { group: address_v4(&bytes, 0), index: 0, local };
        let sources = gather(count, |at| Ok(address_v4(&bytes, SOURCES_V4 + 4 * at)))?;
        self.replace_filter(true, named, number(&bytes, MODE_V4), sources)
    }

    /// MCAST_MSFILTER: `struct group_filter`.
    fn set_filter(&self, v4: bool, value: OptionValue) -> Result<()> {
        let most = self.network().settings.most_sources(v4);
        let (bytes, count) = filter_bytes(value, SOURCES, MODE + 4, STORAGE, most)?;
        let (is_family, named) = Named::in_storage(&bytes, v4);
        // IPv6 looks at no family here (`ip6_mc_msfilter`).
        if v4 && !is_family {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let sources = gather(count, |at| {
            let (is_family, source) = storage(&bytes, SOURCES + STORAGE * at, v4);
            if v4 && !is_family { Err(Errno::EADDRNOTAVAIL) } else { Ok(source) }
        })?;
        self.replace_filter(v4, named, number(&bytes, MODE), sources)
    }

    /// Replaces the filter of a group (`ip_mc_msfilter`, `ip6_mc_msfilter`).
    fn replace_filter(
        &self,
        v4: bool,
        mut named: Named,
        mode: u32,
        sources: Vec<Address>,
    ) -> Result<()> {
        named.check(v4)?;
        let mode = mode_of(mode)?;
        let interface = named.interface(self.network()).ok_or(Errno::ENODEV)?;
        if v4 {
            named.index = interface;
        }
        if mode == Mode::Include && sources.is_empty() {
            return self.leave(v4, named);
        }
        let mut own = self.groups.lock();
        let is_it = |joined: &&mut Joined| joined.is(named.group, named.index);
        let joined = own.iter_mut().rev().find(is_it).ok_or(Errno::EINVAL)?;
        joined.replace(self.network(), SourceFilter::new(mode, sources))
    }

    /// IP_MSFILTER: tells the filter of a group (`ip_mc_msfget`).
    pub(super) fn get_filter_v4(&self, out: OptionOutput) -> Result<()> {
        let mut head: [u8; SOURCES_V4] = out.read_value()?;
        let local = address_v4(&head, 4);
        let named = Named { group: address_v4(&head, 0), index: 0, local };
        named.check(true)?;
        let interface = named.interface(self.network()).ok_or(Errno::ENODEV)?;
        let (mode, sources) = self.filter_of(named.group, interface)?;
        let told = sources.len().min(number(&head, MODE_V4 + 4) as usize);
        head[MODE_V4..MODE_V4 + 4].copy_from_slice(&number_of(mode).to_ne_bytes());
        head[MODE_V4 + 4..].copy_from_slice(&(sources.len() as u32).to_ne_bytes());
        out.put_length(SOURCES_V4 + 4 * told)?;
        out.put_at(0, &head)?;
        for (at, source) in sources.iter().take(told).enumerate() {
            let bits = source.to_v4().unwrap_or(0);
            out.put_at(SOURCES_V4 + 4 * at, &bits.to_be_bytes())?;
        }
        Ok(())
    }

    /// MCAST_MSFILTER: tells the filter of a group (`ip_mc_gsfget`, `ip6_mc_msfget`).
    pub(super) fn get_filter(&self, v4: bool, out: OptionOutput) -> Result<()> {
        let mut head: [u8; SOURCES] = out.read_value()?;
        let (is_family, named) = Named::in_storage(&head, v4);
        if !is_family {
            return Err(if v4 { Errno::EINVAL } else { Errno::EADDRNOTAVAIL });
        }
        named.check(v4)?;
        let (mode, sources) = self.filter_of(named.group, named.index)?;
        let told = sources.len().min(number(&head, MODE + 4) as usize);
        head[MODE..MODE + 4].copy_from_slice(&number_of(mode).to_ne_bytes());
        head[MODE + 4..].copy_from_slice(&(sources.len() as u32).to_ne_bytes());
        for (at, source) in sources.iter().take(told).enumerate() {
            let mut bytes = [0; STORAGE];
            let family = if v4 { INET } else { INET6 };
            bytes[..2].copy_from_slice(&family.to_ne_bytes());
            match source.to_v4().filter(|_| v4) {
                Some(bits) => bytes[4..8].copy_from_slice(&bits.to_be_bytes()),
                None => bytes[8..24].copy_from_slice(&source.octets()),
            }
            out.put_at(SOURCES + STORAGE * at, &bytes)?;
        }
        out.put_length(SOURCES + STORAGE * told)?;
        out.put_at(0, &head)
    }

    /// The filter of a group, as a copy.
    fn filter_of(&self, group: Address, interface: u32) -> Result<(Mode, Vec<Address>)> {
        let own = self.groups.lock();
        let joined = own.iter().rev().find(|joined| joined.is(group, interface));
        let filter = &joined.ok_or(Errno::EADDRNOTAVAIL)?.filter;
        let mut sources = Vec::new();
        sources.make_room(filter.sources().len())?;
        sources.extend_from_slice(filter.sources());
        Ok((filter.mode(), sources))
    }

    /// Whether it gets a packet to an address (`ip_mc_sf_allow`, `inet6_mc_check`).
    pub(super) fn listens_to(&self, to: Address, packet: &Packet) -> bool {
        if !to.is_multicast() {
            return true;
        }
        let (interface, source) = (packet.interface, packet.header.source);
        {
            let own = self.groups.lock();
            // Of IPv6 that of any interface counts, as far as this one has joined the group.
            let is_it = |joined: &&Joined| {
                joined.group == to && (joined.interface == interface || !to.is_v4())
            };
            if let Some(joined) = own.iter().rev().find(is_it) {
                let network = self.network();
                return joined.filter.allows(source)
                    && (joined.interface == interface
                        || groups::allows(network, to, interface, source));
            }
        }
        // IP_MULTICAST_ALL: every group that a socket of this machine has joined (ip(7)).
        let all = self.options.lock().wishes.contains(Wishes::MULTICAST_ALL);
        all && groups::allows(self.network(), to, interface, source)
    }
}

/// Reads `struct ip_mreq` or `ip_mreqn`.
fn named_v4(value: OptionValue) -> Result<Named> {
    let mut bytes = [0; 12];
    if value.length < 8 {
        return Err(Errno::EINVAL);
    }
    // Between the two sizes it is the shorter.
    let most = if value.length < 12 { 8 } else { 12 };
    value.bytes(&mut bytes[..most])?;
    let (group, local) = (address_v4(&bytes, 0), address_v4(&bytes, 4));
    Ok(Named { group, index: number(&bytes, 8), local })
}

/// Reads `struct ipv6_mreq`.
fn named_v6(value: OptionValue) -> Result<Named> {
    let bytes: [u8; 20] = value.read()?;
    let index = number(&bytes, 16);
    Ok(Named { group: address_v6(&bytes, 0), index, local: Address::ANY_V4 })
}

/// Reads `struct group_req`.
fn named(value: OptionValue, v4: bool) -> Result<Named> {
    let bytes: [u8; GROUP_REQUEST] = value.read()?;
    match Named::in_storage(&bytes, v4) {
        (true, named) => Ok(named),
        (false, _) if v4 => Err(Errno::EINVAL),
        (false, _) => Err(Errno::EADDRNOTAVAIL),
    }
}

/// Reads `struct ip_mreq_source`: a group, an interface by its address, and a source.
fn source_v4(value: OptionValue) -> Result<(Named, Address)> {
    if value.length != 12 {
        return Err(Errno::EINVAL);
    }
    let bytes: [u8; 12] = value.read()?;
    let (group, local) = (address_v4(&bytes, 0), address_v4(&bytes, 4));
    Ok((Named { group, index: 0, local }, address_v4(&bytes, 8)))
}

/// Reads `struct group_source_req`.
fn source_of(value: OptionValue, v4: bool) -> Result<(Named, Address)> {
    let bytes: [u8; SOURCE_REQUEST] = value.read()?;
    let (is_family, named) = Named::in_storage(&bytes, v4);
    let (is_same, source) = storage(&bytes, SOURCE, v4);
    if is_family && is_same { Ok((named, source)) } else { Err(Errno::EADDRNOTAVAIL) }
}

/// Copies a filter of `length` bytes and sources of `each` from a program; at `count` it says how
/// many there are, of which there may be `most`.
fn filter_bytes(
    value: OptionValue,
    length: usize,
    count: usize,
    each: usize,
    most: u32,
) -> Result<(Vec<u8>, usize)> {
    if value.length < length {
        return Err(Errno::EINVAL);
    }
    if value.length > LONGEST {
        return Err(Errno::ENOBUFS);
    }
    let mut bytes = Vec::new();
    growth::relieved(|| bytes.make_room_exact(value.length))?;
    bytes.resize(value.length, 0);
    value.bytes(&mut bytes)?;
    let sources = number(&bytes, count);
    if sources > most {
        return Err(Errno::ENOBUFS);
    }
    let sources = sources as usize;
    let is_there = sources.checked_mul(each).is_some_and(|size| size <= bytes.len() - length);
    if is_there { Ok((bytes, sources)) } else { Err(Errno::EINVAL) }
}

/// Gathers the sources of a filter.
fn gather(count: usize, source: impl Fn(usize) -> Result<Address>) -> Result<Vec<Address>> {
    let mut sources = Vec::new();
    growth::relieved(|| sources.make_room_exact(count)).map_err(|_| Errno::ENOBUFS)?;
    for at in 0..count {
        sources.push(source(at)?);
    }
    Ok(sources)
}
