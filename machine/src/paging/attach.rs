//! Texts in place: maps non-volatile memory without counting references and without faults.
//!
//! [`Edit::attach`] enters a run of consecutive frames at once: a large page where both addresses
//! allow it; a table that is built once and shared by all spaces ([`Prebuilt`]) where a run covers
//! everything that a table maps but the addresses do not allow a large page; and single entries at
//! the edges. The cost is one entry for 2 MiB, and two or three instructions for each page of an
//! edge; a fault would cost hundreds.
//!
//! The entries are read-only pages of kind [`PageKind::File`] that hold no reference
//! ([`TableEntry::UNCOUNTED`]): the frames' own reference is never given up ([`crate::nvm`]). So at
//! a fork a large page of a text costs as little to copy as a small page. Copy-on-write works as
//! for any page of a file; a large page is split for it.
//!
//! The caller that attaches a text must ensure that the text does not change while regions refer to
//! it. When a region is removed, its entries are removed with it.

use super::edit::Edit;
use super::entry::{Access, PageKind, TableEntry};
use super::share;
use super::table::{ENTRIES, OutOfMemory, Table, index, shift};
use crate::layout::{LARGE_PAGE_SIZE, PAGE_SHIFT, PAGE_SIZE, USER_END};
use crate::nvm::Extent;
use alloc::sync::Arc;

fn entry(frame: u32, access: Access) -> TableEntry {
    let page = TableEntry::page(frame, PageKind::File, Access { write: false, ..access });
    TableEntry(page.0 | TableEntry::UNCOUNTED)
}

/// A table over 512 consecutive pages of a text, built once and shared by any number of spaces.
#[derive(Debug)]
pub struct Prebuilt {
    table: u32,
}

impl Prebuilt {
    /// Builds the table for the first 512 pages of `text`. `None`: `text` has fewer pages, or
    /// memory is exhausted.
    pub fn new(text: &Extent, access: Access) -> Option<Prebuilt> {
        if (text.count() as usize) < ENTRIES {
            return None;
        }
        let table = Table::allocate()?;
        table.fill_row(0, ENTRIES, entry(text.first(), access));
        Some(Prebuilt { table: table.0 })
    }
}

impl Drop for Prebuilt {
    fn drop(&mut self) {
        // SAFETY: `self` holds this reference; it is in no table, and the entries of tables hold
        // their own references.
        unsafe { share::release_table(self.table, 0, None) };
    }
}

impl Edit<'_> {
    /// Enters the pages of `text` from `address` on where nothing is mapped; existing mappings
    /// stay. `prebuilt` returns the shared table for the 512 pages from an index on, if that table
    /// exists; otherwise the pages are entered one by one.
    pub fn attach(
        &mut self,
        address: usize,
        text: &Extent,
        access: Access,
        mut prebuilt: impl FnMut(u32) -> Option<Arc<Prebuilt>>,
    ) -> Result<(), OutOfMemory> {
        let (mut at, end) = (address, address + text.count() as usize * PAGE_SIZE);
        if end > USER_END {
            return Ok(());
        }
        while at < end {
            let next = ((at | (LARGE_PAGE_SIZE - 1)) + 1).min(end);
            let page = ((at - address) / PAGE_SIZE) as u32;
            let frame = text.first() + page;
            if next - at == LARGE_PAGE_SIZE {
                self.attach_whole(at, frame, access, || prebuilt(page))?;
            } else {
                self.attach_part(at..next, frame, access)?;
            }
            at = next;
        }
        Ok(())
    }

    /// Maps everything that one entry of the second level covers.
    fn attach_whole(
        &mut self,
        at: usize,
        frame: u32,
        access: Access,
        prebuilt: impl FnOnce() -> Option<Arc<Prebuilt>>,
    ) -> Result<(), OutOfMemory> {
        let aligned = (frame as usize).is_multiple_of(ENTRIES);
        let shared = if aligned { None } else { prebuilt() };
        if (aligned || shared.is_some())
            && let Some(slot) = self.large_slot(at)
        {
            let (table, place) = (slot.table(), index(at, 1));
            match shared {
                None => table.fill(place, TableEntry(entry(frame, access).0 | TableEntry::LARGE)),
                Some(shared) => {
                    Table(shared.table).info().add_ref();
                    let way = TableEntry::table(shared.table).0 & !TableEntry::WRITE;
                    table.fill(place, TableEntry(way | TableEntry::SHARED_TABLE));
                    self.gather.usage.add_tables(1);
                }
            }
            self.gather.usage.add(PageKind::File, ENTRIES as u64);
            return Ok(());
        }
        self.attach_part(at..at + LARGE_PAGE_SIZE, frame, access)
    }

    /// Enters single entries in one table.
    fn attach_part(
        &mut self,
        range: core::ops::Range<usize>,
        frame: u32,
        access: Access,
    ) -> Result<(), OutOfMemory> {
        let slot = self.slot(range.start).ok_or(OutOfMemory)?;
        if slot.is_large() {
            return Ok(());
        }
        let table = slot.table();
        let (first, pages) = (index(range.start, 0), (range.end - range.start) / PAGE_SIZE);
        let mut others = false;
        table.occupied(first, first + pages - 1, |_, _| others = true);
        if !others {
            table.fill_row(first, pages, entry(frame, access));
            self.gather.usage.add(PageKind::File, pages as u64);
            return Ok(());
        }
        for (at, frame) in (first..first + pages).zip(frame..) {
            if table.load(at).is_none() {
                table.fill(at, entry(frame, access));
                self.gather.usage.add(PageKind::File, 1);
            }
        }
        Ok(())
    }
}

const _: () = assert!(1 << shift(1) == LARGE_PAGE_SIZE && 1 << PAGE_SHIFT == PAGE_SIZE);
