//! Giving memory back: pages that can be read again and names that can be looked up again. When
//! they go, and what goes before them, [`pressure`] says.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_machine::frames;
use hayate_machine::paging::teardown;
use hayate_machine::sync::SpinLock;

use super::plate::Plate;
use crate::resource::pressure;

static PLATES: SpinLock<Vec<Weak<Plate>>> = SpinLock::new(Vec::new());

/// Remembers a plate whose pages can be read again. If there is no memory to remember it, its
/// pages just stay.
pub(super) fn note(plate: &Arc<Plate>) {
    let mut plates = PLATES.lock();
    if plates.len() == plates.capacity() {
        plates.retain(|other| other.strong_count() != 0);
    }
    if plates.try_reserve(1).is_ok() {
        plates.push(Arc::downgrade(plate));
    }
}

/// The page cache and the names, for [`pressure`].
struct Files;

impl pressure::Cache for Files {
    fn shrink(&self, most: usize) -> usize {
        pages(most)
    }
}

/// Registers the page cache and the names as what can go when frames run out; boot calls it once.
pub(super) fn init() {
    pressure::register(&Files);
}

/// Frees up to `most` pages of cached files that nobody else uses; if there are none, first
/// forgets names that nobody uses, with whose files their pages go. Gives how many pages (or
/// names). Call it without spin locks.
pub fn pages(most: usize) -> usize {
    #[cfg(debug_assertions)]
    if crate::resource::refusal::is_refusing() {
        return 0;
    }
    let freed = clean_pages(most);
    if freed != 0 { freed } else { names() }
}

/// The pages of cached files in memory (`Cached` of `/proc/meminfo`).
pub fn cached_pages() -> u64 {
    let plates: Vec<_> = PLATES.lock().iter().filter_map(Weak::upgrade).collect();
    plates.iter().map(|plate| plate.resident()).sum()
}

/// The pages of files that are only in memory (`Shmem` of `/proc/meminfo`).
pub fn memory_pages() -> u64 {
    super::tmpfs::used_pages()
}

/// Where the last search for pages ended: the next goes on there, so that no file's pages are
/// always the first to go.
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

/// Frees pages of cached files while there is little more memory than the kernel's reserve. Whoever
/// fills the cache calls it, without any lock held: stacks, page tables and the like are then found
/// without a search of their own.
pub fn keep_room() {
    /// Pages given up at a time.
    const BATCH: usize = 512;
    let counts = frames::counts();
    let is_low = counts.free < counts.reserve + counts.reserve / 2 + BATCH;
    // What ended processes have yet to give back is as good.
    if is_low && !teardown::pay_now() {
        pages(BATCH);
    }
}

/// Forgets names that nobody uses in every mounted file system; gives how many.
pub fn names() -> usize {
    let forgotten = super::mount::all_with_root()
        .unwrap_or_default()
        .iter()
        .filter(|mount| mount.filesystem().evictable())
        .map(|mount| mount.root().prune())
        .sum();
    // Plates went with their files: what is remembered of them holds their memory.
    PLATES.lock().retain(|plate| plate.strong_count() != 0);
    forgotten
}
