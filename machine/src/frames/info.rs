//! The frame table: what is known about each frame.

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use hayate_frames::{Link, Table};

/// What is known about one frame. What `tag` and `data` mean depends on what the frame is used
/// for: links of the buddy allocator while it is free, the occupancy of a page table or the entries
/// that map a large page ([`crate::paging`]), a slab of the heap, nothing otherwise.
#[repr(C, align(16))]
pub(crate) struct FrameInfo {
    /// How many [`Frame`](super::Frame)s and page-table entries refer to it; 0: free, or in use by
    /// the heap.
    pub refs: AtomicU32,
    /// Free: the state of [`Link`]. First frame of a large page: how many entries map it.
    pub tag: AtomicU32,
    /// Free: the list links of [`Link`]. Page table: which groups of eight entries are occupied.
    pub data: AtomicU64,
}

/// The address of the table, constant after [`place`].
static TABLE: AtomicPtr<FrameInfo> = AtomicPtr::new(core::ptr::null_mut());
/// Frame numbers end here.
static END: AtomicU32 = AtomicU32::new(0);

/// The info of a frame. `number` must be that of a frame of memory.
#[inline]
pub(crate) fn info(number: u32) -> &'static FrameInfo {
    debug_assert!(number < END.load(Relaxed), "frame {number:#x} is not memory");
    // SAFETY: the table lives for ever, was zeroed by `place`, and every frame number in the
    // system comes from the allocator, which was only given numbers inside the table.
    unsafe { &*TABLE.load(Relaxed).add(number as usize) }
}

/// Sets the table up for the frames below `end` and clears it.
///
/// # Safety
/// `table` must point at unused, mapped, aligned memory for `end` infos, for ever; called once.
pub(super) unsafe fn place(table: *mut FrameInfo, end: u32) {
    // SAFETY: the caller's promise, whole pages; zeroes are a valid FrameInfo.
    unsafe {
        super::content::zero_pages(
            table.cast(),
            (end as usize * size_of::<FrameInfo>()).div_ceil(crate::layout::PAGE_SIZE),
        )
    };
    END.store(end, Relaxed);
    TABLE.store(table, Release);
}

/// The links of the buddy allocator, kept in the frame table.
pub(super) struct InTable;

impl Table for InTable {
    #[inline]
    fn link(&self, frame: u32) -> Link {
        let info = info(frame);
        let data = info.data.load(Relaxed);
        Link { next: data as u32, prev: (data >> 32) as u32, state: info.tag.load(Relaxed) }
    }

    #[inline]
    fn set_link(&mut self, frame: u32, link: Link) {
        let info = info(frame);
        info.data.store(u64::from(link.next) | u64::from(link.prev) << 32, Relaxed);
        info.tag.store(link.state, Relaxed);
    }
}
