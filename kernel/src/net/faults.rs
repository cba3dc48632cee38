//! Faults of the network on purpose, for tests: packets are lost, repeated, overtaken, damaged and
//! late (docs/testing.md).
//!
//! `net.fault=` on the kernel's command line sets them, or root by `/proc/hayate/net_fault`;
//! `hayate_packet_faults` decides what happens to which packet. They befall packets of the loopback
//! interface, and those that arrive at a device, after packet sockets have seen them. While there
//! are none, a packet passes one relaxed load.
//!
//! A packet that is damaged becomes bytes with the checksums that its sender would have written, a
//! bit of these is turned over, and they are parsed as from a device that checks nothing. So the
//! stack has to find the damage by itself. One that is found is lost.
//!
//! Late packets wait in one list with one timer. It has at most [`MOST`] of at most [`MOST_BYTES`];
//! a packet beyond them is lost, as in the queue of a router. Switching the faults off lets those
//! that wait arrive in time.
//!
//! Two processors may arm the timer at once, and then the later of two deadlines can stand: a
//! packet is late a little longer, never for ever, because the timer is armed again while the list
//! has one.
//!
//! Locks: [`DICE`] and [`LATE`] are leaves, never held both; the timer's own is taken without them.
//! Nothing is sent or received with one held. A run repeats to the packet only where packets come
//! in the same order: with one processor in deterministic mode.
//!
//! # Road not taken
//!
//! A queueing discipline as Linux' netem: there is none here whose place it would take, and it
//! does not see what a device has received.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::{boot, warn};
use hayate_packet_faults::{Dice, Fate, Faults, damage};

use super::config::{Interface, Network};
use super::packet::{Body, Packet};
use super::slice::Payload;
use super::wire;
use crate::namespace::Home;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget};

/// The most packets that are late at once.
const MOST: usize = 4096;
/// The most bytes of late packets. They may belong to a sender that waits for no answer (UDP).
const MOST_BYTES: usize = 16 << 20;
/// The most packets that arrive in one interrupt of the timer.
const AT_ONCE: usize = 32;
/// Nanoseconds until the next interrupt if more packets are due. One that is due already when the
/// handler ends would make the timers of this processor pause (`schedule::timer`).
const PAUSE: u64 = 20_000;

/// The reception of a packet of so many bytes on an interface.
pub type Arrive = fn(&Interface, usize, Packet);

static ARE_ON: AtomicBool = AtomicBool::new(false);
static DICE: SpinLock<Option<(Faults, Dice)>> = SpinLock::new(None);
static LATE: SpinLock<Queue> = SpinLock::new(Queue { packets: VecDeque::new(), bytes: 0 });
static CLOCK: Once<(Arc<Clock>, Arc<Timer>)> = Once::new();

/// A packet that arrives later.
struct Late {
    due: u64,
    network: Home<Network>,
    interface: u32,
    length: usize,
    packet: Packet,
    arrive: Arrive,
}

/// Late packets in the order of their arrival.
struct Queue {
    packets: VecDeque<Late>,
    /// Of all of them.
    bytes: usize,
}

impl Queue {
    /// Puts a packet behind those that are due at the same time. Returns whether there was room.
    fn put(&mut self, late: Late) -> bool {
        let has_room = self.packets.len() < MOST && self.bytes + late.length <= MOST_BYTES;
        if !has_room || self.packets.make_room(1).is_err() {
            return false;
        }
        self.bytes += late.length;
        let at = self.packets.partition_point(|other| other.due <= late.due);
        self.packets.insert(at, late);
        true
    }

    /// Takes the first packet out if it is due. Otherwise it gives the time when it is, or `None`
    /// if there is none.
    fn take(&mut self, now: u64) -> Result<Late, Option<u64>> {
        let due = self.packets.front().map(|first| first.due);
        match self.packets.pop_front_if(|first| first.due <= now) {
            Some(late) => {
                self.bytes -= late.length;
                Ok(late)
            }
            None => Err(due),
        }
    }
}

/// Reads `net.fault=` of the command line; at boot. A wrong one is reported, and there are none.
pub fn init() {
    let Some(text) = boot::option("net.fault") else { return };
    match Faults::parse(text) {
        Ok(faults) => set(faults),
        Err(refused) => warn!("net.fault={text}: {refused}. No packet is befallen by a fault"),
    }
}

/// Sets the faults that packets meet from now on, and begins their random numbers anew.
pub fn set(faults: Faults) {
    let mut dice = DICE.lock();
    *dice = Some((faults, Dice::new(faults.seed)));
    ARE_ON.store(!faults.are_none(), Ordering::Relaxed);
}

/// Returns the faults that packets meet.
pub fn get() -> Faults {
    DICE.lock().as_ref().map_or_else(Faults::default, |(faults, _)| *faults)
}

/// Whether packets meet faults. If so, they are given to [`befall`].
#[inline]
pub fn are_on() -> bool {
    ARE_ON.load(Ordering::Relaxed)
}

/// Lets a packet of `length` bytes meet its fate on an interface: it arrives by `arrive` now,
/// later, twice, damaged or not at all.
#[cold]
#[inline(never)]
pub fn befall(interface: &Interface, length: usize, packet: Packet, arrive: Arrive) {
    let Some(fate) = fate(interface) else { return arrive(interface, length, packet) };
    let Some(network) = interface.network.get() else { return };
    if fate.lost {
        return lose(interface);
    }
    let packet = match fate.damage {
        None => packet,
        Some(place) => match damaged(&network, &packet, place) {
            Some(packet) => packet,
            None => return lose(interface),
        },
    };
    // Without memory it is not repeated.
    let second = if fate.repeated { repeated(&network, &packet) } else { None };
    for packet in [Some(packet), second].into_iter().flatten() {
        if fate.delay == 0 {
            arrive(interface, length, packet);
        } else {
            let due = monotonic_ns().saturating_add(fate.delay);
            let (network, index) = (interface.network.clone(), interface.index);
            wait(interface, Late { due, network, interface: index, length, packet, arrive });
        }
    }
}

/// Throws the fate of the next packet. `None`: faults do not concern this interface.
fn fate(interface: &Interface) -> Option<Fate> {
    let mut dice = DICE.lock();
    let (faults, dice) = dice.as_mut()?;
    faults.concern(interface.is_loopback()).then(|| dice.throw(faults))
}

fn lose(interface: &Interface) {
    interface.counters.dropped_in.fetch_add(1, Ordering::Relaxed);
}

/// Turns over a bit of a packet. `None`: it is no packet then, or memory is exhausted.
fn damaged(network: &Network, packet: &Packet, place: u64) -> Option<Packet> {
    let payload = wire::emit(packet).ok()?;
    let mut bytes = Vec::new();
    bytes.make_room_exact(payload.len()).ok()?;
    bytes.resize(payload.len(), 0);
    payload.read(0, &mut bytes);
    damage(&mut bytes, place);
    again(network, packet, Payload::copy(&bytes).ok()?, false)
}

/// Makes the same packet again. `None`: it cannot be one on a wire, or memory is exhausted.
fn repeated(network: &Network, packet: &Packet) -> Option<Packet> {
    // The checksums of a packet whose body is bytes are its sender's, and nobody has checked them.
    let good = !matches!(packet.body, Body::Bytes(_));
    again(network, packet, wire::emit(packet).ok()?, good)
}

/// Reads a packet from bytes that another became. Datagrams that are sent as one stay so.
fn again(network: &Network, packet: &Packet, bytes: Payload, good: bool) -> Option<Packet> {
    let read = wire::parse(network, bytes, packet.interface, good)?;
    Some(Packet { segment: packet.segment, ..read })
}

/// Keeps a packet until its time.
fn wait(interface: &Interface, late: Late) {
    let due = late.due;
    let is_kept = LATE.lock().put(late);
    if !is_kept {
        return lose(interface);
    }
    let (_, timer) = CLOCK.call_once(|| {
        let clock = Arc::new(Clock);
        let target: Weak<dyn TimerTarget> = Arc::<Clock>::downgrade(&clock);
        (clock, Timer::new(target))
    });
    if timer.deadline().is_none_or(|deadline| due < deadline) {
        timer.arm(due);
    }
}

/// Lets late packets arrive.
struct Clock;

impl TimerTarget for Clock {
    fn expire(&self, now: u64) -> Option<u64> {
        for _ in 0..AT_ONCE {
            let next = LATE.lock().take(now);
            match next {
                Ok(late) => deliver(late),
                Err(due) => return Some(due?.max(monotonic_ns() + PAUSE)),
            }
        }
        Some(monotonic_ns() + PAUSE)
    }
}

fn deliver(late: Late) {
    let Some(network) = late.network.get() else { return };
    let config = network.current();
    match config.interface(late.interface) {
        Some(interface) if interface.is_up() => (late.arrive)(interface, late.length, late.packet),
        Some(interface) => lose(interface),
        None => {}
    }
}
