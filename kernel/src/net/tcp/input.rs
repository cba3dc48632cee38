//! Segments that arrive: to which socket they belong.

use alloc::sync::Arc;

use hayate_ip::header::{self, Header};
use hayate_ip::icmp::Failure;
use hayate_ip::{Address, SocketAddress};
use hayate_tcp::{Error, Events, Segment, Seq, Verdict};

use super::route::{Ends, Route};
use super::table::{self, ConnectionEntry, Remnant};
use super::{PORTS, Socket};
use crate::net::config::Network;
use crate::net::filter::{Filter, View};
use crate::net::ip_options::Discovery;
use crate::net::packet::{Body, Packet, Ports};
use crate::net::slice::{Payload, Slice};
use crate::net::statistics::TcpCounter;
use crate::net::{path_mtu, wire};
use crate::schedule::time::{monotonic_ns, realtime_ns};

/// Receives a segment.
pub fn receive(
    network: &Network,
    header: Header,
    ports: Ports,
    segment: Segment<Slice>,
    interface: u32,
) {
    network.count_tcp(TcpCounter::Received);
    let ends = Ends {
        network: network.key,
        local: SocketAddress::new(header.destination, ports.destination),
        remote: SocketAddress::new(header.source, ports.source),
    };
    match table::find(&ends) {
        Some(ConnectionEntry::Socket(socket)) if socket.filter.is_set() => {
            if let Some(wanted) = filtered(&socket.filter, header, ends, segment, interface) {
                socket.on_segment(wanted);
            }
        }
        Some(ConnectionEntry::Socket(socket)) => socket.on_segment(segment),
        Some(ConnectionEntry::Remnant(remnant)) => {
            on_remnant(network, &remnant, header, ends, segment, interface);
        }
        None => on_stranger(network, header, ends, segment, interface, None),
    }
}

/// Asks the filter of a socket about a segment, which it sees from TCP's header on. Returns as much
/// of the segment as it wants, with all of the header (`tcp_filter`, `sk_filter_trim_cap` of
/// Linux): the rest is as good as lost. `None`: it wants nothing.
#[cold]
#[inline(never)]
fn filtered(
    filter: &Filter,
    header: Header,
    ends: Ends,
    segment: Segment<Slice>,
    interface: u32,
) -> Option<Segment<Slice>> {
    let ports = Ports { source: ends.remote.port, destination: ends.local.port };
    let packet = Packet { header, body: Body::Tcp(ports, segment), interface, segment: 0 };
    let mut bytes = [0; wire::HEADERS];
    let (length, data, _) = wire::head(&packet, &mut bytes, false).ok()?;
    let mut body = Payload::new();
    for slice in data {
        // Without memory it is lost.
        body.push(slice.clone()).ok()?;
    }
    let start = header::length(&packet.header);
    let wanted = filter.verdict(&View::of_packet(&packet, &bytes[..length], &body, start));
    let Body::Tcp(_, mut segment) = packet.body else { return None };
    segment.truncate(wanted.saturating_sub(length - start));
    (wanted > 0).then_some(segment)
}

/// Handles a segment of no connection: it is for a listener, or refused.
fn on_stranger(
    network: &Network,
    header: Header,
    ends: Ends,
    mut segment: Segment<Slice>,
    interface: u32,
    first: Option<Seq>,
) {
    let (to, from) = (ends.local.address, ends.remote.address);
    // No connection is made with a group, nor an answer given to one (RFC 9293, 3.9.2.3).
    if !to.is_unicast() || !from.is_unicast() {
        return;
    }
    let choice = u32::from(ends.remote.port) ^ from.bits() as u32;
    let listener = PORTS.find(network.key, ends.local.port, to, interface, choice, |_| Some(0));
    if let Some(listener) = &listener
        && listener.filter.is_set()
    {
        match filtered(&listener.filter, header, ends, segment, interface) {
            Some(wanted) => segment = wanted,
            None => return,
        }
    }
    let refusal = segment.refusal();
    if listener.is_some_and(|listener| listener.on_stranger(ends, segment, first)) {
        return;
    }
    if let Some(refusal) = refusal
        && let Ok(route) = Route::find(network, ends, scope(from, interface), (64, 0))
    {
        route.send(refusal);
    }
}

fn scope(from: Address, interface: u32) -> u32 {
    if from.is_link_local() { interface } else { 0 }
}

fn on_remnant(
    network: &Network,
    remnant: &Arc<Remnant>,
    header: Header,
    ends: Ends,
    segment: Segment<Slice>,
    interface: u32,
) {
    let verdict = remnant.state.lock().on_segment(monotonic_ns(), &segment);
    match verdict {
        Verdict::Ignore => {}
        Verdict::Answer(answer) => remnant.route.send(answer),
        Verdict::Ended => remnant.end(),
        Verdict::Reopen(first) => {
            remnant.end();
            on_stranger(network, header, ends, segment, interface, Some(first));
        }
    }
}

/// Ends what is left of a connection with this name, if a new one may take its place.
pub(super) fn make_way(ends: &Ends) {
    if let Some(ConnectionEntry::Remnant(remnant)) = table::find(ends)
        && remnant.state.lock().may_reuse(monotonic_ns())
    {
        remnant.end();
    }
}

impl Socket {
    /// Handles a segment of this connection.
    #[inline]
    fn on_segment(&self, segment: Segment<Slice>) {
        self.common.came_in_here();
        if self.common.keeps_times() {
            return self.on_segment_timed(segment);
        }
        self.act(|connection, now, out| ((), connection.on_segment(now, segment, out)));
    }

    /// The same for a program that asks when its data came.
    #[cold]
    #[inline(never)]
    fn on_segment_timed(&self, segment: Segment<Slice>) {
        let time = realtime_ns();
        self.act(|connection, now, out| ((), connection.on_segment_at(now, segment, time, out)));
    }
}

impl Socket {
    /// A router told that a segment of this connection was a packet of more than `bytes` bytes.
    #[cold]
    fn told_mtu(&self, ends: &Ends, seq: Seq, bytes: u32) {
        let discovery = self.options.lock().discovery(ends.remote.address.is_v4());
        let is_known = self.act(|connection, _, _| (connection.in_flight(seq), Events::empty()));
        if is_known != Some(true) || !discovery.believes() {
            return;
        }
        let interface = match self.level.interface() {
            0 => ends.remote.scope,
            link => link,
        };
        let network = self.network();
        let Ok(route) = Route::find(network, *ends, interface, (0, 0)) else { return };
        let mtu = path_mtu::told(network, &route.path, ends.remote.address, bytes).bytes;
        if discovery == Discovery::Dont {
            return;
        }
        let mss = route.mss_of(mtu);
        self.act(|connection, now, out| {
            if mss < connection.info().path_mss {
                connection.set_path_mss(now, mss, out);
            }
            ((), Events::empty())
        });
    }
}

/// Tells a connection of an error that ICMP reported about one of its segments.
pub fn failed(
    network: &Network,
    from: SocketAddress,
    to: SocketAddress,
    seq: u32,
    failure: Failure,
) {
    let ends = Ends { network: network.key, local: from, remote: to };
    let Some(ConnectionEntry::Socket(socket)) = table::find(&ends) else { return };
    let seq = Seq(seq);
    if let Failure::TooBig(bytes) = failure {
        return socket.told_mtu(&ends, seq, bytes);
    }
    socket.act(|connection, _, _| {
        // A stranger cannot know what is in flight (RFC 5927, 4.1).
        if !connection.in_flight(seq) {
            return ((), Events::empty());
        }
        let error = match failure {
            Failure::NetworkUnreachable => Error::NetworkUnreachable,
            Failure::NoProtocol => Error::NoProtocol,
            Failure::Refused => Error::Refused,
            _ => Error::HostUnreachable,
        };
        ((), connection.on_unreachable(seq, error))
    });
}
