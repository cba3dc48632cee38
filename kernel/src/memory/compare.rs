//! Comparing two spaces: whether the same mappings lie at the same addresses, and where their
//! private pages differ.

use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use machine::paging::PageKind;

use super::page::PAGE;
use super::region::{Mapping, RegionFlags};
use super::space::Space;
use crate::reclaim::growth::Grow;

/// Whether two mappings show the same: the rights and flags, and the content by the number of its
/// page cache. Two mappings of one file are two backings.
fn is_alike(one: &Mapping, other: &Mapping) -> bool {
    one.protection == other.protection
        && one.flags == other.flags
        && match (&one.backing, &other.backing) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.page_cache.id() == b.page_cache.id() && one.offset == other.offset
            }
            _ => false,
        }
}

/// What [`Space::compare`] calls with a page that differs: its address and both contents. False
/// ends the comparison.
pub type Differs<'a> = dyn FnMut(usize, &[u8; PAGE], &[u8; PAGE]) -> bool + 'a;

impl Space {
    /// Whether both spaces have the same mappings at the same addresses, and the same heap.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn is_mapped_as(&self, other: &Space) -> Result<bool> {
        let (map, heap) = {
            let guard = self.table.lock();
            let map = guard.map.try_clone(|region| Some(region.value.clone()));
            (map.map_err(|_| Errno::ENOMEM)?, (guard.heap_start, guard.heap_end))
        };
        let guard = other.table.lock();
        Ok(map.len() == guard.map.len()
            && heap == (guard.heap_start, guard.heap_end)
            && map
                .iter()
                .zip(guard.map.iter())
                .all(|(a, b)| a.start == b.start && a.end == b.end && is_alike(&a.value, &b.value)))
    }

    /// Whether nothing that is mapped can be changed by others: no writable shared mapping, and no
    /// segment, which others attach.
    pub fn is_its_own(&self) -> bool {
        self.table.lock().map.iter().all(|region| {
            let mapping = &region.value;
            let is_written = mapping.is_shared() && mapping.flags.contains(RegionFlags::MAY_WRITE);
            !is_written && mapping.attachment().is_none()
        })
    }

    /// Whether a mapping shows the page cache with this number.
    pub fn shows(&self, page_cache: u64) -> bool {
        self.table.lock().map.iter().any(|region| {
            region
                .value
                .backing
                .as_ref()
                .is_some_and(|backing| backing.page_cache.id() == page_cache)
        })
    }

    /// Makes the page caches that it shows tell when their files are removed
    /// ([`crate::recycle::pools::AnyPool::forget_page_cache`]).
    pub fn remember_contents(&self) {
        for region in self.table.lock().map.iter() {
            if let Some(backing) = &region.value.backing {
                backing.page_cache.remember();
            }
        }
    }

    /// The region of the first stack, if it is there.
    pub fn stack_range(&self) -> Option<Range<usize>> {
        let guard = self.table.lock();
        let top = guard.layout.stack_top;
        guard.map.find(top - 1).map(|stack| stack.start..stack.end)
    }

    /// Returns the addresses of all private pages, in order, or `None` if one of them is large.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn private_pages(&self) -> Result<Option<Vec<usize>>> {
        let mut pages = Vec::new();
        let (mut lacking, mut large) = (false, false);
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        for region in inner.map.iter() {
            edit.visit(region.start..region.end, &mut |address, page| {
                if page.kind != PageKind::Private {
                    return;
                }
                large |= page.large;
                lacking |= pages.make_room(1).is_err();
                if !lacking {
                    pages.push(address);
                }
            });
        }
        drop(edit);
        drop(guard);
        if lacking {
            return Err(Errno::ENOMEM);
        }
        Ok((!large).then_some(pages))
    }

    /// Calls `differs` for each page that is private in one of the two spaces and whose content is
    /// not the same in both. Returns false if `differs` does, or if a page cannot be compared.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn compare(&self, other: &Space, differs: &mut Differs<'_>) -> Result<bool> {
        let (Some(mut pages), Some(more)) = (self.private_pages()?, other.private_pages()?) else {
            return Ok(false);
        };
        pages.make_room(more.len())?;
        pages.extend(more);
        pages.sort_unstable();
        pages.dedup();
        // Bytes and not pages, which would pass over the stack.
        let mut contents = Vec::new();
        contents.make_room_exact(2 * PAGE)?;
        contents.resize(2 * PAGE, 0);
        let (contents, _) = contents.as_chunks_mut::<PAGE>();
        let [mine, theirs] = contents else { return Ok(false) };
        for address in pages {
            for (space, content) in [(self, &mut *mine), (other, &mut *theirs)] {
                if !space.read_for_dump(address, content) {
                    content.fill(0);
                }
            }
            if mine != theirs && !differs(address, mine, theirs) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
