//! Heirs: spaces in which a start from an image or a template ran, for the next start from it.
//!
//! A start from an image gets a copy of its memory, as the child of a fork does: it shares the page
//! tables, copies each one that it comes to write below, takes a fault and copies a page for each
//! page that it writes, and at its end all of that is taken apart. Most starts of a command write
//! to the same pages. So the space of such a start goes back to the image when its program has
//! ended: what it mapped is unmapped, and each page that it wrote is overwritten with the image's
//! (`machine::paging::frozen` has the table). Then it is an **heir**, as good as a new copy: the
//! next start takes it, with nothing to copy, no fault for pages that earlier starts wrote, and
//! nothing to take apart.
//!
//! What the image has is in its [`Lineage`]; an heir that is kept belongs to that and ends with it.
//!
//! * **Nothing that a program wrote reaches the next one.** The space is in the image's state
//!   before it is kept, so what a program leaves is gone at its end. Whether a page was written the
//!   processor's dirty bit tells, which [`spaces`](super::spaces) trusts too.
//! * A space is kept only if nobody else holds it, if it never was in supervisor mode, and if its
//!   lineage still exists: an image that was spoiled and dropped has none. A page that something
//!   else refers to, a child's or a pipe's, is not written to but replaced.
//! * The space gets a new serial when it is taken, as every kept space does.
//! * A lineage has as many heirs as can begin at once: one for each processor and one more. All of
//!   them keep a sixteenth of memory at most, and only while more than a quarter is free. They are
//!   given up before everything else that is kept: a copy is all that is lost.
//! * A program that wrote much more than its image has is not worth it, and is taken apart as
//!   always.
//!
//! Lock order: a space's lock, or the lock of a lineage's heirs; never both. Nothing is dropped
//! under either.
//!
//! Road not taken: pages copied ahead when a start begins, by what earlier ones wrote. It saves the
//! faults, but neither the copies of the page tables nor the end, and a page that this start does
//! not write is copied for nothing.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use hayate_abi::Result;
use hayate_recycler::{KeptKinds, ResourceCounts, ResourceKind};
use hayate_space_map::{Region, SpaceMap};
use machine::cpu;
use machine::frames;
use machine::paging::{Edit, Place};

use super::{policy, pools};
use crate::memory::limits::Limits;
use crate::memory::lineage;
use crate::memory::map::Removed;
use crate::memory::page::{PAGE, USER_END};
use crate::memory::region::{Mapping, RegionFlags};
use crate::memory::space::{Heir, Inner, Lineage, MOST_HEIRS, Space};
use crate::reclaim::growth::Grow;

/// How many private pages more than its image a program may have at its end.
const MORE: usize = 2048;

/// The most ranges that are unmapped.
const RANGES: usize = 32;

/// The range that one page directory covers: 1 GiB.
pub(super) const NEAR: usize = 1 << 30;

/// The bytes that all heirs may keep.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Sets the limit and registers the pool; boot calls it once.
pub fn init() {
    LIMIT.store(frames::total() / 16 * PAGE, Relaxed);
    pools::register(&Heirs);
}

fn is_wanted() -> bool {
    policy::keeps(KeptKinds::IMAGE) || policy::keeps_whole_spaces()
}

/// The most heirs that one lineage has.
fn most() -> usize {
    (cpu::count() + 1).min(MOST_HEIRS)
}

/// Returns a space in the first state of `lineage`, whose space is `first`, for a program under
/// `limits`: an heir, or a copy.
///
/// # Errors
/// `ENOMEM`.
pub fn space_of(lineage: &Arc<Lineage>, first: &Space, limits: Limits) -> Result<Arc<Space>> {
    let heir = lineage.heirs.lock().pop();
    if let Some(heir) = heir {
        // One that another reference leads to, or that a truncated file closed, is dropped here.
        let is_ours = Arc::strong_count(&heir.space) == 1 && !lineage.is_closed();
        let space = Arc::clone(&heir.space);
        drop(heir);
        if is_ours {
            space.begin_again(limits);
            lineage.inherited.fetch_add(1, Relaxed);
            return Ok(space);
        }
    }
    let space = first.fork()?;
    space.set_limits(limits);
    if !lineage.is_closed() {
        space.descend_from(lineage);
        space.descends.store(true, Relaxed);
    }
    Ok(space)
}

/// Takes the space of a program that began at an image and has ended, which nobody else holds.
/// Returns it if it is not kept. Call it without locks.
#[cold]
pub fn keep(space: Arc<Space>) -> Option<Arc<Space>> {
    let lineage = space.lineage().filter(|lineage| {
        is_wanted()
            && !lineage.is_closed()
            && frames::is_plentiful()
            && lineage.heirs.lock().len() < most()
            && lineage::bytes() < LIMIT.load(Relaxed)
    });
    // Removed regions are dropped after the space's lock is released.
    let kept = lineage.and_then(|lineage| space.return_to(&lineage).map(|kept| (lineage, kept)));
    let Some((lineage, (bytes, _removed))) = kept else {
        space.descends.store(false, Relaxed);
        return Some(space);
    };
    let heir = Heir::new(space, bytes);
    let mut heirs = lineage.heirs.lock();
    let refused = if heirs.len() < most() {
        heirs.try_push(heir).err().map(|full| full.element())
    } else {
        Some(heir)
    };
    drop(heirs);
    drop(refused);
    None
}

impl Inner {
    /// Unmaps a range. If no other region is near, its page tables are freed too, since otherwise
    /// each start would leave some behind. `None`: memory is exhausted.
    pub(super) fn cut_with_tables(
        &mut self,
        edit: &mut Edit<'_>,
        range: Range<usize>,
    ) -> Option<Removed> {
        let end = range.end.next_multiple_of(NEAR).min(USER_END);
        let near = range.start & !(NEAR - 1)..end;
        let alone =
            |region: &Region<Mapping>| range.start <= region.start && region.end <= range.end;
        let is_alone = self.map.overlapping(near.clone()).all(alone);
        self.cut(edit, if is_alone { near } else { range }).ok()
    }
}

impl Space {
    /// Brings the space back to the state of its lineage. Returns the bytes that it keeps for
    /// itself, and the removed regions; `None` if it is not worth it, or memory is exhausted.
    fn return_to(&self, lineage: &Lineage) -> Option<(usize, Removed)> {
        // Declared first: dropped after the lock, also when the space cannot be kept.
        let mut removed = Removed::new();
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        let is_large = edit.begin_end();
        let mut added = ArrayVec::new();
        if !is_as(&inner.map, &lineage.map, &mut added)? {
            for range in added {
                let count = inner.map.overlapping(range.clone()).count();
                removed.make_room(count).ok()?;
                removed.extend(inner.cut_with_tables(&mut edit, range)?);
            }
            if !is_as(&inner.map, &lineage.map, &mut ArrayVec::new())? {
                let map = lineage.map.try_clone(|region| Some(region.value.clone())).ok()?;
                removed.make_room(inner.map.len()).ok()?;
                removed.extend(core::mem::replace(&mut inner.map, map).take());
            }
        }
        (inner.heap_start, inner.heap_end) = (lineage.heap.start, lineage.heap.end);
        (inner.data, inner.full_above) = (lineage.data, lineage.full_above);
        (inner.locked, inner.future) = (0, RegionFlags::empty());
        // Nothing of an image or a template is a segment.
        (inner.has_segments, inner.user_only) = (false, false);
        if is_large {
            edit.recount();
        }
        if self.table.resident().anonymous > lineage.private + MORE {
            return None;
        }
        let mut regions = lineage.map.iter();
        let mut here: Option<&Region<Mapping>> = regions.next();
        let own = edit.return_to(&lineage.frozen, |address| {
            while here.is_some_and(|region| region.end <= address) {
                here = regions.next();
            }
            let region = here.filter(|region| region.start <= address)?;
            let access = region.value.protection.access();
            Some(Place { access, is_zeroes: region.value.backing.is_none() })
        });
        drop(edit);
        drop(guard);
        // The root is its own, too.
        Some(((own + 1) * PAGE, removed))
    }
}

/// Whether `now` has the mappings of `then`. If it has others, `added` gets the ranges that are to
/// be unmapped. `None`: there are too many.
fn is_as(
    now: &SpaceMap<Mapping>,
    then: &SpaceMap<Mapping>,
    added: &mut ArrayVec<Range<usize>, RANGES>,
) -> Option<bool> {
    let mut add = |range: Range<usize>| match added.last_mut() {
        _ if range.is_empty() => Some(()),
        // One range, if nothing that stays lies between: a library is many regions.
        Some(last) if then.is_free(last.start..range.end) => {
            last.end = range.end;
            Some(())
        }
        _ => added.try_push(range).ok(),
    };
    let mut same = now.len() == then.len();
    let mut olds = then.iter().peekable();
    for region in now.iter() {
        while olds.peek().is_some_and(|old| old.end <= region.start) {
            olds.next();
        }
        if let Some(old) = olds.peek()
            && (old.start, old.end) == (region.start, region.end)
            && old.value.is_same(&region.value)
        {
            continue;
        }
        same = false;
        let mut at = region.start;
        for old in then.overlapping(region.start..region.end) {
            let common = old.start.max(region.start);
            if old.value.shows_same(old.start, &region.value, region.start, common) {
                add(at..common)?;
                at = old.end.min(region.end);
            }
        }
        add(at..region.end)?;
    }
    Some(same)
}

/// The heirs of all lineages, for [`pools`].
struct Heirs;

impl pools::AnyPool for Heirs {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Image
    }

    fn is_wanted(&self) -> bool {
        is_wanted()
    }

    fn limit(&self) -> usize {
        LIMIT.load(Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        LIMIT.store(bytes, Relaxed);
        while lineage::bytes() > bytes && self.drop_oldest().is_some() {}
    }

    /// A copy is all that is lost with an heir, so they are given up first.
    fn oldest(&self) -> Option<u64> {
        // Not by the bytes: those of heirs that are just being dropped are among them.
        let mut any = false;
        lineage::for_each(|lineage| any |= !lineage.heirs.lock().is_empty());
        any.then_some(0)
    }

    fn knows_ages(&self) -> bool {
        false
    }

    fn drop_oldest(&self) -> Option<usize> {
        let mut gone = None;
        lineage::for_each(|lineage| {
            if gone.is_none() {
                gone = lineage.heirs.lock().pop();
            }
        });
        gone.map(|heir| heir.bytes())
    }

    fn counts(&self) -> ResourceCounts {
        ResourceCounts { bytes: lineage::bytes() as u64, ..ResourceCounts::default() }
    }
}
