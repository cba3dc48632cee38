extern crate std;

use super::*;
use std::sync::Arc;
use std::thread;
use std::vec::Vec;

fn tree<const N: usize>() -> [Account; N] {
    core::array::from_fn(|_| {
        let account = Account::closed();
        account.open();
        account
    })
}

/// Account 0 lies in 1, that in 2 and so on.
fn charge_in(tree: &[Account], at: usize, pages: usize) -> Result<bool, Refusal<usize>> {
    charge(at, pages, false, |at| tree.get(at), |at| Some(at + 1))
}

fn give_in(tree: &[Account], at: usize, pages: usize) {
    give_up_to(at, None, pages, |at| tree.get(at), |at| Some(at + 1));
}

fn counts(tree: &[Account]) -> Vec<usize> {
    tree.iter().map(Account::count).collect()
}

#[test]
fn the_first_level_that_is_full_refuses_and_nothing_stays() {
    let tree = tree::<3>();
    tree[1].set_bound(Bound::Max, 10);
    assert_eq!(charge_in(&tree, 0, 10), Ok(false));
    assert_eq!(charge_in(&tree, 0, 1), Err(Refusal::Limit(1)));
    assert_eq!(counts(&tree), [10, 10, 10]);
    assert_eq!(charge_in(&tree, 2, 1), Ok(false));
    assert_eq!(counts(&tree), [10, 10, 11]);
    assert_eq!(charge(0, 5, true, |at| tree.get(at), |at| Some(at + 1)), Ok(false));
    assert_eq!(counts(&tree), [15, 15, 16]);
    assert_eq!(tree[1].beyond(Bound::Max), 5);
    assert!(!tree[1].has_room(0) && tree[0].has_room(1));
    give_in(&tree, 0, 15);
    assert_eq!(counts(&tree), [0, 0, 1]);
    assert_eq!(tree[1].peak(), 15);
}

#[test]
fn a_closed_account_takes_nothing_and_one_with_charges_does_not_close() {
    let tree = tree::<2>();
    assert_eq!(charge_in(&tree, 0, 1), Ok(false));
    assert!(!tree[0].close() && !tree[1].close());
    give_in(&tree, 0, 1);
    assert!(tree[0].close() && !tree[0].close());
    assert_eq!(charge_in(&tree, 0, 1), Err(Refusal::Gone));
    assert_eq!(counts(&tree), [0, 0]);
    tree[0].set_bound(Bound::Max, 1);
    tree[0].note(Event::Max, true);
    tree[0].open();
    assert_eq!(tree[0].bound(Bound::Max), NO_LIMIT);
    assert_eq!((tree[0].peak(), tree[0].noted(Event::Max, false)), (0, 0));
    assert_eq!(charge_in(&tree, 0, 1), Ok(false));
    // A level above that is closed refuses as well.
    give_in(&tree, 0, 1);
    assert!(tree[1].close());
    assert_eq!(charge_in(&tree, 0, 1), Err(Refusal::Gone));
    assert_eq!(tree[0].count(), 0);
}

#[test]
fn high_is_told_of_once_a_batch() {
    let tree = tree::<1>();
    tree[0].set_bound(Bound::High, 100);
    let told = (0..100 + 2 * BATCH).filter(|_| charge_in(&tree, 0, 1) == Ok(true)).count();
    assert_eq!(told, 2);
    assert_eq!(tree[0].beyond(Bound::High), 2 * BATCH);
}

#[test]
fn uses_and_events_are_counted() {
    let account = &tree::<1>()[0];
    for (at, what) in Use::ALL.into_iter().enumerate() {
        account.gain(what, at + 2);
        account.lose(what, 1);
        assert_eq!(account.own(what), at + 1);
    }
    for event in Event::ALL {
        account.note(event, true);
        account.note(event, false);
        assert_eq!((account.noted(event, false), account.noted(event, true)), (2, 1));
        assert!(!event.name().is_empty());
    }
}

#[test]
fn protection_holds_where_all_around_protect() {
    let tree = tree::<2>();
    assert_eq!(charge_in(&tree, 0, 10), Ok(false));
    assert!(!is_protected(tree.iter(), Bound::Low));
    tree[0].set_bound(Bound::Low, 10);
    assert!(!is_protected(tree.iter(), Bound::Low));
    tree[1].set_bound(Bound::Low, 10);
    assert!(is_protected(tree.iter(), Bound::Low));
    assert!(!is_protected(tree.iter(), Bound::Min));
    assert_eq!(charge_in(&tree, 0, 1), Ok(false));
    assert!(!is_protected(tree.iter(), Bound::Low));
    assert!(!is_protected(core::iter::empty(), Bound::Low));
}

#[test]
fn the_worst_process_holds_most_unless_it_is_adjusted() {
    assert_eq!(badness(500, 0, 10_000), Some(500));
    assert_eq!(badness(500, 100, 10_000), Some(1500));
    assert_eq!(badness(500, -999, 10_000), Some(500 - 9990));
    assert_eq!(badness(500, -1000, 10_000), None);
    assert!(badness(1, 1000, usize::MAX) > badness(1, 999, usize::MAX));
}

#[test]
fn the_delay_grows_with_the_square() {
    assert_eq!(high_delay_ms(100, 100), 0);
    assert_eq!(high_delay_ms(99, 100), 0);
    // One per cent above: (2^20 / 100)^2 * 1000 >> 34 is 6 milliseconds, for two batches of 32.
    assert_eq!(high_delay_ms(10_100, 10_000), 12);
    assert_eq!(high_delay_ms(10_010, 10_000), 0);
    assert_eq!(high_delay_ms(20_000, 10_000), 2000);
    assert_eq!(high_delay_ms(1, 0), 2000);
    assert_eq!(high_delay_ms(usize::MAX, 0), 2000);
    let mut before = 0;
    for count in (10_000..13_000).step_by(7) {
        let delay = high_delay_ms(count, 10_000);
        assert!(delay >= before);
        before = delay;
    }
}

#[test]
fn processors_that_charge_together_never_hold_more_than_the_limit() {
    const MOST: usize = 5;
    let tree: Arc<[Account; 2]> = Arc::new(tree());
    tree[1].set_bound(Bound::Max, MOST);
    let held = Arc::new(AtomicUsize::new(0));
    let charge_often = |_| {
        let (tree, held) = (tree.clone(), held.clone());
        thread::spawn(move || {
            for _ in 0..2000 {
                if charge_in(&*tree, 0, 1).is_ok() {
                    assert!(held.fetch_add(1, SeqCst) < MOST);
                    held.fetch_sub(1, SeqCst);
                    give_in(&*tree, 0, 1);
                }
            }
        })
    };
    let threads: Vec<_> = (0..4).map(charge_often).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(counts(&*tree), [0, 0]);
}

#[test]
fn charges_meet_closing_and_nothing_is_lost() {
    let tree: Arc<[Account; 2]> = Arc::new(tree());
    let charging = {
        let tree = tree.clone();
        thread::spawn(move || {
            let mut done = 0;
            while done < 2000 {
                if charge_in(&*tree, 0, 1).is_ok() {
                    give_in(&*tree, 0, 1);
                    done += 1;
                }
            }
        })
    };
    while !charging.is_finished() {
        if tree[0].close() {
            tree[0].open();
        }
    }
    charging.join().unwrap();
    assert_eq!(counts(&*tree), [0, 0]);
}

/// A tree of random shape under random charges: each count is the sum of what is held in it and
/// below.
#[test]
fn counts_are_sums_whatever_happens() {
    const GROUPS: usize = 12;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for _ in 0..50 {
        let tree = tree::<GROUPS>();
        let parents: Vec<Option<usize>> =
            (0..GROUPS).map(|at| if at == 0 { None } else { Some(next(at)) }).collect();
        let mut held = [0; GROUPS];
        for _ in 0..500 {
            let (at, pages) = (next(GROUPS), next(20) + 1);
            match next(3) {
                0 => tree[at].set_bound(Bound::Max, next(200)),
                1 => {
                    let pages = pages.min(held[at]);
                    held[at] -= pages;
                    give_up_to(at, None, pages, |at| tree.get(at), |at| parents[at]);
                }
                _ => {
                    let limits: Vec<_> = tree.iter().map(|group| group.bound(Bound::Max)).collect();
                    let charged = charge(at, pages, false, |at| tree.get(at), |at| parents[at]);
                    if charged.is_ok() {
                        held[at] += pages;
                    }
                    if let Err(Refusal::Limit(level)) = charged {
                        assert!(tree[level].count() + pages > limits[level]);
                    }
                }
            }
            for (at, account) in tree.iter().enumerate() {
                let is_within = |group: usize| {
                    core::iter::successors(Some(group), |group| parents[*group])
                        .any(|group| group == at)
                };
                let sum: usize =
                    (0..GROUPS).filter(|group| is_within(*group)).map(|group| held[group]).sum();
                assert_eq!(account.count(), sum);
            }
        }
    }
}
