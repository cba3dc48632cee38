//! Non-volatile memory: where it is, its bytes, its frames.
//!
//! An [`Area`] is memory whose content outlives the kernel that writes it: an NVDIMM that ACPI's
//! NFIT names, a range that the loader calls persistent, memory that a virtio device brings, or
//! *pseudo* non-volatile memory. The latter is a part of ordinary memory that `pseudo_nvm=SIZE` on
//! the command line sets aside, and that the kernel neither clears nor hands out, so it survives a
//! reset of the machine as long as power stays on.
//!
//! Invariants:
//! * an area begins and ends at large pages and holds no frame of the allocator's;
//! * each of its frames has an info with one reference that is never given up: entries and
//!   [`Frame`]s may come and go, and no frame of an area ever reaches the allocator. Therefore
//!   page-table entries need not be counted ([`crate::paging::Edit::attach`]);
//! * areas that ACPI, the loader and the command line name are found before the kernel's page
//!   tables are built, and constant afterwards ([`areas`]). The memory of a device ([`attach`]) is
//!   known only when there are drivers: the direct map and the frame table are extended for it
//!   then, and no earlier code prepares for a device that may not be there.
//!
//! The place of the pseudo memory must be the same at each boot: the loader's memory map is read
//! with that in mind (`loader::start_info`).

use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;

use arrayvec::ArrayVec;
pub use hayate_frames::Refusal;
use hayate_frames::admit;

use crate::frames::{Frame, direct, extend, info};
use crate::kernel_tables;
use crate::layout::{DIRECT_MAP_SIZE, FRAME_NUMBERS, LARGE_PAGE_SIZE, PAGE_SHIFT, PAGE_SIZE};
use crate::loader::{self, BootInfo, MemoryKind};
use crate::sync::{Once, SpinLock};

const LARGE: u64 = LARGE_PAGE_SIZE as u64;

/// The kind of memory that an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaKind {
    /// A module that keeps everything that was flushed out of the processor's caches.
    Nvdimm,
    /// Memory of a virtio device: kept if the device was told to flush after the data left the
    /// processor's caches.
    Virtio,
    /// Ordinary memory that nothing clears.
    Pseudo,
}

/// A range of non-volatile memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    start: u64,
    end: u64,
    kind: AreaKind,
}

static AREAS: Once<ArrayVec<Area, 4>> = Once::new();
/// The areas of devices, and their number: changed under the lock.
static ATTACHED: [Once<Area>; 4] = [const { Once::new() }; 4];
static ATTACHED_COUNT: SpinLock<usize> = SpinLock::new(0);

/// Returns all areas that were known when the kernel's page tables were built.
pub fn areas() -> &'static [Area] {
    AREAS.get().map_or(&[], |areas| areas)
}

/// Returns the end of usable physical addresses: the direct map ends there, or the numbers of
/// frames.
fn limit() -> u64 {
    (DIRECT_MAP_SIZE as u64).min(u64::from(FRAME_NUMBERS) << PAGE_SHIFT)
}

/// Finds the areas. Called once, on the first processor, before the kernel's page tables are built.
pub(crate) fn find(boot: &BootInfo) {
    let mut areas: ArrayVec<Area, 4> = ArrayVec::new();
    let mut add = |start: u64, end: u64, kind: AreaKind| {
        let limit = limit();
        let (start, end) = (start.next_multiple_of(LARGE), end.min(limit) / LARGE * LARGE);
        let known = areas.iter().any(|area| start < area.end && area.start < end);
        // Ranges that the loader calls memory belong to the allocator.
        let memory = boot.memory.iter().any(|range| {
            !matches!(range.kind, MemoryKind::Reserved | MemoryKind::Persistent)
                && start < range.end
                && range.start < end
        });
        if start < end && !known && !memory {
            let _ = areas.try_push(Area { start, end, kind });
        }
    };
    if let Some(range) = &boot.pseudo_nvm {
        add(range.start, range.end, AreaKind::Pseudo);
    }
    for &(start, end) in &crate::acpi::info().persistent {
        add(start, end, AreaKind::Nvdimm);
    }
    for range in boot.memory.iter().filter(|range| range.kind == MemoryKind::Persistent) {
        add(range.start, range.end, AreaKind::Nvdimm);
    }
    AREAS.call_once(|| areas);
}

/// Gives each frame of all areas the reference that is never given up.
pub(crate) fn hold_frames() {
    areas().iter().for_each(Area::hold_frames);
}

/// Makes an area of `size` bytes of a virtio device's memory at the physical address `start`, while
/// the machine runs. An incomplete large page at its end is left out.
pub(crate) fn attach(start: u64, size: u64) -> Result<&'static Area, Refusal> {
    let mut count = ATTACHED_COUNT.lock();
    let place = ATTACHED.get(*count).ok_or(Refusal::Many)?;
    // The loader may have reserved this very memory; ranges that it calls memory belong to the
    // allocator.
    let memory = loader::info().memory.iter();
    let memory = memory.filter(|range| range.kind != MemoryKind::Reserved);
    let memory = memory.map(|range| range.start..range.end);
    let attached = ATTACHED.iter().filter_map(Once::get);
    let known = areas().iter().chain(attached).map(|area| area.start..area.end);
    let range = admit(start, size, LARGE, limit(), memory.chain(known))?;
    let (first, end) = ((range.start >> PAGE_SHIFT) as u32, (range.end >> PAGE_SHIFT) as u32);
    // SAFETY: `extend` asks for pages of its own window only, and never frees them.
    let map = |page, physical| unsafe { kernel_tables::map_for_good(page, physical) };
    // SAFETY: this memory is not in use, as checked above, and the lock is held. It begins at a
    // large page, whose infos begin at a page of the table.
    unsafe {
        kernel_tables::map_late(range.start, range.end)?;
        if !extend(first, end, map) {
            return Err(Refusal::Memory);
        }
    }
    *count += 1;
    let area =
        place.call_once(|| Area { start: range.start, end: range.end, kind: AreaKind::Virtio });
    area.hold_frames();
    Ok(area)
}

impl Area {
    fn hold_frames(&self) {
        for frame in (self.start >> PAGE_SHIFT)..(self.end >> PAGE_SHIFT) {
            // SAFETY: this is memory of an area, which the frame table covers or was extended for.
            unsafe { info(frame as u32) }.set_refs(1);
        }
    }

    /// Returns the physical address of the first byte.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the range of physical addresses.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Returns the kind of memory.
    pub fn kind(&self) -> AreaKind {
        self.kind
    }

    /// Returns the address of `length` bytes from `offset`; `None`: not all of them are inside.
    fn place(&self, offset: u64, length: u64) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.size()).then(|| direct(self.start + offset))
    }

    /// Copies bytes out, from `offset`. False: not all of them are inside the area; nothing was
    /// copied.
    #[must_use]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let Some(from) = self.place(offset, to.len() as u64) else { return false };
        // SAFETY: inside the area, which the direct map covers. There is no Rust reference to it,
        // and if another processor writes meanwhile, a copy by one string instruction yields torn
        // data and nothing worse.
        unsafe {
            core::arch::asm!("rep movsb", inout("rdi") to.as_mut_ptr() => _, inout("rsi") from => _,
                             inout("rcx") to.len() => _, options(nostack, preserves_flags));
        }
        true
    }

    /// Copies bytes in, to `offset`; eight bytes at a multiple of eight are one store. False: not
    /// all of them are inside the area; nothing was copied.
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(to) = self.place(offset, from.len() as u64) else { return false };
        if let (Ok(word), true) = (<[u8; 8]>::try_from(from), offset.is_multiple_of(8)) {
            // SAFETY: as for reading; aligned, because areas begin at pages.
            unsafe { to.cast::<u64>().write_volatile(u64::from_le_bytes(word)) };
            return true;
        }
        // SAFETY: as for reading. Text that programs execute in place is not written: the store of
        // texts writes to free pages only, and even a torn text would only harm the program itself.
        unsafe {
            core::arch::asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) from.len() & 7,
                             inout("rdi") to => _, inout("rsi") from.as_ptr() => _,
                             inout("rcx") from.len() / 8 => _, options(nostack, preserves_flags));
        }
        true
    }

    /// Writes the `length` bytes from `offset` out of the processor's caches, and returns when that
    /// is done. A device's memory keeps them only after the device was told as well, which its
    /// driver does.
    pub fn flush(&self, offset: u64, length: u64) {
        const LINE: u64 = 64;
        if self.kind == AreaKind::Pseudo {
            // There is only memory here; other processors and the next kernel see the caches.
            core::sync::atomic::fence(SeqCst);
            return;
        }
        let way = crate::cpu::features().flush;
        let first = offset & !(LINE - 1);
        for at in (first..offset.saturating_add(length)).step_by(LINE as usize) {
            let Some(line) = self.place(at, 1) else { break };
            // SAFETY: a line of the area; the instruction was chosen by the processor's features.
            unsafe {
                match way {
                    crate::cpu::CacheFlush::WriteBack => {
                        core::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    crate::cpu::CacheFlush::Optimised => core::arch::asm!(
                        "clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                    crate::cpu::CacheFlush::Plain => core::arch::asm!(
                        "clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
        }
        // SAFETY: orders stores and flushes before what follows.
        unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// Returns `count` consecutive pages from page `first` of the area; `None`: not all are inside,
    /// or `count` is 0.
    pub fn extent(&self, first: u64, count: u32) -> Option<Extent> {
        let length = u64::from(count) * PAGE_SIZE as u64;
        let offset = first.checked_mul(PAGE_SIZE as u64)?;
        self.place(offset, length).filter(|_| count > 0)?;
        Some(Extent { first: ((self.start + offset) >> PAGE_SHIFT) as u32, count })
    }
}

/// Consecutive frames of an area. They are never moved or freed; the store manages their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    first: u32,
    count: u32,
}

impl Extent {
    /// Returns the number of pages.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of the first frame.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Returns a counted reference to the frame at `index`.
    pub fn frame(&self, index: u32) -> Option<Frame> {
        // SAFETY: the area's own reference to each of its frames is never given up.
        (index < self.count).then(|| unsafe { Frame::another(self.first + index) })
    }

    /// Returns the pages from `index` on, at most `count`; `None`: there are none.
    pub fn part(&self, index: u32, count: u32) -> Option<Extent> {
        let count = count.min(self.count.checked_sub(index)?);
        (count > 0).then_some(Extent { first: self.first + index, count })
    }
}
