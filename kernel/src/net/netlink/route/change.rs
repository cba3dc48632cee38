//! Requests that change links, addresses, routes and neighbours. The caller is privileged; a
//! request is checked here and carried out by the network.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hayate_abi::{Errno, Result};
use hayate_netlink::message::{Request, flag};
use hayate_netlink::route::{
    Address, Neighbour, Route, address, family, kind, link, neighbour, route,
};

use super::super::provider::{Making, NetworkChange, provider};
use super::{find_link, index_of};
use crate::net::config::Network;

/// The metric of an IPv6 route that is given none (`IP6_RT_PRIO_USER`).
const METRIC_V6: u32 = 1024;

/// Carries out a request.
pub(super) fn handle(network: &Network, request: &Request<'_>, of_family: u8) -> Result<()> {
    let change = match request.header.kind {
        kind::NEWLINK | kind::SETLINK => set_link(network, request)?,
        kind::NEWADDR => new_address(network, request)?,
        kind::DELADDR => delete_address(network, request)?,
        kind::NEWROUTE => {
            let (way, _) = read_route(network, request, of_family)?;
            NetworkChange::NewRoute(way, making(request))
        }
        kind::DELROUTE => delete_route(network, request, of_family)?,
        kind::NEWNEIGH => new_neighbour(network, request)?,
        kind::DELNEIGH => {
            let asked = neighbour::Asked::read(request).ok_or(Errno::EINVAL)?;
            let address = asked.address.ok_or(Errno::EINVAL)?;
            let index = find_link(network, index_of(asked.fixed.index)?, None)?.index;
            NetworkChange::DeleteNeighbour { index, address }
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    provider()?.change(network, change)
}

/// The address that means any.
pub(super) fn any(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

fn making(request: &Request<'_>) -> Making {
    let has = |bit| request.header.flags & bit != 0;
    Making { create: has(flag::CREATE), exclusive: has(flag::EXCL), replace: has(flag::REPLACE) }
}

/// Checks the family of an address, and that a prefix fits into it: EINVAL.
fn check_prefix(of_family: u8, address: IpAddr, prefix: u8) -> Result<()> {
    let (known, most) = match address {
        IpAddr::V4(_) => (family::INET, 32),
        IpAddr::V6(_) => (family::INET6, 128),
    };
    if of_family == known && prefix <= most { Ok(()) } else { Err(Errno::EINVAL) }
}

fn set_link(network: &Network, request: &Request<'_>) -> Result<NetworkChange> {
    let asked = link::Asked::read(request).ok_or(Errno::EINVAL)?;
    let index = index_of(asked.fixed.index)?;
    let link = match find_link(network, index, asked.name.as_ref()) {
        // Links that programs make are of kinds that there are none of.
        Err(Errno::ENODEV) if request.header.flags & flag::CREATE != 0 => {
            return Err(Errno::EOPNOTSUPP);
        }
        found => found?,
    };
    if request.header.kind == kind::NEWLINK && request.header.flags & flag::EXCL != 0 {
        return Err(Errno::EEXIST);
    }
    if asked.is_narrow || asked.has_more {
        return Err(Errno::EOPNOTSUPP);
    }
    let link::Fixed { flags, change, .. } = asked.fixed;
    // Without a mask all flags are set (`rtnl_dev_get_flags`), unless there are none.
    let mask = if change == 0 && flags != 0 { u32::MAX } else { change };
    Ok(NetworkChange::Link {
        index: link.index,
        flags,
        mask,
        mtu: asked.mtu,
        hardware: asked.hardware,
        queue_length: asked.queue_length,
        name: asked.name.filter(|name| *name != link.name),
    })
}

fn new_address(network: &Network, request: &Request<'_>) -> Result<NetworkChange> {
    let asked = address::Asked::read(request).ok_or(Errno::EINVAL)?;
    let own = match asked.fixed.family {
        family::INET6 => asked.local.or(asked.address),
        _ => asked.local,
    };
    let own = own.ok_or(Errno::EINVAL)?;
    check_prefix(asked.fixed.family, own, asked.fixed.prefix)?;
    // An address of the other end, which there is none of here.
    if asked.address.is_some_and(|other| other != own) {
        return Err(Errno::EOPNOTSUPP);
    }
    let [preferred, valid] = asked.lifetime.unwrap_or([address::FOREVER; 2]);
    if valid == 0 || preferred > valid {
        return Err(Errno::EINVAL);
    }
    let link = find_link(network, asked.fixed.index, None).map_err(|error| match error {
        Errno::EINVAL => Errno::ENODEV,
        other => other,
    })?;
    let permanent = if valid == address::FOREVER { address::flag::PERMANENT } else { 0 };
    let added = Address {
        index: link.index,
        address: own,
        prefix: asked.fixed.prefix,
        scope: asked.fixed.scope,
        flags: asked.flags & !address::flag::PERMANENT | permanent,
        broadcast: asked.broadcast,
        label: asked.label.or(own.is_ipv4().then_some(link.name)),
        preferred,
        valid,
        made: 0,
        changed: 0,
    };
    Ok(NetworkChange::NewAddress(added, making(request)))
}

fn delete_address(network: &Network, request: &Request<'_>) -> Result<NetworkChange> {
    let asked = address::Asked::read(request).ok_or(Errno::EINVAL)?;
    let own = asked.local.or(asked.address).ok_or(Errno::EINVAL)?;
    check_prefix(asked.fixed.family, own, asked.fixed.prefix)?;
    let index = find_link(network, asked.fixed.index, None).map_err(|_| Errno::ENODEV)?.index;
    // Of IPv4 the prefix counts only together with the network's address (`inet_rtm_deladdr`).
    let prefix = (own.is_ipv6() || asked.address.is_some()).then_some(asked.fixed.prefix);
    Ok(NetworkChange::DeleteAddress { index, address: own, prefix })
}

/// Reads a route, and whether it has a table.
fn read_route(
    network: &Network,
    request: &Request<'_>,
    of_family: u8,
) -> Result<(Route, route::Asked)> {
    let asked = route::Asked::read(request).ok_or(Errno::EINVAL)?;
    let v6 = match of_family {
        family::INET => false,
        family::INET6 => true,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let route::Fixed { destination_prefix: prefix, source_prefix, .. } = asked.fixed;
    let destination = asked.destination.unwrap_or(any(v6));
    check_prefix(of_family, destination, prefix)?;
    for address in [asked.gateway, asked.preferred_source].into_iter().flatten() {
        if address.is_ipv6() != v6 {
            return Err(Errno::EINVAL);
        }
    }
    // Routes by the source, with several next hosts, tunnels or metrics of TCP.
    if source_prefix != 0 || asked.source.is_some() || asked.has_more {
        return Err(Errno::EOPNOTSUPP);
    }
    if let Some(index) = asked.interface {
        find_link(network, index, None).map_err(|_| Errno::ENODEV)?;
    }
    let way = Route {
        destination,
        prefix,
        gateway: asked.gateway,
        interface: asked.interface.unwrap_or(0),
        table: if asked.table == 0 { route::table::MAIN } else { asked.table },
        protocol: asked.fixed.protocol,
        scope: asked.fixed.scope,
        kind: asked.fixed.kind,
        flags: asked.fixed.flags,
        source: asked.preferred_source,
        metric: match asked.metric {
            None | Some(0) if v6 => METRIC_V6,
            metric => metric.unwrap_or(0),
        },
        user: None,
    };
    Ok((way, asked))
}

fn delete_route(network: &Network, request: &Request<'_>, of_family: u8) -> Result<NetworkChange> {
    let (mut way, asked) = read_route(network, request, of_family)?;
    // A field that is not given matches any.
    way.metric = asked.metric.unwrap_or(0);
    Ok(NetworkChange::DeleteRoute(way))
}

fn new_neighbour(network: &Network, request: &Request<'_>) -> Result<NetworkChange> {
    let asked = neighbour::Asked::read(request).ok_or(Errno::EINVAL)?;
    let address = asked.address.ok_or(Errno::EINVAL)?;
    check_prefix(asked.fixed.family, address, 0)?;
    let index = find_link(network, index_of(asked.fixed.index)?, None)?.index;
    let added = Neighbour {
        index,
        address,
        hardware: asked.hardware,
        state: asked.fixed.state,
        flags: asked.fixed.flags,
        kind: asked.fixed.kind,
        probes: 0,
        ages: [0; 3],
    };
    Ok(NetworkChange::NewNeighbour(added, making(request)))
}
