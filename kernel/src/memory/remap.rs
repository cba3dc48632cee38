//! Resizing and moving mappings: `mremap(2)`.

use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_space_map::Content;
use machine::paging::Edit;

use super::error::{Failure, relieved};
use super::limits::{Limits, may_lock};
use super::map::{Removed, checked_range, part};
use super::page::{LOWEST, PAGE, USER_END, page_up};
use super::region::{Mapping, RegionFlags};
use super::space::{Inner, Space};
use crate::reclaim;

/// Where a mapping may go (`MREMAP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Nowhere: grow in place or fail.
    Never,
    /// Anywhere.
    Anywhere,
    /// To this address, whatever is mapped there.
    To(usize),
}

/// Checks the arguments of [`Space::remap`]; returns the old range and the new size in whole pages.
fn checked(
    address: usize,
    old: usize,
    new: usize,
    place: Move,
    keep: bool,
) -> Result<(Range<usize>, usize)> {
    let from = checked_range(address, old)?;
    let size = page_up(new).filter(|&size| size != 0).ok_or(Errno::EINVAL)?;
    if size > USER_END || (keep && from.len() != size) || (keep && place == Move::Never) {
        return Err(Errno::EINVAL);
    }
    if let Move::To(to) = place {
        let to = checked_range(to, size)?;
        if to.start < from.end && from.start < to.end {
            return Err(Errno::EINVAL);
        }
        if to.start < LOWEST {
            return Err(Errno::EPERM);
        }
    }
    if from.is_empty() && place == Move::Never {
        return Err(Errno::EINVAL);
    }
    Ok((from, size))
}

impl Inner {
    /// Whether the limits allow `added` bytes more of `mapping`.
    fn may_add(&self, limits: &Limits, mapping: &Mapping, added: usize) -> Result<()> {
        let data = if mapping.counts_as_data() { added } else { 0 };
        if added > limits.address_space.saturating_sub(self.map.size())
            || (data != 0 && data > limits.data.saturating_sub(self.data))
            || self.too_many(3)
        {
            return Err(Errno::ENOMEM);
        }
        let locked = mapping.flags.contains(RegionFlags::LOCKED);
        if locked && !may_lock(added, self.locked, limits.locked) {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    /// Moves the pages of `from` to where `place` says, and maps `size` bytes of `mapping` there.
    /// Returns the address. Unmapped parts are pushed to `removed`, to be dropped without the lock.
    fn relocate(
        &mut self,
        edit: &mut Edit<'_>,
        mapping: Mapping,
        from: Range<usize>,
        size: usize,
        (place, keep): (Move, bool),
        removed: &mut [Removed; 2],
    ) -> Result<usize, Failure> {
        let [target, source] = removed;
        let at = match place {
            Move::Never => return Err(Errno::ENOMEM.into()),
            Move::To(to) => {
                *target = self.cut(edit, to..to + size)?;
                to
            }
            Move::Anywhere => self.find_gap(size, PAGE, 0, false)?,
        };
        edit.prepare(from.clone())?;
        let moved = from.start..from.start + from.len().min(size);
        edit.move_pages(moved, at)?;
        // A provider of missing pages keeps the old place alone (`mremap_userfaultfd_prep`).
        let mut mapping = mapping;
        mapping.flags.remove(RegionFlags::PROVIDED);
        // From here on there is no way back, and no more than a little memory is needed.
        let lack = |_| Errno::ENOMEM;
        self.put(at..at + size, mapping).map_err(lack)?;
        if !keep && !from.is_empty() {
            *source = self.cut(edit, from).map_err(|_| Errno::ENOMEM)?;
        }
        Ok(at)
    }
}

impl Space {
    /// Changes the size of the mapping at `address` from `old` to `new` bytes, moving it as `place`
    /// allows; returns its address. `keep`: the old range stays mapped, without its pages
    /// (`MREMAP_DONTUNMAP`; `old` = `new`). An `old` of 0 maps shared memory a second time.
    ///
    /// # Errors
    /// As `mremap(2)`: `EINVAL`, `EFAULT` (not one mapping), `ENOMEM`, `EAGAIN` (too much locked).
    pub fn remap(
        &self,
        address: usize,
        old: usize,
        new: usize,
        place: Move,
        keep: bool,
    ) -> Result<usize> {
        let (from, size) = checked(address, old, new, place, keep)?;
        reclaim::make_room();
        let (at, comes_in) = relieved(|| self.try_remap(from.clone(), size, place, keep))?;
        if let Some(range) = comes_in {
            self.populate(range);
        }
        Ok(at)
    }

    /// Attempts to change the size of the mapping of `from`. Returns its address, and the range
    /// whose pages come in at once, because they are locked.
    fn try_remap(
        &self,
        from: Range<usize>,
        size: usize,
        place: Move,
        keep: bool,
    ) -> Result<(usize, Option<Range<usize>>), Failure> {
        let limits = self.limits();
        // Declared first: dropped after the lock.
        let (mut _tail, mut _removed) = (Removed::new(), [Removed::new(), Removed::new()]);
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        let region = inner.map.find(from.start).ok_or(Errno::EFAULT)?;
        let shared = region.value.is_shared();
        if (from.is_empty() && !shared) || (keep && (shared || region.value.backing.is_some())) {
            return Err(Errno::EINVAL.into());
        }
        // Shrinking in place works whatever is mapped after it.
        if size <= from.len() && !matches!(place, Move::To(_)) && !keep {
            if size < from.len() {
                _tail = inner.cut(&mut edit, from.start + size..from.end)?;
            }
            return Ok((from.start, None));
        }
        if region.end < from.end.min(from.start + size) {
            return Err(Errno::EFAULT.into());
        }
        let (mapping, whole) = (part(region, from.start), region.end == from.end);
        let locked = mapping.flags.contains(RegionFlags::LOCKED);
        let added = if keep { size } else { size.saturating_sub(from.len()) };
        inner.may_add(&limits, &mapping, added)?;
        mapping.offset.checked_add(size as u64).ok_or(Errno::EINVAL)?;
        inner.map.reserve(5)?;
        let stay = from.start..from.start + size;
        // Growing in place.
        if !matches!(place, Move::To(_))
            && !keep
            && !from.is_empty()
            && whole
            && stay.end <= USER_END
            && inner.map.is_free(from.end..stay.end)
        {
            let mut more = mapping;
            more.advance(from.len());
            if more.flags.contains(RegionFlags::PROVIDED) {
                inner.claims.enter(from.end..stay.end, inner.claims.at(from.end - 1))?;
            }
            inner.put(from.end..stay.end, more)?;
            return Ok((from.start, locked.then_some(stay)));
        }
        let moved = (place, keep);
        let at = inner.relocate(&mut edit, mapping, from, size, moved, &mut _removed)?;
        Ok((at, locked.then_some(at..at + size)))
    }
}
