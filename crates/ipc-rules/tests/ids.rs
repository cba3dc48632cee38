//! Identifiers, compared with a list that does the same slowly; permissions.

use hayate_ipc_rules::ids::{Full, IdTable, MOST, PRIVATE};
use hayate_ipc_rules::permission::Permission;
use proptest::prelude::*;

fn add(table: &mut IdTable<i32>, key: i32, limit: usize) -> Result<i32, Full> {
    table.reserve().unwrap();
    table.insert(key, limit, |id| (id, id))
}

#[test]
fn indices_go_up_and_begin_again_with_another_sequence() {
    let mut table = IdTable::new();
    for round in 0..3 {
        for index in 0..64 {
            let id = add(&mut table, PRIVATE, 4096).unwrap();
            assert_eq!(id, round << 15 | index);
            assert_eq!(table.remove(id), Some(id));
        }
    }
    assert!(table.is_empty());
    assert_eq!(table.highest(), None);
}

#[test]
fn an_old_identifier_finds_nothing() {
    let mut table = IdTable::new();
    let first = add(&mut table, 7, 4096).unwrap();
    table.remove(first);
    for _ in 0..64 {
        let id = add(&mut table, 7, 4096).unwrap();
        assert_eq!(table.get(first), None);
        assert_eq!(table.find(7), Some(&id));
        assert_eq!(table.at(id & 0x7fff), Some(&id));
        table.remove(id);
    }
    assert_eq!(table.get(-1), None);
    assert_eq!(table.find(PRIVATE), None);
}

#[test]
fn sequences_begin_again() {
    let mut table = IdTable::new();
    let mut largest = 0;
    for _ in 0..64 * 65_540 {
        let id = add(&mut table, PRIVATE, 4096).unwrap();
        assert!(id >= 0);
        largest = largest.max(id);
        table.remove(id);
    }
    assert_eq!(largest >> 15, 65_534);
}

#[test]
fn a_wanted_identifier_is_given_once() {
    let mut table = IdTable::new();
    table.set_wanted(Some(5 << 15 | 9));
    assert_eq!(add(&mut table, PRIVATE, 10), Ok(5 << 15 | 9));
    assert_eq!(add(&mut table, PRIVATE, 10), Ok(0));
    table.set_wanted(Some(9));
    assert_eq!(add(&mut table, PRIVATE, 10), Ok(10));
}

#[test]
fn a_table_is_filled_to_its_end() {
    let mut table = IdTable::new();
    for index in 0..MOST as i32 {
        assert_eq!(add(&mut table, index + 1, MOST).unwrap() & 0x7fff, index);
    }
    assert_eq!(add(&mut table, PRIVATE, usize::MAX), Err(Full));
    let id = *table.find(1234).unwrap();
    table.remove(id);
    assert_eq!(add(&mut table, PRIVATE, MOST).unwrap() & 0x7fff, 1233);
}

#[derive(Clone, Debug)]
enum Step {
    Add(i32),
    Remove(usize),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12).prop_map(Step::Add),
        2 => (0usize..40).prop_map(Step::Remove),
        1 => (0usize..40).prop_map(Step::Forget),
    ]
}

proptest! {
    #[test]
    fn does_what_a_list_does(steps in prop::collection::vec(step(), 0..300)) {
        let mut table = IdTable::new();
        let mut model: Vec<(i32, i32)> = Vec::new();
        for step in steps {
            match step {
                Step::Add(key) => {
                    let known = model.iter().find(|entry| key != PRIVATE && entry.1 == key);
                    prop_assert_eq!(table.find(key).copied(), known.map(|entry| entry.0));
                    if known.is_none() {
                        match add(&mut table, key, 100) {
                            Ok(id) => {
                                prop_assert!(model.iter().all(|entry| entry.0 != id));
                                model.push((id, key));
                            }
                            Err(Full) => prop_assert_eq!(model.len(), 100),
                        }
                    }
                }
                Step::Remove(at) if at < model.len() => {
                    let (id, _) = model.swap_remove(at);
                    prop_assert_eq!(table.remove(id), Some(id));
                    prop_assert_eq!(table.remove(id), None);
                }
                Step::Forget(at) if at < model.len() => {
                    table.forget_key(model[at].0);
                    model[at].1 = PRIVATE;
                }
                Step::Remove(_) | Step::Forget(_) => {}
            }
            prop_assert_eq!(table.len(), model.len());
            let highest = model.iter().map(|entry| (entry.0 & 0x7fff) as usize).max();
            prop_assert_eq!(table.highest(), highest);
            for &(id, key) in &model {
                prop_assert_eq!(table.get(id), Some(&id));
                if key != PRIVATE {
                    prop_assert_eq!(table.find(key), Some(&id));
                }
            }
        }
    }

    #[test]
    fn owners_need_their_own_bits(mode in 0u32..0o1000, wanted in 0u32..8) {
        let object = Permission { uid: 1, gid: 10, cuid: 2, cgid: 20, mode };
        let asks = |user, groups: &[u32]| {
            object.allows(user, |group| groups.contains(&group), wanted << 6)
        };
        let has = |bits: u32| wanted & !bits & 7 == 0;
        prop_assert_eq!(asks(1, &[]), has(mode >> 6));
        prop_assert_eq!(asks(2, &[10]), has(mode >> 6));
        prop_assert_eq!(asks(3, &[10]), has(mode >> 3));
        prop_assert_eq!(asks(3, &[20]), has(mode >> 3));
        prop_assert_eq!(asks(3, &[1, 2]), has(mode));
    }
}

#[test]
fn what_a_change_leaves() {
    let mut object = Permission::new(1, 2, 0o7654);
    assert_eq!(object.mode, 0o654);
    object.mode |= 0o1000;
    object.set(3, 4, 0o7123);
    assert_eq!(object, Permission { uid: 3, gid: 4, cuid: 1, cgid: 2, mode: 0o1123 });
}
