//! Compares the map with a plain array of pages.

extern crate std;
use super::*;
use proptest::prelude::*;
use std::vec;

/// The content of a page: a kind, and an offset that continues (a file) or not (anonymous).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    kind: u8,
    offset: Option<usize>,
}

impl Content for Page {
    fn advance(&mut self, bytes: usize) {
        self.offset = self.offset.map(|offset| offset + bytes);
    }
    fn continues(&self, bytes: usize, next: &Self) -> bool {
        let mut there = self.clone();
        there.advance(bytes);
        there == *next
    }
}

const PAGES: usize = 64;

fn page(kind: u8) -> Page {
    Page { kind: kind % 4, offset: (kind >= 128).then_some(0) }
}

/// Checks the map's invariants, and that it agrees with the model.
fn check(map: &SpaceMap<Page>, model: &[Option<Page>]) {
    let mut size = 0;
    for pair in map.regions.windows(2) {
        let (above, below) = (&pair[0], &pair[1]);
        assert!(below.end <= above.start, "order");
        assert!(
            below.end < above.start || !below.value.continues(below.size(), &above.value),
            "unmerged neighbours"
        );
    }
    for region in map.iter() {
        assert!(region.start < region.end);
        size += region.size();
    }
    assert_eq!(size, map.size());
    for (address, expected) in model.iter().enumerate() {
        let found = map.find(address).map(|region| {
            let mut value = region.value.clone();
            value.advance(address - region.start);
            value
        });
        assert_eq!(&found, expected, "page {address}");
    }
}

/// Returns the gap that a search page by page finds.
fn room(
    model: &[Option<Page>],
    size: usize,
    align: usize,
    within: Range<usize>,
    top: bool,
) -> Option<usize> {
    let fits = |at: &usize| {
        at.is_multiple_of(align)
            && at + size <= within.end
            && (*at..at + size).all(|address| model[address].is_none())
    };
    if size == 0 {
        None
    } else if top {
        within.clone().rev().find(fits)
    } else {
        within.clone().find(fits)
    }
}

fn found(
    map: &SpaceMap<Page>,
    len: usize,
    align: usize,
    within: Range<usize>,
    top: bool,
) -> Option<usize> {
    if top {
        map.room_from_top(len, align, within, |_| 0)
    } else {
        map.room_from_bottom(len, align, within, |_| 0)
    }
}

proptest! {
    #[test]
    fn behaves_like_an_array(ops in prop::collection::vec(
        (0u8..8, 0usize..PAGES, 1usize..20, any::<u8>(), 0u32..4), 1..120))
    {
        let mut map = SpaceMap::new();
        let mut model: Vec<Option<Page>> = vec![None; PAGES];
        for (op, start, len, kind, shift) in ops {
            let range = start..(start + len).min(PAGES);
            match op {
                0 | 1 => {
                    let free = range.clone().all(|address| model[address].is_none());
                    prop_assert_eq!(free, map.is_free(range.clone()));
                    if free {
                        map.insert(range.clone(), page(kind)).unwrap();
                        for address in range.clone() {
                            let mut value = page(kind);
                            value.advance(address - range.start);
                            model[address] = Some(value);
                        }
                    }
                }
                2 | 3 => {
                    let removed = map.remove(range.clone()).unwrap();
                    let mut there = range.clone().filter(|&a| model[a].is_some()).count();
                    for region in removed {
                        prop_assert!(range.start <= region.start && region.end <= range.end);
                        there -= region.size();
                        #[expect(clippy::needless_range_loop, reason = "the address is used as one too")]
                        for address in region.start..region.end {
                            let mut value = region.value.clone();
                            value.advance(address - region.start);
                            prop_assert_eq!(model[address].take(), Some(value));
                        }
                    }
                    prop_assert_eq!(there, 0);
                }
                4 => {
                    map.update(range.clone(), |value| value.kind = kind % 4).unwrap();
                    model[range.clone()].iter_mut().flatten().for_each(|p| p.kind = kind % 4);
                }
                7 => {
                    map.change_all(|_, value| value.kind &= kind);
                    model.iter_mut().flatten().for_each(|page| page.kind &= kind);
                }
                5 => {
                    for top in [true, false] {
                        for within in [range.clone(), 0..PAGES] {
                            let expected = room(&model, len, 1 << shift, within.clone(), top);
                            prop_assert_eq!(found(&map, len, 1 << shift, within, top), expected);
                        }
                    }
                }
                _ => {
                    let covered = range.clone().all(|address| model[address].is_some());
                    prop_assert_eq!(covered, map.is_covered(range.clone()));
                    let size = range.clone().filter(|&a| model[a].is_some()).count();
                    prop_assert_eq!(size, map.size_in(range.clone()));
                    let below = (0..range.start).rev().find(|&a| model[a].is_some());
                    prop_assert_eq!(map.find_below(range.start).map(|r| (r.end.min(range.start)) - 1), below);
                    let copy = map.try_clone(|region| Some(region.value.clone())).unwrap();
                    check(&copy, &model);
                }
            }
            check(&map, &model);
        }
    }
}

#[test]
fn a_stack_grows_down_to_its_neighbour() {
    let mut map = SpaceMap::new();
    map.insert(10..12, page(1)).unwrap();
    map.insert(40..50, page(2)).unwrap();
    assert!(map.grow_down(40, 30));
    assert!(!map.grow_down(40, 20));
    assert!(!map.grow_down(30, 11));
    assert!(map.grow_down(30, 12));
    assert_eq!(map.size(), 40);
}

#[test]
fn a_guard_stays_below_a_stack() {
    let mut map = SpaceMap::new();
    map.insert(40..50, page(2)).unwrap();
    assert_eq!(map.room_from_top(5, 1, 0..50, |_| 8), Some(27));
    assert_eq!(map.room_from_bottom(33, 1, 0..90, |_| 8), Some(50));
    assert_eq!(map.room_from_bottom(32, 1, 0..90, |_| 8), Some(0));
}
