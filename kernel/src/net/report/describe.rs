//! Interfaces, addresses and routes in the words of rtnetlink(7).

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::Ordering;

use hayate_abi::Result;
use hayate_ip::route::Route as Way;
use hayate_netlink::route::link::{Name, Statistics, state as link_state};
use hayate_netlink::route::route::{kind, protocol, scope, table};
use hayate_netlink::route::{Address, Link, Route, address};

use super::super::config::{self, Config, Interface, LocalAddress, flag};
use super::super::loopback;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// The hardware types of `ARPHRD_LOOPBACK` and `ARPHRD_ETHER`.
const HARDWARE_LOOPBACK: u16 = 772;
const HARDWARE_ETHERNET: u16 = 1;
/// The least MTU of an interface with a device (`ETH_MIN_MTU`).
pub(super) const LEAST_MTU: u32 = 68;
/// The queue's length of `alloc_netdev`; packets are handed on at once, as by Linux' `noqueue`.
const QUEUE_LENGTH: u32 = 1000;

/// Returns what is told of an interface.
pub(super) fn link_of(interface: &Interface) -> Link {
    let flags = interface.shown_flags();
    let device = interface.device.as_ref();
    Link {
        index: interface.index,
        name: name_of(interface),
        hardware_type: if device.is_some() { HARDWARE_ETHERNET } else { HARDWARE_LOOPBACK },
        hardware: interface.hardware(),
        broadcast: if device.is_some() { [0xff; 6] } else { [0; 6] },
        mtu: interface.mtu() as u32,
        least_mtu: if device.is_some() { LEAST_MTU } else { 0 },
        most_mtu: device.map_or(0, |card| card.mtu() as u32),
        flags,
        state: match (flags & flag::LOWER_UP != 0, device) {
            (false, _) => link_state::DOWN,
            (true, None) => link_state::UNKNOWN,
            (true, Some(_)) => link_state::UP,
        },
        queue_length: QUEUE_LENGTH,
        queue: "noqueue",
        statistics: statistics_of(interface),
    }
}

/// Returns the counts of an interface. Those of the first loopback interface lie on each processor.
pub fn statistics_of(interface: &Interface) -> Statistics {
    let counters = &interface.counters;
    let (packets, bytes) = match (interface.is_loopback(), interface.key) {
        (true, 0) => loopback::passed(),
        _ => (0, 0),
    };
    Statistics {
        packets_in: packets + counters.packets_in.load(Ordering::Relaxed),
        packets_out: packets + counters.packets_out.load(Ordering::Relaxed),
        bytes_in: bytes + counters.bytes_in.load(Ordering::Relaxed),
        bytes_out: bytes + counters.bytes_out.load(Ordering::Relaxed),
        dropped_in: counters.dropped_in.load(Ordering::Relaxed),
        dropped_out: counters.dropped_out.load(Ordering::Relaxed),
        ..Statistics::default()
    }
}

/// Returns the name of an interface.
pub(super) fn name_of(interface: &Interface) -> Name {
    interface.name.bytes().take(Name::new().capacity()).collect()
}

/// Returns what is told of an address.
pub(super) fn address_of(config: &Config, own: &LocalAddress) -> Address {
    let on_loopback = own.interface == config::LOOPBACK;
    let broadcast = own.address.broadcast(own.prefix).filter(|_| !on_loopback);
    let label = config.interface(own.interface).filter(|_| own.address.is_v4());
    Address {
        index: own.interface,
        address: own.address.into(),
        prefix: own.prefix,
        scope: match () {
            () if own.address.is_loopback() => scope::HOST,
            () if own.address.is_link_local() => scope::LINK,
            () => scope::UNIVERSE,
        },
        flags: address::flag::PERMANENT,
        broadcast: broadcast.map(IpAddr::from),
        label: label.map(|interface| name_of(interface)),
        preferred: address::FOREVER,
        valid: address::FOREVER,
        made: 0,
        changed: 0,
    }
}

/// Returns what is told of all routes: those of IPv4 first, the main table before the local one.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn routes_of(config: &Config) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for way in config.routes.iter().filter(|way| !is_local(way)) {
        growth::push(&mut routes, route_of(way))?;
    }
    for own in &config.addresses {
        for route in local_routes(own).into_iter().flatten() {
            growth::push(&mut routes, route)?;
        }
    }
    sorted(routes, |route| (route.destination.is_ipv6(), route.table))
}

/// Sorts a list by a key; entries with equal keys stay in their order. The library's stable sort
/// takes memory that cannot be refused, and a page of the stack.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn sorted<T, K: Ord>(list: Vec<T>, key: impl Fn(&T) -> K) -> Result<Vec<T>> {
    let mut numbered = Vec::new();
    numbered.make_room_exact(list.len())?;
    numbered.extend(list.into_iter().enumerate());
    numbered.sort_unstable_by_key(|(number, entry)| (key(entry), *number));
    let mut list = Vec::new();
    list.make_room_exact(numbered.len())?;
    list.extend(numbered.into_iter().map(|(_, entry)| entry));
    Ok(list)
}

/// Whether a route is one of Linux' local table: that of a loopback address, or of an address that
/// has no network.
fn is_local(way: &Way) -> bool {
    let whole = if way.network.is_v4() { 32 } else { 128 };
    way.network.is_loopback() || way.prefix == whole && way.source == Some(way.network)
}

/// Returns what is told of a route of the main table.
fn route_of(way: &Way) -> Route {
    let v4 = way.network.is_v4();
    let on_link = v4 && way.gateway.is_none();
    Route {
        destination: way.network.into(),
        prefix: way.prefix,
        gateway: way.gateway.map(IpAddr::from),
        interface: way.interface,
        table: table::MAIN,
        protocol: way.protocol,
        scope: if on_link { scope::LINK } else { scope::UNIVERSE },
        kind: kind::UNICAST,
        flags: 0,
        source: way.source.filter(|_| v4).map(IpAddr::from),
        metric: way.metric,
        user: None,
    }
}

/// The routes of Linux' local table that an address stands for (`fib_add_ifaddr`): to itself, to
/// the network 127.0.0.0/8, and to the last address of its network.
fn local_routes(own: &LocalAddress) -> [Option<Route>; 3] {
    let v4 = own.address.is_v4();
    let route = |destination: IpAddr, prefix, kind, scope| Route {
        destination,
        prefix,
        gateway: None,
        interface: own.interface,
        table: table::LOCAL,
        protocol: protocol::KERNEL,
        scope,
        kind,
        flags: 0,
        source: v4.then_some(own.address.into()),
        metric: 0,
        user: None,
    };
    if !v4 {
        let itself = route(own.address.into(), 128, kind::LOCAL, scope::UNIVERSE);
        return [Some(itself), None, None];
    }
    let network: IpAddr = own.address.network(own.prefix).into();
    let is_loopback = own.interface == config::LOOPBACK && own.prefix < 32;
    let whole = is_loopback.then(|| route(network, own.prefix, kind::LOCAL, scope::HOST));
    let itself = route(own.address.into(), 32, kind::LOCAL, scope::HOST);
    let last = own.address.broadcast(own.prefix);
    let last = last.map(|last| route(last.into(), 32, kind::BROADCAST, scope::LINK));
    [whole, Some(itself), last]
}
