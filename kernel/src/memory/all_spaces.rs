//! Operations on every space: above all, taking the pages of a truncated file out of them.
//!
//! Page caches ([`PageCache`]) call one mapper, which finds the spaces itself.

use alloc::sync::Arc;
use core::ops::Range;

use arrayvec::ArrayVec;
use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::{Edit, PageKind};

use super::page::PAGE;
use super::region::{self, Backing};
use super::space::{SPACES, Space};
use crate::page_cache::cache::{Mapper, PageCache};

/// Registers the mapper; boot calls it once, before anything is mapped.
pub fn init() {
    region::set_mapper(Arc::new(AllSpaces));
}

/// Calls `visit` with every space. Spaces made meanwhile may be missed; no lock is held during a
/// call.
pub fn for_each(visit: impl FnMut(&Arc<Space>)) {
    SPACES.for_each(visit);
}

/// The only mapper that page caches call.
struct AllSpaces;

impl Mapper for AllSpaces {
    fn unmap(&self, page_cache: &PageCache, first: u64, last: u64, copies: bool) -> bool {
        let mut are_out = true;
        for_each(|space| are_out &= space.forget_page_cache(page_cache, first, last, copies));
        are_out
    }
}

impl Space {
    /// Takes pages `first..=last` of a page cache out of the page table, and private copies too if
    /// `copies`. Returns false if some could not be taken out.
    fn forget_page_cache(
        &self,
        page_cache: &PageCache,
        first: u64,
        last: u64,
        copies: bool,
    ) -> bool {
        let mut are_out = true;
        // Declared first: dropped after the lock.
        let mut _lineage = None;
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
            if copies && _lineage.is_none() {
                // A state that has these pages must not come back.
                _lineage = inner.lineage.upgrade().inspect(|lineage| lineage.close());
            }
            if copies || region.value.is_shared() {
                // Fails only if a table shared with another space cannot be copied because even the
                // kernel's reserve of memory is exhausted. Then the pages stay mapped, and those
                // that were cut off the file do not belong to it any more.
                are_out &= edit.unmap(at(from)..at(to)).is_ok();
            } else {
                forget_originals(&mut edit, at(from)..at(to));
            }
        }
        are_out
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
