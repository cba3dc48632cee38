//! The list of all spaces, for operations on every space that maps a page cache ([`PageCache`]).
//!
//! The list has one part for each processor, each under its own spin lock, so that processors do
//! not contend when they make and drop spaces. A space keeps its entry until it is dropped.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;

use arrayvec::ArrayVec;
use hayate_abi::Result;
use machine::cpu::{self, MAX_CPUS};
use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::{Edit, PageKind};
use machine::sync::{Lazy, SpinLock};

use super::PAGE;
use super::region::Backing;
use super::space::Space;
use crate::page_cache::cache::{Mapper, PageCache};
use crate::reclaim::growth::Grow;

/// One processor's part of the list.
struct Part {
    spaces: Vec<Option<Weak<Space>>>,
    /// The free entries. The capacity is that of `spaces`, so freeing an entry needs no memory.
    empty: Vec<u32>,
}

static PARTS: [SpinLock<Part>; MAX_CPUS] =
    [const { SpinLock::new(Part { spaces: Vec::new(), empty: Vec::new() }) }; MAX_CPUS];

/// A space's entry on the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListPlace {
    part: u16,
    index: u32,
}

/// Reserves an entry on this processor's part for a space that is about to be made.
pub(super) fn reserve() -> Result<ListPlace> {
    let number = cpu::id();
    let part = &mut *PARTS[number].lock();
    let index = match part.empty.pop() {
        Some(index) => index,
        None => {
            let needed = part.spaces.len() + 1;
            part.spaces.make_room(1)?;
            part.empty.make_room(needed)?;
            part.spaces.push(None);
            part.spaces.len() as u32 - 1
        }
    };
    Ok(ListPlace { part: number as u16, index })
}

/// Puts a space into its entry.
pub(super) fn enter(place: ListPlace, space: &Arc<Space>) {
    if let Some(slot) = PARTS[place.part as usize].lock().spaces.get_mut(place.index as usize) {
        *slot = Some(Arc::downgrade(space));
    }
}

/// Frees an entry.
pub(super) fn leave(place: ListPlace) {
    let part = &mut *PARTS[place.part as usize].lock();
    if let Some(slot) = part.spaces.get_mut(place.index as usize) {
        *slot = None;
        part.empty.push(place.index);
    }
}

/// Calls `visit` with every space. Spaces made meanwhile may be missed; no lock is held during a
/// call.
pub fn for_each(mut visit: impl FnMut(&Arc<Space>)) {
    for part in &PARTS {
        let mut index = 0;
        loop {
            let space = {
                let part = part.lock();
                match part.spaces.get(index) {
                    None => break,
                    Some(slot) => slot.as_ref().and_then(Weak::upgrade),
                }
            };
            if let Some(space) = space {
                visit(&space);
            }
            index += 1;
        }
    }
}

/// The only mapper that page caches call; it finds the spaces itself.
pub struct Everyone(());

static EVERYONE: Lazy<Arc<Everyone>> = Lazy::new(|| Arc::new(Everyone(())));

/// The mapper for [`PageCache::add_mapper`].
pub(super) fn mapper() -> Weak<dyn Mapper> {
    let everyone: Arc<dyn Mapper> = EVERYONE.clone();
    Arc::downgrade(&everyone)
}

impl Mapper for Everyone {
    fn unmap(&self, page_cache: &PageCache, first: u64, last: u64, copies: bool) {
        for_each(|space| space.forget_page_cache(page_cache, first, last, copies));
    }
}

impl Space {
    /// Takes pages `first..=last` of a page cache out of the page table, and private copies too if
    /// `copies`.
    fn forget_page_cache(&self, page_cache: &PageCache, first: u64, last: u64, copies: bool) {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        for region in inner.map.iter() {
            let Some(backing) = &region.value.backing else { continue };
            if !is(backing, page_cache) {
                continue;
            }
            let begin = region.value.offset / PAGE as u64;
            let end = begin + (region.size() / PAGE) as u64;
            let (from, to) = (first.max(begin), last.saturating_add(1).min(end));
            if from >= to {
                continue;
            }
            let at = |index: u64| region.start + (index - begin) as usize * PAGE;
            if copies || region.value.is_shared() {
                // Fails only if a table shared with another space cannot be copied because even the
                // kernel's reserve of memory is exhausted. Then the pages stay mapped, without
                // belonging to the file, until they are unmapped.
                let _ = edit.unmap(at(from)..at(to));
            } else {
                forget_originals(&mut edit, at(from)..at(to));
            }
        }
    }
}

/// Takes the pages of the page cache out of `range`, and leaves private copies. Takes time in
/// proportion to the pages present, however long the range is.
fn forget_originals(edit: &mut Edit<'_>, range: Range<usize>) {
    // The number of runs of pages that one pass remembers. A range with more runs is visited again
    // from the first run that was not remembered. One pass covers one stretch at most.
    const RUNS: usize = 64;
    const STRETCH: usize = 1 << 30;
    let mut from = range.start;
    while from < range.end {
        let mut next = range.end.min(from.saturating_add(STRETCH));
        let mut runs: ArrayVec<Range<usize>, RUNS> = ArrayVec::new();
        let mut full = None;
        edit.visit(from..next, &mut |start, page| {
            if page.kind != PageKind::File || full.is_some() {
                return;
            }
            let size = if page.large { LARGE_PAGE_SIZE } else { PAGE };
            let run = start.max(from)..start.saturating_add(size).min(range.end);
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => full = runs.try_push(run).err().map(|run| run.element().start),
            }
        });
        next = full.unwrap_or(next);
        for run in runs {
            let _ = edit.unmap(run);
        }
        from = next;
    }
}

fn is(backing: &Backing, page_cache: &PageCache) -> bool {
    backing.page_cache.id() == page_cache.id()
}
