//! Fragments that arrive, and the packets that are put together from them
//! ([`cut`](super::cut) makes fragments).
//!
//! Fragments of one packet have its addresses, protocol and identification in common. The memory of
//! incomplete packets is bounded: [`MOST`] bytes of memory that all of them pin (Linux'
//! `net.ipv4.ipfrag_high_thresh`), and a time for each, counted from its first fragment
//! (`net.ipv4.ipfrag_time`; 60 seconds by RFC 8200, 4.5). Beyond the bound new fragments are dropped,
//! and those that were there go on.
//!
//! Locks: one for each of [`PARTS`] parts of the table, a leaf. Nothing is sent under it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_ip::header::{Fragment, Header};
use hayate_ip::reassembly::{Added, Reassembly};
use hayate_machine::sync::{Once, SpinLock};

use super::icmp;
use super::icmp::Unwanted;
use super::packet::{Body, Packet};
use super::settings;
use super::slice::Payload;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget};

const PARTS: usize = 16;
/// The most bytes that all incomplete packets take.
const MOST: usize = 4 << 20;
const SECOND: u64 = 1_000_000_000;

/// A packet of which fragments are missing.
struct Incomplete {
    /// The header of the fragment that came first.
    header: Header,
    interface: u32,
    /// When it is dropped.
    end: u64,
    /// The memory that its pieces count for in [`MOST`].
    charge: usize,
    pieces: Reassembly<Payload>,
}

static TABLE: [SpinLock<Vec<Incomplete>>; PARTS] = [const { SpinLock::new(Vec::new()) }; PARTS];
static BYTES: AtomicUsize = AtomicUsize::new(0);

impl Incomplete {
    fn is_of(&self, header: &Header, identification: u32) -> bool {
        self.header.source == header.source
            && self.header.destination == header.destination
            && self.header.protocol == header.protocol
            && self.header.fragment.is_some_and(|own| own.identification == identification)
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.charge, Ordering::Relaxed);
    }
}

/// Returns how many packets are incomplete, and the bytes of memory that they take.
pub fn incomplete() -> (usize, usize) {
    (TABLE.iter().map(|part| part.lock().len()).sum(), BYTES.load(Ordering::Relaxed))
}

/// Keeps a fragment that arrived. Returns the packet when it is whole.
pub(super) fn receive(packet: Packet) -> Option<Packet> {
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
    let found = incomplete.iter().position(|other| other.is_of(&header, fragment.identification));
    let at = match found {
        Some(at) => at,
        None => {
            incomplete.make_room(1).ok()?;
            let end = monotonic_ns() + settings::fragment_time(header.destination.is_v4());
            let pieces = Reassembly::default();
            incomplete.push(Incomplete { header, interface, end, charge: 0, pieces });
            incomplete.len() - 1
        }
    };
    if BYTES.fetch_add(charge, Ordering::Relaxed) + charge > MOST {
        BYTES.fetch_sub(charge, Ordering::Relaxed);
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
    // Without memory the sender is not told.
    let Ok(first) = first.share() else { return };
    let fragment = Some(Fragment { offset: 0, more: true, ..fragment });
    let header = Header { fragment, ..late.header };
    let packet = Packet { header, body: Body::Bytes(first), interface: late.interface, segment: 0 };
    icmp::refuse(&packet, Unwanted::Incomplete);
}
