//! This network as netlink tells of it, and the changes that programs ask for.
//!
//! Interfaces, addresses and routes are those of the newest [`config`]; Linux' table of local
//! routes, which there is none of here, follows from the addresses. Changes of addresses and routes
//! are announced by comparing the old configuration with the new one.
//!
//! Not kept, and so refused with EOPNOTSUPP when a program asks for it: lifetimes of addresses,
//! labels and names that are set, tables beside the main one, routes that refuse, neighbours that
//! are set.
//!
//! | file | contents |
//! |---|---|
//! | `describe` | interfaces, addresses and routes in the words of rtnetlink(7) |
//! | `sockets` | sockets in the words of sock_diag(7) |
//! | `one_socket` | one that is asked for by its name, and its end |
//! | `change` | changes that are asked for |
//! | this | the lists, the way to a host, and the announcements |
//!
//! Locks: none of its own.

mod change;
mod describe;
mod one_socket;
mod sockets;

use alloc::vec::Vec;
use core::net::IpAddr;

use hayate_abi::{Errno, Result};
use hayate_netlink::diag::{InetAsked, InetSocket, UnixAsked, UnixSocket};
use hayate_netlink::filter::Filter;
use hayate_netlink::route::neighbour::state;
use hayate_netlink::route::route::{kind, scope, table};
use hayate_netlink::route::{Address, Link, Neighbour, Route};

pub use self::describe::statistics_of;
use self::describe::{address_of, link_of, routes_of};
use super::config::{self, Config, Network};
use super::neighbour;
use super::netlink::provider::{self, NetworkChange, Provider};
use super::netlink::{route, socket};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// A route to this machine (`RTCF_LOCAL`), in the answer about one destination.
const LOCAL: u32 = 0x8000_0000;

/// Lets netlink tell of the network; at boot.
pub(super) fn init() {
    config::observe(announce);
    provider::register(&Told);
    socket::register();
}

struct Told;

impl Provider for Told {
    fn links(&self, network: &Network) -> Result<Vec<Link>> {
        let config = network.current();
        let mut links = Vec::new();
        links.make_room_exact(config.interfaces.len())?;
        links.extend(config.interfaces.iter().map(|interface| link_of(interface)));
        Ok(links)
    }

    fn addresses(&self, network: &Network) -> Result<Vec<Address>> {
        let config = network.current();
        let mut addresses = Vec::new();
        addresses.make_room_exact(config.addresses.len())?;
        addresses.extend(config.addresses.iter().map(|own| address_of(&config, own)));
        describe::sorted(addresses, |own| (own.address.is_ipv6(), own.index))
    }

    fn routes(&self, network: &Network) -> Result<Vec<Route>> {
        routes_of(&network.current())
    }

    fn neighbours(&self, network: &Network) -> Result<Vec<Neighbour>> {
        let mut all = Vec::new();
        // Only the first has links with neighbours.
        if !network.is_first() {
            return Ok(all);
        }
        let mut outcome = Ok(());
        neighbour::for_each(|interface, address, hardware| {
            let known = Neighbour {
                index: interface.index,
                address: address.into(),
                hardware,
                state: if hardware.is_some() { state::REACHABLE } else { state::INCOMPLETE },
                flags: 0,
                kind: kind::UNICAST,
                probes: 0,
                ages: [0; 3],
            };
            if outcome.is_ok() {
                outcome = growth::push(&mut all, known);
            }
        });
        outcome?;
        describe::sorted(all, |it| (it.address.is_ipv6(), it.index))
    }

    fn way(
        &self,
        network: &Network,
        to: IpAddr,
        from: Option<IpAddr>,
        interface: u32,
    ) -> Result<Route> {
        let config = network.current();
        if from.is_some_and(|from| !config.is_local(from.into())) {
            return Err(Errno::EINVAL);
        }
        let path = config.path(to.into(), interface)?;
        let destination = hayate_ip::Address::from(to);
        let kind = match () {
            () if path.is_local => kind::LOCAL,
            () if path.is_broadcast => kind::BROADCAST,
            () if destination.is_multicast() => kind::MULTICAST,
            () => kind::UNICAST,
        };
        let next = IpAddr::from(path.next_hop);
        Ok(Route {
            destination: to,
            prefix: if to.is_ipv4() { 32 } else { 128 },
            gateway: (!path.is_local && next != to).then_some(next),
            interface: path.interface.index,
            table: if path.is_local { table::LOCAL } else { table::MAIN },
            protocol: 0,
            scope: scope::UNIVERSE,
            kind,
            flags: if path.is_local { LOCAL } else { 0 },
            source: Some(from.unwrap_or(path.source.into())),
            metric: 0,
            user: None,
        })
    }

    fn sockets(
        &self,
        network: &Network,
        asked: &InetAsked<'_>,
        filter: &Filter<'_>,
    ) -> Result<Vec<InetSocket>> {
        sockets::of_internet(network, asked, filter)
    }

    fn socket(&self, network: &Network, asked: &InetAsked<'_>) -> Result<InetSocket> {
        one_socket::find(network, asked)
    }

    fn destroy(
        &self,
        network: &Network,
        asked: &InetAsked<'_>,
        may: fn(&Network) -> Result<()>,
    ) -> Result<()> {
        one_socket::destroy(network, asked, may)
    }

    fn unix_sockets(&self, network: &Network, asked: &UnixAsked) -> Result<Vec<UnixSocket>> {
        sockets::of_unix_domain(network, asked)
    }

    fn unix_socket(&self, network: &Network, asked: &UnixAsked) -> Result<UnixSocket> {
        sockets::one_of_unix_domain(network, asked)
    }

    fn change(&self, network: &Network, change: NetworkChange) -> Result<()> {
        change::carry_out(network, change)
    }
}

/// Announces what differs between two configurations of a namespace.
fn announce(network: &Network, old: &Config, new: &Config) {
    for gone in old.addresses.iter().filter(|own| !new.addresses.contains(own)) {
        route::announce_address(network, &address_of(old, gone), true);
    }
    for added in new.addresses.iter().filter(|own| !old.addresses.contains(own)) {
        route::announce_address(network, &address_of(new, added), false);
    }
    // Without memory for the lists no program hears of routes, as when a socket has no room.
    let (Ok(before), Ok(after)) = (routes_of(old), routes_of(new)) else { return };
    for gone in before.iter().filter(|way| !after.contains(way)) {
        route::announce_route(network, gone, true);
    }
    for added in after.iter().filter(|way| !before.contains(way)) {
        route::announce_route(network, added, false);
    }
}
