//! Pages that are mapped one by one: device registers, kernel stacks, large memory of the heap, the
//! frame table if it was extended.
//!
//! Device registers appear at [`DEVICES`] + physical address, uncached; they are mapped on demand
//! and never unmapped. Mapping a range twice is harmless. The rest is in the area at
//! [`VMAP`](crate::layout::VMAP).

use core::ptr::NonNull;

use super::build::root;
use super::frames::{count, zeroed_frame};
use crate::frames::Frame;
use crate::layout::{DEVICES, PAGE_SIZE};
use crate::sync::SpinLock;

const DIRECT_MAP: u64 = crate::layout::DIRECT_MAP as u64;

const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const WRITE_THROUGH: u64 = 1 << 3;
const NO_CACHE: u64 = 1 << 4;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

static LOCK: SpinLock<()> = SpinLock::new(());

/// Returns the page-table entry for `address` at level 1, and makes the tables above it as needed.
/// `None` if memory is exhausted or a large page is in the way.
fn entry(address: u64) -> Option<*mut u64> {
    let mut table = root();
    for level in (1..4).rev() {
        let index = address >> (12 + 9 * level) & 511;
        let slot = (DIRECT_MAP + table + index * 8) as *mut u64;
        // SAFETY: a page table of the kernel half, in the direct map; changes are under LOCK.
        let value = unsafe { slot.read_volatile() };
        if value & PRESENT == 0 {
            let new = zeroed_frame()?;
            // SAFETY: as above; the new table is zeroed and not in use yet.
            unsafe { slot.write_volatile(new | PRESENT | WRITE) };
            table = new;
        } else if value & LARGE != 0 {
            return None;
        } else {
            table = value & ADDRESS;
        }
    }
    Some((DIRECT_MAP + table + (address >> 12 & 511) * 8) as *mut u64)
}

/// Maps `length` bytes of device memory at physical address `start` and returns their address. The
/// mapping is uncached and never removed. `None` if memory is exhausted or the range is not
/// plausible.
pub(crate) fn map_device(start: u64, length: usize) -> Option<NonNull<u8>> {
    let end = start.checked_add(length as u64)?;
    if end > 1 << 46 {
        return None;
    }
    let _one = LOCK.lock();
    for page in (start & !0xfff..end).step_by(4096) {
        let slot = entry(DEVICES as u64 + page)?;
        let value = page | PRESENT | WRITE | WRITE_THROUGH | NO_CACHE | GLOBAL | NO_EXECUTE;
        // SAFETY: the entry is for this device page only; writing it again changes nothing.
        unsafe { slot.write_volatile(value) };
    }
    NonNull::new((DEVICES as u64 + start) as *mut u8)
}

/// Maps fresh frames at `bottom..bottom + length` for a kernel stack, content undefined. False if
/// memory is exhausted; pages mapped by then are left to [`unmap_stack`].
///
/// # Safety
/// Only the caller uses the addresses, nothing is mapped there, and no processor has TLB entries
/// for them.
pub(crate) unsafe fn map_stack(bottom: u64, length: usize) -> bool {
    (bottom..bottom + length as u64).step_by(PAGE_SIZE).all(|page| {
        let Some(frame) = Frame::allocate() else { return false };
        // SAFETY: the caller's promise.
        if unsafe { swap_page(page as usize, page_entry(frame.address())) }.is_none() {
            return false;
        }
        frame.into_number();
        count(1);
        true
    })
}

/// Unmaps what [`map_stack`] mapped and gives its frames back. Processors may still have TLB
/// entries for them.
///
/// # Safety
/// The stack is not used any more.
pub(crate) unsafe fn unmap_stack(bottom: u64, length: usize) {
    for page in (bottom..bottom + length as u64).step_by(PAGE_SIZE) {
        // SAFETY: the caller's promise.
        let old = unsafe { swap_page(page as usize, 0) };
        if let Some(number) = old.and_then(frame_of) {
            // SAFETY: this is the reference that the entry held.
            drop(unsafe { Frame::from_number(number) });
            count(-1);
        }
    }
}

/// Returns the entry that maps a frame's memory for the kernel.
pub(crate) fn page_entry(physical: u64) -> u64 {
    physical | PRESENT | WRITE | GLOBAL | NO_EXECUTE | 1 << 5 | 1 << 6
}

/// Returns the number of the frame that an entry maps.
pub(crate) fn frame_of(entry: u64) -> Option<u32> {
    (entry & PRESENT != 0).then_some(((entry & ADDRESS) >> 12) as u32)
}

/// Replaces the entry for the page at `address`, and returns the old one. `None`: memory for the
/// tables above it is exhausted; nothing has changed.
///
/// # Safety
/// The page is the caller's, between [`VMAP`](crate::layout::VMAP) and
/// [`VMAP_END`](crate::layout::VMAP_END). If it was mapped, it is not used any more, and it is
/// mapped anew only when no processor has a TLB entry for it.
pub(crate) unsafe fn swap_page(address: usize, new: u64) -> Option<u64> {
    let _one = LOCK.lock();
    let slot = entry(address as u64)?;
    // SAFETY: a page table of the kernel half, in the direct map; changes are under LOCK.
    unsafe {
        let old = slot.read_volatile();
        slot.write_volatile(new);
        Some(old)
    }
}

/// Maps a frame at the page at `address` for ever: the given frame, or a new zeroed one. A page
/// that is mapped already stays as it is. False: memory is exhausted.
///
/// # Safety
/// The page is the caller's, between [`VMAP`](crate::layout::VMAP) and
/// [`VMAP_END`](crate::layout::VMAP_END), and a given frame is never freed.
pub(crate) unsafe fn map_for_good(address: usize, physical: Option<u64>) -> bool {
    let _one = LOCK.lock();
    let Some(slot) = entry(address as u64) else { return false };
    // SAFETY: a page table of the kernel half, in the direct map; changes are under LOCK.
    unsafe {
        if slot.read_volatile() & PRESENT == 0 {
            let Some(physical) = physical.or_else(zeroed_frame) else { return false };
            slot.write_volatile(page_entry(physical));
        }
    }
    true
}
