//! Reclaim of names that can be looked up again: the dentry cache's part of
//! [`crate::page_cache::reclaim`].

use crate::page_cache;

/// Registers the dentry cache; boot calls it once.
pub fn init() {
    page_cache::reclaim::register_names(names);
    page_cache::reclaim::init();
}

/// Drops unused names in every mounted file system; returns how many.
pub fn names() -> usize {
    let mut forgotten = 0;
    let mut next = super::mount::filesystem_after(0);
    while let Some((root, mount)) = next {
        forgotten += root.prune();
        next = super::mount::filesystem_after(mount.filesystem().device());
    }
    // Page caches went with their files; an entry of the list keeps the memory of a dropped one.
    page_cache::reclaim::forget_ended();
    forgotten
}
