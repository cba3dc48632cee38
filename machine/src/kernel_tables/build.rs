//! The tables as they are built at boot: the direct map (2 MiB and 1 GiB pages, not executable),
//! the image page by page (text read-only and executable, constants read-only, data not
//! executable), and empty tables under the top-level entries of the areas that are filled later.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_frames::Refusal;
use x86_64::registers::control::Cr3;

use super::frames::{early_frame, zeroed_frame};
use crate::cpu::features;
use crate::layout::{DEVICES, VMAP};
use crate::loader::{MemoryKind, MemoryRange};

const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const DIRECT_MAP: u64 = crate::layout::DIRECT_MAP as u64;
const KERNEL: u64 = crate::layout::KERNEL as u64;

const MIB2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

static ROOT: AtomicU64 = AtomicU64::new(0);

/// Returns the physical address of the kernel's own top-level table; every space has its upper
/// half.
pub(super) fn root() -> u64 {
    ROOT.load(Ordering::Relaxed)
}

fn frame() -> u64 {
    early_frame().expect("the memory set aside for page tables is used up")
}

/// Returns the table below entry `index` of `table`; if missing, makes it of a zeroed frame from
/// `new`.
fn below_or(table: u64, index: u64, new: fn() -> Option<u64>) -> Option<u64> {
    let slot = (DIRECT_MAP + table + index * 8) as *mut u64;
    // SAFETY: this is a table made here, in the direct map, and nothing else changes it: only this
    // CPU runs, or the entry is for memory that only the caller of `map_late` knows of.
    unsafe {
        if slot.read_volatile() & PRESENT == 0 {
            slot.write_volatile(new()? | PRESENT | WRITE);
        }
        Some(slot.read_volatile() & ADDRESS)
    }
}

/// Returns the table below entry `index` of `table`, made if missing.
fn below(table: u64, index: u64) -> u64 {
    below_or(table, index, || Some(frame())).expect("a frame or a panic")
}

fn set(table: u64, index: u64, value: u64) {
    // SAFETY: as for `below`.
    unsafe { ((DIRECT_MAP + table + index * 8) as *mut u64).write(value) };
}

fn index(address: u64, level: u32) -> u64 {
    address >> (12 + 9 * (level - 1)) & 511
}

/// Maps physical `start..end` (rounded out to 2 MiB) into the direct map.
fn map_direct(root: u64, start: u64, end: u64) {
    let _ = map_direct_or(root, start, end, || Some(frame()));
}

/// Like [`map_direct`], with frames for tables from `new`; `None` when `new` has no more frames.
fn map_direct_or(root: u64, start: u64, end: u64, new: fn() -> Option<u64>) -> Option<()> {
    let flags = PRESENT | WRITE | LARGE | GLOBAL | NO_EXECUTE;
    let (mut at, end) = (start & !(MIB2 - 1), (end + MIB2 - 1) & !(MIB2 - 1));
    while at < end {
        let address = DIRECT_MAP + at;
        let pdpt = below_or(root, index(address, 4), new)?;
        if features().gigabyte_pages && at & (GIB - 1) == 0 && end - at >= GIB {
            set(pdpt, index(address, 3), at | flags);
            at += GIB;
        } else {
            let directory = below_or(pdpt, index(address, 3), new)?;
            set(directory, index(address, 2), at | flags);
            at += MIB2;
        }
    }
    Some(())
}

/// Adds memory that was found while the machine runs, in whole large pages, to the direct map.
/// Refused when memory for tables is exhausted, or when no kernel table exists for the addresses in
/// every space: only root entries that exist since boot are in every space.
///
/// # Safety
/// Nothing else is mapped there, and no other caller is in this function meanwhile.
pub(crate) unsafe fn map_late(start: u64, end: u64) -> Result<(), Refusal> {
    let root = root();
    let (first, last) = (index(DIRECT_MAP + start, 4), index(DIRECT_MAP + end - 1, 4));
    // SAFETY: the kernel's root, in the direct map.
    let is_there = |at: u64| unsafe {
        ((DIRECT_MAP + root + at * 8) as *const u64).read_volatile() & PRESENT != 0
    };
    if !(first..=last).all(is_there) {
        return Err(Refusal::Beyond);
    }
    map_direct_or(root, start, end, zeroed_frame).ok_or(Refusal::Memory)
}

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __image_end: u8;
}

fn map_image(root: u64, start: *const u8, end: *const u8, flags: u64) {
    for page in (start as u64 & !0xfff..end as u64).step_by(4096) {
        let directory = below(below(root, index(page, 4)), index(page, 3));
        let table = below(directory, index(page, 2));
        set(table, index(page, 1), (page - KERNEL) | PRESENT | GLOBAL | flags);
    }
}

/// Builds the tables and changes to them: for the ranges of the memory map, and for `areas` of
/// non-volatile memory, which may be in none of these.
pub(crate) fn build(memory: &[MemoryRange], areas: impl Iterator<Item = Range<u64>>) {
    let root = frame();
    let mut last = (0, 0);
    for range in memory {
        if matches!(range.kind, MemoryKind::Reserved) {
            continue;
        }
        // Adjacent ranges are mapped as one, so that large pages span kinds of RAM.
        if range.start == last.1 {
            last.1 = range.end;
        } else {
            map_direct(root, last.0, last.1);
            last = (range.start, range.end);
        }
    }
    map_direct(root, last.0, last.1);
    for area in areas {
        map_direct(root, area.start, area.end);
    }
    map_image(root, &raw const __text_start, &raw const __text_end, 0);
    map_image(root, &raw const __rodata_start, &raw const __rodata_end, NO_EXECUTE);
    map_image(root, &raw const __data_start, &raw const __image_end, WRITE | NO_EXECUTE);
    // Top-level entries are copied into every space's table, so all of them must exist now.
    for area in [VMAP, DEVICES] {
        below(root, index(area as u64, 4));
    }
    ROOT.store(root, Ordering::Relaxed);
    activate();
}

/// Loads the kernel's own tables on this CPU.
pub(crate) fn activate() {
    let root = root();
    let frame =
        x86_64::structures::paging::PhysFrame::containing_address(x86_64::PhysAddr::new(root));
    // SAFETY: the tables map all the kernel's code, data, stacks and the direct map.
    unsafe { Cr3::write(frame, x86_64::registers::control::Cr3Flags::empty()) };
}

/// Copies the upper half of the kernel's root to the root of the boot tables, which other CPUs
/// start with: their stacks are mapped there.
///
/// # Safety
/// `boot_root` is the physical address of that root, and no processor uses it now.
pub(crate) unsafe fn share_half(boot_root: u64) {
    for at in 256..512 {
        // SAFETY: both are whole tables in the direct map; the caller's promise about the second.
        unsafe {
            let entry = ((DIRECT_MAP + root() + at * 8) as *const u64).read();
            ((DIRECT_MAP + boot_root + at * 8) as *mut u64).write(entry);
        }
    }
}
