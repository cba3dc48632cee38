//! Parts without a connection: SYN cookies, first numbers, TIME-WAIT.

mod common;

use common::Piece;
use hayate_tcp::cookie::{self, Key};
use hayate_tcp::{
    Config, Connection, Events, Flags, MILLISECOND, Nanos, Options, SECOND, Segment, Seq, State,
    TimeWait, Verdict,
};

const NOW: Nanos = 1000 * SECOND;
const TUPLE: &[u8] = b"192.0.2.1 1000 192.0.2.2 80";

fn syn(mss: u16, options: Options) -> Segment<Piece> {
    let mut syn = Segment::new(Seq(0xffff_ffff), None, Flags::SYN);
    syn.options = Options { mss: Some(mss), ..options };
    syn
}

fn acknowledge(answer: &Segment<Piece>) -> Segment<Piece> {
    let mut ack = Segment::new(answer.ack.unwrap(), Some(answer.seq + 1), Flags::empty());
    ack.window = 500;
    ack.options.timestamp = answer.options.timestamp.map(|(value, _)| (12, value));
    ack
}

fn key() -> Key {
    Key::new([0x0123_4567_89ab_cdef, 42])
}

#[test]
fn a_cookie_tells_the_largest_segment() {
    let config = Config::default();
    for (v6, offered, told) in [
        (false, 1460, 1460),
        (false, 9000, 1460),
        (false, 1459, 1440),
        (false, 100, 536),
        (true, 1440, 1440),
        (true, 1300, 1220),
    ] {
        let syn = syn(offered, Options::default());
        let answer = cookie::answer(&key(), NOW, TUPLE, v6, &config, &syn);
        assert_eq!(answer.ack, Some(Seq(0)));
        assert_eq!(answer.flags, Flags::SYN);
        let ack = acknowledge(&answer);
        let accepted = cookie::check(&key(), NOW + SECOND, TUPLE, v6, &config, &ack).unwrap();
        assert_eq!((accepted.mss, accepted.initial), (told, answer.seq));
        assert_eq!((accepted.window_scale, accepted.sack), (None, false));
    }
}

#[test]
fn timestamps_carry_what_a_cookie_cannot() {
    let config = Config { timestamp_offset: 0x1234_567b, ..Config::default() };
    for window_scale in [None, Some(0), Some(7), Some(14), Some(200)] {
        for sack_permitted in [false, true] {
            let timestamp = Some((11, 0));
            let options = Options { window_scale, sack_permitted, timestamp, ..Options::default() };
            let syn = syn(1460, options);
            let answer = cookie::answer(&key(), NOW, TUPLE, false, &config, &syn);
            let (value, echo) = answer.options.timestamp.unwrap();
            assert_eq!(echo, 11);
            let clock = (NOW / MILLISECOND) as u32;
            let behind = clock.wrapping_sub(value.wrapping_sub(config.timestamp_offset));
            assert!(behind < 128, "the value is not of the future: {behind}");
            let ack = acknowledge(&answer);
            let accepted = cookie::check(&key(), NOW, TUPLE, false, &config, &ack).unwrap();
            assert_eq!(accepted.sack, sack_permitted);
            assert_eq!(accepted.window_scale, window_scale.map(|shift| shift.min(14)));
            assert_eq!(answer.options.window_scale.is_some(), window_scale.is_some());
        }
    }
}

#[test]
fn a_cookie_dies_and_cannot_be_guessed() {
    let config = Config::default();
    let answer = cookie::answer(&key(), NOW, TUPLE, false, &config, &syn(1460, Options::default()));
    let ack = acknowledge(&answer);
    let valid = |now, tuple, ack: &Segment<Piece>| {
        cookie::check(&key(), now, tuple, false, &config, ack).is_some()
    };
    assert!(valid(NOW + 59 * SECOND, TUPLE, &ack));
    assert!(!valid(NOW + 121 * SECOND, TUPLE, &ack));
    assert!(!valid(NOW, b"192.0.2.9 1000 192.0.2.2 80", &ack));
    assert!(cookie::check(&Key::new([1, 2]), NOW, TUPLE, false, &config, &ack).is_none());
    let mut guessed = 0;
    for guess in 0..100_000u32 {
        let mut ack = ack.clone();
        ack.ack = Some(Seq(guess.wrapping_mul(0x9e37_79b9)));
        guessed += u32::from(valid(NOW, TUPLE, &ack));
    }
    // 2 of 256 minutes, 4 of 2^24 indices.
    assert!(guessed <= 1);
}

#[test]
fn a_cookie_becomes_a_connection() {
    let config = Config::default();
    let options = Options {
        window_scale: Some(3),
        sack_permitted: true,
        timestamp: Some((11, 0)),
        ..Options::default()
    };
    let answer = cookie::answer(&key(), NOW, TUPLE, false, &config, &syn(1400, options));
    let mut ack = acknowledge(&answer);
    ack.payload.push(Piece::new(b"hello"));
    let accepted = cookie::check(&key(), NOW, TUPLE, false, &config, &ack).unwrap();
    let mut server = Connection::resume(NOW, &config, &accepted, &ack);
    assert_eq!(server.state(), State::Established);
    let mut out = Vec::new();
    let events = server.on_segment(NOW, ack, &mut |segment| out.push(segment));
    assert!(events.contains(Events::READABLE));
    assert_eq!(server.available(), 5);
    let info = server.info();
    assert_eq!((info.send_shift, info.sack, info.timestamps), (3, true, true));
    assert_eq!((info.send_mss, info.send_window), (1300 - 12, 4000));
    server.send(Piece::new(b"bye")).unwrap();
    server.transmit(NOW, &mut |segment| out.push(segment));
    let last = out.last().unwrap();
    assert_eq!((last.seq, last.ack), (answer.seq + 1, Some(Seq(5))));
}

#[test]
fn first_numbers_grow_and_differ() {
    let first = key().isn(NOW, TUPLE);
    assert_eq!(key().isn(NOW + 64_000, TUPLE), first + 1000);
    assert_ne!(key().isn(NOW, b"another"), first);
    assert_ne!(Key::new([1, 2]).isn(NOW, TUPLE), first);
    assert_ne!(key().timestamp_offset(b"a"), key().timestamp_offset(b"b"));
}

/// A connection that was closed by us first, in TIME-WAIT; its next numbers are 2 and 1002.
fn waiting(timestamps: bool) -> TimeWait {
    let config = Config { timestamps, ..Config::default() };
    let mut ours = Connection::<Piece>::connect(NOW, &config, Seq(0));
    let out = &mut |_| {};
    ours.transmit(NOW, out);
    let stamp = timestamps.then_some((70, (NOW / MILLISECOND) as u32));
    let with = |seq, flags, ack| {
        let mut segment = Segment::new(Seq(seq), Some(Seq(ack)), flags);
        segment.window = 1000;
        segment.options.timestamp = stamp;
        segment
    };
    ours.on_segment(NOW, with(1000, Flags::SYN, 1), out);
    ours.close(NOW, out);
    ours.on_segment(NOW, with(1001, Flags::empty(), 2), out);
    assert!(ours.time_wait(NOW).is_none());
    let events = ours.on_segment(NOW, with(1001, Flags::FIN, 2), out);
    assert!(events.contains(Events::TIME_WAIT));
    assert_eq!(ours.next_deadline(), None);
    ours.time_wait(NOW).unwrap()
}

fn stamped(seq: u32, ack: Option<Seq>, flags: Flags, value: Option<u32>) -> Segment<Piece> {
    let mut segment = Segment::new(Seq(seq), ack, flags);
    segment.options.timestamp = value.map(|value| (value, 0));
    segment
}

#[test]
fn a_fin_again_is_acknowledged_again() {
    let mut waiting = waiting(true);
    assert_eq!(waiting.deadline(), NOW + 60 * SECOND);
    let fin = stamped(1001, Some(Seq(2)), Flags::FIN, Some(71));
    let later = NOW + 10 * SECOND;
    let Verdict::Answer(answer) = waiting.on_segment(later, &fin) else { panic!() };
    assert_eq!((answer.seq, answer.ack), (Seq(2), Some(Seq(1002))));
    assert_eq!(answer.options.timestamp.unwrap().1, 70);
    assert_eq!(waiting.deadline(), later + 60 * SECOND);
    // Not each of many.
    assert!(matches!(waiting.on_segment(later, &fin), Verdict::Ignore));
}

#[test]
fn a_new_connection_may_follow() {
    // RFC 6191: by a newer timestamp, or by a larger number.
    let syn = |seq, value| stamped(seq, None, Flags::SYN, value);
    let reopens = |timestamps, syn: &Segment<Piece>| match waiting(timestamps).on_segment(NOW, syn)
    {
        Verdict::Reopen(isn) => {
            assert_eq!(isn, Seq(2 + 65_537));
            true
        }
        _ => false,
    };
    assert!(reopens(true, &syn(5, Some(71))));
    assert!(!reopens(true, &syn(5, Some(70))));
    assert!(reopens(true, &syn(5000, Some(70))));
    assert!(!reopens(true, &syn(5000, Some(69))));
    assert!(reopens(false, &syn(5000, None)));
    assert!(!reopens(false, &syn(5, None)));
    assert!(waiting(true).may_reuse(NOW + 2 * SECOND) && !waiting(false).may_reuse(NOW + SECOND));
}

#[test]
fn only_an_exact_reset_ends_it() {
    let reset = |seq| stamped(seq, None, Flags::RST, None);
    assert!(matches!(waiting(true).on_segment(NOW, &reset(1003)), Verdict::Ignore));
    assert!(matches!(waiting(true).on_segment(NOW, &reset(1002)), Verdict::Ended));
}

#[test]
fn a_segment_without_a_connection_is_refused() {
    let refusal = stamped(7, Some(Seq(9)), Flags::empty(), None).refusal().unwrap();
    assert_eq!((refusal.seq, refusal.ack, refusal.flags), (Seq(9), None, Flags::RST));
    let refusal = stamped(7, None, Flags::SYN, None).refusal().unwrap();
    assert_eq!((refusal.seq, refusal.ack, refusal.flags), (Seq(0), Some(Seq(8)), Flags::RST));
    assert!(stamped(7, None, Flags::RST, None).refusal().is_none());
}
