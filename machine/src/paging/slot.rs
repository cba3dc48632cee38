//! The place of one page in a page table, for the fault path: the walk is done once, and its result
//! is used several times.

use super::entry::{Access, PageKind, TableEntry};
use super::gather::Gather;
use super::kernel::zero_frame;
use super::large;
use super::page::Page;
use super::table::{ENTRIES, OutOfMemory, Table, index};
use crate::frames::{Block, Frame};
use crate::layout::{LARGE_PAGE_SIZE, PAGE_SIZE};

/// The place of one page in a locked page table all of whose tables are this space's own. It
/// borrows the [`Edit`](super::Edit) that lent it, so its table cannot be removed while the slot
/// exists.
pub struct Slot<'e, 'a> {
    table: Table,
    index: usize,
    large: bool,
    /// An address in the page.
    address: usize,
    gather: &'e mut Gather<'a>,
}

impl<'e, 'a> Slot<'e, 'a> {
    #[inline]
    pub(super) fn new(
        table: Table,
        index: usize,
        large: bool,
        address: usize,
        gather: &'e mut Gather<'a>,
    ) -> Self {
        Slot { table, index, large, address, gather }
    }

    pub(super) fn table(&self) -> Table {
        self.table
    }

    /// Returns whom the space's pages are charged to; 0: nobody ([`crate::frames::owner`]).
    #[inline]
    pub fn owner(&self) -> u32 {
        self.gather.usage.owner()
    }

    /// Whether this is the place of a large page.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.large
    }

    /// Returns the page that is mapped here, if any.
    #[inline]
    pub fn page(&self) -> Option<Page> {
        let entry = self.table.load(self.index);
        (!entry.is_none()).then(|| Page::of(entry, self.large))
    }

    /// Whether nothing else refers to the page that is mapped here, so that it may become writable
    /// without a copy.
    #[inline]
    pub fn is_sole_owner(&self) -> bool {
        let entry = self.table.load(self.index);
        if entry.is_none() || !entry.is_counted() {
            return false;
        }
        if self.large { large::is_sole_owner(entry.number()) } else { entry.info().refs() == 1 }
    }

    /// Whether nothing is mapped in this slot's table: its 2 MiB are untouched.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.table.groups() == 0
    }

    /// Whether this slot is one of every sixteen, at which the caller counts how many neighbouring
    /// pages are mapped.
    #[inline]
    pub fn is_milestone(&self) -> bool {
        self.index % 16 == 15
    }

    /// Returns how many of the table's 64 groups of eight pages have at least one page.
    pub fn occupied_groups(&self) -> u32 {
        self.table.groups().count_ones()
    }

    /// Maps `frame` where no page is mapped. If a page is mapped already it stays, and `frame` is
    /// returned.
    #[inline]
    pub fn fill(&self, frame: Frame, kind: PageKind, access: Access) -> Result<(), Frame> {
        if self.large || kind == PageKind::Zero || !self.table.load(self.index).is_none() {
            return Err(frame);
        }
        self.table.fill(self.index, TableEntry::page(frame.into_number(), kind, access));
        self.gather.usage.add(kind, 1);
        Ok(())
    }

    /// Maps the zero page, read-only, where no page is mapped.
    pub fn fill_zero(&self, execute: bool) {
        if !self.large && self.table.load(self.index).is_none() {
            let access = Access { read: true, write: false, execute };
            let zero = zero_frame();
            self.table.fill(self.index, TableEntry::page(zero, PageKind::Zero, access));
            self.gather.usage.add(PageKind::Zero, 1);
        }
    }

    /// Maps a large page where nothing is mapped. Returns the block if that is impossible: the
    /// block does not have the size and alignment of 2 MiB, or something is mapped.
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
        let entry = TableEntry::page(first, PageKind::Private, access);
        large::begin(first);
        self.table.fill(self.index, TableEntry(entry.0 | TableEntry::LARGE));
        self.gather.usage.add(PageKind::Private, ENTRIES as u64);
        Ok(())
    }

    /// Replaces the page that is mapped here by another; the old frame is given up after the flush.
    #[inline]
    pub fn replace(&mut self, frame: Frame, kind: PageKind, access: Access) -> Result<(), Frame> {
        let old = self.table.load(self.index);
        if self.large || kind == PageKind::Zero || old.is_none() {
            return Err(frame);
        }
        self.table.store(self.index, TableEntry::page(frame.into_number(), kind, access));
        if old.kind() != kind {
            self.gather.usage.remove(old.kind(), 1);
            self.gather.usage.add(kind, 1);
        }
        let page = self.address & !(PAGE_SIZE - 1);
        self.gather.stale(page, page + PAGE_SIZE);
        if old.is_counted() {
            // SAFETY: the reference that the old entry held.
            self.gather.give(unsafe { Frame::from_number(old.number()) });
        }
        Ok(())
    }

    /// Gives the page that is mapped here more rights. No flush is needed: a processor whose TLB
    /// has fewer rights faults once more.
    #[inline]
    pub fn allow(&self, access: Access) {
        let entry = self.table.load(self.index);
        if !entry.is_none() && entry.kind() != PageKind::Zero {
            let now = entry.access();
            let access = Access {
                read: now.read || access.read,
                write: now.write || access.write,
                execute: now.execute || access.execute,
            };
            self.table.store(self.index, entry.with(access));
        }
    }

    /// Returns the slot `pages` further on, if it is in the same table.
    #[inline]
    pub fn neighbour(&mut self, pages: isize) -> Option<Slot<'_, 'a>> {
        let index = self.index.checked_add_signed(pages).filter(|&index| index < ENTRIES)?;
        let address = self.address.wrapping_add_signed(pages.wrapping_mul(PAGE_SIZE as isize));
        let Slot { table, large, .. } = *self;
        (!large).then_some(Slot { table, index, large, address, gather: &mut *self.gather })
    }

    /// Returns the next slot, if it is in the same table.
    #[inline]
    pub fn next(self) -> Option<Slot<'e, 'a>> {
        let (index, address) = (self.index + 1, self.address.wrapping_add(PAGE_SIZE));
        (!self.large && index < ENTRIES).then_some(Slot { index, address, ..self })
    }

    /// Breaks the large page that is mapped here, if any, into small pages, and returns the slot of
    /// the small page.
    ///
    /// # Errors
    /// Memory is exhausted; nothing has changed.
    pub fn split(self) -> Result<Slot<'e, 'a>, OutOfMemory> {
        if !self.large {
            return Ok(self);
        }
        let table = self.gather.split(self.table, self.index, self.address).ok_or(OutOfMemory)?;
        Ok(Slot { table, index: index(self.address, 0), large: false, ..self })
    }

    /// Takes the page that is mapped here (a small one) out; [`put`](Self::put) maps it elsewhere.
    pub(super) fn take(&mut self) -> Option<TableEntry> {
        let entry = self.table.load(self.index);
        if entry.is_none() || self.large {
            return None;
        }
        self.table.clear(self.index);
        self.table.settle(self.index, self.index);
        let page = self.address & !(PAGE_SIZE - 1);
        self.gather.stale(page, page + PAGE_SIZE);
        Some(entry)
    }

    /// Maps here what [`take`](Self::take) took out elsewhere in the space. Here it is another
    /// page, so it counts as written.
    pub(super) fn put(&mut self, entry: TableEntry) {
        self.table.fill(self.index, TableEntry(entry.0 | TableEntry::DIRTY));
    }

    /// Returns a reference to the frame of the (small) page that is mapped here.
    pub fn frame(&self) -> Option<Frame> {
        let entry = self.table.load(self.index);
        // SAFETY: the entry holds a reference, or maps the zero page or non-volatile memory, which
        // are never freed; the table is locked.
        (!entry.is_none() && !self.large).then(|| unsafe { Frame::another(entry.number()) })
    }

    /// Copies the content of the (small) page that is mapped here to `to`.
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

    /// Drops this processor's TLB entry for the page.
    #[inline]
    pub fn forget_here(&self) {
        // SAFETY: dropping TLB entries is always allowed.
        unsafe {
            core::arch::asm!("invlpg [{}]", in(reg) self.address, options(nostack, preserves_flags));
        }
    }
}
