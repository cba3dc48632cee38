//! Large pages: 2 MiB mapped by one entry of a table of the second level.
//!
//! A large page is counted once for each *entry* that maps it, in the `tag` of its first frame's
//! info; all these entries together hold one reference to each of its 512 frames. So sharing a
//! large page at fork is one addition. Breaking up a large page that is not shared hands its
//! references to the small entries without touching a count. Only when a shared large page is
//! broken up does each frame get a further reference.
//!
//! [`Edit::collapse`] makes a large page of small ones. It first clears and flushes the entry that
//! leads to them, so that no processor can write to them while they are copied; a processor that
//! accesses one meanwhile faults and waits for the space's lock.
//!
//! Road not taken: one count for all references to any part (Linux's compound pages). Unmapping a
//! small part must then find the head frame, on the path of each page.

use super::entry::{Access, Entry, Kind};
use super::gather::Gather;
use super::share;
use super::slot::Slot;
use super::table::{ENTRIES, Table, index, shift};
use super::{Edit, OutOfMemory};
use crate::frames::{Block, Frame, FrameInfo, copy_numbered, info, zero_numbered};
use crate::layout::{LARGE_PAGE_SIZE, PAGE_SHIFT, USER_END};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// Number of small pages in a large one.
pub(super) const FRAMES: u32 = 512;

/// How many large pages there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns how many large pages programs have; a shared one counts once.
pub fn count() -> usize {
    COUNT.load(Relaxed)
}

/// Returns the infos of a large page's frames; the first frame's info has the count.
#[inline]
fn infos(first: u32) -> impl Iterator<Item = &'static FrameInfo> {
    // SAFETY: these are the 512 frames of a large page, named by its first frame's number; the
    // number comes from an entry that this module made or from a block of the allocator.
    (first..first + FRAMES).map(|number| unsafe { info(number) })
}

/// The info of a large page's first frame.
#[inline]
pub(super) fn info_of(first: u32) -> &'static FrameInfo {
    // SAFETY: as for `infos`.
    unsafe { info(first) }
}

#[inline]
fn tag(first: u32) -> &'static AtomicU32 {
    &info_of(first).tag
}

/// Sets the count to one, for the first entry that maps the page.
pub(super) fn begin(first: u32) {
    tag(first).store(1, Relaxed);
    COUNT.fetch_add(1, Relaxed);
}

/// Counts another entry that maps the page. The caller holds an entry that maps it.
#[inline]
pub(super) fn add(first: u32) {
    tag(first).fetch_add(1, Relaxed);
}

/// Returns how many entries map the page.
#[inline]
pub(super) fn entries(first: u32) -> u32 {
    tag(first).load(Acquire)
}

/// Whether one entry maps the page, and nothing else refers to any of its frames.
pub(super) fn is_sole_owner(first: u32) -> bool {
    entries(first) == 1 && infos(first).all(|info| info.refs.load(Acquire) == 1)
}

/// Gives up one entry's part in the page, and with the last entry the frames.
///
/// # Safety
/// The entry must be gone, from the TLBs as well.
pub(super) unsafe fn release(first: u32) {
    if tag(first).fetch_sub(1, AcqRel) == 1 {
        COUNT.fetch_sub(1, Relaxed);
        let mut run = share::Run::default();
        for number in first..first + FRAMES {
            // SAFETY: the reference that the large entries held together.
            run.give(unsafe { Frame::from_number(number) });
        }
    }
}

/// Turns one entry's part in a large page into one reference to each of its frames.
fn break_up(first: u32) {
    let tag = tag(first);
    if tag.load(Acquire) == 1 {
        // No other entry maps the page, and only a space that maps it can share it.
        tag.store(0, Relaxed);
        COUNT.fetch_sub(1, Relaxed);
        return;
    }
    infos(first).for_each(|info| {
        info.refs.fetch_add(1, Relaxed);
    });
    if tag.fetch_sub(1, AcqRel) == 1 {
        // The other entries were removed meanwhile, and the references that they held together are
        // left over. This is not the last reference: ours was just added.
        COUNT.fetch_sub(1, Relaxed);
        infos(first).for_each(|info| {
            info.refs.fetch_sub(1, AcqRel);
        });
    }
}

impl Gather<'_> {
    /// Breaks the large page at entry `at` of `parent` (a table of level 1, this space's own) into
    /// small ones.
    #[cold]
    pub(super) fn split(&mut self, parent: Table, at: usize, address: usize) -> Option<Table> {
        let large = parent.load(at);
        let table = Table::allocate()?;
        self.usage.add_tables(1);
        if large.is_counted() {
            break_up(large.number());
        }
        let small = Entry(large.0 & !Entry::LARGE & !Entry::ADDRESS);
        for (index, number) in (large.number()..large.number() + FRAMES).enumerate() {
            table.fill(index, Entry(small.0 | u64::from(number) << PAGE_SHIFT));
        }
        parent.store(at, Entry(Entry::table(table.0).0 | Entry::BROKEN));
        let start = address & !((1 << shift(1)) - 1);
        self.stale(start, start + (1 << shift(1)));
        Some(table)
    }
}

impl<'a> Edit<'a> {
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
                let below = Table::allocate()?;
                self.gather.usage.add_tables(1);
                table.fill(at, self.table_entry(below, level));
                below
            } else if entry.has(Entry::SHARED_TABLE) {
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
            if entry.has(Entry::LARGE) || below.groups() != 0 {
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

    /// Replaces the small pages around `address` by one large page with their content, and zeroes
    /// where nothing is mapped. Returns whether it did so. It does not if a page is shared, belongs
    /// to a file, is held (`PROT_NONE`), or differs from `access` in being executable; nor where a
    /// large page was broken up before; nor without 2 MiB of contiguous free memory.
    #[cold]
    pub fn collapse(&mut self, address: usize, access: Access) -> bool {
        if address >= USER_END {
            return false;
        }
        let mut parent = self.root;
        for level in [3, 2] {
            let entry = parent.load(index(address, level));
            if entry.is_none() || entry.has(Entry::SHARED_TABLE) {
                return false;
            }
            parent = Table(entry.number());
        }
        let at = index(address, 1);
        let entry = parent.load(at);
        let never = [Entry::LARGE, Entry::BROKEN, Entry::SHARED_TABLE];
        if entry.is_none() || never.iter().any(|&bit| entry.has(bit)) {
            return false;
        }
        let table = Table(entry.number());
        let mut fit = true;
        table.occupied(0, ENTRIES - 1, |_, entry| {
            let alone = match entry.kind() {
                // No reference can be added while the space is locked.
                Kind::Private => entry.info().refs.load(Acquire) == 1,
                Kind::Zero => true,
                Kind::File | Kind::Shared => false,
            };
            let may = entry.access();
            fit &= alone && may.read && may.execute == access.execute;
        });
        if !fit {
            return false;
        }
        let Some(block) = Block::allocate(FRAMES) else { return false };
        parent.clear(at);
        let start = address & !(LARGE_PAGE_SIZE - 1);
        self.gather.stale(start, start + LARGE_PAGE_SIZE);
        self.gather.flush();
        for (index, to) in block.frames().enumerate() {
            let entry = table.load(index);
            if entry.is_none() || entry.kind() == Kind::Zero {
                zero_numbered(to);
            } else {
                copy_numbered(to, entry.number());
            }
        }
        let slot = Slot::new(parent, at, true, address, &mut self.gather);
        if slot.fill_large(block, access).is_err() {
            parent.fill(at, entry);
            return false;
        }
        self.gather.give_table(table.0, 0);
        true
    }
}
