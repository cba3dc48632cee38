//! Fragments that arrive, and the packets that are put together from them
//! ([`cut`](super::cut) makes fragments).
//!
//! Fragments of one packet have its addresses, protocol and identification in common. The memory of
//! incomplete packets is bounded: [`MOST`] bytes of memory that all of them pin (Linux'
//! `net.ipv4.ipfrag_high_thresh`), and a time for each, counted from its first fragment
//! (`net.ipv4.ipfrag_time`; 60 seconds by RFC 8200, 4.5). Beyond the bound new fragments are dropped,
//! and those that were there go on. Each network namespace has this bound for itself, and all
//! together but the first have [`MOST_OTHERS`].
//!
//! Locks: one for each of [`PARTS`] parts of the table, a leaf. Nothing is sent under it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_ip::header::{Fragment, Header};
use hayate_ip::reassembly::{Added, Reassembly};
use hayate_machine::sync::{Once, SpinLock};

use super::config::Network;
use super::icmp;
use super::icmp::Unwanted;
use super::packet::{Body, Packet};
use super::slice::Payload;
use crate::namespace::{Handle, Home};
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget};

const PARTS: usize = 16;
/// The most bytes that all incomplete packets of a network namespace take.
const MOST: usize = 4 << 20;
/// The most bytes that those of all namespaces but the first take.
const MOST_OTHERS: usize = 16 << 20;
const SECOND: u64 = 1_000_000_000;

/// A packet of which fragments are missing.
struct Incomplete {
    /// The header of the fragment that came first.
    header: Header,
    interface: u32,
    /// Its network namespace, which it does not hold.
    network: Home<Network>,
    key: u64,
    /// When it is dropped.
    end: u64,
    /// The memory that its pieces count for in [`MOST`].
    charge: usize,
    pieces: Reassembly<Payload>,
}

static TABLE: [SpinLock<Vec<Incomplete>>; PARTS] = [const { SpinLock::new(Vec::new()) }; PARTS];
/// The bytes of those of all namespaces but the first. Each has its own number, too.
static OTHERS: AtomicUsize = AtomicUsize::new(0);

impl Incomplete {
    fn is_of(&self, network: u64, header: &Header, identification: u32) -> bool {
        self.key == network
            && self.header.source == header.source
            && self.header.destination == header.destination
            && self.header.protocol == header.protocol
            && self.header.fragment.is_some_and(|own| own.identification == identification)
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        if let Some(network) = self.network.get() {
            network.incomplete.fetch_sub(self.charge, Ordering::Relaxed);
        }
        if self.key != 0 {
            OTHERS.fetch_sub(self.charge, Ordering::Relaxed);
        }
    }
}

/// Counts bytes of a namespace. Returns whether it may have as many; if not, nothing is counted.
fn claim(network: &Network, charge: usize) -> bool {
    let claimed = |count: &AtomicUsize, most| {
        let is_within = count.fetch_add(charge, Ordering::Relaxed) + charge <= most;
        if !is_within {
            count.fetch_sub(charge, Ordering::Relaxed);
        }
        is_within
    };
    if !claimed(&network.incomplete, MOST) {
        return false;
    }
    let fits = network.is_first() || claimed(&OTHERS, MOST_OTHERS);
    if !fits {
        network.incomplete.fetch_sub(charge, Ordering::Relaxed);
    }
    fits
}

/// Drops the incomplete packets of a namespace that has ended. Needs no memory.
pub(super) fn forget(network: &Network) {
    for part in &TABLE {
        let mut incomplete = part.lock();
        // None of them leads back here: the namespace is gone.
        incomplete.retain(|packet| packet.key != network.key);
        if incomplete.is_empty() {
            *incomplete = Vec::new();
        }
    }
}

/// Returns how many packets of a namespace are incomplete, and the bytes of memory that they take.
pub fn incomplete(network: &Network) -> (usize, usize) {
    let own = |packet: &&Incomplete| packet.key == network.key;
    let count = TABLE.iter().map(|part| part.lock().iter().filter(own).count()).sum();
    (count, network.incomplete.load(Ordering::Relaxed))
}

/// Keeps a fragment that arrived. Returns the packet when it is whole.
pub(super) fn receive(network: &Handle<Network>, packet: Packet) -> Option<Packet> {
    let Packet { header, body: Body::Bytes(mut payload), interface, .. } = packet else {
        return None;
    };
    let fragment = header.fragment?;
    if fragment.more {
        // Bytes behind the last multiple of eight are not counted (`ip_frag_queue`).
        payload.truncate(payload.len() & !7);
    }
    let part = &TABLE[fragment.identification as usize % PARTS];
    let charge = payload.pinned() + size_of::<Incomplete>();
    let mut incomplete = part.lock();
    let is_it = |other: &Incomplete| other.is_of(network.key, &header, fragment.identification);
    let found = incomplete.iter().position(is_it);
    let at = match found {
        Some(at) => at,
        None => {
            incomplete.make_room(1).ok()?;
            let end = monotonic_ns() + network.settings.fragment_time(header.destination.is_v4());
            network.note_trace();
            incomplete.push(Incomplete {
                header,
                interface,
                network: network.home(),
                key: network.key,
                end,
                charge: 0,
                pieces: Reassembly::default(),
            });
            incomplete.len() - 1
        }
    };
    if !claim(network, charge) {
        if found.is_none() {
            incomplete.swap_remove(at);
        }
        return None;
    }
    let queue = &mut incomplete[at];
    queue.charge += charge;
    let added = queue.pieces.add(fragment.offset, payload.len(), fragment.more, payload);
    if matches!(added, Ok(Added::Kept | Added::Repeated)) {
        drop(incomplete);
        watch();
        return None;
    }
    let mut done = incomplete.swap_remove(at);
    drop(incomplete);
    added.ok()?;
    let mut whole = Payload::new();
    for slice in core::mem::take(&mut done.pieces).into_pieces().flat_map(Payload::into_slices) {
        whole.push(slice).ok()?;
    }
    let header = Header { fragment: None, ..done.header };
    Some(Packet { header, body: Body::Bytes(whole), interface, segment: 0 })
}

/// Drops packets whose time is over.
struct Sweeper;

static SWEEPER: Once<(Arc<Sweeper>, Arc<Timer>)> = Once::new();

fn watch() {
    let (_, timer) = SWEEPER.call_once(|| {
        let sweeper = Arc::new(Sweeper);
        let target: Weak<dyn TimerTarget> = Arc::<Sweeper>::downgrade(&sweeper);
        (sweeper, Timer::new(target))
    });
    if timer.deadline().is_none() {
        timer.arm(monotonic_ns() + SECOND);
    }
}

impl TimerTarget for Sweeper {
    fn expire(&self, now: u64) -> Option<u64> {
        let mut waits = false;
        for part in &TABLE {
            loop {
                let late = {
                    let mut incomplete = part.lock();
                    let late = incomplete.iter().position(|packet| packet.end <= now);
                    waits |= late.is_none() && !incomplete.is_empty();
                    let late = late.map(|at| incomplete.swap_remove(at));
                    if incomplete.is_empty() {
                        // Senders decide how long it once was.
                        *incomplete = Vec::new();
                    }
                    late
                };
                match late {
                    Some(late) => report(&late),
                    None => break,
                }
            }
        }
        waits.then_some(now + SECOND)
    }
}

/// Tells the sender that the rest of a packet did not come, if its beginning did (RFC 792, RFC
/// 4443, 3.3).
fn report(late: &Incomplete) {
    let (Some(first), Some(fragment)) = (late.pieces.first(), late.header.fragment) else { return };
    let Some(network) = late.network.get() else { return };
    // Without memory the sender is not told.
    let Ok(first) = first.share() else { return };
    let fragment = Some(Fragment { offset: 0, more: true, ..fragment });
    let header = Header { fragment, ..late.header };
    let packet = Packet { header, body: Body::Bytes(first), interface: late.interface, segment: 0 };
    icmp::refuse(&network, &packet, Unwanted::Incomplete);
}
