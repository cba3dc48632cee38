//! Datagrams and errors that arrive for sockets.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::Errno;
use hayate_ip::header::{self, Header};
use hayate_ip::{Address, SocketAddress};

use super::{Failure, ORIGIN_ICMP, ORIGIN_ICMP_V6, ORIGIN_LOCAL, Protocol, Received, Socket};
use crate::net::config::Network;
use crate::net::filter::View;
use crate::net::ip_options::{Discovery, Wishes};
use crate::net::packet::{Body, Packet, Ports};
use crate::net::ports::Ports as Table;
use crate::net::slice::Payload;
use crate::net::statistics::Counter;
use crate::net::{path_mtu, wire};
use crate::reclaim::growth::Grow;
use crate::schedule::time;
use crate::vfs::poll::Events;

/// Gives a UDP datagram to the sockets that want it, one of which may take its payload. Returns
/// whether there is one.
pub fn receive_udp(network: &Network, packet: &mut Packet) -> bool {
    let Body::Udp(ports, payload) = &mut packet.body else { return false };
    let to = packet.header.destination;
    if to.is_multicast() || network.current().is_broadcast(to) {
        receive_by_all(network, *ports, packet);
        return true;
    }
    let from = SocketAddress::new(packet.header.source, ports.source);
    let place = (network.key, ports.destination);
    let found = find(&super::UDP, place, to, from, packet.interface);
    let Some(socket) = found else { return false };
    if packet.segment == 0 && !socket.filter.is_set() {
        let payload = core::mem::take(payload);
        socket.arrive(&packet.header, packet.interface, from, payload, 0);
    } else if let Ok(payload) = payload.share() {
        socket.arrive_filtered(packet, from, &payload);
    } else {
        socket.count_drop();
    }
    true
}

/// Gives the answer to an echo request to the socket with its identifier.
pub fn receive_echo_reply(network: &Network, packet: &Packet, identifier: u16, payload: &Payload) {
    let from = SocketAddress::new(packet.header.source, 0);
    let to = packet.header.destination;
    let place = (network.key, identifier);
    if let Some(socket) = find(&super::ECHO, place, to, from, packet.interface) {
        socket.arrive_filtered(packet, from, payload);
    }
}

/// Finds the socket of a table that a datagram to a port and an address goes to, in the namespace
/// with the key `network`; one that is connected to its sender is preferred.
pub fn find(
    table: &Table<Socket>,
    (network, port): (u64, u16),
    to: Address,
    from: SocketAddress,
    interface: u32,
) -> Option<Arc<Socket>> {
    let choice = u32::from(from.port) ^ from.address.bits() as u32;
    table.find(network, port, to, interface, choice, |socket| socket.accepts(from))
}

fn receive_by_all(network: &Network, ports: Ports, packet: &Packet) {
    let Body::Udp(_, payload) = &packet.body else { return };
    let to = packet.header.destination;
    let from = SocketAddress::new(packet.header.source, ports.source);
    let (key, port) = (network.key, ports.destination);
    let Ok(sockets) = super::UDP.find_all(key, port, to, packet.interface) else { return };
    for socket in sockets {
        if socket.accepts(from).is_some() && socket.listens_to(to, packet) {
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
    /// The interface by which the report came.
    pub interface: u32,
    /// As much of the packet's payload as came back.
    pub payload: &'a Payload,
}

/// Tells the socket of a namespace that sent a packet of an error.
pub fn failed(network: &Network, reported: &Reported<'_>) {
    let table = match reported.protocol {
        Protocol::Udp => &super::UDP,
        Protocol::Echo => &super::ECHO,
        Protocol::Raw(number) => return super::failed_raw(network, number, reported),
    };
    let (from, to) = (reported.from, reported.to);
    if let Some(socket) = find(table, (network.key, from.port), from.address, to, 0) {
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

    /// Takes a packet of UDP or an answer to an echo request, whose payload `payload` is, if the
    /// socket's filter wants it. A packet of many datagrams is one for a socket that takes such,
    /// for others each of them (`udp_queue_rcv_skb`).
    fn arrive_filtered(&self, packet: &Packet, from: SocketAddress, payload: &Payload) {
        if packet.segment != 0 && !self.takes_many.load(Ordering::Relaxed) {
            return self.arrive_each(packet, from, payload);
        }
        let wanted = if self.filter.is_set() { self.wanted(packet, payload) } else { usize::MAX };
        if wanted != 0 {
            self.take(packet, from, payload, wanted - 1);
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

    /// Takes at most `wanted` bytes of the payload of a packet, to which others refer, too.
    pub(super) fn take(
        &self,
        packet: &Packet,
        from: SocketAddress,
        payload: &Payload,
        wanted: usize,
    ) {
        let Ok(payload) = payload.part(0, wanted) else { return self.count_drop() };
        let takes_many = self.takes_many.load(Ordering::Relaxed);
        let segment = if takes_many { packet.segment } else { 0 };
        self.arrive(&packet.header, packet.interface, from, payload, segment);
    }

    /// Puts a datagram into the queue; `segment`: see [`Received`]. It is dropped if the queue is
    /// full or there is no memory.
    fn arrive(
        &self,
        header: &Header,
        interface: u32,
        from: SocketAddress,
        payload: Payload,
        segment: u16,
    ) {
        let scope = if from.address.is_link_local() { interface } else { 0 };
        let datagram = Received {
            payload,
            from: SocketAddress { scope, ..from },
            to: header.destination,
            interface,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            time: time::realtime_ns(),
            segment,
        };
        {
            let mut queue = self.queue.lock();
            let full = !queue.admits(self.receive_limit.load(Ordering::Relaxed));
            if full || queue.no_receive || queue.datagrams.make_room(1).is_err() {
                queue.dropped = queue.dropped.saturating_add(1);
                if self.protocol == Protocol::Udp {
                    self.network().count(Counter::DatagramsDropped, header.destination.is_v4());
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

    /// A packet was too long for its path: remembers what that takes, if the socket believes
    /// routers. Returns whether the error is hard; `None` if the program is not told of it
    /// (`__udp4_lib_err`, `__udp6_lib_err`, `ping_err`, `raw_err`, `rawv6_err`).
    #[cold]
    fn heed(&self, reported: &Reported<'_>, asks: bool) -> Option<bool> {
        let to = reported.to.address;
        let discovery = self.options.lock().discovery(to.is_v4());
        let is_raw = matches!(self.protocol, Protocol::Raw(_));
        // A raw socket sends to anybody: its word alone is little.
        let is_sender = !is_raw || to.is_v4() || asks || self.remote.lock().is_some();
        if discovery.believes() && is_sender {
            let interface = match self.level.interface() {
                0 if to.is_link_local() => reported.interface,
                link => link,
            };
            let network = self.network();
            if let Ok(path) = network.current().path(to, interface) {
                let (_, _, bytes) = reported.icmp;
                path_mtu::told(network, &path, to, bytes);
            }
        }
        let wants = discovery != Discovery::Dont;
        match (self.protocol, to.is_v4()) {
            (Protocol::Raw(_), true) => Some(wants),
            (Protocol::Raw(_), false) => Some(discovery == Discovery::Do),
            (_, true) => wants.then_some(true),
            (Protocol::Udp, false) => discovery.believes().then_some(wants),
            (Protocol::Echo, false) => Some(false),
        }
    }

    /// Notes an error of this machine's own, a message that was too long, in the queue of errors
    /// (`ip_local_error`, `ipv6_local_error`); `mtu`: what the path takes. Returns the error.
    #[cold]
    pub(super) fn fail_long(&self, to: SocketAddress, mtu: u32) -> Errno {
        if self.asks_for_errors(to.address) {
            let mut queue = self.queue.lock();
            if queue.admits(self.receive_limit.load(Ordering::Relaxed))
                && queue.failures.make_room(1).is_ok()
            {
                let payload = Payload::new();
                queue.hold(&payload);
                queue.failures.push_back(Failure {
                    errno: Errno::EMSGSIZE,
                    origin: ORIGIN_LOCAL,
                    kind: 0,
                    code: 0,
                    information: mtu,
                    reporter: to.address,
                    to,
                    payload,
                });
                drop(queue);
                self.wake(Events::ERR);
            }
        }
        Errno::EMSGSIZE
    }

    /// Whether the program asks for errors about packets to an address (IP_RECVERR).
    fn asks_for_errors(&self, to: Address) -> bool {
        let wish = if to.is_v4() && !self.v6 { Wishes::ERRORS } else { Wishes::ERRORS_V6 };
        self.options.lock().wishes.contains(wish)
    }

    /// Notes an error: for the next call if the socket is connected or asks for errors, in the
    /// queue of errors if it asks and that has room (`__udp4_lib_err`, `sock_queue_err_skb`).
    pub(super) fn fail(&self, reported: &Reported<'_>) {
        let v4 = reported.to.address.is_v4();
        let asks = self.asks_for_errors(reported.to.address);
        let mut is_hard = reported.is_hard;
        if reported.errno == Errno::EMSGSIZE {
            match self.heed(reported, asks) {
                Some(hard) => is_hard = hard,
                None => return,
            }
        }
        let told = asks || is_hard && self.remote.lock().is_some();
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
                    origin: if v4 { ORIGIN_ICMP } else { ORIGIN_ICMP_V6 },
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
