//! The kernel's heap: size classes, slabs of frames, free lists for each processor.
//!
//! An allocation takes some fifteen instructions: the size gives the class, and this processor's
//! free list of the class gives the object. Empty or overfull lists exchange objects with the
//! class's depot, 16 at a time, under the depot's lock. The depot keeps its objects by slab: a slab
//! whose objects have all come back returns to the frame allocator at once, so a burst leaves no
//! partly used slabs behind.
//!
//! A slab is one frame, so fragmented memory serves as well. The slab's state is kept in the frame
//! table ([`Slab`]), and an object's slab is found by its address. An allocation larger than
//! [`LARGEST`] gets frames of its own; the size that the deallocation passes says how many to
//! return. These frames are contiguous if possible, otherwise they come from anywhere
//! ([`crate::scattered`]).
//!
//! A large allocation fails at the frame allocator's reserve ([`crate::frames`]), so a program
//! cannot exhaust the kernel through tables and buffers whose size it chooses. Small objects may
//! use the reserve; once half of it is gone, the execution that allocates is marked
//! ([`attention::MEMORY`]), and the kernel ends its process before it returns to user mode.
//!
//! Lock order: a depot's lock comes before the frame allocator's.
//!
//! Road not taken: the `talc` crate. One lock and boundary tags cost several times as much on the
//! path of every fork and open.

use crate::attention;
use crate::cpu::{MAX_CPUS, PerCpu};
use crate::frames::{self, Block, FrameInfo, direct, info, physical};
use crate::layout::{PAGE_SHIFT, PAGE_SIZE};
use crate::per_cpu;
use crate::scattered;
use crate::sync::SpinLock;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

/// The sizes of objects. All are multiples of 16.
const SIZES: [usize; 14] = [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1360, 2048];
/// Larger allocations get frames of their own.
const LARGEST: usize = 2048;
/// How many objects a processor's list may hold before the depot gets half of them. Large objects
/// are kept in smaller numbers.
const fn most(class: usize) -> u32 {
    if SIZES[class] <= 256 { 64 } else { 16 }
}

/// The class, by (size + 15) / 16.
static CLASS: [u8; LARGEST / 16 + 1] = {
    let mut table = [0u8; LARGEST / 16 + 1];
    let (mut units, mut class) = (0, 0);
    while units < table.len() {
        if units * 16 > SIZES[class] {
            class += 1;
        }
        table[units] = class as u8;
        units += 1;
    }
    table
};

/// A free object: the address of the next one.
type Object = *mut *mut u8;

/// A slab, by its frame's number; 0: none. The frame's info holds the slab's state under the
/// depot's lock. In `tag`: the place of the first free object (in units of 16 bytes, plus 1; 0:
/// none) and, above 16 bits, how many objects are out (allocated, or on some processor's list). In
/// `data`: the neighbours on the depot's list.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slab(u32);

impl Slab {
    const NONE: Slab = Slab(0);

    /// Returns the slab of an object.
    fn of(object: *mut u8) -> Slab {
        Slab((physical(object) >> PAGE_SHIFT) as u32)
    }

    fn info(self) -> &'static FrameInfo {
        // SAFETY: a slab is a frame that `grow` took from the allocator; it is found by its number
        // or by the address of an object in it.
        unsafe { info(self.0) }
    }

    fn free(self) -> *mut u8 {
        match self.info().tag() & 0xffff {
            0 => null_mut(),
            place => direct((u64::from(self.0) << PAGE_SHIFT) + u64::from(place - 1) * 16),
        }
    }

    fn out(self) -> u32 {
        self.info().tag() >> 16
    }

    fn set(self, free: *mut u8, out: u32) {
        let place = if free.is_null() { 0 } else { free as usize % PAGE_SIZE / 16 + 1 };
        self.info().set_tag(place as u32 | out << 16);
    }

    fn neighbours(self) -> (Slab, Slab) {
        let data = self.info().data.load(Relaxed);
        (Slab(data as u32), Slab((data >> 32) as u32))
    }

    fn set_neighbours(self, next: Slab, prev: Slab) {
        if self != Slab::NONE {
            self.info().data.store(u64::from(next.0) | u64::from(prev.0) << 32, Relaxed);
        }
    }
}

/// One class: its slabs that have free objects, and how many objects are out of all its slabs.
struct Depot {
    partial: Slab,
    out: usize,
}

static DEPOTS: [SpinLock<Depot>; SIZES.len()] =
    [const { SpinLock::new(Depot { partial: Slab::NONE, out: 0 }) }; SIZES.len()];

/// One processor's free objects of one class. Only that processor changes the list, with interrupts
/// off, so a load and a store suffice; other processors read the count.
struct List {
    first: AtomicPtr<u8>,
    count: AtomicU32,
}

type Lists = [List; SIZES.len()];

impl List {
    const fn new() -> List {
        List { first: AtomicPtr::new(null_mut()), count: AtomicU32::new(0) }
    }

    /// Takes the first object.
    #[inline]
    fn pop(&self) -> Option<*mut u8> {
        let first = self.first.load(Relaxed);
        if first.is_null() {
            return None;
        }
        // SAFETY: an object on the list is free memory of its class, large enough for an address,
        // and only this processor uses it; `push` wrote the address of the next one into it.
        self.first.store(unsafe { *first.cast::<*mut u8>() }, Relaxed);
        self.count.store(self.count.load(Relaxed) - 1, Relaxed);
        Some(first)
    }

    /// Puts an object before the first; returns the new count.
    ///
    /// # Safety
    /// The object is of the list's class, and belongs to the caller.
    #[inline]
    unsafe fn push(&self, object: *mut u8) -> u32 {
        // SAFETY: the object is free memory that only the caller has, as the caller vouches,
        // aligned to 16 bytes and no smaller.
        unsafe { object.cast::<*mut u8>().write(self.first.load(Relaxed)) };
        self.first.store(object, Relaxed);
        let count = self.count.load(Relaxed) + 1;
        self.count.store(count, Relaxed);
        count
    }
}

per_cpu! {
    static LISTS: PerCpu<Lists> = PerCpu::new([const { List::new() }; SIZES.len()]);
}

/// Bytes in slabs and in large allocations.
static SLABS: AtomicUsize = AtomicUsize::new(0);
static LARGE: AtomicUsize = AtomicUsize::new(0);

/// Returns how many bytes of memory the heap holds: in slabs, and in large allocations.
pub fn counts() -> (usize, usize) {
    (SLABS.load(Relaxed), LARGE.load(Relaxed))
}

/// Returns the sizes of objects, and how many of each are in use. Free objects in slabs and on
/// processors' lists do not count. Exact when nothing else runs.
pub fn objects() -> impl Iterator<Item = (usize, usize)> {
    let kept = |class: usize| -> usize {
        let count = |lists: &Lists| lists[class].count.load(Relaxed) as usize;
        (0..MAX_CPUS).filter_map(|cpu| LISTS.of(cpu)).map(count).sum()
    };
    DEPOTS.iter().enumerate().map(move |(class, depot)| {
        let out = depot.lock().out;
        (SIZES[class], out.saturating_sub(kept(class)))
    })
}

/// The kernel's allocator; registered here for every binary that links the machine.
pub(crate) struct Heap;

#[cfg_attr(not(miri), global_allocator)]
#[cfg_attr(miri, expect(dead_code, reason = "the interpreter has a heap of its own"))]
static HEAP: Heap = Heap;

/// Returns the class for a layout; `None`: frames of its own.
#[inline]
fn class(layout: &Layout) -> Option<usize> {
    let size = if layout.align() <= 16 {
        layout.size()
    } else {
        // The objects of a power-of-two class are aligned to their size.
        layout.size().max(layout.align()).next_power_of_two()
    };
    // A layout's size is too small to overflow here.
    CLASS.get(size.wrapping_add(15) / 16).map(|&class| class as usize)
}

// SAFETY: objects of a class are at least as large as the layout and aligned to it (see `class` and
// `Depot::grow`); an object is on exactly one list or out.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(&layout) else { return allocate_large(&layout) };
        match LISTS.here()[class].pop() {
            Some(object) => object,
            None => refill(class),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let Some(class) = class(&layout) else {
            // SAFETY: it came from `allocate_large` with the same layout.
            return unsafe { free_large(object, &layout) };
        };
        // SAFETY: the caller gives up an object that `alloc` returned for this layout, so the class
        // is that of the object.
        if unsafe { LISTS.here()[class].push(object) } > most(class) {
            spill(class);
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout.
        let memory = unsafe { self.alloc(layout) };
        if !memory.is_null() {
            // SAFETY: just allocated, of this size.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (class(&layout), class(&wanted)) {
            (Some(old), Some(new)) if old == new => return object,
            (None, None) if large_frames(&layout) == large_frames(&wanted) => return object,
            _ => {}
        }
        // SAFETY: two different objects, each at least as large as what is copied.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(object, new, layout.size().min(size));
                self.dealloc(object, layout);
            }
            new
        }
    }
}

/// Moves objects from the depot to this processor's list, and returns one of them to the caller.
#[cold]
fn refill(class: usize) -> *mut u8 {
    let list = &LISTS.here()[class];
    let mut depot = DEPOTS[class].lock();
    for _ in 0..most(class) / 4 {
        let Some(object) = depot.take(class) else { break };
        // SAFETY: the depot of this class gave the object out just now.
        unsafe { list.push(object) };
    }
    list.pop().unwrap_or(null_mut())
}

/// Gives half of this processor's list to the depot.
#[cold]
fn spill(class: usize) {
    let list = &LISTS.here()[class];
    let mut depot = DEPOTS[class].lock();
    for _ in 0..most(class) / 2 {
        let Some(object) = list.pop() else { break };
        // SAFETY: this is an object of this class, which was on this processor's list only and was
        // just taken off.
        unsafe { depot.put(object) };
    }
}

/// Gives all free objects of this processor back to their slabs, so that empty slabs become free
/// frames: under memory pressure, and before free memory is compared.
pub fn trim() {
    for (class, depot) in DEPOTS.iter().enumerate() {
        while !LISTS.here()[class].first.load(Relaxed).is_null() {
            spill(class);
        }
        depot.lock().drop_whole();
    }
}

impl Depot {
    /// Takes one object; makes a slab if no slab has a free object.
    fn take(&mut self, class: usize) -> Option<*mut u8> {
        if self.partial == Slab::NONE {
            self.partial = grow(class)?;
        }
        let slab = self.partial;
        let object = slab.free();
        // SAFETY: slabs on the list have a free object, which belongs to the holder of the lock and
        // holds the address of the next.
        let next = unsafe { *(object as Object) };
        slab.set(next, slab.out() + 1);
        self.out += 1;
        if next.is_null() {
            self.unlink(slab);
        }
        Some(object)
    }

    /// Puts an object back into its slab, and frees the slab if all its objects are back.
    ///
    /// # Safety
    /// The object is of this depot's class, and belongs to the caller.
    unsafe fn put(&mut self, object: *mut u8) {
        let slab = Slab::of(object);
        let free = slab.free();
        // SAFETY: the object is ours, and large enough for an address.
        unsafe { object.cast::<*mut u8>().write(free) };
        slab.set(object, slab.out() - 1);
        self.out -= 1;
        if free.is_null() {
            self.link(slab);
        }
        // One empty slab stays, so that a class in use does not allocate and free a slab
        // repeatedly.
        let only = self.partial == slab && slab.neighbours().0 == Slab::NONE;
        if slab.out() == 0 && !only {
            self.give_back(slab);
        }
    }

    /// Frees the empty slab that stayed.
    fn drop_whole(&mut self) {
        let slab = self.partial;
        if slab != Slab::NONE && slab.out() == 0 {
            self.give_back(slab);
        }
    }

    /// Frees the frame of a slab all of whose objects are back.
    fn give_back(&mut self, slab: Slab) {
        self.unlink(slab);
        slab.set(null_mut(), 0);
        SLABS.fetch_sub(PAGE_SIZE, Relaxed);
        // SAFETY: all objects are back, so the frame is unused; `grow` took it from the allocator.
        drop(unsafe { Block::from_raw(slab.0, 1) });
    }

    fn link(&mut self, slab: Slab) {
        slab.set_neighbours(self.partial, Slab::NONE);
        if self.partial != Slab::NONE {
            let (next, _) = self.partial.neighbours();
            self.partial.set_neighbours(next, slab);
        }
        self.partial = slab;
    }

    fn unlink(&mut self, slab: Slab) {
        let (next, prev) = slab.neighbours();
        if next != Slab::NONE {
            let (after, _) = next.neighbours();
            next.set_neighbours(after, prev);
        }
        if prev == Slab::NONE {
            self.partial = next;
        } else {
            let (_, before) = prev.neighbours();
            prev.set_neighbours(next, before);
        }
    }
}

/// Makes a slab with all its objects free.
fn grow(class: usize) -> Option<Slab> {
    let number = frames::allocate_kernel()?;
    SLABS.fetch_add(PAGE_SIZE, Relaxed);
    mark_if_low();
    let base = direct(u64::from(number) << PAGE_SHIFT);
    let size = SIZES[class];
    let mut free = null_mut();
    for index in (0..PAGE_SIZE / size).rev() {
        // SAFETY: the frame is ours, and the object lies inside it.
        unsafe {
            let at = base.add(index * size);
            at.cast::<*mut u8>().write(free);
            free = at;
        }
    }
    let slab = Slab(number);
    slab.set(free, 0);
    slab.set_neighbours(Slab::NONE, Slab::NONE);
    Some(slab)
}

/// Marks the current execution if the reserve is being used up.
fn mark_if_low() {
    if crate::frames::is_low() {
        attention::raise(attention::MEMORY);
    }
}

fn large_frames(layout: &Layout) -> usize {
    layout.size().div_ceil(PAGE_SIZE)
}

#[cold]
fn allocate_large(layout: &Layout) -> *mut u8 {
    /// How many frames may be taken of the reserve at once.
    const SMALL: u32 = 16;
    // A block is aligned to the power of two that holds it, so the alignment is met if it is no
    // larger than that; a larger alignment is used as the size.
    let size = layout.size().max(layout.align());
    let pages = size.div_ceil(PAGE_SIZE);
    let Ok(frames) = u32::try_from(pages) else { return null_mut() };
    // One frame is a small object that happens to fill it. In need, a few frames count as small as
    // well: the caller may hold a lock, and so cannot have anything else given up first. Half of
    // the reserve stays.
    let block = match frames {
        1 => Block::allocate_kernel(1),
        2..=SMALL => Block::allocate(frames).or_else(|| {
            let spare = !crate::frames::is_low();
            if spare { Block::allocate_kernel(frames) } else { None }
        }),
        _ => Block::allocate(frames),
    };
    let memory = match block {
        Some(block) => {
            let memory = block.pointer();
            let _ = block.into_raw();
            memory
        }
        // Scattered frames are aligned to a page and no further.
        None if frames > 1 && layout.align() <= PAGE_SIZE => {
            scattered::allocate(pages).unwrap_or(null_mut())
        }
        None => null_mut(),
    };
    if memory.is_null() {
        return memory;
    }
    if frames <= SMALL {
        mark_if_low();
    }
    LARGE.fetch_add(pages * PAGE_SIZE, Relaxed);
    memory
}

/// # Safety
/// `memory` comes from [`allocate_large`] with the same layout.
#[cold]
unsafe fn free_large(memory: *mut u8, layout: &Layout) {
    let pages = layout.size().max(layout.align()).div_ceil(PAGE_SIZE);
    LARGE.fetch_sub(pages * PAGE_SIZE, Relaxed);
    if scattered::holds(memory as usize) {
        // SAFETY: the caller's promise.
        return unsafe { scattered::free(memory, pages) };
    }
    let first = physical(memory) >> PAGE_SHIFT;
    // SAFETY: the block was given away by `into_raw`.
    drop(unsafe { Block::from_raw(first as u32, pages as u32) });
    const { assert!(LARGEST == SIZES[SIZES.len() - 1]) };
}
