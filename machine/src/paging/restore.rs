//! Bringing the pages of a kept space back to what they were when its program began.
//!
//! Whether a page was written to since it was last restored, the processor tells by the entry's
//! dirty bit: [`Edit::restore`] clears it, and everything else in this module leaves it set or
//! sets it. So a page that nobody wrote to costs a look, and one that was written costs a copy.
//!
//! The bit only counts if no processor remembers the entry as dirty, which would write without
//! setting it again. A kept space is loaded nowhere; if a processor that idles still has it, its
//! memory of the whole half is flushed when the [`Edit`] is.

use super::entry::{Access, Entry, Kind};
use super::table::{ENTRIES, Table, shift};
use super::{Edit, OutOfMemory};
use crate::frames::Frame;
use crate::layout::USER_END;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;

/// What becomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays, with this access, and counts as not written to from now on.
    Keep(Access),
    /// It goes.
    Drop,
}

/// A page of 4 KiB that is about to be restored.
pub struct Found {
    /// Where it is.
    pub address: usize,
    /// What kind of page it is.
    pub kind: Kind,
    /// Whether it may have been written to since it was last restored.
    pub written: bool,
    /// Its content. The reference is the entry's.
    frame: ManuallyDrop<Frame>,
}

impl Found {
    /// Its frame.
    #[inline]
    pub fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl Edit<'_> {
    /// Has `decide` look at every page in `range`; it may change the content of those that are the
    /// space's own ([`Kind::Private`], and nobody else has the frame). Large pages go.
    ///
    /// # Errors
    /// There is no memory to split a table that another space shares; some pages are restored then,
    /// and others are not.
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
                let found = Found {
                    address: start,
                    kind: entry.kind(),
                    written: entry.has(Entry::DIRTY),
                    // SAFETY: the entry's own reference, not given up; the page of zeroes is for
                    // ever. The table is locked, so the entry stays meanwhile.
                    frame: ManuallyDrop::new(unsafe { Frame::from_number(entry.number()) }),
                };
                match decide(&found) {
                    Fate::Keep(mut access) => {
                        // Content of a file and the page of zeroes are never written in place.
                        access.write &= found.kind == Kind::Private;
                        let then = entry.with(access).unwritten();
                        if then != entry {
                            table.store(at, then);
                        }
                    }
                    Fate::Drop => {
                        table.clear(at);
                        self.gather.displace(entry, start, false);
                        emptied = true;
                    }
                }
                return;
            }
            let size = 1usize << shift(level);
            let whole = range.start <= start && start + size <= range.end;
            if level == 1 && entry.has(Entry::LARGE) && whole {
                table.clear(at);
                self.gather.displace(entry, start, true);
                emptied = true;
                return;
            }
            let address = start.max(range.start);
            let below = if level == 1 && entry.has(Entry::LARGE) {
                self.gather.split(table, at, address)
            } else if entry.has(Entry::SHARED_TABLE) {
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
}
