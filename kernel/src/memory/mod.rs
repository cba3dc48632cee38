//! Memory of programs: spaces, regions, faults.
//!
//! A [`Space`] is a page table and a map of regions; a region says what is mapped in a range and
//! what the program may do there ([`Mapping`]). A page enters the page table only when it is
//! touched (or asked for): the fault path ([`fault`]) takes zeroed frames, pages of the page cache
//! (a [`PageCache`](crate::page_cache::cache::PageCache)), or copies of shared pages. Fork shares whole
//! page-table pages and copies the map; pages and page tables are copied when they are written.
//!
//! | file | contents |
//! |---|---|
//! | [`space`] | the space itself: making, forking, loading, counting |
//! | [`region`] | what a region holds |
//! | [`layout`] | the addresses of stack, heap and mappings, random or fixed |
//! | [`fault`] | what happens at a page fault |
//! | `attach` | text on non-volatile memory, entered in the page table when it is mapped |
//! | [`large`] | when a program gets large pages |
//! | [`map`], [`remap`], [`advise`], [`lock`] | mmap and its family |
//! | [`foreign`] | reading and writing another space |
//! | [`keep`], [`empty`] | spaces kept for the next start of their program, or for any process |
//! | [`regions`] | regions kept without their space |
//! | [`everyone`] | all spaces, for truncation of mapped files |
//! | [`pressure`] | what is done when frames run out |
//! | [`supervisor`], [`sites`] | the privilege level of a space's programs, patched call sites in ring 0 |
//! | [`show`] | the contents of `/proc/PID/maps`, `smaps` and `statm` |
//!
//! Lock order: a space's lock (in its [`PageTable`](machine::paging::PageTable)), then a page
//! cache's lock, then the frame allocator's. A space's lock is a spin lock, so nothing sleeps under
//! it: pages are read from disk with the lock released, and the region is looked up again. An
//! unmapped region may hold the last reference to an open file, whose release may sleep, so removed
//! regions are dropped after the lock is released. Only one space is locked at a time.
//!
//! No global lock is on the path of fork, exec, fault or exit: the list of all spaces has one part
//! for each processor.
//!
//! Road not taken: Linux' reverse maps (`i_mmap`, `anon_vma`). There is no swap, so no operation
//! has to find an anonymous page from its frame. Truncating a mapped file looks through all spaces
//! instead, which slows down that rare operation and not each fork.

pub mod advise;
pub mod all_spaces;
pub mod deferred_free;
pub mod fault;
pub mod foreign;
pub mod large;
pub mod layout;
pub mod lock;
pub mod map;
pub mod region;
pub mod remap;
pub mod show;
pub mod space;

pub use fault::{FaultResult, Touch, handle_fault, text_faults, user_copy_fault};
pub use foreign::FutexPlace;
pub use layout::Layout;
pub use map::{MapRequest, Place};
pub use region::{Backing, Mapping, Protection, RegionFlags};
pub use show::{Shown, ShownPages};
pub use space::{CURRENT, Limits, Space, current, leave, try_current};

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use machine::sync::Lazy;

/// Size of a page in bytes.
pub const PAGE: usize = machine::layout::PAGE_SIZE;
/// The end of the program's half.
pub const USER_END: usize = machine::layout::USER_END;

/// The lowest address that a program may map (`vm.mmap_min_addr`).
pub const LOWEST: usize = 0x10000;

/// The largest number of regions in a space (`vm.max_map_count`).
static MOST_REGIONS: AtomicU32 = AtomicU32::new(65530);

/// The largest number of regions that a space may get (`vm.max_map_count`).
pub fn most_regions() -> usize {
    MOST_REGIONS.load(Relaxed) as usize
}

/// Sets [`most_regions`]. A space that has more regions keeps them.
pub fn set_most_regions(most: u32) {
    MOST_REGIONS.store(most, Relaxed);
}

/// `address` rounded down to a whole page.
pub const fn page_down(address: usize) -> usize {
    address & !(PAGE - 1)
}

/// Whether new programs get random addresses: not if `norandmaps` is on the command line.
pub fn randomizes() -> bool {
    static RANDOMIZES: Lazy<bool> = Lazy::new(|| !machine::boot::flag("norandmaps"));
    *RANDOMIZES
}

/// `length` rounded up to whole pages; `None` if that overflows.
pub fn page_up(length: usize) -> Option<usize> {
    length.checked_next_multiple_of(PAGE)
}
