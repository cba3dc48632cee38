//! Changes of a locked page table: the walk to a slot, and questions about what is mapped.

use super::entry::TableEntry;
use super::gather::Gather;
use super::page::Page;
use super::slot::Slot;
use super::table::{ENTRIES, OutOfMemory, Table, index, shift};
use crate::frames::Frame;
use crate::layout::{LARGE_PAGE_SIZE, USER_END};
use core::ops::Range;

/// Changes a locked page table. When it is dropped, it flushes the TLBs of processors that may hold
/// old entries, and then gives up what was taken out.
pub struct Edit<'a> {
    pub(super) root: Table,
    pub(super) gather: Gather<'a>,
}

impl<'a> Edit<'a> {
    /// Returns the slot of the page at `address` (of the program's half), ready for a change:
    /// missing tables are allocated, shared tables become this space's own. `None`: memory is
    /// exhausted, or `address` is not in the program's half.
    #[inline]
    pub fn slot(&mut self, address: usize) -> Option<Slot<'_, 'a>> {
        if address >= USER_END {
            return None;
        }
        let mut table = self.root;
        let mut level = 3;
        while level > 0 {
            let at = index(address, level);
            let entry = table.load(at);
            const WAY: u64 = TableEntry::PRESENT | TableEntry::SHARED_TABLE | TableEntry::LARGE;
            if entry.0 & WAY == TableEntry::PRESENT {
                table = Table(entry.number());
            } else if entry.is_none() {
                let below = Table::allocate_for(self.gather.usage)?;
                self.gather.usage.add_tables(1);
                table.fill(at, self.table_entry(below, level));
                table = below;
            } else if level == 1 && entry.has(TableEntry::LARGE) {
                return Some(Slot::new(table, at, true, address, &mut self.gather));
            } else {
                table = self.gather.own(table, at, level, address)?;
            }
            level -= 1;
        }
        Some(Slot::new(table, index(address, 0), false, address, &mut self.gather))
    }

    /// Returns the slot for a large page at `address`, if nothing is mapped in its 2 MiB yet.
    /// `None` also when memory is exhausted.
    pub fn large_slot(&mut self, address: usize) -> Option<Slot<'_, 'a>> {
        if address >= USER_END {
            return None;
        }
        let mut table = self.root;
        for level in [3, 2] {
            let at = index(address, level);
            let entry = table.load(at);
            table = if entry.is_none() {
                let below = Table::allocate_for(self.gather.usage)?;
                self.gather.usage.add_tables(1);
                table.fill(at, self.table_entry(below, level));
                below
            } else if entry.has(TableEntry::SHARED_TABLE) {
                self.gather.own(table, at, level, address)?
            } else {
                Table(entry.number())
            };
        }
        let at = index(address, 1);
        let entry = table.load(at);
        if !entry.is_none() {
            // A table that earlier unmapping left empty makes way for the large page.
            let below = Table(entry.number());
            if entry.has(TableEntry::LARGE) || below.groups() != 0 {
                return None;
            }
            table.clear(at);
            let start = address & !(LARGE_PAGE_SIZE - 1);
            self.gather.stale(start, start + LARGE_PAGE_SIZE);
            self.gather.give_table(below.0, 0);
        }
        Some(Slot::new(table, at, true, address, &mut self.gather))
    }

    /// Breaks the large page around `address`, if any, into small pages.
    pub fn split(&mut self, address: usize) -> Result<(), OutOfMemory> {
        let slot = self.slot(address).ok_or(OutOfMemory)?;
        slot.split().map(|_| ())
    }

    /// Returns the entry for a table of the space's own in a table of `level`; in the root its user
    /// bit follows the mode.
    #[inline]
    pub(super) fn table_entry(&self, table: Table, level: u8) -> TableEntry {
        let entry = TableEntry::table(table.0);
        if level == 3 && self.gather.usage.is_supervisor() {
            TableEntry(entry.0 & !TableEntry::USER)
        } else {
            entry
        }
    }

    /// Returns whom the space's pages are charged to; 0: nobody ([`crate::frames::owner`]).
    #[inline]
    pub fn owner(&self) -> u32 {
        self.gather.usage.owner()
    }

    /// Flushes the TLB entries that the changes made stale, and gives up at once what was taken
    /// out. May be called with spin locks held.
    pub fn flush(&mut self) {
        self.gather.flush();
    }

    /// Returns the page at `address`, if one is mapped. Changes nothing.
    pub fn page(&self, address: usize) -> Option<Page> {
        let mut table = self.root;
        for level in (1..=3).rev() {
            let entry = table.load(index(address, level));
            if entry.is_none() {
                return None;
            }
            if entry.has(TableEntry::LARGE) {
                let mut page = Page::of(entry, true);
                page.frame += (address >> shift(0)) as u32 & (ENTRIES as u32 - 1);
                return Some(page);
            }
            table = Table(entry.number());
        }
        let entry = table.load(index(address, 0));
        (!entry.is_none()).then(|| Page::of(entry, false))
    }

    /// Returns a reference to the frame of the page at `address`, and the page.
    pub fn frame(&self, address: usize) -> Option<(Frame, Page)> {
        let page = self.page(address)?;
        // SAFETY: the entry holds a reference, or maps the zero page, which is never freed; the
        // table is locked.
        Some((unsafe { Frame::another(page.frame) }, page))
    }

    /// Calls `visit` with the address of every page mapped in `range`, in order. A large page is
    /// visited once, with the address at which it begins.
    pub fn visit(&self, range: Range<usize>, visit: &mut dyn FnMut(usize, Page)) {
        if range.start < range.end && range.end <= USER_END {
            visit_below(self.root, 3, 0, &range, visit);
        }
    }

    /// Whether a write to `address` would go through: the page is writable and no table on the way
    /// to it is shared.
    pub fn is_writable(&self, address: usize) -> bool {
        let mut table = self.root;
        for level in (0..=3).rev() {
            let entry = table.load(index(address, level));
            if !entry.has(TableEntry::PRESENT | TableEntry::WRITE) {
                return false;
            }
            if level == 0 || entry.has(TableEntry::LARGE) {
                return true;
            }
            table = Table(entry.number());
        }
        false
    }

    /// Sets the dirty bit for a write that the kernel makes to the page at `address` by another
    /// mapping, because the processor does not set it then. ([`is_writable`](Self::is_writable)
    /// holds for the page.)
    pub fn note_written(&self, address: usize) {
        let mut table = self.root;
        for level in (0..=3).rev() {
            let at = index(address, level);
            let entry = table.load(at);
            if level == 0 || entry.has(TableEntry::LARGE) || !entry.has(TableEntry::PRESENT) {
                if entry.has(TableEntry::PRESENT) && !entry.has(TableEntry::DIRTY) {
                    table.store(at, TableEntry(entry.0 | TableEntry::DIRTY));
                }
                return;
            }
            table = Table(entry.number());
        }
    }

    /// Returns the address of the first mapped page at or after `from`, or `end`.
    pub(super) fn next_page(&self, from: usize, end: usize) -> usize {
        let mut at = from;
        while at < end {
            let mut table = self.root;
            let mut level = 3;
            loop {
                let entry = table.load(index(at, level));
                if entry.is_none() {
                    at = (at | ((1 << shift(level)) - 1)).saturating_add(1);
                    break;
                }
                if level == 0 || entry.has(TableEntry::LARGE) {
                    return at;
                }
                table = Table(entry.number());
                level -= 1;
            }
        }
        end
    }
}

fn visit_below(
    table: Table,
    level: u8,
    base: usize,
    range: &Range<usize>,
    visit: &mut dyn FnMut(usize, Page),
) {
    let first = range.start.saturating_sub(base) >> shift(level);
    let last = ((range.end - 1 - base) >> shift(level)).min(ENTRIES - 1);
    table.occupied(first, last, |at, entry| {
        let start = base + (at << shift(level));
        if level == 0 {
            visit(start, Page::of(entry, false));
        } else if entry.has(TableEntry::LARGE) && level == 1 {
            visit(start, Page::of(entry, true));
        } else {
            visit_below(Table(entry.number()), level - 1, start, range, visit);
        }
    });
}
