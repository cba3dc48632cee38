//! Arbitrary segments, calls and times in every state: no panic, bounded memory, a window that
//! never shrinks, and a deadline whenever something waits.
//!
//! `FUZZ_ROUNDS` sets how many connections are tried and `FUZZ_SEED` the first; a failure prints
//! the seed.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use common::Piece;
use hayate_fuzzing::{Random, rounds, seed};
use hayate_tcp::cookie::{self, Key};
use hayate_tcp::{
    Algorithm, Bytes, Config, Connection, Error, Flags, Keepalive, MILLISECOND, Nanos, Options,
    Pieces, SECOND, Segment, Seq, State,
};

/// A piece that counts how many there are.
#[derive(Debug)]
struct Counted(Piece, Rc<Cell<usize>>);

impl Counted {
    fn new(length: usize, count: &Rc<Cell<usize>>) -> Counted {
        count.set(count.get() + 1);
        Counted(Piece::new(&vec![7; length]), count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.set(self.1.get() - 1);
    }
}

impl Bytes for Counted {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn slice(&self, from: usize, to: usize) -> Counted {
        self.1.set(self.1.get() + 1);
        Counted(self.0.slice(from, to), self.1.clone())
    }
    fn byte(&self, at: usize) -> u8 {
        self.0.byte(at)
    }
}

struct Fuzz {
    random: Random,
    now: Nanos,
    connection: Connection<Counted>,
    count: Rc<Cell<usize>>,
    /// Facts that the peer may know: our newest number, our acknowledgement, the window's right
    /// edge.
    seq: Seq,
    ack: Seq,
    edge: Option<Seq>,
    stamp: u32,
    limit: usize,
    trace: Vec<String>,
}

fn config(random: &mut Random) -> Config {
    let mut coin = || random.one_in(2);
    let algorithm = if coin() { Algorithm::Reno } else { Algorithm::Cubic };
    let (timestamps, sack, window_scaling) = (coin(), coin(), coin());
    let (nodelay, cork, urgent_inline) = (coin(), false, coin());
    let keepalive = coin().then_some(Keepalive { idle: 5 * SECOND, interval: SECOND, count: 3 });
    let user_timeout = coin().then_some(20 * SECOND);
    let receive_limit = [256, 3000, 65_536, 1 << 20][random.below(4)];
    Config {
        algorithm,
        timestamps,
        sack,
        window_scaling,
        nodelay,
        cork,
        urgent_inline,
        keepalive,
        user_timeout,
        mss: [0, 48, 536, 1460, 65_495, 1 << 20][random.below(6)],
        segment_limit: [0, 1000, 65_000][random.below(3)],
        send_limit: [1, 4096, 100_000][random.below(3)],
        receive_limit,
        receive_limit_max: receive_limit,
        ..Config::default()
    }
}

impl Fuzz {
    fn near(&mut self, seq: Seq) -> Seq {
        let offset = match self.random.below(8) {
            0..3 => 0,
            3 => 1,
            4 => self.random.below(3000) as u32,
            5 => (self.random.below(3000) as u32).wrapping_neg(),
            6 => self.random.below(1 << 17) as u32,
            _ => self.random.word() as u32 >> self.random.below(32),
        };
        seq + offset
    }

    fn segment(&mut self) -> Segment<Counted> {
        let flags = match self.random.below(20) {
            0 => Flags::from_bits_truncate(self.random.word() as u8),
            1 => Flags::SYN,
            2 => Flags::RST,
            3 => Flags::FIN,
            4 => Flags::URG,
            _ => Flags::empty(),
        };
        let seq = self.ack;
        let seq = self.near(seq);
        let ack = self.seq;
        let ack = self.near(ack);
        let ack = (!self.random.one_in(20)).then_some(ack);
        let mut segment = Segment::new(seq, ack, flags);
        segment.window = (self.random.word() as u16) >> self.random.below(17).min(15);
        segment.urgent = (self.random.word() as u16) >> self.random.below(16);
        if self.random.one_in(2) {
            let value = self.stamp.wrapping_add(self.random.below(4) as u32).wrapping_sub(1);
            let clock = (self.now / MILLISECOND) as u32;
            let echo = clock.wrapping_sub(self.random.below(1000) as u32);
            segment.options.timestamp = Some((value, echo));
            self.stamp = value;
        }
        if self.random.one_in(3) {
            for _ in 0..self.random.below(5) {
                let from = self.seq - self.random.below(20_000) as u32;
                let from = self.near(from);
                let to = self.near(from);
                segment.options.sack.push((from, to));
            }
        }
        if flags.contains(Flags::SYN) {
            segment.options.mss = Some((self.random.word() as u16) >> self.random.below(16));
            segment.options.window_scale =
                self.random.one_in(2).then_some(self.random.word() as u8);
            segment.options.sack_permitted = self.random.one_in(2);
        }
        for _ in 0..self.random.below(4) {
            let length = [1, 1, 100, 1448, 4096][self.random.below(5)];
            segment.payload.push(Counted::new(length, &self.count));
        }
        segment
    }

    fn take(&mut self, out: Vec<Segment<Counted>>) {
        assert!(out.len() < 5000, "{} segments at once", out.len());
        for segment in out {
            assert!(segment.options.wire_len() <= 40);
            let end = segment.seq + segment.sequence_len();
            if end.after(self.seq) || segment.flags.contains(Flags::SYN) {
                self.seq = end;
            }
            if let Some(ack) = segment.ack
                && !segment.flags.contains(Flags::RST)
            {
                self.ack = ack;
                if !segment.flags.contains(Flags::SYN) {
                    let shift = self.connection.info().receive_shift;
                    let edge = ack + (u32::from(segment.window) << shift);
                    // No window at all is what a connection says that has no memory.
                    if segment.window == 0 {
                        continue;
                    }
                    if let Some(before) = self.edge {
                        let back = before.distance(edge);
                        assert!(back < 1 << shift, "the window shrinks by {back}");
                    }
                    self.edge = Some(edge);
                }
            }
        }
    }

    /// Peeks, reads the same, and the urgent byte.
    fn read(&mut self, sink: &mut impl FnMut(Segment<Counted>)) {
        let (mut pieces, limit) = (Pieces::new(), self.random.below(10_000));
        let peeked = self.connection.peek(0, limit, &mut pieces).unwrap();
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), peeked);
        pieces.clear();
        let count = self.connection.take(limit, &mut pieces).unwrap();
        assert_eq!(count, peeked);
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), count);
        self.connection.after_read(self.now, count, sink);
        let _ = self.connection.receive_urgent(self.random.one_in(2));
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        let (now, choice) = (self.now, self.random.below(40));
        let mut sink = |segment: Segment<Counted>| out.push(segment);
        match choice {
            0..22 => {
                let segment = self.segment();
                self.trace.push(format!("{now} {:?}", Shown(&segment)));
                self.connection.on_segment(now, segment, &mut sink);
            }
            22..27 => {
                let length = [1, 100, 4096][self.random.below(3)];
                if self.connection.send_room() > 0 {
                    let _ = self.connection.send(Counted::new(length, &self.count));
                    self.connection.set_more(self.random.one_in(8));
                    if self.random.one_in(10) {
                        self.connection.mark_urgent();
                    }
                    self.connection.transmit(now, &mut sink);
                }
            }
            27..30 => self.read(&mut sink),
            30..36 => {
                let due = self.connection.next_deadline().unwrap_or(now);
                self.now = match self.random.below(3) {
                    0 => due.max(now),
                    1 => now + self.random.below(50) as u64 * MILLISECOND,
                    _ => now + self.random.below(3000) as u64,
                };
                self.connection.on_timer(self.now, &mut sink);
            }
            36 => {
                let mss = self.random.word() as u32 >> self.random.below(32);
                self.connection.set_path_mss(now, mss, &mut sink);
            }
            37 => match self.random.below(12) {
                0 => drop(self.connection.shutdown_write(now, &mut sink)),
                1 => {
                    self.connection.close(now, &mut sink);
                }
                2 => self.connection.shutdown_read(),
                3 => self.connection.set_receive_limit([256, 5000, 1 << 20][self.random.below(3)]),
                _ => {}
            },
            38 => {
                let seq = self.seq;
                self.connection.on_unreachable(seq - 1, Error::HostUnreachable);
            }
            _ => {
                self.connection.set_cork(self.random.one_in(2));
                self.connection.transmit(now, &mut sink);
            }
        }
        self.take(out);
        self.check();
    }

    fn check(&self) {
        let connection = &self.connection;
        let info = connection.info();
        let waits = connection.unacknowledged() > 0 || info.unacknowledged > 0;
        if waits && !matches!(connection.state(), State::Closed | State::TimeWait) {
            assert!(connection.next_deadline().is_some(), "waits for nothing: {info:?}");
        }
        if connection.state() == State::Closed {
            assert_eq!(connection.next_deadline(), None);
        }
        // Bytes that were received in pieces, and those of the send buffer with one piece above.
        let most = self.limit / 1024 + 2 * (256 << 10) / 4096 + 4;
        let sent = connection.unacknowledged();
        assert!(
            self.count.get() <= most + sent,
            "{} pieces, {most} may be received, {sent} bytes wait: {info:?}",
            self.count.get()
        );
    }
}

struct Shown<'a>(&'a Segment<Counted>);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let segment = self.0;
        write!(
            formatter,
            "seq {} ack {:?} {:?} win {} len {} {:?}",
            segment.seq.0,
            segment.ack.map(|ack| ack.0),
            segment.flags,
            segment.window,
            segment.payload_len(),
            segment.options
        )
    }
}

fn random_syn(random: &mut Random, seq: Seq) -> Segment<Counted> {
    let mut syn = Segment::new(seq, None, Flags::SYN);
    syn.window = random.word() as u16;
    syn.options = Options {
        mss: random.one_in(2).then_some(random.word() as u16),
        window_scale: random.one_in(2).then_some(random.word() as u8),
        sack_permitted: random.one_in(2),
        timestamp: random.one_in(2).then_some((random.word() as u32, 0)),
        ..Options::default()
    };
    syn
}

fn one(seed: u64) {
    let mut random = Random::new(seed);
    let config = config(&mut random);
    let now = random.below(1 << 40) as u64;
    let ours = Seq(random.word() as u32);
    let theirs = Seq(random.word() as u32);
    let count = Rc::new(Cell::new(0));
    let key = Key::new([1, 2]);
    let syn = random_syn(&mut random, theirs);
    let mut seq = ours;
    let connection = match random.below(4) {
        0 => Connection::connect(now, &config, ours),
        1 => {
            let answer = cookie::answer(&key, now, b"tuple", false, &config, &syn);
            let mut ack = Segment::new(theirs + 1, Some(answer.seq + 1), Flags::empty());
            ack.window = random.word() as u16;
            ack.options.timestamp = answer.options.timestamp.map(|(value, _)| (5, value));
            let accepted = cookie::check(&key, now, b"tuple", false, &config, &ack).unwrap();
            seq = answer.seq + 1;
            Connection::resume(now, &config, &accepted, &ack)
        }
        _ => Connection::accept(now, &config, ours, &syn),
    };
    let limit = config.receive_limit.max(1 << 20);
    let mut fuzz = Fuzz {
        random,
        now,
        connection,
        count,
        seq,
        ack: theirs + 1,
        edge: None,
        stamp: 5,
        limit,
        trace: Vec::new(),
    };
    let mut out = Vec::new();
    fuzz.connection.transmit(now, &mut |segment| out.push(segment));
    fuzz.take(out);
    let result = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..fuzz.random.below(400) {
            fuzz.step();
        }
    }));
    if result.is_err() {
        for line in &fuzz.trace {
            println!("{line}");
        }
        panic!("FUZZ_SEED={seed} FUZZ_ROUNDS=1; {config:?}");
    }
    let count = fuzz.count.clone();
    drop(fuzz);
    assert_eq!(count.get(), 0);
}

#[test]
fn arbitrary_segments_in_every_state() {
    for index in 0..rounds(3000) {
        one(seed() + index);
    }
}

#[test]
fn arbitrary_options() {
    let mut random = Random::new(seed());
    for _ in 0..rounds(100_000) {
        let bytes: Vec<u8> = (0..random.below(44))
            .map(|_| {
                let small = random.below(12) as u8;
                if random.one_in(3) { random.word() as u8 } else { small }
            })
            .collect();
        let options = Options::parse(&bytes);
        let mut room = [0; 40];
        assert_eq!(options.emit(&mut room).len(), options.wire_len());
    }
}
