//! What groups have used of devices, and their limits, found by number without a lock.
//!
//! A handle is a number and how often that was given before: so one that outlives its group, in a
//! request for read-ahead say, is nobody's. The table only grows. Use counts in all
//! groups around it at once, so that nothing is lost when it is removed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::io::{Direction, Limits, Meter};
use hayate_machine::sync::{Once, SpinLock};

use crate::reclaim::charge::records;
use crate::reclaim::growth::Grow;
use crate::reclaim::numbered::Numbered;

/// The bits of a number in a handle. The others count how often it was given.
const BITS: u32 = 16;

/// Bytes and requests, by [`Kind`].
#[derive(Default)]
pub struct Counts {
    bytes: [AtomicU64; 3],
    requests: [AtomicU64; 3],
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It gives sectors back.
    Discard,
}

impl Counts {
    /// Adds.
    #[inline]
    pub(super) fn add(&self, kind: Kind, bytes: u64, requests: u64) {
        if let (Some(all), Some(count)) =
            (self.bytes.get(kind as usize), self.requests.get(kind as usize))
        {
            all.fetch_add(bytes, Relaxed);
            count.fetch_add(requests, Relaxed);
        }
    }

    fn clear(&self) {
        for count in self.bytes.iter().chain(&self.requests) {
            count.store(0, Relaxed);
        }
    }

    /// Bytes and requests of a kind.
    pub fn of(&self, kind: Kind) -> (u64, u64) {
        let of = |counts: &[AtomicU64; 3]| counts.get(kind as usize).map(|one| one.load(Relaxed));
        (of(&self.bytes).unwrap_or(0), of(&self.requests).unwrap_or(0))
    }
}

/// What a group has of a device.
#[derive(Default)]
struct Part {
    counts: Counts,
    meter: Meter,
}

struct Group {
    /// The handle of the group around it; 0: none.
    around: AtomicU32,
    /// How often the number was given.
    given: AtomicU32,
    is_taken: AtomicBool,
    /// By device.
    parts: Once<Box<[Part]>>,
}

type Table = Numbered<Group, 1024>;
static GROUPS: Table = Table::new();
static CHANGES: SpinLock<()> = SpinLock::new(());
static USED: AtomicBool = AtomicBool::new(false);
static LIMITED: AtomicBool = AtomicBool::new(false);
/// How many devices there are. They are found at boot, before there are groups.
static DEVICES: AtomicUsize = AtomicUsize::new(0);

/// Another device was found.
pub(super) fn note_device() {
    DEVICES.fetch_add(1, SeqCst);
}

/// Whether there ever was a group.
#[inline]
pub fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Whether there ever was a limit.
#[inline]
pub fn is_limited() -> bool {
    LIMITED.load(Relaxed)
}

fn group(handle: u32) -> Option<&'static Group> {
    if handle == 0 {
        return None;
    }
    let group = GROUPS.get(handle & ((1 << BITS) - 1))?;
    let is_it = group.is_taken.load(SeqCst) && group.given.load(SeqCst) == handle >> BITS;
    is_it.then_some(group)
}

/// A group and those around it.
fn levels(handle: u32) -> impl Iterator<Item = &'static Group> {
    core::iter::successors(group(handle), |here| group(here.around.load(SeqCst)))
}

/// Whether a group is another one or lies in it; all lie in that with the handle 0.
pub(super) fn is_within(handle: u32, around: u32) -> bool {
    let inner = |here: &u32| group(*here).map(|here| here.around.load(SeqCst));
    let mut levels = core::iter::successors(Some(handle), inner);
    levels.any(|level| level == around)
}

fn parts(handle: u32, device: usize) -> impl Iterator<Item = &'static Part> {
    levels(handle).filter_map(move |level| level.parts.get()?.get(device))
}

fn own_part(handle: u32, device: usize) -> Option<&'static Part> {
    group(handle)?.parts.get()?.get(device)
}

fn fresh() -> Group {
    Group {
        around: AtomicU32::new(0),
        given: AtomicU32::new(0),
        is_taken: AtomicBool::new(false),
        parts: Once::new(),
    }
}

/// Makes a group in that with the handle `around`, 0: in none, which has used nothing and has no
/// limits. Returns its handle.
///
/// # Errors
/// `ENOMEM`, also if there are too many.
pub fn open(around: u32) -> Result<u32> {
    let mut fresh_parts = Vec::new();
    let devices = DEVICES.load(SeqCst);
    fresh_parts.make_room_exact(devices)?;
    fresh_parts.extend((0..devices).map(|_| Part::default()));
    let _lock = CHANGES.lock();
    let is_free = |&number: &u32| GROUPS.get(number).is_none_or(|one| !one.is_taken.load(Relaxed));
    let number = (1..Table::END).find(is_free).ok_or(Errno::ENOMEM)?;
    let own = GROUPS.make(number, fresh)?;
    for part in own.parts.call_once(|| fresh_parts.into_boxed_slice()) {
        part.counts.clear();
        part.meter.set(Limits::NONE);
    }
    own.around.store(around, SeqCst);
    // At least 1, so that no handle is that of an older group, nor a bare number.
    let given = own.given.load(Relaxed) % ((1 << (32 - BITS)) - 1) + 1;
    own.given.store(given, SeqCst);
    own.is_taken.store(true, SeqCst);
    USED.store(true, SeqCst);
    Ok(number | given << BITS)
}

/// Takes a group away. Pages of accounts of memory that were written for it are written for the
/// group around it from now on.
pub fn close(handle: u32) {
    let _lock = CHANGES.lock();
    if let Some(own) = group(handle) {
        records::move_io(handle, own.around.load(SeqCst));
        own.is_taken.store(false, SeqCst);
    }
}

/// Counts requests of a group, and in all around it.
pub(super) fn count(handle: u32, device: usize, kind: Kind, bytes: u64, requests: u64) {
    parts(handle, device).for_each(|part| part.counts.add(kind, bytes, requests));
}

/// Charges what a group transfers now to its limits and those around it.
pub(super) fn charge(
    handle: u32,
    device: usize,
    direction: Direction,
    now: u64,
    bytes: u64,
    requests: u64,
) {
    parts(handle, device).for_each(|part| part.meter.charge(now, direction, bytes, requests));
}

/// When a group owes nothing more to a device, or to any; `None`: it owes nothing now.
pub(super) fn due(
    handle: u32,
    device: Option<usize>,
    direction: Direction,
    now: u64,
) -> Option<u64> {
    let one =
        |device| parts(handle, device).filter_map(|part| part.meter.due(now, direction)).max();
    match device {
        Some(device) => one(device),
        None => (0..DEVICES.load(Relaxed)).filter_map(one).max(),
    }
}

/// Whether a group or one around it has a limit of a direction.
pub(super) fn has_limit(handle: u32, device: usize, direction: Direction) -> bool {
    parts(handle, device).any(|part| part.meter.is_limited(direction))
}

/// What a group and all below it have used of a device.
pub fn used(handle: u32, device: usize) -> Option<&'static Counts> {
    own_part(handle, device).map(|part| &part.counts)
}

/// The limits of a group for a device.
pub fn limits(handle: u32, device: usize) -> Limits {
    own_part(handle, device).map_or(Limits::NONE, |part| part.meter.limits())
}

/// Changes the limits of a group for a device by `change`, unless that fails; wake those that rest
/// afterwards ([`super::wake`]).
///
/// # Errors
/// Those of `change`; `ENODEV`: the group has no controller any more.
pub fn change_limits(
    handle: u32,
    device: usize,
    change: impl FnOnce(Limits) -> Result<Limits>,
) -> Result<()> {
    let _lock = CHANGES.lock();
    let part = own_part(handle, device).ok_or(Errno::ENODEV)?;
    part.meter.set(change(part.meter.limits())?);
    LIMITED.store(true, SeqCst);
    Ok(())
}
