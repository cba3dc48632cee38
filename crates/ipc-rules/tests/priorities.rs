//! The order of POSIX message queues, and what a queue may hold.

use hayate_ipc_rules::priorities::*;
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { most_messages: 10, largest_message: 8192, default_messages: 10, default_size: 8192 };

#[test]
fn messages_come_by_priority() {
    let mut queue = Prioritized::default();
    for (priority, message) in [(1, 'a'), (5, 'b'), (0, 'c'), (5, 'd'), (1, 'e')] {
        queue.reserve().unwrap();
        queue.push(priority, message);
    }
    assert_eq!((queue.len(), queue.is_empty()), (5, false));
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order, [(5, 'b'), (5, 'd'), (1, 'a'), (1, 'e'), (0, 'c')]);
    assert!(queue.is_empty());
}

#[test]
fn waiters_are_served_by_rank() {
    let mut waiting = Ranked::default();
    for (rank, name) in [(120, 'a'), (50, 'b'), (139, 'c'), (50, 'd'), (120, 'e')] {
        waiting.reserve().unwrap();
        waiting.enter(rank, name);
    }
    assert_eq!(waiting.iter().count(), 5);
    waiting.leave(|&name| name == 'a');
    let order: Vec<_> = std::iter::from_fn(|| waiting.take_first()).collect();
    assert_eq!(order, ['b', 'd', 'e', 'c']);
}

#[test]
fn shapes_have_limits() {
    let of = |wanted, privileged| Shape::of_new(wanted, &LIMITS, privileged);
    assert_eq!(of(None, false), Some(Shape { messages: 10, size: 8192 }));
    assert_eq!(of(Some((1, 1)), false), Some(Shape { messages: 1, size: 1 }));
    for wrong in [(0, 1), (1, 0), (-1, 1), (1, -1), (11, 1), (1, 8193), (i64::MIN, i64::MAX)] {
        assert_eq!(of(Some(wrong), false), None, "{wrong:?}");
    }
    assert!(of(Some((MOST_MESSAGES, LARGEST_MESSAGE)), true).is_some());
    assert_eq!(of(Some((MOST_MESSAGES + 1, 1)), true), None);
    assert_eq!(of(Some((1, LARGEST_MESSAGE + 1)), true), None);
    // The smaller of default and most counts.
    let low = Limits { most_messages: 3, default_size: 100, ..LIMITS };
    assert_eq!(Shape::of_new(None, &low, false), Some(Shape { messages: 3, size: 100 }));
}

#[test]
fn shapes_are_charged() {
    assert_eq!(Shape { messages: 10, size: 8192 }.charge(), 10 * (8192 + 48 + 48));
    let largest = Shape { messages: 65536, size: 16 << 20 };
    assert_eq!(largest.charge(), 65536 * ((16 << 20) + 48) + 32768 * 48);
}

proptest! {
    /// A list that is sorted again after each message.
    #[test]
    fn messages_are_a_sorted_list(steps in prop::collection::vec(prop::option::of(0u32..4), 0..60)) {
        let mut queue = Prioritized::default();
        let mut model: Vec<(u32, usize)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            if let Some(priority) = step {
                queue.reserve().unwrap();
                queue.push(priority, number);
                model.push((priority, number));
                model.sort_by_key(|&(priority, _)| std::cmp::Reverse(priority));
            } else {
                let first = (!model.is_empty()).then(|| model.remove(0));
                prop_assert_eq!(queue.pop(), first);
            }
            prop_assert_eq!(queue.len(), model.len());
        }
    }

    /// The loop of Linux' `wq_add`, which looks for the first one of no larger rank, from the end
    /// of its list that is served last.
    #[test]
    fn waiters_are_those_of_linux(ranks in prop::collection::vec(0i32..5, 0..30)) {
        let mut waiting = Ranked::default();
        let mut list: Vec<(i32, usize)> = Vec::new();
        for (number, &rank) in ranks.iter().enumerate() {
            waiting.reserve().unwrap();
            waiting.enter(rank, number);
            let place = list.iter().position(|&(other, _)| other <= rank).unwrap_or(list.len());
            list.insert(place, (rank, number));
        }
        let order: Vec<_> = std::iter::from_fn(|| waiting.take_first()).collect();
        let wanted: Vec<_> = list.iter().rev().map(|&(_, number)| number).collect();
        prop_assert_eq!(order, wanted);
    }
}
