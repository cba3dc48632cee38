//! The contents of `/proc/PID/maps`, `smaps` and `statm`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::Result;
use machine::paging::{Page, PageKind};

use super::page::PAGE;
use super::region::{Backing, Protection, RegionFlags};
use super::space::Space;
use crate::reclaim::growth::Grow;
use crate::vfs::open_file::OpenFile;

/// One region as `/proc` shows it.
pub struct ShownRegion {
    /// The first address.
    pub start: usize,
    /// The first address after it.
    pub end: usize,
    /// The access rights.
    pub protection: Protection,
    /// See [`RegionFlags`].
    pub flags: RegionFlags,
    /// The offset in the backing.
    pub offset: u64,
    /// Where pages come from.
    pub backing: Option<Arc<Backing>>,
    /// `[heap]`, `[stack]`, or the name of the backing if it has no file.
    pub name: &'static str,
    /// The pages in memory, if the caller asked for them.
    pub pages: ShownPages,
}

/// The number of pages of a region that are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownPages {
    /// All pages.
    pub resident: usize,
    /// Pages that belong to the space alone, not to a file.
    pub anonymous: usize,
    /// Pages that have other references as well (Linux: `Shared_*`).
    pub shared: usize,
    /// Pages that are part of large pages.
    pub large: usize,
}

/// The sums of `/proc/PID/statm` and `status`, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Mapped.
    pub size: usize,
    /// In memory.
    pub resident: usize,
    /// Pages in memory of files and shared memory.
    pub shared: usize,
    /// Executable regions of files.
    pub text: usize,
    /// Private writable regions, and stacks.
    pub data: usize,
    /// Stacks.
    pub stack: usize,
    /// Locked.
    pub locked: usize,
}

impl Space {
    /// All regions in order of address; with `count` also the numbers of their pages in memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn shown(&self, count: bool) -> Result<Vec<ShownRegion>> {
        let mut shown: Vec<ShownRegion> = Vec::new();
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        shown.make_room_exact(inner.map.len())?;
        for region in inner.map.iter() {
            let mapping = &region.value;
            let name = match &mapping.backing {
                Some(backing) => backing.name(),
                None if mapping.flags.contains(RegionFlags::HEAP) => "[heap]",
                None if mapping.flags.contains(RegionFlags::STACK) => "[stack]",
                None => "",
            };
            let mut pages = ShownPages::default();
            if count {
                edit.visit(region.start..region.end, &mut |_, page| {
                    let size = if page.large { 512 } else { 1 };
                    if page.kind == PageKind::Zero {
                        return;
                    }
                    pages.resident += size;
                    pages.anonymous += if page.kind == PageKind::Private { size } else { 0 };
                    pages.large += if page.large { size } else { 0 };
                    if page.is_shared() {
                        pages.shared += size;
                    }
                });
            }
            shown.push(ShownRegion {
                start: region.start,
                end: region.end,
                protection: mapping.protection,
                flags: mapping.flags,
                offset: if mapping.backing.is_some() { mapping.offset } else { 0 },
                backing: mapping.backing.clone(),
                name,
                pages,
            });
        }
        Ok(shown)
    }

    /// Calls `visit` for each page of a range that is in memory: its address, the page, and whether
    /// its content is a file's or shared memory. A large page is visited once for each small page
    /// in it.
    pub fn visit_pages(&self, range: Range<usize>, mut visit: impl FnMut(usize, Page, bool)) {
        let mut guard = self.table.lock();
        let (_, edit) = guard.parts();
        for address in range.step_by(PAGE) {
            if let Some(page) = edit.page(address) {
                visit(address, page, matches!(page.kind, PageKind::File | PageKind::Shared));
            }
        }
    }

    /// The number of pages that belong to the space, as (copied from files, zeroed).
    pub fn own_pages(&self) -> (u64, u64) {
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        let (mut copied, mut zeroed) = (0, 0);
        for region in inner.map.iter() {
            let sum = if region.value.backing.is_some() { &mut copied } else { &mut zeroed };
            edit.visit(region.start..region.end, &mut |_, page| {
                if page.kind == PageKind::Private {
                    *sum += if page.large { 512 } else { 1 };
                }
            });
        }
        (copied, zeroed)
    }

    /// The open file of which a region that begins at `address` shows the beginning.
    pub fn file_mapped_at(&self, address: usize) -> Option<Arc<OpenFile>> {
        let guard = self.table.lock();
        let region = guard.map.find(address)?;
        let shows_begin = region.start == address && region.value.offset == 0;
        let backing = region.value.backing.as_ref().filter(|_| shows_begin)?;
        backing.open_file().cloned()
    }

    /// The page at an address, and whether the mapping there is of a file. For measurements.
    pub fn seen(&self, address: usize) -> (Option<machine::paging::Page>, bool) {
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        let region = inner.map.find(address);
        let file = region.is_some_and(|region| region.value.backing.is_some());
        (region.and_then(|_| edit.page(address)), file)
    }

    /// Returns the sums for `statm` and `status`.
    pub fn totals(&self) -> Totals {
        let resident = self.resident();
        let guard = self.table.lock();
        let mut totals = Totals {
            size: guard.map.size() / PAGE,
            resident: resident.pages(),
            shared: resident.file + resident.shared,
            locked: guard.locked / PAGE,
            ..Totals::default()
        };
        for region in guard.map.iter() {
            let pages = region.size() / PAGE;
            let mapping = &region.value;
            let write = mapping.protection.contains(Protection::WRITE);
            if mapping.flags.contains(RegionFlags::GROWS_DOWN) {
                totals.stack += pages;
            }
            if write && !mapping.is_shared() {
                totals.data += pages;
            } else if mapping.protection.contains(Protection::EXECUTE) && mapping.backing.is_some()
            {
                totals.text += pages;
            }
        }
        totals
    }
}
