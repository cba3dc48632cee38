//! Packets that arrived: to which protocol they go.
//!
//! Called by the thread that sent the packet (loopback) or by a device's thread; never sleeps.

use hayate_ip::header;

use super::config;
use super::datagram;
use super::icmp;
use super::icmp::Unwanted;
use super::packet::{Body, Packet};
use super::tcp;

/// Receives a packet. One for another host is dropped: this machine is no router.
pub fn receive(packet: Packet) {
    let to = packet.header.destination;
    let is_ours = || {
        let config = config::current();
        config.is_local(to) || to.is_multicast() || config.is_broadcast(to)
    };
    if packet.interface != config::LOOPBACK && !is_ours() {
        return;
    }
    match packet.body {
        Body::Tcp(ports, segment) => tcp::receive(packet.header, ports, segment, packet.interface),
        Body::Udp(..) => {
            if !datagram::receive_udp(&packet) {
                icmp::refuse(&packet, Unwanted::Port);
            }
        }
        Body::Bytes(_) => match packet.header.protocol {
            header::ICMP if to.is_v4() => icmp::receive(&packet),
            header::ICMP_V6 if !to.is_v4() => icmp::receive(&packet),
            _ => icmp::refuse(&packet, Unwanted::Protocol),
        },
    }
}
