//! Mapping, unmapping, changing access rights, the heap: `mmap`, `munmap`, `mprotect`, `brk`.
//!
//! Each operation checks everything first, reserves the memory it needs in the map, and only then
//! changes the map. After an error nothing has changed, except where Linux documents otherwise
//! (`mprotect`). For a map that cannot grow, kept and cached memory is given back ([`relieved`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_space_map::{Content, NoMemory, Region};
use machine::paging::Edit;

use super::attachments;
use super::error::{Failure, NoMemoryError, relieved};
use super::layout::STACK_GUARD;
use super::limits::{Limits, may_lock};
use super::outcome::{FaultResult, Touch};
use super::page::{LOWEST, PAGE, USER_END, page_up};
use super::places;
use super::region::{Backing, Mapping, Protection, RegionFlags, is_data};
use super::space::{Inner, Space, data_size};
use crate::in_place::attach;
use crate::page_cache::cache::PageCache;
use crate::reclaim;

/// How the address of a [`MapRequest`] is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At the address if that range is free, else anywhere.
    Hint,
    /// At the address, replacing what was there (`MAP_FIXED`).
    Fixed,
    /// At the address, or fail with `EEXIST` (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace,
    /// Anywhere in the lowest 2 GiB (`MAP_32BIT`).
    Low,
}

impl Placement {
    /// Whether the caller chose the address.
    #[inline]
    fn is_fixed(self) -> bool {
        matches!(self, Placement::Fixed | Placement::FixedNoReplace)
    }
}

/// The arguments of [`Space::map`].
pub struct MapRequest {
    /// The address.
    pub address: usize,
    /// How the address is used.
    pub place: Placement,
    /// The length in bytes, which is rounded up to whole pages.
    pub length: usize,
    /// The access rights.
    pub protection: Protection,
    /// [`RegionFlags::SHARED`], `GROWS_DOWN`, `NO_RESERVE`, `LOCKED`, `STACK`, `MAY_*`.
    pub flags: RegionFlags,
    /// Where the pages come from; `None`: private anonymous memory. Shared memory without a file
    /// has a page cache of its own ([`Backing::nameless`]).
    pub backing: Option<Arc<Backing>>,
    /// The offset in the backing, a multiple of a page.
    pub offset: u64,
    /// Bring the pages in at once (`MAP_POPULATE`).
    pub populate: bool,
}

impl MapRequest {
    /// A request for private anonymous memory, readable and writable, anywhere.
    pub fn anonymous(length: usize) -> MapRequest {
        MapRequest {
            address: 0,
            place: Placement::Hint,
            length,
            protection: Protection::READ | Protection::WRITE,
            flags: RegionFlags::MAY_WRITE | RegionFlags::MAY_EXECUTE,
            backing: None,
            offset: 0,
            populate: false,
        }
    }

    /// Checks what can be checked without the map; returns the size in whole pages.
    #[inline]
    fn checked_size(&self) -> Result<usize> {
        if self.length == 0 {
            return Err(Errno::EINVAL);
        }
        let size = page_up(self.length).filter(|&size| size <= USER_END).ok_or(Errno::ENOMEM)?;
        if !self.offset.is_multiple_of(PAGE as u64) {
            return Err(Errno::EINVAL);
        }
        // A file's largest offset is the largest signed number.
        let end = self.offset.checked_add(size as u64).ok_or(Errno::EOVERFLOW)?;
        if self.backing.is_some() && end > i64::MAX as u64 {
            return Err(Errno::EOVERFLOW);
        }
        if self.place.is_fixed() {
            if !self.address.is_multiple_of(PAGE) {
                return Err(Errno::EINVAL);
            }
            if self.address > USER_END - size {
                return Err(Errno::ENOMEM);
            }
            if self.address < LOWEST {
                return Err(Errno::EPERM);
            }
        }
        Ok(size)
    }
}

/// The bytes below a mapping that stay free.
fn guard(mapping: &Mapping) -> usize {
    if mapping.flags.contains(RegionFlags::GROWS_DOWN) { STACK_GUARD } else { 0 }
}

/// Regions that were removed, to be dropped when no lock is held.
pub type Removed = Vec<Region<Mapping>>;

impl Inner {
    /// Unmaps everything in `range`. Returns what was there, to be dropped without the lock.
    pub fn cut(
        &mut self,
        edit: &mut Edit<'_>,
        range: Range<usize>,
    ) -> Result<Removed, NoMemoryError> {
        self.map.reserve(2)?;
        edit.prepare(range.clone())?;
        self.note_altered(&range);
        let removed = self.map.remove(range.clone())?;
        self.claims.remove(&range);
        if range.end > self.full_above.0 {
            self.full_above = (usize::MAX, 0);
        }
        edit.unmap(range)?;
        if self.has_segments {
            attachments::note_removed(&removed);
        }
        for region in &removed {
            self.data -= data_size(region);
            if region.value.flags.contains(RegionFlags::LOCKED) {
                self.locked -= region.size();
            }
        }
        Ok(removed)
    }

    /// Inserts a region where nothing is mapped.
    pub fn put(&mut self, range: Range<usize>, mapping: Mapping) -> Result<(), NoMemory> {
        let region = Region { start: range.start, end: range.end, value: mapping };
        let data = data_size(&region);
        let locked =
            if region.value.flags.contains(RegionFlags::LOCKED) { region.size() } else { 0 };
        self.map.insert(range, region.value)?;
        self.data += data;
        self.locked += locked;
        Ok(())
    }

    /// Finds a gap for `size` bytes of `mapping`.
    #[inline]
    fn placed(&mut self, mapping: &Mapping, size: usize, hint: usize, low: bool) -> Result<usize> {
        let align = attach::alignment(mapping.backing.as_ref(), mapping.offset);
        if self.layout.files_have_places
            && let Some(backing) = &mapping.backing
            && hint == 0
            && !low
            && mapping.offset == 0
            && !mapping.flags.contains(RegionFlags::SHARED)
            && let Some(at) = self.place_of(&backing.page_cache, size, align)
        {
            return Ok(at);
        }
        // Text placed for large pages needs an aligned gap; without one, take any.
        if align != PAGE
            && let Ok(at) = self.find_gap(size, align, hint, low)
        {
            return Ok(at);
        }
        self.find_gap(size, PAGE, hint, low)
    }

    /// The place of a file (see [`places`]), if nothing is mapped there.
    fn place_of(&self, file: &PageCache, size: usize, align: usize) -> Option<usize> {
        places::of_file(file, size, align).filter(|&at| self.is_room(at, size))
    }

    /// Whether `size` bytes at `at` are free, and far enough from a stack above them.
    fn is_room(&self, at: usize, size: usize) -> bool {
        let next = self.map.find_from(at);
        next.is_none_or(|next| next.start.saturating_sub(guard(&next.value)) >= at + size)
    }

    /// Whether `size` bytes may be mapped where `replaced` bytes are unmapped first. `data`: they
    /// count against `RLIMIT_DATA`.
    #[inline]
    fn check_limits(
        &self,
        limits: &Limits,
        size: usize,
        replaced: usize,
        data: bool,
        locked: bool,
    ) -> Result<()> {
        let total = self.map.size() - replaced;
        if size > limits.address_space.saturating_sub(total) || self.too_many(2) {
            return Err(Errno::ENOMEM);
        }
        if data && size > limits.data.saturating_sub(self.data) {
            return Err(Errno::ENOMEM);
        }
        if locked && !may_lock(size, self.locked, limits.locked) {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    /// How far from the start of `range` on `mprotect` may set `protection`, and the error that
    /// stops it.
    fn reach(&self, range: &Range<usize>, protection: Protection) -> (usize, Result<()>) {
        let mut reached = range.start;
        for region in self.map.overlapping(range.clone()) {
            let allowed = if region.start > reached {
                Err(Errno::ENOMEM)
            } else {
                region.value.may(protection)
            };
            if allowed.is_err() {
                return (reached, allowed);
            }
            reached = region.end.min(range.end);
        }
        let result = if reached < range.end { Err(Errno::ENOMEM) } else { Ok(()) };
        (reached, result)
    }

    /// The bytes in `range` that count against `RLIMIT_DATA` now, and with `protection`.
    fn data_in(&self, range: &Range<usize>, protection: Protection) -> (usize, usize) {
        let (mut before, mut after) = (0, 0);
        for region in self.map.overlapping(range.clone()) {
            let size = region.end.min(range.end) - region.start.max(range.start);
            let flags = region.value.flags;
            before += if region.value.counts_as_data() { size } else { 0 };
            after += if is_data(protection, flags) { size } else { 0 };
        }
        (before, after)
    }

    /// Finds a gap for `size` bytes, at a multiple of `align` unless it is at the hint.
    pub(super) fn find_gap(
        &mut self,
        size: usize,
        align: usize,
        hint: usize,
        low: bool,
    ) -> Result<usize> {
        if low {
            let within = 0x4000_0000..0x8000_0000;
            return self.map.room_from_bottom(size, align, within, guard).ok_or(Errno::ENOMEM);
        }
        if hint != 0
            && let Some(at) = page_up(hint).map(|at| at.max(LOWEST))
            && at < USER_END
            && size <= USER_END - at
            && self.is_room(at, size)
        {
            return Ok(at);
        }
        let top = self.layout.mmap_top;
        if align != PAGE {
            // Not recorded in `full_above`: gaps above may suit requests without alignment.
            let from_top = self.map.room_from_top(size, align, LOWEST..top, guard);
            return from_top.ok_or(Errno::ENOMEM);
        }
        let (full, smallest) = self.full_above;
        let from = if size >= smallest { full.min(top) } else { top };
        // A gap that was found but not used may lie above `full`: the second search finds it.
        for from in [from, top] {
            if let Some(at) = self.map.room_from_top(size, PAGE, LOWEST..from, guard) {
                self.full_above = (at, size);
                return Ok(at);
            }
        }
        self.map.room_from_bottom(size, PAGE, top..USER_END, guard).ok_or(Errno::ENOMEM)
    }
}

impl Space {
    /// Maps `request`; returns the address.
    ///
    /// # Errors
    /// As `mmap(2)`: `EINVAL` (no length, misaligned), `ENOMEM` (no gap, a limit, no memory),
    /// `EEXIST`, `EPERM` (below the lowest address), `EAGAIN` (too much locked).
    pub fn map(&self, request: MapRequest) -> Result<usize> {
        let size = request.checked_size()?;
        let MapRequest { address, place, populate, .. } = request;
        let fixed = place.is_fixed();
        if fixed {
            reclaim::make_room();
        }
        let mapping = Mapping {
            protection: request.protection,
            flags: request.flags,
            backing: request.backing,
            offset: request.offset,
        };
        let data = mapping.counts_as_data();
        if data && !mapping.flags.contains(RegionFlags::NO_RESERVE) && is_obvious_overcommit(size) {
            return Err(Errno::ENOMEM);
        }
        let mut mapping = Some(mapping);
        let (at, comes_in) = relieved(|| self.try_map(&mut mapping, address, place, size))?;
        if populate || comes_in {
            self.populate(at..at + size);
        }
        Ok(at)
    }

    /// Attempts to map `size` bytes of `mapping`, which is taken then. Returns the address, and
    /// whether its pages come in at once, because they are locked.
    #[inline]
    fn try_map(
        &self,
        mapping: &mut Option<Mapping>,
        address: usize,
        place: Placement,
        size: usize,
    ) -> Result<(usize, bool), Failure> {
        let limits = self.limits();
        let fixed = place.is_fixed();
        // Declared first: dropped after the lock.
        let _removed;
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        let wanted = mapping.as_ref().ok_or(Errno::ENOMEM)?;
        let flags = wanted.flags | inner.future;
        let at = if fixed {
            address
        } else {
            inner.placed(wanted, size, address, place == Placement::Low)?
        };
        let range = at..at + size;
        let replaced = if fixed { inner.map.size_in(range.clone()) } else { 0 };
        if replaced != 0 && place == Placement::FixedNoReplace {
            return Err(Errno::EEXIST.into());
        }
        let locked = flags.contains(RegionFlags::LOCKED);
        inner.check_limits(&limits, size, replaced, wanted.counts_as_data(), locked)?;
        inner.map.reserve(3)?;
        _removed =
            if replaced == 0 { Removed::new() } else { inner.cut(&mut edit, range.clone())? };
        let entered = attach::enter(wanted, fixed, range.clone(), &mut edit);
        let taken = mapping.take().ok_or(Errno::ENOMEM)?;
        if inner.put(range.clone(), Mapping { flags, ..taken }).is_err() {
            if entered {
                // No table is shared here, so unmapping needs no memory.
                let _ = edit.unmap(range);
            }
            return Err(Errno::ENOMEM.into());
        }
        Ok((at, locked && !flags.contains(RegionFlags::LOCK_ON_FAULT)))
    }

    /// Unmaps everything in `length` bytes from `address`.
    ///
    /// # Errors
    /// `EINVAL` (misaligned, no length, not a user address), `ENOMEM` (too many regions, no memory
    /// for a split).
    pub fn unmap(&self, address: usize, length: usize) -> Result<()> {
        let range = checked_range(address, length)?;
        if range.is_empty() {
            return Err(Errno::EINVAL);
        }
        relieved(|| {
            // Declared first: dropped after the lock.
            let _removed;
            let mut guard = self.table.lock();
            let (inner, mut edit) = guard.parts();
            if inner.map.splits(&range) == 2 && inner.too_many(1) {
                return Err(Errno::ENOMEM.into());
            }
            _removed = inner.cut(&mut edit, range.clone())?;
            Ok(())
        })
    }

    /// Changes the access rights in `length` bytes from `address`. `grows_down`: from the beginning
    /// of the stack that contains `address` (`PROT_GROWSDOWN`).
    ///
    /// # Errors
    /// `EINVAL` (misaligned), `ENOMEM` (a gap; the part before it has been changed, as in Linux),
    /// `EACCES` (making a file opened for reading writable; the part before has been changed too).
    pub fn protect(
        &self,
        address: usize,
        length: usize,
        protection: Protection,
        grows_down: bool,
    ) -> Result<()> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return Ok(());
        }
        let end = page_up(length).and_then(|length| address.checked_add(length));
        let range = address..end.filter(|&end| end <= USER_END).ok_or(Errno::ENOMEM)?;
        reclaim::make_room();
        relieved(|| self.try_protect(range.clone(), protection, grows_down))
    }

    /// Attempts to change the access rights in `range`.
    fn try_protect(
        &self,
        mut range: Range<usize>,
        protection: Protection,
        grows_down: bool,
    ) -> Result<(), Failure> {
        let limits = self.limits();
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        if grows_down {
            let stack = inner.map.find_from(range.start).ok_or(Errno::ENOMEM)?;
            if stack.start >= range.end || !stack.value.flags.contains(RegionFlags::GROWS_DOWN) {
                return Err(Errno::EINVAL.into());
            }
            range.start = stack.start;
        }
        let (reached, result) = inner.reach(&range, protection);
        let range = range.start..reached;
        if range.is_empty() {
            return Ok(result?);
        }
        let (before, after) = inner.data_in(&range, protection);
        if after > before && after - before > limits.data.saturating_sub(inner.data) {
            return Err(Errno::ENOMEM.into());
        }
        if inner.too_many(inner.map.splits(&range)) {
            return Err(Errno::ENOMEM.into());
        }
        inner.map.reserve(2)?;
        inner.note_altered(&range);
        edit.protect(range.clone(), protection.access())?;
        inner.map.update(range, |mapping| mapping.protection = protection)?;
        inner.data = inner.data + after - before;
        Ok(result?)
    }

    /// Finds a gap of `length` bytes where `mmap` without a hint would map `file`, for a caller
    /// that maps several pieces there before any other thread can map (exec).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn gap_for(&self, file: &PageCache, length: usize) -> Result<usize> {
        let length = page_up(length).ok_or(Errno::ENOMEM)?;
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        if inner.layout.files_have_places
            && let Some(at) = inner.place_of(file, length, PAGE)
        {
            return Ok(at);
        }
        inner.find_gap(length, PAGE, 0, false)
    }

    /// Sets the start of the heap: the end of the program plus the layout's shift. For exec.
    pub fn set_heap(&self, program_end: usize) {
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        let start =
            page_up(program_end).unwrap_or(USER_END).saturating_add(inner.layout.heap_shift);
        inner.heap_start = start.min(USER_END);
        inner.heap_end = inner.heap_start;
    }

    /// The range of the heap.
    pub fn heap(&self) -> Range<usize> {
        let guard = self.table.lock();
        guard.heap_start..guard.heap_end
    }

    /// Moves the end of the heap to `end` if possible; returns the end of the heap (`brk(2)`).
    pub fn brk(&self, end: usize) -> usize {
        match relieved(|| self.try_brk(end)) {
            Ok(None) => end,
            Ok(Some(new)) => {
                self.populate(new);
                end
            }
            Err(_) => self.heap().end,
        }
    }

    /// Attempts to move the end of the heap to `end`. Returns the new part whose pages come in at
    /// once, because they are locked. Any error: the heap ends where it did.
    #[inline]
    fn try_brk(&self, end: usize) -> Result<Option<Range<usize>>, Failure> {
        let limits = self.limits();
        // Declared first: dropped after the lock.
        let _removed;
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        if end < inner.heap_start || end > USER_END - PAGE {
            return Err(Errno::EINVAL.into());
        }
        let old = inner.heap_end.next_multiple_of(PAGE);
        let new = end.next_multiple_of(PAGE);
        if new < old {
            _removed = inner.cut(&mut edit, new..old)?;
        }
        let mut comes_in = None;
        if new > old {
            let size = new - old;
            let next = inner.map.find_from(old);
            let guard = |flags: RegionFlags| {
                if flags.contains(RegionFlags::GROWS_DOWN) { STACK_GUARD } else { 0 }
            };
            if next.is_some_and(|next| next.start < new + guard(next.value.flags))
                || size > limits.address_space.saturating_sub(inner.map.size())
                || size > limits.data.saturating_sub(inner.data)
                || is_obvious_overcommit(size)
                || inner.too_many(1)
            {
                return Err(Errno::ENOMEM.into());
            }
            let flags = RegionFlags::HEAP | RegionFlags::MAY_WRITE | RegionFlags::MAY_EXECUTE;
            let flags = flags | inner.future;
            if flags.contains(RegionFlags::LOCKED) {
                if !may_lock(size, inner.locked, limits.locked) {
                    return Err(Errno::EAGAIN.into());
                }
                comes_in = Some(old..new);
            }
            let protection = Protection::READ | Protection::WRITE;
            inner.put(old..new, Mapping { protection, flags, backing: None, offset: 0 })?;
        }
        inner.heap_end = end;
        Ok(comes_in)
    }

    /// Brings in the pages of `range` as far as possible: writable private ones as writes would,
    /// others as reads would. For a page that cannot be brought in, a later fault reports the
    /// error.
    pub(super) fn populate(&self, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let (end, touch) = {
                let guard = self.table.lock();
                let Some(region) = guard.map.find_from(at).filter(|r| r.start < range.end) else {
                    return;
                };
                at = at.max(region.start);
                let touch = touch_for(&region.value);
                (region.end.min(range.end), touch)
            };
            if let Some(touch) = touch {
                while at < end {
                    if self.handle(at, touch) != FaultResult::Done {
                        break;
                    }
                    at += PAGE;
                    crate::schedule::breathe();
                }
            }
            at = end;
        }
    }
}

/// The access with which a region's pages are brought in ahead; `None` if they cannot be accessed.
pub fn touch_for(mapping: &Mapping) -> Option<Touch> {
    if mapping.protection.is_empty() {
        None
    } else if mapping.protection.contains(Protection::WRITE) && !mapping.is_shared() {
        Some(Touch::Write)
    } else {
        Some(Touch::Read)
    }
}

/// The range of `length` bytes from `address`, rounded up to whole pages.
///
/// # Errors
/// `EINVAL` if misaligned or not in the user half.
pub(super) fn checked_range(address: usize, length: usize) -> Result<Range<usize>> {
    let end = page_up(length).and_then(|length| address.checked_add(length));
    match end.filter(|&end| address.is_multiple_of(PAGE) && end <= USER_END) {
        Some(end) => Ok(address..end),
        None => Err(Errno::EINVAL),
    }
}

/// Linux' heuristic for overcommitting (`vm.overcommit_memory` 0): refuses one mapping that is
/// larger than all memory, and allows everything else.
pub(super) fn is_obvious_overcommit(size: usize) -> bool {
    size / PAGE > machine::frames::total()
}

/// The part of a region's mapping from `start` on.
pub(super) fn part(region: &Region<Mapping>, start: usize) -> Mapping {
    let mut mapping = region.value.clone();
    mapping.advance(start - region.start);
    mapping
}
