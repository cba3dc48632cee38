//! Spaces whose pages lie on non-volatile memory: what of a space is to be stored, and the space
//! made of it again.
//!
//! The pages of such a space are private ones as any other, and read-only: the memory holds a
//! reference to each of its frames itself, so no fault ever finds a space to be the only owner, and
//! a write copies ([`machine::nvm`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_space_map::Region;
use machine::frames::Frame;
use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::{Access, PageKind};

use super::layout::Layout;
use super::page::PAGE;
use super::region::Mapping;
use super::space::{Space, data_size};
use crate::reclaim::growth::Grow;

/// The shape of a space: its addresses, and its heap.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The addresses of stack, heap and mappings.
    pub layout: Layout,
    /// The heap.
    pub heap: Range<usize>,
}

impl Space {
    /// The shape.
    pub fn shape(&self) -> Shape {
        let guard = self.table.lock();
        Shape { layout: guard.layout, heap: guard.heap_start..guard.heap_end }
    }

    /// Returns the addresses of the pages without which the space cannot be made again, in order:
    /// its private ones, but for those that are all zeroes where a page not there is, too.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn own_content(&self) -> Result<Vec<usize>> {
        let mut pages: Vec<usize> = Vec::new();
        let mut lacking = false;
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        for region in inner.map.iter() {
            edit.visit(region.start..region.end, &mut |address, page| {
                if page.kind != PageKind::Private || lacking {
                    return;
                }
                let end = address + if page.large { LARGE_PAGE_SIZE } else { PAGE };
                let there = (address..end).step_by(PAGE);
                lacking |= pages.make_room(there.len()).is_err();
                if !lacking {
                    pages.extend(there);
                }
            });
        }
        drop(edit);
        drop(guard);
        if lacking {
            return Err(Errno::ENOMEM);
        }
        let mut content = Vec::new();
        content.make_room_exact(PAGE)?;
        content.resize(PAGE, 0);
        let (content, _) = content.as_chunks_mut::<PAGE>();
        let [content] = content else { return Err(Errno::ENOMEM) };
        pages.retain(|&address| {
            let shows_file = |region: &Region<Mapping>| region.value.backing.is_some();
            self.table.lock().map.find(address).is_some_and(shows_file)
                || (self.read_for_dump(address, content) && content.iter().any(|&byte| byte != 0))
        });
        Ok(pages)
    }

    /// Makes a space of these regions, in order and apart from each other, in which these pages are
    /// there, in order and each in a region.
    ///
    /// # Errors
    /// `EINVAL`: a page is in no region. `ENOMEM`.
    pub fn of_stored(
        shape: Shape,
        regions: Vec<(Range<usize>, Mapping)>,
        pages: impl Iterator<Item = (usize, Frame)>,
    ) -> Result<Arc<Space>> {
        let space = Space::make(shape.layout)?;
        let mut guard = space.table.lock();
        let (inner, mut edit) = guard.parts();
        (inner.heap_start, inner.heap_end) = (shape.heap.start, shape.heap.end);
        inner.map.reserve(regions.len()).map_err(|_| Errno::ENOMEM)?;
        for (range, mapping) in regions {
            inner.map.insert(range, mapping).map_err(|_| Errno::ENOMEM)?;
        }
        inner.data = inner.map.iter().map(data_size).sum();
        for (address, frame) in pages {
            let region = inner.map.find(address).ok_or(Errno::EINVAL)?;
            let access = Access { write: false, ..region.value.protection.access() };
            let slot = edit.slot(address).ok_or(Errno::ENOMEM)?;
            // Nothing was there.
            let _ = slot.fill(frame, PageKind::Private, access);
        }
        drop(edit);
        drop(guard);
        Ok(space)
    }
}
