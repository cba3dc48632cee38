//! The receiving half: queue, window, when to acknowledge, how the buffer grows, the urgent mark.
//!
//! # Memory
//!
//! Data wait in order in `queue` and out of order in `holes`. The window counts bytes, and is
//! smaller when pieces cost much more than they show: a peer that sends single bytes fills memory
//! 4096 times as fast. Beyond [`MEMORY`] times the limit, pieces are joined where the memory's
//! owner can do so ([`Bytes::extend`]), then what is out of order is dropped, then segments are.
//! When the memory of all connections is scarce ([`Pressure`]), the same is done much earlier.

use crate::assembly::Assembly;
use crate::config::Config;
use crate::queue::Queue;
use crate::seq::{self, BASE, Position};
use crate::{Bytes, MILLISECOND, Nanos, Pieces, Pressure, Seq};

/// Bytes of memory for a byte of the limit: a page that shows a packet of 1460 costs 2.8.
const MEMORY: usize = 4;
/// Memory that a queue may hold whatever its limit is.
const MEMORY_LEAST: usize = 256 << 10;
/// Memory that a queue may hold when that of all connections is scarce; and whatever its cost, one
/// segment.
const MEMORY_SCARCE: usize = 16 << 10;
/// The least delay of an acknowledgement (`TCP_DELACK_MIN`, `TCP_ATO_MIN`).
pub(crate) const DELAY_MIN: Nanos = 40 * MILLISECOND;
/// The most (`TCP_DELACK_MAX`).
const DELAY_MAX: Nanos = 200 * MILLISECOND;
/// Segments acknowledged at once at the beginning (`TCP_MAX_QUICKACKS`).
const QUICK: u8 = 16;

/// How urgently an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Due {
    No,
    Delayed,
    Now,
}

/// The urgent mark (Linux: `urg_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    None,
    /// Known, its byte has not arrived.
    Awaited,
    Byte(u8),
    /// Read with MSG_OOB.
    Read,
}

#[derive(Debug)]
pub(crate) struct Receive<B> {
    /// The number of the peer's SYN (IRS).
    pub initial: Seq,
    /// The next position that is expected (RCV.NXT).
    pub next: Position,
    /// `next` in the last acknowledgement that was sent.
    pub acked: Position,
    /// The right edge of the window that was offered. It never moves back.
    pub edge: Position,
    pub shift: u8,
    pub queue: Queue<B>,
    pub holes: Assembly<B>,
    /// Where the peer's FIN is.
    pub fin: Option<Position>,
    pub limit: usize,
    pub limit_max: usize,
    /// The program reads no more.
    pub shut: bool,
    /// The largest segment that we announced.
    pub mss: u32,
    /// The largest segment seen, at most `mss` (Linux: `rcv_mss`).
    pub segment: u32,
    /// Something that arrived twice, to report (RFC 2883).
    pub duplicate: Option<(Position, Position)>,
    pub mark: Mark,
    pub mark_at: Position,
    pub inline: bool,
    pub due: Due,
    /// Data were refused for want of memory: no window until there is some (Linux:
    /// `ICSK_ACK_NOMEM`).
    starved: bool,
    /// See [`crate::Connection::set_pressure`].
    pub pressure: Pressure,
    quick: u8,
    /// Data are answered by data: acknowledgements ride on those (Linux: pingpong).
    pub interactive: bool,
    /// The last data came with PSH.
    pub pushed: bool,
    delay: Nanos,
    /// When data, and when anything, arrived last.
    pub data_at: Nanos,
    pub heard_at: Nanos,
    copied: u64,
    space: u64,
    measured_at: Nanos,
}

impl<B: Bytes> Receive<B> {
    pub(crate) fn new(config: &Config, now: Nanos) -> Receive<B> {
        let limit = config.receive_limit.max(256);
        Receive {
            initial: Seq(0),
            next: BASE,
            acked: BASE,
            edge: BASE,
            shift: config.window_shift(),
            queue: Queue::new(BASE + 1),
            holes: Assembly::new(),
            fin: None,
            limit,
            limit_max: config.receive_limit_max.max(limit),
            shut: false,
            mss: config.announced_mss().into(),
            segment: u32::from(config.announced_mss()).min(536),
            duplicate: None,
            mark: Mark::None,
            mark_at: 0,
            inline: config.urgent_inline,
            due: Due::No,
            starved: false,
            pressure: Pressure::None,
            quick: 0,
            interactive: false,
            pushed: false,
            delay: 0,
            data_at: now,
            heard_at: now,
            copied: 0,
            space: 0,
            measured_at: now,
        }
    }

    #[inline]
    pub(crate) fn wire(&self, at: Position) -> Seq {
        seq::wire(self.initial, at)
    }

    #[inline]
    pub(crate) fn position(&self, seq: Seq) -> Position {
        seq::position(self.initial, self.next, seq)
    }

    /// Bytes that may still arrive.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        let bytes = self.limit.saturating_sub(self.queue.len());
        let memory = self.memory_limit().saturating_sub(self.queue.cost()) / MEMORY;
        bytes.min(memory) as u64
    }

    fn memory_limit(&self) -> usize {
        (self.limit * MEMORY).max(MEMORY_LEAST)
    }

    /// The peer's SYN was taken.
    pub(crate) fn begin(&mut self, initial: Seq) {
        self.initial = initial;
        (self.next, self.acked) = (BASE + 1, BASE + 1);
        // The window of a SYN is not shifted.
        self.edge = self.next + self.free().min(0xffff);
        self.space = self.limit as u64 / 2;
    }

    /// The window field of the next segment; moves `edge`. RFC 9293, 3.8.6.2.2: by whole segments
    /// or half the buffer, never back.
    #[inline]
    pub(crate) fn offer(&mut self) -> u16 {
        if self.starved && !self.recovered() {
            return 0;
        }
        let candidate = self.next + self.free();
        let grain = u64::from(self.mss).min(self.limit as u64 / 2);
        let grows = candidate >= self.edge + grain;
        let window = if grows { candidate } else { self.edge }.saturating_sub(self.next);
        // Rounded up where rounding down would move the edge back; not when the queue is full, or
        // a trickle of bytes would move the edge on for ever.
        let up = !grows && self.queue.len() < self.limit;
        let part = if up { (1 << self.shift) - 1 } else { 0 };
        let field = (window + part) >> self.shift;
        let field = field.min(0xffff);
        self.edge = self.edge.max(self.next + (field << self.shift));
        field as u16
    }

    /// Memory was refused to data and is there again.
    pub(crate) fn recovered(&mut self) -> bool {
        let enough = match self.pressure {
            Pressure::None => self.queue.cost() <= self.memory_limit(),
            Pressure::Shared => self.queue.cost() <= MEMORY_SCARCE / 2,
            Pressure::Exhausted => false,
        };
        let recovered = self.starved && enough;
        self.starved &= !recovered;
        recovered
    }

    /// True if a program that has read should let the peer know (Linux: `tcp_cleanup_rbuf`).
    #[inline]
    pub(crate) fn window_has_doubled(&self) -> bool {
        let offered = self.edge.saturating_sub(self.next);
        if 2 * offered > self.limit as u64 {
            return false;
        }
        let free = self.free();
        let grain = u64::from(self.mss).min(self.limit as u64 / 2);
        free >= 2 * offered && free >= offered + grain
    }

    /// Data arrived: measures the peer's segments and pace (Linux: `tcp_event_data_recv`).
    #[inline]
    pub(crate) fn observe(&mut self, now: Nanos, length: u32, timeout: Nanos) {
        if length >= self.segment {
            self.segment = length.min(self.mss);
        }
        let silence = now.saturating_sub(self.data_at);
        if self.delay == 0 {
            (self.quick, self.delay) = (QUICK, DELAY_MIN);
        } else if silence <= DELAY_MIN / 2 {
            self.delay = self.delay / 2 + DELAY_MIN / 2;
        } else if silence < self.delay {
            self.delay = (self.delay / 2 + silence).min(timeout);
        } else if silence > timeout {
            self.quick = QUICK;
        }
        self.data_at = now;
    }

    /// Decides how soon data that were just queued are acknowledged (RFC 5681, 4.2). Returns the
    /// delay if there is one.
    #[inline]
    pub(crate) fn schedule(&mut self, smoothed: Nanos) -> Option<Nanos> {
        if self.next - self.acked > u64::from(self.segment)
            || !self.holes.is_empty()
            || (self.quick > 0 && !self.interactive)
        {
            self.due = Due::Now;
            return None;
        }
        if self.due == Due::No {
            self.due = Due::Delayed;
        }
        let most = if smoothed == 0 { DELAY_MAX } else { smoothed.clamp(DELAY_MIN, DELAY_MAX) };
        Some(self.delay.clamp(DELAY_MIN, most))
    }

    /// A segment with an acknowledgement was made.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        if self.due != Due::No {
            self.quick = self.quick.saturating_sub(1);
            self.due = Due::No;
        }
        self.acked = self.next;
    }

    /// Data were sent: do they answer some that arrived (Linux: `tcp_event_data_sent`)?
    #[inline]
    pub(crate) fn answered(&mut self, now: Nanos) {
        if self.delay != 0 && now.saturating_sub(self.data_at) < self.delay {
            self.interactive = true;
        }
    }

    /// A delayed acknowledgement had to go alone (Linux: `tcp_delack_timer_handler`).
    pub(crate) fn delay_expired(&mut self, timeout: Nanos) {
        if self.interactive {
            (self.interactive, self.delay) = (false, DELAY_MIN);
        } else {
            self.delay = (2 * self.delay).min(timeout);
        }
        self.due = Due::Now;
    }

    /// How long an acknowledgement may wait.
    pub(crate) fn delay(&self) -> Nanos {
        self.delay
    }

    /// TCP_QUICKACK.
    pub(crate) fn set_quick(&mut self, quick: bool) {
        self.interactive = !quick;
        if quick && self.due == Due::Delayed {
            self.due = Due::Now;
        }
    }

    /// Makes sure that `cost` more may be kept, by dropping what came early. False: it may not.
    pub(crate) fn admit(&mut self, cost: usize, in_order: bool) -> bool {
        let limit = match self.pressure {
            Pressure::None => self.memory_limit() + MEMORY_LEAST,
            Pressure::Shared => MEMORY_SCARCE,
            Pressure::Exhausted => 0,
        };
        if self.queue.cost() + self.holes.cost() + cost <= limit {
            return true;
        }
        if !in_order {
            return false;
        }
        if !self.holes.is_empty() {
            self.holes.clear();
        }
        let first = self.queue.is_empty() && self.pressure != Pressure::Exhausted;
        self.starved = self.queue.cost() + cost > limit && !first;
        !self.starved
    }

    /// Nothing is missing, urgent, ending, reported or owed.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.holes.is_empty()
            && self.mark == Mark::None
            && self.fin.is_none()
            && self.duplicate.is_none()
            && self.due != Due::Now
    }

    /// One more piece in order may come without a thought, and there is room for it in the list.
    #[inline]
    pub(crate) fn fits(&mut self, length: u64, cost: usize) -> bool {
        self.next + length <= self.edge
            && self.pressure == Pressure::None
            && self.queue.cost() + cost <= self.memory_limit() / 2
            && self.queue.reserve(1).is_ok()
    }

    /// Appends a piece for which [`Receive::fits`] was true.
    #[inline]
    pub(crate) fn append(&mut self, piece: B, length: u64) {
        if self.queue.push(piece).is_ok() {
            self.next += length;
        }
    }

    /// Memory is spent on pieces that show little.
    #[inline]
    pub(crate) fn is_wasteful(&self) -> bool {
        self.queue.cost() > self.memory_limit() / 2
    }

    /// The program has taken `count` bytes: the buffer follows what it takes in a round trip
    /// (Linux: `tcp_rcv_space_adjust`, dynamic right-sizing).
    #[inline]
    pub(crate) fn adjust(&mut self, now: Nanos, count: u64, round: Nanos) {
        self.copied += count;
        if self.limit >= self.limit_max || round == 0 || now - self.measured_at < round {
            return;
        }
        if self.copied > self.space && self.pressure == Pressure::None {
            let base = 2 * self.copied + 16 * u64::from(self.mss);
            let growth = base.saturating_mul(self.copied - self.space) / self.space.max(1);
            let wanted = base.saturating_add(growth.saturating_mul(2)) as usize;
            self.limit = self.limit.max(wanted.min(self.limit_max));
            self.space = self.copied;
        }
        (self.copied, self.measured_at) = (0, now);
    }

    /// The urgent pointer of a segment points behind `pointed` (Linux: `tcp_check_urg`). True if
    /// this mark is new.
    pub(crate) fn set_mark(&mut self, pointed: Position) -> bool {
        let at = pointed.saturating_sub(1);
        if at < self.next || (self.mark != Mark::None && at <= self.mark_at) {
            return false;
        }
        // A mark that was reached and not read: its byte is skipped like all out-of-band bytes.
        if self.mark != Mark::None && !self.inline && self.mark_at == self.queue.start() {
            self.queue.advance(self.mark_at + 1);
        }
        (self.mark, self.mark_at) = (Mark::Awaited, at);
        true
    }

    /// Fetches the byte of the mark, once it is there.
    pub(crate) fn fetch_mark(&mut self) -> bool {
        if self.mark == Mark::Awaited
            && let Some(byte) = self.queue.byte(self.mark_at)
        {
            self.mark = Mark::Byte(byte);
            return true;
        }
        false
    }

    /// Up to where `limit` bytes go from `from` on. Reading stops before the mark and begins behind
    /// it, and the byte of a mark that is not inline is skipped (tcp(7), Linux:
    /// `tcp_recvmsg_locked`).
    pub(crate) fn stretch(&self, from: Position, limit: usize) -> (Position, Position) {
        let end = self.queue.end();
        let mut from = from;
        if self.mark != Mark::None && self.mark_at >= from {
            if self.mark_at > from {
                return (from, end.min(from + limit as u64).min(self.mark_at));
            }
            if !self.inline && from < end {
                from += 1;
            }
        }
        (from, end.min(from + limit as u64))
    }

    /// Drops the mark once it was passed.
    pub(crate) fn pass_mark(&mut self) {
        if self.mark != Mark::None && self.queue.start() > self.mark_at {
            self.mark = Mark::None;
        }
    }

    /// The number for SIOCINQ: bytes up to the mark.
    pub(crate) fn available(&self) -> usize {
        let start = self.queue.start();
        if self.mark == Mark::None
            || self.inline
            || self.mark_at < start
            || self.mark_at >= self.queue.end()
        {
            self.queue.len()
        } else {
            (self.mark_at - start) as usize
        }
    }

    /// Appends data that are next in order, and those that they join.
    pub(crate) fn deliver(&mut self, payload: Pieces<B>) -> Result<(), crate::Error> {
        self.queue.reserve(payload.len())?;
        let wasteful = self.is_wasteful();
        for piece in payload {
            if wasteful {
                self.queue.push_joined(piece)?;
            } else {
                self.queue.push(piece)?;
            }
        }
        if !self.holes.is_empty() {
            self.holes.deliver(&mut self.queue);
        }
        self.next = self.queue.end();
        Ok(())
    }
}
