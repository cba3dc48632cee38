//! Segments that stand for several: what [`Segment::cut`] makes of them.

mod common;

use common::{Piece, pattern, text};
use hayate_tcp::{Config, Connection, Flags, Options, Pieces, Segment, Seq};
use proptest::prelude::*;

/// A segment of `length` bytes in pieces of the given sizes, in turn.
fn segment(length: usize, sizes: &[usize], flags: Flags) -> Segment<Piece> {
    let mut segment = Segment::new(Seq(0xffff_fff0), Some(Seq(77)), flags);
    segment.window = 501;
    segment.options = Options { timestamp: Some((5, 6)), ..Options::default() };
    let bytes: Vec<u8> = (0..length as u64).map(pattern).collect();
    let mut at = 0;
    for size in sizes.iter().cycle() {
        let end = length.min(at + size);
        if at == end {
            break;
        }
        segment.payload.push(Piece::new(&bytes[at..end]));
        at = end;
    }
    segment
}

fn pieces(segment: Segment<Piece>) -> Vec<Segment<Piece>> {
    let mut pieces = Vec::new();
    segment.cut(|piece| pieces.push(piece));
    pieces
}

/// Joins, and looks whether the length is counted.
fn join(first: &mut Segment<Piece>, next: &mut Segment<Piece>, most: usize) -> bool {
    let mut length = first.payload_len();
    let joined = first.join(&mut length, next, most);
    assert_eq!(length, first.payload_len());
    joined
}

#[test]
fn one_that_fits_stays_as_it_is() {
    for cut_at in [0, 1000, 1001] {
        let mut whole = segment(1000, &[300], Flags::PSH | Flags::FIN);
        whole.cut_at = cut_at;
        let pieces = pieces(whole.clone());
        assert_eq!(pieces.len(), 1);
        assert_eq!((pieces[0].seq, pieces[0].flags), (whole.seq, whole.flags));
        assert_eq!(text(&pieces[0].payload), text(&whole.payload));
        assert_eq!(pieces[0].cut_at, 0);
    }
}

#[test]
fn the_urgent_mark_stays_where_it_is() {
    let mut whole = segment(3000, &[3000], Flags::URG);
    (whole.urgent, whole.cut_at) = (2500, 1000);
    let marks: Vec<_> = pieces(whole).iter().map(|piece| (piece.flags, piece.urgent)).collect();
    assert_eq!(marks, [(Flags::URG, 2500), (Flags::URG, 1500), (Flags::URG, 500)]);
    let mut whole = segment(3000, &[3000], Flags::URG);
    (whole.urgent, whole.cut_at) = (1000, 1000);
    let marks: Vec<_> = pieces(whole).iter().map(|piece| (piece.flags, piece.urgent)).collect();
    let none = (Flags::empty(), 0);
    assert_eq!(marks, [(Flags::URG, 1000), none, none]);
}

#[test]
fn only_what_follows_is_joined() {
    let part = |at: usize, length: usize| {
        let mut part = segment(length, &[700], Flags::empty());
        part.seq = part.seq + at as u32;
        part
    };
    let joins = |change: fn(&mut Segment<Piece>)| {
        let (mut first, mut next) = (part(0, 1000), part(1000, 1000));
        change(&mut next);
        let (before, joined) = (text(&next.payload), join(&mut first, &mut next, 5000));
        assert!(joined || text(&next.payload) == before && first.payload_len() == 1000);
        joined
    };
    assert!(joins(|_| {}));
    assert!(joins(|next| next.flags = Flags::PSH));
    assert!(!joins(|next| next.flags = Flags::FIN));
    assert!(!joins(|next| next.flags = Flags::URG));
    assert!(!joins(|next| next.seq = next.seq + 1));
    assert!(!joins(|next| next.ack = Some(Seq(78))));
    assert!(!joins(|next| next.ack = None));
    assert!(!joins(|next| next.window = 502));
    assert!(!joins(|next| next.options.timestamp = Some((6, 6))));
    assert!(!joins(|next| next.payload.clear()));
    assert!(!joins(|next| next.payload.push(Piece::new(b"longer than the first"))));
    assert!(!joins(|next| next.cut_at = 500));
    // A short one is the last, and there is a bound.
    let mut first = part(0, 1000);
    assert!(!join(&mut first, &mut part(1000, 1000), 1999));
    assert!(join(&mut first, &mut part(1000, 999), 1999));
    assert!(!join(&mut first, &mut part(1999, 10), 5000));
    // One that is not alone in what it says begins none.
    assert!(part(0, 10).may_grow() && !part(0, 0).may_grow());
    for flags in [Flags::PSH, Flags::FIN, Flags::SYN, Flags::RST, Flags::URG] {
        assert!(!segment(10, &[10], flags).may_grow());
    }
}

proptest! {
    #[test]
    fn the_pieces_are_the_same_stream(
        length in 1usize..70_000, cut_at in 1u16..3000,
        sizes in prop::collection::vec(1usize..5000, 1..8),
        push in any::<bool>(), fin in any::<bool>(),
    ) {
        prop_assume!(length <= usize::from(cut_at) * 500);
        let mut flags = Flags::empty();
        flags.set(Flags::PSH, push);
        flags.set(Flags::FIN, fin);
        let mut whole = segment(length, &sizes, flags);
        whole.cut_at = cut_at;
        let count = whole.count();
        let pieces = pieces(whole.clone());
        prop_assert_eq!(pieces.len() as u64, count);
        let mut bytes = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let last = index + 1 == pieces.len();
            prop_assert_eq!(piece.seq, whole.seq + bytes.len() as u32);
            prop_assert_eq!(piece.flags, if last { flags } else { Flags::empty() });
            prop_assert_eq!((piece.ack, piece.window), (whole.ack, whole.window));
            prop_assert_eq!(&piece.options, &whole.options);
            let size = piece.payload_len();
            prop_assert!(size == usize::from(cut_at) || last && size <= usize::from(cut_at));
            bytes.extend(text(&piece.payload));
        }
        prop_assert!(bytes == text(&whole.payload));
    }

    #[test]
    fn pieces_are_joined_to_what_they_were(
        length in 1usize..60_000, cut_at in 200u16..3000,
        sizes in prop::collection::vec(1usize..5000, 1..8), push in any::<bool>(),
    ) {
        let mut flags = Flags::empty();
        flags.set(Flags::PSH, push);
        let mut whole = segment(length, &sizes, flags);
        whole.cut_at = cut_at;
        let mut pieces = pieces(whole.clone()).into_iter();
        let mut first = pieces.next().unwrap();
        for mut piece in pieces {
            prop_assert!(first.may_grow());
            prop_assert!(join(&mut first, &mut piece, usize::MAX));
            prop_assert!(piece.payload.is_empty());
        }
        prop_assert_eq!((first.seq, first.flags, first.count()), (whole.seq, flags, whole.count()));
        prop_assert!(text(&first.payload) == text(&whole.payload));
    }

    /// A receiver cannot tell a segment from its pieces but by what it counts.
    #[test]
    fn a_receiver_takes_them_as_one(
        length in 1usize..40_000,
        // Not so small that they meet the bound of memory.
        sizes in prop::collection::vec(500usize..5000, 1..8),
    ) {
        let mut read = [Vec::new(), Vec::new()];
        let mut infos = Vec::new();
        for (way, read) in read.iter_mut().enumerate() {
            let mut end = established();
            let mut whole = segment(length, &sizes, Flags::PSH);
            whole.seq = Seq(1);
            (whole.ack, whole.options) = (Some(Seq(0x1000_0001)), Options::default());
            whole.cut_at = 1448;
            let arriving = if way == 0 { vec![whole] } else { pieces(whole) };
            for segment in arriving {
                end.on_segment(2_000_000, segment, &mut |_| {});
            }
            let mut taken = Pieces::new();
            end.take(usize::MAX >> 1, &mut taken).unwrap();
            *read = text(&taken);
            infos.push(end.info());
        }
        prop_assert_eq!(read[0].len(), length);
        prop_assert!(read[0] == read[1]);
        let counts = |at: usize| (infos[at].segments_in, infos[at].data_segments_in);
        prop_assert_eq!(counts(0), counts(1));
        prop_assert_eq!(infos[0].receive_mss, infos[1].receive_mss);
    }
}

/// A connection that was accepted, whose peer begins at 0 and which begins at 0x10000000 itself.
fn established() -> Connection<Piece> {
    let config = Config { timestamps: false, ..Config::default() };
    let mut syn = Segment::new(Seq(0), None, Flags::SYN);
    syn.options.mss = Some(1460);
    let mut end = Connection::accept(1_000_000, &config, Seq(0x1000_0000), &syn);
    end.transmit(1_000_000, &mut |_| {});
    let ack = Segment::new(Seq(1), Some(Seq(0x1000_0001)), Flags::empty());
    end.on_segment(1_500_000, ack, &mut |_| {});
    end
}
