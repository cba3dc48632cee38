//! Reads `hvm_start_info` (xen/include/public/arch-x86/hvm/start_info.h), through the boot tables'
//! map of the first 4 GiB.

use core::ops::Range;

use arrayvec::ArrayVec;

use super::cmdline;
use super::info::{BootInfo, MemoryKind, MemoryRange};
use crate::layout::{DIRECT_MAP, KERNEL, LARGE_PAGE_SIZE};
use crate::sync::SpinLock;

const MAGIC: u32 = 0x336e_c578;
const BOOT_LIMIT: u64 = 1 << 32;
/// Above the memory that firmware and QEMU write to at a reset.
const PSEUDO: u64 = 64 << 20;
const LARGE: u64 = LARGE_PAGE_SIZE as u64;

/// Returns bytes of physical memory below 4 GiB; only while the boot tables are in use.
pub(crate) fn firmware_bytes(address: u64, length: usize) -> Option<&'static [u8]> {
    let end = address.checked_add(length as u64)?;
    if address == 0 || end > BOOT_LIMIT {
        return None;
    }
    // SAFETY: the boot tables map the first 4 GiB at DIRECT_MAP. Any bytes may lie there, and bytes
    // have no invalid values.
    Some(unsafe {
        core::slice::from_raw_parts((DIRECT_MAP + address as usize) as *const u8, length)
    })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .map_or(0, |b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A list of disjoint, sorted ranges; later entries win where they overlap.
struct Map(ArrayVec<MemoryRange, 128>);

impl Map {
    /// Gives `start..end` the kind `kind`, cutting earlier ranges that overlap.
    fn set(&mut self, start: u64, end: u64, kind: MemoryKind) {
        if start >= end {
            return;
        }
        let mut after: ArrayVec<MemoryRange, 128> = ArrayVec::new();
        for old in &self.0 {
            for (s, e) in [(old.start, old.end.min(start)), (old.start.max(end), old.end)] {
                if s < e {
                    let _ = after.try_push(MemoryRange { start: s, end: e, kind: old.kind });
                }
            }
        }
        let _ = after.try_push(MemoryRange { start, end, kind });
        after.sort_unstable_by_key(|range| range.start);
        self.0 = after;
    }

    /// Marks `start..end` of usable memory as the kernel's.
    fn take(&mut self, start: u64, end: u64) {
        let (start, end) = (start & !0xfff, (end + 0xfff) & !0xfff);
        let usable: ArrayVec<MemoryRange, 128> =
            self.0.iter().filter(|r| r.kind == MemoryKind::Usable).copied().collect();
        for range in usable {
            self.set(start.max(range.start), end.min(range.end), MemoryKind::Kernel);
        }
    }
}

unsafe extern "C" {
    static __image_start: u8;
    static __image_end: u8;
}

/// Returns the physical addresses of the kernel image.
pub(crate) fn image() -> (u64, u64) {
    let physical = |address: *const u8| (address as usize - KERNEL) as u64;
    (physical(&raw const __image_start), physical(&raw const __image_end))
}

/// Reads the loader's data. `early` returns how many bytes to set aside for page tables and the
/// like; their range is returned.
pub(crate) fn read(address: u64, early: impl Fn(u64) -> u64) -> Option<(BootInfo, (u64, u64))> {
    let header = firmware_bytes(address, 56)?;
    if half(header, 0) != MAGIC {
        return None;
    }
    let (image_start, image_end) = image();
    let mut map = memory_map(header)?;
    let ram: u64 =
        map.0.iter().filter(|r| r.kind == MemoryKind::Usable).map(|r| r.end - r.start).sum();
    // The first MiB: the start of other CPUs, and data that firmware still keeps there.
    map.take(0, 1 << 20);
    map.take(image_start, image_end);

    let modules = modules(header, &mut map);
    let command_line = command_line(word(header, 24));
    let rsdp = Some(word(header, 32)).filter(|address| *address != 0);

    let pseudo_nvm = cmdline::find(command_line, "pseudo_nvm").flatten().and_then(|size| {
        let free = |range: &MemoryRange| range.kind == MemoryKind::Usable;
        let usable = map.0.iter().copied().filter(free).map(|range| range.start..range.end);
        place_pseudo(size, usable)
    });
    if let Some(range) = &pseudo_nvm {
        map.set(range.start, range.end, MemoryKind::Persistent);
    }

    let size = early(ram);
    let place = map
        .0
        .iter()
        .find(|r| {
            r.kind == MemoryKind::Usable && r.end - r.start >= size && r.start + size <= BOOT_LIMIT
        })
        .map(|r| (r.start, r.start + size))?;
    map.take(place.0, place.1);
    let modules = SpinLock::new(modules);
    Some((BootInfo { memory: map.0, command_line, modules, rsdp, pseudo_nvm }, place))
}

/// Reads the loader's memory map, which has one from version 1 on.
fn memory_map(header: &[u8]) -> Option<Map> {
    let mut map = Map(ArrayVec::new());
    if half(header, 4) >= 1 {
        let count = (half(header, 48) as usize).min(128);
        let table = firmware_bytes(word(header, 40), count * 24)?;
        // RAM is rounded inwards to whole pages; every other kind is rounded outwards and wins over
        // RAM.
        for pass in [true, false] {
            for entry in table.chunks_exact(24) {
                let (start, size) = (word(entry, 0), word(entry, 8));
                let Some(end) = start.checked_add(size).filter(|end| *end <= 1 << 46) else {
                    continue;
                };
                let kind = match half(entry, 16) {
                    1 => MemoryKind::Usable,
                    3 => MemoryKind::Acpi,
                    7 => MemoryKind::Persistent,
                    _ => MemoryKind::Reserved,
                };
                if pass && kind == MemoryKind::Usable {
                    map.set((start + 0xfff) & !0xfff, end & !0xfff, kind);
                } else if !pass && kind != MemoryKind::Usable {
                    map.set(start & !0xfff, (end + 0xfff) & !0xfff, kind);
                }
            }
        }
    }
    Some(map)
}

/// Reads the list of modules and takes their memory out of the map. A module that is not in memory,
/// or overlaps the kernel or another one, is left out.
fn modules(header: &[u8], map: &mut Map) -> ArrayVec<&'static [u8], 8> {
    let (image_start, image_end) = image();
    let mut modules: ArrayVec<&'static [u8], 8> = ArrayVec::new();
    let count = half(header, 12);
    if count <= 8
        && let Some(list) = firmware_bytes(word(header, 16), count as usize * 32)
    {
        for entry in list.chunks_exact(32) {
            let (start, size) = (word(entry, 0), word(entry, 8));
            let inside = |r: &MemoryRange| {
                start >= r.start && start + size <= r.end && r.kind != MemoryKind::Reserved
            };
            let sane = size != 0 && start.checked_add(size).is_some_and(|end| end <= BOOT_LIMIT);
            // A module's memory goes to the allocator in the end, so nothing else may overlap it.
            let apart = |first: u64, last: u64| start >= last || start + size <= first;
            let alone = |other: &&[u8]| {
                let first = (other.as_ptr() as usize - DIRECT_MAP) as u64;
                apart(first, first + other.len() as u64)
            };
            if sane
                && apart(image_start, image_end)
                && modules.iter().all(alone)
                && map.0.iter().any(inside)
            {
                map.take(start, start + size);
                if let Some(bytes) = firmware_bytes(start, size as usize) {
                    modules.push(bytes);
                }
            }
        }
    }
    modules
}

/// Copies the command line out of the loader's memory, which is reused later.
fn command_line(address: u64) -> &'static str {
    use core::cell::UnsafeCell;
    struct Line(UnsafeCell<[u8; 4096]>);
    // SAFETY: written once, here, by the only CPU.
    unsafe impl Sync for Line {}
    static LINE: Line = Line(UnsafeCell::new([0; 4096]));

    let mut length = 0;
    while length < 4095
        && let Some(&[byte]) = firmware_bytes(address.wrapping_add(length as u64), 1)
        && byte != 0
        && address != 0
    {
        // SAFETY: within the buffer; nothing reads it yet.
        unsafe { (*LINE.0.get())[length] = byte };
        length += 1;
    }
    // SAFETY: no more writes from here on.
    let bytes = unsafe { &(&*LINE.0.get())[..length] };
    match core::str::from_utf8(bytes) {
        Ok(text) => text.trim(),
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or("").trim(),
    }
}

/// Chooses a place among usable ranges for pseudo non-volatile memory ([`crate::nvm`]) of the size
/// that the command line names.
///
/// The place must be the same at each boot, and nothing may write to it in between: firmware uses
/// low memory and the top of it, QEMU puts the initramfs at the top and the kernel near the bottom.
/// So it begins at the first large page at or above [`PSEUDO`] that leaves room for all of it.
fn place_pseudo(size: &str, usable: impl Iterator<Item = Range<u64>>) -> Option<Range<u64>> {
    let size = bytes(size)?.checked_next_multiple_of(LARGE).filter(|&size| size > 0)?;
    usable
        .map(|range| (range.start.max(PSEUDO).next_multiple_of(LARGE), range.end))
        .find(|(start, end)| end.saturating_sub(*start) >= size)
        .map(|(start, _)| start..start + size)
}

/// Parses `64M` and the like.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
