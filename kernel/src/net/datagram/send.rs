//! Sending datagrams.

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::SocketAddress;
use hayate_ip::header::{self, Header, Udp};

use super::control::Marks;
use super::names::destination;
use super::{Corked, Protocol, Setup, Socket};
use crate::net::config;
use crate::net::config::Path;
use crate::net::ip_options::{Discovery, IpOptions, Wishes};
use crate::net::memory::{self, Charge};
use crate::net::packet::{Body, Packet, Ports};
use crate::net::slice::Payload;
use crate::net::statistics::Counter;
use crate::net::{echo, output, path_mtu};
use crate::schedule::MutexGuard;
use crate::vfs::socket::{OutgoingMessage, flags};
use crate::vfs::socket_options::Switches;
use crate::vfs::transfer::Input;

impl Socket {
    /// Returns the length of the longest message over IPv4 or over IPv6, without headers.
    fn most(&self, v4: bool) -> usize {
        let ip = if v4 && !self.raw.header_included() { header::LENGTH_V4 } else { 0 };
        let raw = matches!(self.protocol, Protocol::Raw(_));
        usize::from(u16::MAX) - ip - if raw { 0 } else { header::LENGTH_UDP }
    }

    /// Finds where a message goes: EDESTADDRREQ and the errors of addresses.
    fn aim(&self, to: Option<&[u8]>) -> Result<(SocketAddress, bool)> {
        let Some(bytes) = to else {
            return self.remote.lock().map(|to| (to, true)).ok_or(Errno::EDESTADDRREQ);
        };
        let to = destination(bytes, self.v6)?;
        if to.port == 0 && self.protocol == Protocol::Udp {
            return Err(Errno::EINVAL);
        }
        self.check_version(to.address)?;
        Ok((to, false))
    }

    /// Sends a datagram. Returns its length.
    pub(super) fn send_message(
        &self,
        input: &mut Input<'_>,
        message: &OutgoingMessage<'_>,
    ) -> Result<usize> {
        let length = input.remaining();
        if length > usize::from(u16::MAX) {
            return Err(Errno::EMSGSIZE);
        }
        if message.flags & flags::OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.queue.lock().no_send {
            return Err(Errno::EPIPE);
        }
        if let Some(error) = self.pending() {
            return Err(error);
        }
        let mut marks = Marks::parse(self.v6, &message.control)?;
        marks.on_link = message.flags & flags::DONTROUTE != 0;
        let mut setup = self.setup.lock();
        // Before anything else, as `inet_send_prepare`.
        self.bind_automatically(&mut setup)?;
        let more = setup.is_corked || message.flags & flags::MORE != 0;
        if more || setup.corked.is_some() {
            return self.gather(setup, input, message, &marks, more);
        }
        let (to, connected) = self.aim(message.to)?;
        let (path, local) = self.prepare(&mut setup, to, connected, &marks)?;
        drop(setup);
        if length > self.most(to.address.is_v4()) {
            return Err(self.fail_long(to, path_mtu::of(&path, to.address).bytes));
        }
        let payload = Payload::take(input, length)?;
        let set = self.segment.load(Ordering::Relaxed);
        let size = marks.segment.or((set != 0).then_some(set));
        if let Some(size) = size.filter(|&size| usize::from(size) < length) {
            self.emit_segments(&path, local, to, payload, &marks, usize::from(size))?;
        } else {
            self.emit(&path, local, to, payload, &marks, 0)?;
        }
        Ok(length)
    }

    /// Finds the way to the destination and the source of the packet, and binds the socket if it is
    /// not yet.
    fn prepare(
        &self,
        setup: &mut Setup,
        to: SocketAddress,
        connected: bool,
        marks: &Marks,
    ) -> Result<(Path, SocketAddress)> {
        let newest = self.network().generation();
        let path = match &setup.path {
            Some((generation, path)) if connected && *generation == newest => path.clone(),
            _ => {
                let path = self.path(setup, SocketAddress { scope: marks.interface(to), ..to })?;
                if connected {
                    setup.path = Some((newest, path.clone()));
                }
                path
            }
        };
        if path.is_broadcast && !self.common.has(Switches::BROADCAST) {
            return Err(Errno::EACCES);
        }
        if marks.on_link || self.common.has(Switches::ON_LINK) {
            path.check_link(to.address)?;
        }
        self.bind_automatically(setup)?;
        let mut local = setup.local;
        if let Some(source) = marks.source {
            if !self.network().current().is_local(source) {
                return Err(Errno::ENETUNREACH);
            }
            local.address = source;
        } else if local.address.is_any() || local.address.is_multicast() {
            local.address = path.source;
        } else if setup.is_foreign {
            self.options.lock().wishes.check_source(self.network(), local.address)?;
        }
        Ok((path, local))
    }

    /// Adds to the datagram that UDP_CORK or MSG_MORE gathers; sends it when no more follows.
    fn gather(
        &self,
        mut setup: MutexGuard<'_, Setup>,
        input: &mut Input<'_>,
        message: &OutgoingMessage<'_>,
        marks: &Marks,
        more: bool,
    ) -> Result<usize> {
        let length = input.remaining();
        let to = match &setup.corked {
            Some(corked) => corked.to,
            None => self.aim(message.to)?.0,
        };
        let before = setup.corked.as_ref().map_or(0, |corked| corked.payload.len());
        if before + length > self.most(to.address.is_v4()) {
            return Err(Errno::EMSGSIZE);
        }
        let corked = setup.corked.get_or_insert_with(|| Corked {
            to,
            payload: Payload::new(),
            held: Charge::new(&memory::UDP, self.user),
        });
        let part = if corked.held.admits(corked.payload.pinned()) {
            Payload::take(input, length)
        } else {
            Err(Errno::ENOBUFS)
        };
        // Without bytes the next call begins anew.
        let part = match part {
            Err(error) if corked.payload.is_empty() => {
                setup.corked = None;
                return Err(error);
            }
            part => part?,
        };
        for slice in part.into_slices() {
            corked.payload.push(slice)?;
        }
        corked.held.set(corked.payload.pinned());
        if !more {
            self.uncork(setup, marks)?;
        }
        Ok(length)
    }

    /// Sends the datagram that was gathered.
    pub(super) fn uncork(&self, mut setup: MutexGuard<'_, Setup>, marks: &Marks) -> Result<()> {
        let Some(Corked { to, payload, held }) = setup.corked.take() else { return Ok(()) };
        drop(held);
        let (path, local) = self.prepare(&mut setup, to, false, marks)?;
        drop(setup);
        self.emit(&path, local, to, payload, marks, 0)
    }

    /// Sends datagrams of `size` bytes each, and one of the rest (UDP_SEGMENT, udp(7)). They pass
    /// the loopback interface as one packet, as on Linux.
    fn emit_segments(
        &self,
        path: &Path,
        local: SocketAddress,
        to: SocketAddress,
        mut payload: Payload,
        marks: &Marks,
        size: usize,
    ) -> Result<()> {
        /// The most segments of one call (`UDP_MAX_SEGMENTS`).
        const MOST: usize = 64;
        if payload.len() > size * MOST {
            return Err(Errno::EINVAL);
        }
        if to.address.is_v4() && self.common.has(Switches::NO_CHECKSUM) {
            return Err(Errno::EINVAL);
        }
        let headers = header::LENGTH_V6 + header::LENGTH_UDP;
        let is_whole = path.is_local && self.protocol == Protocol::Udp;
        let mtu = path_mtu::of(path, to.address).bytes as usize;
        if is_whole && payload.len() + headers <= mtu {
            // The size is less than that of the payload, which a packet takes.
            return self.emit(path, local, to, payload, marks, size as u16);
        }
        while !payload.is_empty() {
            let segment = payload.part(0, size)?;
            payload.skip(size);
            self.emit(path, local, to, segment, marks, 0)?;
        }
        Ok(())
    }

    /// Sends a packet with one datagram, or with many of `segment` bytes.
    fn emit(
        &self,
        path: &Path,
        local: SocketAddress,
        to: SocketAddress,
        payload: Payload,
        marks: &Marks,
        segment: u16,
    ) -> Result<()> {
        let destination = if to.address.is_any() { path.next_hop } else { to.address };
        let options = *self.options.lock();
        let multicast = destination.is_multicast();
        let (ttl, tos) = options.marks(&self.network().settings, destination.is_v4(), multicast);
        let header = Header {
            source: local.address,
            destination,
            protocol: header::UDP,
            hop_limit: marks.hop_limit.unwrap_or(ttl),
            traffic_class: marks.traffic_class.unwrap_or(tos),
            dont_fragment: false,
            fragment: None,
        };
        let ports = Ports { source: local.port, destination: to.port };
        let mut packet = match self.protocol {
            Protocol::Udp if self.common.has(Switches::NO_CHECKSUM) && destination.is_v4() => {
                let body = Body::Bytes(unsummed(ports, payload)?);
                Packet { header, body, interface: 0, segment }
            }
            Protocol::Udp => {
                Packet { header, body: Body::Udp(ports, payload), interface: 0, segment }
            }
            Protocol::Echo => echo::request(header, local.port, payload)?,
            Protocol::Raw(_) => self.raw_packet(header, payload)?,
        };
        let mtu = self.limit(path, &mut packet, to, &options, marks)?;
        if multicast && options.wishes.contains(Wishes::MULTICAST_LOOP) {
            self.loop_back(path, &packet)?;
            if path.interface.is_loopback() {
                return Ok(());
            }
        }
        let is_udp = self.protocol == Protocol::Udp;
        output::send_within(path, packet, mtu)?;
        if is_udp {
            self.network().count(Counter::DatagramsSent, destination.is_v4());
        }
        Ok(())
    }

    /// Returns the length to which a packet is cut, and says in its header whether routers may cut
    /// it, as the socket discovers the MTUs of paths (`__ip_append_data`, `__ip_make_skb`,
    /// `__ip6_append_data`).
    ///
    /// # Errors
    /// `EMSGSIZE` if it is longer and may not be cut.
    #[inline]
    fn limit(
        &self,
        path: &Path,
        packet: &mut Packet,
        to: SocketAddress,
        options: &IpOptions,
        marks: &Marks,
    ) -> Result<usize> {
        let (destination, length) = (packet.header.destination, packet.length());
        let is_v4 = destination.is_v4();
        let discovery = options.discovery(is_v4);
        let own = path_mtu::of_interface(path, destination);
        let mut known = if discovery.heeds_path() { path_mtu::of(path, destination) } else { own };
        if !is_v4 && options.most_v6 != 0 {
            known.bytes = known.bytes.min(options.most_v6);
        }
        let is_longer = length > known.bytes as usize;
        if is_v4 && self.raw.header_included() {
            // What routers may do stands in the program's header; it is no longer than the
            // interface takes (`raw_send_hdrinc`).
            if length > own.bytes as usize {
                return Err(self.fail_long(to, own.bytes));
            }
        } else if is_longer && !is_v4 && self.asks_to_be_whole(options, marks) {
            self.note_long(to, known.bytes, options);
            return Err(self.fail_long(to, known.bytes));
        } else if is_longer && !discovery.cuts() {
            return Err(self.fail_long(to, known.bytes));
        } else {
            packet.header.dont_fragment = match discovery {
                Discovery::Do | Discovery::Probe => true,
                Discovery::Want => !is_longer && !known.is_locked,
                _ => false,
            };
        }
        Ok(known.bytes as usize)
    }

    /// Whether the program wants no packet of IPv6 to be cut (IPV6_DONTFRAG). Raw sockets of most
    /// protocols have no choice (`__ip6_append_data`).
    #[cold]
    fn asks_to_be_whole(&self, options: &IpOptions, marks: &Marks) -> bool {
        let has_choice = match self.protocol {
            Protocol::Raw(number) => matches!(number, header::RAW | header::ICMP_V6),
            Protocol::Udp | Protocol::Echo => true,
        };
        has_choice
            && marks.dont_fragment.unwrap_or(options.wishes.contains(Wishes::DONT_FRAGMENT_V6))
    }

    /// Remembers that a datagram was too long for its path, for a program that wants to know
    /// (IPV6_RECVPATHMTU; `ipv6_local_rxpmtu`).
    fn note_long(&self, to: SocketAddress, mtu: u32, options: &IpOptions) {
        if options.wishes.contains(Wishes::PATH_MTU_V6) {
            self.queue.lock().too_long = Some((SocketAddress { port: 0, ..to }, mtu));
            self.has_too_long.store(true, Ordering::Relaxed);
        }
    }

    /// Gives this machine's sockets a multicast packet that leaves it (IP_MULTICAST_LOOP).
    /// `ENOMEM`.
    fn loop_back(&self, path: &Path, packet: &Packet) -> Result<()> {
        if let Some(lo) = self.network().current().interface(config::LOOPBACK) {
            let body = match &packet.body {
                Body::Udp(ports, payload) => Body::Udp(*ports, payload.share()?),
                Body::Bytes(payload) => Body::Bytes(payload.share()?),
                // No socket of this kind sends segments.
                Body::Tcp(..) => return Ok(()),
            };
            let (header, interface) = (packet.header, path.interface.index);
            let copy = Packet { header, body, interface, segment: packet.segment };
            crate::net::loopback::send(lo, packet.length(), copy);
        }
        Ok(())
    }
}

/// Returns a datagram with its header, without a checksum (SO_NO_CHECK): `ENOMEM`. All other
/// packets are bytes only when they leave the machine, and then have one.
#[cold]
fn unsummed(ports: Ports, payload: Payload) -> Result<Payload> {
    let length = header::LENGTH_UDP + payload.len();
    let udp = Udp {
        source: ports.source,
        destination: ports.destination,
        checksum: 0,
        length: u16::try_from(length).map_err(|_| Errno::EMSGSIZE)?,
    };
    let mut datagram = Payload::copy(&udp.to_bytes())?;
    for slice in payload.into_slices() {
        datagram.push(slice)?;
    }
    Ok(datagram)
}
