//! The copy of a space for the child of a fork.

use alloc::sync::Weak;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_space_map::SpaceMap;
use machine::paging::Edit;

use super::attachments;
use super::claims::Claims;
use super::error::{Failure, relieved};
use super::origin::Altered;
use super::region::{Mapping, RegionFlags};
use super::space::{Inner, Space, data_size};
use crate::reclaim::growth::Grow;

/// Flags that the child's regions do not have: those of locks (mlock(2)), and of pages that a
/// program provides, which does so for the parent's space (`dup_userfaultfd`, fs/userfaultfd.c).
const NOT_INHERITED: RegionFlags =
    RegionFlags::LOCKED.union(RegionFlags::LOCK_ON_FAULT).union(RegionFlags::PROVIDED);

impl Space {
    /// Makes `child`, an empty space, a copy for the child of a fork: the same pages, with private
    /// ones copied on write. Takes time in proportion to the map, whatever the size of the memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub fn copy_to(&self, child: &Space) -> Result<()> {
        child.set_limits(self.limits());
        relieved(|| self.try_copy_to(child))
    }

    /// Attempts to make `child` a copy.
    #[inline]
    fn try_copy_to(&self, child: &Space) -> Result<(), Failure> {
        let mut wiped = Vec::new();
        let mut young = child.table.lock();
        let forked = {
            let mut guard = self.table.lock();
            let (inner, mut edit) = guard.parts();
            let mut lacking = false;
            let map = inner.map.try_clone(|region| {
                let flags = region.value.flags;
                if flags.intersects(RegionFlags::NO_FORK | RegionFlags::WIPE_ON_FORK) {
                    lacking |= wiped.make_room(1).is_err();
                    if !lacking {
                        wiped.push(region.start..region.end);
                    }
                    if flags.contains(RegionFlags::NO_FORK) {
                        return None;
                    }
                }
                let mut value = region.value.clone();
                if flags.contains(RegionFlags::WIPE_ON_FORK) {
                    // A region that shows content has none of it in the child.
                    value.backing = None;
                    value.flags.remove(RegionFlags::SHARED);
                }
                value.flags.remove(NOT_INHERITED);
                Some(value)
            });
            match map {
                Ok(map) if !lacking => {
                    let forked = inner.inherit(map).ok_or(Failure::NoMemory)?;
                    edit.share_with(&mut young);
                    forked
                }
                _ => return Err(Failure::NoMemory),
            }
        };
        let (inner, mut edit) = young.parts();
        *inner = forked;
        if inner.has_segments {
            attachments::note_inherited(inner);
        }
        Ok(inner.wipe(&mut edit, wiped)?)
    }
}

impl Inner {
    /// The state that the child of a fork begins with, beside the page table. `None`: memory is
    /// exhausted.
    #[inline]
    fn inherit(&self, map: SpaceMap<Mapping>) -> Option<Inner> {
        Some(Inner {
            map,
            layout: self.layout,
            heap_start: self.heap_start,
            heap_end: self.heap_end,
            locked: 0,
            data: self.data,
            future: RegionFlags::empty(),
            full_above: self.full_above,
            origin: None,
            altered: Altered::default(),
            sites: self.sites.try_clone()?,
            has_segments: self.has_segments,
            user_only: self.user_only,
            lineage: Weak::new(),
            claims: Claims::NONE,
        })
    }

    /// Takes out the pages that the child of a fork does not inherit.
    #[inline]
    fn wipe(&mut self, edit: &mut Edit<'_>, ranges: Vec<Range<usize>>) -> Result<()> {
        for range in &ranges {
            edit.unmap(range.clone()).map_err(|_| Errno::ENOMEM)?;
            if self.map.is_free(range.clone()) {
                // A region was not copied: its range is free.
                self.full_above = (usize::MAX, 0);
            }
        }
        if !ranges.is_empty() {
            // Regions went, or became private memory.
            self.data = self.map.iter().map(data_size).sum();
        }
        Ok(())
    }
}
