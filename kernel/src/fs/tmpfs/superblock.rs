//! The part that all files of one tmpfs share: its limits, and the pages and inodes that count
//! against them.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;

use super::handles::Handles;
use crate::page_cache::source::PageSource;
use crate::reclaim::growth;

/// The state that all files of one instance share.
pub struct Superblock {
    pub device: u64,
    pub next_number: AtomicU64,
    /// The limit in pages; `u64::MAX` none.
    pub limit: AtomicU64,
    pub used: AtomicU64,
    /// The same for inodes, which take kernel memory.
    pub inode_limit: AtomicU64,
    pub inodes: AtomicU64,
    /// The files that have handles.
    pub handles: Handles,
}

impl Superblock {
    /// Whether one more inode is within the limit; `ENOSPC` if not.
    pub fn may_grow(&self) -> Result<()> {
        let within = self.inodes.load(Ordering::Relaxed) < self.inode_limit.load(Ordering::Relaxed);
        if within { Ok(()) } else { Err(Errno::ENOSPC) }
    }
}

impl PageSource for Superblock {
    fn read_pages(&self, _: u64, _: &[Frame]) -> Result<usize> {
        Err(Errno::EIO)
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        if self.used.fetch_add(pages, Ordering::Relaxed) + pages > limit {
            self.used.fetch_sub(pages, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    fn uncharge(&self, pages: u64) {
        self.used.fetch_sub(pages, Ordering::Relaxed);
    }

    fn memory_only(&self) -> bool {
        true
    }
}

static INSTANCES: SpinLock<Vec<Weak<Superblock>>> = SpinLock::new(Vec::new());

/// Enters an instance in the list of all. `ENOMEM`.
pub fn enter(superblock: &Arc<Superblock>) -> Result<()> {
    let mut instances = INSTANCES.lock();
    // Those that have gone since would keep their memory.
    instances.retain(|instance| instance.strong_count() != 0);
    growth::push(&mut instances, Arc::downgrade(superblock))
}

/// Returns the number of pages that the files of all instances hold, memfds included.
pub fn used_pages() -> u64 {
    let mut instances = INSTANCES.lock();
    instances.retain(|instance| instance.strong_count() != 0);
    let live = instances.iter().filter_map(Weak::upgrade);
    live.map(|superblock| superblock.used.load(Ordering::Relaxed)).sum()
}
