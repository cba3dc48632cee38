//! The hardware addresses of hosts on a link: ARP (RFC 826) and neighbour discovery (RFC 4861, 7).
//!
//! A packet for a host whose address is not known waits for it, with a few others; the host is
//! asked three times, a second apart, then the packets are dropped. A known address is asked for
//! again after [`FRESH`], and used meanwhile.
//!
//! A message is an allegation: it changes an entry that this machine wants, and makes one only for
//! a host that asks for this machine's address (as Linux without `arp_accept`).
//!
//! The table is bounded. In a full part the hosts go that did not answer and those that were not
//! heard for [`FRESH`]; then the one that was asked longest ago, with the packets that wait for it;
//! then the known one that was heard longest ago. The memory of packets that wait is counted with
//! that of datagrams ([`memory`]).
//!
//! A processor keeps some of the hosts that it sent to last ([`known`]): its next packet to one of
//! them takes no lock that another processor's packets take. A change of an address that was known
//! raises [`CHANGES`], and what processors keep is old then.
//!
//! Locks: one for each of [`PARTS`] parts, then a processor's [`LATELY`], a leaf; nothing is sent
//! with one held.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::hash::BuildHasherDefault;
use core::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use hayate_ip::Address;
use hayate_machine::cpu::PerCpu;
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};

use super::config::Interface;
use super::memory::{self, Charge};
use super::packet::Packet;
use crate::hash::IndexHasher;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget};

const PARTS: usize = 16;
/// The most entries of a part (`gc_thresh3` is 1024 for all).
const MOST: usize = 64;
/// The most packets that wait for an address.
const WAITING: usize = 16;
const SECOND: u64 = 1_000_000_000;
/// How long an address is used without being asked for again.
const FRESH: u64 = 60 * SECOND;
/// How often a host is asked.
const TRIES: u32 = 3;

/// The acts on a link for this table, which stands below it.
pub struct LinkActions {
    /// Asks the hosts for the hardware address of one of them.
    pub ask: fn(&Arc<Interface>, Address),
    /// Sends a packet to a hardware address.
    pub transmit: fn(&Arc<Interface>, Hardware, &Packet),
    /// Tells the sender of a packet that the host does not answer.
    pub unreachable: fn(&Packet),
}

static LINK: Once<LinkActions> = Once::new();

/// Registers what is done on links; at boot.
pub fn register(link: LinkActions) {
    LINK.call_once(|| link);
}

pub use hayate_ip::neighbour::Hardware;

/// Returns the hardware address of a group (RFC 1112, 6.4; RFC 2464, 7).
pub fn group(address: Address) -> Hardware {
    let [.., a, b, c, d] = address.octets();
    match address.to_v4() {
        Some(_) => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
        None => [0x33, 0x33, a, b, c, d],
    }
}

struct Neighbour {
    interface: Arc<Interface>,
    hardware: Option<Hardware>,
    confirmed: u64,
    asked: u64,
    tries: u32,
    waiting: Vec<Packet>,
    /// The bytes that those pin.
    pinned: usize,
    held: Charge,
}

impl Neighbour {
    /// Lets a packet wait; it is dropped if it may not.
    fn hold(&mut self, packet: Packet) {
        let admitted = self.waiting.len() < WAITING && self.held.admits(self.pinned);
        if admitted && self.waiting.make_room(1).is_ok() {
            self.pinned += packet.pinned();
            self.held.set(self.pinned);
            self.waiting.push(packet);
        }
    }

    /// Takes the packets that wait.
    fn let_go(&mut self) -> Vec<Packet> {
        self.pinned = 0;
        self.held.set(0);
        core::mem::take(&mut self.waiting)
    }
}

type Key = (u64, u64, u32);
type Neighbours = HashMap<Key, Neighbour, BuildHasherDefault<IndexHasher>>;

static TABLE: [SpinLock<Neighbours>; PARTS] =
    [const { SpinLock::new(HashMap::with_hasher(BuildHasherDefault::new())) }; PARTS];

/// How often an address changed that was known, or was forgotten.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// A host whose address was found.
struct Found {
    key: Key,
    hardware: Hardware,
    /// Until when it need not be asked again.
    fresh: u64,
    /// The changes before it was found.
    changes: u64,
}

/// How many hosts a processor keeps.
const KEPT: usize = 4;

per_cpu! {
    static LATELY: PerCpu<SpinLock<[Option<Found>; KEPT]>> =
        PerCpu::new(SpinLock::new([const { None }; KEPT]));
}

/// Where a processor keeps a host.
#[inline]
fn place((_, low, interface): Key) -> usize {
    (low as usize ^ interface as usize) % KEPT
}

/// Returns the hardware address of a host that this processor sent to lately, if it keeps that and
/// the address is fresh. Other hosts are [found](resolve).
#[inline]
pub fn known(interface: &Interface, address: Address) -> Option<Hardware> {
    let key = key(interface, address);
    let lately = LATELY.here().lock();
    let found = lately[place(key)].as_ref()?;
    let is_it = found.key == key
        && found.changes == CHANGES.load(Ordering::Acquire)
        && monotonic_ns() <= found.fresh;
    is_it.then_some(found.hardware)
}

#[inline]
fn key(interface: &Interface, address: Address) -> Key {
    let bits = address.bits();
    ((bits >> 64) as u64, bits as u64, interface.index)
}

fn part(address: Address) -> &'static SpinLock<Neighbours> {
    &TABLE[address.bits() as usize % PARTS]
}

/// Finds the hardware address of a host on a link, for a packet; gives the packet back with it.
/// `None`: the packet waits, or was dropped.
pub fn resolve(
    interface: &Arc<Interface>,
    address: Address,
    packet: Packet,
) -> Option<(Hardware, Packet)> {
    let now = monotonic_ns();
    let (known, ask) = {
        let mut part = part(address).lock();
        let key = key(interface, address);
        if !part.contains_key(&key) && !make_entry(&mut part, key, interface, now) {
            return None;
        }
        let entry = part.get_mut(&key)?;
        let old = entry.hardware.is_none() || now.saturating_sub(entry.confirmed) > FRESH;
        // A host that nobody asks at present is asked at once, also in the machine's first second.
        let due = entry.tries == 0 || now.saturating_sub(entry.asked) >= SECOND;
        let ask = old && due && entry.tries < TRIES;
        if ask {
            entry.asked = now;
            entry.tries += 1;
        }
        match entry.hardware {
            None => {
                entry.hold(packet);
                (None, ask)
            }
            Some(hardware) => {
                let fresh = entry.confirmed.saturating_add(FRESH);
                let changes = CHANGES.load(Ordering::Acquire);
                let found = Found { key, hardware, fresh, changes };
                LATELY.here().lock()[place(key)] = Some(found);
                (Some((hardware, packet)), ask)
            }
        }
    };
    if let Some(link) = LINK.get().filter(|_| ask) {
        (link.ask)(interface, address);
        watch(now);
    }
    known
}

fn make_entry(part: &mut Neighbours, key: Key, interface: &Arc<Interface>, now: u64) -> bool {
    if part.len() >= MOST {
        part.retain(|_, entry| match entry.hardware {
            Some(_) => now.saturating_sub(entry.confirmed) <= FRESH,
            None => entry.tries > 0,
        });
        if part.len() >= MOST {
            let age = |entry: &Neighbour| match entry.hardware {
                None => (0, entry.asked),
                Some(_) => (1, entry.confirmed),
            };
            let oldest = part.iter().min_by_key(|(_, entry)| age(entry)).map(|(key, _)| *key);
            oldest.and_then(|key| part.remove(&key));
        }
    }
    if part.make_room(1).is_err() {
        return false;
    }
    let entry = Neighbour {
        interface: Arc::clone(interface),
        hardware: None,
        confirmed: 0,
        asked: now,
        tries: 0,
        waiting: Vec::new(),
        pinned: 0,
        held: Charge::new(&memory::UDP, memory::NOBODY),
    };
    part.insert(key, entry);
    true
}

/// A host on a link says its hardware address. `wanted`: it asks for this machine's, so it will be
/// needed.
pub fn learn(interface: &Arc<Interface>, address: Address, hardware: Hardware, wanted: bool) {
    // A group has no hardware address of its own.
    if !address.is_unicast() || hardware[0] & 1 != 0 || hardware == [0; 6] {
        return;
    }
    let now = monotonic_ns();
    let waiting = {
        let mut part = part(address).lock();
        let key = key(interface, address);
        if wanted && !part.contains_key(&key) && !make_entry(&mut part, key, interface, now) {
            return;
        }
        let Some(entry) = part.get_mut(&key) else { return };
        if entry.hardware.replace(hardware) != Some(hardware) {
            CHANGES.fetch_add(1, Ordering::Release);
        }
        entry.confirmed = now;
        entry.tries = 0;
        entry.let_go()
    };
    let Some(link) = LINK.get() else { return };
    for packet in waiting {
        (link.transmit)(interface, hardware, &packet);
    }
}

/// Asks again for the addresses that packets wait for.
struct Asker;

static ASKER: Once<(Arc<Asker>, Arc<Timer>)> = Once::new();

fn watch(now: u64) {
    let (_, timer) = ASKER.call_once(|| {
        let asker = Arc::new(Asker);
        let target: Weak<dyn TimerTarget> = Arc::<Asker>::downgrade(&asker);
        (asker, Timer::new(target))
    });
    if timer.deadline().is_none() {
        timer.arm(now + SECOND);
    }
}

impl TimerTarget for Asker {
    fn expire(&self, now: u64) -> Option<u64> {
        let mut waits = false;
        for part in &TABLE {
            let mut asked: Vec<(Arc<Interface>, Address)> = Vec::new();
            let mut dropped = Vec::new();
            let mut part = part.lock();
            for (key, entry) in part.iter_mut().filter(|(_, entry)| entry.tries > 0) {
                if now.saturating_sub(entry.asked) < SECOND {
                    waits = true;
                } else if entry.tries >= TRIES {
                    // It does not answer. A later packet asks anew.
                    entry.tries = 0;
                    if entry.hardware.take().is_some() {
                        CHANGES.fetch_add(1, Ordering::Release);
                    }
                    if dropped.make_room(1).is_ok() {
                        dropped.push(entry.let_go());
                    } else {
                        drop(entry.let_go());
                    }
                } else if asked.make_room(1).is_ok() {
                    entry.asked = now;
                    entry.tries += 1;
                    waits = true;
                    let bits = u128::from(key.0) << 64 | u128::from(key.1);
                    asked.push((Arc::clone(&entry.interface), Address::v6(bits)));
                }
            }
            drop(part);
            let Some(link) = LINK.get() else { continue };
            for (interface, address) in asked {
                (link.ask)(&interface, address);
            }
            for packet in dropped.into_iter().flatten() {
                (link.unreachable)(&packet);
            }
        }
        waits.then_some(now + SECOND)
    }
}

/// Forgets all hosts, and drops the packets that wait for them.
pub fn forget() {
    for part in &TABLE {
        // Dropped without the lock: packets give memory back.
        let _ = core::mem::take(&mut *part.lock());
    }
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Calls `visit` with interface, address and hardware address of every host that is known or asked
/// for; under the lock of its part.
pub fn for_each(mut visit: impl FnMut(&Interface, Address, Option<Hardware>)) {
    for part in &TABLE {
        for (key, entry) in part.lock().iter() {
            let bits = u128::from(key.0) << 64 | u128::from(key.1);
            visit(&entry.interface, Address::v6(bits), entry.hardware);
        }
    }
}
