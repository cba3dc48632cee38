//! The frame table: one record for each frame.
//!
//! It lies in the direct map, which uses large pages, and covers the memory that is known at boot.
//! Records are cleared when memory is first needed (`hayate_frames::Growing`), those of memory in
//! use since boot at boot.
//!
//! When a device brings memory later ([`extend`]), the table is mapped once more, page by page at
//! [`FRAME_TABLE`], with additional pages for the new frames, and used from there. A processor that
//! still uses the old address sees the same memory.
//!
//! Road not taken: such a window from the start. It would need small pages for the table on every
//! machine, for the sake of a device that few machines have.

use super::bytes::zero_pages;
use crate::layout::{DIRECT_MAP, FRAME_TABLE, FRAME_TABLE_SIZE, PAGE_SIZE};
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use hayate_frames::{Clear, Link, SECTION, Table};

/// The record of one frame. The meaning of `tag` and `data` depends on what the frame is used for.
/// A free frame: links of the buddy allocator, and the mark of its unit. A page table: its
/// occupancy. A large page ([`crate::paging`]): the number of entries that map it, and the link of
/// the list of deferred frees. A slab of the heap: see there. A frame that is charged to somebody,
/// a page table too: the number of its owner ([`super::owner`]).
///
/// The tag of a frame that is given out is 0: the buddy allocator leaves it so, and whoever sets it
/// sets it back before the frame is free.
#[repr(C, align(16))]
pub(crate) struct FrameInfo {
    /// How many [`Frame`](super::Frame)s and page-table entries refer to the frame; 0: free, or in
    /// use by the heap. [`CHARGED`] is set beside the number.
    refs: AtomicU32,
    /// Free: the state of [`Link`]. First frame of a large page: how many entries map it.
    tag: AtomicU32,
    /// Free: the list links of [`Link`]. Page table: which groups of eight entries are occupied.
    pub data: AtomicU64,
}

/// The bit of the references that says that the frame is charged. A frame that nobody is charged
/// for is freed after one comparison, with 1, as if there were no owners.
const CHARGED: u32 = 1 << 31;

/// What a reference that was given up has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// There are others.
    Shared,
    /// The last one.
    Last,
    /// It has not been given up: the frame is charged, see [`super::owner`].
    Charged,
}

impl FrameInfo {
    /// Returns how many references there are.
    #[inline]
    pub fn refs(&self) -> u32 {
        self.refs.load(Acquire) & !CHARGED
    }

    /// Whether there is one reference, and nobody is charged.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.refs.load(Acquire) == 1
    }

    /// Whether somebody is charged.
    #[inline]
    pub fn is_charged(&self) -> bool {
        self.refs.load(Acquire) & CHARGED != 0
    }

    /// Sets the number of references, and that nobody is charged. Nobody else uses the frame.
    #[inline]
    pub fn set_refs(&self, refs: u32) {
        self.refs.store(refs, Relaxed);
    }

    /// Notes the number of the owner that is charged, or with 0 that nobody is. There is one
    /// reference.
    pub fn charge_to(&self, owner: u32) {
        self.tag.store(owner, Relaxed);
        self.refs.store(if owner == 0 { 1 } else { CHARGED | 1 }, Release);
    }

    /// Adds a reference; returns how many there were.
    #[inline]
    pub fn add_ref(&self) -> u32 {
        self.refs.fetch_add(1, Relaxed) & !CHARGED
    }

    /// Takes a reference away; returns how many there were.
    #[inline]
    pub fn drop_ref(&self, order: Ordering) -> u32 {
        self.refs.fetch_sub(1, order) & !CHARGED
    }

    /// Gives the reference of the caller up, unless the frame is charged. What was done with the
    /// frame by those who had the others is seen after [`Given::Last`].
    #[inline]
    pub fn give_up(&self) -> Given {
        // The sign: one comparison tells all three.
        match self.refs.load(Acquire) as i32 {
            // The only holder needs no locked instruction: no other processor can be counting.
            1 => self.set_refs(0),
            // Only the last holder could change that.
            ..=0 => return Given::Charged,
            _ if self.refs.fetch_sub(1, Release) != 1 => return Given::Shared,
            _ => core::sync::atomic::fence(Acquire),
        }
        Given::Last
    }

    /// Returns the tag.
    #[inline]
    pub fn tag(&self) -> u32 {
        self.tag.load(Acquire)
    }

    /// Sets the tag. Nobody else uses the frame.
    #[inline]
    pub fn set_tag(&self, tag: u32) {
        self.tag.store(tag, Relaxed);
    }

    /// Adds one to the tag.
    #[inline]
    pub fn add_to_tag(&self) {
        self.tag.fetch_add(1, Relaxed);
    }

    /// Takes one from the tag; returns what it was.
    #[inline]
    pub fn take_from_tag(&self) -> u32 {
        self.tag.fetch_sub(1, AcqRel)
    }
}

/// The address of the table, constant after [`place`].
static TABLE: AtomicPtr<FrameInfo> = AtomicPtr::new(core::ptr::null_mut());
/// One past the last frame number.
static END: AtomicU32 = AtomicU32::new(0);
/// The pages of the table that do not exist, first and end: the frames that they would describe are
/// not memory.
static GAP: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// How many free frames, in units that the host can have, it was not told of: readable without the
/// allocator's lock.
static UNTOLD: AtomicU32 = AtomicU32::new(0);

/// How many of them it was told of.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Returns how many free frames, in units that the host can have, it was not told of.
#[inline]
pub fn untold() -> u32 {
    UNTOLD.load(Relaxed)
}

/// Returns how many free frames there are in units that the host can have, told of or not. Two
/// loads, which may meet a change in between.
#[inline]
pub fn in_units() -> u32 {
    UNTOLD.load(Relaxed).wrapping_add(TOLD.load(Relaxed))
}

/// Number of infos in a page.
const INFOS: u32 = (PAGE_SIZE / size_of::<FrameInfo>()) as u32;

/// Returns the info of a frame.
///
/// # Safety
/// `number` is that of a frame of memory: of the allocator's, in use since boot, or of an area of
/// non-volatile memory.
#[inline]
pub(crate) unsafe fn info(number: u32) -> &'static FrameInfo {
    debug_assert!(number < END.load(Relaxed), "frame {number:#x} is not memory");
    // SAFETY: the table is never freed. It has infos for all memory that was known at boot, cleared
    // before the allocator had the frame or anything else could use it, and was extended for areas
    // that were attached later.
    unsafe { &*TABLE.load(Relaxed).add(number as usize) }
}

/// Sets the table up for the frames below `end`. Its infos are undefined until they are cleared
/// ([`InTable`]). The pages of the table that are in `gap` will be used for other purposes.
///
/// # Safety
/// `table` must point at unused, mapped, aligned memory of the direct map for `end` infos, for
/// ever; called once.
pub(super) unsafe fn place(table: *mut FrameInfo, end: u32, gap: Range<u32>) {
    GAP[0].store(gap.start, Relaxed);
    GAP[1].store(gap.end, Relaxed);
    END.store(end, Relaxed);
    TABLE.store(table, Release);
}

/// Adds zeroed infos for frames that the table does not cover yet: those from `first`, which has
/// the first info of a page, to `end`. False: memory is exhausted, or the frames are out of the
/// window's reach.
///
/// * `map_page` - maps a page of the window for ever, if it is not mapped yet: the memory at a
///   physical address, or a new zeroed frame. False: memory is exhausted.
///
/// # Safety
/// No other caller is in this function meanwhile.
pub(crate) unsafe fn extend(
    first: u32,
    end: u32,
    map_page: impl Fn(usize, Option<u64>) -> bool,
) -> bool {
    if end.div_ceil(INFOS) as usize * PAGE_SIZE > FRAME_TABLE_SIZE {
        return false;
    }
    let map = |page: u32, physical| map_page(FRAME_TABLE + page as usize * PAGE_SIZE, physical);
    let table = TABLE.load(Relaxed).addr();
    if table != FRAME_TABLE {
        let gap = GAP[0].load(Relaxed)..GAP[1].load(Relaxed);
        let base = (table - DIRECT_MAP) as u64;
        let pages = (0..END.load(Relaxed).div_ceil(INFOS)).filter(|page| !gap.contains(page));
        for page in pages {
            if !map(page, Some(base + u64::from(page) * PAGE_SIZE as u64)) {
                return false;
            }
        }
    }
    for page in first / INFOS..end.div_ceil(INFOS) {
        if !map(page, None) {
            return false;
        }
    }
    END.fetch_max(end, Relaxed);
    // The page tables were written before: a processor that reads the new address finds them.
    TABLE.store(core::ptr::with_exposed_provenance_mut(FRAME_TABLE), Release);
    true
}

/// The links of the buddy allocator, kept in the frame table.
pub(super) struct InTable;

impl Table for InTable {
    #[inline]
    fn link(&self, frame: u32) -> Link {
        // SAFETY: the allocator asks for frames that it was given, and for their buddies, whose
        // numbers differ in one bit and are below the allocator's end, which is the table's.
        let info = unsafe { info(frame) };
        let data = info.data.load(Relaxed);
        Link { next: data as u32, prev: (data >> 32) as u32, state: info.tag() }
    }

    #[inline]
    fn set_link(&mut self, frame: u32, link: Link) {
        // SAFETY: as for `link`.
        let info = unsafe { info(frame) };
        info.data.store(u64::from(link.next) | u64::from(link.prev) << 32, Relaxed);
        info.set_tag(link.state);
    }

    fn note_units(&mut self, untold: u32, told: u32) {
        UNTOLD.store(untold, Relaxed);
        TOLD.store(told, Relaxed);
    }
}

impl Clear for InTable {
    fn clear(&mut self, frames: Range<u32>) {
        // A section's infos are whole pages, and the table ends with a whole page.
        const { assert!((SECTION as usize * size_of::<FrameInfo>()).is_multiple_of(PAGE_SIZE)) };
        let pages = (frames.len() * size_of::<FrameInfo>()).div_ceil(PAGE_SIZE);
        // SAFETY: the allocator clears a section's infos once, before any of them is used. It does
        // so in `init` for sections above all memory, whose infos may be in the gap, which nobody
        // has taken by then. Zeroes are a valid FrameInfo.
        unsafe { zero_pages(TABLE.load(Relaxed).add(frames.start as usize).cast(), pages) };
    }
}
