//! The routing table: the longest prefix that holds the destination wins, then the smallest metric
//! (ip-route(8)).

use alloc::vec::Vec;

use crate::Address;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network that it leads to.
    pub network: Address,
    /// The length of the network's prefix in bits.
    pub prefix: u8,
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<Address>,
    /// The interface that packets leave by.
    pub interface: u32,
    /// The smaller one is preferred.
    pub metric: u32,
    /// The source address for sockets without one.
    pub source: Option<Address>,
    /// The origin of the route (`RTPROT_*` of rtnetlink(7)).
    pub protocol: u8,
}

/// All routes.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The longest prefixes first, the smallest metrics first among these.
    routes: Vec<Route>,
}

impl Routes {
    /// A table without routes.
    pub const fn new() -> Self {
        Self { routes: Vec::new() }
    }

    fn place(&self, route: &Route) -> usize {
        let key = |route: &Route| (u8::MAX - route.prefix, route.metric);
        self.routes.partition_point(|other| key(other) <= key(route))
    }

    /// Adds a route behind those that are as good. Returns `false` if there is one already by the
    /// same interface and gateway. (Two interfaces on one link each have a route to its network.)
    ///
    /// # Errors
    /// The memory for it is exhausted.
    pub fn add(&mut self, route: Route) -> Result<bool, alloc::collections::TryReserveError> {
        let same = |other: &Route| {
            (other.network, other.prefix, other.metric)
                == (route.network, route.prefix, route.metric)
                && (other.interface, other.gateway) == (route.interface, route.gateway)
                && other.network.is_v4() == route.network.is_v4()
        };
        if self.routes.iter().any(same) {
            return Ok(false);
        }
        self.routes.try_reserve(1)?;
        let place = self.place(&route);
        self.routes.insert(place, route);
        Ok(true)
    }

    /// Removes the routes for which `is_it` is true; returns how many.
    pub fn remove(&mut self, is_it: impl Fn(&Route) -> bool) -> usize {
        let before = self.routes.len();
        self.routes.retain(|route| !is_it(route));
        before - self.routes.len()
    }

    /// Finds the route to a destination; only by `interface` if that is not 0.
    pub fn find(&self, to: Address, interface: u32) -> Option<&Route> {
        self.routes.iter().find(|route| {
            (interface == 0 || route.interface == interface)
                && to.is_in(route.network, route.prefix)
        })
    }

    /// Returns all routes, the longest prefixes first.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(network: u32, prefix: u8, interface: u32, metric: u32) -> Route {
        Route {
            network: Address::v4(network),
            prefix,
            gateway: None,
            interface,
            metric,
            source: None,
            protocol: 2,
        }
    }

    #[test]
    fn the_longest_prefix_and_then_the_smallest_metric_win() {
        let mut routes = Routes::new();
        for new in [
            route(0, 0, 1, 100),
            route(0x0a00_0000, 8, 2, 0),
            route(0x0a01_0000, 16, 3, 10),
            route(0x0a01_0000, 16, 4, 5),
            // Where no interface is named, the first of two that are as good is taken.
            route(0x0a00_0000, 8, 5, 0),
        ] {
            assert_eq!(routes.add(new), Ok(true));
            assert_eq!(routes.add(new), Ok(false));
        }
        let by = |to: u32, interface| {
            routes.find(Address::v4(to), interface).map(|route| route.interface)
        };
        assert_eq!(by(0x0a01_0203, 0), Some(4));
        assert_eq!(by(0x0a01_0203, 3), Some(3));
        assert_eq!(by(0x0a02_0203, 0), Some(2));
        assert_eq!(by(0x0a02_0203, 5), Some(5));
        assert_eq!(by(0x0b02_0203, 0), Some(1));
        assert_eq!(by(0x0b02_0203, 9), None);
        assert_eq!(routes.find(Address::LOOPBACK_V6, 0), None);
        assert_eq!(routes.remove(|route| route.interface == 4), 1);
        assert_eq!(routes.find(Address::v4(0x0a01_0203), 0).map(|route| route.interface), Some(3));
    }
}
