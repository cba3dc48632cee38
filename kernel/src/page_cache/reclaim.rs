//! Reclaim of pages that can be read again. [`crate::reclaim`] decides when, and which memory goes
//! before them.
//!
//! When no page can be freed, names of files that nobody uses are dropped, and their pages with
//! them. The dentry cache is above this module: it registers the function that does so
//! ([`register_names`]).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_machine::frames::{self, Frame};
use hayate_machine::paging::teardown;
use hayate_machine::sync::{Once, SpinLock};

use super::cache::PageCache;
use super::write_back;
use crate::reclaim;
use crate::reclaim::charge;
use crate::reclaim::charge::Protection;
use crate::reclaim::growth::Grow;
use crate::schedule;

static PAGE_CACHES: SpinLock<Vec<Weak<PageCache>>> = SpinLock::new(Vec::new());

/// Registers a page cache whose pages can be read again. Without memory for that, its pages just
/// stay.
pub fn note(page_cache: &Arc<PageCache>) {
    let mut page_caches = PAGE_CACHES.lock();
    if page_caches.len() == page_caches.capacity() {
        page_caches.retain(|other| other.strong_count() != 0);
    }
    if page_caches.make_room(1).is_ok() {
        page_caches.push(Arc::downgrade(page_cache));
    }
}

/// Drops the memory of page caches that ended from the list.
pub fn forget_ended() {
    PAGE_CACHES.lock().retain(|page_cache| page_cache.strong_count() != 0);
}

/// Drops unused names, and with them page caches; returns how many names.
static DROP_NAMES: Once<fn() -> usize> = Once::new();

/// Sets the function that drops unused names; once at boot.
pub fn register_names(drop_names: fn() -> usize) {
    DROP_NAMES.call_once(|| drop_names);
}

/// The page cache and the dentry cache, for [`crate::reclaim`].
struct Files;

impl reclaim::Cache for Files {
    fn shrink(&self, most: usize) -> usize {
        pages(most)
    }

    fn shrink_within(&self, meant: &dyn Fn(u32) -> bool, most: usize) -> usize {
        let may = |frame: &Frame| frame.owner() != 0 && meant(frame.owner());
        let mut freed = clean_pages(most, may);
        for _ in 0..ROUNDS {
            // Changed pages have to be written first.
            if freed != 0 || !write_back::wait_for_some() {
                break;
            }
            freed = clean_pages(most, may);
        }
        freed
    }

    fn age(&self, is_idle: bool) -> bool {
        let mut may_grow_old = false;
        // One after the other: the list may be long, and a file may end while it is looked at.
        for at in 0.. {
            let Some(page_cache) = PAGE_CACHES.lock().get(at).map(Weak::upgrade) else { break };
            let Some(page_cache) = page_cache else { continue };
            if page_cache.was_used() {
                may_grow_old = true;
                continue;
            }
            while page_cache.reclaim(AT_ONCE) == AT_ONCE {
                schedule::breathe();
            }
        }
        // Small as they are, they lie in many places, and a single one keeps 2 MiB from the host.
        if is_idle && let Some(drop_names) = DROP_NAMES.get() {
            drop_names();
        }
        may_grow_old
    }
}

/// The most pages that ageing frees under one lock: a few hundred microseconds.
const AT_ONCE: usize = 4096;

/// Registers both caches for reclaim when memory is exhausted; boot calls it once.
pub fn init() {
    reclaim::register(&Files);
}

/// Frees up to `most` unused pages of cached files. If there are none, drops unused names first,
/// and with their files the pages. Returns how many pages (or names) were freed. Call it without
/// spin locks.
pub fn pages(most: usize) -> usize {
    #[cfg(debug_assertions)]
    if crate::reclaim::refusal::is_refusing() {
        return 0;
    }
    let freed = unprotected_pages(most);
    if freed != 0 {
        return freed;
    }
    let dropped = DROP_NAMES.get().map_or(0, |drop_names| drop_names());
    if dropped != 0 {
        return dropped;
    }
    // At last those that have to be written first. A program may change them again at once.
    for _ in 0..ROUNDS {
        if !write_back::wait_for_some() {
            break;
        }
        let freed = unprotected_pages(most);
        if freed != 0 {
            return freed;
        }
    }
    0
}

/// Frees pages that no control group protects; if there are none, those that are protected as long
/// as there are others (`memory.low`).
fn unprotected_pages(most: usize) -> usize {
    if !charge::records::is_used() {
        return clean_pages(most, |_: &Frame| true);
    }
    let freed =
        clean_pages(most, |frame: &Frame| charge::protection(frame.owner()) == Protection::None);
    if freed != 0 {
        return freed;
    }
    let breached = Cell::new(0);
    let second = |frame: &Frame| {
        let owner = frame.owner();
        let protection = charge::protection(owner);
        if protection == Protection::Low {
            breached.set(owner);
        }
        protection != Protection::Min
    };
    let freed = clean_pages(most, second);
    if breached.get() != 0 {
        charge::tell_low(breached.get());
    }
    freed
}

/// How often pages are written before a search for clean ones gives up.
const ROUNDS: usize = 16;

/// Returns the number of pages of cached files in memory (`Cached` of `/proc/meminfo`).
pub fn cached_pages() -> u64 {
    let mut pages = 0;
    // One after the other: the list may be long, and a file may end while it is looked at.
    for at in 0.. {
        let Some(page_cache) = PAGE_CACHES.lock().get(at).map(Weak::upgrade) else { break };
        pages += page_cache.map_or(0, |page_cache| page_cache.resident());
    }
    pages
}

/// Where the last search for pages ended. The next search continues there, so that no file always
/// loses its pages first.
static HAND: AtomicUsize = AtomicUsize::new(0);

fn clean_pages(most: usize, may: impl Fn(&Frame) -> bool) -> usize {
    let mut freed = 0;
    let mut at = HAND.load(Ordering::Relaxed);
    let count = PAGE_CACHES.lock().len();
    for _ in 0..=count {
        if freed >= most {
            break;
        }
        let next = PAGE_CACHES.lock().get(at).map(Weak::upgrade);
        match next {
            None => {
                at = 0;
                continue;
            }
            Some(None) => {}
            Some(Some(page_cache)) => freed += page_cache.reclaim_if(most - freed, &may),
        }
        at += 1;
    }
    HAND.store(at, Ordering::Relaxed);
    freed
}

/// Frees pages of cached files while there is little more free memory than the kernel's reserve.
/// Code that fills the page cache calls it, with no lock held, so that allocations of stacks, page
/// tables and the like need not reclaim by themselves.
pub fn keep_room() {
    /// Pages freed at a time.
    const BATCH: usize = 512;
    let counts = frames::counts();
    let is_low = counts.free < counts.reserve + counts.reserve / 2 + BATCH;
    // The deferred free of ended processes helps just as well.
    if is_low && !teardown::free_now() {
        pages(BATCH);
    }
}
