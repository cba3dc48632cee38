//! NETLINK_ROUTE (rtnetlink(7)): its requests, as `rtnetlink_rcv_msg` of Linux 6.1 takes them
//! (net/core/rtnetlink.c), and the changes that it announces.
//!
//! Lists are in `list`, requests that change something in `change`. Rules of routing, queueing
//! disciplines and others are not supported: EOPNOTSUPP, as on a Linux without them.

mod change;
mod list;

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_netlink::Full;
use hayate_netlink::message::{Header, Request, Writer, flag};
use hayate_netlink::route::link::Name;
use hayate_netlink::route::{
    Address, Link, Neighbour, Route, address, family, group, kind, link, neighbour, route,
};

use super::asking::{Asking, Outcome, message};
use super::dump::{Dump, List};
use super::ports;
use super::provider::provider;
use crate::credentials::Capability;
use crate::net::config::Network;
use crate::vfs::caller;

/// Room for a message about one link, address, route or neighbour.
const ROOM: usize = 1024;
/// The lowest two bits of a type say what is asked for.
const VERB: u16 = 3;
const GET: u16 = 2;

/// Carries out a request.
pub fn handle(asking: &Asking<'_>, request: &Request<'_>) -> Result<Outcome> {
    let asked = request.header.kind;
    if asked > kind::LAST {
        return Err(Errno::EOPNOTSUPP);
    }
    // All begin with a family; a request without one is ignored.
    let Some(&of_family) = request.body().first() else { return Ok(Outcome::Done) };
    if asked & VERB != GET {
        let network = &*asking.endpoint.network;
        caller::require_in(&network.owner, Capability::NetAdmin)?;
        return change::handle(network, request, of_family).map(|()| Outcome::Done);
    }
    if request.header.flags & flag::DUMP != 0 {
        let (list, new, flags) = list::make(asking, request, of_family)?;
        let header = asking.header(request, new, flag::MULTI | flags);
        asking.endpoint.begin(Dump::new(list, header))?;
        return Ok(Outcome::Dumping);
    }
    match asked {
        kind::GETLINK => get_link(asking, request),
        kind::GETADDR if of_family == family::INET6 => get_address(asking, request),
        kind::GETROUTE if matches!(of_family, family::INET | family::INET6) => {
            get_way(asking, request)
        }
        kind::GETNEIGH => get_neighbour(asking, request),
        _ => Err(Errno::EOPNOTSUPP),
    }?;
    Ok(Outcome::Done)
}

/// Finds a link by its index or its name: ENODEV, EINVAL without either.
fn find_link(network: &Network, index: u32, name: Option<&Name>) -> Result<Link> {
    if index == 0 && name.is_none() {
        return Err(Errno::EINVAL);
    }
    let mut links = provider()?.links(network)?.into_iter();
    let is_meant = |link: &Link| {
        if index != 0 { link.index == index } else { name == Some(&link.name) }
    };
    links.find(is_meant).ok_or(Errno::ENODEV)
}

/// The index in a request, which may not be negative: EINVAL.
fn index_of(index: i32) -> Result<u32> {
    u32::try_from(index).map_err(|_| Errno::EINVAL)
}

fn get_link(asking: &Asking<'_>, request: &Request<'_>) -> Result<()> {
    let asked = link::Asked::read(request).ok_or(Errno::EINVAL)?;
    let index = index_of(asked.fixed.index)?;
    let link = find_link(&asking.endpoint.network, index, asked.name.as_ref())?;
    let header = asking.header(request, kind::NEWLINK, 0);
    asking.answer(ROOM, |writer| link.write(writer, header, 0))
}

fn get_address(asking: &Asking<'_>, request: &Request<'_>) -> Result<()> {
    let asked = address::Asked::read(request).ok_or(Errno::EINVAL)?;
    let meant = asked.local.or(asked.address).ok_or(Errno::EINVAL)?;
    let mut all = provider()?.addresses(&asking.endpoint.network)?.into_iter();
    let on_link = |own: &Address| asked.fixed.index == 0 || own.index == asked.fixed.index;
    let own = all.find(|own| own.address == meant && on_link(own)).ok_or(Errno::EADDRNOTAVAIL)?;
    let header = asking.header(request, kind::NEWADDR, 0);
    asking.answer(ROOM, |writer| own.write(writer, header))
}

/// RTM_GETROUTE without a dump: the way to one destination, which `ip route get` shows.
fn get_way(asking: &Asking<'_>, request: &Request<'_>) -> Result<()> {
    let asked = route::Asked::read(request).ok_or(Errno::EINVAL)?;
    let v6 = asked.fixed.family == family::INET6;
    let is_right = |address: Option<core::net::IpAddr>| address.is_none_or(|it| it.is_ipv6() == v6);
    if !is_right(asked.destination) || !is_right(asked.source) {
        return Err(Errno::EINVAL);
    }
    // The way of a packet that came in, and the route that a way is found by, are other questions.
    if asked.from_interface.is_some() || asked.fixed.flags & route::FIB_MATCH != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let to = asked.destination.unwrap_or(change::any(v6));
    let (network, interface) = (&asking.endpoint.network, asked.interface.unwrap_or(0));
    let mut way = provider()?.way(network, to, asked.source, interface)?;
    way.flags |= route::CLONED;
    way.user = Some(caller::identity().uid);
    let header = asking.header(request, kind::NEWROUTE, 0);
    asking.answer(ROOM, |writer| way.write(writer, header))
}

fn get_neighbour(asking: &Asking<'_>, request: &Request<'_>) -> Result<()> {
    let asked = neighbour::Asked::read(request).ok_or(Errno::EINVAL)?;
    let address = asked.address.ok_or(Errno::EINVAL)?;
    let index = index_of(asked.fixed.index)?;
    let network = &asking.endpoint.network;
    find_link(network, index, None)?;
    let mut all = provider()?.neighbours(network)?.into_iter();
    let found = all.find(|it| it.index == index && it.address == address).ok_or(Errno::ENOENT)?;
    let header = asking.header(request, kind::NEWNEIGH, 0);
    asking.answer(ROOM, |writer| found.write(writer, header))
}

/// Announces a change in a network namespace to a group, if any socket hears it.
fn announce(
    network: &Network,
    group: u32,
    kind: u16,
    write: impl FnOnce(&mut Writer<'_>, Header) -> core::result::Result<(), Full>,
) {
    if !ports::is_heard(group) {
        return;
    }
    let header = Header { kind, ..Header::default() };
    if let Ok(bytes) = message(ROOM, |writer| write(writer, header)) {
        let kernel = Ucred { pid: 0, uid: 0, gid: 0 };
        ports::broadcast(network, super::ROUTE, &bytes, group, kernel, 0);
    }
}

/// Announces a link that is new or changed, or that goes. `change`: the flags that are new.
pub fn announce_link(network: &Network, link: &Link, change: u32, goes: bool) {
    let kind = if goes { kind::DELLINK } else { kind::NEWLINK };
    announce(network, group::LINK, kind, |writer, header| link.write(writer, header, change));
}

/// Announces an address that is new or changed, or that goes.
pub fn announce_address(network: &Network, own: &Address, goes: bool) {
    let kind = if goes { kind::DELADDR } else { kind::NEWADDR };
    let group = if own.address.is_ipv4() { group::ADDRESS_V4 } else { group::ADDRESS_V6 };
    announce(network, group, kind, |writer, header| own.write(writer, header));
}

/// Announces a route that is new, or that goes.
pub fn announce_route(network: &Network, way: &Route, goes: bool) {
    let kind = if goes { kind::DELROUTE } else { kind::NEWROUTE };
    let group = if way.destination.is_ipv4() { group::ROUTE_V4 } else { group::ROUTE_V6 };
    announce(network, group, kind, |writer, header| way.write(writer, header));
}

/// Announces a neighbour of which something new is known, or that is forgotten.
pub fn announce_neighbour(network: &Network, neighbour: &Neighbour, goes: bool) {
    let kind = if goes { kind::DELNEIGH } else { kind::NEWNEIGH };
    announce(network, group::NEIGHBOUR, kind, |writer, header| neighbour.write(writer, header));
}

/// A list, the type of its messages, and flags of theirs beside NLM_F_MULTI.
type Made = (List, u16, u16);
