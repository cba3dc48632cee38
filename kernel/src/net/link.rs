//! Ethernet: packets to and from network devices.
//!
//! A frame that arrives is taken apart by the execution of its receive queue; the payload stays in
//! the frames of memory that the device wrote. Segments of TCP that follow each other there are
//! joined to one before they go on ([`Growing`]). A packet that leaves is put together from its
//! headers and the sender's slices; the device completes the checksum and cuts segments of TCP if
//! it can. For one that does not, the bytes are copied behind the headers while they are summed.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::Address;
use hayate_ip::header::{self, Header, Icmp};
use hayate_ip::neighbour::{ADVERTISEMENT, ARP_LENGTH, Arp, Discovery};
use hayate_machine::sync::Once;

use super::config::{self, Counters, Interface, Path, flag};
use super::faults;
use super::filter::protocol_of;
use super::icmp_message;
use super::neighbour::{self, Hardware, LinkActions, group};
use super::packet::{Body, Packet};
use super::packet_socket::endpoint::Endpoint;
use super::packet_socket::seen::{Kind, Sum, link_header};
use super::packet_socket::tap;
use super::slice::{Payload, Slice};
use super::wire;
use crate::drivers::net as device;
use crate::drivers::net::{
    Checksum, HEAD, IncomingFrame, NetworkDevice, Offloads, OutgoingFrame, Owner, Partial,
    Protocol, Receiver, Segments,
};

/// The length of an Ethernet header.
const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const EVERYBODY: Hardware = [0xff; 6];
/// The largest frame that is copied for a device that completes checksums.
const SMALL: usize = 256;
/// The most pieces of data that a frame has (Linux' `MAX_SKB_FRAGS` is 17; these have a page or
/// more mostly, and a frame has at most 64 KiB).
const MOST_PIECES: usize = 32;

/// The function that receives packets, which stands above.
static RECEIVE: Once<fn(Packet)> = Once::new();

/// Makes an interface of each network device and receives its frames; at boot. `receive` gets the
/// packets in them; `unreachable` tells the sender of a packet that a host does not answer.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn init(receive: fn(Packet), unreachable: fn(&Packet)) -> Result<()> {
    RECEIVE.call_once(|| receive);
    neighbour::register(LinkActions { ask, transmit, unreachable });
    for (number, card) in device::devices().into_iter().enumerate() {
        config::add_interface(|index| Interface {
            index,
            name: format!("eth{number}"),
            hardware: AtomicU64::new(Interface::word_of(card.mac())),
            mtu: AtomicU32::new(card.mtu() as u32),
            flags: AtomicU32::new(flag::BROADCAST | flag::MULTICAST | link_flags(&*card)),
            counters: Counters::default(),
            device: Some(card),
            key: 0,
            network: config::first().home(),
        })?;
    }
    device::set_receiver(&Links);
    Ok(())
}

fn link_flags(card: &dyn NetworkDevice) -> u32 {
    if card.link_up() { flag::LOWER_UP | flag::RUNNING } else { 0 }
}

/// Returns the interface of a device.
fn interface_of(device: usize) -> Option<Arc<Interface>> {
    let index = u32::try_from(device).ok()? + config::LOOPBACK + 1;
    config::FIRST.current().interface(index).cloned()
}

struct Links;

impl Receiver for Links {
    fn receive(&self, device: usize, frames: &mut dyn Iterator<Item = IncomingFrame>) {
        let Some(interface) = interface_of(device) else { return frames.for_each(drop) };
        let counters = &interface.counters;
        let mut growing = Growing { interface: &interface, packet: None, length: 0 };
        for frame in frames {
            counters.packets_in.fetch_add(1, Ordering::Relaxed);
            counters.bytes_in.fetch_add(frame.length as u64, Ordering::Relaxed);
            if !interface.is_up() || receive(&interface, frame, &mut growing).is_none() {
                counters.dropped_in.fetch_add(1, Ordering::Relaxed);
            }
        }
        growing.end();
    }

    fn link_changed(&self, device: usize) {
        let (Some(interface), Some(card)) = (interface_of(device), device::device(device)) else {
            return;
        };
        let both = flag::LOWER_UP | flag::RUNNING;
        let flags = interface.flags.load(Ordering::Relaxed) & !both | link_flags(&*card);
        interface.flags.store(flags, Ordering::Relaxed);
    }
}

/// A segment of TCP that grows by those that follow it, while a queue has further frames: what is
/// done for a segment above is then done once for several (Linux: generic receive offload).
struct Growing<'a> {
    interface: &'a Interface,
    packet: Option<Packet>,
    /// The bytes of its data.
    length: usize,
}

impl Growing<'_> {
    /// Receives a packet, or lets it join or be the one that grows. `None`: it is dropped.
    #[inline]
    fn take(&mut self, mut packet: Packet) -> Option<()> {
        if let Some(first) = &mut self.packet {
            if first.join(&mut self.length, &mut packet) {
                if !first.may_grow() {
                    self.end();
                }
                return Some(());
            }
            self.end();
        }
        if !packet.may_grow() {
            return arrive(packet);
        }
        if let Body::Tcp(_, segment) = &packet.body {
            self.length = segment.payload_len();
        }
        self.packet = Some(packet);
        Some(())
    }

    /// Nothing follows now: the one that grew is received.
    #[inline]
    fn end(&mut self) {
        if let Some(packet) = self.packet.take()
            && arrive(packet).is_none()
        {
            self.interface.counters.dropped_in.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Receives a frame. `None`: it is dropped.
fn receive(
    interface: &Arc<Interface>,
    frame: IncomingFrame,
    growing: &mut Growing<'_>,
) -> Option<()> {
    let sum = match frame.checksum {
        Checksum::Unknown => Sum::Unchecked,
        Checksum::Verified => Sum::Good,
        Checksum::Partial(_) => Sum::Missing,
    };
    let mut payload = Payload::new();
    for slice in frame.slices {
        let (memory, offset, length) = slice.into_parts();
        payload.push(Slice::of_memory(memory, offset, length)?).ok()?;
    }
    let mut head = [0; ETHERNET];
    if payload.read(0, &mut head) < ETHERNET {
        return None;
    }
    payload.skip(ETHERNET);
    let shown = || payload.share();
    tap::frame(interface, Kind::of(interface, &head), head, sum, shown, None);
    let to: &Hardware = head.first_chunk()?;
    if *to != interface.hardware() && to[0] & 1 == 0 {
        return None;
    }
    match u16::from_be_bytes([head[12], head[13]]) {
        ARP => receive_arp(interface, &payload),
        IPV4 | IPV6 => {
            let good = sum != Sum::Unchecked;
            let mut packet = wire::parse(&config::FIRST, payload, interface.index, good)?;
            note_segments(&mut packet, frame.segments);
            if faults::are_on() {
                // The network loses what was on the wire.
                packet.cut(|piece| befall(interface, piece));
                return Some(());
            }
            growing.take(packet)
        }
        _ => None,
    }
}

/// Notes where a segment would be cut again that the device has joined of several.
fn note_segments(packet: &mut Packet, segments: Option<Segments>) {
    let is_v4 = packet.header.destination.is_v4();
    if let Some(segments) = segments
        && (segments.protocol == Protocol::Tcp4) == is_v4
        && let Body::Tcp(_, segment) = &mut packet.body
    {
        segment.cut_at = segments.size;
    }
}

/// Lets a packet meet the faults that tests have set.
fn befall(interface: &Arc<Interface>, packet: Packet) {
    let length = packet.length();
    faults::befall(interface, length, packet, |interface, _, packet| {
        if arrive(packet).is_none() {
            interface.counters.dropped_in.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Receives a packet. `None`: it is dropped.
#[inline]
fn arrive(packet: Packet) -> Option<()> {
    // A packet from outside does not come from this machine (RFC 1122, 3.2.1.3). In IPv6 Linux
    // refuses the loopback address alone (`ip6_rcv_core`): two interfaces may be on one link.
    let (from, to) = (packet.header.source, packet.header.destination);
    let strange =
        if to.is_v4() { config::FIRST.current().is_local(from) } else { from.is_loopback() };
    if strange || to.is_loopback() {
        return None;
    }
    let receive = RECEIVE.get()?;
    receive(packet);
    Some(())
}

fn receive_arp(interface: &Arc<Interface>, payload: &Payload) -> Option<()> {
    let mut bytes = [0; ARP_LENGTH];
    if payload.read(0, &mut bytes) < ARP_LENGTH {
        return None;
    }
    let message = Arp::parse(&bytes)?;
    let ((hardware, source), (_, target)) = (message.source, message.target);
    let ours = config::FIRST
        .current()
        .addresses
        .iter()
        .any(|own| own.address == target && own.interface == interface.index);
    neighbour::learn(interface, source, hardware, ours);
    if ours && message.asks {
        send_arp(interface, false, target, (hardware, source));
    }
    Some(())
}

/// Asks for the hardware address of a host, or answers one that asked. A question goes to all.
fn send_arp(
    interface: &Interface,
    asks: bool,
    source: Address,
    target: (Hardware, Address),
) -> Option<()> {
    let source = (interface.hardware(), source);
    let bytes = Arp { asks, source, target }.to_bytes()?;
    let to = if asks { EVERYBODY } else { target.0 };
    let link = link_header(to, interface.hardware(), ARP);
    tap::frame(interface, Kind::Outgoing, link, Sum::Good, || Payload::copy(&bytes), None);
    let mut frame = OutgoingFrame::new(ETHERNET + ARP_LENGTH).ok()?;
    frame.push(&link).ok()?;
    frame.push(&bytes).ok()?;
    give(interface, frame);
    Some(())
}

/// Sends a packet that is bytes already to a group. `None`: it is dropped.
pub(super) fn send_packet(interface: &Interface, to: Address, bytes: &[u8]) -> Option<()> {
    let link = link_header(group(to), interface.hardware(), protocol_of(to));
    tap::frame(interface, Kind::Outgoing, link, Sum::Good, || Payload::copy(bytes), None);
    let mut frame = OutgoingFrame::new(ETHERNET + bytes.len()).ok()?;
    frame.push(&link).ok()?;
    frame.push(bytes).ok()?;
    give(interface, frame).then_some(())
}

/// Sends a frame that a packet socket wrote.
///
/// # Errors
/// `ENOMEM`, `ENOBUFS`.
pub(super) fn send_frame(
    interface: &Interface,
    link: [u8; ETHERNET],
    body: Payload,
    sender: &Arc<Endpoint>,
) -> Result<()> {
    tap::frame(interface, Kind::Outgoing, link, Sum::Good, || body.share(), Some(sender));
    let mut frame = OutgoingFrame::new(ETHERNET)?;
    frame.push(&link)?;
    append(&mut frame, body.slices())?;
    if give(interface, frame) { Ok(()) } else { Err(Errno::ENOBUFS) }
}

/// Gives a frame to the device. Returns whether it took it.
fn give(interface: &Interface, frame: OutgoingFrame) -> bool {
    let counters = &interface.counters;
    let length = frame.length() as u64;
    let sent = interface.device.as_ref().is_some_and(|card| card.transmit(frame).is_ok());
    if sent {
        counters.packets_out.fetch_add(1, Ordering::Relaxed);
        counters.bytes_out.fetch_add(length, Ordering::Relaxed);
    } else {
        counters.dropped_out.fetch_add(1, Ordering::Relaxed);
    }
    sent
}

/// Asks the hosts on a link for the hardware address of one of them.
pub(super) fn ask(interface: &Arc<Interface>, address: Address) {
    let Some(source) = config::FIRST.current().source_on(interface.index, address) else { return };
    if address.is_v4() {
        let _ = send_arp(interface, true, source, ([0; 6], address));
        return;
    }
    if let Ok(packet) = icmp_message::solicitation(source, address, interface.hardware()) {
        transmit(interface, group(packet.header.destination), &packet);
    }
}

/// Sends a packet of `length` bytes on its path. `owner` counts its bytes until the device has sent
/// them; not while the hardware address is asked for.
///
/// # Errors
/// `ENOBUFS`.
pub(super) fn send(
    path: &Path,
    length: usize,
    packet: Packet,
    owner: Option<&Arc<dyn Owner>>,
) -> Result<()> {
    let interface = &path.interface;
    if path.is_broadcast {
        transmit(interface, EVERYBODY, &packet);
    } else if path.next_hop.is_multicast() {
        transmit(interface, group(path.next_hop), &packet);
    } else if let Some(hardware) = neighbour::known(interface, path.next_hop) {
        transmit_for(interface, hardware, (length, &packet), owner);
    } else {
        send_to_another(path, length, packet, owner);
    }
    Ok(())
}

/// Sends a packet to a host that the processor has not sent to lately.
#[inline(never)]
fn send_to_another(path: &Path, length: usize, packet: Packet, owner: Option<&Arc<dyn Owner>>) {
    let interface = &path.interface;
    if let Some((hardware, packet)) = neighbour::resolve(interface, path.next_hop, packet) {
        transmit_for(interface, hardware, (length, &packet), owner);
    }
}

/// Sends a packet to a hardware address. One for which there is no memory is lost.
pub(super) fn transmit(interface: &Arc<Interface>, to: Hardware, packet: &Packet) {
    transmit_for(interface, to, (packet.length(), packet), None);
}

fn transmit_for(
    interface: &Arc<Interface>,
    to: Hardware,
    (length, packet): (usize, &Packet),
    owner: Option<&Arc<dyn Owner>>,
) {
    let Some(card) = &interface.device else { return };
    let link = link_header(to, interface.hardware(), protocol_of(packet.header.destination));
    tap::frame(interface, Kind::Outgoing, link, Sum::Good, || wire::emit(packet), None);
    if let Ok(mut frame) = frame(link, ETHERNET + length, packet, card.offloads()) {
        if let Some(owner) = owner {
            frame.set_owner(Arc::clone(owner));
        }
        give(interface, frame);
    } else {
        interface.counters.dropped_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the device cuts segments of TCP over this version of IP.
pub(super) fn cuts(interface: &Interface, is_v4: bool) -> bool {
    let offloads = interface.device.as_ref().map(|card| card.offloads());
    offloads.is_some_and(|offloads| if is_v4 { offloads.tso4 } else { offloads.tso6 })
}

/// Makes a frame of a packet; `whole`: its length.
fn frame(
    link: [u8; ETHERNET],
    whole: usize,
    packet: &Packet,
    offloads: Offloads,
) -> Result<OutgoingFrame> {
    let mut bytes = [0; wire::HEADERS];
    // Of bytes that have to be read for the checksum, a copy is cheap, and the device gets one
    // piece.
    let copies = whole <= HEAD && (!offloads.checksum || whole <= SMALL);
    let completes = offloads.checksum && !copies;
    let (length, data, sum) = wire::head(packet, &mut bytes, completes)?;
    let mut frame = OutgoingFrame::new(if copies { whole } else { ETHERNET + length })?;
    frame.push(&link)?;
    frame.push(&bytes[..length])?;
    if copies {
        for slice in data {
            let (memory, offset, count) = slice.parts();
            frame.push_from(memory, offset, count)?;
        }
        return Ok(frame);
    }
    append(&mut frame, data)?;
    frame.offload.checksum = sum
        .map(|(start, offset)| Partial { start: (ETHERNET + start) as u16, offset: offset as u16 });
    if let Body::Tcp(_, segment) = &packet.body
        && segment.cut_at != 0
    {
        let is_v4 = packet.header.destination.is_v4();
        let protocol = if is_v4 { Protocol::Tcp4 } else { Protocol::Tcp6 };
        let segments = Segments { protocol, size: segment.cut_at };
        frame.offload.segments = Some((segments, (ETHERNET + length) as u16));
    }
    Ok(frame)
}

/// Appends the data of a packet to its frame: as they lie, or copied together if they are in more
/// pieces than the queue of a device likes.
fn append(frame: &mut OutgoingFrame, data: &[Slice]) -> Result<()> {
    let gathered;
    let data = if data.len() <= MOST_PIECES {
        data
    } else {
        gathered = Payload::gather(data)?;
        gathered.slices()
    };
    for slice in data {
        let (memory, offset, count) = slice.parts();
        let slice = device::FrameSlice::new(memory.clone(), offset, count).ok_or(Errno::EINVAL)?;
        frame.append(slice)?;
    }
    Ok(())
}

/// Whether a packet is a message of neighbour discovery that came from the link itself (RFC 4861,
/// 6.1 and 7.1): nobody else can send one with this hop limit.
pub(super) fn is_from_link(header: &Header) -> bool {
    header.hop_limit == 255 && header.protocol == header::ICMP_V6
}

/// Handles a message of neighbour discovery.
pub(super) fn receive_discovery(packet: &Packet, message: Icmp, payload: &Payload) -> Option<()> {
    let interface = config::FIRST.current().interface(packet.interface)?.clone();
    if !is_from_link(&packet.header) || interface.is_loopback() {
        return None;
    }
    let mut bytes = [0; 128];
    let count = payload.read(header::LENGTH_ICMP, &mut bytes);
    let Discovery { target, hardware } = Discovery::parse(message.kind, &bytes[..count])?;
    if message.kind == ADVERTISEMENT {
        neighbour::learn(&interface, target, hardware?, false);
        return Some(());
    }
    let config = config::FIRST.current();
    let own =
        |own: &config::LocalAddress| own.address == target && own.interface == interface.index;
    if !config.addresses.iter().any(own) {
        return None;
    }
    let source = packet.header.source;
    if let Some(hardware) = hardware {
        neighbour::learn(&interface, source, hardware, true);
    }
    let answer = icmp_message::advertisement(target, source, interface.hardware()).ok()?;
    let path = config.path(answer.header.destination, interface.index).ok()?;
    send(&path, answer.length(), answer, None).ok()
}
