//! The copy of a space for the child of a fork.

use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_space_map::SpaceMap;
use machine::paging::Edit;

use super::origin::Altered;
use super::region::{Mapping, RegionFlags};
use super::space::{Inner, Space, data_size};
use crate::reclaim::growth::Grow;

impl Space {
    /// Makes `child`, an empty space, a copy for the child of a fork: the same pages, with private
    /// ones copied on write. Takes time in proportion to the map, whatever the size of the memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub fn copy_to(&self, child: &Space) -> Result<()> {
        let mut wiped = Vec::new();
        child.set_limits(self.limits());
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
                // Locks are not inherited (mlock(2)).
                value.flags.remove(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT);
                Some(value)
            });
            match map {
                Ok(map) if !lacking => {
                    edit.share_with(&mut young);
                    inner.inherit(map)
                }
                _ => Err(Errno::ENOMEM),
            }
        }?;
        let (inner, mut edit) = young.parts();
        *inner = forked;
        inner.wipe(&mut edit, wiped)
    }
}

impl Inner {
    /// What the child of a fork begins with, beside the map.
    #[inline]
    fn inherit(&self, map: SpaceMap<Mapping>) -> Result<Inner> {
        Ok(Inner {
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
            sites: self.sites.try_clone().ok_or(Errno::ENOMEM)?,
            user_only: self.user_only,
        })
    }

    /// Takes out the pages that the child of a fork does not inherit.
    #[inline]
    fn wipe(&mut self, edit: &mut Edit<'_>, ranges: Vec<Range<usize>>) -> Result<()> {
        for range in ranges {
            edit.unmap(range.clone()).map_err(|_| Errno::ENOMEM)?;
            if self.map.is_free(range.clone()) {
                // A region was not copied: its bytes no longer count, and its range is free.
                self.full_above = (usize::MAX, 0);
                self.data = self.map.iter().map(data_size).sum();
            }
        }
        Ok(())
    }
}
