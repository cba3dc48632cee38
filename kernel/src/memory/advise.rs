//! Advice on pages and queries about them: `madvise`, `mincore`, `msync`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};

use super::error::NoMemoryError;
use super::outcome::{FaultResult, Touch};
use super::page::{PAGE, USER_END, page_up};
use super::region::{Backing, Mapping, Protection, RegionFlags};
use super::space::Space;
use crate::page_cache::read_ahead;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule;

/// Advice that a program gives (`madvise(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Cancel other advice on reading ahead.
    Normal,
    /// No reading ahead.
    Random,
    /// Much reading ahead.
    Sequential,
    /// Read the pages in.
    WillNeed,
    /// Give the pages up now.
    DontNeed,
    /// Like `DontNeed`, but of locked regions as well (`MADV_DONTNEED_LOCKED`).
    DontNeedLocked,
    /// Give private pages up when memory is short; this kernel does it at once.
    Free,
    /// Punch a hole into the mapped content.
    Remove,
    /// Bring the pages in as reads would.
    PopulateRead,
    /// Bring the pages in as writes would.
    PopulateWrite,
    /// Set the first flags and clear the second.
    Flags(RegionFlags, RegionFlags),
    /// No effect without swap (`MADV_COLD`, `MADV_PAGEOUT`).
    Nothing,
}

/// The range that the advice is about, which may extend past the program's addresses. EINVAL if it
/// is misaligned or the sum of address and length overflows. Otherwise the part past the end counts
/// as a gap (`do_madvise`, mm/madvise.c).
fn advised_range(address: usize, length: usize) -> Result<Range<usize>> {
    let end = page_up(length).and_then(|length| address.checked_add(length));
    match end.filter(|_| address.is_multiple_of(PAGE)) {
        Some(end) if end == address => Ok(0..0),
        Some(end) => Ok(address.min(USER_END)..end.min(USER_END + PAGE)),
        None => Err(Errno::EINVAL),
    }
}

impl Space {
    /// Applies advice to `length` bytes from `address`.
    ///
    /// # Errors
    /// `EINVAL` (misaligned, not for this kind of region), `ENOMEM` (a gap; the advice was applied
    /// to the rest), `EFAULT`.
    pub fn advise(&self, address: usize, length: usize, advice: Advice) -> Result<()> {
        let range = advised_range(address, length)?;
        if range.is_empty() {
            return Ok(());
        }
        match advice {
            Advice::Nothing => self.leave_cold(range),
            Advice::Normal | Advice::Random | Advice::Sequential => {
                let set = match advice {
                    Advice::Random => RegionFlags::RANDOM,
                    Advice::Sequential => RegionFlags::SEQUENTIAL,
                    _ => RegionFlags::empty(),
                };
                self.advise_flags(range, set, RegionFlags::RANDOM | RegionFlags::SEQUENTIAL)
            }
            Advice::Flags(set, clear) => self.advise_flags(range, set, clear),
            Advice::WillNeed => {
                for (backing, first, count) in self.backings(range.clone(), |_| true)? {
                    read_ahead::ask_all(&backing.page_cache, first, count);
                }
                self.covered(range)
            }
            Advice::DontNeed | Advice::DontNeedLocked | Advice::Free => self.give_up(range, advice),
            Advice::Remove => self.punch(range),
            Advice::PopulateRead => self.populate_checked(range, Touch::Read),
            Advice::PopulateWrite => self.populate_checked(range, Touch::Write),
        }
    }

    /// Unmaps all private regions: the memory of a process that is ending and whose end takes long
    /// (`process_mrelease(2)`). What its threads still do there fails, where Linux marks the space
    /// as unstable (`MMF_UNSTABLE`).
    ///
    /// # Errors
    /// `EINTR` (a signal), `ENOMEM` (no memory to copy a table that is shared with another space).
    /// Regions that come later are still there then.
    pub fn unmap_private(&self) -> Result<()> {
        let mut from = 0;
        loop {
            let next = {
                let guard = self.table.lock();
                guard.map.find_from(from).map(|region| {
                    let shared = region.value.flags.contains(RegionFlags::SHARED);
                    (region.start..region.end, shared)
                })
            };
            let Some((range, shared)) = next else { return Ok(()) };
            if !shared {
                self.unmap(range.start, range.len())?;
            }
            from = range.end;
            if schedule::breathe() {
                return Err(Errno::EINTR);
            }
        }
    }

    /// Checks advice on cold pages, which has no effect. Fails if a region is locked.
    fn leave_cold(&self, range: Range<usize>) -> Result<()> {
        let guard = self.table.lock();
        let mut regions = guard.map.overlapping(range.clone());
        if regions.any(|region| region.value.flags.contains(RegionFlags::LOCKED)) {
            return Err(Errno::EINVAL);
        }
        drop(regions);
        if guard.map.is_covered(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    fn covered(&self, range: Range<usize>) -> Result<()> {
        if self.table.lock().map.is_covered(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    fn advise_flags(
        &self,
        range: Range<usize>,
        set: RegionFlags,
        clear: RegionFlags,
    ) -> Result<()> {
        let fork = RegionFlags::WIPE_ON_FORK;
        if set.contains(fork) {
            let guard = self.table.lock();
            let mut regions = guard.map.overlapping(range.clone());
            // Allowed for private memory without a file only (madvise(2)).
            if regions.any(|region| region.value.backing.is_some()) {
                return Err(Errno::EINVAL);
            }
        }
        let covered = self.mark(range, |flags| {
            flags.remove(clear);
            flags.insert(set);
        });
        // Memory to split a region is exhausted (`madvise_vma_behavior`).
        let covered = covered.map_err(|_| Errno::EAGAIN)?;
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Gives up the pages in `range`: private content is lost, shared content stays in the page
    /// cache.
    fn give_up(&self, range: Range<usize>, advice: Advice) -> Result<()> {
        reclaim::make_room();
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        for region in inner.map.overlapping(range.clone()) {
            let locked = region.value.flags.contains(RegionFlags::LOCKED);
            if (locked && advice != Advice::DontNeedLocked)
                || (advice == Advice::Free && region.value.backing.is_some())
            {
                return Err(Errno::EINVAL);
            }
            let part = region.start.max(range.start)..region.end.min(range.end);
            edit.unmap(part).map_err(NoMemoryError::from)?;
        }
        if inner.map.is_covered(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// The parts of files and shared memory mapped in `range`: backing, first page, number of
    /// pages.
    fn backings(
        &self,
        range: Range<usize>,
        wanted: impl Fn(&Mapping) -> bool,
    ) -> Result<Vec<(Arc<Backing>, u64, u64)>> {
        let mut found = Vec::new();
        let guard = self.table.lock();
        for region in guard.map.overlapping(range.clone()) {
            let Some(backing) = &region.value.backing else { continue };
            if !wanted(&region.value) {
                return Err(Errno::EINVAL);
            }
            let start = region.start.max(range.start);
            let pages = (region.end.min(range.end) - start) / PAGE;
            found.make_room(1)?;
            found.push((backing.clone(), region.value.index(region.start, start), pages as u64));
        }
        Ok(found)
    }

    /// Punches a hole into the content that is mapped shared and writable in `range`.
    fn punch(&self, range: Range<usize>) -> Result<()> {
        {
            let guard = self.table.lock();
            let writable = |mapping: &Mapping| {
                mapping.is_shared() && mapping.flags.contains(RegionFlags::MAY_WRITE)
            };
            for region in guard.map.overlapping(range.clone()) {
                let locked = region.value.flags.contains(RegionFlags::LOCKED);
                if locked || region.value.backing.is_none() {
                    return Err(Errno::EINVAL);
                }
                if !writable(&region.value) {
                    return Err(Errno::EACCES);
                }
            }
        }
        const PUNCH_HOLE_KEEP_SIZE: u32 = 3;
        for (backing, first, pages) in self.backings(range.clone(), |_| true)? {
            let (offset, length) = (first * PAGE as u64, pages * PAGE as u64);
            match backing.open_file() {
                Some(file) => {
                    file.ops().allocate(file, PUNCH_HOLE_KEEP_SIZE, offset, length)?;
                }
                None => {
                    let _content = backing.page_cache.lock_content();
                    backing.page_cache.punch(offset, length);
                }
            }
        }
        self.covered(range)
    }

    fn populate_checked(&self, range: Range<usize>, touch: Touch) -> Result<()> {
        for page in range.step_by(PAGE) {
            match self.handle(page, touch) {
                FaultResult::Done => {}
                FaultResult::NotMapped => return Err(Errno::ENOMEM),
                FaultResult::NotAllowed => return Err(Errno::EINVAL),
                FaultResult::NoContent => return Err(Errno::EFAULT),
                FaultResult::OutOfMemory | FaultResult::Limited => return Err(Errno::ENOMEM),
                FaultResult::Interrupted => return Err(Errno::EINTR),
            }
            crate::schedule::breathe();
        }
        Ok(())
    }

    /// Calls `report` for each page of `length` bytes from `address` with whether it is in memory,
    /// as `mincore(2)` defines it: in the page table, or in the page cache that is mapped there.
    /// Stops when `report` fails. No lock is held during a call.
    ///
    /// # Errors
    /// `EINVAL` (misaligned), `ENOMEM` (a gap), and the error of `report`.
    pub fn residency(
        &self,
        address: usize,
        length: usize,
        mut report: impl FnMut(bool) -> Result<()>,
    ) -> Result<()> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let end = page_up(length).and_then(|length| address.checked_add(length));
        let end = end.filter(|&end| end <= USER_END).ok_or(Errno::ENOMEM)?;
        for page in (address..end).step_by(PAGE) {
            let resident = {
                let mut guard = self.table.lock();
                let (inner, edit) = guard.parts();
                let region = inner.map.find(page).ok_or(Errno::ENOMEM)?;
                let in_page_cache = || {
                    let backing = region.value.backing.as_ref()?;
                    backing.page_cache.peek(region.value.index(region.start, page))
                };
                edit.page(page).is_some() || in_page_cache().is_some()
            };
            report(resident)?;
            crate::schedule::breathe();
        }
        Ok(())
    }

    /// Writes shared pages of `length` bytes from `address` to their files (`msync(2)`). `wait`:
    /// `MS_SYNC`. `invalidate`: `MS_INVALIDATE`.
    ///
    /// # Errors
    /// `EINVAL` (misaligned), `ENOMEM` (a gap; the rest has been written), `EBUSY` (locked pages
    /// and `invalidate`), or the error of the file system.
    pub fn sync(&self, address: usize, length: usize, wait: bool, invalidate: bool) -> Result<()> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let end = page_up(length).and_then(|length| address.checked_add(length));
        let range = address..end.filter(|&end| end <= USER_END).ok_or(Errno::ENOMEM)?;
        if range.is_empty() {
            return Ok(());
        }
        if invalidate {
            let guard = self.table.lock();
            let mut regions = guard.map.overlapping(range.clone());
            if regions.any(|region| region.value.flags.contains(RegionFlags::LOCKED)) {
                return Err(Errno::EBUSY);
            }
        }
        if wait {
            let mut files: Vec<Arc<Backing>> = Vec::new();
            {
                let guard = self.table.lock();
                for region in guard.map.overlapping(range.clone()) {
                    if let Some(backing) = &region.value.backing
                        && region.value.is_shared()
                        && region.value.protection.contains(Protection::WRITE)
                    {
                        files.make_room(1)?;
                        files.push(backing.clone());
                    }
                }
            }
            for backing in files {
                if let Some(file) = backing.open_file() {
                    file.ops().sync(file, true)?;
                }
            }
        }
        self.covered(range)
    }
}
