//! A page table with its lock.

use super::edit::Edit;
use super::gather::Gather;
use super::loaded;
use super::table::Table;
use super::usage::{Resident, Usage};
use super::{kernel, share, teardown};
use crate::ipi::{self, TlbFlush};
use crate::layout::{PAGE_SHIFT, USER_END};
use crate::sync::{SpinGuard, SpinLock};
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::SeqCst;

/// A page table with its lock and the data that the lock protects besides.
pub struct PageTable<T> {
    root: Table,
    /// Allocated separately: processors that have the table loaded point to it, and it must not
    /// move when the table is moved.
    pub(super) usage: Arc<Usage>,
    inner: SpinLock<T>,
}

impl<T> PageTable<T> {
    /// Returns an empty table: the kernel's half and nothing else. `None`: memory is exhausted.
    pub fn new(inner: T) -> Option<Self> {
        let root = Table::allocate()?;
        kernel::copy_half(root);
        Some(PageTable { root, usage: Arc::new(Usage::default()), inner: SpinLock::new(inner) })
    }

    /// Locks the table.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        Guard { table: self, inner: self.inner.lock() }
    }

    /// Returns whom pages are charged to that the space gets; 0: nobody
    /// ([`crate::frames::owner`]).
    #[inline]
    pub fn owner(&self) -> u32 {
        self.usage.owner()
    }

    /// Changes that. What is charged already stays so.
    pub fn set_owner(&self, owner: u32) {
        // Not while a page is being charged to the one before.
        let _locked = self.inner.lock();
        self.usage.set_owner(owner);
    }

    /// Returns how much is mapped. Read without the lock: the counts may be changing.
    pub fn resident(&self) -> Resident {
        self.usage.resident()
    }

    /// Returns the mask of processors that have the table loaded now.
    pub fn active(&self) -> u64 {
        self.usage.active.load(SeqCst)
    }

    /// Loads the table on this processor; does nothing if it is loaded already.
    #[inline]
    pub fn activate(&self) {
        // SAFETY: they are a pair, and dropping the table unloads it first.
        unsafe { loaded::activate(&self.usage, self.root) };
    }

    /// Returns the physical address of the root, for a processor that loads it by itself.
    fn root_address(&self) -> u64 {
        u64::from(self.root.0) << PAGE_SHIFT
    }
}

/// The locked table.
pub struct Guard<'a, T> {
    table: &'a PageTable<T>,
    inner: SpinGuard<'a, T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Guard<'_, T> {
    /// Returns the data that the lock protects, and an edit of the table.
    #[inline]
    pub fn parts(&mut self) -> (&mut T, Edit<'_>) {
        let edit = Edit { root: self.table.root, gather: Gather::new(&self.table.usage) };
        (&mut self.inner, edit)
    }
}

impl<T> Drop for PageTable<T> {
    fn drop(&mut self) {
        if loaded::is_here(&self.usage) {
            loaded::deactivate();
        }
        let others = self.usage.active.load(SeqCst);
        if others != 0 {
            ipi::shootdown(others, TlbFlush::Leave { root: self.root_address() });
        }
        kernel::remove_half(self.root);
        // What is charged to somebody is not deferred: it would count until then.
        let may_defer = teardown::is_worth(&self.usage) && self.usage.owner() == 0;
        // SAFETY: no processor has the table loaded any more, and it is being dropped.
        if may_defer && unsafe { teardown::defer(self.root, 3) } {
            return;
        }
        self.root.empty(|entry| {
            // SAFETY: no processor has the table loaded any more, and it is being dropped.
            unsafe { share::release_table(entry.number(), 2, None) };
        });
        self.root.give_back();
    }
}

impl Edit<'_> {
    /// Shares everything that is mapped here with `child`, whose table is empty (fork): both see
    /// the same pages, and private pages become copy-on-write. The number of steps is constant;
    /// this space's TLBs are flushed.
    ///
    /// # Panics
    /// If the child's table is not empty.
    pub fn share_with<T>(&mut self, child: &mut Guard<'_, T>) {
        share::share_root(self.root, child.table.root);
        self.gather.stale(0, USER_END);
        child.table.usage.copy_counts(self.gather.usage);
        if child.table.usage.is_supervisor() {
            kernel::follow_mode(child.table.root, true);
        }
    }
}
