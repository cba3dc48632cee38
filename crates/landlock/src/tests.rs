extern crate std;

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use crate::{Access, Child, Domain, Failure, Key, MOST_LAYERS, Move, Refused, Ruleset};

fn key(number: u64) -> Key {
    (1, number)
}

fn ruleset(handled: Access, rules: &[(u64, Access)]) -> Ruleset<()> {
    let mut set = Ruleset::new(handled);
    rules.iter().for_each(|(number, access)| set.allow(key(*number), (), *access).unwrap());
    set
}

fn domain(layers: &[Ruleset<()>]) -> Domain<()> {
    let mut made: Option<Domain<()>> = None;
    for layer in layers {
        made = Some(Domain::restricted(made.as_ref(), layer).unwrap());
    }
    made.unwrap()
}

fn path(numbers: &[u64]) -> impl Iterator<Item = Key> + '_ {
    numbers.iter().map(|&number| key(number))
}

#[test]
fn a_rule_counts_below_its_directory() {
    let read = Access::READ_FILE;
    let domain = domain(&[ruleset(read.with(Access::WRITE_FILE), &[(2, read)])]);
    assert!(domain.allows(read, path(&[5, 2, 1])));
    assert!(domain.allows(read, path(&[2, 1])));
    assert!(!domain.allows(read, path(&[5, 3, 1])));
    assert!(!domain.allows(Access::WRITE_FILE, path(&[5, 2, 1])));
    // Not handled.
    assert!(domain.allows(Access::EXECUTE, path(&[9])));
    assert!(domain.allows(Access::NONE, path(&[9])));
    // But this is denied all the same.
    assert!(!domain.allows(Access::REFER, path(&[5, 2, 1])));
}

#[test]
fn each_layer_must_allow() {
    let (read, write) = (Access::READ_FILE, Access::WRITE_FILE);
    let both = read.with(write);
    let two = domain(&[ruleset(both, &[(1, both)]), ruleset(both, &[(2, read), (3, write)])]);
    assert!(two.allows(read, path(&[9, 2, 1])));
    assert!(!two.allows(both, path(&[9, 2, 1])));
    // Rules of several directories add up within a layer.
    assert!(two.allows(both, path(&[9, 3, 2, 1])));
    let mut many = domain(&[ruleset(read, &[])]);
    for _ in 1..MOST_LAYERS {
        many = Domain::restricted(Some(&many), &ruleset(read, &[])).unwrap();
    }
    let failed = Domain::restricted(Some(&many), &ruleset(read, &[]));
    assert_eq!(failed.err(), Some(Failure::TooManyLayers));
}

#[test]
fn domains_descend_from_each_other() {
    let set = ruleset(Access::READ_FILE, &[]);
    let first = Domain::restricted(None, &set).unwrap();
    let second = Domain::restricted(Some(&first), &set).unwrap();
    let other = Domain::restricted(None, &set).unwrap();
    assert!(first.lineage().covers(second.lineage()));
    assert!(first.lineage().covers(first.lineage()));
    assert!(!second.lineage().covers(first.lineage()));
    assert!(!first.lineage().covers(other.lineage()));
}

/// A move of file 9 from directory 10 to directory 20 of a mount whose root is 2; 1 is the real
/// root.
fn moved(domain: &Domain<()>, wanted: (Access, Access)) -> Result<(), Refused> {
    domain.may_move(Move {
        from: path(&[10, 2]),
        to: path(&[20, 2]),
        above: path(&[2, 1]),
        wanted_from: wanted.0,
        wanted_to: wanted.1,
        child: Child { key: key(9), is_directory: false },
        exchanged: None,
    })
}

#[test]
fn a_move_needs_the_right_at_both_places() {
    let rename = (Access::REMOVE_FILE, Access::MAKE_REG);
    let all = Access::ALL;
    assert_eq!(moved(&domain(&[ruleset(all, &[(2, all)])]), rename), Ok(()));
    let refer = all.without(Access::READ_FILE);
    // The same restrictions on both sides.
    assert_eq!(moved(&domain(&[ruleset(all, &[(1, refer)])]), rename), Ok(()));
    // More could be done at the new place.
    let wider = domain(&[ruleset(all, &[(10, refer), (20, all)])]);
    assert_eq!(moved(&wider, rename), Err(Refused::OtherDevice));
    let narrower = domain(&[ruleset(all, &[(10, all), (20, refer)])]);
    assert_eq!(moved(&narrower, rename), Ok(()));
    // No right to move, and no right to make.
    let still = domain(&[ruleset(all, &[(2, all.without(Access::REFER))])]);
    assert_eq!(moved(&still, rename), Err(Refused::OtherDevice));
    let barren = domain(&[ruleset(all, &[(2, all.without(Access::MAKE_REG))])]);
    assert_eq!(moved(&barren, rename), Err(Refused::Denied));
    // A layer that does not handle the right denies it.
    assert_eq!(moved(&domain(&[ruleset(Access::EXECUTE, &[])]), rename), Err(Refused::OtherDevice));
}

fn access() -> impl Strategy<Value = Access> {
    // A few rights, so that they meet.
    prop::sample::subsequence(
        vec![
            Access::EXECUTE,
            Access::READ_FILE,
            Access::MAKE_REG,
            Access::REMOVE_FILE,
            Access::READ_DIR,
            Access::REFER,
        ],
        0..=6,
    )
    .prop_map(|list| list.into_iter().fold(Access::NONE, Access::with))
}

fn layer() -> impl Strategy<Value = (Access, Vec<(u64, Access)>)> {
    (access(), prop::collection::vec((0u64..8, access()), 0..6))
}

/// The definition: each layer allows each right that it handles by some rule on the way.
fn allows(layers: &[(Access, Vec<(u64, Access)>)], wanted: Access, path: &[u64]) -> bool {
    layers.iter().all(|(handled, rules)| {
        let denied = handled.with(Access::REFER);
        wanted.numbers().all(|number| {
            let right = Access::from_bits(1 << number).unwrap();
            !denied.contains(right)
                || rules.iter().any(|(at, allowed)| path.contains(at) && allowed.contains(right))
        })
    })
}

proptest! {
    #[test]
    fn a_domain_allows_what_each_layer_allows(
        layers in prop::collection::vec(layer(), 1..4),
        wanted in access(),
        way in prop::collection::vec(0u64..8, 1..5),
    ) {
        let sets: Vec<_> = layers.iter().map(|(handled, rules)| ruleset(*handled, rules)).collect();
        let domain = domain(&sets);
        prop_assert_eq!(domain.allows(wanted, path(&way)), allows(&layers, wanted, &way));
    }

    /// Whatever a program could not do to a file before a move it cannot do after it.
    #[test]
    fn a_move_gives_no_right(
        layers in prop::collection::vec(layer(), 1..4),
        wanted in (access(), access()),
        from in prop::collection::vec(0u64..4, 1..3),
        to in prop::collection::vec(0u64..4, 1..3),
        is_directory: bool,
    ) {
        let sets: Vec<_> = layers.iter().map(|(handled, rules)| ruleset(*handled, rules)).collect();
        let domain = domain(&sets);
        // The mount's root is 4, the real root 5, the file 6.
        let below = |way: &[u64]| [way, &[4]].concat();
        let whole = |way: &[u64]| [&[6], way, &[4, 5]].concat();
        let result = domain.may_move(Move {
            from: path(&below(&from)),
            to: path(&below(&to)),
            above: path(&[4, 5]),
            wanted_from: wanted.0,
            wanted_to: wanted.1,
            child: Child { key: key(6), is_directory },
            exchanged: None,
        });
        if result.is_ok() {
            let counts = if is_directory { Access::ALL } else { Access::OF_FILES };
            for number in counts.numbers() {
                let right = Access::from_bits(1 << number).unwrap();
                let before = domain.allows(right, path(&whole(&from)));
                prop_assert!(before || !domain.allows(right, path(&whole(&to))));
            }
            let needed = |way: &[u64], wanted: Access| {
                domain.allows(wanted.with(Access::REFER), path(&[way, &[4, 5]].concat()))
            };
            prop_assert!(needed(&from, wanted.0) && needed(&to, wanted.1));
        }
    }
}
