//! The loopback interface, of which each network namespace has one: packets from it to itself.
//!
//! A packet is received on the processor that sends it, by the thread that sends it, without being
//! bytes in between. Receiving may send others (an acknowledgement, an answer of ICMP): these are
//! put into the processor's backlog and received in turn, so the depth of calls is bounded, as with
//! Linux' `softnet_data` (net/core/dev.c).
//!
//! The kernel is not preempted and receiving does not sleep, so a processor that has begun to
//! receive goes on until its backlog is empty.
//!
//! A packet in the backlog holds its namespace.
//!
//! Locks: the backlog's is a leaf. The sender holds no lock of a socket.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hayate_machine::cpu::{MAX_CPUS, PerCpu};
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};

use super::config::{Counters, Interface, Network};
use super::faults;
use super::packet::Packet;
use super::packet_socket::endpoint::Endpoint;
use super::packet_socket::seen::{LINK, protocol};
use super::packet_socket::tap;
use super::slice::Payload;
use super::wire;
use crate::namespace::Handle;
use crate::reclaim::growth::Grow;

/// The most packets in a backlog (`net.core.netdev_max_backlog`).
const MOST: usize = 1000;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Packets that wait for being received on a processor.
struct Backlog {
    /// The processor receives packets now.
    receives: AtomicBool,
    packets: SpinLock<VecDeque<(Handle<Network>, Packet)>>,
}

per_cpu! {
    static BACKLOG: PerCpu<Backlog> = PerCpu::new(Backlog {
        receives: AtomicBool::new(false),
        packets: SpinLock::new(VecDeque::new()),
    });
}

/// Packets and bytes that passed on a processor. Only that processor changes them.
struct Passed {
    packets: AtomicU64,
    bytes: AtomicU64,
}

per_cpu! {
    static PASSED: PerCpu<Passed> =
        PerCpu::new(Passed { packets: AtomicU64::new(0), bytes: AtomicU64::new(0) });
}

/// Receives a packet in a network namespace.
type Receive = fn(&Handle<Network>, Packet);

static RECEIVE: Once<Receive> = Once::new();

/// Registers the function that receives packets; at boot.
pub fn register(receive: Receive) {
    RECEIVE.call_once(|| receive);
}

/// Sends a packet of `length` bytes to this machine. It is dropped if the interface is down or the
/// backlog is full.
pub fn send(interface: &Interface, length: usize, packet: Packet) {
    let counters = &interface.counters;
    if !interface.is_up() {
        counters.dropped_out.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // A copy of a packet that leaves by another interface does not pass this one.
    if packet.interface == interface.index {
        tap::looped(interface, &packet);
    }
    pass(interface, length, packet);
}

/// Sends a frame that a packet socket wrote. What it claims about this machine's own addresses is
/// not believed: only packets of sockets come from there (`ip_route_input_slow`).
pub fn send_frame(interface: &Interface, link: [u8; LINK], body: Payload, sender: &Arc<Endpoint>) {
    tap::looped_frame(interface, link, &body, sender);
    let length = LINK + body.len();
    let is_ours = link[..6] == interface.hardware() || link[0] & 1 != 0;
    let number = protocol(&link, &body);
    let Some(network) = interface.network.get() else { return };
    let packet = wire::parse(&network, body, interface.index, false).filter(|packet| {
        let (from, to) = (packet.header.source, packet.header.destination);
        let config = network.current();
        let is_v4 = to.is_v4();
        let strange = is_v4 && (config.is_local(from) || to.is_loopback());
        let arrives = config.is_local(to) || to.is_multicast() || config.is_broadcast(to);
        is_ours && arrives && !strange && number == if is_v4 { IPV4 } else { IPV6 }
    });
    match packet {
        Some(packet) => pass(interface, length, packet),
        None => {
            count(interface, length);
            interface.counters.dropped_in.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Lets a packet arrive at the interface, or meet a fault on its way.
fn pass(interface: &Interface, length: usize, packet: Packet) {
    if faults::are_on() {
        return faults::befall(interface, length, packet, arrive);
    }
    arrive(interface, length, packet);
}

/// Receives a packet on the interface, now or after those before it.
fn arrive(interface: &Interface, length: usize, packet: Packet) {
    // The namespace may have ended while the packet was late.
    let Some(network) = interface.network.get() else { return };
    let counters = &interface.counters;
    let backlog = BACKLOG.here();
    if backlog.receives.load(Ordering::Relaxed) {
        let mut packets = backlog.packets.lock();
        if packets.len() >= MOST || packets.make_room(1).is_err() {
            counters.dropped_in.fetch_add(1, Ordering::Relaxed);
            return;
        }
        packets.push_back((network, packet));
        drop(packets);
        count(interface, length);
        return;
    }
    count(interface, length);
    let Some(receive) = RECEIVE.get() else { return };
    backlog.receives.store(true, Ordering::Relaxed);
    receive(&network, packet);
    loop {
        let next = backlog.packets.lock().pop_front();
        match next {
            Some((network, packet)) => receive(&network, packet),
            None => break,
        }
    }
    backlog.receives.store(false, Ordering::Relaxed);
}

/// Counts a packet: in the first namespace on this processor, so that processors share no line of
/// memory for it.
fn count(interface: &Interface, length: usize) {
    if interface.key != 0 {
        let Counters { packets_in, bytes_in, packets_out, bytes_out, .. } = &interface.counters;
        for (packets, bytes) in [(packets_in, bytes_in), (packets_out, bytes_out)] {
            packets.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(length as u64, Ordering::Relaxed);
        }
        return;
    }
    let passed = PASSED.here();
    let add = |count: &AtomicU64, more| {
        count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    };
    add(&passed.packets, 1);
    add(&passed.bytes, length as u64);
}

/// Returns how many packets and bytes passed in the first namespace, each out and in again.
pub fn passed() -> (u64, u64) {
    (0..MAX_CPUS).filter_map(|cpu| PASSED.of(cpu)).fold((0, 0), |(packets, bytes), passed| {
        let more = passed.packets.load(Ordering::Relaxed);
        (packets + more, bytes + passed.bytes.load(Ordering::Relaxed))
    })
}
