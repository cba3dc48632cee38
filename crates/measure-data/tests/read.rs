//! Reading runs: a written run is read back, and nothing else is accepted as a run.

mod common;

use common::{result, run};
use measure_data::read::{ReadError, read_run, write_run};
use measure_data::run::Quantity;
use proptest::prelude::*;

fn text() -> String {
    let rounds = vec![vec![11, 12, 13], vec![10, 500, 12]];
    write_run(&run(vec![result("cpu/x", Quantity::Time, rounds)])).unwrap()
}

#[test]
fn round_trip() {
    let read = read_run(&text()).unwrap();
    assert_eq!(write_run(&read).unwrap(), text());
    assert_eq!(read.results[0].rounds, [[11, 12, 13], [10, 500, 12]]);
}

#[test]
fn every_truncation_is_called_one() {
    let whole = text();
    let whole = whole.trim_end();
    for end in 1..whole.len() {
        if !whole.is_char_boundary(end) {
            continue;
        }
        let error = read_run(&whole[..end]).unwrap_err();
        assert!(matches!(error, ReadError::Truncated { .. }), "cut at {end}: {error}");
        assert!(error.to_string().contains("again"));
    }
    assert_eq!(read_run(" \n"), Err(ReadError::Empty));
}

#[test]
fn foreign_files() {
    for foreign in ["{}", "[]", "17", "{\"format\": \"other\"}", "null"] {
        assert_eq!(read_run(foreign), Err(ReadError::Foreign), "{foreign}");
    }
    assert!(matches!(read_run("hello"), Err(ReadError::NotJson { .. })));
}

#[test]
fn other_versions_are_named() {
    let newer = text().replace("\"version\":1", "\"version\":7");
    let error = read_run(&newer).unwrap_err();
    assert_eq!(error, ReadError::OtherVersion { found: 7 });
    assert!(error.to_string().contains("version 7"));
}

#[test]
fn nonsense_in_a_run_is_refused() {
    for (from, to, what) in [
        ("\"ticks_per_second\":1000000000.0", "\"ticks_per_second\":0.0", "0 ticks per second"),
        ("\"work\":1.0", "\"work\":-1.0", "operations per sample"),
        ("[[11,12,13],[10,500,12]]", "[]", "no samples"),
        ("[11,12,13]", "[11,-12,13]", "-12"),
        ("\"subtracted_ticks\":0.0", "\"subtracted_ticks\":-5.0", "subtracts"),
        ("\"rounds\"", "\"rings\"", "rounds"),
    ] {
        let damaged = text().replace(from, to);
        assert_ne!(damaged, text(), "{from} is not in the text");
        let error = read_run(&damaged).unwrap_err();
        assert!(matches!(error, ReadError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in ".{0,200}") {
        prop_assert!(read_run(&text).is_err());
    }

    #[test]
    fn any_damage_is_survived(at in 0usize..1000, byte in 32u8..127) {
        let mut bytes = text().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        // The result is either a run or a sentence.
        if let Err(error) = read_run(&String::from_utf8(bytes).unwrap()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
