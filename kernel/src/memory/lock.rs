//! Locked memory: `mlock`, `munlock`, `mlockall`, `munlockall`.
//!
//! There is no swap, so a page that is present stays in memory. Locking brings the pages in,
//! protects them from being given up by advice, and counts them against the limit
//! ([`may_lock`]).

use core::ops::Range;

use hayate_abi::{Errno, Result};

use super::error::relieved;
use super::limits::{is_privileged, may_lock};
use super::page::{PAGE, USER_END, page_up};
use super::region::{Mapping, RegionFlags};
use super::space::Space;

impl Space {
    /// Whether the caller may lock memory at all (`can_do_mlock`, mm/mlock.c).
    pub fn lets_lock(&self) -> bool {
        self.limits().locked != 0 || is_privileged()
    }

    /// Locks what is mapped in `length` bytes from `address`. `on_fault`: pages come in when they
    /// are touched.
    ///
    /// # Errors
    /// `ENOMEM` (a gap, or more than the limit), `EPERM` (the limit is 0), `EINVAL`.
    pub fn lock_memory(&self, address: usize, length: usize, on_fault: bool) -> Result<()> {
        if !self.lets_lock() {
            return Err(Errno::EPERM);
        }
        let range = whole_pages(address, length)?;
        if range.is_empty() {
            return Ok(());
        }
        {
            let guard = self.table.lock();
            let already: usize = guard
                .map
                .overlapping(range.clone())
                .filter(|region| region.value.flags.contains(RegionFlags::LOCKED))
                .map(|region| region.end.min(range.end) - region.start.max(range.start))
                .sum();
            let more = range.len() - already.min(range.len());
            if !may_lock(more, guard.locked, self.limits().locked) {
                return Err(Errno::ENOMEM);
            }
        }
        let covered = self.mark(range.clone(), |flags| {
            flags.insert(RegionFlags::LOCKED);
            flags.set(RegionFlags::LOCK_ON_FAULT, on_fault);
        })?;
        if !on_fault {
            self.populate(range);
        }
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Unlocks what is mapped in `length` bytes from `address`.
    ///
    /// # Errors
    /// `ENOMEM` (a gap), `EINVAL`.
    pub fn unlock_memory(&self, address: usize, length: usize) -> Result<()> {
        let range = whole_pages(address, length)?;
        let covered = self.mark(range, |flags| {
            flags.remove(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT);
        })?;
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Locks all present mappings (`current`) and all later ones (`future`), or unlocks everything
    /// (neither).
    ///
    /// # Errors
    /// `ENOMEM` (more than the limit), `EPERM` (the limit is 0).
    pub fn lock_all(&self, current: bool, future: bool, on_fault: bool) -> Result<()> {
        let lock = current || future;
        if lock && !self.lets_lock() {
            return Err(Errno::EPERM);
        }
        {
            let mut guard = self.table.lock();
            if current && !may_lock(guard.map.size(), 0, self.limits().locked) {
                return Err(Errno::ENOMEM);
            }
            guard.future = RegionFlags::empty();
            if future {
                guard.future.insert(RegionFlags::LOCKED);
                guard.future.set(RegionFlags::LOCK_ON_FAULT, on_fault);
            }
        }
        if current || !lock {
            self.mark(0..USER_END, |flags| {
                flags.set(RegionFlags::LOCKED, current);
                flags.set(RegionFlags::LOCK_ON_FAULT, current && on_fault);
            })?;
        }
        if current && !on_fault {
            self.populate(0..USER_END);
        }
        Ok(())
    }

    /// Changes the flags of all regions in `range`. Returns whether they cover the whole range.
    pub(super) fn mark(
        &self,
        range: Range<usize>,
        mut change: impl FnMut(&mut RegionFlags),
    ) -> Result<bool> {
        if range.is_empty() {
            return Ok(true);
        }
        relieved(|| {
            let mut guard = self.table.lock();
            let (inner, ..) = guard.parts();
            if inner.too_many(inner.map.splits(&range)) {
                return Err(Errno::ENOMEM.into());
            }
            let covered = inner.map.is_covered(range.clone());
            inner.map.update(range.clone(), |mapping| change(&mut mapping.flags))?;
            let locked = |mapping: &Mapping| mapping.flags.contains(RegionFlags::LOCKED);
            inner.locked =
                inner.map.iter().filter(|region| locked(&region.value)).map(|r| r.size()).sum();
            Ok(covered)
        })
    }
}

/// The whole pages that `length` bytes from `address` touch: `mlock` rounds the address down.
fn whole_pages(address: usize, length: usize) -> Result<Range<usize>> {
    let start = address & !(PAGE - 1);
    let length = length.checked_add(address - start).and_then(page_up).ok_or(Errno::EINVAL)?;
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    if end > USER_END { Err(Errno::ENOMEM) } else { Ok(start..end) }
}
