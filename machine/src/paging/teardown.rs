//! Deferred free of page tables that no process uses any more.
//!
//! A large space holds many thousands of frames, and freeing each of them is most of the cost of a
//! process's end. So [`defer`] puts its tables, which no processor can reach any more, on a list of
//! deferred frees. An idle processor calls [`free_one`] repeatedly; each call frees one lowest
//! table (512 pages) or one large page. Only tables wait, which hold nothing but references to
//! frames: the holdings of regions (files, their address ranges) are released at once.
//!
//! A deferred free never causes a shortage. The allocator frees from the list before it refuses a
//! frame, takes one of the kernel's reserve, or fails to find contiguous frames (`frames`). A
//! caller that counts frames has everything freed first ([`free_all`]). The list holds at most an
//! eighth of memory, and grows only while more than a quarter is free. So a system that never idles
//! needs nothing else to empty it: when the bound is reached, an ending process frees at once, and
//! an allocation frees what it needs. A timer tick would take the same time from a thread that
//! needs no memory.
//!
//! Invariants:
//! * a table on the list belongs to the list alone. A table that other spaces refer to as well is
//!   released, by one count, before the rest is put there. So the other spaces own it alone as soon
//!   as the process has ended, and do not copy it without need;
//! * the same holds for tables whose pages other spaces have: those spaces would copy each page on
//!   write;
//! * the tables of the list do not need their reference count (it was 1), so it holds the list's
//!   link; the frames of large pages need theirs (a device may be writing to one), so another field
//!   links those;
//! * `deferred::PENDING` is the number of pages and tables on the list and of those that a
//!   processor is freeing at this moment. It is never less than what will be free (a group of eight
//!   entries counts as full).
//!
//! Lock order: the list's lock is a leaf, held for a few instructions; all other work is done on
//! tables that were taken off the list. So [`free_one`] may be called with any locks held but the
//! frame allocator's.
//!
//! Roads not taken: a list for each processor, which makes every [`free_one`] look through all
//! lists (only a process that ends with hundreds of pages uses the list); a kernel thread, which
//! would have to be scheduled against programs.

use super::entry::{PageKind, TableEntry};
use super::large;
use super::share;
use super::table::{ENTRIES, Table};
use super::usage::Usage;
use crate::frames::{self, deferred, owner};
use crate::sync::{SpinLock, relax};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

/// A table with fewer pages is freed at once: that takes hardly longer than the list.
const WORTH: usize = 512;
/// A kept space counts as large if it has at least so many private pages, and no fewer private
/// pages than pages of files. Pages of files mostly stay mapped, and the saving must exceed the
/// cost of counting them again.
pub(super) const LARGE: u64 = 4 * WORTH as u64;
/// Levels of tables.
const LEVELS: usize = 4;

/// An item whose free is deferred.
enum DeferredItem {
    /// A table with everything below it, and its level.
    Table(Table, u8),
    /// A large page, by its first frame.
    Large(u32),
}

/// The first item of each list; 0: none.
struct List {
    /// The tables of each level, linked by their reference counts.
    tables: [u32; LEVELS],
    /// Large pages, linked by the data of the infos of their first frames, which nothing else uses.
    large: u32,
}

static LIST: SpinLock<List> = SpinLock::new(List { tables: [0; LEVELS], large: 0 });
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// Sets whether frees may be deferred. Items on the list stay there: see [`free_all`].
pub fn allow(allowed: bool) {
    ALLOWED.store(allowed, Relaxed);
}

/// Returns an upper bound of the number of frames whose free is deferred.
#[inline]
pub fn pending() -> usize {
    deferred::pending()
}

/// Whether a space is large enough to try [`defer`].
#[inline]
pub(super) fn is_worth(usage: &Usage) -> bool {
    usage.mapped() >= WORTH as u64
}

/// Gives up everything below a table (of `level`): the parts that other spaces share at once, the
/// rest by way of the list, as far as the list may grow. False: the list does not take it, and the
/// caller frees what is left.
///
/// # Safety
/// No processor can reach the table any more; the caller passes the only reference.
#[cold]
pub(super) unsafe fn defer(table: Table, level: u8) -> bool {
    if !may_defer() {
        return false;
    }
    // SAFETY: the caller's promise.
    let mut size = unsafe { survey(table, level) };
    while size >= WORTH {
        if reserve(size) {
            put(DeferredItem::Table(table, level));
            return true;
        }
        // Pages beyond the bound are freed at once.
        // SAFETY: the caller's promise.
        let (freed, rest) = unsafe { step(table, level) };
        if !rest {
            return true;
        }
        size = size.saturating_sub(freed);
    }
    false
}

/// Gives up an entry's reference to a table of `level`, now or later. Usage counts are not changed.
///
/// # Safety
/// The entry that held the reference must be gone, from the TLBs as well.
pub(super) unsafe fn release(number: u32, level: u8) {
    let table = Table(number);
    let is_shared = table.references() > 1 || level == 0 && is_copy(table);
    // SAFETY: the caller's promise; nothing else refers to the table.
    if is_shared || !unsafe { defer(table, level) } {
        // SAFETY: the caller's promise.
        unsafe { share::release_table(number, level, None) };
    }
}

/// Gives up an entry's part in a large page, now or later.
///
/// # Safety
/// The entry must be gone, from the TLBs as well.
pub(super) unsafe fn release_large(first: u32) {
    if large::entries(first) == 1 && may_defer() && reserve(ENTRIES) {
        put(DeferredItem::Large(first));
    } else {
        // SAFETY: the caller's promise.
        unsafe { large::release(first) };
    }
}

/// Frees one lowest table or one large page of the list. False: the list is empty, or other
/// processors are freeing the last item.
#[inline]
pub fn free_one() -> bool {
    pending() != 0 && free_some().is_some()
}

/// Like [`free_one`], for a caller that lacks frames: waits for other processors that are freeing
/// the last item. False: there was nothing to free.
#[inline]
pub fn free_now() -> bool {
    deferred::free_now()
}

/// Frees everything that is on the list by now. It takes at most as long as the immediate free of a
/// process with an eighth of memory would have taken; between the steps it calls `between`, which
/// may let other threads run.
pub fn free_all(mut between: impl FnMut()) {
    let mut left = pending();
    while left != 0 && pending() != 0 {
        // Items that are added meanwhile are not waited for.
        left = left.saturating_sub(free_some().unwrap_or(0));
        relax();
        between();
    }
}

fn may_defer() -> bool {
    ALLOWED.load(Relaxed) && frames::is_plentiful()
}

/// Adds to the count of deferred frees, if that stays below its bound.
fn reserve(size: usize) -> bool {
    deferred::PENDING.reserve(size, frames::total() / 8)
}

fn put(what: DeferredItem) {
    let mut list = LIST.lock();
    match what {
        DeferredItem::Table(table, level) => {
            let Some(first) = list.tables.get_mut(usize::from(level)) else { return };
            table.info().set_refs(core::mem::replace(first, table.0));
        }
        DeferredItem::Large(number) => {
            let next = core::mem::replace(&mut list.large, number);
            large::info_of(number).data.store(u64::from(next), Relaxed);
        }
    }
}

fn take() -> Option<DeferredItem> {
    let mut list = LIST.lock();
    if list.large != 0 {
        let number = list.large;
        list.large = large::info_of(number).data.load(Relaxed) as u32;
        return Some(DeferredItem::Large(number));
    }
    let (level, first) = list.tables.iter_mut().enumerate().find(|(_, first)| **first != 0)?;
    let table = Table(*first);
    *first = table.info().refs();
    // The tag of a table is its owner, and nothing else.
    table.info().charge_to(table.info().tag());
    Some(DeferredItem::Table(table, level as u8))
}

/// Does one step; returns how many frames it freed. `None`: the list is empty.
#[cold]
pub(super) fn free_some() -> Option<usize> {
    let freed = match take()? {
        // SAFETY: nothing else can reach what was on the list.
        DeferredItem::Large(first) => unsafe {
            large::release(first);
            ENTRIES
        },
        DeferredItem::Table(table, level) => {
            // SAFETY: as above.
            let (freed, rest) = unsafe { step(table, level) };
            if rest {
                put(DeferredItem::Table(table, level));
            }
            freed
        }
    };
    deferred::PENDING.freed(freed);
    Some(freed)
}

/// Does one step at a table: returns how much it freed, and whether the table still exists.
///
/// # Safety
/// Nothing else can reach the table, nor what is below it.
unsafe fn step(table: Table, level: u8) -> (usize, bool) {
    if level == 0 {
        let freed = size_of_lowest(table);
        // SAFETY: the caller's promise.
        unsafe { share::release_table(table.0, 0, None) };
        return (freed, false);
    }
    let Some((at, entry)) = table.first() else {
        owner::gone(table.info());
        table.give_back();
        return (1, false);
    };
    let (freed, rest) = if entry.has(TableEntry::LARGE) {
        // SAFETY: the caller's promise; `survey` left only entries that hold a part in a large
        // page.
        unsafe { large::release(entry.number()) };
        (ENTRIES, false)
    } else {
        // SAFETY: the caller's promise.
        unsafe { step(Table(entry.number()), level - 1) }
    };
    if !rest {
        table.clear(at);
        table.settle(at, at);
    }
    (freed, true)
}

/// Returns what a lowest table adds to `deferred::PENDING`.
fn size_of_lowest(table: Table) -> usize {
    table.groups().count_ones() as usize * 8 + 1
}

/// Gives up, below a table, entries that other spaces refer to as well and those that hold no
/// reference. Returns how much is left, the table included.
///
/// # Safety
/// As for [`defer`].
unsafe fn survey(table: Table, level: u8) -> usize {
    if level == 0 {
        return size_of_lowest(table);
    }
    let mut size = 1;
    table.retain(|entry| {
        let number = entry.number();
        if entry.has(TableEntry::LARGE) {
            if entry.is_counted() && large::entries(number) == 1 {
                size += ENTRIES;
                return true;
            }
            if entry.is_counted() {
                // SAFETY: the entry's part; nothing can reach the entry any more, and it is
                // removed.
                unsafe { large::release(number) };
            }
        } else if Table(number).references() > 1 || level == 1 && is_copy(Table(number)) {
            // SAFETY: the entry's reference; nothing can reach the entry any more, and it is
            // removed.
            unsafe { share::release_table(number, level - 1, None) };
        } else {
            // SAFETY: the caller's promise; nothing else refers to the table.
            size += unsafe { survey(Table(number), level - 1) };
            return true;
        }
        false
    });
    size
}

/// Whether a lowest table came from a fork and another space has its pages as well. Its first page
/// decides.
fn is_copy(table: Table) -> bool {
    table
        .first()
        .is_some_and(|(_, entry)| entry.kind() == PageKind::Private && entry.info().refs() > 1)
}
