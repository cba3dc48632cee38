//! Frames for the kernel's tables: from the memory set aside at boot, then from the allocator.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cpu::features;
use crate::frames::Frame;
use crate::layout::{DIRECT_MAP, LARGE_PAGE_SIZE};
use crate::loader;

static NEXT: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// Frames from the allocator that the kernel's tables map or consist of.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Sets the physical range that early frames come from.
pub(crate) fn set_early(start: u64, end: u64) {
    NEXT.store(start, Ordering::Relaxed);
    END.store(end, Ordering::Relaxed);
}

/// Returns how many bytes to set aside at boot on a machine with `ram` bytes.
pub(crate) fn early_size(ram: u64) -> u64 {
    let tables = if features().gigabyte_pages { 16 } else { (ram >> 30) + 16 };
    let (start, end) = loader::image();
    (tables + (end - start) / LARGE_PAGE_SIZE as u64 + 112) * 4096
}

/// Returns a zeroed frame from the memory set aside at boot (its physical address). `None` if that
/// memory is used up.
pub(crate) fn early_frame() -> Option<u64> {
    let frame = NEXT.fetch_add(4096, Ordering::Relaxed);
    if frame >= END.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: this RAM was set aside for the purpose, in the direct map (the boot tables' or the
    // final one).
    unsafe { ((DIRECT_MAP + frame as usize) as *mut u8).write_bytes(0, 4096) };
    Some(frame)
}

/// Returns a zeroed frame: from the memory set aside at boot, then from the allocator.
pub(super) fn zeroed_frame() -> Option<u64> {
    early_frame().or_else(|| {
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

/// Counts frames of the allocator's that the kernel's tables map from now on, or (a negative
/// number) do not map any more.
pub(super) fn count(frames: isize) {
    KEPT.fetch_add(frames as usize, Ordering::Relaxed);
}
