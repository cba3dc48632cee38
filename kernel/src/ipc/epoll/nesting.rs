//! Sets within sets: no cycles, no chain of more than five sets, and not too many paths from a file
//! up to the sets that contain it (epoll_ctl(2), `ELOOP` and `EINVAL`).
//!
//! An event of a file wakes every set on every path up from it, so both the length and the number
//! of the paths are bounded. The bounds are those of Linux: `EP_MAX_NESTS` and `path_limits`
//! (fs/eventpoll.c; since 6.1.148 a chain counts as a whole, whichever end it was built from).
//!
//! Locks: [`lock`] is held while two sets are joined, and while a file is added to a set that
//! another one contains. The sets' `items` and the files' lists of watches are taken below it: one
//! after another on the way down, nested on the way up, where there are no cycles.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};

use super::{Epoll, set_of};
use crate::reclaim::growth::Grow;
use crate::schedule::{Mutex, MutexGuard};
use crate::vfs::open_file::OpenFile;

/// Steps from the outermost set of a chain to the innermost (`EP_MAX_NESTS`).
const MOST_STEPS: usize = 4;

/// The maximal number of paths of each length from one file, the shortest first. Sets that directly
/// contain a file, and are in no other set, are not limited.
const MOST_WAYS: [usize; MOST_STEPS + 1] = [usize::MAX, 500, 100, 50, 10];

/// The number of the last traversal that visited a set, and its result.
#[derive(Default)]
pub struct Visited {
    look: AtomicU64,
    depth: AtomicUsize,
}

impl Visited {
    /// Returns the result of this traversal, if it was here before.
    fn found(&self, look: u64) -> Option<usize> {
        let same = self.look.load(Ordering::Relaxed) == look;
        same.then(|| self.depth.load(Ordering::Relaxed))
    }

    fn note(&self, look: u64, depth: usize) {
        self.look.store(look, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
    }
}

/// The number of the last traversal.
static LOOKS: AtomicU64 = AtomicU64::new(0);

static CHANGES: Mutex<()> = Mutex::new(());

/// Keeps other threads from joining sets.
pub fn lock() -> MutexGuard<'static, ()> {
    CHANGES.lock()
}

fn new_look() -> u64 {
    LOOKS.fetch_add(1, Ordering::Relaxed) + 1
}

impl Epoll {
    /// Returns the files in it.
    fn files(&self) -> Result<Vec<Arc<OpenFile>>> {
        let mut files = Vec::new();
        let items = self.items.lock();
        files.make_room_exact(items.len())?;
        files.extend(items.values().filter_map(|item| item.file.upgrade()));
        Ok(files)
    }
}

/// Checks that `inner` may be added to `outer`: `ELOOP` for a cycle or a chain that is too long.
/// The guard shows that the caller holds [`lock`].
pub fn check_depth(outer: &Epoll, inner: &Epoll, _: &MutexGuard<'static, ()>) -> Result<()> {
    let below = depth_below(inner, outer, new_look())?;
    let above = height_above(outer, new_look());
    if below + 1 + above > MOST_STEPS { Err(Errno::ELOOP) } else { Ok(()) }
}

/// Returns the number of nested levels of sets below `set`; `ELOOP` when `outer` is among them.
fn depth_below(set: &Epoll, outer: &Epoll, look: u64) -> Result<usize> {
    if core::ptr::eq(set, outer) {
        return Err(Errno::ELOOP);
    }
    if let Some(depth) = set.visited.found(look) {
        return Ok(depth);
    }
    let mut deepest = 0;
    for file in set.files()? {
        if let Ok(inner) = Epoll::of(&file) {
            deepest = deepest.max(depth_below(inner, outer, look)? + 1);
        }
    }
    set.visited.note(look, deepest);
    Ok(deepest)
}

/// Returns the number of nested levels of sets that contain `set`.
fn height_above(set: &Epoll, look: u64) -> usize {
    if let Some(height) = set.visited.found(look) {
        return height;
    }
    let mut highest = 0;
    if let Some(file) = set.file.get().and_then(Weak::upgrade) {
        let _ = file.for_each_watch(&mut |watch| {
            if let Some(outer) = set_of(watch) {
                highest = highest.max(height_above(&outer, look) + 1);
            }
            Ok(())
        });
    }
    set.visited.note(look, highest);
    highest
}

/// Checks that the paths up from every file at or below `file` are few enough; `EINVAL`.
pub fn check_paths(file: &OpenFile) -> Result<()> {
    check_files_below(file, new_look())
}

fn check_files_below(file: &OpenFile, look: u64) -> Result<()> {
    let Ok(set) = Epoll::of(file) else {
        return count_ways(file, 0, &mut [0; MOST_STEPS + 1]);
    };
    if set.visited.found(look).is_some() {
        return Ok(());
    }
    set.visited.note(look, 0);
    set.files()?.iter().try_for_each(|file| check_files_below(file, look))
}

fn count_ways(file: &OpenFile, steps: usize, ways: &mut [usize; MOST_STEPS + 1]) -> Result<()> {
    let (Some(count), Some(&most)) = (ways.get(steps), MOST_WAYS.get(steps)) else {
        return Err(Errno::EINVAL);
    };
    let mut count = *count;
    file.for_each_watch(&mut |watch| {
        let Some(set) = set_of(watch) else { return Ok(()) };
        match set.file.get().and_then(Weak::upgrade) {
            Some(outer) if outer.has_watches() => count_ways(&outer, steps + 1, ways),
            _ => {
                count += 1;
                if count > most { Err(Errno::EINVAL) } else { Ok(()) }
            }
        }
    })?;
    if let Some(total) = ways.get_mut(steps) {
        *total = count;
    }
    Ok(())
}
