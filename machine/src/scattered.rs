//! Large memory for the heap made of scattered frames.
//!
//! A table that outgrows a page needs contiguous frames. When memory is fragmented there are none,
//! and the heap comes here: the frames are taken one by one and mapped side by side in an area of
//! the kernel's half, with an unmapped page after them.
//!
//! The area is divided into shelves, one for each power of two of pages, and a shelf into places of
//! that size, each used whole. A place that is freed is unmapped at once and its frames are free,
//! but processors may still have TLB entries for it. So the place is *dirty*: it is used again only
//! after every processor has flushed its TLB entries of the kernel's pages. That happens when a
//! shelf has neither fresh nor clean places left, for all its dirty ones at a time. (No code
//! follows a pointer into freed memory; a speculative read through a stale TLB entry has no
//! effect.) The lists of places are kept in the places' own first page-table entries, which say
//! "not present".
//!
//! Lock order: a shelf's lock, then that of the kernel's page tables, then the frame allocator's. A
//! processor that waits for a shelf's lock answers shootdowns meanwhile.
//!
//! Roads not taken: freeing the virtual range at once (a shootdown for each table that grows), and
//! segmented tables everywhere (hash tables and vectors of crates need contiguous memory).

use crate::frames::Frame;
use crate::ipi::{self, TlbFlush};
use crate::kernel_tables::{frame_of, page_entry, swap_page};
use crate::layout::{FRAME_TABLE, PAGE_SIZE, SCATTERED};
use crate::sync::SpinLock;

/// Where the area begins.
const START: usize = SCATTERED;
/// Bytes of a shelf's addresses.
const SHELF: usize = 16 << 30;
/// The smallest and the largest place: 2 pages, 128 MiB.
const SMALLEST: u32 = 1;
const LARGEST: u32 = 15;
const COUNT: usize = (LARGEST - SMALLEST + 1) as usize;
/// Where the area ends.
const END: usize = START + COUNT * SHELF;
const _: () = assert!(END <= FRAME_TABLE);

/// The places of one size. Places are numbered from 1; 0 ends a list.
struct Shelf {
    /// How many were ever used.
    used: u64,
    /// Places for which no processor has TLB entries.
    clean: u64,
    /// Places for which a processor may have TLB entries.
    dirty: u64,
}

static SHELVES: [SpinLock<Shelf>; COUNT] =
    [const { SpinLock::new(Shelf { used: 0, clean: 0, dirty: 0 }) }; COUNT];

/// Returns the shelf for so many pages.
fn shelf_for(pages: usize) -> Option<usize> {
    let order = pages.checked_next_power_of_two()?.trailing_zeros().max(SMALLEST);
    (order <= LARGEST).then_some((order - SMALLEST) as usize)
}

/// Returns the bytes from one place of a shelf to the next: its pages and the page that is never
/// mapped.
fn stride(shelf: usize) -> usize {
    ((1 << (shelf as u32 + SMALLEST)) + 1) * PAGE_SIZE
}

fn address(shelf: usize, place: u64) -> usize {
    START + shelf * SHELF + (place as usize - 1) * stride(shelf)
}

/// Whether an address is in this area.
#[inline]
pub(crate) fn holds(address: usize) -> bool {
    (START..END).contains(&address)
}

/// Returns an entry that says "not present" and carries a number.
const fn link(place: u64) -> u64 {
    place << 1
}

impl Shelf {
    /// Takes a place for which no processor has TLB entries.
    fn take(&mut self, shelf: usize) -> Option<u64> {
        if self.clean == 0 && (self.used as usize + 1) * stride(shelf) <= SHELF {
            self.used += 1;
            return Some(self.used);
        }
        if self.clean == 0 && self.dirty != 0 {
            ipi::shootdown(u64::MAX, TlbFlush::Global);
            self.clean = core::mem::take(&mut self.dirty);
        }
        let place = self.clean;
        if place == 0 {
            return None;
        }
        // SAFETY: the first page of a place on a list is not mapped, and the place is ours.
        self.clean = unsafe { swap_page(address(shelf, place), 0) }? >> 1;
        Some(place)
    }
}

/// Allocates memory of so many pages, content undefined. `None`: memory is exhausted down to the
/// kernel's reserve, or more than 128 MiB were asked for.
pub(crate) fn allocate(pages: usize) -> Option<*mut u8> {
    let shelf = shelf_for(pages)?;
    let place = SHELVES[shelf].lock().take(shelf)?;
    let start = address(shelf, place);
    for page in 0..pages {
        let mapped = Frame::allocate().and_then(|frame| {
            let entry = page_entry(frame.address());
            // SAFETY: only the caller uses the place, and nothing is mapped in it.
            unsafe { swap_page(start + page * PAGE_SIZE, entry) }?;
            frame.into_number();
            Some(())
        });
        if mapped.is_none() {
            give_back(shelf, place, page);
            return None;
        }
    }
    Some(start as *mut u8)
}

/// Frees what [`allocate`] returned.
///
/// # Safety
/// `pages` is the same number, and the memory is not used any more.
pub(crate) unsafe fn free(memory: *mut u8, pages: usize) {
    let Some(shelf) = shelf_for(pages) else { return };
    let place = (memory as usize - START - shelf * SHELF) / stride(shelf) + 1;
    give_back(shelf, place as u64, pages);
}

/// Unmaps the first `pages` pages of an unused place, and puts the place on the dirty list.
fn give_back(shelf: usize, place: u64, pages: usize) {
    let start = address(shelf, place);
    for page in 0..pages {
        // SAFETY: the place is not used.
        let entry = unsafe { swap_page(start + page * PAGE_SIZE, 0) };
        if let Some(number) = entry.and_then(frame_of) {
            // SAFETY: this is the reference that the entry held.
            drop(unsafe { Frame::from_number(number) });
        }
    }
    let mut lists = SHELVES[shelf].lock();
    // SAFETY: the first page is not mapped, and the place is ours until it is on the list.
    if unsafe { swap_page(start, link(lists.dirty)) }.is_some() {
        lists.dirty = place;
    }
    // Without memory for the tables above it, the place was never used: its addresses are lost for
    // good.
}
