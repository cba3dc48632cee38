//! The loopback interface: packets from this machine to itself.
//!
//! A packet is received on the processor that sends it, by the thread that sends it, without being
//! bytes in between. Receiving may send others (an acknowledgement, an answer of ICMP): these are
//! put into the processor's backlog and received in turn, so the depth of calls is bounded, as with
//! Linux' `softnet_data` (net/core/dev.c).
//!
//! The kernel is not preempted and receiving does not sleep, so a processor that has begun to
//! receive goes on until its backlog is empty.
//!
//! Locks: the backlog's is a leaf. The sender holds no lock of a socket.

use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_machine::cpu::PerCpu;
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};

use super::config::Interface;
use super::packet::Packet;
use crate::reclaim::growth::Grow;

/// The most packets in a backlog (`net.core.netdev_max_backlog`).
const MOST: usize = 1000;

/// Packets that wait for being received on a processor.
struct Backlog {
    /// The processor receives packets now.
    receives: AtomicBool,
    packets: SpinLock<VecDeque<Packet>>,
}

per_cpu! {
    static BACKLOG: PerCpu<Backlog> = PerCpu::new(Backlog {
        receives: AtomicBool::new(false),
        packets: SpinLock::new(VecDeque::new()),
    });
}

static RECEIVE: Once<fn(Packet)> = Once::new();

/// Registers the function that receives packets; at boot.
pub fn register(receive: fn(Packet)) {
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
    let backlog = BACKLOG.here();
    if backlog.receives.load(Ordering::Relaxed) {
        let mut packets = backlog.packets.lock();
        if packets.len() >= MOST || packets.make_room(1).is_err() {
            counters.dropped_in.fetch_add(1, Ordering::Relaxed);
            return;
        }
        packets.push_back(packet);
        drop(packets);
        count(interface, length);
        return;
    }
    count(interface, length);
    let Some(receive) = RECEIVE.get() else { return };
    backlog.receives.store(true, Ordering::Relaxed);
    receive(packet);
    loop {
        let next = backlog.packets.lock().pop_front();
        match next {
            Some(packet) => receive(packet),
            None => break,
        }
    }
    backlog.receives.store(false, Ordering::Relaxed);
}

fn count(interface: &Interface, length: usize) {
    let counters = &interface.counters;
    counters.packets_out.fetch_add(1, Ordering::Relaxed);
    counters.bytes_out.fetch_add(length as u64, Ordering::Relaxed);
    counters.packets_in.fetch_add(1, Ordering::Relaxed);
    counters.bytes_in.fetch_add(length as u64, Ordering::Relaxed);
}
