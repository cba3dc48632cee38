//! Restores the pages of a kept space to their state when its program began.
//!
//! The processor reports by an entry's dirty bit whether the page was written to since it was last
//! restored: [`Edit::restore`] clears the bit, and every other function in this module leaves it
//! set or sets it. So a page that was not written to costs one check, and a page that was written
//! to costs a copy.
//!
//! The bit is reliable only if no processor has the entry in its TLB as dirty, because it would
//! then write without setting the bit again. A kept space is loaded nowhere, except perhaps on an
//! idle processor; that processor's TLB entries for the whole half are flushed when the [`Edit`]
//! is.

use super::edit::Edit;
use super::entry::{Access, PageKind, TableEntry};
use super::table::{ENTRIES, OutOfMemory, Table, shift};
use crate::frames::Frame;
use crate::layout::USER_END;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;

/// The fate of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The page stays, with this access, and counts as not written to from now on.
    Keep(Access),
    /// The page is removed.
    Drop,
}

/// A page of 4 KiB that is about to be restored.
pub struct Found {
    /// The address of the page.
    pub address: usize,
    /// The kind of the page.
    pub kind: PageKind,
    /// Whether the page may have been written to since it was last restored.
    pub written: bool,
    /// The content of the page. The entry owns the reference.
    frame: ManuallyDrop<Frame>,
}

impl Found {
    /// Returns the page's frame.
    #[inline]
    pub fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl Edit<'_> {
    /// Calls `decide` for every page in `range`; `decide` may change the content of pages that
    /// belong to this space alone ([`PageKind::Private`], with no other reference to the frame).
    /// Large pages are removed.
    ///
    /// # Errors
    /// Memory to split a table that another space shares is exhausted; some pages are restored
    /// then, and others are not.
    pub fn restore(
        &mut self,
        range: Range<usize>,
        decide: &mut impl FnMut(&Found) -> Fate,
    ) -> Result<(), OutOfMemory> {
        if range.start >= range.end || range.end > USER_END {
            return Ok(());
        }
        if self.gather.usage.active.load(SeqCst) != 0 {
            self.gather.stale(0, USER_END);
        }
        self.restore_below(self.root, 3, 0, &range, decide)
    }

    fn restore_below(
        &mut self,
        table: Table,
        level: u8,
        base: usize,
        range: &Range<usize>,
        decide: &mut impl FnMut(&Found) -> Fate,
    ) -> Result<(), OutOfMemory> {
        let first = range.start.saturating_sub(base) >> shift(level);
        let last = ((range.end - 1 - base) >> shift(level)).min(ENTRIES - 1);
        let mut result = Ok(());
        let mut emptied = false;
        table.occupied(first, last, |at, entry| {
            if result.is_err() {
                return;
            }
            let start = base + (at << shift(level));
            if level == 0 {
                emptied |= self.restore_page(table, at, start, entry, decide);
                return;
            }
            let size = 1usize << shift(level);
            let whole = range.start <= start && start + size <= range.end;
            if level == 1 && entry.has(TableEntry::LARGE) && whole {
                table.clear(at);
                self.gather.displace(entry, start, true);
                emptied = true;
                return;
            }
            let address = start.max(range.start);
            let below = if level == 1 && entry.has(TableEntry::LARGE) {
                self.gather.split(table, at, address)
            } else if entry.has(TableEntry::SHARED_TABLE) {
                self.gather.own(table, at, level, address)
            } else {
                Some(Table(entry.number()))
            };
            result = match below {
                None => Err(OutOfMemory),
                Some(below) => self.restore_below(below, level - 1, start, range, decide),
            };
        });
        if emptied {
            table.settle(first, last);
        }
        result
    }

    /// Restores the page of an entry in a lowest table; says whether it was dropped.
    #[inline(always)]
    fn restore_page(
        &mut self,
        table: Table,
        at: usize,
        address: usize,
        entry: TableEntry,
        decide: &mut impl FnMut(&Found) -> Fate,
    ) -> bool {
        let found = Found {
            address,
            kind: entry.kind(),
            written: entry.has(TableEntry::DIRTY),
            // SAFETY: this is the entry's own reference, which is not given up here, or the zero
            // page, which is never freed. The table is locked, so the entry stays meanwhile.
            frame: ManuallyDrop::new(unsafe { Frame::from_number(entry.number()) }),
        };
        match decide(&found) {
            Fate::Keep(mut access) => {
                // The content of a file and the zero page are never written in place.
                access.write &= found.kind == PageKind::Private;
                let then = entry.with(access).unwritten();
                if then != entry {
                    table.store(at, then);
                }
                false
            }
            Fate::Drop => {
                table.clear(at);
                self.gather.displace(entry, address, false);
                true
            }
        }
    }
}
