//! Unmaps, protects and moves the pages of a range.

use super::edit::Edit;
use super::entry::{Access, PageKind, TableEntry};
use super::table::{ENTRIES, OutOfMemory, Table, index, shift};
use crate::layout::{PAGE_SIZE, USER_END};
use core::cell::Cell;
use core::ops::Range;

enum Change {
    Unmap,
    Protect(Access),
}

impl Edit<'_> {
    /// Makes the tables that `range` cuts through this space's own, and splits the large pages at
    /// its edges. After that, [`unmap`](Self::unmap) of the range allocates no memory.
    pub fn prepare(&mut self, range: Range<usize>) -> Result<(), OutOfMemory> {
        for edge in [range.start, range.end] {
            let mut table = self.root;
            let mut level = 3;
            // An edge that is also the edge of an entry cuts through nothing below that entry.
            while level > 0 && edge < USER_END && edge & ((1 << shift(level)) - 1) != 0 {
                let at = index(edge, level);
                let entry = table.load(at);
                table = if entry.is_none() {
                    break;
                } else if level == 1 && entry.has(TableEntry::LARGE) {
                    self.gather.split(table, at, edge).ok_or(OutOfMemory)?
                } else if entry.has(TableEntry::SHARED_TABLE) {
                    self.gather.own(table, at, level, edge).ok_or(OutOfMemory)?
                } else {
                    Table(entry.number())
                };
                level -= 1;
            }
        }
        Ok(())
    }

    /// Unmaps everything in `range` (page-aligned). On `Err` nothing is unmapped: memory for
    /// splitting a table or large page was exhausted.
    pub fn unmap(&mut self, range: Range<usize>) -> Result<(), OutOfMemory> {
        if range.start >= range.end || range.end > USER_END {
            return Ok(());
        }
        self.prepare(range.clone())?;
        self.change(self.root, 3, 0, &range, &mut Change::Unmap)
    }

    /// Takes away the rights beyond `most` from all pages in `range`; pages get new rights at their
    /// next fault. Taking `read` away keeps the pages in place, unreachable; giving it back makes
    /// them reachable again, but not writable.
    pub fn protect(&mut self, range: Range<usize>, most: Access) -> Result<(), OutOfMemory> {
        if range.start >= range.end || range.end > USER_END {
            return Ok(());
        }
        self.change(self.root, 3, 0, &range, &mut Change::Protect(most))
    }

    fn change(
        &mut self,
        table: Table,
        level: u8,
        base: usize,
        range: &Range<usize>,
        change: &mut Change,
    ) -> Result<(), OutOfMemory> {
        let size = 1usize << shift(level);
        let first = range.start.saturating_sub(base) >> shift(level);
        let last = ((range.end - 1 - base) >> shift(level)).min(ENTRIES - 1);
        if level == 0 && matches!(change, Change::Unmap) {
            self.unmap_row(table, first, last, base);
            return Ok(());
        }
        let mut result = Ok(());
        table.occupied(first, last, |at, entry| {
            if result.is_err() {
                return;
            }
            let start = base + at * size;
            let whole = range.start <= start && start + size <= range.end;
            if level == 0 || (whole && entry.has(TableEntry::LARGE) && level == 1) {
                match change {
                    Change::Unmap => {
                        table.clear(at);
                        self.gather.displace(entry, start, level == 1);
                    }
                    Change::Protect(most) => self.limit(table, at, entry, start, size, most),
                }
                return;
            }
            if whole && matches!(change, Change::Unmap) {
                table.clear(at);
                self.gather.stale(start, start + size);
                self.gather.give_table(entry.number(), level - 1);
                return;
            }
            let address = start.max(range.start);
            let below = if entry.has(TableEntry::LARGE) && level == 1 {
                self.gather.split(table, at, address)
            } else if entry.has(TableEntry::SHARED_TABLE) {
                self.gather.own(table, at, level, address)
            } else {
                Some(Table(entry.number()))
            };
            result = match below {
                None => Err(OutOfMemory),
                Some(below) => self.change(below, level - 1, start, range, change),
            };
        });
        if matches!(change, Change::Unmap) {
            table.settle(first, last);
        }
        result
    }

    /// Limits the rights of the page of `size` bytes at `start` to `most`.
    #[inline(always)]
    fn limit(
        &mut self,
        table: Table,
        at: usize,
        entry: TableEntry,
        start: usize,
        size: usize,
        most: &Access,
    ) {
        let now = entry.access();
        let then = Access {
            read: most.read,
            write: now.write && most.write && most.read,
            execute: most.execute,
        };
        if now == then {
            return;
        }
        table.store(at, entry.with(then));
        // Rights that only grow need no flush: a stale entry faults, and the fault drops it.
        if (now.read && !then.read) || (now.write && !then.write) || (now.execute && !then.execute)
        {
            self.gather.stale(start, start + size);
        }
    }

    /// Unmaps the pages of a lowest table between two indexes (inclusive); `base` is the address of
    /// the table's first page. A text in place has hundreds of entries that hold no reference: they
    /// are subtracted from the counts together.
    fn unmap_row(&mut self, table: Table, first: usize, last: usize, base: usize) {
        let (in_place, low, high) = (Cell::new(0), Cell::new(usize::MAX), Cell::new(0));
        let count = |at: usize, pages: usize| {
            in_place.set(in_place.get() + pages);
            low.set(low.get().min(at));
            high.set(at + pages);
        };
        let other = |at: usize, entry: TableEntry| {
            if entry.has(TableEntry::UNCOUNTED) {
                count(at, 1);
            } else {
                self.gather.displace(entry, base + at * PAGE_SIZE, false);
            }
        };
        table.take(first, last, other, |at| count(at, 8));
        if in_place.get() != 0 {
            self.gather.usage.remove(PageKind::File, in_place.get() as u64);
            self.gather.stale(base + low.get() * PAGE_SIZE, base + high.get() * PAGE_SIZE);
        }
    }

    /// Moves the pages in `range` to `to` (`mremap(2)`), where nothing is mapped. On `Err` nothing
    /// has moved.
    pub fn move_pages(&mut self, range: Range<usize>, to: usize) -> Result<(), OutOfMemory> {
        // First do everything that allocates memory: own tables and small pages on both sides.
        let mut from = self.next_page(range.start, range.end);
        while from < range.end {
            self.split(from)?;
            let target = to + (from - range.start);
            self.slot(target).ok_or(OutOfMemory)?;
            from = self.next_page(from + PAGE_SIZE, range.end);
        }
        let mut from = self.next_page(range.start, range.end);
        while from < range.end {
            let target = self.slot(to + (from - range.start)).ok_or(OutOfMemory)?;
            let is_free = target.page().is_none() && !target.is_large();
            if is_free && let Some(entry) = self.slot(from).ok_or(OutOfMemory)?.take() {
                // This slot was walked to just now, and no table was removed meanwhile.
                self.slot(to + (from - range.start)).ok_or(OutOfMemory)?.put(entry);
            }
            from = self.next_page(from + PAGE_SIZE, range.end);
        }
        Ok(())
    }
}
