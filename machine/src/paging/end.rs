//! The end of a program: the rest of its space is given up, partly later ([`super::teardown`]).

use super::edit::Edit;
use super::entry::{PageKind, TableEntry};
use super::table::{ENTRIES, Table};
use super::teardown::LARGE;
use super::usage::Usage;
use crate::layout::USER_END;
use core::sync::atomic::Ordering::Relaxed;

impl Edit<'_> {
    /// Unmaps everything, for a space that is not used any more. Tables that other spaces share are
    /// released without being walked, so the time depends on the pages that only this space has;
    /// those of a large space are freed later.
    pub fn clear(&mut self) {
        let root = self.root;
        let mut any = false;
        root.occupied(0, ENTRIES / 2 - 1, |at, entry| {
            root.clear(at);
            // The counts are not lowered for it: all of them are cleared below.
            self.gather.give_original(entry.number(), 2);
            any = true;
        });
        if any {
            root.settle(0, ENTRIES / 2 - 1);
            self.gather.stale(0, USER_END);
            self.begin_end();
            self.gather.flush();
        }
        // The program may have begun to end before, without reaching the recount.
        self.gather.usage.ends.store(false, Relaxed);
        self.gather.usage.clear();
    }

    /// Marks that the program has ended and that the space is about to be unmapped except for the
    /// part that is kept. From now on whole tables may be freed later, if the space is large.
    /// Returns whether it is; if so, [`recount`](Self::recount) must be called at the end.
    #[inline]
    pub fn begin_end(&mut self) -> bool {
        let [private, files] =
            [PageKind::Private, PageKind::File].map(|kind| self.gather.usage.count(kind));
        let is_large = private >= LARGE.max(files);
        if is_large {
            self.gather.usage.ends.store(true, Relaxed);
        }
        is_large
    }

    /// Gives up what waits, and counts what is left: that is quicker than subtracting what went,
    /// page by page.
    #[cold]
    pub fn recount(&mut self) {
        self.gather.flush();
        self.gather.usage.ends.store(false, Relaxed);
        self.gather.usage.clear();
        count(self.root, 3, ENTRIES / 2, self.gather.usage);
    }
}

/// Counts the first entries of a table of `level`, and everything below them.
fn count(table: Table, level: u8, entries: usize, usage: &Usage) {
    let mut pages = [0; 4];
    table.occupied(0, entries - 1, |_, entry| {
        if level == 0 {
            pages[entry.kind() as usize] += 1;
        } else if entry.has(TableEntry::LARGE) {
            pages[entry.kind() as usize] += ENTRIES as u64;
        } else {
            usage.add_tables(1);
            count(Table(entry.number()), level - 1, ENTRIES, usage);
        }
    });
    for kind in [PageKind::Private, PageKind::File, PageKind::Shared, PageKind::Zero] {
        usage.add(kind, pages[kind as usize]);
    }
}
