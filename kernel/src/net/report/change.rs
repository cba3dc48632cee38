//! The changes of interfaces, addresses and routes that netlink asks for.

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::Address;
use hayate_ip::route::Route as Way;
use hayate_netlink::route::route::{kind, table};
use hayate_netlink::route::{Address as Own, Route, address};

use super::super::config::{Config, LocalAddress, Network, flag};
use super::super::configure::give_hardware;
use super::super::netlink::provider::{Making, NetworkChange};
use super::super::netlink::route;
use super::super::packet_socket::tap;
use super::describe::{LEAST_MTU, link_of, name_of};
use crate::reclaim::growth;

/// Flags that a program sets and nothing heeds: `IFF_NOARP`, `IFF_PROMISC`, `IFF_ALLMULTI`.
const OTHERS: u32 = 0x80 | 0x100 | 0x200;
/// The origin of a route of an address (`RTPROT_KERNEL`).
const KERNEL: u8 = 2;

/// Carries out a change.
pub(super) fn carry_out(network: &Network, change: NetworkChange) -> Result<()> {
    match change {
        NetworkChange::Link { index, flags, mask, mtu, hardware, queue_length, name } => {
            if queue_length.is_some() || name.is_some() {
                return Err(Errno::EOPNOTSUPP);
            }
            if let Some(address) = hardware {
                let config = network.current();
                give_hardware(config.interface(index).ok_or(Errno::ENODEV)?, address)?;
            }
            set_link(network, index, flags, mask, mtu)
        }
        NetworkChange::NewAddress(own, making) => add_address(network, &own, making),
        NetworkChange::DeleteAddress { index, address, prefix } => {
            delete_address(network, index, address.into(), prefix)
        }
        NetworkChange::NewRoute(route, making) => add_route(network, &route, making),
        NetworkChange::DeleteRoute(route) => delete_route(network, &route),
        NetworkChange::NewNeighbour(..) | NetworkChange::DeleteNeighbour { .. } => {
            Err(Errno::EOPNOTSUPP)
        }
    }
}

fn set_link(network: &Network, index: u32, flags: u32, mask: u32, mtu: Option<u32>) -> Result<()> {
    let config = network.current();
    let interface = config.interface(index).ok_or(Errno::ENODEV)?;
    let old = interface.flags.load(Ordering::Relaxed);
    let differing = (flags ^ old) & mask;
    if differing & OTHERS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if let Some(mtu) = mtu {
        let most = interface.device.as_ref().map_or(u32::MAX, |card| card.mtu() as u32);
        if mtu < LEAST_MTU || mtu > most {
            return Err(Errno::EINVAL);
        }
        interface.mtu.store(mtu, Ordering::Relaxed);
    }
    let change = differing & flag::UP;
    network.set_up(interface, (old ^ change) & flag::UP != 0)?;
    if change & old != 0 {
        tap::went_down(network.key, index);
    }
    route::announce_link(network, &link_of(interface), change, false);
    Ok(())
}

fn add_address(network: &Network, own: &Own, making: Making) -> Result<()> {
    if own.valid != address::FOREVER || own.preferred != address::FOREVER {
        return Err(Errno::EOPNOTSUPP);
    }
    let new =
        LocalAddress { address: own.address.into(), prefix: own.prefix, interface: own.index };
    if !new.address.is_unicast() {
        return Err(Errno::EINVAL);
    }
    network.change(|config| {
        let interface = config.interface(own.index).ok_or(Errno::ENODEV)?;
        let name = name_of(interface);
        let broadcast = new.address.broadcast(new.prefix).map(core::net::IpAddr::from);
        let is_other = own.broadcast.is_some() && own.broadcast != broadcast;
        if is_other || own.label.as_ref().is_some_and(|label| *label != name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if config.addresses.contains(&new) && !making.exclusive && making.replace {
            return Ok(());
        }
        if config.addresses.iter().any(|old| old.address == new.address) {
            return Err(Errno::EEXIST);
        }
        growth::push(&mut config.addresses, new)?;
        if own.flags & address::flag::NOPREFIXROUTE == 0 {
            let way = Way {
                network: new.address.network(new.prefix),
                prefix: new.prefix,
                gateway: None,
                interface: new.interface,
                metric: 0,
                source: Some(new.address),
                protocol: KERNEL,
            };
            config.routes.add(way).map_err(|_| Errno::ENOMEM)?;
        }
        Ok(())
    })
}

fn delete_address(
    network: &Network,
    index: u32,
    address: Address,
    prefix: Option<u8>,
) -> Result<()> {
    network.change(|config| {
        let is_it = |own: &LocalAddress| {
            own.interface == index
                && own.address == address
                && prefix.is_none_or(|prefix| prefix == own.prefix)
        };
        if !config.addresses.iter().any(is_it) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        config.addresses.retain(|own| !is_it(own));
        config.routes.remove(|way| way.source == Some(address) && way.interface == index);
        Ok(())
    })
}

/// Checks that a route is one of those that there are here.
fn check_route(route: &Route) -> Result<()> {
    if route.table != table::MAIN || !matches!(route.kind, kind::UNSPEC | kind::UNICAST) {
        return Err(Errno::EOPNOTSUPP);
    }
    let network = Address::from(route.destination);
    // The bits behind the prefix are 0 (`fib_table_insert`).
    if network.is_v4() && network.network(route.prefix) != network {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The interface of a route: that which was said, or that of its gateway.
fn interface_of(config: &Config, route: &Route) -> Result<u32> {
    match (route.interface, route.gateway) {
        (0, None) => Err(Errno::ENODEV),
        (0, Some(gateway)) => {
            let way = config.routes.find(gateway.into(), 0).filter(|way| way.gateway.is_none());
            way.map(|way| way.interface).ok_or(Errno::ENETUNREACH)
        }
        (index, _) => {
            let interface = config.interface(index).ok_or(Errno::ENODEV)?;
            if interface.is_up() { Ok(index) } else { Err(Errno::ENETDOWN) }
        }
    }
}

fn add_route(network: &Network, route: &Route, making: Making) -> Result<()> {
    check_route(route)?;
    network.change(|config| {
        let source = route.source.map(Address::from);
        if source.is_some_and(|source| !config.is_local(source)) {
            return Err(Errno::EINVAL);
        }
        let way = Way {
            network: Address::from(route.destination).network(route.prefix),
            prefix: route.prefix,
            gateway: route.gateway.map(Address::from),
            interface: interface_of(config, route)?,
            metric: route.metric,
            source,
            protocol: route.protocol,
        };
        let is_same = |other: &Way| {
            (other.network, other.prefix, other.metric) == (way.network, way.prefix, way.metric)
        };
        let exists = config.routes.iter().any(is_same);
        match (exists, making) {
            (true, Making { exclusive: true, .. }) => return Err(Errno::EEXIST),
            (true, Making { replace: true, .. }) => {
                config.routes.remove(is_same);
            }
            (true, _) => return Err(Errno::EEXIST),
            (false, Making { create: false, .. }) => return Err(Errno::ENOENT),
            (false, _) => {}
        }
        config.routes.add(way).map_err(|_| Errno::ENOMEM)?;
        Ok(())
    })
}

fn delete_route(network: &Network, route: &Route) -> Result<()> {
    check_route(route)?;
    let destination = Address::from(route.destination).network(route.prefix);
    let gateway = route.gateway.map(Address::from);
    network.change(|config| {
        let is_it = |way: &Way| {
            (way.network, way.prefix) == (destination, route.prefix)
                && (gateway.is_none() || way.gateway == gateway)
                && (route.interface == 0 || way.interface == route.interface)
                && (route.metric == 0 || way.metric == route.metric)
                && (route.protocol == 0 || way.protocol == route.protocol)
        };
        // Of several that match, the first goes.
        let found = config.routes.iter().find(|way| is_it(way)).copied().ok_or(Errno::ESRCH)?;
        config.routes.remove(|way| *way == found);
        Ok(())
    })
}
