//! One page of a page table, as raw memory.

use super::entry::TableEntry;
use super::usage::Usage;
use crate::frames::{Frame, FrameInfo, direct, give_zeroed, info, owner};
use crate::layout::PAGE_SHIFT;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Memory for page tables is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// Entries of a table.
pub(super) const ENTRIES: usize = 512;

/// A table's frame number. Copies of it are only held while the table cannot be freed.
///
/// The frame's info records which of the 64 groups of eight entries are occupied, so no walk has to
/// look through 512 entries to find a few. A group's bit is set before an entry in the group is
/// set, and cleared when the last entry of the group is cleared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Table(pub u32);

impl Table {
    /// Returns a new, empty table. `None`: memory is exhausted.
    #[inline]
    pub fn allocate() -> Option<Table> {
        let frame = Frame::allocate_zeroed()?;
        let table = Table(frame.into_number());
        table.info().data.store(0, Relaxed);
        Some(table)
    }

    /// Like [`allocate`](Self::allocate), charged to the owner of the page table that it is for.
    /// `None` also if a limit does not allow it.
    #[inline]
    pub fn allocate_for(usage: &Usage) -> Option<Table> {
        let table = Table::allocate()?;
        let owner = usage.owner();
        if owner != 0 && !owner::take_table(table.info(), owner) {
            table.give_back();
            return None;
        }
        Some(table)
    }

    /// Returns the info of the table's frame.
    #[inline]
    pub fn info(self) -> &'static FrameInfo {
        // SAFETY: this is a table's frame: `allocate` took it, or an entry led here.
        unsafe { info(self.0) }
    }

    #[inline]
    fn slot(self, index: usize) -> &'static AtomicU64 {
        let base = direct(u64::from(self.0) << PAGE_SHIFT).cast::<AtomicU64>();
        // SAFETY: the frame is in use as a table, in the direct map; the index is reduced to the
        // table's size.
        unsafe { &*base.add(index % ENTRIES) }
    }

    #[inline]
    pub fn load(self, index: usize) -> TableEntry {
        TableEntry(self.slot(index).load(Relaxed))
    }

    /// Writes an entry without touching the occupancy.
    #[inline]
    pub fn store(self, index: usize, entry: TableEntry) {
        self.slot(index).store(entry.0, Relaxed);
    }

    /// Writes an entry where there was none.
    #[inline]
    pub fn fill(self, index: usize, entry: TableEntry) {
        let groups = &self.info().data;
        groups.store(groups.load(Relaxed) | 1 << (index / 8 % 64), Relaxed);
        self.store(index, entry);
    }

    /// Writes `count` consecutive entries where there were none, from index `first` on: `entry` for
    /// the first frame, and the same bits for each frame that follows.
    #[inline]
    pub fn fill_row(self, first: usize, count: usize, entry: TableEntry) {
        let mut entry = entry.0;
        for slot in self.row(first, count) {
            slot.store(entry, Relaxed);
            entry += 1 << PAGE_SHIFT;
        }
        if count > 0 {
            let (low, high) = (first / 8 % 64, (first + count - 1) / 8 % 64);
            let groups = &self.info().data;
            let row = u64::MAX << low & u64::MAX >> (63 - high);
            groups.store(groups.load(Relaxed) | row, Relaxed);
        }
    }

    /// Returns `count` entries from index `first` on, or as many as the table has.
    #[inline]
    fn row(self, first: usize, count: usize) -> &'static [AtomicU64] {
        let base = direct(u64::from(self.0) << PAGE_SHIFT).cast::<[AtomicU64; ENTRIES]>();
        // SAFETY: the frame is in use as a table, in the direct map.
        let all = unsafe { &*base };
        let first = first.min(ENTRIES);
        &all[first..first + count.min(ENTRIES - first)]
    }

    /// Clears an entry; call [`settle`](Self::settle) for its group afterwards.
    #[inline]
    pub fn clear(self, index: usize) {
        self.store(index, TableEntry::NONE);
    }

    /// Returns which groups of eight entries are occupied, one bit each.
    #[inline]
    pub fn groups(self) -> u64 {
        self.info().data.load(Relaxed)
    }

    /// Clears the bits of those groups that have become empty, for the groups of entries
    /// `first..=last`.
    pub fn settle(self, first: usize, last: usize) {
        let groups = self.groups();
        let mut left = groups & between(first, last);
        let mut gone = 0;
        while left != 0 {
            let group = left.trailing_zeros() as usize;
            let bit = left & left.wrapping_neg();
            left ^= bit;
            if self.group(group).iter().all(|entry| entry.load(Relaxed) == 0) {
                gone |= bit;
            }
        }
        if gone != 0 {
            self.info().data.store(groups & !gone, Relaxed);
        }
    }

    /// Clears every entry between two indexes (inclusive), and calls `visit` with each one after it
    /// is cleared. For a group whose eight entries all have [`TableEntry::UNCOUNTED`] it calls
    /// `eight` instead, with the index of the first. The group bits are settled.
    #[inline]
    pub fn take(
        self,
        first: usize,
        last: usize,
        mut visit: impl FnMut(usize, TableEntry),
        mut eight: impl FnMut(usize),
    ) {
        let mut left = self.groups() & between(first, last);
        let mut gone = 0;
        while left != 0 {
            let group = left.trailing_zeros() as usize;
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let (start, end) = ((group * 8).max(first), (group * 8 + 7).min(last));
            let row = self.row(start, end + 1 - start);
            if let Ok(row) = <&[AtomicU64; 8]>::try_from(row)
                && TableEntry(row[0].load(Relaxed)).has(TableEntry::UNCOUNTED)
                && row[1..]
                    .iter()
                    .all(|slot| TableEntry(slot.load(Relaxed)).has(TableEntry::UNCOUNTED))
            {
                row.iter().for_each(|slot| slot.store(0, Relaxed));
                eight(start);
                gone |= bit;
                continue;
            }
            for (index, slot) in (start..).zip(row) {
                let entry = TableEntry(slot.load(Relaxed));
                if !entry.is_none() {
                    slot.store(0, Relaxed);
                    visit(index, entry);
                }
            }
            // Entries outside of the range stay.
            if end - start == 7 || self.group(group).iter().all(|slot| slot.load(Relaxed) == 0) {
                gone |= bit;
            }
        }
        if gone != 0 {
            let groups = &self.info().data;
            groups.store(groups.load(Relaxed) & !gone, Relaxed);
        }
    }

    /// Returns the entries of one group.
    #[inline]
    fn group(self, group: usize) -> &'static [AtomicU64; 8] {
        let base = direct(u64::from(self.0) << PAGE_SHIFT).cast::<[AtomicU64; 8]>();
        // SAFETY: the frame is in use as a table, in the direct map; the index is reduced to the
        // table's size.
        unsafe { &*base.add(group % 64) }
    }

    /// Calls `visit` with every occupied entry between two indexes (inclusive).
    #[inline]
    pub fn occupied(self, first: usize, last: usize, mut visit: impl FnMut(usize, TableEntry)) {
        let mut groups = self.groups() & between(first, last);
        while groups != 0 {
            let group = groups.trailing_zeros() as usize * 8;
            groups &= groups - 1;
            // Most callers want a single entry: its neighbours are not read.
            let mut index = group.max(first);
            let end = (group + 7).min(last);
            while index <= end {
                let entry = self.load(index);
                if !entry.is_none() {
                    visit(index, entry);
                }
                index += 1;
            }
        }
    }

    /// Calls `visit` with the index and both entries wherever this table and another one, if there
    /// is one, differ.
    #[inline]
    pub fn beside(
        self,
        other: Option<Table>,
        mut visit: impl FnMut(usize, TableEntry, TableEntry),
    ) {
        static NOTHING: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
        let mut groups = self.groups() | other.map_or(0, Table::groups);
        while groups != 0 {
            let group = groups.trailing_zeros() as usize;
            groups &= groups - 1;
            let others = other.map_or(&NOTHING, |other| other.group(group));
            for (within, (slot, other)) in self.group(group).iter().zip(others).enumerate() {
                let (own, other) = (slot.load(Relaxed), other.load(Relaxed));
                if own != other {
                    visit(group * 8 + within, TableEntry(own), TableEntry(other));
                }
            }
        }
    }

    /// Returns the first occupied entry and its index.
    #[inline]
    pub fn first(self) -> Option<(usize, TableEntry)> {
        let start = self.groups().trailing_zeros() as usize * 8;
        (start..ENTRIES.min(start + 8))
            .map(|at| (at, self.load(at)))
            .find(|(_, entry)| !entry.is_none())
    }

    /// Clears every entry and calls `visit` with it, to give up what it refers to; the table is all
    /// zeroes afterwards.
    #[inline]
    pub fn empty(self, mut visit: impl FnMut(TableEntry)) {
        let mut groups = self.groups();
        self.info().data.store(0, Relaxed);
        while groups != 0 {
            let group = self.group(groups.trailing_zeros() as usize);
            groups &= groups - 1;
            for slot in group {
                let entry = TableEntry(slot.load(Relaxed));
                if !entry.is_none() {
                    slot.store(0, Relaxed);
                    visit(entry);
                }
            }
        }
    }

    /// Clears the entries for which `keep` returns false. The group bits are settled.
    #[inline]
    pub fn retain(self, mut keep: impl FnMut(TableEntry) -> bool) {
        let (mut left, mut kept) = (self.groups(), 0);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            for slot in self.group(left.trailing_zeros() as usize) {
                let entry = TableEntry(slot.load(Relaxed));
                if entry.is_none() {
                } else if keep(entry) {
                    kept |= bit;
                } else {
                    slot.store(0, Relaxed);
                }
            }
            left ^= bit;
        }
        self.info().data.store(kept, Relaxed);
    }

    /// Copies every entry to the empty table `to`, changed by `change`; the original entry is
    /// changed in the same way.
    #[inline]
    pub fn copy_to(self, to: Table, mut change: impl FnMut(TableEntry) -> TableEntry) {
        let mut groups = self.groups();
        to.info().data.store(groups, Relaxed);
        while groups != 0 {
            let group = groups.trailing_zeros() as usize;
            groups &= groups - 1;
            for (from, to) in self.group(group).iter().zip(to.group(group)) {
                let entry = TableEntry(from.load(Relaxed));
                if !entry.is_none() {
                    let changed = change(entry);
                    if changed != entry {
                        from.store(changed.0, Relaxed);
                    }
                    to.store(changed.0, Relaxed);
                }
            }
        }
    }

    /// Gives up the last reference to a table that is all zeroes.
    #[inline]
    pub fn give_back(self) {
        give_zeroed(self.0);
    }

    /// Returns how many entries lead to this table.
    #[inline]
    pub fn references(self) -> u32 {
        self.info().refs()
    }
}

/// Returns the bits of the groups that contain the entries `first..=last`.
#[inline]
fn between(first: usize, last: usize) -> u64 {
    u64::MAX << (first / 8 % 64) & u64::MAX >> (63 - last / 8 % 64)
}

/// Returns how many address bits one entry covers at a level: 0 is a page of 4 KiB, 1 of 2 MiB, 2
/// of 1 GiB, 3 of 512 GiB.
#[inline]
pub(super) const fn shift(level: u8) -> u32 {
    PAGE_SHIFT + 9 * level as u32
}

/// Returns the index of an address in the tables of a level.
#[inline]
pub(super) const fn index(address: usize, level: u8) -> usize {
    address >> shift(level) & (ENTRIES - 1)
}
