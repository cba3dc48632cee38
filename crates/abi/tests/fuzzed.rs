//! Checks that the random system calls of `tests/stress` (`sysfuzz`) reach every call of the
//! kernel's table, so that a new one is not forgotten: the fuzzer's tables have it, or say why not.

use std::collections::BTreeSet;

// The fuzzer needs more of its tables than their numbers.
#[allow(dead_code)]
#[path = "../../../tests/stress/src/bin/sysfuzz/calls.rs"]
mod calls;

macro_rules! is_there {
    ([none $($note:literal)?]) => {
        false
    };
    ([$($support:tt)*]) => {
        true
    };
}

macro_rules! syscalls {
    ($($family:literal {
        $($number:literal $name:ident ($($argument:ident : $kind:ident),*) $support:tt;)*
    })*) => {
        /// The calls: number, name, and whether it is there.
        fn rows() -> Vec<(u64, &'static str, bool)> {
            vec![$($(($number, stringify!($name), is_there!($support))),*),*]
        }
    };
}

include!("../../../kernel/src/syscall/table.rs");

#[test]
fn every_call_is_reached_or_has_a_reason() {
    let tables = [calls::CALLS, calls::MACHINE_CALLS, calls::MOUNT_CALLS, calls::REMOUNT_CALLS];
    let reached: BTreeSet<u64> = tables.iter().copied().flatten().map(|call| call.1).collect();
    let elsewhere: BTreeSet<u64> = calls::ELSEWHERE.iter().map(|(number, _)| *number).collect();
    let missing: Vec<_> = rows()
        .into_iter()
        .filter(|(number, _, is_there)| {
            *is_there && !reached.contains(number) && !elsewhere.contains(number)
        })
        .collect();
    assert!(missing.is_empty(), "not in tests/stress/src/bin/sysfuzz/calls.rs: {missing:?}");
    let twice: Vec<_> = reached.intersection(&elsewhere).collect();
    assert!(twice.is_empty(), "these are reached and have a reason why not: {twice:?}");
}

#[test]
fn calls_have_the_names_of_the_kernels_table() {
    let rows: BTreeSet<(u64, &str)> = rows().into_iter().map(|row| (row.0, row.1)).collect();
    let tables = [calls::CALLS, calls::MACHINE_CALLS, calls::MOUNT_CALLS, calls::REMOUNT_CALLS];
    for (name, number, _) in tables.iter().copied().flatten() {
        assert!(rows.contains(&(*number, *name)), "{number} is not {name}");
    }
}
