//! Round trips of 32 bytes between two connections, for `valgrind --tool=callgrind
//! --toggle-collect='*round_trips*'`, which counts the instructions of TCP without a network.
//!
//! ```sh
//! cargo build --release -p hayate-tcp --example round_trip
//! valgrind --tool=callgrind --toggle-collect='*round_trips*' target/release/examples/round_trip
//! ```

use std::rc::Rc;

use hayate_tcp::{Bytes, Config, Connection, Nanos, Pieces, Segment, Seq};

/// A piece of a counted page.
struct Piece {
    page: Rc<[u8; 4096]>,
    from: u32,
    to: u32,
}

impl Bytes for Piece {
    fn len(&self) -> usize {
        (self.to - self.from) as usize
    }
    fn slice(&self, from: usize, to: usize) -> Piece {
        Piece { page: self.page.clone(), from: self.from + from as u32, to: self.from + to as u32 }
    }
    fn byte(&self, at: usize) -> u8 {
        self.page[self.from as usize + at]
    }
}

type End = Connection<Piece>;

/// One message from one end to the other.
#[inline(never)]
fn message(now: Nanos, from: &mut End, to: &mut End, page: &Rc<[u8; 4096]>) {
    from.send(Piece { page: page.clone(), from: 0, to: 32 }).unwrap();
    let mut wire: Option<Segment<Piece>> = None;
    from.transmit(now, &mut |segment| wire = Some(segment));
    let mut answer: Option<Segment<Piece>> = None;
    to.on_segment(now, wire.unwrap(), &mut |segment| answer = Some(segment));
    assert!(answer.is_none());
    let mut pieces = Pieces::new();
    assert_eq!(to.take(32, &mut pieces), Ok(32));
    to.after_read(now, 32, &mut |segment| answer = Some(segment));
    assert!(answer.is_none());
}

#[inline(never)]
fn round_trips(now: &mut Nanos, count: u32, ends: &mut (End, End), page: &Rc<[u8; 4096]>) {
    for _ in 0..count {
        *now += 5_000;
        message(*now, &mut ends.0, &mut ends.1, page);
        *now += 5_000;
        message(*now, &mut ends.1, &mut ends.0, page);
    }
}

fn exchange(now: Nanos, ends: &mut (End, End), mut wire: Vec<Segment<Piece>>, mut to: bool) {
    while !wire.is_empty() {
        let mut back = Vec::new();
        for segment in wire {
            let end = if to { &mut ends.1 } else { &mut ends.0 };
            end.on_segment(now, segment, &mut |segment| back.push(segment));
        }
        (wire, to) = (back, !to);
    }
}

fn main() {
    let config = Config { mss: 65_495, segment_limit: 65_495, nodelay: true, ..Config::default() };
    let mut now = 1_000_000_000;
    let mut client = Connection::connect(now, &config, Seq(5));
    let mut syn = None;
    client.transmit(now, &mut |segment| syn = Some(segment));
    let mut server = Connection::accept(now, &config, Seq(9), &syn.unwrap());
    let mut wire = Vec::new();
    server.transmit(now, &mut |segment| wire.push(segment));
    let mut ends = (client, server);
    exchange(now, &mut ends, wire, false);
    let page = Rc::new([7; 4096]);
    // Past the quick acknowledgements of the beginning.
    for _ in 0..64 {
        for side in [true, false] {
            now += 5_000;
            let mut wire = Vec::new();
            let (from, _) = if side { (&mut ends.0, ()) } else { (&mut ends.1, ()) };
            from.send(Piece { page: page.clone(), from: 0, to: 32 }).unwrap();
            from.transmit(now, &mut |segment| wire.push(segment));
            exchange(now, &mut ends, wire, side);
            let to = if side { &mut ends.1 } else { &mut ends.0 };
            let mut pieces = Pieces::new();
            to.take(32, &mut pieces).unwrap();
            let mut wire = Vec::new();
            to.after_read(now, 32, &mut |segment| wire.push(segment));
            exchange(now, &mut ends, wire, !side);
        }
    }
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1000);
    let start = std::time::Instant::now();
    round_trips(&mut now, count, &mut ends, &page);
    let took = start.elapsed();
    println!("{count} round trips, {} ns each", took.as_nanos() / u128::from(count));
}
