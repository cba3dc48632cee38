//! Non-volatile memory: where it is, its bytes, its frames.
//!
//! An [`Area`] is memory whose content outlives the kernel that writes it: an NVDIMM that ACPI's
//! NFIT names, a range that the loader calls persistent, memory that a virtio device brings, or
//! *pseudo* non-volatile memory, a part of ordinary memory that `pseudo_nvm=SIZE` on the command line
//! sets aside and that the kernel neither clears nor hands out, so that it survives a reset of the
//! machine as long as power stays on.
//!
//! Invariants:
//! * an area begins and ends at large pages and holds no frame of the allocator's;
//! * each of its frames has an info with one reference that is never given up: entries and [`Frame`]s
//!   may come and go, and no frame of an area ever reaches the allocator. Page-table entries need not
//!   be counted for that reason ([`crate::paging::Tables::attach`]);
//! * what ACPI, the loader and the command line name is found before the kernel's page tables are
//!   built, and constant afterwards ([`areas`]). What a device has ([`attach`]) is known only when there
//!   are drivers: the direct map and the frame table are extended for it then, and nothing before that
//!   happens for the sake of a device that may not be there.
//!
//! The place of the pseudo memory must be the same at each boot, and nobody may write to it in
//! between: firmware uses low memory and the top of it, QEMU puts the initramfs at the top and the
//! kernel near the bottom. So it begins at the first large page at or above [`PSEUDO`] that leaves room
//! for all of it.

use core::ops::Range;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use arrayvec::ArrayVec;
pub use hayate_frames::Refusal;
use hayate_frames::admit;

use crate::boot::{BootInfo, MemoryKind};
use crate::frames::{Frame, direct, extend, info};
use crate::layout::{DIRECT_MAP_SIZE, LARGE_PAGE_SIZE, PAGE_SHIFT, PAGE_SIZE};
use crate::sync::{Once, SpinLock};

/// Above what firmware and QEMU write to at a reset.
const PSEUDO: u64 = 64 << 20;

const LARGE: u64 = LARGE_PAGE_SIZE as u64;

/// What makes an area keep its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A module that keeps what was flushed out of the processor's caches.
    Nvdimm,
    /// Memory of a virtio device: kept when the device was told to, after it left the processor's caches.
    Virtio,
    /// Ordinary memory that nobody clears.
    Pseudo,
}

/// A range of non-volatile memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    start: u64,
    end: u64,
    kind: Kind,
}

static AREAS: Once<ArrayVec<Area, 4>> = Once::new();
/// What devices brought, and how many of these there are: under the lock while one is added.
static ATTACHED: [Once<Area>; 4] = [const { Once::new() }; 4];
static ATTACHED_COUNT: SpinLock<usize> = SpinLock::new(0);
static PSEUDO_PLACE: Once<(u64, u64)> = Once::new();

/// All areas that were known when the kernel's page tables were built.
pub fn areas() -> &'static [Area] {
    AREAS.get().map_or(&[], |areas| areas)
}

/// Chooses the place of pseudo memory of the size that the command line names, among usable ranges.
pub(crate) fn place_pseudo(
    size: &str,
    usable: impl Iterator<Item = Range<u64>>,
) -> Option<Range<u64>> {
    let size = bytes(size)?.checked_next_multiple_of(LARGE).filter(|&size| size > 0)?;
    let place = usable
        .map(|range| (range.start.max(PSEUDO).next_multiple_of(LARGE), range.end))
        .find(|(start, end)| end.saturating_sub(*start) >= size)
        .map(|(start, _)| start..start + size)?;
    PSEUDO_PLACE.call_once(|| (place.start, place.end));
    Some(place)
}

/// `64M` and the like.
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

/// Physical addresses end here: the direct map does, and frame numbers have 32 bits.
fn limit() -> u64 {
    (DIRECT_MAP_SIZE as u64).min(u64::from(u32::MAX) << PAGE_SHIFT)
}

/// Finds the areas. Once, on the first processor, before the kernel's page tables are built.
pub(crate) fn find(boot: &BootInfo) {
    let mut areas: ArrayVec<Area, 4> = ArrayVec::new();
    let mut add = |start: u64, end: u64, kind: Kind| {
        let limit = limit();
        let (start, end) = (start.next_multiple_of(LARGE), end.min(limit) / LARGE * LARGE);
        let known = areas.iter().any(|area| start < area.end && area.start < end);
        // What the loader calls memory is the allocator's.
        let memory = boot.memory.iter().any(|range| {
            !matches!(range.kind, MemoryKind::Reserved | MemoryKind::Persistent)
                && start < range.end
                && range.start < end
        });
        if start < end && !known && !memory {
            let _ = areas.try_push(Area { start, end, kind });
        }
    };
    if let Some(&(start, end)) = PSEUDO_PLACE.get() {
        add(start, end, Kind::Pseudo);
    }
    for &(start, end) in &crate::acpi::info().persistent {
        add(start, end, Kind::Nvdimm);
    }
    for range in boot.memory.iter().filter(|range| range.kind == MemoryKind::Persistent) {
        add(range.start, range.end, Kind::Nvdimm);
    }
    AREAS.call_once(|| areas);
}

/// Gives each frame of all areas the reference that is never given up.
pub(crate) fn hold_frames() {
    areas().iter().for_each(Area::hold_frames);
}

/// Makes an area of `size` bytes of a virtio device's memory at the physical address `start`, when the
/// machine runs already. What is no whole large page at its end is left out.
pub(crate) fn attach(start: u64, size: u64) -> Result<&'static Area, Refusal> {
    let mut count = ATTACHED_COUNT.lock();
    let place = ATTACHED.get(*count).ok_or(Refusal::Many)?;
    // What the loader reserves may be this very memory; what it calls memory is the allocator's.
    let memory = crate::boot::info().memory.iter();
    let memory = memory.filter(|range| range.kind != MemoryKind::Reserved);
    let memory = memory.map(|range| range.start..range.end);
    let attached = ATTACHED.iter().filter_map(Once::get);
    let known = areas().iter().chain(attached).map(|area| area.start..area.end);
    let range = admit(start, size, LARGE, limit(), memory.chain(known))?;
    let (first, end) = ((range.start >> PAGE_SHIFT) as u32, (range.end >> PAGE_SHIFT) as u32);
    // SAFETY: nobody has this memory, as was just checked, and the lock is held. It begins at a large
    // page, whose infos begin at a page of the table.
    unsafe {
        crate::boot::map_late(range.start, range.end)?;
        if !extend(first, end) {
            return Err(Refusal::Memory);
        }
    }
    *count += 1;
    let area = place.call_once(|| Area { start: range.start, end: range.end, kind: Kind::Virtio });
    area.hold_frames();
    Ok(area)
}

impl Area {
    fn hold_frames(&self) {
        for frame in (self.start >> PAGE_SHIFT)..(self.end >> PAGE_SHIFT) {
            // SAFETY: memory of an area, which the frame table reaches or was extended for.
            unsafe { info(frame as u32) }.refs.store(1, Relaxed);
        }
    }

    /// The physical address of the first byte.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// What makes it keep its content.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where `length` bytes from `offset` are; `None`: not all inside.
    fn place(&self, offset: u64, length: u64) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.size()).then(|| direct(self.start + offset))
    }

    /// Copies bytes out, from `offset`. False: not all of them are inside; nothing was copied.
    #[must_use]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let Some(from) = self.place(offset, to.len() as u64) else { return false };
        // SAFETY: inside the area, which the direct map holds; nobody has a Rust reference to it, and
        // a copy by one string instruction of what another processor writes is merely torn.
        unsafe {
            core::arch::asm!("rep movsb", inout("rdi") to.as_mut_ptr() => _, inout("rsi") from => _,
                             inout("rcx") to.len() => _, options(nostack, preserves_flags));
        }
        true
    }

    /// Copies bytes in, to `offset`; eight bytes at a multiple of eight by one store. False: not all of
    /// them are inside; nothing was copied.
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(to) = self.place(offset, from.len() as u64) else { return false };
        if let (Ok(word), true) = (<[u8; 8]>::try_from(from), offset.is_multiple_of(8)) {
            // SAFETY: as for reading; aligned, because areas begin at pages.
            unsafe { to.cast::<u64>().write_volatile(u64::from_le_bytes(word)) };
            return true;
        }
        // SAFETY: as for reading. What programs execute in place is not written: the store of texts
        // writes to free pages only, and even a torn text would be the program's own trouble.
        unsafe {
            core::arch::asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) from.len() & 7,
                             inout("rdi") to => _, inout("rsi") from.as_ptr() => _,
                             inout("rcx") from.len() / 8 => _, options(nostack, preserves_flags));
        }
        true
    }

    /// Returns when what was written to `length` bytes from `offset` has left the processor's caches.
    /// Memory of a device keeps it only after the device was told so as well, which its driver does.
    pub fn flush(&self, offset: u64, length: u64) {
        const LINE: u64 = 64;
        if self.kind == Kind::Pseudo {
            // Memory is all there is; other processors and the next kernel see the caches.
            core::sync::atomic::fence(SeqCst);
            return;
        }
        let way = crate::cpu::features().flush;
        let first = offset & !(LINE - 1);
        for at in (first..offset.saturating_add(length)).step_by(LINE as usize) {
            let Some(line) = self.place(at, 1) else { break };
            // SAFETY: a line of the area; the instruction was chosen by what the processor has.
            unsafe {
                match way {
                    crate::cpu::Flush::WriteBack => {
                        core::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    crate::cpu::Flush::Optimised => core::arch::asm!(
                        "clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                    crate::cpu::Flush::Plain => core::arch::asm!(
                        "clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
        }
        // SAFETY: orders stores and flushes before what follows.
        unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// `count` pages in a row from page `first` of the area; `None`: not all inside, or none.
    pub fn extent(&self, first: u64, count: u32) -> Option<Extent> {
        let length = u64::from(count) * PAGE_SIZE as u64;
        let offset = first.checked_mul(PAGE_SIZE as u64)?;
        self.place(offset, length).filter(|_| count > 0)?;
        Some(Extent { first: ((self.start + offset) >> PAGE_SHIFT) as u32, count })
    }
}

/// Frames of an area in a row. They stay where they are for ever; what they hold is the store's
/// business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    first: u32,
    count: u32,
}

impl Extent {
    /// Pages.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of the first frame.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// A counted reference to the frame at `index`.
    pub fn frame(&self, index: u32) -> Option<Frame> {
        // SAFETY: the area's own reference to each of its frames is never given up.
        (index < self.count).then(|| unsafe { Frame::another(self.first + index) })
    }

    /// The pages from `index` on, at most `count`; `None`: there are none.
    pub fn part(&self, index: u32, count: u32) -> Option<Extent> {
        let count = count.min(self.count.checked_sub(index)?);
        (count > 0).then_some(Extent { first: self.first + index, count })
    }
}
