//! The trees of dentries of mounted file systems: one for each, shared by all its mounts, and
//! dropped after the last of them.
//!
//! A program may bind one file system a hundred thousand times. Work for each file system therefore
//! goes from tree to tree ([`Trees::after`]), not from mount to mount, and needs no list of them.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::ops::Bound;

struct Tree<D, M> {
    root: Arc<D>,
    /// By number.
    mounts: BTreeMap<u32, Weak<M>>,
}

/// By device number. `D` is a dentry, `M` a mount.
pub(super) struct Trees<D, M>(BTreeMap<u64, Tree<D, M>>);

impl<D, M> Trees<D, M> {
    pub const fn new() -> Trees<D, M> {
        Trees(BTreeMap::new())
    }

    /// The root of the file system `device`, if it is mounted.
    pub fn root(&self, device: u64) -> Option<Arc<D>> {
        self.0.get(&device).map(|tree| Arc::clone(&tree.root))
    }

    /// Adds the mount with this number. If it is the first of its file system, `root` is the root
    /// of the tree.
    pub fn add(&mut self, device: u64, root: &Arc<D>, number: u32, mount: &Arc<M>) {
        let first = || Tree { root: Arc::clone(root), mounts: BTreeMap::new() };
        let tree = self.0.entry(device).or_insert_with(first);
        tree.mounts.insert(number, Arc::downgrade(mount));
    }

    /// Removes a mount. Returns the root of the tree if it was the last one.
    pub fn remove(&mut self, device: u64, number: u32) -> Option<Arc<D>> {
        let tree = self.0.get_mut(&device)?;
        tree.mounts.remove(&number)?;
        if !tree.mounts.is_empty() {
            return None;
        }
        Some(self.0.remove(&device)?.root)
    }

    /// The root of the file system with the smallest device number above `device`, and the oldest
    /// of its mounts.
    pub fn after(&self, device: u64) -> Option<(Arc<D>, Arc<M>)> {
        // A mount that ends at this moment has no references any more.
        let oldest = |tree: &Tree<D, M>| tree.mounts.values().find_map(Weak::upgrade);
        let mut later = self.0.range((Bound::Excluded(device), Bound::Unbounded));
        later.find_map(|(_, tree)| Some((Arc::clone(&tree.root), oldest(tree)?)))
    }
}
