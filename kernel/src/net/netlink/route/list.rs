//! The lists that dumps show, and the part of them that a request selects.
//!
//! A request of a socket with NETLINK_GET_STRICT_CHK is checked, and selects by its fields; an
//! error in it is reported at the end of the dump, as on Linux (`rtnl_dump_ifinfo`,
//! `inet_dump_ifaddr`, `inet_dump_fib`, `neigh_dump_info`). Other requests may be of any length,
//! and only their family counts.

use hayate_abi::{Errno, Result};
use hayate_netlink::message::{Request, flag};
use hayate_netlink::route::{address, family, family_of, kind, link, neighbour, route};

use super::super::asking::Asking;
use super::super::dump::List;
use super::super::options::Options;
use super::super::provider::provider;
use super::{Made, find_link};
use crate::net::config::Network;

/// The family of links that belong to a bridge, of which there are none.
const BRIDGE: u8 = 7;

/// Makes the list that a request asks for. EOPNOTSUPP.
pub(super) fn make(asking: &Asking<'_>, request: &Request<'_>, of_family: u8) -> Result<Made> {
    let strict = asking.options.contains(Options::STRICT);
    let network = &*asking.endpoint.network;
    let (made, new) = match request.header.kind {
        kind::GETLINK => (links(network, request, of_family, strict), kind::NEWLINK),
        kind::GETADDR => (addresses(network, request, of_family, strict), kind::NEWADDR),
        kind::GETROUTE => (routes(network, request, of_family, strict), kind::NEWROUTE),
        kind::GETNEIGH => (neighbours(network, request, of_family, strict), kind::NEWNEIGH),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    match made {
        Ok((list, selects)) => Ok((list, new, if selects { flag::DUMP_FILTERED } else { 0 })),
        Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
        Err(error) => Ok((List::Refused(error), new, 0)),
    }
}

/// EINVAL unless a condition on a strict request holds.
fn check(is_good: bool) -> Result<()> {
    if is_good { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Whether an item of this family is asked for: families that are not known mean all.
fn is_family(asked: u8, is: u8) -> bool {
    !matches!(asked, family::INET | family::INET6) || asked == is
}

fn links(
    network: &Network,
    request: &Request<'_>,
    of_family: u8,
    strict: bool,
) -> Result<(List, bool)> {
    let asked = link::Asked::read(request);
    if strict {
        let asked = asked.as_ref().ok_or(Errno::EINVAL)?;
        let link::Fixed { padding, kind, index, flags, change, .. } = asked.fixed;
        check(padding == 0 && kind == 0 && index == 0 && flags == 0 && change == 0)?;
        check(!asked.has_more && asked.name.is_none() && asked.mtu.is_none())?;
    }
    // No link has a master or is of a kind that is made by programs.
    let none = of_family == BRIDGE || asked.as_ref().is_some_and(|asked| asked.is_narrow);
    let links = if none { Default::default() } else { provider()?.links(network)? };
    Ok((List::Links(links), asked.is_some_and(|asked| asked.is_narrow)))
}

fn addresses(
    network: &Network,
    request: &Request<'_>,
    of_family: u8,
    strict: bool,
) -> Result<(List, bool)> {
    let mut index = 0;
    if strict {
        let asked = address::Asked::read(request).ok_or(Errno::EINVAL)?;
        let address::Fixed { prefix, flags, scope, .. } = asked.fixed;
        check(prefix == 0 && flags == 0 && scope == 0)?;
        check(asked.local.is_none() && asked.address.is_none() && asked.label.is_none())?;
        index = asked.fixed.index;
        if index != 0 {
            find_link(network, index, None)?;
        }
    }
    let mut all = provider()?.addresses(network)?;
    all.retain(|own| {
        is_family(of_family, family_of(own.address)) && (index == 0 || own.index == index)
    });
    Ok((List::Addresses(all), index != 0))
}

fn routes(
    network: &Network,
    request: &Request<'_>,
    of_family: u8,
    strict: bool,
) -> Result<(List, bool)> {
    let mut selected = route::Asked::default();
    if strict {
        let asked = route::Asked::read(request).ok_or(Errno::EINVAL)?;
        let route::Fixed { destination_prefix, source_prefix, service, scope, .. } = asked.fixed;
        check(destination_prefix == 0 && source_prefix == 0 && service == 0 && scope == 0)?;
        check(asked.destination.is_none() && asked.gateway.is_none() && !asked.has_more)?;
        check(asked.source.is_none() && asked.preferred_source.is_none())?;
        if let Some(index) = asked.interface {
            find_link(network, index, None)?;
        }
        let known = [route::table::UNSPEC, route::table::MAIN, route::table::LOCAL];
        if !known.contains(&asked.table) {
            return Err(Errno::ENOENT);
        }
        selected = asked;
    }
    let mut all = provider()?.routes(network)?;
    let wants = |asked: u32, is: u32| asked == 0 || asked == is;
    all.retain(|way| {
        is_family(of_family, family_of(way.destination))
            && wants(selected.table, way.table)
            && wants(selected.interface.unwrap_or(0), way.interface)
            && wants(selected.fixed.protocol.into(), way.protocol.into())
            && wants(selected.fixed.kind.into(), way.kind.into())
    });
    Ok((List::Routes(all), strict))
}

fn neighbours(
    network: &Network,
    request: &Request<'_>,
    of_family: u8,
    strict: bool,
) -> Result<(List, bool)> {
    let asked = neighbour::Asked::read(request);
    if strict {
        let asked = asked.as_ref().ok_or(Errno::EINVAL)?;
        let neighbour::Fixed { padding, padding_2, state, flags, kind, .. } = asked.fixed;
        check(padding == 0 && padding_2 == 0 && state == 0 && flags == 0 && kind == 0)?;
        check(asked.address.is_none() && asked.hardware.is_none())?;
    }
    let asked = asked.unwrap_or_default();
    let is_known = matches!(of_family, family::UNSPEC | family::INET | family::INET6);
    let mut all = provider()?.neighbours(network)?;
    all.retain(|it| {
        is_known
            && !asked.is_narrow
            && is_family(of_family, family_of(it.address))
            && (asked.interface == 0 || it.index == asked.interface)
    });
    Ok((List::Neighbours(all), asked.is_narrow || asked.interface != 0))
}
