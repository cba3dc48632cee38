//! Makes what lies below an entry this space's own: tables that other spaces share, small pages of
//! a large one.

use super::entry::TableEntry;
use super::gather::Gather;
use super::large::{FRAMES, break_up};
use super::share::copy_table;
use super::table::{Table, shift};
use crate::layout::{PAGE_SHIFT, PAGE_SIZE};

impl Gather<'_> {
    /// Makes the table below entry `at` of `parent` (a table of `level`) this space's own, by
    /// taking it back or copying it; `address` is an address below the entry. `None`: memory is
    /// exhausted.
    #[cold]
    pub(super) fn own(
        &mut self,
        parent: Table,
        at: usize,
        level: u8,
        address: usize,
    ) -> Option<Table> {
        let entry = parent.load(at);
        let table = Table(entry.number());
        if table.references() == 1 {
            parent.store(at, entry.with_table(table.0));
            return Some(table);
        }
        let copy = Table::allocate_for(self.usage)?;
        copy_table(table, copy, level - 1);
        parent.store(at, entry.with_table(copy.0));
        // The pages are where they were, with the rights that they had. But a processor may have
        // cached the old table itself, which its other owners may change. Flushing one page drops
        // that cache too (SDM vol. 3, 4.10.4.1: INVLPG drops all paging-structure caches of the
        // address space).
        let page = address & !(PAGE_SIZE - 1);
        self.stale(page, page + PAGE_SIZE);
        self.give_original(table.0, level - 1);
        Some(copy)
    }

    /// Breaks the large page at entry `at` of `parent` (a table of level 1, this space's own) into
    /// small ones.
    #[cold]
    pub(super) fn split(&mut self, parent: Table, at: usize, address: usize) -> Option<Table> {
        let large = parent.load(at);
        let table = Table::allocate_for(self.usage)?;
        self.usage.add_tables(1);
        if large.is_counted() {
            break_up(large.number());
        }
        let small = TableEntry(large.0 & !TableEntry::LARGE & !TableEntry::ADDRESS);
        for (index, number) in (large.number()..large.number() + FRAMES).enumerate() {
            table.fill(index, TableEntry(small.0 | u64::from(number) << PAGE_SHIFT));
        }
        parent.store(at, TableEntry(TableEntry::table(table.0).0 | TableEntry::BROKEN));
        let start = address & !((1 << shift(1)) - 1);
        self.stale(start, start + (1 << shift(1)));
        Some(table)
    }
}
