//! Tables shared between spaces: constant-time fork, splitting, giving up.
//!
//! The reference count of a table's frame says how many entries lead to it. While it is more than
//! one, the table is immutable (but for the one change below), and every entry that leads to it is
//! read-only and carries [`TableEntry::SHARED_TABLE`]. A caller that wants to change anything below
//! such an entry calls [`Gather::own`](super::gather::Gather::own) first, which makes the table
//! this space's own:
//!
//! * if the other spaces have gone (count 1), by setting the entry writable again;
//! * otherwise by a copy, which adds a reference for each frame or table that the table leads to,
//!   and makes private pages and lower tables read-only *in both*: the last space that keeps the
//!   original must find them protected. That write to a table that other processors may be reading
//!   is harmless: the other entries that lead here are read-only already, and two processors that
//!   copy at once write the same values.
//!
//! The processor that made the copy drops its reference after that (Release), and an owner takes a
//! table back only after it has seen the count fall (Acquire).

use super::entry::{PageKind, TableEntry};
use super::large;
use super::run::Run;
use super::table::{ENTRIES, Table, index};
use super::usage::Usage;
use crate::frames::{Frame, Given, owner};
use crate::layout::USER_END;

/// Adds the references that a copy of `entry` in a table of `level` holds.
pub(super) fn count_up(entry: TableEntry, level: u8) {
    if level == 0 {
        if entry.is_counted() {
            entry.info().add_ref();
        }
    } else if entry.has(TableEntry::LARGE) {
        if entry.is_counted() {
            large::add(entry.number());
        }
    } else {
        entry.info().add_ref();
    }
}

/// Returns what an entry becomes when two tables hold it.
#[inline]
pub(super) fn protected(entry: TableEntry, level: u8) -> TableEntry {
    if level == 0 || entry.has(TableEntry::LARGE) {
        // Dirty is set for the reason that `TableEntry::with` gives.
        let dirty = entry.0 & !TableEntry::WRITE | TableEntry::DIRTY;
        if entry.kind() == PageKind::Private { TableEntry(dirty) } else { entry }
    } else {
        TableEntry(entry.0 & !TableEntry::WRITE | TableEntry::SHARED_TABLE)
    }
}

/// Copies all entries of `from` (a table of `level`) to the empty table `to`, protecting both.
pub(super) fn copy_table(from: Table, to: Table, level: u8) {
    if level == 0 {
        // The most frequent table: pages only.
        from.copy_to(to, |entry| {
            if entry.is_counted() {
                entry.info().add_ref();
            }
            protected(entry, 0)
        });
    } else {
        from.copy_to(to, |entry| {
            count_up(entry, level);
            protected(entry, level)
        });
    }
}

/// Subtracts what lies below a table from the counts, without changing the table.
fn discount(table: Table, level: u8, usage: &Usage) {
    table.occupied(0, ENTRIES - 1, |_, entry| {
        if level == 0 {
            usage.remove(entry.kind(), 1);
        } else if entry.has(TableEntry::LARGE) {
            usage.remove(entry.kind(), u64::from(large::FRAMES));
        } else {
            discount(Table(entry.number()), level - 1, usage);
        }
    });
    usage.add_tables(u64::MAX);
}

/// Gives up one entry's reference to a table of `level`, and with the last reference everything
/// below it. If `usage` is given, the entries that go are subtracted from its counts.
///
/// Most tables of a process that ends are shared, and need no more than what stands here.
///
/// # Safety
/// The entry that held the reference must be gone, from the TLBs as well.
#[inline]
pub(super) unsafe fn release_table(number: u32, level: u8, mut usage: Option<&Usage>) {
    let table = Table(number);
    if let Some(counts) = usage
        && table.references() > 1
    {
        // Other spaces hold the table, and do not change it meanwhile. If they give it up before
        // this one does, this one frees it after all, and nothing is left to subtract.
        discount(table, level, counts);
        usage = None;
    }
    let last = match table.info().give_up() {
        Given::Shared => false,
        Given::Last => true,
        Given::Charged => owner::release(table.info()),
    };
    if last {
        // SAFETY: the entry is gone, and the last reference has just been given up.
        unsafe { release_last(table, level, usage) };
    }
}

/// Gives up a table that nothing leads to any more, and everything below it.
///
/// # Safety
/// The caller has given up the last reference to it; no TLB has an entry that led to it.
#[inline(never)]
unsafe fn release_last(table: Table, level: u8, usage: Option<&Usage>) {
    // SAFETY: as the caller guarantees.
    unsafe {
        if level == 0 {
            release_pages(table, usage);
        } else {
            release_below(table, level - 1, usage);
        }
    }
    if let Some(usage) = usage {
        usage.add_tables(u64::MAX);
    }
    table.give_back();
}

/// Empties a table of pages, and gives up the references of its entries.
///
/// # Safety
/// As for [`release_last`].
#[inline]
unsafe fn release_pages(table: Table, usage: Option<&Usage>) {
    let mut run = Run::default();
    let mut in_place = 0;
    table.empty(|entry| {
        if entry.has(TableEntry::UNCOUNTED) {
            in_place += 1;
            return;
        }
        if let Some(usage) = usage {
            usage.remove(entry.kind(), 1);
        }
        if entry.kind() != PageKind::Zero {
            // SAFETY: the entry's own reference, and the entry is gone.
            run.give(unsafe { Frame::from_number(entry.number()) });
        }
    });
    if let Some(usage) = usage {
        usage.remove(PageKind::File, in_place);
    }
}

/// Empties a table that leads to tables of `level` or to large pages, and gives them up.
///
/// # Safety
/// As for [`release_last`].
#[inline]
unsafe fn release_below(table: Table, level: u8, usage: Option<&Usage>) {
    table.empty(|entry| {
        // SAFETY: the entry is gone, and had a reference to what it led to.
        unsafe {
            if entry.has(TableEntry::LARGE) {
                release_large(entry, usage);
            } else {
                release_table(entry.number(), level, usage);
            }
        }
    });
}

/// Gives up a large page. A function of its own, so that the loop above stays small.
///
/// # Safety
/// The entry must be gone, from the TLBs as well.
#[inline(never)]
unsafe fn release_large(entry: TableEntry, usage: Option<&Usage>) {
    if let Some(usage) = usage {
        usage.remove(entry.kind(), u64::from(large::FRAMES));
    }
    if entry.is_counted() {
        // SAFETY: the entry's own reference.
        unsafe { large::release(entry.number()) };
    }
}

/// Shares everything of the program's half between `from` and the empty root `to`, in as many steps
/// as the root has entries. The whole half of `from` is stale afterwards.
///
/// # Panics
/// If `to` has an entry in that half.
pub(super) fn share_root(from: Table, to: Table) {
    const HALF: u64 = u64::MAX >> 32;
    assert!(to.groups() & HALF == 0, "the table of a child is not empty");
    const LEVEL: u8 = 3;
    from.occupied(0, ENTRIES / 2 - 1, |at, entry| {
        let entry_now = protected(entry, LEVEL);
        count_up(entry_now, LEVEL);
        if entry_now != entry {
            from.store(at, entry_now);
        }
        to.fill(at, entry_now);
    });
    debug_assert!(index(USER_END, LEVEL) < ENTRIES / 2);
}
