//! Which sockets may be bound to one port, and which of them gets a packet.
//!
//! The rules are those of Linux 6.1: `inet_bind_conflict` (net/ipv4/inet_connection_sock.c),
//! `udp_lib_lport_inuse` and `compute_score` (net/ipv4/udp.c), `inet_rcv_saddr_equal`.

use crate::Address;

/// How a socket is bound to its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The local address; a wildcard address for all of its version.
    pub address: Address,
    /// It is bound to `::` and takes no IPv4 packets (IPV6_V6ONLY).
    pub only_v6: bool,
    /// The interface of SO_BINDTODEVICE, 0 for none.
    pub interface: u32,
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// The kernel chose the port for a connection; such connections share ports, as their other
    /// ends differ.
    pub automatic: bool,
    /// The user who made the socket: SO_REUSEPORT shares a port only among sockets of one user.
    pub user: u32,
    /// A stream socket that listens.
    pub listens: bool,
}

impl Binding {
    /// Whether packets for one address could go to both.
    fn overlaps(&self, other: &Binding) -> bool {
        let covers = |wide: &Binding, narrow: &Binding| {
            wide.address == Address::ANY_V6 && !(wide.only_v6 && narrow.address.is_v4())
        };
        if covers(self, other) || covers(other, self) {
            return true;
        }
        if self.address.is_v4() != other.address.is_v4() {
            return false;
        }
        self.address == other.address || self.address.is_any() || other.address.is_any()
    }

    fn meets(&self, other: &Binding) -> bool {
        let apart = self.interface != 0 && other.interface != 0;
        !(apart && self.interface != other.interface) && self.overlaps(other)
    }

    /// Whether both asked to share the port as sockets of one user.
    fn shares(&self, other: &Binding) -> bool {
        self.reuse_port && other.reuse_port && self.user == other.user
    }

    /// Whether a stream socket cannot be bound so beside `other`: `EADDRINUSE`.
    pub fn conflicts_as_stream(&self, other: &Binding) -> bool {
        let reused = self.reuse_address && other.reuse_address && !other.listens;
        let connected = self.automatic && other.automatic;
        !connected && !reused && !self.shares(other) && self.meets(other)
    }

    /// Whether a datagram socket cannot be bound so beside `other`: `EADDRINUSE`.
    pub fn conflicts_as_datagram(&self, other: &Binding) -> bool {
        let reused = self.reuse_address && other.reuse_address;
        !reused && !self.shares(other) && self.meets(other)
    }

    /// Returns how well a packet for `to` that arrived on `interface` matches, the more the better;
    /// `None` if the socket does not want it.
    #[inline]
    pub fn score(&self, to: Address, interface: u32) -> Option<u32> {
        let mut score = 1;
        if self.interface != 0 {
            if self.interface != interface {
                return None;
            }
            score += 4;
        }
        if self.address == to {
            return Some(score + 2);
        }
        if self.address == Address::ANY_V6 {
            return (!(self.only_v6 && to.is_v4())).then_some(score);
        }
        (self.address == Address::ANY_V4 && to.is_v4()).then_some(score + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Address = Address::LOOPBACK_V4;

    fn at(address: Address) -> Binding {
        Binding {
            address,
            only_v6: false,
            interface: 0,
            reuse_address: false,
            reuse_port: false,
            automatic: false,
            user: 0,
            listens: false,
        }
    }

    fn both(one: Binding, other: Binding) -> bool {
        assert_eq!(one.conflicts_as_stream(&other), other.conflicts_as_stream(&one));
        one.conflicts_as_stream(&other)
    }

    #[test]
    fn addresses_that_overlap_conflict() {
        assert!(both(at(LOCAL), at(LOCAL)));
        assert!(both(at(LOCAL), at(Address::ANY_V4)));
        assert!(both(at(LOCAL), at(Address::ANY_V6)));
        assert!(both(at(Address::LOOPBACK_V6), at(Address::ANY_V6)));
        assert!(!both(at(Address::LOOPBACK_V6), at(Address::ANY_V4)));
        assert!(!both(at(LOCAL), at(Address::v4(0x7f00_0002))));
        let only = Binding { only_v6: true, ..at(Address::ANY_V6) };
        assert!(!both(only, at(LOCAL)));
        assert!(both(only, at(Address::LOOPBACK_V6)));
    }

    #[test]
    fn interfaces_keep_bindings_apart() {
        let (one, two) =
            (Binding { interface: 1, ..at(LOCAL) }, Binding { interface: 2, ..at(LOCAL) });
        assert!(!both(one, two));
        assert!(both(one, at(LOCAL)));
    }

    #[test]
    fn both_have_to_ask_for_reuse() {
        let reuse = Binding { reuse_address: true, ..at(LOCAL) };
        assert!(!both(reuse, reuse));
        assert!(both(reuse, at(LOCAL)));
        let listening = Binding { listens: true, ..reuse };
        assert!(reuse.conflicts_as_stream(&listening));
        assert!(!listening.conflicts_as_stream(&reuse));
        assert!(!reuse.conflicts_as_datagram(&reuse));
        let port = Binding { reuse_port: true, ..at(LOCAL) };
        assert!(!both(port, Binding { listens: true, ..port }));
        assert!(both(port, Binding { user: 7, ..port }));
        assert!(port.conflicts_as_datagram(&Binding { user: 7, ..port }));
    }

    #[test]
    fn the_closest_binding_has_the_best_score() {
        let scores =
            [at(LOCAL), at(Address::ANY_V4), at(Address::ANY_V6)].map(|b| b.score(LOCAL, 1));
        assert!(scores[0] > scores[1] && scores[1] > scores[2] && scores[2].is_some());
        assert_eq!(Binding { only_v6: true, ..at(Address::ANY_V6) }.score(LOCAL, 1), None);
        assert_eq!(Binding { interface: 2, ..at(LOCAL) }.score(LOCAL, 1), None);
        assert_eq!(at(Address::ANY_V4).score(Address::LOOPBACK_V6, 1), None);
    }
}
