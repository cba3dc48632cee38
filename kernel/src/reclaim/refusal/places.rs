//! The places in the kernel that request memory, and how often each was refused.
//!
//! A place is a system call (or a trap) and the chain of return addresses that leads to the
//! request. The first visits of a place in a run are told apart, as many as were asked for: the
//! second turn of a loop finds another state than the first. A request is *fresh* if none was
//! refused yet at its place and visit.
//!
//! The table is an array with open addressing: it neither grows nor takes a lock, because the
//! judge may do neither. Places for which it has no room are counted and never fresh. Processors
//! that visit a place at once may miscount by one, which does no harm.
//!
//! Not done: a place for each pair of call and file, or for each state of the objects concerned.
//! The kernel would have to know what makes two states alike.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use hayate_abi::{Errno, Result};

/// How many places the table holds. A sweep through a program meets some hundreds.
const SLOTS: usize = 8192;
/// How many slots are tried for a place.
const PROBES: usize = 32;
/// The most visits that are told apart.
const VISITS: u32 = u32::BITS;

/// The number of a place: a hash that is not 0.
#[derive(Clone, Copy)]
pub struct AllocationSite(u64);

impl AllocationSite {
    /// The place that `call` has reached by these return addresses.
    pub fn new(call: u64, stack: &[u64]) -> AllocationSite {
        let mix = |hash: u64, word: &u64| {
            (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let hash = stack.iter().fold(mix(0, &call), mix);
        AllocationSite((hash ^ hash >> 32) | 1)
    }
}

/// A place in the table.
struct Slot {
    /// 0: free.
    place: AtomicU64,
    /// The last run in which it was visited.
    run: AtomicU32,
    /// How often it was visited in that run.
    visits: AtomicU32,
    /// The visits that were refused, a bit each.
    refused: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        place: AtomicU64::new(0),
        run: AtomicU32::new(0),
        visits: AtomicU32::new(0),
        refused: AtomicU32::new(0),
    }
}; SLOTS];
/// How many visits of a place in a run may be refused.
static MOST: AtomicU32 = AtomicU32::new(0);
static RUN: AtomicU32 = AtomicU32::new(0);
static KNOWN: AtomicU32 = AtomicU32::new(0);
static LOST: AtomicU32 = AtomicU32::new(0);

/// Forgets all places; from now on the first `most` visits of each are fresh. `EINVAL`: 0, or more
/// than are told apart.
pub fn forget(most: u32) -> Result<()> {
    if most == 0 || most > VISITS {
        return Err(Errno::EINVAL);
    }
    for slot in &TABLE {
        slot.place.store(0, Relaxed);
        slot.visits.store(0, Relaxed);
        slot.refused.store(0, Relaxed);
    }
    MOST.store(most, Relaxed);
    KNOWN.store(0, Relaxed);
    LOST.store(0, Relaxed);
    Ok(())
}

/// Begins another run. `EINVAL`: [`forget`] was never called.
pub fn begin_run() -> Result<()> {
    RUN.fetch_add(1, Relaxed);
    if MOST.load(Relaxed) == 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// How many places are known, and how many visits found no room in the table.
pub fn counts() -> (u32, u32) {
    (KNOWN.load(Relaxed), LOST.load(Relaxed))
}

/// Counts a visit of `place`; whether it is fresh, and no longer from now on.
pub fn is_fresh(place: AllocationSite) -> bool {
    let Some(slot) = find(place) else {
        LOST.fetch_add(1, Relaxed);
        return false;
    };
    let run = RUN.load(Relaxed);
    if slot.run.swap(run, Relaxed) != run {
        slot.visits.store(0, Relaxed);
    }
    let visit = slot.visits.fetch_add(1, Relaxed);
    visit < MOST.load(Relaxed) && slot.refused.fetch_or(1 << visit, Relaxed) & 1 << visit == 0
}

/// The slot of `place`, which may be new.
fn find(place: AllocationSite) -> Option<&'static Slot> {
    for probe in 0..PROBES {
        let slot = &TABLE[((place.0 >> 1) as usize + probe) % SLOTS];
        match slot.place.compare_exchange(0, place.0, Relaxed, Relaxed) {
            Ok(_) => {
                KNOWN.fetch_add(1, Relaxed);
                return Some(slot);
            }
            Err(known) if known == place.0 => return Some(slot),
            Err(_) => {}
        }
    }
    None
}
