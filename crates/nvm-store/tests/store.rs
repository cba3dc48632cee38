//! The store in use, and with a power failure at every write and flush.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use hayate_nvm_store::{Fault, Identity, PAGE, Region, Store, Text};

/// Memory behind a cache: writes go to the cache, a flush writes them to the memory, and at a power
/// failure each word that is still in the cache is kept or lost.
#[derive(Clone)]
struct Model {
    kept: Vec<u8>,
    /// Words by offset that were written and not flushed.
    cached: BTreeMap<u64, [u8; 8]>,
    /// Operations left before the power fails; none is carried out after it.
    left: usize,
    done: usize,
    /// Flushes that succeed before all others fail; after a failed flush the data is still in the
    /// cache.
    flushes: usize,
}

#[derive(Clone)]
struct Shared(Rc<RefCell<Model>>);

impl Shared {
    fn new(pages: u64) -> Shared {
        let kept = vec![0xa5; (pages * PAGE) as usize];
        let model =
            Model { kept, cached: BTreeMap::new(), left: usize::MAX, done: 0, flushes: usize::MAX };
        Shared(Rc::new(RefCell::new(model)))
    }

    /// Returns the memory after the power failed; `choose` decides which words were kept.
    fn after_cut(&self, mut choose: impl FnMut() -> bool) -> Shared {
        let mut model = self.0.borrow().clone();
        for (at, word) in std::mem::take(&mut model.cached) {
            if choose() {
                model.kept[at as usize..at as usize + 8].copy_from_slice(&word);
            }
        }
        (model.left, model.done, model.flushes) = (usize::MAX, 0, usize::MAX);
        Shared(Rc::new(RefCell::new(model)))
    }
}

impl Model {
    fn step(&mut self) -> Result<(), Fault> {
        self.left = self.left.checked_sub(1).ok_or(Fault::Device)?;
        self.done += 1;
        Ok(())
    }
}

impl Region for Shared {
    fn size(&self) -> u64 {
        self.0.borrow().kept.len() as u64
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        let model = self.0.borrow();
        to.copy_from_slice(&model.kept[offset as usize..offset as usize + to.len()]);
        let end = offset + to.len() as u64;
        for (&at, word) in model.cached.range(offset.saturating_sub(7)..end) {
            for (byte, value) in (at..).zip(word) {
                if (offset..end).contains(&byte) {
                    to[(byte - offset) as usize] = *value;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        assert!(offset.is_multiple_of(8) && from.len().is_multiple_of(8), "the model knows words");
        let mut model = self.0.borrow_mut();
        // A long write may be interrupted anywhere: of the 512 places in a page, these are enough.
        for (at, part) in (offset..).step_by(2048).zip(from.chunks(2048)) {
            model.step()?;
            for (at, word) in (at..).step_by(8).zip(part.chunks(8)) {
                model.cached.insert(at, word.try_into().unwrap());
            }
        }
        Ok(())
    }

    fn flush(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        let mut model = self.0.borrow_mut();
        model.step()?;
        model.flushes = model.flushes.checked_sub(1).ok_or(Fault::Device)?;
        let words: Vec<u64> =
            model.cached.range(offset & !7..offset + length).map(|(&at, _)| at).collect();
        for at in words {
            let word = model.cached.remove(&at).unwrap();
            model.kept[at as usize..at as usize + 8].copy_from_slice(&word);
        }
        Ok(())
    }
}

fn content(seed: u8, pages: usize) -> Vec<u8> {
    (0..pages * PAGE as usize).map(|at| (at / 7) as u8 ^ seed).collect()
}

fn names<R: Region>(store: &Store<R>) -> Vec<String> {
    let mut names: Vec<_> = store
        .texts()
        .iter()
        .map(|text| String::from_utf8_lossy(text.name()).into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn texts_are_kept() {
    let region = Shared::new(64);
    assert_eq!(Store::open(region.clone()).err(), Some(Fault::NotFormatted));
    let mut store = Store::format(region.clone(), [7; 16]).unwrap();
    let first = store.put(&content(1, 3), Text::ANYWHERE, b"first").unwrap();
    let second = store.put(&content(2, 5)[..17_000], Text::ANYWHERE, b"second").unwrap();
    assert_eq!((first.pages, second.pages), (3, 5));
    assert_eq!(store.put(&content(1, 3), Text::ANYWHERE, b"again"), Err(Fault::Exists));
    drop(store);
    let mut store = Store::open(region.clone()).unwrap();
    assert_eq!(store.id(), [7; 16]);
    assert_eq!(names(&store), ["first", "second"]);
    assert_eq!(*store.find(&first.identity).unwrap(), first);
    store.verify(&first).unwrap();
    store.verify(&second).unwrap();
    assert_eq!(store.usage().used, 8);
    store.remove(&first.identity).unwrap();
    assert_eq!(store.remove(&first.identity), Err(Fault::Unknown));
    let store = Store::open(region).unwrap();
    assert_eq!(names(&store), ["second"]);
}

#[test]
fn a_changed_text_is_damaged() {
    let region = Shared::new(64);
    let mut store = Store::format(region.clone(), [0; 16]).unwrap();
    let text = store.put(&content(1, 3), Text::ANYWHERE, b"text").unwrap();
    region.0.borrow_mut().kept[(text.first * PAGE) as usize + 5000] ^= 1;
    assert_eq!(store.verify(&text), Err(Fault::Damaged));
    // A damaged entry is left out, and its pages are free.
    region.0.borrow_mut().kept[PAGE as usize + 50] ^= 1;
    let mut store = Store::open(region).unwrap();
    assert_eq!((store.texts().len(), store.damaged()), (0, 1));
    assert_eq!(store.put(&content(2, 3), Text::ANYWHERE, b"text").unwrap().first, text.first);
}

#[test]
fn phases_and_limits_are_kept() {
    let region = Shared::new(2048);
    let mut store = Store::format(region, [0; 16]).unwrap();
    let small = store.put(&content(1, 1), Text::ANYWHERE, b"small").unwrap();
    let grant = store.reserve(600, 5).unwrap();
    assert_eq!(grant.first % 512, 5);
    let large = store.publish(grant, Identity([9; 32]), b"large").unwrap();
    assert!(large.first > small.first);
    // There is space for small texts before it.
    assert_eq!(store.put(&content(2, 1), Text::ANYWHERE, b"x").unwrap().first, small.first + 1);
    assert_eq!(store.reserve(5000, Text::ANYWHERE), Err(Fault::Full));
    assert_eq!(Store::format(Shared::new(2), [0; 16]).err(), Some(Fault::TooSmall));
}

#[test]
fn the_directory_can_be_full() {
    let mut store = Store::format(Shared::new(100), [0; 16]).unwrap();
    for seed in 0..32 {
        store.put(&content(seed, 1), Text::ANYWHERE, b"one").unwrap();
    }
    assert_eq!(store.put(&content(99, 1), Text::ANYWHERE, b"o"), Err(Fault::DirectoryFull));
}

#[test]
fn compaction_makes_one_row() {
    let region = Shared::new(40);
    let mut store = Store::format(region.clone(), [0; 16]).unwrap();
    let texts: Vec<_> = (0..6)
        .map(|seed| store.put(&content(seed, 4), Text::ANYWHERE, &[b'a' + seed]).unwrap())
        .collect();
    for index in [0, 2, 4] {
        store.remove(&texts[index].identity).unwrap();
    }
    let before = store.usage().longest;
    assert_eq!(store.compact(|text| text.name() != b"b").unwrap(), 2);
    assert!(store.usage().longest > before);
    let store = Store::open(region).unwrap();
    assert_eq!(names(&store), ["b", "d", "f"]);
    assert!(store.texts().iter().all(|text| store.verify(text).is_ok()));
    assert_eq!(store.find(&texts[1].identity).unwrap().first, texts[1].first);
}

/// A step of the power failure test, with the texts that must be there before and after.
type Step = (&'static str, fn(&mut Store<Shared>) -> Result<(), Fault>);

const STEPS: [Step; 8] = [
    ("put a", |store| store.put(&content(1, 2), Text::ANYWHERE, b"a").map(drop)),
    ("put b", |store| store.put(&content(2, 3), Text::ANYWHERE, b"b").map(drop)),
    ("put c", |store| store.put(&content(3, 2), Text::ANYWHERE, b"c").map(drop)),
    ("remove a", |store| store.remove(&Identity::of(&content(1, 2)))),
    ("put d", |store| store.put(&content(4, 1), Text::ANYWHERE, b"d").map(drop)),
    ("remove b", |store| store.remove(&Identity::of(&content(2, 3)))),
    ("compact", |store| store.compact(|_| true).map(drop)),
    ("put e", |store| store.put(&content(5, 4), Text::ANYWHERE, b"e").map(drop)),
];

/// The names that must be there after each step.
const THERE: [&[&str]; 9] = [
    &[],
    &["a"],
    &["a", "b"],
    &["a", "b", "c"],
    &["b", "c"],
    &["b", "c", "d"],
    &["c", "d"],
    &["c", "d"],
    &["c", "d", "e"],
];

/// Checks that the store has one of the `expected` lists of names, that no text is torn, and that it
/// is still usable.
fn check_after_cut(after: &Shared, expected: &[&[&str]], cut: &str) {
    let mut store = Store::open(after.clone()).unwrap();
    let found = names(&store);
    assert!(expected.iter().any(|names| *names == found), "{cut}: {found:?}");
    for text in store.texts() {
        store.verify(text).unwrap_or_else(|_| panic!("{cut}: {:?} is torn", text.name()));
    }
    assert_eq!(store.damaged(), 0);
    store.put(&content(77, 1), Text::ANYWHERE, b"new").unwrap();
    assert!(names(&Store::open(after.clone()).unwrap()).contains(&"new".to_string()));
}

#[test]
fn a_cut_at_any_operation_does_no_harm() {
    // A small generator, the same everywhere.
    let mut state = 1u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let fresh = Shared::new(24);
    drop(Store::format(fresh.clone(), [1; 16]).unwrap());
    let mut cuts = 0;
    for (number, (what, step)) in STEPS.iter().enumerate() {
        // The state before this step, made without a cut.
        let before = || {
            let region = fresh.after_cut(|| true);
            let mut store = Store::open(region.clone()).unwrap();
            STEPS[..number].iter().for_each(|(_, step)| step(&mut store).unwrap());
            assert_eq!(names(&store), THERE[number], "before {what}");
            let done = region.0.borrow().cached.len();
            assert_eq!(done, 0, "before {what} something is not flushed");
            (region, store)
        };
        let total = {
            let (region, mut store) = before();
            region.0.borrow_mut().done = 0;
            step(&mut store).unwrap();
            region.0.borrow().done
        };
        for left in 0..=total {
            let (region, mut store) = before();
            region.0.borrow_mut().left = left;
            let finished = step(&mut store).is_ok();
            assert_eq!(finished, left == total);
            for how in 0..6 {
                let after = region.after_cut(|| match how {
                    0 => true,
                    1 => false,
                    _ => random() % 2 == 0,
                });
                let least = if finished { number + 1 } else { number };
                let cut = format!("{what}, cut after {left} operations");
                check_after_cut(&after, &THERE[least..number + 2], &cut);
                cuts += 1;
            }
        }
    }
    assert!(cuts > 500, "only {cuts} cuts were tried");
}

/// Checks that after a failed flush at any place the store goes on or refuses, and that after a
/// power failure all texts are whole.
#[test]
fn a_failed_flush_does_no_harm() {
    let mut state = 7u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let (mut failed, mut cuts) = (0, 0);
    for good in 0..8 {
        for again in [0, 1, 2, usize::MAX] {
            let region = Shared::new(24);
            let mut store = Store::format(region.clone(), [1; 16]).unwrap();
            store.put(&content(1, 2), Text::ANYWHERE, b"first").unwrap();
            region.0.borrow_mut().flushes = good;
            let put = store.put(&content(2, 3), Text::ANYWHERE, b"second");
            failed += usize::from(put.is_err());
            assert_eq!(put.is_err(), good < 4, "four flushes publish: {good}");
            let listed = names(&store).contains(&"second".to_string());
            assert_eq!(listed, put.is_ok(), "listed is what was published");
            // The next text would lie on the same pages, under another identity.
            region.0.borrow_mut().flushes = again;
            let next = store.put(&content(3, 3), Text::ANYWHERE, b"third");
            assert!(again != usize::MAX || next.is_ok(), "it does not recover: {next:?}");
            for how in 0..40 {
                let after = region.after_cut(|| match how {
                    0 => true,
                    1 => false,
                    _ => random() % 2 == 0,
                });
                let found = Store::open(after).unwrap();
                for text in found.texts() {
                    found.verify(text).unwrap_or_else(|_| {
                        panic!("{good} and {again} flushes: {:?} is torn", text.name())
                    });
                }
                assert_eq!(found.damaged(), 0);
                assert!(names(&found).contains(&"first".to_string()));
                assert!(next.is_err() || names(&found).contains(&"third".to_string()));
                cuts += 1;
            }
        }
    }
    assert!(failed == 16 && cuts > 1000, "{failed} failed, {cuts} cuts");
}

#[test]
fn a_cut_while_formatting_leaves_no_store_or_an_empty_one() {
    let total = {
        let region = Shared::new(24);
        Store::format(region.clone(), [1; 16]).unwrap();
        region.0.borrow().done
    };
    for left in 0..=total {
        let region = Shared::new(24);
        let mut store = Store::format(region.clone(), [1; 16]).unwrap();
        store.put(&content(1, 2), Text::ANYWHERE, b"old").unwrap();
        region.0.borrow_mut().left = left;
        let _ = Store::format(region.clone(), [2; 16]);
        for keep in [true, false] {
            match Store::open(region.after_cut(|| keep)) {
                Ok(store) if store.id() == [1; 16] => {
                    let text = store.texts()[0];
                    store.verify(&text).unwrap();
                }
                Ok(store) => assert!(store.texts().is_empty()),
                Err(fault) => assert_eq!(fault, Fault::NotFormatted),
            }
        }
    }
}

#[test]
fn noise_is_survived() {
    let mut state = 99u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let region = Shared::new(24);
    let mut store = Store::format(region.clone(), [1; 16]).unwrap();
    for seed in 0..4 {
        store.put(&content(seed, 2), Text::ANYWHERE, &[b'a' + seed]).unwrap();
    }
    let mut opened = 0;
    for _ in 0..2000 {
        let noisy = region.after_cut(|| true);
        for _ in 0..1 + random() % 8 {
            let at = if random() % 4 == 0 { random() % 64 } else { PAGE as usize + random() % 640 };
            noisy.0.borrow_mut().kept[at] ^= 1 << (random() % 8);
        }
        if let Ok(mut store) = Store::open(noisy) {
            opened += 1;
            let _ = store.put(&content(88, 3), Text::ANYWHERE, b"more");
            let _ = store.compact(|_| true);
        }
    }
    assert!(opened > 100);
}
