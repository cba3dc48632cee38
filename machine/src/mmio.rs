//! Device memory and other pages of the kernel half that are mapped one by one.
//!
//! Device registers appear at [`DEVICES`] + physical address, uncached; they are mapped on demand
//! and never unmapped. Mapping a range twice is harmless. Kernel stacks are mapped in the area at
//! [`VMAP`](crate::boot::VMAP), as is large memory of the heap ([`crate::scattered`]). The
//! top-level entries of both areas exist from boot on, so every page table made later shares them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::boot::{self, DIRECT_MAP, MemoryKind};
use crate::frames::Frame;
use crate::layout::PAGE_SIZE;
use crate::nvm;
use crate::sync::SpinLock;

/// The virtual address of physical address 0 in the mapping of devices.
pub(crate) const DEVICES: u64 = 0xffff_d000_0000_0000;

const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const WRITE_THROUGH: u64 = 1 << 3;
const NO_CACHE: u64 = 1 << 4;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

static LOCK: SpinLock<()> = SpinLock::new(());

/// Frames from the allocator that are in use here.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Returns a zeroed frame: from the memory set aside at boot, then from the allocator.
pub(crate) fn frame() -> Option<u64> {
    crate::boot::early_frame().or_else(|| {
        let new = Frame::allocate_zeroed()?;
        KEPT.fetch_add(1, Ordering::Relaxed);
        Some(u64::from(new.into_number()) << 12)
    })
}

/// Returns how many frames of the allocator's are used for kernel stacks (in use and kept) and for
/// the page tables of memory that is mapped page by page or was found after boot; those tables are
/// never freed.
pub fn kept_frames() -> usize {
    KEPT.load(Ordering::Relaxed)
}

/// Returns the page-table entry for `address` at level 1, and makes the tables above it as needed.
/// `None` if memory is exhausted or a large page is in the way.
fn entry(address: u64) -> Option<*mut u64> {
    let mut table = crate::boot::kernel_root();
    for level in (1..4).rev() {
        let index = address >> (12 + 9 * level) & 511;
        let slot = (DIRECT_MAP + table + index * 8) as *mut u64;
        // SAFETY: a page table of the kernel half, in the direct map; changes are under LOCK.
        let value = unsafe { slot.read_volatile() };
        if value & PRESENT == 0 {
            let new = frame()?;
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
fn map(start: u64, length: usize) -> Option<NonNull<u8>> {
    let end = start.checked_add(length as u64)?;
    if end > 1 << 46 {
        return None;
    }
    let _one = LOCK.lock();
    for page in (start & !0xfff..end).step_by(4096) {
        let slot = entry(DEVICES + page)?;
        let value = page | PRESENT | WRITE | WRITE_THROUGH | NO_CACHE | GLOBAL | NO_EXECUTE;
        // SAFETY: the entry is for this device page only; writing it again changes nothing.
        unsafe { slot.write_volatile(value) };
    }
    NonNull::new((DEVICES + start) as *mut u8)
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
        if unsafe { swap_kernel_page(page as usize, kernel_page(frame.address())) }.is_none() {
            return false;
        }
        frame.into_number();
        KEPT.fetch_add(1, Ordering::Relaxed);
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
        let old = unsafe { swap_kernel_page(page as usize, 0) };
        if let Some(number) = old.and_then(frame_of) {
            // SAFETY: this is the reference that the entry held.
            drop(unsafe { Frame::from_number(number) });
            KEPT.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Returns the entry that maps a frame's memory for the kernel.
pub(crate) fn kernel_page(physical: u64) -> u64 {
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
pub(crate) unsafe fn swap_kernel_page(address: usize, new: u64) -> Option<u64> {
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
            let Some(physical) = physical.or_else(frame) else { return false };
            slot.write_volatile(kernel_page(physical));
        }
    }
    true
}

macro_rules! access {
    ($read:ident, $write:ident, $type:ty, $bits:literal) => {
        #[doc = concat!("Reads the ", $bits, "-bit register at `offset`; all ones outside.")]
        #[inline]
        pub fn $read(&self, offset: usize) -> $type {
            match self.place::<$type>(offset) {
                // SAFETY: `place` checked that the access is inside the mapping and aligned.
                Some(place) => unsafe { place.as_ptr().read_volatile() },
                None => <$type>::MAX,
            }
        }

        #[doc = concat!("Writes the ", $bits, "-bit register at `offset`; nothing happens outside.")]
        #[inline]
        pub fn $write(&self, offset: usize, value: $type) {
            if let Some(place) = self.place::<$type>(offset) {
                // SAFETY: `place` checked that the access is inside the mapping and aligned.
                unsafe { place.as_ptr().write_volatile(value) }
            }
        }
    };
}

/// A block of device registers with bounds-checked, volatile access. An access outside of the block
/// does what it does in hardware: reads return all ones, writes do nothing. So a device that claims
/// less than its driver expects is no danger to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: device registers can be used from any CPU; each access is one volatile instruction.
unsafe impl Send for Registers {}
// SAFETY: as for Send.
unsafe impl Sync for Registers {}

impl Registers {
    /// Maps the registers at physical address `start`. `None` as for [`map`], and if the range is
    /// memory: the addresses that a device or the command line gives may be wrong.
    pub fn map(start: u64, length: usize) -> Option<Registers> {
        let end = start.checked_add(length as u64)?;
        let ranges = boot::info().memory.iter().filter(|range| range.kind != MemoryKind::Reserved);
        let areas = nvm::areas().iter().map(|area| (area.address(), area.address() + area.size()));
        let mut memory = ranges.map(|range| (range.start, range.end)).chain(areas);
        if memory.any(|(first, last)| start < last && first < end) {
            return None;
        }
        map(start, length).map(|base| Registers { base, length })
    }

    /// Returns the address of a register; `None` outside the block or if it is misaligned.
    #[inline]
    fn place<T>(&self, offset: usize) -> Option<NonNull<T>> {
        if offset.checked_add(size_of::<T>())? > self.length {
            return None;
        }
        // SAFETY: the offset is inside the mapping, as checked above.
        let place = unsafe { self.base.add(offset) }.cast::<T>();
        place.is_aligned().then_some(place)
    }

    access!(read8, write8, u8, "8");
    access!(read16, write16, u16, "16");
    access!(read, write, u32, "32");
}
