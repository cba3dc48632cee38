//! The lists and changes of NETLINK_ROUTE, and the lists of NETLINK_SOCK_DIAG: the network
//! implements [`Provider`] and registers itself at boot, before the family of sockets.

use alloc::vec::Vec;
use core::net::IpAddr;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;
use hayate_netlink::diag::{InetAsked, InetSocket, UnixAsked, UnixSocket};
use hayate_netlink::filter::Filter;
use hayate_netlink::route::link::Name;
use hayate_netlink::route::{Address, Link, Neighbour, Route};

use crate::net::config::Network;

/// The network, as seen from here, of a namespace. The lists are copies, made where growth can
/// fail.
pub trait Provider: Send + Sync {
    /// Returns all links, in the order of their indexes.
    fn links(&self, network: &Network) -> Result<Vec<Link>>;

    /// Returns all addresses, those of IPv4 first.
    fn addresses(&self, network: &Network) -> Result<Vec<Address>>;

    /// Returns all routes, those of IPv4 first.
    fn routes(&self, network: &Network) -> Result<Vec<Route>>;

    /// Returns all neighbours, those of IPv4 first.
    fn neighbours(&self, network: &Network) -> Result<Vec<Neighbour>>;

    /// Finds the way to a destination, by one interface if that is not 0: ENETUNREACH.
    fn way(
        &self,
        network: &Network,
        to: IpAddr,
        from: Option<IpAddr>,
        interface: u32,
    ) -> Result<Route>;

    /// Returns the sockets of the Internet that are asked for and that the filter selects: ENOENT
    /// for a protocol that is not known.
    fn sockets(
        &self,
        network: &Network,
        asked: &InetAsked<'_>,
        filter: &Filter<'_>,
    ) -> Result<Vec<InetSocket>>;

    /// Returns the socket of the Internet that is asked for by its name: ENOENT, ESTALE.
    fn socket(&self, network: &Network, asked: &InetAsked<'_>) -> Result<InetSocket>;

    /// Ends the socket that is asked for by its name, if `may` allows it: ENOENT, ESTALE, the
    /// errors of `may`; EOPNOTSUPP for the remnant of a connection.
    fn destroy(
        &self,
        network: &Network,
        asked: &InetAsked<'_>,
        may: fn(&Network) -> Result<()>,
    ) -> Result<()>;

    /// Returns the sockets of the Unix domain that are asked for.
    fn unix_sockets(&self, network: &Network, asked: &UnixAsked) -> Result<Vec<UnixSocket>>;

    /// Returns the socket of the Unix domain with the number that is asked for: ENOENT, ESTALE.
    fn unix_socket(&self, network: &Network, asked: &UnixAsked) -> Result<UnixSocket>;

    /// Carries out a change; the caller is privileged.
    fn change(&self, network: &Network, change: NetworkChange) -> Result<()> {
        let _ = (network, change);
        Err(Errno::EOPNOTSUPP)
    }
}

/// The way in which something new is made (`NLM_F_CREATE`, `NLM_F_EXCL`, `NLM_F_REPLACE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Making {
    /// It may be new.
    pub create: bool,
    /// It must be new: EEXIST.
    pub exclusive: bool,
    /// An entry that is there is changed.
    pub replace: bool,
}

/// A change that a program asked for.
#[derive(Clone, Debug)]
pub enum NetworkChange {
    /// Sets flags, the largest packet, the hardware address or the name of a link.
    Link {
        /// The link: its index.
        index: u32,
        /// The flags, and which of them to set.
        flags: u32,
        /// See `flags`.
        mask: u32,
        /// The largest packet.
        mtu: Option<u32>,
        /// The hardware address.
        hardware: Option<[u8; 6]>,
        /// The length of its queue.
        queue_length: Option<u32>,
        /// A new name.
        name: Option<Name>,
    },
    /// Adds an address.
    NewAddress(Address, Making),
    /// Removes an address: EADDRNOTAVAIL. With a prefix of `None`, of any network.
    DeleteAddress {
        /// The link.
        index: u32,
        /// The address.
        address: IpAddr,
        /// The length of its network's prefix.
        prefix: Option<u8>,
    },
    /// Adds a route.
    NewRoute(Route, Making),
    /// Removes a route: ESRCH. Fields that are 0 or `None` match any.
    DeleteRoute(Route),
    /// Sets what is known of a neighbour.
    NewNeighbour(Neighbour, Making),
    /// Forgets a neighbour: ENOENT.
    DeleteNeighbour {
        /// The link.
        index: u32,
        /// Its address.
        address: IpAddr,
    },
}

static PROVIDER: Once<&'static dyn Provider> = Once::new();

/// Registers the network; at boot.
pub fn register(provider: &'static dyn Provider) {
    PROVIDER.call_once(|| provider);
}

/// Returns the network.
pub(super) fn provider() -> Result<&'static dyn Provider> {
    PROVIDER.get().copied().ok_or(Errno::EOPNOTSUPP)
}
