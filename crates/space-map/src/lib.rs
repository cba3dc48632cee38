//! The interval map of a virtual space: place, split, merge, protect.
//!
//! A [`SpaceMap`] holds disjoint regions of addresses in order, each with a value that describes
//! the mapping. It can find, insert, remove and change any range, splitting regions at its edges
//! and merging neighbours that continue each other, and it can find gaps in the address space.
//!
//! Invariants: regions are sorted (downwards), not empty, and do not overlap; two adjacent regions
//! that continue each other ([`Content::continues`]) are one region.
//!
//! Every operation that needs memory allocates it before it changes anything: on [`NoMemory`] the
//! map is unchanged.
//!
//! The regions lie in one vector, the highest first: programs map from the top down, so a new
//! region is inserted near the vector's end and moves only the few below it.
//!
//! Road not taken: a search tree. Programs have tens of regions, seldom thousands. The fault path
//! needs a look-up by one binary search over contiguous memory; fork needs one allocation. The
//! price is that an insertion into the middle of very many regions moves 48 bytes for each region
//! below it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod room;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

/// The value of a region.
pub trait Content: Clone {
    /// Moves the value `bytes` further on: called for the upper part when a region is split.
    fn advance(&mut self, bytes: usize);

    /// Whether a region with `self`, `bytes` long, and an adjacent region with `next` above it can
    /// be one region with `self`.
    fn continues(&self, bytes: usize, next: &Self) -> bool;
}

/// A range of addresses and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region<V> {
    /// The first address.
    pub start: usize,
    /// One past the last address.
    pub end: usize,
    /// The value.
    pub value: V,
}

impl<V> Region<V> {
    /// Its length in bytes.
    pub fn size(&self) -> usize {
        self.end - self.start
    }

    /// Whether `address` is in it.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        self.start <= address && address < self.end
    }
}

/// Regions in order of their addresses.
pub type Iter<'a, V> = core::iter::Rev<core::slice::Iter<'a, Region<V>>>;

/// Memory for the map itself is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Regions by address. See the [module](self).
#[derive(Debug)]
pub struct SpaceMap<V> {
    regions: Vec<Region<V>>,
    /// The sum of the regions' sizes.
    size: usize,
}

impl<V> Default for SpaceMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> SpaceMap<V> {
    /// An empty map.
    pub const fn new() -> Self {
        SpaceMap { regions: Vec::new(), size: 0 }
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The sum of the regions' sizes in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns how many regions end above `address`: the last of them is the lowest such region.
    #[inline]
    fn above(&self, address: usize) -> usize {
        self.regions.partition_point(|region| region.end > address)
    }

    /// Returns the indexes of the regions that overlap `range`.
    fn indexes(&self, range: &Range<usize>) -> Range<usize> {
        let end = self.above(range.start);
        self.regions[..end].partition_point(|region| region.start >= range.end)..end
    }

    /// Returns the region that contains `address`.
    #[inline]
    pub fn find(&self, address: usize) -> Option<&Region<V>> {
        self.find_from(address).filter(|region| region.start <= address)
    }

    /// Returns the region that contains `address`, or else the first one above it.
    #[inline]
    pub fn find_from(&self, address: usize) -> Option<&Region<V>> {
        self.regions.get(self.above(address).wrapping_sub(1))
    }

    /// Returns the last region that begins below `address`.
    pub fn find_below(&self, address: usize) -> Option<&Region<V>> {
        self.regions.get(self.regions.partition_point(|region| region.start >= address))
    }

    /// All regions, in order of their addresses.
    pub fn iter(&self) -> Iter<'_, V> {
        self.regions.iter().rev()
    }

    /// The regions that overlap `range`, in order of their addresses.
    pub fn overlapping(&self, range: Range<usize>) -> Iter<'_, V> {
        self.regions[self.indexes(&range)].iter().rev()
    }

    /// Whether no region overlaps `range`.
    pub fn is_free(&self, range: Range<usize>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// Whether every address of `range` is in some region.
    pub fn is_covered(&self, range: Range<usize>) -> bool {
        let mut at = range.start;
        for region in self.overlapping(range.clone()) {
            if region.start > at {
                return false;
            }
            at = region.end;
        }
        at >= range.end
    }

    /// Returns how many bytes of `range` are in regions.
    pub fn size_in(&self, range: Range<usize>) -> usize {
        let part = |r: &Region<V>| r.end.min(range.end) - r.start.max(range.start);
        self.overlapping(range.clone()).map(part).sum()
    }

    /// Ensures that `more` regions can be added without allocating.
    pub fn reserve(&mut self, more: usize) -> Result<(), NoMemory> {
        self.regions.try_reserve(more).map_err(|_| NoMemory)
    }

    /// Returns a copy with the regions for which `keep` returns a value, with that value.
    pub fn try_clone(
        &self,
        mut keep: impl FnMut(&Region<V>) -> Option<V>,
    ) -> Result<Self, NoMemory> {
        let mut copy = SpaceMap::new();
        copy.reserve(self.len())?;
        for region in &self.regions {
            if let Some(value) = keep(region) {
                copy.size += region.size();
                copy.regions.push(Region { start: region.start, end: region.end, value });
            }
        }
        Ok(copy)
    }

    /// Takes all regions out, leaving the map empty.
    pub fn take(&mut self) -> Vec<Region<V>> {
        self.size = 0;
        core::mem::take(&mut self.regions)
    }
}

impl<V: Content> SpaceMap<V> {
    /// Inserts a region where none is, and merges it with its neighbours.
    ///
    /// # Panics
    /// If the range is empty or overlaps a region.
    pub fn insert(&mut self, range: Range<usize>, value: V) -> Result<(), NoMemory> {
        assert!(range.start < range.end, "an empty region");
        let at = self.above(range.start);
        let next = self.regions.get(at.wrapping_sub(1));
        assert!(next.is_none_or(|next| next.start >= range.end), "regions overlap");
        // A region that grows at its end (a heap) needs no memory.
        if let Some(before) = self.regions.get_mut(at)
            && before.end == range.start
            && before.value.continues(before.end - before.start, &value)
        {
            self.size += range.end - range.start;
            before.end = range.end;
            self.merge(at);
            return Ok(());
        }
        self.reserve(1)?;
        self.size += range.end - range.start;
        self.regions.insert(at, Region { start: range.start, end: range.end, value });
        self.merge(at);
        Ok(())
    }

    /// Merges the region at `at` with the one above it if they continue each other.
    fn merge(&mut self, at: usize) {
        let Some([above, here]) = at.checked_sub(1).and_then(|to| self.regions.get(to..=at)) else {
            return;
        };
        if here.end == above.start && here.value.continues(here.size(), &above.value) {
            let end = above.end;
            self.regions[at].end = end;
            self.regions.remove(at - 1);
        }
    }

    /// Splits the region at `address`. Memory for one more region must be reserved.
    fn split(&mut self, address: usize) {
        let at = self.above(address).wrapping_sub(1);
        let Some(region) = self.regions.get_mut(at).filter(|region| region.start < address) else {
            return;
        };
        let mut upper = region.clone();
        upper.start = address;
        upper.value.advance(address - region.start);
        region.end = address;
        self.regions.insert(at, upper);
    }

    /// Returns how many splits cutting `range` out takes.
    pub fn splits(&self, range: &Range<usize>) -> usize {
        let inside = |address: usize| self.find(address).is_some_and(|r| r.start < address);
        usize::from(inside(range.start)) + usize::from(inside(range.end))
    }

    /// Removes everything in `range` and returns the removed regions, cut to the range.
    pub fn remove(&mut self, range: Range<usize>) -> Result<Vec<Region<V>>, NoMemory> {
        let mut removed = Vec::new();
        if range.start >= range.end {
            return Ok(removed);
        }
        let count = self.indexes(&range).len();
        if count == 0 {
            return Ok(removed);
        }
        removed.try_reserve_exact(count).map_err(|_| NoMemory)?;
        self.reserve(2)?;
        self.split(range.start);
        self.split(range.end);
        let indexes = self.indexes(&range);
        removed.extend(self.regions.drain(indexes).rev());
        self.size -= removed.iter().map(Region::size).sum::<usize>();
        Ok(removed)
    }

    /// Changes the values of everything in `range`, splitting regions at its edges and merging
    /// regions that continue each other afterwards.
    pub fn update(
        &mut self,
        range: Range<usize>,
        mut change: impl FnMut(&mut V),
    ) -> Result<(), NoMemory> {
        if range.start >= range.end {
            return Ok(());
        }
        self.reserve(2)?;
        self.split(range.start);
        self.split(range.end);
        let indexes = self.indexes(&range);
        for region in &mut self.regions[indexes.clone()] {
            change(&mut region.value);
        }
        // From the lowest up, including the edges, so that merging does not move regions that are
        // still to be examined.
        for at in (indexes.start..=indexes.end).rev() {
            self.merge(at);
        }
        Ok(())
    }

    /// Changes the values of all regions, which `change` gets with their ranges, and merges those
    /// that continue each other afterwards. It needs no memory.
    pub fn change_all(&mut self, mut change: impl FnMut(Range<usize>, &mut V)) {
        for region in &mut self.regions {
            change(region.start..region.end, &mut region.value);
        }
        for at in (1..self.regions.len()).rev() {
            self.merge(at);
        }
    }

    /// Moves the lower edge of the region that begins at `start` (a stack) down to `to`; false if
    /// there is no such region or another region is in the way.
    pub fn grow_down(&mut self, start: usize, to: usize) -> bool {
        let at = self.above(start).wrapping_sub(1);
        let below = self.regions.get(at.wrapping_add(1)).map_or(0, |region| region.end);
        match self.regions.get_mut(at) {
            Some(region) if region.start == start && to < start && below <= to => {
                self.size += start - to;
                region.start = to;
                true
            }
            _ => false,
        }
    }
}
