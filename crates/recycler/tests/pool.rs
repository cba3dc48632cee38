//! Compares the pool with a list that does the same slowly.

use hayate_recycler::{Fingerprint, Pool};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Key(u8);

impl Fingerprint for Key {
    fn fingerprint(&self) -> u64 {
        // Few values: many keys share a chain.
        u64::from(self.0 % 3) << 60
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store(u8, usize),
    Take(u8),
    TakeIf(u8),
    Oldest,
    Where(u8),
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..8, 0usize..100).prop_map(|(key, bytes)| Step::Store(key, bytes)),
        3 => (0u8..8).prop_map(Step::Take),
        1 => (0u8..8).prop_map(Step::TakeIf),
        1 => Just(Step::Oldest),
        1 => (0u8..8).prop_map(Step::Where),
        1 => (0usize..600).prop_map(Step::Limit),
    ]
}

/// (key, value, bytes), oldest first.
type Model = Vec<(u8, u32, usize)>;

fn newest(model: &Model, fits: impl Fn(&(u8, u32, usize)) -> bool) -> Option<usize> {
    model.iter().rposition(fits)
}

proptest! {
    #[test]
    fn does_what_a_list_does(steps in prop::collection::vec(step(), 0..200)) {
        let mut pool: Pool<Key, u32> = Pool::new(400);
        let mut model: Model = Vec::new();
        let mut limit = 400;
        for (value, step) in steps.into_iter().enumerate() {
            let value = value as u32;
            match step {
                Step::Store(key, bytes) => {
                    let stored = pool.store(Key(key), value, bytes).is_ok();
                    prop_assert_eq!(stored, bytes <= limit);
                    if stored {
                        model.push((key, value, bytes));
                    }
                }
                Step::Take(key) => {
                    let expected = newest(&model, |e| e.0 == key).map(|at| model.remove(at).1);
                    prop_assert_eq!(pool.get(&Key(key)).copied(), expected);
                    prop_assert_eq!(pool.take(&Key(key)).map(|kept| kept.value), expected);
                }
                Step::TakeIf(key) => {
                    let expected =
                        newest(&model, |e| e.0 == key && e.1 % 2 == 0).map(|at| model.remove(at).1);
                    let taken = pool.take_if(&Key(key), |value| value % 2 == 0);
                    prop_assert_eq!(taken.map(|kept| kept.value), expected);
                }
                Step::Oldest => {
                    let expected = (!model.is_empty()).then(|| model.remove(0));
                    let taken = pool.take_oldest();
                    prop_assert_eq!(taken.map(|kept| (kept.key.0, kept.value, kept.bytes)), expected);
                }
                Step::Where(key) => {
                    let at = model.iter().position(|e| e.0 == key);
                    let expected = at.map(|at| model.remove(at).1);
                    let taken = pool.take_where(|other, _| *other == Key(key));
                    prop_assert_eq!(taken.map(|kept| kept.value), expected);
                }
                Step::Limit(bytes) => {
                    limit = bytes;
                    pool.set_limit(bytes);
                }
            }
            while let Some(gone) = pool.excess() {
                prop_assert_eq!(gone.value, model.remove(0).1);
            }
            let sum: usize = model.iter().map(|entry| entry.2).sum();
            prop_assert!(sum <= limit);
            prop_assert_eq!((pool.len(), pool.bytes()), (model.len(), sum));
            let all: Model = pool.iter().map(|e| (e.key.0, e.value, e.bytes)).collect();
            prop_assert_eq!(&all, &model);
        }
    }
}

#[test]
fn places_are_used_again() {
    let mut pool: Pool<Key, Box<u32>> = Pool::new(usize::MAX);
    for round in 0..1000 {
        pool.store(Key(1), Box::new(round), 1).unwrap();
        pool.store(Key(2), Box::new(round), 1).unwrap();
        assert_eq!(*pool.take(&Key(1)).unwrap().value, round);
        assert_eq!(*pool.take_oldest().unwrap().value, round);
    }
    assert!(pool.is_empty());
    assert_eq!(pool.take(&Key(1)), None);
}

#[test]
fn a_share_that_shrinks_gives_up_the_oldest() {
    let mut pool: Pool<Key, u32> = Pool::new(100);
    for value in 0..10 {
        pool.store(Key(value as u8), value, 10).unwrap();
    }
    assert!(pool.excess().is_none());
    pool.set_limit(35);
    let gone: Vec<u32> = std::iter::from_fn(|| pool.excess()).map(|gone| gone.value).collect();
    assert_eq!(gone, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!((pool.len(), pool.bytes(), pool.limit()), (3, 30, 35));
    // A value that alone exceeds the limit is refused, and displaces nothing.
    assert_eq!(pool.store(Key(1), 11, 36).unwrap_err().0, 11);
    assert!(pool.excess().is_none());
    assert_eq!(pool.iter().map(|stored| stored.value).collect::<Vec<u32>>(), [7, 8, 9]);
}

#[test]
fn what_refers_to_a_file_is_found_whatever_its_key() {
    let mut pool: Pool<Key, u32> = Pool::new(usize::MAX);
    for value in 0..9 {
        pool.store(Key(value as u8), value, 1).unwrap();
    }
    let forget = |pool: &mut Pool<Key, u32>| pool.take_where(|_, value| value % 3 == 0);
    let gone: Vec<u32> = std::iter::from_fn(|| forget(&mut pool)).map(|gone| gone.value).collect();
    assert_eq!(gone, [0, 3, 6]);
    assert_eq!(pool.take_oldest().map(|oldest| oldest.value), Some(1));
    assert_eq!(pool.get(&Key(3)), None);
    assert_eq!(pool.take_if(&Key(4), |value| *value == 4).map(|taken| taken.value), Some(4));
    assert_eq!(pool.len(), 4);
}
