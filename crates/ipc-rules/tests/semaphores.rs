//! Sets of semaphores.

use hayate_ipc_rules::semaphores::*;
use proptest::prelude::*;

fn op(number: u16, change: i16, flags: i16) -> Operation {
    Operation { number, change, flags }
}

const ME: Who = Who { process: 7, list: None };

fn values(set: &Set<u32>) -> Vec<u16> {
    set.semaphores().iter().map(|semaphore| semaphore.value).collect()
}

/// Makes operations wait; panics if they need not.
fn wait(set: &mut Set<u32>, operations: &[Operation], token: u32) {
    let Attempt::Waits(stopped_by) = set.attempt(operations, ME) else { panic!("no wait") };
    set.wait(operations.to_vec(), ME, stopped_by, token).unwrap();
}

fn settle(set: &mut Set<u32>) -> Vec<u32> {
    let mut gone = Vec::new();
    set.settle(|token, result| {
        assert_eq!(result, Ok(()));
        gone.push(token);
    });
    gone
}

#[test]
fn operations_happen_all_or_not_at_all() {
    let mut set = Set::<u32>::new(3).unwrap();
    assert_eq!(set.attempt(&[op(0, 5, 0), op(1, 1, 0)], ME), Attempt::Done);
    assert_eq!(set.attempt(&[op(0, -2, 0), op(1, -1, 0), op(2, -1, 0)], ME), Attempt::Waits(2));
    assert_eq!(values(&set), [5, 1, 0]);
    let refused = Attempt::Refused(Refusal::WouldWait);
    assert_eq!(set.attempt(&[op(0, -2, 0), op(2, -1, NO_WAIT)], ME), refused);
    let range = Attempt::Refused(Refusal::Range);
    assert_eq!(set.attempt(&[op(0, 1, 0), op(1, 32767, 0)], ME), range);
    assert_eq!(values(&set), [5, 1, 0]);
    // One call sees what it did itself.
    assert_eq!(set.attempt(&[op(0, -5, 0), op(0, 0, 0), op(0, 1, 0)], ME), Attempt::Done);
    assert_eq!(set.attempt(&[op(1, 0, 0)], ME), Attempt::Waits(0));
}

#[test]
fn waiters_go_in_order() {
    let mut set = Set::<u32>::new(2).unwrap();
    wait(&mut set, &[op(0, -2, 0)], 1);
    wait(&mut set, &[op(0, -1, 0)], 2);
    wait(&mut set, &[op(0, -1, 0), op(1, 1, 0)], 3);
    wait(&mut set, &[op(1, -1, 0)], 4);
    assert_eq!((set.waiting(0, false), set.waiting(1, false), set.waiting(0, true)), (3, 1, 0));
    set.attempt(&[op(0, 1, 0)], ME);
    assert_eq!(settle(&mut set), [2]);
    set.attempt(&[op(0, 3, 0)], ME);
    assert_eq!(settle(&mut set), [1, 3, 4]);
    assert_eq!(values(&set), [0, 0]);
    assert!(!set.give_up(&1));
}

#[test]
fn zero_is_seen_before_it_is_gone() {
    let mut set = Set::<u32>::new(1).unwrap();
    set.attempt(&[op(0, 1, 0)], ME);
    wait(&mut set, &[op(0, -2, 0)], 1);
    wait(&mut set, &[op(0, 0, 0), op(0, 1, 0)], 2);
    wait(&mut set, &[op(0, 0, 0)], 3);
    assert_eq!(set.waiting(0, true), 2);
    set.attempt(&[op(0, -1, 0)], ME);
    assert_eq!(settle(&mut set), [3, 2]);
    set.attempt(&[op(0, 1, 0)], ME);
    assert_eq!(settle(&mut set), [1]);
}

#[test]
fn ends_undo() {
    let mut set = Set::<u32>::new(2).unwrap();
    let who = Who { process: 9, list: Some(4) };
    set.add_list(4).unwrap();
    assert!(set.has_list(4) && !set.has_list(5));
    assert_eq!(set.attempt(&[op(0, 3, UNDO), op(1, 2, UNDO)], who), Attempt::Done);
    assert_eq!(set.attempt(&[op(1, -1, UNDO)], who), Attempt::Done);
    set.attempt(&[op(0, -2, 0)], ME);
    set.set(1, &[40], 7);
    wait(&mut set, &[op(0, 0, 0)], 1);
    set.undo(4, 9);
    assert_eq!(values(&set), [0, 40]);
    assert_eq!(set.semaphores()[0].process, 9);
    assert_eq!(settle(&mut set), [1]);
    set.undo(4, 9);
}

#[test]
fn adjustments_have_a_range() {
    let mut set = Set::<u32>::new(1).unwrap();
    let who = Who { process: 9, list: Some(1) };
    set.add_list(1).unwrap();
    assert_eq!(set.attempt(&[op(0, 32767, UNDO)], who), Attempt::Done);
    set.attempt(&[op(0, -32767, 0)], ME);
    assert_eq!(set.attempt(&[op(0, 1, UNDO)], who), Attempt::Done);
    let range = Attempt::Refused(Refusal::Range);
    assert_eq!(set.attempt(&[op(0, 1, UNDO)], who), range);
    assert_eq!(values(&set), [1]);
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = (0u16..3, -3i16..4, prop_oneof![Just(0), Just(UNDO)]);
    prop::collection::vec(one.prop_map(|(number, change, flags)| op(number, change, flags)), 1..4)
}

proptest! {
    /// A waiter that stays can never go on, however often the set is looked at; and the ends of all
    /// leave what they did without undo.
    #[test]
    fn nobody_waits_for_nothing(calls in prop::collection::vec((operations(), 0u64..4), 0..60)) {
        let mut set = Set::<u32>::new(3).unwrap();
        (0..4).for_each(|list| set.add_list(list).unwrap());
        let mut waiting: Vec<(u32, Vec<Operation>, Who)> = Vec::new();
        for (token, (operations, list)) in calls.into_iter().enumerate() {
            let (token, who) = (token as u32, Who { process: 1, list: Some(list) });
            match set.attempt(&operations, who) {
                Attempt::Done => {
                    set.settle(|token, _| waiting.retain(|waiter| waiter.0 != token));
                }
                Attempt::Waits(stopped_by) => {
                    set.wait(operations.clone(), who, stopped_by, token).unwrap();
                    waiting.push((token, operations, who));
                }
                Attempt::Refused(_) => {}
            }
            let before = values(&set);
            for (_, operations, who) in &waiting {
                prop_assert!(matches!(set.attempt(operations, *who), Attempt::Waits(_)));
            }
            prop_assert_eq!(before, values(&set));
        }
    }
}
