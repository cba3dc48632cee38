//! Page tables of programs: four levels, frames counted, tables shareable between spaces.
//!
//! A [`PageTable`] is a root, its lock, and the data that the lock protects besides (the kernel
//! puts the map of regions there). All changes of entries go through an [`Edit`], which the lock's
//! guard lends, so two changes never race. The edit collects what may only be given up after a TLB
//! flush, and gives it up when it is dropped, before the lock is released. A [`Slot`], the place of
//! one page, borrows the edit: while a slot exists, the table that it is in cannot be removed.
//!
//! Invariants:
//! * an entry of a page holds one reference to its frame (the zero page none; for large pages see
//!   [`large`]), so a frame that is mapped cannot be freed; entries of non-volatile memory made by
//!   [`attach`] hold none, because that memory cannot be freed at all;
//! * a frame leaves the table only through an edit's gather, that is, after every processor that
//!   may have it in a TLB has dropped it;
//! * tables are shared between spaces only as [`share`] describes: forking takes as many steps as
//!   the root has entries, whatever the size of the space, and the first change below a shared
//!   table copies that table.
//!
//! A table that is loaded on a processor ([`PageTable::activate`]) stays loaded there until another
//! table is loaded, even while the processor runs a kernel thread. Dropping the table first sends
//! such processors to the kernel's own root; moving it moves nothing that they point to. The
//! content of a large table may be given back later: [`teardown`].
//!
//! Lock order: a page table's lock comes before those of the frame allocator and the page cache;
//! two page tables are never locked at once, except a new one by its only owner (fork).
//!
//! Road not taken: the `x86_64` crate's mapper. It tracks neither occupancy nor counts nor sharing,
//! and walks each page from the root.

mod attach;
mod entry;
mod gather;
pub(crate) mod kernel;
mod large;
mod restore;
mod share;
mod slot;
mod supervisor;
mod table;
pub mod teardown;
mod usage;

use crate::cpu::{self, PerCpu};
use crate::frames::Frame;
use crate::layout::{PAGE_SIZE, USER_END};
use crate::per_cpu;
use crate::sync::{SpinGuard, SpinLock};
use crate::trap;
use alloc::sync::Arc;
pub use attach::Prebuilt;
use core::cell::Cell;
use core::ops::{Deref, DerefMut, Range};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use entry::Entry;
pub use entry::{Access, Kind, Page};
use gather::Gather;
pub use large::count as large_pages;
pub use restore::{Fate, Found};
pub use slot::Slot;
pub(crate) use supervisor::follow_mode;
use table::{ENTRIES, Table, index, shift};
pub use usage::Resident;
pub(crate) use usage::Usage;

/// Memory for page tables is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// A page table with its lock and the data that the lock protects besides.
pub struct PageTable<T> {
    root: Table,
    /// Allocated separately: processors that have the table loaded point to it, and it must not
    /// move when the table is moved.
    usage: Arc<Usage>,
    inner: SpinLock<T>,
}

/// The usage of the table that is loaded on this processor; null for the kernel's own table.
pub(crate) struct Loaded(Cell<*const Usage>);

// SAFETY: an instance is touched only by its own processor.
unsafe impl Sync for Loaded {}

per_cpu! {
    // SAFETY: the gate's stubs use this name; no other symbol has it.
    #[unsafe(export_name = "hayate_loaded")]
    pub(crate) static LOADED: PerCpu<Loaded> = PerCpu::new(Loaded(Cell::new(core::ptr::null())));
}

impl<T> PageTable<T> {
    /// Returns an empty table: the kernel's half and nothing else. `None`: memory is exhausted.
    pub fn new(inner: T) -> Option<Self> {
        let root = Table::allocate()?;
        kernel::copy_half(root);
        Some(PageTable { root, usage: Arc::new(Usage::default()), inner: SpinLock::new(inner) })
    }

    /// Locks the table.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        Guard { table: self, inner: self.inner.lock() }
    }

    /// Returns how much is mapped. Read without the lock: the counts may be changing.
    pub fn resident(&self) -> Resident {
        self.usage.resident()
    }

    /// Returns the mask of processors that have the table loaded now.
    pub fn active(&self) -> u64 {
        self.usage.active.load(SeqCst)
    }

    /// Loads the table on this processor; does nothing if it is loaded already.
    #[inline]
    pub fn activate(&self) {
        let loaded = &LOADED.here().0;
        if loaded.get() == Arc::as_ptr(&self.usage) {
            return;
        }
        let own = 1 << cpu::id();
        // The bit is set first, then the table is loaded. An edit that changes an entry after this
        // point finds the bit set; a change made before it is seen by the page-table walks that
        // follow (SeqCst is a full fence).
        self.usage.active.fetch_or(own, SeqCst);
        let before = loaded.replace(Arc::as_ptr(&self.usage));
        // SAFETY: this is a root with the kernel's half; dropping the table unloads it first.
        unsafe { load(self.root.0) };
        // SAFETY: a table that is loaded somewhere lives: its drop waits until this processor
        // leaves it.
        trap::set_mode(unsafe { before.as_ref() }, self.usage.is_supervisor());
        forget(before, own);
    }

    /// Returns the physical address of the root, for a processor that loads it by itself.
    pub(crate) fn root_address(&self) -> u64 {
        u64::from(self.root.0) << crate::layout::PAGE_SHIFT
    }
}

/// Loads the kernel's own root, so that this processor has no space loaded any more.
pub fn deactivate() {
    let before = LOADED.here().0.replace(core::ptr::null());
    if !before.is_null() {
        // SAFETY: the kernel's root.
        unsafe { load(kernel::root()) };
        // SAFETY: as in `activate`.
        trap::set_mode(unsafe { before.as_ref() }, false);
        forget(before, 1 << cpu::id());
    }
}

fn forget(before: *const Usage, own: u64) {
    if !before.is_null() {
        // SAFETY: a table that is loaded somewhere lives: its drop waits until this processor
        // leaves it.
        unsafe { &*before }.active.fetch_and(!own, SeqCst);
    }
}

/// Leaves the table with this root, which is about to be dropped. The shootdown's handler calls it.
pub(crate) fn leave(root: u64) {
    let loaded: u64;
    // SAFETY: reading CR3 has no effect.
    unsafe {
        core::arch::asm!("mov {}, cr3", out(reg) loaded, options(nomem, nostack, preserves_flags));
    }
    if loaded & Entry::ADDRESS == root {
        deactivate();
    }
}

/// # Safety
/// The frame must be a root table with the kernel's half.
#[inline]
unsafe fn load(root: u32) {
    let address = u64::from(root) << crate::layout::PAGE_SHIFT;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("mov cr3, {}", in(reg) address, options(nostack, preserves_flags));
    }
}

/// The locked table.
pub struct Guard<'a, T> {
    table: &'a PageTable<T>,
    inner: SpinGuard<'a, T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Guard<'_, T> {
    /// Returns the data that the lock protects, and an edit of the table.
    #[inline]
    pub fn parts(&mut self) -> (&mut T, Edit<'_>) {
        let edit = Edit { root: self.table.root, gather: Gather::new(&self.table.usage) };
        (&mut self.inner, edit)
    }
}

/// Changes a locked page table. When it is dropped, it flushes the TLBs of processors that may hold
/// old entries, and then gives up what was taken out.
pub struct Edit<'a> {
    root: Table,
    gather: Gather<'a>,
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
            const WAY: u64 = Entry::PRESENT | Entry::SHARED_TABLE | Entry::LARGE;
            if entry.0 & WAY == Entry::PRESENT {
                table = Table(entry.number());
            } else if entry.is_none() {
                let below = Table::allocate()?;
                self.gather.usage.add_tables(1);
                table.fill(at, self.table_entry(below, level));
                table = below;
            } else if level == 1 && entry.has(Entry::LARGE) {
                return Some(Slot::new(table, at, true, address, &mut self.gather));
            } else {
                table = self.gather.own(table, at, level, address)?;
            }
            level -= 1;
        }
        Some(Slot::new(table, index(address, 0), false, address, &mut self.gather))
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
            if entry.has(Entry::LARGE) {
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

    /// Makes the tables that `range` cuts through this space's own, and splits the large pages at
    /// its edges. After that, [`unmap`](Self::unmap) of the range allocates no memory.
    pub fn prepare(&mut self, range: Range<usize>) -> Result<(), OutOfMemory> {
        for edge in [range.start, range.end] {
            let mut table = self.root;
            let mut level = 3;
            // An edge that is also the edge of an entry cuts through nothing below that entry.
            while level > 0 && edge < USER_END && edge & ((1 << shift(level)) - 1) != 0 {
                let at = index(edge, level);
                let entry = table.load(at);
                table = if entry.is_none() {
                    break;
                } else if level == 1 && entry.has(Entry::LARGE) {
                    self.gather.split(table, at, edge).ok_or(OutOfMemory)?
                } else if entry.has(Entry::SHARED_TABLE) {
                    self.gather.own(table, at, level, edge).ok_or(OutOfMemory)?
                } else {
                    Table(entry.number())
                };
                level -= 1;
            }
        }
        Ok(())
    }

    /// Unmaps everything in `range` (page-aligned). On `Err` nothing is unmapped: memory for
    /// splitting a table or large page was exhausted.
    pub fn unmap(&mut self, range: Range<usize>) -> Result<(), OutOfMemory> {
        if range.start >= range.end || range.end > USER_END {
            return Ok(());
        }
        self.prepare(range.clone())?;
        self.change(self.root, 3, 0, &range, &mut Change::Unmap)
    }

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

    /// Takes away the rights beyond `most` from all pages in `range`; pages get new rights at their
    /// next fault. Taking `read` away keeps the pages in place, unreachable; giving it back makes
    /// them reachable again, but not writable.
    pub fn protect(&mut self, range: Range<usize>, most: Access) -> Result<(), OutOfMemory> {
        if range.start >= range.end || range.end > USER_END {
            return Ok(());
        }
        self.change(self.root, 3, 0, &range, &mut Change::Protect(most))
    }

    fn change(
        &mut self,
        table: Table,
        level: u8,
        base: usize,
        range: &Range<usize>,
        change: &mut Change,
    ) -> Result<(), OutOfMemory> {
        let size = 1usize << shift(level);
        let first = range.start.saturating_sub(base) >> shift(level);
        let last = ((range.end - 1 - base) >> shift(level)).min(ENTRIES - 1);
        if level == 0 && matches!(change, Change::Unmap) {
            self.unmap_row(table, first, last, base);
            return Ok(());
        }
        let mut result = Ok(());
        table.occupied(first, last, |at, entry| {
            if result.is_err() {
                return;
            }
            let start = base + at * size;
            let whole = range.start <= start && start + size <= range.end;
            if level == 0 || (whole && entry.has(Entry::LARGE) && level == 1) {
                match change {
                    Change::Unmap => {
                        table.clear(at);
                        self.gather.displace(entry, start, level == 1);
                    }
                    Change::Protect(most) => {
                        let now = entry.access();
                        let then = Access {
                            read: most.read,
                            write: now.write && most.write && most.read,
                            execute: most.execute,
                        };
                        if now != then {
                            table.store(at, entry.with(then));
                            // Rights that only grow need no flush: a stale entry faults, and the
                            // fault drops it.
                            if (now.read && !then.read)
                                || (now.write && !then.write)
                                || (now.execute && !then.execute)
                            {
                                self.gather.stale(start, start + size);
                            }
                        }
                    }
                }
                return;
            }
            if whole && matches!(change, Change::Unmap) {
                table.clear(at);
                self.gather.stale(start, start + size);
                self.gather.give_table(entry.number(), level - 1);
                return;
            }
            let address = start.max(range.start);
            let below = if entry.has(Entry::LARGE) && level == 1 {
                self.gather.split(table, at, address)
            } else if entry.has(Entry::SHARED_TABLE) {
                self.gather.own(table, at, level, address)
            } else {
                Some(Table(entry.number()))
            };
            result = match below {
                None => Err(OutOfMemory),
                Some(below) => self.change(below, level - 1, start, range, change),
            };
        });
        if matches!(change, Change::Unmap) {
            table.settle(first, last);
        }
        result
    }

    /// Unmaps the pages of a lowest table between two indexes (inclusive); `base` is the address of
    /// the table's first page. A text in place has hundreds of entries that hold no reference: they
    /// are subtracted from the counts together.
    fn unmap_row(&mut self, table: Table, first: usize, last: usize, base: usize) {
        let (in_place, low, high) = (Cell::new(0), Cell::new(usize::MAX), Cell::new(0));
        let count = |at: usize, pages: usize| {
            in_place.set(in_place.get() + pages);
            low.set(low.get().min(at));
            high.set(at + pages);
        };
        let other = |at: usize, entry: Entry| {
            if entry.has(Entry::UNCOUNTED) {
                count(at, 1);
            } else {
                self.gather.displace(entry, base + at * PAGE_SIZE, false);
            }
        };
        table.take(first, last, other, |at| count(at, 8));
        if in_place.get() != 0 {
            self.gather.usage.remove(Kind::File, in_place.get() as u64);
            self.gather.stale(base + low.get() * PAGE_SIZE, base + high.get() * PAGE_SIZE);
        }
    }

    /// Moves the pages in `range` to `to` (`mremap(2)`), where nothing is mapped. On `Err` nothing
    /// has moved.
    pub fn move_pages(&mut self, range: Range<usize>, to: usize) -> Result<(), OutOfMemory> {
        // First do everything that allocates memory: own tables and small pages on both sides.
        let mut from = self.next_page(range.start, range.end);
        while from < range.end {
            self.split(from)?;
            let target = to + (from - range.start);
            self.slot(target).ok_or(OutOfMemory)?;
            from = self.next_page(from + PAGE_SIZE, range.end);
        }
        let mut from = self.next_page(range.start, range.end);
        while from < range.end {
            let target = self.slot(to + (from - range.start)).ok_or(OutOfMemory)?;
            let is_free = target.page().is_none() && !target.is_large();
            if is_free && let Some(entry) = self.slot(from).ok_or(OutOfMemory)?.take() {
                // This slot was walked to just now, and no table was removed meanwhile.
                self.slot(to + (from - range.start)).ok_or(OutOfMemory)?.put(entry);
            }
            from = self.next_page(from + PAGE_SIZE, range.end);
        }
        Ok(())
    }

    /// Whether a write to `address` would go through: the page is writable and no table on the way
    /// to it is shared.
    pub fn is_writable(&self, address: usize) -> bool {
        let mut table = self.root;
        for level in (0..=3).rev() {
            let entry = table.load(index(address, level));
            if !entry.has(Entry::PRESENT | Entry::WRITE) {
                return false;
            }
            if level == 0 || entry.has(Entry::LARGE) {
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
            if level == 0 || entry.has(Entry::LARGE) || !entry.has(Entry::PRESENT) {
                if entry.has(Entry::PRESENT) && !entry.has(Entry::DIRTY) {
                    table.store(at, Entry(entry.0 | Entry::DIRTY));
                }
                return;
            }
            table = Table(entry.number());
        }
    }

    /// Returns the address of the first mapped page at or after `from`, or `end`.
    fn next_page(&self, from: usize, end: usize) -> usize {
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
                if level == 0 || entry.has(Entry::LARGE) {
                    return at;
                }
                table = Table(entry.number());
                level -= 1;
            }
        }
        end
    }

    /// Shares everything that is mapped here with `child`, whose table is empty (fork): both see
    /// the same pages, and private pages become copy-on-write. The number of steps is constant;
    /// this space's TLBs are flushed.
    ///
    /// # Panics
    /// If the child's table is not empty.
    pub fn share_with<T>(&mut self, child: &mut Guard<'_, T>) {
        share::share_root(self.root, child.table.root, &mut self.gather);
        child.table.usage.copy_counts(self.gather.usage);
        if child.table.usage.is_supervisor() {
            kernel::follow_mode(child.table.root, true);
        }
    }
}

enum Change {
    Unmap,
    Protect(Access),
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
        } else if entry.has(Entry::LARGE) && level == 1 {
            visit(start, Page::of(entry, true));
        } else {
            visit_below(Table(entry.number()), level - 1, start, range, visit);
        }
    });
}

/// Returns the number of the zero page's frame, which reading untouched memory shows.
pub fn zero_frame() -> u32 {
    kernel::ZERO.load(Relaxed)
}
