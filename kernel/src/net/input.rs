//! Packets that arrived: to which protocol they go.
//!
//! Called by the thread that sent the packet (loopback) or by a device's thread; never sleeps.

use hayate_ip::header;

use super::config;
use super::config::Network;
use super::datagram;
use super::fragments;
use super::groups;
use super::icmp;
use super::icmp::Unwanted;
use super::packet::{Body, Packet};
use super::statistics::Counter;
use super::{tcp, wire};
use crate::namespace::Handle;

/// Receives a packet in a network namespace. One for another host is dropped: this machine is no
/// router.
pub fn receive(network: &Handle<Network>, packet: Packet) {
    let to = packet.header.destination;
    network.count(Counter::Received, to.is_v4());
    let is_ours = || {
        let config = network.current();
        config.is_local(to) || to.is_multicast() || config.is_broadcast(to)
    };
    // What the loopback interface brings is for the loopback address nearly always; a route may
    // lead others there.
    let is_usual = packet.interface == config::LOOPBACK && to.is_loopback();
    if !is_usual && !is_ours() {
        network.count(Counter::Strangers, to.is_v4());
        return;
    }
    if packet.header.fragment.is_some() {
        return fragments::receive(network, packet).map_or((), |packet| deliver(network, packet));
    }
    deliver(network, packet);
}

/// Gives a whole packet to the sockets that want it.
fn deliver(network: &Network, mut packet: Packet) {
    let is_v4 = packet.header.destination.is_v4();
    let is_taken = datagram::receive_raw(network, &packet);
    let is_known = match packet.header.protocol {
        header::ICMP => is_v4,
        header::ICMP_V6 => !is_v4,
        header::IGMP => is_v4,
        number => is_taken || matches!(number, header::TCP | header::UDP),
    };
    let is_delivered = is_known || !matches!(packet.body, Body::Bytes(_));
    network.count(if is_delivered { Counter::Delivered } else { Counter::UnknownProtocols }, is_v4);
    match packet.body {
        Body::Udp(..) => deliver_udp(network, &mut packet),
        Body::Tcp(ports, segment) => {
            tcp::receive(network, packet.header, ports, segment, packet.interface);
        }
        Body::Bytes(_) => match packet.header.protocol {
            header::ICMP if is_v4 => icmp::receive(network, &packet),
            header::ICMP_V6 if !is_v4 => icmp::receive(network, &packet),
            header::IGMP if is_v4 => groups::receive(&packet),
            // A raw socket sent it, or it came in fragments.
            header::TCP | header::UDP => {
                if let Some(packet) = wire::parse_body(network, packet) {
                    deliver_transport(network, packet);
                }
            }
            _ if is_taken => {}
            _ => icmp::refuse(network, &packet, Unwanted::Protocol),
        },
    }
}

fn deliver_transport(network: &Network, mut packet: Packet) {
    match packet.body {
        Body::Tcp(ports, segment) => {
            tcp::receive(network, packet.header, ports, segment, packet.interface);
        }
        Body::Udp(..) => deliver_udp(network, &mut packet),
        Body::Bytes(_) => {}
    }
}

fn deliver_udp(network: &Network, packet: &mut Packet) {
    if !datagram::receive_udp(network, packet) {
        network.count(Counter::NoPorts, packet.header.destination.is_v4());
        icmp::refuse(network, packet, Unwanted::Port);
    }
}
