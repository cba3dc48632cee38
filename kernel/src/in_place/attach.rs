//! Text on non-volatile memory, entered in the page table when it is mapped.
//!
//! The pages of a converted file that lie on non-volatile memory are entered in the page table when
//! they are mapped, without a fault, a frame or a read: as a large page or a shared table for 2
//! MiB, by an instruction or two for each page of an edge. So the first instruction of a program
//! runs with its whole text mapped, and a library is mapped the same way.
//!
//! Not every mapping is entered at once: the dynamic linker first maps a whole library for reading,
//! to reserve a gap for it, and maps its segments over that. A mapping that is neither executable
//! nor at a fixed address waits for its faults, which find the same pages. The fault path makes
//! private copies, as for any page of a file.

use alloc::sync::Arc;
use core::ops::Range;

use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::Edit;

use crate::memory::page::PAGE;
use crate::memory::region::{Backing, Mapping, Protection};

/// Enters the pages of `mapping`, which will be at `range`, where nothing is mapped, if that should
/// be done at once. Returns whether it should. `fixed`: the caller chose the address. Pages for
/// which memory is exhausted are left to faults.
#[inline]
pub fn enter(mapping: &Mapping, fixed: bool, range: Range<usize>, edit: &mut Edit<'_>) -> bool {
    let Some(place) = mapping.backing.as_ref().and_then(|backing| backing.page_cache.place())
    else {
        return false;
    };
    let protection = mapping.protection;
    let wanted = protection.contains(Protection::EXECUTE) || fixed;
    if !wanted
        || protection.is_empty()
        || protection.contains(Protection::WRITE)
        || mapping.is_shared()
    {
        return false;
    }
    let first = mapping.offset / PAGE as u64;
    let access = protection.access();
    for stretch in place.stretches(first, (range.len() / PAGE) as u64) {
        let at = range.start + (stretch.page - first) as usize * PAGE;
        let table = |page| {
            let shared = access.execute && access.read;
            if shared { place.text().table(stretch.text_page + page) } else { None }
        };
        if edit.attach(at, &stretch.extent, access, table).is_err() {
            break;
        }
    }
    true
}

/// The alignment at which a mapping of `backing` from `offset` on should begin: a large page for a
/// file whose text was placed for that.
pub fn alignment(backing: Option<&Arc<Backing>>, offset: u64) -> usize {
    let large = |backing: &Arc<Backing>| {
        backing.page_cache.place().is_some_and(|place| place.is_large()) && offset == 0
    };
    if backing.is_some_and(large) { LARGE_PAGE_SIZE } else { PAGE }
}
