//! Page tables that nobody uses any more, given back when there is time for it.
//!
//! A large space holds many thousands of frames, and giving each back is what the end of its process
//! costs. So [`owe`] puts its tables, which no processor can reach any more, on a list, the debt; who
//! has nothing else to do calls [`pay`] again and again, which gives back one lowest table (512 pages)
//! or one large page at a time. Only tables wait, which hold nothing but references to frames: what
//! the regions held (files, their rooms) is gone at once.
//!
//! Nobody ever lacks what is owed: the allocator pays before it refuses a frame, takes one of the
//! kernel's reserve, or lacks a row (`frames`), and who counts frames has all of it paid first
//! ([`settle`]). The debt of everybody is at most an eighth of memory, and grows only while more than a
//! quarter is free. So a system that never idles needs no other payer: those who end pay at once when
//! the bound is reached, and those who need frames for what they need. A timer's tick would take the
//! same time from somebody who needs nothing.
//!
//! Invariants:
//! * what is on the list belongs to it alone: tables that other spaces refer to as well are let go, a
//!   count each, before the rest is put there; so the others find them their own as soon as the process
//!   has ended, and do not copy what nobody else has;
//! * so are tables whose pages other spaces have: their owner would copy each page on write;
//! * the tables of the list have no use for their reference count (it was 1): it links them; the frames
//!   of large pages have one for theirs (a device may be writing to one), so others link those;
//! * `OWED` is what is on the list, and what somebody is paying off at this moment, in pages and
//!   tables, never less than what will be free (a group of eight entries counts as full).
//!
//! Lock order: the list's lock is a leaf, held for a few instructions; everything else happens to tables
//! that were taken off the list. So [`pay`] may be called with any locks but the frame allocator's.
//!
//! Roads not taken: a list for each processor, which makes everybody who pays look through all (only
//! who ends with hundreds of pages comes here); a thread of the kernel, which would have to be
//! scheduled against programs.

use super::entry::{Entry, Kind};
use super::large;
use super::share;
use super::table::{ENTRIES, Table};
use super::usage::Usage;
use super::{Edit, LOADED, PageTable, deactivate, kernel};
use crate::frames;
use crate::smp::{self, Flush};
use crate::sync::{SpinLock, relax};
use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use hayate_protocols::debt::Debt;

/// What holds fewer pages is given back at once: it takes hardly longer than the list.
const WORTH: usize = 512;
/// A space that is kept counts as large if it has so many private pages, and no fewer than of files: those
/// mostly stay, and to count them again must be worth it.
const LARGE: u64 = 4 * WORTH as u64;
/// Levels of tables.
const LEVELS: usize = 4;

/// What waits to be given back.
enum Waiting {
    /// A table with everything below it, and its level.
    Table(Table, u8),
    /// A large page, by its first frame.
    Large(u32),
}

/// The first of what waits; 0: none.
struct List {
    /// The tables of each level, linked by their reference counts.
    tables: [u32; LEVELS],
    /// Large pages, linked by the data of the infos of their first frames, which nothing else uses.
    large: u32,
}

static LIST: SpinLock<List> = SpinLock::new(List { tables: [0; LEVELS], large: 0 });
static OWED: Debt = Debt::new();
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// Whether tables may wait at all. What waits already goes on doing so: see [`settle`].
pub fn allow(allowed: bool) {
    ALLOWED.store(allowed, Relaxed);
}

/// How many frames wait to be given back, at most.
#[inline]
pub fn owed() -> usize {
    OWED.owed()
}

/// Whether a space is so large that [`owe`] may be worth a try.
#[inline]
fn is_worth(usage: &Usage) -> bool {
    usage.mapped() >= WORTH as u64
}

/// Lets go of everything below a table (of `level`): what others share at once, the rest by way of the
/// list, as far as the debt may grow. False: it is not for the list, and the caller gives back what is
/// left.
///
/// # Safety
/// No processor can reach the table any more; the only reference comes with it.
#[cold]
unsafe fn owe(table: Table, level: u8) -> bool {
    if !may_owe() {
        return false;
    }
    // SAFETY: the caller's promise.
    let mut size = unsafe { survey(table, level) };
    while size >= WORTH {
        if reserve(size) {
            put(Waiting::Table(table, level));
            return true;
        }
        // What is beyond the bound is paid at once.
        // SAFETY: the caller's promise.
        let (paid, rest) = unsafe { step(table, level) };
        if !rest {
            return true;
        }
        size = size.saturating_sub(paid);
    }
    false
}

impl<T> Drop for PageTable<T> {
    fn drop(&mut self) {
        if LOADED.here().0.get() == Arc::as_ptr(&self.usage) {
            deactivate();
        }
        let others = self.usage.active.load(SeqCst);
        if others != 0 {
            smp::shootdown(others, Flush::Leave { root: self.root_address() });
        }
        kernel::remove_half(self.root);
        // SAFETY: no processor has the table loaded any more, and it is being dropped.
        if is_worth(&self.usage) && unsafe { owe(self.root, 3) } {
            return;
        }
        self.root.empty(|entry| {
            // SAFETY: no processor has the table loaded any more, and it is being dropped.
            unsafe { share::release_table(entry.number(), 2, None) };
        });
        self.root.give_back();
    }
}

/// Gives up an entry's reference to a table of `level`, now or later. Nothing is counted off.
///
/// # Safety
/// The entry that held the reference must be gone, from the TLBs as well.
pub(super) unsafe fn release(number: u32, level: u8) {
    let table = Table(number);
    let is_shared = table.references() > 1 || level == 0 && is_copy(table);
    // SAFETY: the caller's promise; nobody else refers to the table.
    if is_shared || !unsafe { owe(table, level) } {
        // SAFETY: the caller's promise.
        unsafe { share::release_table(number, level, None) };
    }
}

/// Gives up an entry's part in a large page, now or later.
///
/// # Safety
/// The entry must be gone, from the TLBs as well.
pub(super) unsafe fn release_large(first: u32) {
    if large::entries(first) == 1 && may_owe() && reserve(ENTRIES) {
        put(Waiting::Large(first));
    } else {
        // SAFETY: the caller's promise.
        unsafe { large::release(first) };
    }
}

impl Edit<'_> {
    /// The program has ended, and the space is about to be unmapped but for what is kept of it: from now
    /// on whole tables may be given back later if the space is large. Says whether it is; then
    /// [`recount`](Self::recount) is to be called at the end.
    #[inline]
    pub fn begin_end(&mut self) -> bool {
        let [private, files] =
            [Kind::Private, Kind::File].map(|kind| self.gather.usage.count(kind));
        let is_large = private >= LARGE.max(files);
        if is_large {
            self.gather.usage.ends.store(true, Relaxed);
        }
        is_large
    }

    /// Gives up what waits, and counts what is left: that is quicker than to count off what went,
    /// page by page.
    #[cold]
    pub fn recount(&mut self) {
        self.gather.flush();
        self.gather.usage.ends.store(false, Relaxed);
        self.gather.usage.clear();
        count(self.root, 3, ENTRIES / 2, self.gather.usage);
    }
}

/// Counts the first entries of a table of `level`, and what is below them.
fn count(table: Table, level: u8, entries: usize, usage: &Usage) {
    let mut pages = [0; 4];
    table.occupied(0, entries - 1, |_, entry| {
        if level == 0 {
            pages[entry.kind() as usize] += 1;
        } else if entry.has(Entry::LARGE) {
            pages[entry.kind() as usize] += ENTRIES as u64;
        } else {
            usage.add_tables(1);
            count(Table(entry.number()), level - 1, ENTRIES, usage);
        }
    });
    for kind in [Kind::Private, Kind::File, Kind::Shared, Kind::Zero] {
        usage.add(kind, pages[kind as usize]);
    }
}

/// Gives back one lowest table or one large page of what is owed; false: there is nothing to pay, or
/// others are paying the last of it.
#[inline]
pub fn pay() -> bool {
    owed() != 0 && pay_one().is_some()
}

/// The same for those who lack frames: waits for others who are paying the last of it. False: nothing
/// was owed.
#[inline]
pub fn pay_now() -> bool {
    OWED.pay(pay_one, relax)
}

/// Pays what is owed by now, so that all of it is free. It takes as long as the end of a process with an
/// eighth of memory would have, at most; between the steps it calls `between`, which may let others run.
pub fn settle(mut between: impl FnMut()) {
    let mut left = owed();
    while left != 0 && owed() != 0 {
        // Whoever goes on making debts meanwhile is not waited for.
        left = left.saturating_sub(pay_one().unwrap_or(0));
        relax();
        between();
    }
}

fn may_owe() -> bool {
    ALLOWED.load(Relaxed) && frames::is_plentiful()
}

/// Adds to the debt, if that stays below its bound.
fn reserve(size: usize) -> bool {
    OWED.reserve(size, frames::total() / 8)
}

fn put(what: Waiting) {
    let mut list = LIST.lock();
    match what {
        Waiting::Table(table, level) => {
            let Some(first) = list.tables.get_mut(usize::from(level)) else { return };
            table.info().refs.store(core::mem::replace(first, table.0), Relaxed);
        }
        Waiting::Large(number) => {
            let next = core::mem::replace(&mut list.large, number);
            large::info_of(number).data.store(u64::from(next), Relaxed);
        }
    }
}

fn take() -> Option<Waiting> {
    let mut list = LIST.lock();
    if list.large != 0 {
        let number = list.large;
        list.large = large::info_of(number).data.load(Relaxed) as u32;
        return Some(Waiting::Large(number));
    }
    let (level, first) = list.tables.iter_mut().enumerate().find(|(_, first)| **first != 0)?;
    let table = Table(*first);
    let refs = &table.info().refs;
    *first = refs.load(Relaxed);
    refs.store(1, Relaxed);
    Some(Waiting::Table(table, level as u8))
}

/// One step: how much it paid. `None`: there is nothing on the list.
#[cold]
fn pay_one() -> Option<usize> {
    let paid = match take()? {
        // SAFETY: what is on the list nobody else can reach.
        Waiting::Large(first) => unsafe {
            large::release(first);
            ENTRIES
        },
        Waiting::Table(table, level) => {
            // SAFETY: as above.
            let (paid, rest) = unsafe { step(table, level) };
            if rest {
                put(Waiting::Table(table, level));
            }
            paid
        }
    };
    OWED.paid(paid);
    Some(paid)
}

/// One step at a table: what it paid, and whether the table is still there.
///
/// # Safety
/// Nobody else can reach the table, nor what is below it.
unsafe fn step(table: Table, level: u8) -> (usize, bool) {
    if level == 0 {
        let paid = size_of_lowest(table);
        // SAFETY: the caller's promise.
        unsafe { share::release_table(table.0, 0, None) };
        return (paid, false);
    }
    let Some((at, entry)) = table.first() else {
        table.give_back();
        return (1, false);
    };
    let (paid, rest) = if entry.has(Entry::LARGE) {
        // SAFETY: the caller's promise; the surveyor left only counted ones.
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
    (paid, true)
}

/// What a lowest table counts in the debt.
fn size_of_lowest(table: Table) -> usize {
    table.groups().count_ones() as usize * 8 + 1
}

/// Lets go of what others refer to as well, below a table, and of what is no frame's reference; how
/// much is left, the table included.
///
/// # Safety
/// As for [`owe`].
unsafe fn survey(table: Table, level: u8) -> usize {
    if level == 0 {
        return size_of_lowest(table);
    }
    let mut size = 1;
    table.retain(|entry| {
        let number = entry.number();
        if entry.has(Entry::LARGE) {
            if entry.is_counted() && large::entries(number) == 1 {
                size += ENTRIES;
                return true;
            }
            if entry.is_counted() {
                // SAFETY: the entry's part; nobody can reach it, and it goes.
                unsafe { large::release(number) };
            }
        } else if Table(number).references() > 1 || level == 1 && is_copy(Table(number)) {
            // SAFETY: the entry's reference; nobody can reach it, and it goes.
            unsafe { share::release_table(number, level - 1, None) };
        } else {
            // SAFETY: the caller's promise; nobody else has the table.
            size += unsafe { survey(Table(number), level - 1) };
            return true;
        }
        false
    });
    size
}

/// Whether a lowest table came of a fork, and its pages belong to another space as well: its first page
/// tells.
fn is_copy(table: Table) -> bool {
    table.first().is_some_and(|(_, entry)| {
        entry.kind() == Kind::Private && entry.info().refs.load(Relaxed) > 1
    })
}
