//! A small language for tests in the spirit of packetdrill: one line per step.
//!
//! ```text
//! connect | listen              begins; listen takes the next `<` with S
//! < S. 0:0 ack 1 win 1000 mss 1460 wscale 7 sackok ts 5 6 sack 11-21,31-41 urg 3
//!                               a segment from the peer; numbers count from the first ones
//! > P. 1:101 ack 1 win 100 ...  the next segment that we sent has all this
//! quiet                         nothing else was sent
//! +200                          200 milliseconds pass
//! write N | oob N | read N | peek N | shutdown | close | abort | transmit | ack
//! nodelay on | cork on | more on | inline on | sndbuf N | rcvbuf N | keepalive I V C | patience N
//! mss N                         the path's MTU less 40
//! below N                       the device has N bytes that it has not sent
//! waits N | no wait             what is held back for that, and its bound
//! pressure none | shared | exhausted | room N
//!                               how scarce the memory of all is; what the send buffer takes
//! unreachable SEQ               a router answers to our number SEQ
//! state Established | error Reset | no error | event URGENT | available N | end | mark | no mark
//! urgent B | no urgent          what recv(MSG_OOB) gives
//! deadline N | no deadline      the next deadline in milliseconds from now
//! ```

use std::collections::VecDeque;

use hayate_tcp::{
    Config, Connection, Error, Events, Flags, Keepalive, MILLISECOND, Nanos, Pieces, Pressure,
    SECOND, Segment, Seq,
};

use super::{Piece, pattern, text};

const OURS: Seq = Seq(0xffff_ff00);
const THEIRS: Seq = Seq(0x7fff_fff0);

pub struct Script {
    pub now: Nanos,
    pub config: Config,
    connection: Option<Connection<Piece>>,
    listening: bool,
    out: VecDeque<Segment<Piece>>,
    events: Events,
    written: u64,
    read: u64,
}

/// Runs `script` with the given configuration.
pub fn run(config: Config, script: &str) {
    let mut run = Script {
        now: 100 * SECOND,
        config,
        connection: None,
        listening: false,
        out: VecDeque::new(),
        events: Events::empty(),
        written: 0,
        read: 0,
    };
    for (number, line) in script.lines().enumerate() {
        let line = line.split('#').next().unwrap().trim();
        if line.is_empty() {
            continue;
        }
        if let Err(error) = run.step(line) {
            let info = run.connection.as_ref().map(Connection::info);
            panic!("line {}: `{line}`: {error}\n{info:#?}", number + 1);
        }
    }
}

/// Runs `script` with options switched off, so that its segments are short to write.
pub fn plain(script: &str) {
    run(bare(), script);
}

pub fn bare() -> Config {
    Config { timestamps: false, sack: false, window_scaling: false, ..Config::default() }
}

type Step = Result<(), String>;

fn number<T: std::str::FromStr>(word: Option<&str>) -> Result<T, String> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("a number, not {word:?}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, must: T) -> Step {
    if is == must { Ok(()) } else { Err(format!("{what} is {is:?}")) }
}

fn pair(word: Option<&str>, by: char) -> Result<(u32, u32), String> {
    let (from, to) = word.and_then(|w| w.split_once(by)).ok_or("a range")?;
    Ok((number(Some(from))?, number(Some(to))?))
}

impl Script {
    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut Connection<Piece>, Nanos, &mut dyn FnMut(Segment<Piece>)) -> T,
    ) -> Result<T, String> {
        let connection = self.connection.as_mut().ok_or("no connection")?;
        let out = &mut self.out;
        Ok(act(connection, self.now, &mut |segment| out.push_back(segment)))
    }

    fn on(&mut self, events: Events) {
        self.events |= events;
    }

    fn pass(&mut self, time: Nanos) -> Step {
        let end = self.now + time;
        for _ in 0..10_000 {
            let due = self.connection.as_ref().and_then(Connection::next_deadline);
            match due {
                Some(due) if due <= end => {
                    self.now = self.now.max(due);
                    let events = self.with(|c, now, out| c.on_timer(now, &mut |s| out(s)))?;
                    self.on(events);
                }
                _ => {
                    self.now = end;
                    return Ok(());
                }
            }
        }
        Err("timers without end".into())
    }

    fn flags(word: &str) -> (Flags, bool) {
        let mut flags = Flags::empty();
        for (letter, flag) in [
            ('S', Flags::SYN),
            ('F', Flags::FIN),
            ('R', Flags::RST),
            ('P', Flags::PSH),
            ('U', Flags::URG),
        ] {
            flags.set(flag, word.contains(letter));
        }
        (flags, word.contains('.'))
    }

    /// Parses a segment; the flags tell which of its parts were named.
    fn segment<'a>(
        &self,
        mut words: impl Iterator<Item = &'a str>,
        (from, to): (Seq, Seq),
    ) -> Result<(Segment<Piece>, Vec<String>), String> {
        let (flags, acked) = Script::flags(words.next().ok_or("flags")?);
        let (start, end) = pair(words.next(), ':')?;
        let mut segment = Segment::new(from + start, acked.then_some(to), flags);
        let data: Vec<u8> = (start..end).map(|at| pattern(u64::from(at.wrapping_sub(1)))).collect();
        if !data.is_empty() {
            segment.payload.push(Piece::new(&data));
        }
        let mut named = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "ack" => segment.ack = Some(to + number::<u32>(words.next())?),
                "win" => segment.window = number(words.next())?,
                "mss" => segment.options.mss = Some(number(words.next())?),
                "wscale" => segment.options.window_scale = Some(number(words.next())?),
                "sackok" => segment.options.sack_permitted = true,
                "urg" => segment.urgent = number(words.next())?,
                "ts" => {
                    segment.options.timestamp =
                        Some((number(words.next())?, number(words.next())?));
                }
                "sack" => {
                    for range in words.next().ok_or("ranges")?.split(',') {
                        let (low, high) = pair(Some(range), '-')?;
                        segment.options.sack.push((to + low, to + high));
                    }
                }
                _ => return Err(format!("unknown word {word}")),
            }
            named.push(word.to_string());
        }
        Ok((segment, named))
    }

    fn incoming<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Step {
        let (segment, _) = self.segment(words, (THEIRS, OURS))?;
        if self.listening && self.connection.is_none() {
            let connection = Connection::accept(self.now, &self.config, OURS, &segment);
            self.connection = Some(connection);
            return self.with(|c, now, out| c.transmit(now, &mut |s| out(s)));
        }
        let events = self.with(|c, now, out| c.on_segment(now, segment, &mut |s| out(s)))?;
        self.on(events);
        Ok(())
    }

    fn outgoing<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Step {
        let (must, named) = self.segment(words, (OURS, THEIRS))?;
        let is = self.out.pop_front().ok_or("nothing was sent")?;
        let show = |segment: &Segment<Piece>| {
            let seq = segment.seq.distance(OURS);
            let end = i64::from(seq) + segment.payload_len() as i64;
            let ack = segment.ack.map(|ack| ack.distance(THEIRS));
            let sack: Vec<_> = segment
                .options
                .sack
                .iter()
                .map(|(a, b)| (a.distance(THEIRS), b.distance(THEIRS)))
                .collect();
            format!(
                "{:?} {seq}:{end} ack {ack:?} win {} urg {} {:?} sack {sack:?}",
                segment.flags, segment.window, segment.urgent, segment.options
            )
        };
        let mut wrong = is.seq != must.seq
            || is.flags != must.flags
            || is.ack.is_some() != must.ack.is_some()
            || text(&is.payload) != text(&must.payload);
        for name in named {
            wrong |= match name.as_str() {
                "ack" => is.ack != must.ack,
                "win" => is.window != must.window,
                "mss" => is.options.mss != must.options.mss,
                "wscale" => is.options.window_scale != must.options.window_scale,
                "sackok" => !is.options.sack_permitted,
                "urg" => is.urgent != must.urgent,
                "ts" => is.options.timestamp != must.options.timestamp,
                _ => is.options.sack != must.options.sack,
            };
        }
        if must.options.sack.is_empty() {
            wrong |= !is.options.sack.is_empty();
        }
        if wrong { Err(format!("sent was {}", show(&is))) } else { Ok(()) }
    }

    fn write(&mut self, count: u64) -> Step {
        let bytes: Vec<u8> = (self.written..self.written + count).map(pattern).collect();
        self.written += count;
        for part in bytes.chunks(4096) {
            let piece = Piece::new(part);
            self.with(|c, _, _| c.send(piece))?.map_err(|error| format!("{error:?}"))?;
        }
        Ok(())
    }

    fn read(&mut self, count: usize, keep: bool) -> Step {
        let mut pieces = Pieces::new();
        let got = self.with(|c, now, out| {
            let got = if keep {
                c.peek(0, count, &mut pieces).unwrap()
            } else {
                c.take(count, &mut pieces).unwrap()
            };
            if !keep {
                c.after_read(now, got, &mut |s| out(s));
            }
            got
        })?;
        same("the number of bytes", got, count)?;
        let bytes = text(&pieces);
        same("the number in pieces", bytes.len(), count)?;
        if let Some(mark) = self.skipped(&bytes) {
            return Err(format!("byte {mark} is wrong"));
        }
        if !keep {
            self.read += count as u64;
        }
        Ok(())
    }

    fn skipped(&mut self, bytes: &[u8]) -> Option<usize> {
        let right = |from: u64| {
            bytes.iter().enumerate().all(|(at, byte)| *byte == pattern(from + at as u64))
        };
        if right(self.read) {
            return None;
        }
        // An urgent byte was left out.
        if right(self.read + 1) {
            self.read += 1;
            return None;
        }
        Some(0)
    }

    fn step(&mut self, line: &str) -> Step {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some(time) = first.strip_prefix('+') {
            return self.pass(number::<u64>(Some(time))? * MILLISECOND);
        }
        let on = |word: Option<&str>| word == Some("on");
        match first {
            "<" => self.incoming(words),
            ">" => self.outgoing(words),
            "quiet" => same("the rest", self.out.len(), 0),
            "connect" => {
                self.connection = Some(Connection::connect(self.now, &self.config, OURS));
                self.with(|c, now, out| c.transmit(now, &mut |s| out(s)))
            }
            "listen" => {
                self.listening = true;
                Ok(())
            }
            "write" => {
                self.write(number(words.next())?)?;
                self.with(|c, now, out| c.transmit(now, &mut |s| out(s)))
            }
            "oob" => {
                self.write(number(words.next())?)?;
                self.with(|c, now, out| {
                    c.mark_urgent();
                    c.transmit(now, &mut |s| out(s));
                })
            }
            "read" => self.read(number(words.next())?, false),
            "peek" => self.read(number(words.next())?, true),
            "transmit" => self.with(|c, now, out| c.transmit(now, &mut |s| out(s))),
            "shutdown" => self
                .with(|c, now, out| c.shutdown_write(now, &mut |s| out(s)))?
                .map_err(|error| format!("{error:?}")),
            "close" => self.with(|c, now, out| {
                c.close(now, &mut |s| out(s));
            }),
            "abort" => self.with(|c, now, out| c.abort(now, &mut |s| out(s))),
            "nodelay" => self.with(|c, _, _| c.set_nodelay(on(words.next()))),
            "cork" => self.with(|c, _, _| c.set_cork(on(words.next()))),
            "more" => self.with(|c, _, _| c.set_more(on(words.next()))),
            "inline" => self.with(|c, _, _| c.set_urgent_inline(on(words.next()))),
            "sndbuf" => {
                let limit = number(words.next())?;
                self.with(|c, _, _| c.set_send_limit(limit))
            }
            "rcvbuf" => {
                let limit = number(words.next())?;
                self.with(|c, _, _| c.set_receive_limit(limit))
            }
            "pressure" => {
                let pressure = match words.next() {
                    Some("none") => Pressure::None,
                    Some("shared") => Pressure::Shared,
                    Some("exhausted") => Pressure::Exhausted,
                    _ => return Err("none, shared or exhausted".into()),
                };
                let ends = self.with(|c, _, _| c.set_pressure(pressure))?;
                self.events |= if ends { Events::WRITABLE } else { Events::empty() };
                Ok(())
            }
            "mss" => {
                let mss = number(words.next())?;
                self.with(|c, now, out| c.set_path_mss(now, mss, &mut |s| out(s)))
            }
            "below" => {
                let bytes = number(words.next())?;
                self.with(|c, _, _| c.set_below(bytes))
            }
            "waits" => {
                let bound: usize = number(words.next())?;
                let is = self.with(|c, _, _| c.take_wait())?;
                same("the bound", is, Some(bound))
            }
            "patience" => {
                let time: u64 = number(words.next())?;
                self.with(|c, _, _| c.set_user_timeout(Some(time * MILLISECOND)))
            }
            "keepalive" => {
                let idle = number::<u64>(words.next())? * MILLISECOND;
                let interval = number::<u64>(words.next())? * MILLISECOND;
                let count = number(words.next())?;
                let keepalive = Some(Keepalive { idle, interval, count });
                self.with(|c, now, _| c.set_keepalive(now, keepalive))
            }
            _ => self.look(first, words.next(), words.next()),
        }
    }

    /// Steps that only look.
    fn look(&mut self, first: &str, second: Option<&str>, third: Option<&str>) -> Step {
        let now = self.now;
        match (first, second) {
            ("unreachable", _) => {
                let seq = OURS + number::<u32>(second)?;
                let events = self.with(|c, _, _| c.on_unreachable(seq, Error::HostUnreachable))?;
                self.on(events);
                Ok(())
            }
            ("state", Some(name)) => {
                let state = self.with(|c, _, _| c.state())?;
                same("the state", format!("{state:?}"), name.to_string())
            }
            ("error", Some(name)) => {
                let error = self.with(|c, _, _| c.error())?;
                same("the error", format!("{error:?}"), format!("Some({name})"))
            }
            ("no", Some("error")) => {
                let error = self.with(|c, _, _| c.error())?;
                same("the error", error, None)
            }
            ("event", Some(name)) => {
                let event = Events::from_name(name).ok_or("no such event")?;
                let has = self.events.contains(event);
                self.events.remove(event);
                same("the event", has, true)
            }
            ("no", Some("event")) => {
                let event = third.and_then(Events::from_name).ok_or("no such event")?;
                same("the event", self.events.contains(event), false)
            }
            ("no", Some("wait")) => {
                let bound = self.with(|c, _, _| c.take_wait())?;
                same("the bound", bound, None)
            }
            ("available", _) => {
                let available = self.with(|c, _, _| c.available())?;
                same("what is available", available, number(second)?)
            }
            ("room", _) => {
                let room = self.with(|c, _, _| c.send_room())?;
                same("the room to send", room, number(second)?)
            }
            ("unsent", _) => {
                let unsent = self.with(|c, _, _| c.unsent())?;
                same("what is unsent", unsent, number(second)?)
            }
            ("end", _) => {
                let end = self.with(|c, _, _| c.at_end())?;
                same("the end", end, true)
            }
            ("mark", _) => {
                let mark = self.with(|c, _, _| c.at_mark())?;
                same("the mark", mark, true)
            }
            ("no", Some("mark")) => {
                let mark = self.with(|c, _, _| c.at_mark())?;
                same("the mark", mark, false)
            }
            ("urgent", _) => {
                let at: u64 = number(second)?;
                let byte = self.with(|c, _, _| c.receive_urgent(false))?;
                same("the urgent byte", byte, Ok(pattern(at - 1)))
            }
            ("no", Some("urgent")) => {
                let byte = self.with(|c, _, _| c.receive_urgent(false))?;
                same("there is an urgent byte", byte.is_ok(), false)
            }
            ("deadline", _) => {
                let due = self.with(|c, _, _| c.next_deadline())?;
                let due = due.map(|due| due.saturating_sub(now) / MILLISECOND);
                same("the deadline", due, Some(number(second)?))
            }
            ("no", Some("deadline")) => {
                let due = self.with(|c, _, _| c.next_deadline())?;
                same("the deadline", due, None)
            }
            _ => Err("unknown step".into()),
        }
    }
}
