//! The ring beside a list of all records, and the forms of records.

use hayate_log_ring::{Cursor, EXTENDED_MOST, LONGEST, LogRing, PLAIN_MOST, Record};
use hayate_log_ring::{extended, plain};
use proptest::prelude::*;

const SIZE: usize = 1500;

fn read_all(ring: &LogRing<SIZE>) -> Vec<(Record, Vec<u8>)> {
    let mut all = Vec::new();
    let mut at = ring.first();
    let mut text = [0; LONGEST];
    while let Some(record) = ring.read(at, &mut text) {
        all.push((record, text[..record.length].to_vec()));
        at = record.next;
    }
    all
}

#[test]
fn an_empty_ring_has_no_record() {
    let ring = LogRing::<SIZE>::new();
    assert_eq!(ring.first(), ring.end());
    assert_eq!(ring.read(ring.first(), &mut []), None);
}

#[test]
fn a_reader_that_is_overtaken_gets_the_oldest_record() {
    let mut ring = LogRing::<SIZE>::new();
    let start = ring.end();
    for number in 0..100_u64 {
        ring.append(number, 6, &[b'x'; 200]);
    }
    let mut text = [0; LONGEST];
    let record = ring.read(start, &mut text).expect("there are records");
    // Seven records of 212 bytes fit into 1,500.
    assert_eq!((record.sequence, record.microseconds, record.length), (93, 93, 200));
}

#[test]
fn a_text_is_cut_to_the_longest() {
    let mut ring = LogRing::<SIZE>::new();
    ring.append(1, 6, &[b'x'; 5000]);
    let mut text = [0; 5000];
    assert_eq!(ring.read(Cursor::default(), &mut text).map(|record| record.length), Some(LONGEST));
    // A buffer that is too short gets the beginning.
    assert_eq!(
        ring.read(Cursor::default(), &mut [0; 3]).map(|record| record.length),
        Some(LONGEST)
    );
}

fn record(priority: u16, microseconds: u64) -> Record {
    Record { sequence: 7, microseconds, priority, length: 0, next: Cursor::default() }
}

#[test]
fn the_plain_form_has_a_prefix_for_each_line() {
    let mut room = [0; PLAIN_MOST];
    let length = plain(&record(14, 12_000_345), b"one\ntwo", &mut room);
    assert_eq!(
        str::from_utf8(&room[..length]),
        Ok("<14>[   12.000345] one\n<14>[   12.000345] two\n")
    );
    // Lines without room are left out whole.
    let length = plain(&record(14, 12_000_345), b"one\ntwo", &mut room[..30]);
    assert_eq!(str::from_utf8(&room[..length]), Ok("<14>[   12.000345] one\n"));
}

#[test]
fn the_extended_form_escapes() {
    let mut room = [0; EXTENDED_MOST];
    let length = extended(&record(6, 99), b"a\\b\nc\xff", &mut room);
    assert_eq!(str::from_utf8(&room[..length]), Ok("6,7,99,-;a\\x5cb\\x0ac\\xff\n"));
}

#[test]
fn there_is_room_for_the_longest_of_each_form() {
    let worst = record(u16::MAX, u64::MAX);
    let mut room = [0; EXTENDED_MOST];
    let length = extended(&Record { sequence: u64::MAX, ..worst }, &[0; LONGEST], &mut room);
    assert_eq!(room[length - 1], b'\n');
    let mut room = [0; PLAIN_MOST];
    assert_eq!(plain(&record(6, 0), &[b'x'; LONGEST], &mut room), LONGEST + 19);
}

proptest! {
    #[test]
    fn the_ring_keeps_the_newest_records_that_fit(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..40),
    ) {
        let mut ring = LogRing::<SIZE>::new();
        for (number, text) in texts.iter().enumerate() {
            ring.append(number as u64, number as u16, text);
        }
        let mut fit = 0;
        let newest = texts.iter().rev().take_while(|text| {
            fit += text.len() + 12;
            fit <= SIZE
        }).count();
        let kept = read_all(&ring);
        prop_assert_eq!(kept.len(), newest);
        let first = texts.len() - newest;
        for (index, (record, text)) in kept.iter().enumerate() {
            let number = first + index;
            prop_assert_eq!(record.sequence, number as u64);
            prop_assert_eq!(record.microseconds, number as u64);
            prop_assert_eq!(record.priority, number as u16);
            prop_assert_eq!(text, &texts[number]);
        }
        prop_assert_eq!(ring.end().sequence, texts.len() as u64);
    }

    #[test]
    fn forms_stay_within_their_room(
        text in prop::collection::vec(any::<u8>(), 0..LONGEST), room in 0_usize..2000,
    ) {
        let mut out = vec![0; room];
        prop_assert!(plain(&record(30, u64::MAX), &text, &mut out) <= room);
        prop_assert!(extended(&record(30, u64::MAX), &text, &mut out) <= room);
    }
}
