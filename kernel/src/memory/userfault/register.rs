//! Which regions a provider has.

use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};

use super::Provider;
use crate::memory::error::{Failure, relieved};
use crate::memory::page::{LOWEST, PAGE, USER_END};
use crate::memory::region::{Mapping, RegionFlags};
use crate::memory::space::{Inner, Space};
use crate::reclaim::growth;
use crate::vfs::open_file::Traits;

/// The range that a program names (`validate_range`, fs/userfaultfd.c). `EINVAL`.
pub fn range(start: u64, length: u64) -> Result<Range<usize>> {
    let page = PAGE as u64;
    let is_good = start.is_multiple_of(page)
        && length.is_multiple_of(page)
        && length != 0
        && start >= LOWEST as u64
        && start < USER_END as u64
        && length <= USER_END as u64 - start;
    if is_good { Ok(start as usize..(start + length) as usize) } else { Err(Errno::EINVAL) }
}

/// Whether a region's missing pages can be provided: private memory, and content in memory that is
/// a file's or shared memory's (`vma_can_userfault`, mm/userfaultfd.c 6.1). Rings that the kernel
/// shares with programs are in memory, too, but no regular files, and attached segments are
/// mappings of another kind on Linux.
fn can_be_provided(mapping: &Mapping) -> bool {
    let Some(backing) = &mapping.backing else { return true };
    let is_file = || {
        let ops = backing.open_file().map(|file| file.ops().traits());
        ops.is_none_or(|traits| traits.contains(Traits::REGULAR))
    };
    backing.page_cache.is_memory() && mapping.attachment().is_none() && is_file()
}

/// Whether a region begins in `range`, or reaches into it. `ENOMEM`: there is none there or above;
/// `EINVAL`: there is none there.
fn require_any(inner: &Inner, range: &Range<usize>) -> Result<()> {
    let first = inner.map.find_from(range.start).ok_or(Errno::ENOMEM)?;
    if first.start < range.end { Ok(()) } else { Err(Errno::EINVAL) }
}

impl Provider {
    /// Makes it the provider of all regions in a range.
    ///
    /// # Errors
    /// `EINVAL` (nothing there, or not for this), `EPERM` (content that cannot be written),
    /// `EBUSY` (another has it), `ENOMEM` (also: the process is gone).
    pub(super) fn register(&self, range: Range<usize>) -> Result<()> {
        let space = self.space.upgrade().ok_or(Errno::ENOMEM)?;
        relieved(|| self.try_register(&space, &range))
    }

    fn try_register(&self, space: &Space, range: &Range<usize>) -> Result<(), Failure> {
        let mut guard = space.table.lock();
        let (inner, ..) = guard.parts();
        require_any(inner, range)?;
        for region in inner.map.overlapping(range.clone()) {
            let mapping = &region.value;
            if !can_be_provided(mapping) {
                return Err(Errno::EINVAL.into());
            }
            if !mapping.flags.contains(RegionFlags::MAY_WRITE) {
                return Err(Errno::EPERM.into());
            }
            let mut others = false;
            if mapping.flags.contains(RegionFlags::PROVIDED) {
                let part = region.start.max(range.start)..region.end.min(range.end);
                inner.claims.each(part, |number| others |= number != self.number);
            }
            if others {
                return Err(Errno::EBUSY.into());
            }
        }
        if inner.too_many(inner.map.splits(range)) {
            return Err(Errno::ENOMEM.into());
        }
        // The claim is on the gaps, too: what is mapped there later has no flag.
        inner.claims.enter(range.clone(), self.number)?;
        let register = |mapping: &mut Mapping| mapping.flags.insert(RegionFlags::PROVIDED);
        Ok(inner.map.update(range.clone(), register)?)
    }

    /// Makes all regions in a range plain memory again, whoever provides them, and ends the waits
    /// there.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub(super) fn unregister(&self, range: Range<usize>) -> Result<()> {
        let space = self.space.upgrade().ok_or(Errno::ENOMEM)?;
        let mut numbers = Vec::new();
        relieved(|| {
            let mut guard = space.table.lock();
            let (inner, ..) = guard.parts();
            require_any(inner, &range)?;
            if inner.map.overlapping(range.clone()).any(|region| !can_be_provided(&region.value)) {
                return Err(Errno::EINVAL.into());
            }
            if inner.too_many(inner.map.splits(&range)) {
                return Err(Errno::ENOMEM.into());
            }
            numbers.clear();
            let mut lacking = false;
            inner.claims.each(range.clone(), |number| {
                if !numbers.contains(&number) {
                    lacking |= growth::push(&mut numbers, number).is_err();
                }
            });
            if lacking {
                return Err(Failure::NoMemory);
            }
            let end = |mapping: &mut Mapping| mapping.flags.remove(RegionFlags::PROVIDED);
            inner.map.update(range.clone(), end)?;
            inner.claims.remove(&range);
            Ok(())
        })?;
        for provider in numbers.into_iter().filter_map(super::find) {
            provider.wake(&range);
        }
        Ok(())
    }
}
