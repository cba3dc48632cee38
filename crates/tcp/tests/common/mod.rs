//! Shared by the tests: pieces of memory, an end with its program, a network in simulated time.
#![allow(dead_code, reason = "each test uses a part")]

pub mod script;

use std::collections::BTreeMap;
use std::rc::Rc;

use hayate_fuzzing::Random;
use hayate_tcp::{
    Bytes, Closing, Config, Connection, Events, MILLISECOND, Nanos, Pieces, SECOND, Segment, Seq,
    State, TimeWait, Verdict,
};

/// A piece of shared memory.
#[derive(Clone, Debug)]
pub struct Piece {
    memory: Rc<[u8]>,
    from: usize,
    to: usize,
}

impl Piece {
    pub fn new(bytes: &[u8]) -> Piece {
        Piece { memory: bytes.into(), from: 0, to: bytes.len() }
    }
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.from..self.to]
    }
}

impl Bytes for Piece {
    fn len(&self) -> usize {
        self.to - self.from
    }
    fn slice(&self, from: usize, to: usize) -> Piece {
        assert!(from <= to && to <= self.len());
        Piece { memory: self.memory.clone(), from: self.from + from, to: self.from + to }
    }
    fn byte(&self, at: usize) -> u8 {
        self.bytes()[at]
    }
}

pub fn text(pieces: &Pieces<Piece>) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.bytes().iter().copied()).collect()
}

/// The byte of a stream at `at`, different enough that a shift is noticed.
pub fn pattern(at: u64) -> u8 {
    (at ^ at >> 7 ^ at >> 15) as u8
}

/// The network's faults, in parts of a thousand, and its times.
#[derive(Clone, Debug)]
pub struct Faults {
    pub loss: usize,
    pub duplicates: usize,
    pub reorder: usize,
    pub delay: Nanos,
    pub jitter: Nanos,
    /// Bytes a second; 0 for infinite.
    pub rate: u64,
    /// Cut segments that are longer than this on the wire (a device with TSO).
    pub mtu: u32,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            loss: 0,
            duplicates: 0,
            reorder: 0,
            delay: 10 * MILLISECOND,
            jitter: 0,
            rate: 0,
            mtu: 1500,
        }
    }
}

/// One end and the program on it.
pub struct End {
    pub connection: Connection<Piece>,
    pub events: Events,
    /// Bytes that the program sends in all, and has given to the connection.
    pub to_send: u64,
    pub given: u64,
    /// Bytes that came.
    pub got: u64,
    /// The program reads at all; closes its side when it has sent all; has closed.
    pub reads: bool,
    /// When it reads again, if it does not.
    pub resumes: Nanos,
    pub shut: bool,
    pub closed: Option<Closing>,
    pub over: bool,
    pub waiting: Option<TimeWait>,
    /// Largest write and read.
    pub chunk: usize,
}

impl End {
    pub fn new(connection: Connection<Piece>, to_send: u64) -> End {
        End {
            connection,
            events: Events::empty(),
            to_send,
            given: 0,
            got: 0,
            reads: true,
            resumes: 0,
            shut: false,
            closed: None,
            over: false,
            waiting: None,
            chunk: 16384,
        }
    }
}

type Arrival = (usize, Segment<Piece>);

/// Two ends and what is between them.
pub struct Network {
    pub now: Nanos,
    pub ends: [Option<End>; 2],
    pub faults: Faults,
    pub random: Random,
    wire: BTreeMap<(Nanos, u64), Arrival>,
    busy: [Nanos; 2],
    sequence: u64,
    pub configs: [Config; 2],
    pub carried: u64,
    pub lost: u64,
    accept_bytes: u64,
    pub trace: bool,
}

impl Network {
    pub fn new(seed: u64, faults: Faults, configs: [Config; 2], bytes: [u64; 2]) -> Network {
        let mut random = Random::new(seed);
        let first = Seq(random.word() as u32 | 0xfff0_0000);
        let now = SECOND;
        let client = End::new(Connection::connect(now, &configs[0], first), bytes[0]);
        let mut network = Network {
            now,
            ends: [Some(client), None],
            faults,
            random,
            wire: BTreeMap::new(),
            busy: [0; 2],
            sequence: 0,
            configs,
            carried: 0,
            lost: 0,
            accept_bytes: bytes[1],
            trace: std::env::var_os("TCP_TRACE").is_some(),
        };
        network.with(0, |end, now, out| {
            end.connection.transmit(now, &mut |s| out.push(s));
            Events::empty()
        });
        network
    }

    /// Calls `act` for an end and carries what it sends.
    pub fn with(
        &mut self,
        side: usize,
        act: impl FnOnce(&mut End, Nanos, &mut Vec<Segment<Piece>>) -> Events,
    ) {
        let mut out = Vec::new();
        let Some(end) = &mut self.ends[side] else { return };
        let events = act(end, self.now, &mut out);
        end.events |= events;
        let connection = &end.connection;
        let waits = connection.unacknowledged() > 0 || connection.info().unacknowledged > 0;
        if waits && !matches!(connection.state(), State::Closed | State::TimeWait) {
            let due = connection.next_deadline();
            assert!(due.is_some(), "something waits for nothing: {:?}", connection.info());
        }
        if events.intersects(Events::CLOSED | Events::TIME_WAIT) {
            end.over = true;
            end.waiting = end.waiting.take().or(end.connection.time_wait(self.now));
        }
        for segment in out {
            self.carry(side, segment);
        }
    }

    fn carry(&mut self, side: usize, segment: Segment<Piece>) {
        let most = self.faults.mtu as usize;
        segment.cut(|piece| {
            // A device joins and cuts; a path does not.
            let length = 40 + piece.options.wire_len() + piece.payload_len();
            assert!(length <= most, "{length} bytes on a path with an MTU of {most}");
            self.carry_one(side, piece);
        });
    }

    fn carry_one(&mut self, side: usize, segment: Segment<Piece>) {
        let size = (40 + segment.options.wire_len() + segment.payload_len()) as u64;
        if self.trace {
            println!(
                "{:>10} {} seq {} ack {:?} {:?} win {} len {} sack {:?} ts {:?}",
                self.now / 1000,
                ["->", "<-"][side],
                segment.seq.0,
                segment.ack.map(|a| a.0),
                segment.flags,
                segment.window,
                segment.payload_len(),
                segment.options.sack,
                segment.options.timestamp
            );
        }
        let mut copies = 1;
        if self.random.below(1000) < self.faults.loss {
            self.lost += 1;
            copies = 0;
        } else if self.random.below(1000) < self.faults.duplicates {
            copies = 2;
        }
        let start = self.busy[side].max(self.now);
        let time = (size * SECOND).checked_div(self.faults.rate).unwrap_or(0);
        self.busy[side] = start + time;
        for _ in 0..copies {
            let mut at = start + time + self.faults.delay;
            if self.random.below(1000) < self.faults.reorder {
                at += self.random.below(self.faults.jitter.max(1) as usize) as u64;
            }
            self.sequence += 1;
            self.wire.insert((at, self.sequence), (1 - side, segment.clone()));
        }
        self.carried += 1;
    }

    fn arrive(&mut self, side: usize, segment: Segment<Piece>) {
        if self.ends[side].is_none() {
            let syn = segment.flags.contains(hayate_tcp::Flags::SYN) && segment.ack.is_none();
            if side != 1 || !syn {
                return;
            }
            let first = Seq(self.random.word() as u32 | 0xffff_0000);
            let connection = Connection::accept(self.now, &self.configs[1], first, &segment);
            self.ends[1] = Some(End::new(connection, self.accept_bytes));
            self.with(1, |end, now, out| {
                end.connection.transmit(now, &mut |s| out.push(s));
                Events::empty()
            });
            return;
        }
        self.with(side, |end, now, out| {
            if let Some(waiting) = &mut end.waiting {
                match waiting.on_segment(now, &segment) {
                    Verdict::Answer(answer) => out.push(answer),
                    Verdict::Ended | Verdict::Ignore => {}
                    Verdict::Reopen(_) => panic!("nobody sent a new SYN"),
                }
                return Events::empty();
            }
            if end.connection.state() == State::Closed {
                out.extend(segment.refusal());
                return Events::empty();
            }
            end.connection.on_segment(now, segment, &mut |s| out.push(s))
        });
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Nanos> {
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let timers = self.ends.iter().flatten().filter_map(|end| end.connection.next_deadline());
        let pauses = self.ends.iter().flatten().filter(|end| !end.reads).map(|end| end.resumes);
        timers.chain(arrival).chain(pauses).min()
    }

    /// Does what is due next. False if nothing ever is.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        self.now = self.now.max(next);
        if let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (side, segment) = entry.remove();
            self.arrive(side, segment);
        }
        for side in 0..2 {
            let due = self.ends[side].as_ref().and_then(|end| end.connection.next_deadline());
            if due.is_some_and(|due| due <= self.now) {
                self.with(side, |end, now, out| end.connection.on_timer(now, &mut |s| out.push(s)));
            }
        }
        true
    }

    /// Lets the program of an end read and write what it can, and close when it is done.
    pub fn program(&mut self, side: usize) {
        self.with(side, |end, now, out| {
            let out = &mut |s| out.push(s);
            if end.closed.is_some() {
                return Events::empty();
            }
            end.reads |= now >= end.resumes;
            let mut count = 0;
            while end.reads {
                let mut pieces = Pieces::new();
                let taken = end.connection.take(end.chunk, &mut pieces).unwrap();
                if taken == 0 {
                    break;
                }
                for byte in text(&pieces) {
                    assert_eq!(byte, pattern(end.got), "at {}", end.got);
                    end.got += 1;
                }
                count += taken;
            }
            end.connection.after_read(now, count, out);
            let open = matches!(end.connection.state(), State::Established | State::CloseWait);
            let mut wrote = false;
            while open && end.given < end.to_send && end.connection.send_room() > 0 {
                let room = end.connection.send_room().min(end.chunk) as u64;
                let length = room.min(end.to_send - end.given);
                let bytes: Vec<u8> = (end.given..end.given + length).map(pattern).collect();
                for part in bytes.chunks(4096) {
                    end.connection.send(Piece::new(part)).unwrap();
                }
                end.given += length;
                wrote = true;
            }
            if wrote {
                end.connection.transmit(now, out);
            }
            if open && end.given == end.to_send && !end.shut {
                end.shut = true;
                end.connection.shutdown_write(now, out).unwrap();
            }
            Events::empty()
        });
    }
}
