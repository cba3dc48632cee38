//! When the data came that a program reads.

mod common;

use common::Piece;
use hayate_tcp::{Config, Connection, Flags, Pieces, Segment, Seq, State};

const PEER: u32 = 1000;

fn established() -> Connection<Piece> {
    let config = Config { timestamps: false, ..Config::default() };
    let mut syn = Segment::new(Seq(PEER), None, Flags::SYN);
    syn.window = 60000;
    let mut connection = Connection::accept(1, &config, Seq(50), &syn);
    let mut answers = Vec::new();
    connection.transmit(1, &mut |segment| answers.push(segment));
    let mut ack = Segment::new(Seq(PEER + 1), Some(Seq(51)), Flags::empty());
    ack.window = 60000;
    connection.on_segment(2, ack, &mut |_| {});
    assert_eq!(connection.state(), State::Established);
    connection
}

/// Data that begin at a byte of the stream.
fn data(at: u32, bytes: &[u8]) -> Segment<Piece> {
    let mut segment = Segment::new(Seq(PEER + 1 + at), Some(Seq(51)), Flags::PSH);
    segment.window = 60000;
    segment.payload.push(Piece::new(bytes));
    segment
}

fn comes(connection: &mut Connection<Piece>, at: u32, bytes: &[u8], time: u64) {
    connection.on_segment_at(3, data(at, bytes), time, &mut |_| {});
}

fn read(connection: &mut Connection<Piece>, count: usize) -> usize {
    let mut pieces = Pieces::new();
    let count = connection.peek(0, count, &mut pieces).unwrap();
    connection.consume(count);
    count
}

#[test]
fn the_last_byte_tells() {
    let mut connection = established();
    comes(&mut connection, 0, b"abc", 10);
    comes(&mut connection, 3, b"def", 20);
    assert_eq!(connection.arrival(0, 2), Some(10));
    assert_eq!(connection.arrival(0, 4), Some(20));
    assert_eq!(connection.arrival(2, 1), Some(10));
    assert_eq!(connection.arrival(3, 9), Some(20));
    assert_eq!(read(&mut connection, 3), 3);
    assert_eq!(connection.arrival(0, 1), Some(20));
    assert_eq!(read(&mut connection, 3), 3);
    assert_eq!(connection.arrival(0, 1), None);
}

#[test]
fn data_that_came_before_somebody_asked_have_no_time() {
    let mut connection = established();
    connection.on_segment(3, data(0, b"abc"), &mut |_| {});
    assert_eq!(connection.arrival(0, 3), None);
    comes(&mut connection, 3, b"def", 20);
    assert_eq!(connection.arrival(0, 3), None);
    assert_eq!(connection.arrival(0, 4), Some(20));
    // The same again is not taken.
    comes(&mut connection, 0, b"abc", 30);
    assert_eq!(connection.arrival(0, 3), None);
}

#[test]
fn data_that_come_early_keep_their_time() {
    let mut connection = established();
    comes(&mut connection, 3, b"def", 10);
    assert_eq!(connection.readable(), 0);
    comes(&mut connection, 3, b"def", 15);
    comes(&mut connection, 0, b"abc", 20);
    assert_eq!(connection.readable(), 6);
    assert_eq!(connection.arrival(0, 3), Some(20));
    assert_eq!(connection.arrival(0, 6), Some(10));
}

#[test]
fn a_segment_outside_the_window_has_none() {
    let mut connection = established();
    comes(&mut connection, 1 << 24, b"far", 10);
    comes(&mut connection, 0, b"abc", 20);
    assert_eq!(connection.arrival(0, 3), Some(20));
}

#[test]
fn a_segment_is_cut_behind_its_first_bytes() {
    let mut segment = data(0, b"abc");
    segment.payload.push(Piece::new(b"defg"));
    segment.flags |= Flags::FIN;
    for (length, pieces) in [(9, 2), (7, 2), (4, 2), (3, 1), (1, 1), (0, 0)] {
        segment.truncate(length);
        assert_eq!((segment.payload_len(), segment.payload.len()), (length.min(7), pieces));
        assert!(segment.flags.contains(Flags::FIN));
    }
}
