//! Datagrams and errors that arrive for sockets.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::Errno;
use hayate_ip::{Address, SocketAddress, header};

use super::{Failure, Protocol, Received, Socket};
use crate::net::filter::View;
use crate::net::ip_options::Wishes;
use crate::net::packet::{Body, Packet, Ports};
use crate::net::ports::Ports as Table;
use crate::net::slice::Payload;
use crate::net::statistics::{Counter, count};
use crate::net::wire;
use crate::net::{config, groups};
use crate::reclaim::growth::Grow;
use crate::schedule::time;
use crate::vfs::poll::Events;

/// Gives a UDP datagram to the sockets that want it. Returns whether there is one.
pub fn receive_udp(packet: &Packet) -> bool {
    let Body::Udp(ports, payload) = &packet.body else { return false };
    let to = packet.header.destination;
    if to.is_multicast() || config::current().is_broadcast(to) {
        receive_by_all(*ports, packet);
        return true;
    }
    let from = SocketAddress::new(packet.header.source, ports.source);
    let found = find(&super::UDP, ports.destination, to, from, packet.interface);
    if let Some(socket) = &found {
        socket.arrive_filtered(packet, from, payload);
    }
    found.is_some()
}

/// Gives the answer to an echo request to the socket with its identifier.
pub fn receive_echo_reply(packet: &Packet, identifier: u16, payload: &Payload) {
    let from = SocketAddress::new(packet.header.source, 0);
    let to = packet.header.destination;
    if let Some(socket) = find(&super::ECHO, identifier, to, from, packet.interface) {
        socket.arrive_filtered(packet, from, payload);
    }
}

/// Finds the socket of a table that a datagram to a port and an address goes to; one that is
/// connected to its sender is preferred.
pub fn find(
    table: &Table<Socket>,
    port: u16,
    to: Address,
    from: SocketAddress,
    interface: u32,
) -> Option<Arc<Socket>> {
    let choice = u32::from(from.port) ^ from.address.bits() as u32;
    table.find(port, to, interface, choice, |socket| socket.accepts(from))
}

fn receive_by_all(ports: Ports, packet: &Packet) {
    let Body::Udp(_, payload) = &packet.body else { return };
    let to = packet.header.destination;
    let from = SocketAddress::new(packet.header.source, ports.source);
    let Ok(sockets) = super::UDP.find_all(ports.destination, to, packet.interface) else { return };
    for socket in sockets {
        if socket.accepts(from).is_some() && socket.listens_to(to, packet.interface) {
            socket.arrive_filtered(packet, from, payload);
        }
    }
}

/// An error that ICMP reported about a packet of this machine.
pub struct Reported<'a> {
    /// The protocol of the packet.
    pub protocol: Protocol,
    /// Its sender and receiver.
    pub from: SocketAddress,
    /// The receiver.
    pub to: SocketAddress,
    /// The error; a hard one is told to connected sockets.
    pub errno: Errno,
    /// Whether a connected socket is told of it without IP_RECVERR.
    pub is_hard: bool,
    /// Type, code and information of ICMP.
    pub icmp: (u8, u8, u32),
    /// The host that reported it.
    pub reporter: Address,
    /// As much of the packet's payload as came back.
    pub payload: &'a Payload,
}

/// Tells the socket that sent a packet of an error.
pub fn failed(reported: &Reported<'_>) {
    let table = match reported.protocol {
        Protocol::Udp => &super::UDP,
        Protocol::Echo => &super::ECHO,
        Protocol::Raw(number) => return super::failed_raw(number, reported),
    };
    let (from, to) = (reported.from, reported.to);
    if let Some(socket) = find(table, from.port, from.address, to, 0) {
        socket.fail(reported);
    }
}

impl Socket {
    /// Says how much better than an unconnected socket this one fits a sender; `None` if it is
    /// connected to another one.
    pub(super) fn accepts(&self, from: SocketAddress) -> Option<u32> {
        match *self.remote.lock() {
            None => Some(0),
            Some(remote) => {
                let port = self.protocol != Protocol::Udp || remote.port == from.port;
                (port && remote.address == from.address).then_some(4)
            }
        }
    }

    /// Whether it gets packets of a multicast group.
    pub(super) fn listens_to(&self, group: Address, interface: u32) -> bool {
        if !group.is_multicast() {
            return true;
        }
        // IP_MULTICAST_ALL: every group that a socket of this machine has joined (ip(7)).
        let all = self.options.lock().wishes.contains(Wishes::MULTICAST_ALL);
        self.groups_have(group, interface) || all && groups::is_joined(group, interface)
    }

    /// Takes a packet of UDP or an answer to an echo request, whose payload `payload` is, if the
    /// socket's filter wants it. A packet of many datagrams is one for a socket that takes such,
    /// for others each of them (`udp_queue_rcv_skb`).
    fn arrive_filtered(&self, packet: &Packet, from: SocketAddress, payload: &Payload) {
        if packet.segment != 0 && !self.takes_many.load(Ordering::Relaxed) {
            return self.arrive_each(packet, from, payload);
        }
        let wanted = if self.filter.is_set() { self.wanted(packet, payload) } else { usize::MAX };
        if wanted != 0 {
            self.arrive(packet, from, payload, wanted - 1);
        }
    }

    /// Takes the datagrams of a packet one after the other.
    #[cold]
    fn arrive_each(&self, packet: &Packet, from: SocketAddress, payload: &Payload) {
        let Body::Udp(ports, _) = packet.body else { return };
        let (size, header) = (usize::from(packet.segment), packet.header);
        for start in (0..payload.len()).step_by(size) {
            // Without memory it is lost, as when the queue is full.
            let Ok(part) = payload.part(start, start + size) else { return self.count_drop() };
            let Ok(shared) = part.share() else { return self.count_drop() };
            let body = Body::Udp(ports, part);
            let one = Packet { header, body, interface: packet.interface, segment: 0 };
            self.arrive_filtered(&one, from, &shared);
        }
    }

    fn count_drop(&self) {
        let mut queue = self.queue.lock();
        queue.dropped = queue.dropped.saturating_add(1);
    }

    /// Asks the filter. Returns how many bytes of the payload are wanted, plus one; 0 for a packet
    /// that is not wanted. It sees the header of UDP, of which nothing can be cut off
    /// (`udp_queue_rcv_one_skb`).
    #[inline(never)]
    fn wanted(&self, packet: &Packet, payload: &Payload) -> usize {
        let mut bytes = [0; wire::HEADERS];
        let Ok((length, ..)) = wire::head(packet, &mut bytes, false) else { return 0 };
        let data = header::length(&packet.header);
        let view = View::of_packet(packet, &bytes[..length], payload, data);
        match self.filter.verdict(&view) {
            0 => {
                self.count_drop();
                0
            }
            wanted => wanted.saturating_sub(length - data) + 1,
        }
    }

    /// Puts at most `wanted` bytes of a datagram into the queue. It is dropped if the queue is full
    /// or there is no memory.
    pub(super) fn arrive(
        &self,
        packet: &Packet,
        from: SocketAddress,
        payload: &Payload,
        wanted: usize,
    ) {
        let (header, interface) = (&packet.header, packet.interface);
        let Ok(payload) = payload.part(0, wanted) else { return self.count_drop() };
        let scope = if from.address.is_link_local() { interface } else { 0 };
        let datagram = Received {
            payload,
            from: SocketAddress { scope, ..from },
            to: header.destination,
            interface,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            time: time::realtime_ns(),
            segment: if self.takes_many.load(Ordering::Relaxed) { packet.segment } else { 0 },
        };
        {
            let mut queue = self.queue.lock();
            let full = !queue.admits(self.receive_limit.load(Ordering::Relaxed));
            if full || queue.no_receive || queue.datagrams.make_room(1).is_err() {
                queue.dropped = queue.dropped.saturating_add(1);
                if self.protocol == Protocol::Udp {
                    count(Counter::DatagramsDropped, header.destination.is_v4());
                }
                return;
            }
            queue.hold(&datagram.payload);
            queue.datagrams.push_back(datagram);
        }
        // As `udp_queue_rcv_skb`: packets of many senders come by many processors.
        if self.remote.lock().is_some() {
            self.common.came_in_here();
        }
        self.wake(Events::READABLE);
    }

    /// Notes an error: for the next call if the socket is connected or asks for errors, in the
    /// queue of errors if it asks and that has room (`__udp4_lib_err`, `sock_queue_err_skb`).
    pub(super) fn fail(&self, reported: &Reported<'_>) {
        let v4 = reported.to.address.is_v4();
        let wish = if v4 && !self.v6 { Wishes::ERRORS } else { Wishes::ERRORS_V6 };
        let asks = self.options.lock().wishes.contains(wish);
        let told = asks || reported.is_hard && self.remote.lock().is_some();
        if !told {
            return;
        }
        {
            let mut queue = self.queue.lock();
            if asks
                && queue.admits(self.receive_limit.load(Ordering::Relaxed))
                && queue.failures.make_room(1).is_ok()
                && let Ok(payload) = reported.payload.share()
            {
                queue.hold(&payload);
                let (kind, code, information) = reported.icmp;
                queue.failures.push_back(Failure {
                    errno: reported.errno,
                    // SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6.
                    origin: if v4 { 2 } else { 3 },
                    kind,
                    code,
                    information,
                    reporter: reported.reporter,
                    to: reported.to,
                    payload,
                });
            }
            queue.error = Some(reported.errno);
        }
        self.wake(Events::ERR);
    }
}
