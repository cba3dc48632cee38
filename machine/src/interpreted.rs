//! The machine layer under Miri, the interpreter that finds undefined behaviour: substitutes for
//! the hardware, and tests of the code that then runs.
//!
//! Memory is an array, which the direct map shows from its first byte. There is one CPU, whose
//! per-CPU data are the templates. Clearing and copying are plain writes. So the frame table, the
//! allocators of frames and of the heap, and the locks run unchanged, and each pointer that they
//! make is checked: it must lie in the memory that it was made from, be aligned and initialised,
//! and not be used from two threads at once. Page tables, traps and devices need a processor.
//!
//! `./hayate test host/miri` runs the tests, if the nightly toolchain with Miri is installed.

use crate::frames::{self, Block, Frame, RUN, Run};
use crate::heap::{self, Heap};
use crate::layout::{INTERPRETED_MEMORY, PAGE_SIZE};
use crate::loader::{MemoryKind, MemoryRange};
use crate::sync::{Once, RwSpinLock, SpinLock};
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use hayate_fuzzing::Random;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// Sets the machine up once, and lends it to one test at a time: the test's thread is its one CPU.
fn machine() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static READY: Once<()> = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    READY.call_once(|| {
        let end = INTERPRETED_MEMORY as u64;
        let memory = MemoryRange { start: 0, end, kind: MemoryKind::Usable };
        // SAFETY: the array stands for memory, and this happens once.
        unsafe { frames::init(&[memory], core::iter::empty()) };
    });
    turn
}

#[test]
fn frames_are_memory_and_come_back() {
    let _turn = machine();
    let before = frames::counts();
    let mut taken = Vec::new();
    while let Some(frame) = Frame::allocate() {
        let number = frame.number().to_ne_bytes();
        assert_eq!(frame.write(PAGE_SIZE - 4, &number), 4);
        taken.push(frame);
    }
    assert!(taken.len() > 100, "{before:?}");
    for frame in &taken {
        let mut number = [0; 8];
        assert_eq!(frame.read(PAGE_SIZE - 4, &mut number), 4, "it ends with the frame");
        assert_eq!(
            u32::from_ne_bytes([number[0], number[1], number[2], number[3]]),
            frame.number()
        );
    }
    let (first, second) = (&taken[0], &taken[1]);
    first.zero();
    second.copy_from(first);
    assert_eq!(second.load_u32(PAGE_SIZE - 4), Some(0));
    assert_eq!(second.load_u32(PAGE_SIZE - 2), None);
    second.write(8, &[1, 2, 3, 4]);
    second.zero_range(9, 2);
    assert_eq!(second.load_u32(8), Some(u32::from_ne_bytes([1, 0, 0, 4])));
    drop(taken);
    assert_eq!(frames::counts(), before);
}

#[test]
fn references_are_counted() {
    let _turn = machine();
    let before = frames::counts();
    let frame = Frame::allocate_zeroed().unwrap();
    assert!(frame.is_unique());
    let other = frame.clone();
    assert_eq!((frame.references(), other.references()), (2, 2));
    drop(frame);
    assert!(other.is_unique());
    drop(other);
    assert_eq!(frames::counts(), before);
}

/// The numbers of owners that were told of, added up.
static TOLD: AtomicU32 = AtomicU32::new(0);

#[test]
fn the_last_reference_tells_the_owner() {
    let _turn = machine();
    frames::owner::register(frames::owner::Charging {
        table: |owner| Some(owner),
        gone: |owner| {
            TOLD.fetch_add(owner, Relaxed);
        },
    });
    let before = frames::counts().free;
    let mut frame = Frame::allocate().unwrap();
    assert_eq!(frame.owner(), 0);
    assert!(frame.belong(7) && !frame.belong(8));
    let other = frame.clone();
    assert_eq!((frame.owner(), other.references()), (7, 2));
    drop(frame);
    assert_eq!((other.owner(), TOLD.load(Relaxed)), (7, 0));
    assert!(other.is_unique());
    drop(other);
    assert_eq!(TOLD.load(Relaxed), 7);
    // Shared frames are not given to an owner, and the next holder has none.
    let mut frame = Frame::allocate().unwrap();
    assert_eq!(frame.owner(), 0);
    let other = frame.clone();
    assert!(!frame.belong(9));
    drop((frame, other));
    assert_eq!(TOLD.load(Relaxed), 7);
    let block = Block::allocate(8).unwrap();
    block.into_frames(|mut frame| assert!(frame.owner() == 0 && frame.belong(1)));
    assert_eq!((TOLD.load(Relaxed), frames::counts().free), (15, before));
}

#[test]
fn blocks_are_in_a_row() {
    let _turn = machine();
    let before = frames::counts();
    for count in [1, 2, 3, 8, 13, 64] {
        let block = Block::allocate(count).unwrap();
        assert_eq!(block.size(), count as usize * PAGE_SIZE);
        assert!(block.address().is_multiple_of(u64::from(count.next_power_of_two()) * 4096));
        let mut numbers = Vec::new();
        block.into_frames(|frame| numbers.push(frame));
        assert!(numbers.windows(2).all(|pair| pair[0].number() + 1 == pair[1].number()));
    }
    assert_eq!(frames::counts().free, before.free);
}

#[test]
fn a_run_is_counted_as_one() {
    let _turn = machine();
    let before = frames::counts().free;
    let run = Run::allocate().unwrap();
    assert_eq!(run.size(), RUN as usize * PAGE_SIZE);
    assert!(run.address().is_multiple_of(run.size() as u64));
    let other = run.clone();
    // Over the border of two frames, and over the end.
    assert_eq!(other.write(PAGE_SIZE - 2, &[1, 2, 3, 4]), 4);
    assert_eq!(other.write(run.size() - 1, &[5, 6]), 1);
    drop(run);
    assert_eq!(frames::counts().free, before - RUN as usize);
    let mut bytes = [0; 4];
    assert_eq!(other.read(PAGE_SIZE - 2, &mut bytes), 4);
    assert_eq!(bytes, [1, 2, 3, 4]);
    assert_eq!(other.read(other.size(), &mut bytes), 0);
    drop(other);
    assert_eq!(frames::counts().free, before);
    // More than a processor keeps.
    let mut runs: Vec<Run> = (0..20).map(|_| Run::allocate().unwrap()).collect();
    runs.sort_by_key(Run::address);
    let size = runs[0].size() as u64;
    assert!(runs.windows(2).all(|pair| pair[0].address() + size <= pair[1].address()));
    drop(runs);
    assert_eq!(frames::counts().free, before);
}

#[test]
fn a_frame_is_a_run_of_one() {
    let _turn = machine();
    let before = frames::counts().free;
    let frame = Frame::allocate_zeroed().unwrap();
    let run = Run::from(frame.clone());
    assert_eq!((frame.references(), run.size()), (2, PAGE_SIZE));
    assert_eq!(run.write(PAGE_SIZE - 1, &[7, 8]), 1);
    let mut byte = [0];
    assert_eq!((frame.read(PAGE_SIZE - 1, &mut byte), byte), (1, [7]));
    let other = run.clone();
    drop((frame, run));
    assert_eq!(frames::counts().free, before - 1);
    drop(other);
    assert_eq!(frames::counts().free, before);
}

#[test]
fn the_heap_keeps_what_is_written() {
    let _turn = machine();
    heap::trim();
    let before = frames::counts();
    let mut random = Random::new(7);
    let mut held: Vec<(*mut u8, Layout, u8)> = Vec::new();
    for round in 0..600 {
        let size = 1 + random.below(if round % 16 == 0 { 9000 } else { 700 });
        let layout = Layout::from_size_align(size, 1 << random.below(7)).unwrap();
        match random.below(3) {
            0 if !held.is_empty() => {
                let (memory, layout, mark) = held.swap_remove(random.below(held.len()));
                // SAFETY: allocated below with this layout, and held once.
                unsafe {
                    assert_eq!((memory.read(), memory.add(layout.size() - 1).read()), (mark, mark));
                    Heap.dealloc(memory, layout);
                }
            }
            1 if !held.is_empty() => {
                let (memory, layout, mark) = held.pop().unwrap();
                // SAFETY: as above; the new size is not 0.
                let memory = unsafe { Heap.realloc(memory, layout, size) };
                assert!(!memory.is_null());
                let layout = Layout::from_size_align(size, layout.align()).unwrap();
                // SAFETY: the memory has this size now; the first byte was kept.
                unsafe {
                    assert_eq!(memory.read(), mark);
                    memory.write_bytes(mark, size);
                }
                held.push((memory, layout, mark));
            }
            _ => {
                // SAFETY: the size is not 0.
                let memory = unsafe { Heap.alloc(layout) };
                assert!(!memory.is_null() && memory.addr().is_multiple_of(layout.align()));
                // SAFETY: just allocated, of this size.
                unsafe { memory.write_bytes(round as u8, size) };
                held.push((memory, layout, round as u8));
            }
        }
    }
    for (memory, layout, _) in held {
        // SAFETY: allocated with this layout, and held once.
        unsafe { Heap.dealloc(memory, layout) };
    }
    heap::trim();
    assert!(heap::objects().all(|(_, count)| count == 0));
    assert_eq!(frames::counts().free, before.free);
}

#[test]
fn locks_keep_threads_apart() {
    let _turn = machine();
    static SPIN: SpinLock<u32> = SpinLock::new(0);
    static READERS: RwSpinLock<[u32; 2]> = RwSpinLock::new([0; 2]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20 {
                    *SPIN.lock() += 1;
                    let mut both = READERS.write();
                    both[0] += 1;
                    both[1] += 1;
                    drop(both);
                    let both = READERS.read();
                    assert_eq!(both[0], both[1]);
                }
            });
        }
    });
    assert_eq!((*SPIN.lock(), *READERS.read()), (60, [60; 2]));
}
