//! The allocator: the per-CPU caches in front of the buddy allocator, the reserve, and the counts.

use super::bytes::{self, direct};
use super::deferred;
use super::info::{self, FrameInfo, InTable};
use super::per_cpu_cache::{self, RUN, ZEROED, own};
use crate::layout::{DIRECT_MAP_SIZE, FRAME_NUMBERS, PAGE_SHIFT, PAGE_SIZE};
use crate::loader::{MemoryKind, MemoryRange};
use crate::sync::{Once, SpinLock};
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use hayate_frames::{Growing, Ranges, UNIT};

static BUDDY: SpinLock<Option<Growing<InTable>>> = SpinLock::new(None);
static TOTAL: AtomicU32 = AtomicU32::new(0);
static RESERVE: AtomicU32 = AtomicU32::new(0);
/// The frames above the reserve that are kept for programs of administrators.
static ADMINISTRATORS: AtomicU32 = AtomicU32::new(0);
/// Whether what runs here may use these, as the kernel knows.
static IS_ADMINISTRATOR: Once<fn() -> bool> = Once::new();
/// How many frames the buddy allocator had free when its lock was last released: readable without
/// the lock.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Frames that are out of the buddy allocator while the host is told that they are unused.
static OFFERED: AtomicU32 = AtomicU32::new(0);

/// For what purpose a frame is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// For a program: stop at the reserve.
    Program,
    /// For the kernel: down to the last frame.
    Kernel,
}

/// How much memory there is, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameCounts {
    /// Managed by the allocator since boot.
    pub total: usize,
    /// Not in use; those in per-CPU caches and those that the host is being told of are included.
    pub free: usize,
    /// Kept for the kernel: the part of `free` that programs cannot get.
    pub reserve: usize,
}

/// Returns how much memory there is. Other processors may be taking frames meanwhile.
pub fn counts() -> FrameCounts {
    let shared = BUDDY.lock().as_ref().map_or(0, |buddy| buddy.free_frames()) as usize;
    let free = shared + per_cpu_cache::count() + OFFERED.load(Relaxed) as usize;
    FrameCounts {
        total: TOTAL.load(Relaxed) as usize,
        free,
        reserve: RESERVE.load(Relaxed) as usize,
    }
}

/// Returns how many frames the allocator manages.
pub fn total() -> usize {
    TOTAL.load(Relaxed) as usize
}

/// Registers the function that says whether what runs on this processor may use the frames that are
/// kept for administrators; at boot, once. It is called with any lock held and takes none. Before,
/// everything may.
pub fn keep_for_administrators(is_administrator: fn() -> bool) {
    IS_ADMINISTRATOR.call_once(|| is_administrator);
}

/// How many frames what runs here must leave, of those beyond the reserve.
fn kept_from_here() -> u32 {
    match IS_ADMINISTRATOR.get() {
        Some(is_administrator) if !is_administrator() => ADMINISTRATORS.load(Relaxed),
        _ => 0,
    }
}

/// Whether fewer than `frames` are left, which what runs here must leave to others besides.
fn are_fewer_left(frames: u32) -> bool {
    are_fewer(LEFT.load(Relaxed), frames)
}

/// Whether `left` frames are fewer than `frames` and those that what runs here must leave to
/// others.
fn are_fewer(left: u32, frames: u32) -> bool {
    left < frames + ADMINISTRATORS.load(Relaxed) && left < frames + kept_from_here()
}

/// Whether the kernel has begun to use up its reserve: programs cannot get any more memory, and
/// kernel allocations on their behalf will fail soon, too. The process that causes this must be
/// ended.
pub fn is_low() -> bool {
    are_fewer_left(RESERVE.load(Relaxed) / 2)
}

/// Whether too little memory is left to start something new, such as a process: the processes that
/// run will need the rest.
#[inline]
pub fn is_scarce() -> bool {
    are_fewer_left(room())
}

/// Like [`is_scarce`], with the frames in all processors' caches counted as free. In a small memory
/// they are a good part of what is left, and whoever asks here is refused otherwise. It takes the
/// allocator's lock.
pub fn is_scarce_in_all() -> bool {
    are_fewer(counts().free as u32, room())
}

/// How many frames are kept for the kernel and for what runs already.
fn room() -> u32 {
    /// No more than 4 MiB are kept for what runs already.
    const MOST: u32 = 1024;
    let reserve = RESERVE.load(Relaxed);
    reserve + reserve.min(MOST)
}

/// Whether enough memory is free to spend some of it on speed: more than a quarter.
pub fn is_plentiful() -> bool {
    LEFT.load(Relaxed) > TOTAL.load(Relaxed) / 4
}

/// Takes a frame for the kernel itself, content undefined, with no reference counted; give it back
/// with [`Block::from_raw`](super::Block::from_raw) (count 1).
#[inline]
pub(crate) fn allocate_kernel() -> Option<u32> {
    take(Need::Kernel)
}

#[inline]
pub(super) fn take(need: Need) -> Option<u32> {
    #[cfg(debug_assertions)]
    if need == Need::Program && crate::refusal::is_refused() {
        return None;
    }
    match own().free.pop() {
        Some(frame) => Some(frame),
        // If there is no frame for this purpose, a frame that was zeroed ahead will do.
        None => refill(need, kept_from_here()).or_else(pop_zeroed),
    }
}

/// Takes a frame of the common ones, and some for this processor's cache, but not the reserve nor
/// the `kept` frames above it.
#[cold]
fn refill(need: Need, kept: u32) -> Option<u32> {
    let floor = RESERVE.load(Relaxed) + kept;
    let beyond =
        |buddy: &Growing<InTable>| buddy.free_frames().checked_sub(floor).filter(|&n| n > 0);
    let mut buddy = BUDDY.lock();
    // Deferred frees of ended spaces are done before the reserve is used, and before a refusal.
    while beyond(buddy.as_ref()?).is_none() && deferred::pending() != 0 {
        drop(buddy);
        deferred::free_now();
        if let Some(frame) = own().free.pop() {
            return Some(frame);
        }
        buddy = BUDDY.lock();
    }
    let buddy = buddy.as_mut()?;
    if beyond(buddy).is_none() {
        own().runs.spill(true, |first| buddy.free_range(first, RUN));
    }
    let Some(most) = beyond(buddy) else {
        // From the reserve the kernel takes only the frame that it needs now: programs can get the
        // frames of the cache as well.
        let frame = if need == Need::Kernel { buddy.allocate(0) } else { None };
        LEFT.store(buddy.free_frames(), Relaxed);
        return frame;
    };
    let free = &own().free;
    free.refill(|slots| {
        let most = slots.len().min(most as usize);
        buddy.allocate_many(&slots[..most])
    });
    LEFT.store(buddy.free_frames(), Relaxed);
    free.pop()
}

#[inline]
pub(super) fn take_zeroed() -> Option<u32> {
    #[cfg(debug_assertions)]
    if crate::refusal::is_refused() {
        return None;
    }
    pop_zeroed()
}

#[inline]
fn pop_zeroed() -> Option<u32> {
    own().zeroed.pop()
}

#[inline]
pub(super) fn give(frame: u32) {
    if !own().free.push(frame) {
        spill(frame);
    }
}

/// Gives back `count` consecutive frames: all at once if there are at least `worth`, otherwise one
/// by one.
#[inline]
pub(crate) fn give_run(first: u32, count: u32, worth: u32) {
    if count >= worth {
        give_range(first, count);
    } else {
        (first..first + count).for_each(give);
    }
}

/// Gives back a frame that is all zeroes: it goes to the cache of zeroed frames if that is not
/// full.
#[inline]
pub(crate) fn give_zeroed(frame: u32) {
    // SAFETY: the caller gives back a frame of the allocator's.
    unsafe { info::info(frame) }.set_refs(0);
    if !own().zeroed.push(frame) {
        give(frame);
    }
}

#[cold]
fn spill(frame: u32) {
    let mut buddy = BUDDY.lock();
    let Some(buddy) = buddy.as_mut() else { return };
    buddy.free(frame, 0);
    own().free.spill(false, |frame| buddy.free(frame, 0));
    LEFT.store(buddy.free_frames(), Relaxed);
}

pub(super) fn take_range(count: u32) -> Option<u32> {
    if count == 1 {
        return take(Need::Program);
    }
    #[cfg(debug_assertions)]
    if crate::refusal::is_refused() {
        return None;
    }
    loop {
        let first = try_range(count);
        if first.is_some() || !deferred::free_now() {
            return first;
        }
    }
}

fn try_range(count: u32) -> Option<u32> {
    let floor = RESERVE.load(Relaxed) + kept_from_here();
    let mut buddy = BUDDY.lock();
    let buddy = buddy.as_mut()?;
    if buddy.free_frames().checked_sub(floor)? < count {
        return None;
    }
    if let Some(first) = buddy.allocate_range(count) {
        LEFT.store(buddy.free_frames(), Relaxed);
        return Some(first);
    }
    // The buddy of a free frame may be in this processor's caches.
    own().free.spill(true, |frame| buddy.free(frame, 0));
    own().runs.spill(true, |first| buddy.free_range(first, RUN));
    let first = buddy.allocate_range(count);
    LEFT.store(buddy.free_frames(), Relaxed);
    first
}

/// Takes a run of [`RUN`] frames for a program, if there is one without freeing anything.
#[inline]
pub(super) fn take_run() -> Option<u32> {
    #[cfg(debug_assertions)]
    if crate::refusal::is_refused() {
        return None;
    }
    own().runs.pop().or_else(refill_runs)
}

#[cold]
fn refill_runs() -> Option<u32> {
    let floor = RESERVE.load(Relaxed) + kept_from_here();
    let mut buddy = BUDDY.lock();
    let buddy = buddy.as_mut()?;
    let runs = &own().runs;
    runs.refill(|slots| {
        let mut taken = 0;
        for slot in slots {
            if buddy.free_frames().saturating_sub(floor) < RUN {
                break;
            }
            let Some(first) = buddy.allocate_range(RUN) else { break };
            slot.store(first, Relaxed);
            taken += 1;
        }
        taken
    });
    LEFT.store(buddy.free_frames(), Relaxed);
    runs.pop()
}

/// Gives back a run that [`take_run`] gave.
#[inline]
pub(super) fn give_run_of(first: u32) {
    if !own().runs.push(first) {
        spill_runs(first);
    }
}

#[cold]
fn spill_runs(first: u32) {
    let mut buddy = BUDDY.lock();
    let Some(buddy) = buddy.as_mut() else { return };
    buddy.free_range(first, RUN);
    own().runs.spill(false, |first| buddy.free_range(first, RUN));
    LEFT.store(buddy.free_frames(), Relaxed);
}

pub(super) fn give_range(first: u32, count: u32) {
    if count == 1 {
        return give(first);
    }
    if let Some(buddy) = BUDDY.lock().as_mut() {
        buddy.free_range(first, count);
        LEFT.store(buddy.free_frames(), Relaxed);
    }
}

/// Like [`take_range`], but may use the kernel's reserve.
pub(super) fn take_kernel_range(count: u32) -> Option<u32> {
    if count == 1 {
        return take(Need::Kernel);
    }
    let take = || {
        let mut buddy = BUDDY.lock();
        let buddy = buddy.as_mut()?;
        let first = buddy.allocate_range(count)?;
        LEFT.store(buddy.free_frames(), Relaxed);
        Some(first)
    };
    loop {
        let first = take();
        if first.is_some() || !deferred::free_now() {
            return first;
        }
    }
}

/// Takes out of the allocator what [`hayate_frames`] calls a run of unused units, at most `most`
/// frames: the first one from the frame `from` on, which is then where to look next. `None`: there
/// is none up to the end of memory, or free memory is too scarce to be without it for a moment.
pub(super) fn offer(from: &mut u32, most: u32) -> Option<Range<u32>> {
    loop {
        // The lock is held for one section at a time.
        let mut buddy = BUDDY.lock();
        let buddy = buddy.as_mut().filter(|buddy| *from < buddy.end())?;
        let kept = 2 * (RESERVE.load(Relaxed) + ADMINISTRATORS.load(Relaxed));
        let spare = buddy.free_frames().saturating_sub(kept) / 2;
        if spare < UNIT {
            return None;
        }
        if let Some(run) = buddy.offer(from, most.min(spare)) {
            OFFERED.fetch_add(run.len() as u32, Relaxed);
            LEFT.store(buddy.free_frames(), Relaxed);
            return Some(run);
        }
    }
}

/// Gives back what [`offer`] took.
pub(super) fn restore(run: Range<u32>, told: bool) {
    let count = run.len() as u32;
    if let Some(buddy) = BUDDY.lock().as_mut() {
        buddy.restore(run, told);
        LEFT.store(buddy.free_frames(), Relaxed);
    }
    OFFERED.fetch_sub(count, Relaxed);
}

/// Returns how many free frames the host was told of and may have taken.
pub fn given_back() -> usize {
    BUDDY.lock().as_ref().map_or(0, |buddy| buddy.told_frames()) as usize
}

/// Zeroes one frame ahead if this processor's cache of zeroed frames is not full; returns whether
/// it did. For the idle loop, which calls it repeatedly.
pub fn prepare() -> bool {
    let own = own();
    if own.zeroed.len() >= ZEROED {
        return false;
    }
    // Not by `take`, which takes from the zeroed frames when there are no others.
    // Any program may get it.
    let kept = ADMINISTRATORS.load(Relaxed);
    let Some(frame) = own.free.pop().or_else(|| refill(Need::Program, kept)) else { return false };
    bytes::zero(frame);
    if !own.zeroed.push(frame) {
        give(frame);
    }
    true
}

/// Sets the frame table and the allocator up: everything usable in the memory map becomes free. The
/// table covers `areas` as well, which are non-volatile memory and not for the allocator. Of the
/// table only those parts are cleared that describe memory in use; others when memory is needed.
///
/// # Panics
/// If no usable range has room for the frame table (16 bytes for each frame of 4 KiB).
///
/// # Safety
/// What `memory` calls usable must be memory in the direct map that nothing uses. Called once:
/// later it is in use.
pub(crate) unsafe fn init(memory: &[MemoryRange], areas: impl Iterator<Item = Range<u64>> + Clone) {
    // Frame numbers have 31 bits, and the direct map is finite: memory beyond either is not used.
    let limit = (DIRECT_MAP_SIZE as u64).min(u64::from(FRAME_NUMBERS) << PAGE_SHIFT);
    let usable = || {
        let ranges = memory.iter().filter(|range| range.kind == MemoryKind::Usable);
        // Frame 0 is never used: number 0 means "none".
        ranges.map(move |range| range.start.max(PAGE_SIZE as u64)..range.end.min(limit))
    };
    // The table also covers memory in use since boot: page tables there have infos.
    let ram = memory.iter().filter(|range| range.kind != MemoryKind::Reserved);
    let ram = ram.map(|range| range.end.min(limit)).max().unwrap_or(0) >> PAGE_SHIFT;
    // It also covers non-volatile memory, which may be far above: see `gap`.
    let areas = areas.filter(|area| area.start >> PAGE_SHIFT >= ram);
    let top = areas.clone().map(|area| area.end >> PAGE_SHIFT).max();
    let bottom = areas.clone().map(|area| area.start >> PAGE_SHIFT).min();
    let end = top.unwrap_or(ram).max(ram);
    let size = (end * size_of::<FrameInfo>() as u64).next_multiple_of(PAGE_SIZE as u64);
    let table = usable()
        .find(|range| range.end.saturating_sub(range.start) >= size)
        .map(|range| range.end - size..range.end)
        .expect("no room for the frame table: give the machine more memory");
    bytes::choose();
    let gap = gap(&table, ram, bottom.unwrap_or(ram));
    let page = |at: u64| ((at - table.start) >> PAGE_SHIFT) as u32;
    // SAFETY: usable memory that nothing was allocated from yet, page-aligned, in the direct map.
    unsafe { info::place(direct(table.start).cast(), end as u32, page(gap.start)..page(gap.end)) };

    let mut parts = Ranges::new();
    for range in usable() {
        let inside = gap.start.max(range.start)..gap.end.min(range.end);
        let outside = subtract(range, &table);
        for part in outside.chain(Some(inside)) {
            let first = part.start.next_multiple_of(PAGE_SIZE as u64) >> PAGE_SHIFT;
            let end = part.end >> PAGE_SHIFT;
            if first < end {
                parts.push(first as u32..end as u32);
            }
        }
    }
    // Page tables are among the memory in use, and have infos.
    let kinds = [MemoryKind::Usable, MemoryKind::Reserved];
    let held = memory.iter().filter(|range| !kinds.contains(&range.kind));
    let held = held.map(|range| range.start..range.end.min(limit)).chain(areas);
    let in_use = held.filter(|range| range.start < range.end).map(|range| {
        (range.start >> PAGE_SHIFT) as u32..range.end.div_ceil(PAGE_SIZE as u64) as u32
    });
    let buddy = Growing::new(InTable, end as u32, parts, in_use.collect());
    let total = buddy.free_frames();
    TOTAL.store(total, Relaxed);
    LEFT.store(total, Relaxed);
    // 1/64 of memory, between 1 MiB and 32 MiB.
    RESERVE.store((total / 64).clamp(256, 8192), Relaxed);
    // 1/16 of memory, at most 8 MiB: a few programs can start.
    ADMINISTRATORS.store((total / 16).min(2048), Relaxed);
    *BUDDY.lock() = Some(buddy);
}

/// Returns the part of the frame table that describes no memory, in bytes: the infos of frames
/// between the last memory, `ram`, and the first non-volatile memory above it, `bottom` (frame
/// numbers). Nothing reads these infos, so their pages are used as ordinary memory.
fn gap(table: &Range<u64>, ram: u64, bottom: u64) -> Range<u64> {
    let (info, page) = (size_of::<FrameInfo>() as u64, PAGE_SIZE as u64);
    // The allocator reads the info of each returned block's buddy, so the table continues to the
    // end of the largest block that memory may end in.
    let first = ram.next_multiple_of(1 << hayate_frames::ORDERS);
    let start = (table.start + first * info).next_multiple_of(page);
    start..((table.start + bottom * info) / page * page).max(start)
}

/// Adds memory that was in use since boot: `count` frames from `first`.
///
/// # Safety
/// The frames must be RAM below the end of the frame table that the allocator never had and that is
/// not used any more.
pub(crate) unsafe fn adopt(first: u32, count: u32) {
    if let Some(buddy) = BUDDY.lock().as_mut() {
        buddy.free_range(first, count);
        TOTAL.fetch_add(count, Relaxed);
        LEFT.store(buddy.free_frames(), Relaxed);
    }
}

/// Returns `range` without `hole`: at most two parts.
fn subtract(range: Range<u64>, hole: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = range.start..range.end.min(hole.start);
    let after = range.start.max(hole.end)..range.end;
    [before, after].into_iter().filter(|part| part.start < part.end)
}
