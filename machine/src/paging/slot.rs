//! The place of one page in a page table, for the fault path: walked to once, then used.

use super::entry::{Access, Entry, Kind, Page};
use super::gather::Gather;
use super::large;
use super::table::{ENTRIES, Table};
use super::usage::Usage;
use crate::frames::{Block, Frame};
use crate::layout::{LARGE_PAGE_SIZE, PAGE_SIZE};
use core::sync::atomic::Ordering::Acquire;

/// The place of one page in a locked page table whose tables are all this space's own.
pub struct Slot<'a> {
    table: Table,
    index: usize,
    large: bool,
    usage: &'a Usage,
}

impl<'a> Slot<'a> {
    #[inline]
    pub(super) fn new(table: Table, index: usize, large: bool, usage: &'a Usage) -> Self {
        Slot { table, index, large, usage }
    }

    pub(super) fn table(&self) -> Table {
        self.table
    }

    /// Whether it is the place of a large page.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.large
    }

    /// The page that is there.
    #[inline]
    pub fn page(&self) -> Option<Page> {
        let entry = self.table.load(self.index);
        (!entry.is_none()).then(|| Page::of(entry, self.large))
    }

    /// Whether the page that is there is in nobody else's hands, so that it may become writable
    /// without a copy.
    #[inline]
    pub fn is_sole_owner(&self) -> bool {
        let entry = self.table.load(self.index);
        if entry.is_none() || !entry.is_counted() {
            return false;
        }
        if self.large {
            large::is_sole_owner(entry.number())
        } else {
            entry.info().refs.load(Acquire) == 1
        }
    }

    /// Whether nothing is mapped in this place's table: its 2 MiB are untouched.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.table.groups() == 0
    }

    /// Whether this is one of every sixteen places: where it is time to look at how many of its
    /// neighbours are there.
    #[inline]
    pub fn is_milestone(&self) -> bool {
        self.index % 16 == 15
    }

    /// How many of the table's 64 groups of eight pages have at least one.
    pub fn occupied_groups(&self) -> u32 {
        self.table.groups().count_ones()
    }

    /// Puts a page where there is none. A page that is there already stays, and `frame` comes back.
    #[inline]
    pub fn fill(&self, frame: Frame, kind: Kind, access: Access) -> Result<(), Frame> {
        if self.large || kind == Kind::Zero || !self.table.load(self.index).is_none() {
            return Err(frame);
        }
        self.table.fill(self.index, Entry::page(frame.into_number(), kind, access));
        self.usage.add(kind, 1);
        Ok(())
    }

    /// Puts the page of zeroes where there is none, read-only.
    pub fn fill_zero(&self, execute: bool) {
        if !self.large && self.table.load(self.index).is_none() {
            let access = Access { read: true, write: false, execute };
            let zero = super::zero_frame();
            self.table.fill(self.index, Entry::page(zero, Kind::Zero, access));
            self.usage.add(Kind::Zero, 1);
        }
    }

    /// Puts a large page where there is none; gives the block back if it cannot be: not 2 MiB in
    /// size and alignment, or something is there.
    pub fn fill_large(&self, block: Block, access: Access) -> Result<(), Block> {
        let fits = block.size() == LARGE_PAGE_SIZE
            && block.address().is_multiple_of(LARGE_PAGE_SIZE as u64);
        if !self.large || !fits || !self.table.load(self.index).is_none() {
            return Err(block);
        }
        let first = block.frames().start;
        block.into_frames(|frame| {
            frame.into_number();
        });
        let entry = Entry::page(first, Kind::Private, access);
        large::begin(first);
        self.table.fill(self.index, Entry(entry.0 | Entry::LARGE));
        self.usage.add(Kind::Private, ENTRIES as u64);
        Ok(())
    }

    /// Replaces the page at `address` (this place's) by another one; the old frame goes through the
    /// gather.
    #[inline]
    pub fn replace(
        &self,
        address: usize,
        frame: Frame,
        kind: Kind,
        access: Access,
        gather: &mut Gather<'_>,
    ) -> Result<(), Frame> {
        let old = self.table.load(self.index);
        if self.large || kind == Kind::Zero || old.is_none() {
            return Err(frame);
        }
        self.table.store(self.index, Entry::page(frame.into_number(), kind, access));
        if old.kind() != kind {
            self.usage.remove(old.kind(), 1);
            self.usage.add(kind, 1);
        }
        let page = address & !(PAGE_SIZE - 1);
        gather.stale(page, page + PAGE_SIZE);
        if old.is_counted() {
            // SAFETY: the reference that the old entry held.
            gather.give(unsafe { Frame::from_number(old.number()) });
        }
        Ok(())
    }

    /// Gives the page that is there more rights. No flush is needed: a processor that remembers
    /// fewer faults once more.
    #[inline]
    pub fn allow(&self, access: Access) {
        let entry = self.table.load(self.index);
        if !entry.is_none() && entry.kind() != Kind::Zero {
            let now = entry.access();
            let access = Access {
                read: now.read || access.read,
                write: now.write || access.write,
                execute: now.execute || access.execute,
            };
            self.table.store(self.index, entry.with(access));
        }
    }

    /// The place `pages` further on, if it is in the same table.
    #[inline]
    pub fn neighbour(&self, pages: isize) -> Option<Slot<'a>> {
        let index = self.index.checked_add_signed(pages).filter(|&index| index < ENTRIES)?;
        (!self.large).then_some(Slot { index, ..*self })
    }

    /// Moves the page that is here (at address `from`) to another, empty place.
    pub(super) fn move_to(&self, to: &Slot<'_>, from: usize, gather: &mut Gather<'_>) {
        let entry = self.table.load(self.index);
        if entry.is_none() || self.large || to.large || !to.table.load(to.index).is_none() {
            return;
        }
        self.table.clear(self.index);
        self.table.settle(self.index, self.index);
        to.table.fill(to.index, entry);
        gather.stale(from, from + PAGE_SIZE);
    }
}

impl Slot<'_> {
    /// Copies the content of the page that is here (a small one) to `to`.
    #[inline]
    pub fn copy_to(&self, to: &Frame) {
        let entry = self.table.load(self.index);
        if !entry.is_none() && !self.large {
            // SAFETY: the entry's frame lives while the table is locked; the reference is not
            // counted and not dropped.
            let from = unsafe { core::mem::ManuallyDrop::new(Frame::from_number(entry.number())) };
            to.copy_from(&from);
        }
    }

    /// Drops this processor's memory of the page at `address`.
    #[inline]
    pub fn forget_here(&self, address: usize) {
        // SAFETY: dropping TLB entries is always allowed.
        unsafe {
            core::arch::asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags));
        }
    }
}
