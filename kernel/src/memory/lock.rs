//! Locked memory: `mlock`, `munlock`, `mlockall`, `munlockall`.
//!
//! There is no swap, so a page that is present stays; locking puts the pages in ahead, keeps them
//! from being given up by advice, and counts against the limit.

use core::ops::Range;

use hayate_abi::{Errno, Result};

use super::map::NoMemoryError;
use super::region::RegionFlags;
use super::space::Space;
use super::{PAGE, USER_END, page_up};

impl Space {
    /// Locks what is mapped in `length` bytes from `address`. `on_fault`: pages come as they are
    /// touched.
    ///
    /// # Errors
    /// `ENOMEM` (a hole, or more than the limit), `EPERM` (the limit is 0), `EINVAL`.
    pub fn lock_memory(&self, address: usize, length: usize, on_fault: bool) -> Result<()> {
        let range = whole_pages(address, length)?;
        let limits = self.limits();
        if limits.locked == 0 {
            return Err(Errno::EPERM);
        }
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
            if more > limits.locked.saturating_sub(guard.locked) {
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
    /// `ENOMEM` (a hole), `EINVAL`.
    pub fn unlock_memory(&self, address: usize, length: usize) -> Result<()> {
        let range = whole_pages(address, length)?;
        let covered = self.mark(range, |flags| {
            flags.remove(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT);
        })?;
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Locks all that is mapped (`current`), all that will be (`future`), or unlocks everything
    /// (neither).
    ///
    /// # Errors
    /// `ENOMEM` (more than the limit), `EPERM` (the limit is 0).
    pub fn lock_all(&self, current: bool, future: bool, on_fault: bool) -> Result<()> {
        let limits = self.limits();
        let lock = current || future;
        if lock && limits.locked == 0 {
            return Err(Errno::EPERM);
        }
        {
            let mut guard = self.table.lock();
            if current && guard.map.size() > limits.locked {
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

    /// Changes the flags of everything in `range`; whether it was covered whole.
    pub(super) fn mark(
        &self,
        range: Range<usize>,
        mut change: impl FnMut(&mut RegionFlags),
    ) -> Result<bool> {
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        if range.is_empty() {
            return Ok(true);
        }
        if inner.too_many(inner.map.splits(&range)) {
            return Err(Errno::ENOMEM);
        }
        let covered = inner.map.is_covered(range.clone());
        let changed = inner.map.update(range, |mapping| change(&mut mapping.flags));
        changed.map_err(NoMemoryError::from)?;
        let locked = |mapping: &super::Mapping| mapping.flags.contains(RegionFlags::LOCKED);
        inner.locked =
            inner.map.iter().filter(|region| locked(&region.value)).map(|r| r.size()).sum();
        Ok(covered)
    }
}

/// The whole pages that `length` bytes from `address` touch: `mlock` rounds the address down.
fn whole_pages(address: usize, length: usize) -> Result<Range<usize>> {
    let start = address & !(PAGE - 1);
    let length = length.checked_add(address - start).and_then(page_up).ok_or(Errno::EINVAL)?;
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    if end > USER_END { Err(Errno::ENOMEM) } else { Ok(start..end) }
}
