//! A state to which spaces return: what was mapped at one moment, kept, and never changed.
//!
//! [`Edit::freeze`] shares everything that is mapped with a [`Frozen`], as a fork does with a
//! child. Nothing runs in it and nothing is changed below it: a space that changes a table that it
//! shares gets a copy ([`share`]). So it is read without a lock, by any number of processors.
//!
//! [`Edit::return_to`] makes a space that began as a copy of that state such a copy again, when its
//! program has ended. It compares the two trees of tables, and passes over all that is the same in
//! both: a table that the space never changed, a page that it never wrote. What it finds otherwise:
//!
//! | here | in the frozen state | becomes |
//! |---|---|---|
//! | a private page of this space alone, written | a page | a copy of that page's content |
//! | the same | nothing, in a region without a file | zeroes |
//! | not written since the space returned last | | stays: it is as it was |
//! | nothing | a private page | that page, shared |
//! | a page of a file or the zero page | nothing | stays |
//! | a large page, a table that a child still shares | | what the frozen state has, shared |
//! | any other page | | that of the frozen state if that is private, else nothing |
//!
//! Pages of this space alone stay: the next program writes to them without a fault. Whether one was
//! written the processor's dirty bit tells, as in [`super::restore`], which says when it can be
//! trusted.

use super::edit::Edit;
use super::entry::{Access, PageKind, TableEntry};
use super::share::{self, count_up, protected};
use super::table::{ENTRIES, OutOfMemory, Table, shift};
use crate::frames::{copy_numbered, zero_numbered};
use crate::layout::{PAGE_SIZE, USER_END};
use core::sync::atomic::Ordering::SeqCst;

/// Everything that was mapped in a space at one moment. See the [module](self).
pub struct Frozen {
    /// A root that no processor ever loads: it has not the kernel's half.
    root: Table,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.root.empty(|entry| {
            // SAFETY: the entry is gone, and no processor ever had this root loaded.
            unsafe { share::release_table(entry.number(), 2, None) };
        });
        self.root.give_back();
    }
}

/// What is to be at an address where a space has a page and the frozen state another one or none.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The accesses that the program is allowed.
    pub access: Access,
    /// Whether an untouched page is all zeroes there, because the region has no file.
    pub is_zeroes: bool,
}

/// A return on its way.
struct Return<P> {
    /// Finds the place at an address; `None`: nothing is mapped there.
    place: P,
    /// The pages and tables that stay this space's own.
    own: usize,
    /// Whole tables came or went, so the counts are wrong.
    recount: bool,
}

impl Edit<'_> {
    /// Keeps everything that is mapped as it is now, as a fork would share it with a child: private
    /// pages become copy-on-write.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn freeze(&mut self) -> Result<Frozen, OutOfMemory> {
        let root = Table::allocate().ok_or(OutOfMemory)?;
        share::share_root(self.root, root);
        self.gather.stale(0, USER_END);
        Ok(Frozen { root })
    }

    /// Makes everything that is mapped, in a space that began as a copy of `frozen`, as it is
    /// there. `place` tells what is to be mapped at an address; it is asked where that matters, in
    /// order. Returns the number of frames that stay this space's own.
    pub fn return_to(
        &mut self,
        frozen: &Frozen,
        place: impl FnMut(usize) -> Option<Place>,
    ) -> usize {
        if self.gather.usage.active.load(SeqCst) != 0 {
            self.gather.stale(0, USER_END);
        }
        let mut back = Return { place, own: 0, recount: false };
        self.return_tables(self.root, Some(frozen.root), 3, 0, &mut back);
        if back.recount {
            self.recount();
        }
        back.own
    }

    /// Returns what lies below a table of `level`, 1 or more, which covers addresses from `base`.
    fn return_tables<P: FnMut(usize) -> Option<Place>>(
        &mut self,
        table: Table,
        then: Option<Table>,
        level: u8,
        base: usize,
        back: &mut Return<P>,
    ) {
        let mut emptied = false;
        table.beside(then, |at, now, then| {
            let start = base + (at << shift(level));
            if now.is_same_place(then) {
                table.store(at, protected(then, level));
                return;
            }
            let is_large = |entry: TableEntry| level == 1 && entry.has(TableEntry::LARGE);
            let own = match () {
                () if now.is_none() || is_large(now) => None,
                () if !now.has(TableEntry::SHARED_TABLE) => Some(Table(now.number())),
                // Shared with a child of the program that has ended too, or with one that lives.
                () if Table(now.number()).references() == 1 => {
                    self.gather.own(table, at, level, start)
                }
                () => None,
            };
            if let Some(own) = own {
                back.own += 1;
                if level == 1 {
                    self.return_pages(own, then, start, back);
                } else {
                    let then = (!then.is_none()).then(|| Table(then.number()));
                    self.return_tables(own, then, level - 1, start, back);
                }
                return;
            }
            if !now.is_none() {
                table.clear(at);
                back.recount = true;
                if is_large(now) {
                    self.gather.displace(now, start, true);
                } else {
                    self.gather.stale(start, start + (1 << shift(level)));
                    self.gather.give_table(now.number(), level - 1);
                }
            }
            emptied |= then.is_none();
            if !then.is_none() {
                count_up(then, level);
                table.fill(at, protected(then, level));
                back.recount = true;
            }
        });
        if emptied {
            table.settle(0, ENTRIES - 1);
        }
    }

    /// Returns the pages of a lowest table, which covers addresses from `base` on.
    fn return_pages<P: FnMut(usize) -> Option<Place>>(
        &mut self,
        table: Table,
        then: TableEntry,
        base: usize,
        back: &mut Return<P>,
    ) {
        let mut emptied = false;
        let mut visit = |at: usize, now: TableEntry, then| {
            if now.is_none() || now.has(TableEntry::DIRTY) {
                emptied |= self.return_page((table, at), base + at * PAGE_SIZE, now, then, back);
            } else {
                // As it was when the space returned last.
                back.own += usize::from(now.kind() == PageKind::Private);
            }
        };
        if then.has(TableEntry::LARGE) {
            // A large page that the program's writes broke up.
            for at in 0..ENTRIES {
                let (now, small) = (table.load(at), then.part(at));
                if now != small {
                    visit(at, now, small);
                }
            }
        } else {
            table.beside((!then.is_none()).then(|| Table(then.number())), visit);
        }
        if emptied {
            table.settle(0, ENTRIES - 1);
        }
    }

    /// Returns one page that the program may have changed. Returns whether its entry was cleared.
    fn return_page<P: FnMut(usize) -> Option<Place>>(
        &mut self,
        (table, at): (Table, usize),
        address: usize,
        now: TableEntry,
        then: TableEntry,
        back: &mut Return<P>,
    ) -> bool {
        if now.is_same_place(then) {
            table.store(at, protected(then, 0));
            return false;
        }
        let mut cleared = false;
        if !now.is_none() {
            if let Some(entry) = (back.place)(address).and_then(|place| kept(now, then, place)) {
                back.own += usize::from(now.kind() == PageKind::Private);
                table.store(at, entry);
                return false;
            }
            table.clear(at);
            self.gather.displace(now, address, false);
            cleared = true;
        }
        if !then.is_none() && then.kind() == PageKind::Private {
            count_up(then, 0);
            table.fill(at, protected(then, 0));
            self.gather.usage.add(PageKind::Private, 1);
        }
        cleared
    }
}

/// The entry of a page that stays, with its content restored; `None`: it does not stay. `then` is
/// what the frozen state has in its place.
#[inline(always)]
fn kept(now: TableEntry, then: TableEntry, place: Place) -> Option<TableEntry> {
    if now.kind() != PageKind::Private {
        // What the program read. Another content than the region's was unmapped before.
        let access = Access { write: false, ..place.access };
        return then.is_none().then(|| now.with(access).unwritten());
    }
    if now.info().refs() != 1 {
        return None;
    }
    match then.kind() {
        _ if then.is_none() && !place.is_zeroes => return None,
        _ if then.is_none() => zero_numbered(now.number()),
        PageKind::Zero => zero_numbered(now.number()),
        PageKind::Private | PageKind::File => copy_numbered(now.number(), then.number()),
        PageKind::Shared => return None,
    }
    let entry = now.with(place.access);
    // The kernel may write to a page that the program may not, and then the bit is not set again.
    Some(if place.access.write { entry.unwritten() } else { entry })
}
