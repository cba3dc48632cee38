//! Spaces kept for the next start of their program.
//!
//! When the last user of a space made by exec releases it, the space is not torn down: only what
//! the program added is unmapped. The space, with its page tables and pages, goes into a pool under
//! the rules of [`AttachmentKey`]. The next exec that matches the key takes the space out and
//! restores the pages that were written. It has nothing to map and hardly a fault to take.
//!
//! How each page is restored ([`Space::restore`], which runs when the space is taken):
//!
//! | page | becomes |
//! |---|---|
//! | of a file, never written | stays: the key names this content of the page cache |
//! | private, of a writable part of a file | copied again from the page cache; zero after the file's end |
//! | private, without a file (bss, stack) | zeroed |
//! | private where the program could not write at first | dropped: a breakpoint, a relocated constant |
//! | large, shared with a child, not alone in its frame | dropped |
//!
//! A page that was not written since it was last restored is only looked at: the processor's dirty
//! bit tells (see `machine::paging`). Regions that the program cannot write are not even looked at,
//! unless access rights were changed there ([`Altered`](crate::memory::origin::Altered)).
//!
//! No other thread can reach a kept space: it is kept only if its `Arc` is the last one, and taken
//! only if it still is. (The list of all spaces ([`crate::memory::all_spaces`]) can make another
//! reference for a moment, to unmap pages of a truncated file, which does no harm.) The space of a
//! program that runs with more rights than its file gives to every user is never kept; see
//! `program::prepare`.
//!
//! The policy decides what is kept: spaces with all their pages under `attachment`, or under
//! `space` and `region` together; the pages of the text only under `text` besides. Text pages that
//! are not to be kept are dropped when the space is taken. A space that cannot be kept with its
//! program goes to [`empty_spaces`], and its regions go to [`regions`] under `region` alone.
//!
//! Random addresses: stack, heap and the base of mappings are drawn anew for each start, as Linux
//! does; a program with fixed addresses has no others. The addresses of a position-independent
//! program and of its interpreter stay with the kept space, so such a program may have the same
//! addresses at its next start. A space is therefore used [`LIVES`] times at most while addresses
//! are random, only by the same user and the same program, and no two programs that run at once
//! have the same addresses. `recycle=full-attachment` draws everything anew for every start.
//!
//! The spaces are in a [`PerCpuPool`]; they are restored and dropped outside of its locks.
//!
//! Road not taken: forking a template space instead of restoring the used one. The first write to
//! each page would fault and copy, which costs more than the copy alone.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use hayate_recycler::{AttachmentKey, KeptKinds, ResourceKind, Stored};
use hayate_space_map::{Region, SpaceMap};
use machine::frames;
use machine::paging::{self, Access, Edit, Fate, Found, PageKind};

use super::heirs::NEAR;
use super::per_cpu_pool::{PerCpuPool, Resource};
use super::watch::Watch;
use super::{empty_spaces, heirs, regions};
use super::{policy, statistics};
use crate::memory::error::NoMemoryError;
use crate::memory::fault;
use crate::memory::layout::Layout;
use crate::memory::limits::Limits;
use crate::memory::map::Removed;
use crate::memory::origin::{Cleared, Origin, Start};
use crate::memory::page::PAGE;
use crate::memory::region::{Mapping, Protection, RegionFlags};
use crate::memory::space::{Inner, Space};
use crate::reclaim::growth::Grow;
use crate::schedule::time;

/// The most uses of one space while addresses are random.
const LIVES: u32 = 256;

/// A kept space.
struct KeptSpace {
    space: Arc<Space>,
    since: u64,
}

impl Resource for KeptSpace {
    type Key = AttachmentKey;

    const KIND: ResourceKind = ResourceKind::Attachment;

    fn is_wanted() -> bool {
        policy::keeps_whole_spaces()
    }

    fn since(&self) -> u64 {
        self.since
    }

    fn refers_to(&self, key: &AttachmentKey, page_cache: u64) -> bool {
        key.program.page_cache == page_cache
            || key.interpreter.is_some_and(|file| file.page_cache == page_cache)
    }
}

static POOL: PerCpuPool<KeptSpace> = PerCpuPool::new();

/// Sets the limit (an eighth of memory) and registers the pool; boot calls it once.
pub fn init() {
    POOL.init(frames::total() / 8 * PAGE);
}

impl Space {
    /// Notes that the space is now in the state in which the same program should start again. `key`
    /// says which starts may take it. Does nothing if memory for the note is exhausted.
    pub fn begins_here(&self, key: AttachmentKey, start: Start, cleared: Cleared) {
        let mut guard = self.table.lock();
        let inner = &mut *guard;
        if !policy::keeps_whole_spaces() && !regions::are_worthy(inner.map.iter()) {
            return;
        }
        // A stack at a random address is not part of the origin.
        let goes = |region: &Region<Mapping>| {
            key.randomised && region.value.flags.contains(RegionFlags::STACK)
        };
        let map = inner.map.try_clone(|region| (!goes(region)).then(|| region.value.clone()));
        let Ok(map) = map else { return };
        for region in map.iter() {
            if let Some(backing) = &region.value.backing {
                backing.page_cache.remember();
            }
        }
        let data = inner.data;
        inner.altered.clear();
        inner.origin = Some(Box::new(Origin { key, start, map, cleared, data, lives: 0 }));
    }
}

impl Space {
    /// Where the program begins whose state the space notes ([`Space::begins_here`]).
    pub fn beginning(&self) -> Option<Start> {
        self.table.lock().origin.as_ref().map(|origin| origin.start)
    }
}

/// Releases a space: keeps it if it can be used again, else takes it apart. Returns it, as it is,
/// if somebody else has it too, or if it was in supervisor mode or traced. Call it without locks.
#[must_use]
pub fn release(mut space: Arc<Space>) -> Option<Arc<Space>> {
    if Arc::strong_count(&space) != 1 || space.was_supervisor() {
        return Some(space);
    }
    if space.descends.load(Relaxed) {
        if space.stays_out() {
            return Some(space);
        }
        match heirs::keep(space) {
            Some(refused) => space = refused,
            None => return None,
        }
    }
    if policy::keeps_whole_spaces() {
        // Removed regions are dropped after the space's lock is released.
        if let Some((key, bytes, _removed)) = space.strip() {
            let since = time::monotonic_ns();
            POOL.store(key, KeptSpace { space, since }, bytes);
            return None;
        }
    } else if regions::are_wanted() {
        regions::keep(&space);
    }
    empty_spaces::keep(space);
    None
}

/// Takes a kept space that matches `key` and restores it, for a program under `limits`. New
/// mappings get their addresses from `layout`.
pub fn take<W: Watch>(
    key: &AttachmentKey,
    limits: Limits,
    layout: Layout,
) -> Option<(Arc<Space>, Start)> {
    let Stored { value, bytes, .. } = POOL.take(key, |_| true)?;
    let space = value.space;
    // If another thread holds a reference, or the space cannot be restored, exec makes a new one.
    let start = if Arc::strong_count(&space) == 1 { space.restore::<W>(layout) } else { None };
    let Some(start) = start else {
        statistics::dropped(ResourceKind::Attachment, bytes);
        return None;
    };
    space.begin_again(limits);
    statistics::reused(ResourceKind::Attachment, bytes);
    Some((space, start))
}

impl Space {
    /// Maps the first stack, or resizes a kept one, and writes its first content at `pointer`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn place_stack(
        &self,
        range: Range<usize>,
        mapping: Mapping,
        pointer: usize,
        content: &[u8],
    ) -> Result<()> {
        // The part cut off a larger kept stack is dropped after the lock is released.
        let _removed;
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        let there = inner.map.find(range.end - 1).map_or(range.end, |stack| stack.start);
        let more = there.saturating_sub(range.start);
        if more > self.limits().address_space.saturating_sub(inner.map.size()) {
            return Err(Errno::ENOMEM);
        }
        if there < range.start {
            _removed = inner.cut(&mut edit, there..range.start)?;
        } else if there == range.end {
            if !inner.map.is_free(range.clone()) {
                return Err(Errno::ENOMEM);
            }
            let access = mapping.protection.access();
            inner.put(range, mapping).map_err(NoMemoryError::from)?;
            if begin_stack(&mut edit, pointer, content, access) {
                self.count_minor();
                return Ok(());
            }
        } else if more != 0 && !inner.map.grow_down(there, range.start) {
            return Err(Errno::ENOMEM);
        }
        drop(edit);
        drop(guard);
        self.fill_foreign(pointer, content)
    }

    /// Unmaps what the program added. Returns the key and the size under which to keep the space,
    /// and the removed regions; `None` if it cannot be kept.
    fn strip(&self) -> Option<(AttachmentKey, usize, Removed)> {
        // Declared first: dropped after the lock, also when the space cannot be kept.
        let mut removed = Removed::new();
        let origin;
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        origin = inner.origin.take()?;
        if origin.key.randomised && origin.lives >= LIVES {
            return None;
        }
        let is_large = edit.begin_end();
        // Nearly always the only new region is the stack, at its random address.
        if origin.key.randomised
            && let Some(stack) = inner.map.find(inner.layout.stack_top - 1)
        {
            let range = stack.start..stack.end;
            removed = inner.cut_with_tables(&mut edit, range)?;
        }
        if !is_same(&inner.map, &origin.map) {
            let mut extra: ArrayVec<Range<usize>, 32> = ArrayVec::new();
            find_added(&inner.map, &origin.map, &mut extra)?;
            for range in extra {
                removed.make_room(inner.map.overlapping(range.clone()).count()).ok()?;
                removed.extend(inner.cut_with_tables(&mut edit, range)?);
            }
            if !is_same(&inner.map, &origin.map) {
                let fresh = origin.map.try_clone(|region| Some(region.value.clone())).ok()?;
                removed.make_room(inner.map.len()).ok()?;
                removed.extend(core::mem::replace(&mut inner.map, fresh).take());
            }
        }
        // Nothing of the origin is a segment.
        (inner.has_segments, inner.user_only) = (false, false);
        inner.data = origin.data;
        inner.locked = 0;
        inner.future = RegionFlags::empty();
        inner.full_above = (usize::MAX, 0);
        let key = origin.key;
        inner.origin = Some(origin);
        if is_large {
            edit.recount();
        }
        drop(edit);
        drop(guard);
        let resident = self.table.resident();
        Some((key, (resident.anonymous + resident.tables + 1) * PAGE, removed))
    }

    /// Restores the pages. `None` if that fails.
    fn restore<W: Watch>(&self, layout: Layout) -> Option<Start> {
        let (start, missing) = {
            let mut guard = self.table.lock();
            let (inner, mut edit) = guard.parts();
            inner.layout = layout;
            let Inner { origin, altered, .. } = inner;
            let origin = origin.as_mut()?;
            origin.lives += 1;
            let text = policy::keeps(KeptKinds::TEXT);
            for region in origin.map.iter() {
                let mapping = &region.value;
                let writable = mapping.protection.contains(Protection::WRITE);
                if !writable && text && !altered.meets(region.start, region.end) {
                    continue;
                }
                let range = region.start..region.end;
                if !writable && !text {
                    // None of its pages is kept: unmapping them all at once is faster than deciding
                    // one by one.
                    edit.unmap(range).ok()?;
                    continue;
                }
                let access = mapping.protection.access();
                let mut decide = |found: &Found| {
                    let fate = decide(found, mapping, region.start, access, text, &origin.cleared);
                    let changed = found.kind == PageKind::Private && found.written;
                    W::restored(changed && fate != Fate::Drop, mapping.backing.is_some());
                    fate
                };
                edit.restore(range, &mut decide).ok()?;
            }
            altered.clear();
            (origin.start, uncleared(&edit, &origin.cleared))
        };
        // These pages are brought in again, as the loader did.
        const ZEROES: [u8; PAGE] = [0; PAGE];
        for range in missing {
            let zeroes = ZEROES.get(..range.len()).unwrap_or(&ZEROES);
            if self.write_foreign(range.start, zeroes) != zeroes.len() {
                return None;
            }
        }
        Some(start)
    }
}

/// Fills the first page of a stack, where nothing is mapped yet, as a fault and a copy would.
/// Returns false if the content is larger than a page or memory is exhausted; the fault and the
/// copy must then do it.
#[inline]
fn begin_stack(edit: &mut Edit<'_>, pointer: usize, content: &[u8], access: Access) -> bool {
    if pointer % PAGE + content.len() > PAGE {
        return false;
    }
    let Some(slot) = edit.slot(pointer & !(PAGE - 1)) else { return false };
    if slot.page().is_some() {
        return false;
    }
    let Some(frame) = fault::zeroed(slot.owner()) else { return false };
    frame.write(pointer % PAGE, content);
    slot.fill(frame, PageKind::Private, access).is_ok()
}

/// Decides the fate of one page (see the module), and restores its content.
fn decide(
    found: &Found,
    mapping: &Mapping,
    start: usize,
    access: Access,
    text: bool,
    cleared: &Cleared,
) -> Fate {
    match (found.kind, &mapping.backing) {
        (PageKind::File, Some(_)) if text => Fate::Keep(access),
        (PageKind::Zero, None) => Fate::Keep(access),
        (PageKind::Private, _) if !access.write || found.frame().references() != 1 => Fate::Drop,
        (PageKind::Private, _) if !found.written => Fate::Keep(access),
        (PageKind::Private, None) => {
            found.frame().zero();
            Fate::Keep(access)
        }
        (PageKind::Private, Some(backing)) => {
            let Some(pristine) = backing.page_cache.peek(mapping.index(start, found.address))
            else {
                return Fate::Drop;
            };
            found.frame().copy_from(&pristine);
            for range in cleared {
                if range.start & !(PAGE - 1) == found.address {
                    found.frame().zero_range(range.start % PAGE, range.len());
                }
            }
            Fate::Keep(access)
        }
        _ => Fate::Drop,
    }
}

/// The zeroed parts whose page is absent: a fault would bring that page with the file's content.
fn uncleared(edit: &Edit<'_>, cleared: &Cleared) -> Cleared {
    let is_there = |range: &&Range<usize>| {
        edit.page(range.start).is_some_and(|page: paging::Page| page.kind == PageKind::Private)
    };
    cleared.iter().filter(|range| !is_there(range)).cloned().collect()
}

fn is_same(one: &SpaceMap<Mapping>, other: &SpaceMap<Mapping>) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other.iter())
            .all(|(a, b)| a.start == b.start && a.end == b.end && a.value.is_same(&b.value))
}

/// The ranges in which `now` has a mapping that `then` does not have. `None` if there are too many.
///
/// Ranges with nothing but a hole between them become one, if the hole is smaller than [`NEAR`]:
/// cut one by one, the first would have the second for a neighbour, and all of its pages would be
/// taken out one by one instead of with their tables. A dynamic linker leaves such a hole where it
/// had mapped its cache.
fn find_added(
    now: &SpaceMap<Mapping>,
    then: &SpaceMap<Mapping>,
    added: &mut ArrayVec<Range<usize>, 32>,
) -> Option<()> {
    // Whether nothing that stays lies behind the last range.
    let mut joins = false;
    let mut add = |range: Range<usize>, joins: bool| {
        if range.is_empty() {
            return Some(joins);
        }
        match added.last_mut() {
            Some(last) if joins && range.start - last.end < NEAR => last.end = range.end,
            _ => added.try_push(range).ok()?,
        }
        Some(true)
    };
    for region in now.iter() {
        let mut at = region.start;
        for old in then.overlapping(region.start..region.end) {
            let common = old.start.max(region.start);
            if old.value.shows_same(old.start, &region.value, region.start, common) {
                add(at..common, joins)?;
                at = old.end.min(region.end);
                joins = false;
            }
        }
        joins = add(at..region.end, joins)?;
    }
    Some(())
}
