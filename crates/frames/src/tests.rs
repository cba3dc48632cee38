//! Compares the allocator with a plain set of frames.

extern crate std;
use super::*;
use crate::unused::{MARKS, UNIT, UNIT_ORDER};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::{vec, vec::Vec};

struct Links(Vec<Link>);

impl Table for Links {
    fn link(&self, frame: u32) -> Link {
        self.0[frame as usize]
    }
    fn set_link(&mut self, frame: u32, link: Link) {
        self.0[frame as usize] = link;
    }
}

fn buddy(frames: u32) -> Buddy<Links> {
    Buddy::new(Links(vec![Link::USED; frames as usize]), frames)
}

/// Checks that every free block is on its list, marked and inside the bounds, that no two free
/// buddies exist, and the count.
fn check(buddy: &Buddy<Links>) {
    let mut seen = vec![false; buddy.end as usize];
    for order in 0..ORDERS {
        let mut frame = buddy.heads[order];
        assert_eq!(frame != 0, buddy.stocked >> order & 1 == 1);
        let mut prev = 0;
        while frame != 0 {
            let link = buddy.table.link(frame);
            let mark = if order >= UNIT_ORDER { link.state & MARKS } else { 0 };
            assert_eq!(link.state, Link::FREE | order as u32 | mark);
            assert_eq!(link.prev, prev);
            assert_eq!(frame % (1 << order), 0);
            let other = frame ^ (1 << order);
            if order + 1 < ORDERS && other < buddy.end {
                assert_ne!(buddy.table.link(other).state & !MARKS, Link::FREE | order as u32);
            }
            for f in frame..frame + (1 << order) {
                assert!(f < buddy.end && !core::mem::replace(&mut seen[f as usize], true));
            }
            prev = frame;
            frame = link.next;
        }
    }
    let free = seen.iter().filter(|seen| **seen).count();
    assert_eq!(free as u32, buddy.free_frames());
    let units = seen.chunks_exact(UNIT as usize);
    let whole = units.filter(|unit| unit.iter().all(|free| *free)).count();
    assert_eq!(buddy.told_frames() + buddy.untold_frames(), whole as u32 * UNIT);
}

#[test]
fn blocks_are_aligned_and_come_back_whole() {
    let mut b = buddy(1 << 12);
    b.free_range(1, (1 << 12) - 1);
    let before = b.free_blocks();
    let blocks: Vec<_> = (0..8).map(|order| (b.allocate(order).unwrap(), order)).collect();
    for &(frame, order) in &blocks {
        assert_eq!(frame % (1 << order), 0);
    }
    check(&b);
    for (frame, order) in blocks {
        b.free(frame, order);
    }
    assert_eq!(b.free_blocks(), before);
}

#[test]
fn exhaustion_is_an_answer() {
    let mut b = buddy(64);
    b.free_range(1, 63);
    assert_eq!(b.allocate(6), None);
    assert_eq!(b.allocate(ORDERS), None);
    assert_eq!(b.allocate_range(0), None);
    assert_eq!(b.allocate_range(u32::MAX), None);
    let frames = [const { AtomicU32::new(0) }; 100];
    assert_eq!(b.allocate_many(&frames), 63);
    assert_eq!(b.allocate(0), None);
    let set: BTreeSet<u32> = frames[..63].iter().map(|frame| frame.load(Relaxed)).collect();
    assert_eq!(set, (1..64).collect());
}

#[test]
#[should_panic(expected = "freed twice")]
fn double_free_is_caught() {
    let mut b = buddy(64);
    b.free(2, 0);
    b.free(2, 0);
}

#[test]
fn a_stack_refills_and_spills() {
    let s = Stack::<8>::new();
    assert_eq!(s.pop(), None);
    assert_eq!(
        s.refill(|f| {
            f.iter().zip(10..).for_each(|(f, n)| f.store(n, Relaxed));
            f.len()
        }),
        4
    );
    assert_eq!(s.pop(), Some(10));
    for n in 0..5 {
        assert!(s.push(n));
    }
    assert!(!s.push(9));
    let mut out = Vec::new();
    s.spill(false, |f| out.push(f));
    assert_eq!(out, [13, 12, 11, 0]);
    assert_eq!(s.len(), 4);
    s.spill(true, |f| out.push(f));
    assert!(s.is_empty());
}

proptest! {
    #[test]
    fn no_frame_is_given_twice(ops in prop::collection::vec((0u8..4, 0usize..7, any::<u16>()), 1..300),
                               end in 2u32..700) {
        let mut b = buddy(end);
        b.free_range(1, end - 1);
        let mut held: Vec<(u32, u32)> = Vec::new();
        let mut used = BTreeSet::new();
        for (op, order, pick) in ops {
            match op {
                0 | 1 => {
                    let (got, count) = if op == 0 {
                        (b.allocate(order), 1u32 << order)
                    } else {
                        let count = u32::from(pick) % 70 + 1;
                        (b.allocate_range(count), count)
                    };
                    if let Some(first) = got {
                        for f in first..first + count {
                            prop_assert!(f > 0 && f < end && used.insert(f));
                        }
                        held.push((first, count));
                    }
                }
                2 => {
                    let frames = [const { AtomicU32::new(0) }; 32];
                    let want = usize::from(pick) % 33;
                    let got = b.allocate_many(&frames[..want]);
                    prop_assert!(got == want || b.free_frames() == 0);
                    for f in frames[..got].iter().map(|frame| frame.load(Relaxed)) {
                        prop_assert!(used.insert(f));
                        held.push((f, 1));
                    }
                }
                _ if !held.is_empty() => {
                    let (first, count) = held.swap_remove(usize::from(pick) % held.len());
                    for f in first..first + count {
                        used.remove(&f);
                    }
                    b.free_range(first, count);
                }
                _ => {}
            }
            check(&b);
            prop_assert_eq!(b.free_frames() as usize + used.len(), end as usize - 1);
        }
    }
}

/// Takes everything out that is unused since the last call, at most `most` frames at a time.
fn offers(b: &mut Buddy<Links>, most: u32) -> Vec<core::ops::Range<u32>> {
    let (mut from, end) = (0, b.end);
    let mut all = Vec::new();
    while from < end {
        all.extend(b.offer(&mut from, end, most));
    }
    check(b);
    all
}

#[test]
fn unused_memory_is_offered_once() {
    const END: u32 = 20 * UNIT + 7;
    let mut b = buddy(END);
    b.free_range(1, END - 1);
    assert_eq!(b.untold_frames(), 19 * UNIT);
    // What is seen for the first time may be needed soon.
    assert_eq!(offers(&mut b, u32::MAX), []);
    let taken = b.allocate(UNIT_ORDER).unwrap();
    let runs = offers(&mut b, 4 * UNIT);
    assert!(runs.iter().all(|run| run.len() as u32 <= 4 * UNIT && run.start % UNIT == 0));
    assert!(runs.iter().all(|run| !run.contains(&taken)));
    assert_eq!(runs.iter().map(|run| run.len() as u32).sum::<u32>(), 18 * UNIT);
    assert_eq!(b.untold_frames() + b.told_frames(), 0);
    // The host heard of all but one.
    for (at, run) in runs.into_iter().enumerate() {
        b.restore(run, at != 0);
        check(&b);
    }
    b.free(taken, UNIT_ORDER);
    check(&b);
    let untold = b.untold_frames();
    assert_eq!(b.told_frames() + untold, 19 * UNIT);
    assert_eq!(offers(&mut b, u32::MAX), []);
    let runs = offers(&mut b, u32::MAX);
    assert_eq!(runs.iter().map(|run| run.len() as u32).sum::<u32>(), untold);
    runs.into_iter().for_each(|run| b.restore(run, true));
    check(&b);
    assert_eq!((b.untold_frames(), b.told_frames()), (0, 19 * UNIT));
    assert_eq!(offers(&mut b, u32::MAX), []);
    // One frame of a unit, and the unit is new when it comes back.
    let taken: Vec<u32> = (0..UNIT + 7).map(|_| b.allocate(0).unwrap()).collect();
    assert!(b.told_frames() < 19 * UNIT);
    taken.into_iter().for_each(|frame| b.free(frame, 0));
    check(&b);
    assert_eq!(b.untold_frames() + b.told_frames(), 19 * UNIT);
    assert_eq!(b.untold_frames(), UNIT);
}

proptest! {
    /// Beside a list that says of each unit how often it was looked at, and whether the host knows.
    #[test]
    fn the_host_has_only_what_is_unused(
        ops in prop::collection::vec((0u8..8, 0usize..12, any::<u16>()), 1..100),
        end in 2u32..20 * UNIT,
    ) {
        let mut b = buddy(end);
        b.free_range(1, end - 1);
        let mut held: Vec<(u32, u32)> = Vec::new();
        let mut out: Vec<core::ops::Range<u32>> = Vec::new();
        let mut looked = vec![0u8; (end / UNIT + 1) as usize];
        let mut told = vec![false; looked.len()];
        let touch = |looked: &mut Vec<u8>, told: &mut Vec<bool>, first: u32, count: u32| {
            for unit in first / UNIT..=(first + count - 1) / UNIT {
                looked[unit as usize] = 0;
                told[unit as usize] = false;
            }
        };
        for (op, order, pick) in ops {
            match op {
                0..3 => {
                    let (got, count) = if op == 0 {
                        let count = u32::from(pick) % (3 * UNIT) + 1;
                        (b.allocate_range(count), count)
                    } else {
                        (b.allocate(order), 1u32 << order)
                    };
                    if let Some(first) = got {
                        // The rest of a range's last unit was out, too.
                        let whole = count.next_power_of_two();
                        touch(&mut looked, &mut told, first, whole);
                        held.push((first, count));
                    }
                }
                3..5 if !held.is_empty() => {
                    let (first, count) = held.swap_remove(usize::from(pick) % held.len());
                    touch(&mut looked, &mut told, first, count);
                    b.free_range(first, count);
                }
                5 if !out.is_empty() => {
                    let run = out.swap_remove(usize::from(pick) % out.len());
                    let is_told = pick & 256 != 0;
                    for unit in run.start / UNIT..run.end / UNIT {
                        told[unit as usize] = is_told;
                        looked[unit as usize] = 0;
                    }
                    b.restore(run, is_told);
                }
                6.. => {
                    let runs = offers(&mut b, (u32::from(pick) % 9 + 1) * UNIT);
                    for unit in runs.iter().flat_map(|run| run.start / UNIT..run.end / UNIT) {
                        prop_assert!(looked[unit as usize] > 0 && !told[unit as usize]);
                    }
                    out.extend(runs);
                    looked.iter_mut().for_each(|count| *count = 1);
                }
                _ => {}
            }
            check(&b);
            let known = told.iter().filter(|told| **told).count() as u32;
            prop_assert_eq!(b.told_frames(), known * UNIT);
            let held: u32 = held.iter().map(|(_, count)| count).sum();
            let out: u32 = out.iter().map(|run| run.len() as u32).sum();
            prop_assert_eq!(b.free_frames() + held + out, end - 1);
        }
        // At rest everything is told in the end, as far as it is a whole unit.
        out.into_iter().for_each(|run| b.restore(run, false));
        for _ in 0..2 {
            let runs = offers(&mut b, 4 * UNIT);
            runs.into_iter().for_each(|run| b.restore(run, true));
        }
        prop_assert_eq!(b.untold_frames(), 0);
        check(&b);
    }
}

const LARGE: u64 = 2 << 20;
const LIMIT: u64 = 512 << 30;

#[test]
fn memory_of_a_device_is_whole_large_pages_where_nothing_is() {
    let ram = [0..0x8000_0000, 0x1_0000_0000..0x1_8000_0000];
    let admit = |start, size| admit(start, size, LARGE, LIMIT, ram.clone());
    assert_eq!(admit(0x2_0000_0000, 64 << 20), Ok(0x2_0000_0000..0x2_0400_0000));
    // Right above memory, right below the limit, and with a rest smaller than a large page.
    assert_eq!(admit(0x1_8000_0000, LARGE), Ok(0x1_8000_0000..0x1_8020_0000));
    assert_eq!(admit(LIMIT - LARGE, LARGE), Ok(LIMIT - LARGE..LIMIT));
    assert_eq!(admit(0x2_0000_0000, LARGE + 4096), Ok(0x2_0000_0000..0x2_0020_0000));
}

#[test]
fn memory_of_a_device_is_refused_where_it_makes_no_sense() {
    let ram = [0..0x8000_0000, 0x1_0000_0000..0x1_8000_0000];
    let admit = |start, size| admit(start, size, LARGE, LIMIT, ram.clone());
    assert_eq!(admit(0x2_0000_0000, 0), Err(Refusal::Small));
    assert_eq!(admit(0x2_0000_0000, LARGE - 1), Err(Refusal::Small));
    assert_eq!(admit(0x2_0000_1000, 64 << 20), Err(Refusal::Unaligned));
    assert_eq!(admit(LIMIT - LARGE, 2 * LARGE), Err(Refusal::Beyond));
    assert_eq!(admit(u64::MAX - LARGE + 1, LARGE), Err(Refusal::Beyond));
    assert_eq!(admit(0x2_0000_0000, u64::MAX), Err(Refusal::Beyond));
    assert_eq!(admit(0, LARGE), Err(Refusal::Taken));
    assert_eq!(admit(0x8000_0000, 0x8000_0000 + 1), Err(Refusal::Taken));
    assert_eq!(admit(0x1_7fe0_0000, 64 << 20), Err(Refusal::Taken));
    // Around all of it.
    assert_eq!(admit(0x8000_0000, 8 << 30), Err(Refusal::Taken));
}

/// A table in which a record that was not cleared is nonsense, and clearing it twice is an error.
struct Uncleared(Vec<Option<Link>>);

impl Table for Uncleared {
    fn link(&self, frame: u32) -> Link {
        self.0[frame as usize].expect("a record that was not cleared is read")
    }
    fn set_link(&mut self, frame: u32, link: Link) {
        let old = self.0[frame as usize].replace(link);
        assert!(old.is_some(), "a record that was not cleared is written");
    }
}

impl Clear for Uncleared {
    fn clear(&mut self, frames: std::ops::Range<u32>) {
        for frame in frames {
            let old = self.0[frame as usize].replace(Link::USED);
            assert!(old.is_none(), "cleared twice");
        }
    }
}

#[test]
fn memory_that_nobody_needs_is_left_alone() {
    let end = 5 * SECTION - 100;
    let usable = [1..SECTION + 5, SECTION + 7..2 * SECTION, 3 * SECTION..end];
    // In the last section; the fourth one is the first to grow into after the first two.
    let in_use = [SECTION + 5..SECTION + 7, end - 40..end - 30];
    let usable: Ranges = usable.into_iter().collect();
    let total: usize = usable.iter().map(|range| range.len()).sum();
    let table = Uncleared(vec![None; end as usize]);
    let mut memory = Growing::new(table, end, usable, in_use.into_iter().collect());
    let cleared = |memory: &Growing<Uncleared>, section: u32| {
        memory.buddy.table.0[(section * SECTION) as usize].is_some()
    };
    let seen = |memory: &Growing<Uncleared>| [0, 1, 2, 3, 4].map(|s| cleared(memory, s));
    assert_eq!(memory.free_frames() as usize, total);
    assert_eq!(seen(&memory), [false, true, false, false, true]);
    assert_eq!(memory.allocate(SECTION.ilog2() as usize), Some(3 * SECTION));
    assert_eq!(seen(&memory), [true, true, false, true, true]);
    assert_eq!(memory.allocate(SECTION.ilog2() as usize), None);
    memory.free(3 * SECTION, SECTION.ilog2() as usize);
    let slots: Vec<AtomicU32> = (0..total + 9).map(|_| AtomicU32::new(0)).collect();
    assert_eq!(memory.allocate_many(&slots), total);
    assert_eq!(memory.free_frames(), 0);
    assert!(!seen(&memory)[2], "a section without memory");
    let frames: BTreeSet<u32> = slots[..total].iter().map(|slot| slot.load(Relaxed)).collect();
    assert!(frames.len() == total && !frames.contains(&0) && !frames.contains(&(SECTION + 5)));
    memory.free_range(SECTION + 5, 2);
    assert_eq!(memory.free_frames(), 2);
}

proptest! {
    #[test]
    fn growing_memory_is_handed_out_once(
        ranges in prop::collection::vec((1u32..40_000, 1u32..70_000), 1..6),
        in_use in prop::collection::vec((0u32..300_000, 1u32..50), 0..4),
        requests in prop::collection::vec(0usize..ORDERS, 1..60),
    ) {
        let mut at = 1;
        let mut usable = Ranges::new();
        for (gap, size) in ranges {
            usable.push(at + gap..at + gap + size);
            at += gap + size;
        }
        let end = at + 1;
        // Wherever it is: frames that are both usable and in use are an error of the caller only.
        let in_use = in_use.into_iter().map(|(at, size)| at % end..(at % end + size).min(end));
        let in_use: Ranges = in_use.collect();
        let total: u32 = usable.iter().map(|range| range.len() as u32).sum();
        let table = Uncleared(vec![None; end as usize]);
        let mut memory = Growing::new(table, end, usable.clone(), in_use);
        let mut taken = BTreeSet::new();
        for order in requests {
            let left = memory.free_frames();
            prop_assert_eq!(left as usize + taken.len(), total as usize);
            match memory.allocate(order) {
                Some(first) => for frame in first..first + (1 << order) {
                    prop_assert!(usable.iter().any(|range| range.contains(&frame)));
                    prop_assert!(taken.insert(frame));
                },
                None => prop_assert!(order > 0 || left == 0),
            }
        }
    }
}
