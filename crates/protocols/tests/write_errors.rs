//! Errors of writing back are told once to each open file.
#![cfg(not(loom))]

use hayate_protocols::write_errors::WriteErrors;

const EIO: u16 = 5;
const ENOSPC: u16 = 28;

#[test]
fn each_open_file_is_told_once() {
    let errors = WriteErrors::new();
    let (one, other) = (errors.open(), errors.open());
    assert_eq!(errors.tell(&one), None);
    errors.record(EIO);
    assert_eq!(errors.tell(&one), Some(EIO));
    assert_eq!(errors.tell(&one), None);
    assert_eq!(errors.tell(&other), Some(EIO));
    assert_eq!(errors.tell(&other), None);
}

#[test]
fn the_same_error_again_is_told_again() {
    let errors = WriteErrors::new();
    let one = errors.open();
    for _ in 0..3 {
        errors.record(EIO);
        errors.record(EIO);
        assert_eq!(errors.tell(&one), Some(EIO));
        assert_eq!(errors.tell(&one), None);
    }
}

#[test]
fn a_later_file_hears_of_an_error_that_nobody_was_told() {
    let errors = WriteErrors::new();
    errors.record(ENOSPC);
    let late = errors.open();
    assert_eq!(errors.tell(&late), Some(ENOSPC));
    let later = errors.open();
    assert_eq!(errors.tell(&later), None);
}

#[test]
fn the_last_error_counts() {
    let errors = WriteErrors::new();
    let one = errors.open();
    errors.record(EIO);
    errors.record(ENOSPC);
    assert_eq!(errors.tell(&one), Some(ENOSPC));
    errors.record(0);
    assert_eq!(errors.tell(&one), None);
}

#[test]
fn the_count_may_run_over() {
    let errors = WriteErrors::new();
    let one = errors.open();
    for _ in 0..600_000 {
        errors.record(EIO);
        assert_eq!(errors.tell(&one), Some(EIO));
    }
}
