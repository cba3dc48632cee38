//! Reclaim of pages that can be read again and of names that can be looked up again. [`pressure`]
//! decides when, and what is reclaimed before them.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_machine::frames;
use hayate_machine::paging::teardown;
use hayate_machine::sync::SpinLock;

use super::plate::Plate;
use crate::growth::Grow;
use crate::resource::pressure;

static PLATES: SpinLock<Vec<Weak<Plate>>> = SpinLock::new(Vec::new());

/// Registers a page cache whose pages can be read again. Without memory for that, its pages just
/// stay.
pub(super) fn note(plate: &Arc<Plate>) {
    let mut plates = PLATES.lock();
    if plates.len() == plates.capacity() {
        plates.retain(|other| other.strong_count() != 0);
    }
    if plates.make_room(1).is_ok() {
        plates.push(Arc::downgrade(plate));
    }
}

/// The page cache and the dentry cache, for [`pressure`].
struct Files;

impl pressure::Cache for Files {
    fn shrink(&self, most: usize) -> usize {
        pages(most)
    }
}

/// Registers both caches for reclaim when memory is exhausted; boot calls it once.
pub(super) fn init() {
    pressure::register(&Files);
}

/// Frees up to `most` unused pages of cached files. If there are none, drops unused names first,
/// and with their files the pages. Returns how many pages (or names) were freed. Call it without
/// spin locks.
pub fn pages(most: usize) -> usize {
    #[cfg(debug_assertions)]
    if crate::resource::refusal::is_refusing() {
        return 0;
    }
    let freed = clean_pages(most);
    if freed != 0 { freed } else { names() }
}

/// Returns the number of pages of cached files in memory (`Cached` of `/proc/meminfo`).
pub fn cached_pages() -> u64 {
    let mut pages = 0;
    // One after the other: the list may be long, and a file may end while it is looked at.
    for at in 0.. {
        let Some(plate) = PLATES.lock().get(at).map(Weak::upgrade) else { break };
        pages += plate.map_or(0, |plate| plate.resident());
    }
    pages
}

/// Returns the number of pages of files that are only in memory (`Shmem` of `/proc/meminfo`).
pub fn memory_pages() -> u64 {
    super::tmpfs::used_pages()
}

/// Where the last search for pages ended. The next search continues there, so that no file always
/// loses its pages first.
static HAND: AtomicUsize = AtomicUsize::new(0);

fn clean_pages(most: usize) -> usize {
    let mut freed = 0;
    let mut at = HAND.load(Ordering::Relaxed);
    let count = PLATES.lock().len();
    for _ in 0..=count {
        if freed >= most {
            break;
        }
        let next = PLATES.lock().get(at).map(Weak::upgrade);
        match next {
            None => {
                at = 0;
                continue;
            }
            Some(None) => {}
            Some(Some(plate)) => freed += plate.reclaim(most - freed),
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
    if is_low && !teardown::pay_now() {
        pages(BATCH);
    }
}

/// Drops unused names in every mounted file system; returns how many.
pub fn names() -> usize {
    let mut forgotten = 0;
    let mut next = super::mount::after(0);
    while let Some(mount) = next {
        if mount.filesystem().evictable() {
            forgotten += mount.root().prune();
        }
        next = super::mount::after(mount.id());
    }
    // Page caches went with their files; an entry here keeps the memory of a dropped one.
    PLATES.lock().retain(|plate| plate.strong_count() != 0);
    forgotten
}
