//! Segments go out.

use super::{Connection, Phase};
use crate::receive::Due;
use crate::seq::{BASE, FIRST, Position};
use crate::timers::NEVER;
use crate::{Bytes, Error, Flags, Nanos, Noted, Options, Segment, Sink, State, options};

/// Segments that may be in flight whatever their size is; beyond it the congestion window counts
/// segments too, so that records of single bytes stay few.
const SMALL_SEGMENTS: u64 = 1024;

impl<B: Bytes> Connection<B> {
    /// Sends as much as the windows permit: lost segments first, then new data. Call it after
    /// [`Connection::connect`], [`Connection::accept`], [`Connection::send`], and when an option
    /// that held data back was switched off.
    pub fn transmit(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        if !self.send_single(now, out) {
            self.transmit_all(now, out);
        }
    }

    #[inline(never)]
    fn transmit_all(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        match self.state {
            State::Closed | State::TimeWait => return,
            State::SynSent | State::SynReceived => {
                if self.send.next == BASE {
                    self.send_syn(now, out);
                }
                return;
            }
            _ => {}
        }
        if self.send.sent.pending > 0 {
            self.retransmit(now, out);
        }
        if self.send.unsent() {
            self.send_new(now, out);
        }
        self.arm(now);
    }

    /// Sends an acknowledgement if one is due now.
    pub fn acknowledge(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        if self.receive.due == Due::Now {
            self.send_ack(now, out);
        }
    }

    fn send_syn(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        self.recovery.stalled_at = now;
        if self.send.sent.reserve() && self.emit(now, BASE, FIRST, out).is_ok() {
            self.send.sent.push(BASE, FIRST, now);
            self.send.next = FIRST;
        }
        self.recovery.base = now;
        self.arm(now);
    }

    /// Bytes in flight as far as is known (RFC 6675: pipe).
    #[inline]
    pub(super) fn pipe(&self) -> u64 {
        let sent = &self.send.sent;
        (self.send.flight() + sent.out)
            .saturating_sub(sent.sacked + sent.lost + self.recovery.emulated)
    }

    /// Sends lost segments again.
    pub(super) fn retransmit(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        let mss = self.payload();
        let limit = self.largest(mss) / mss * mss;
        let burst = self.burst(mss);
        while let Some((index, start, end)) = self.send.sent.next_lost() {
            let room = self.congestion.window.saturating_sub(self.pipe());
            if room < mss.min(end - start) {
                return;
            }
            // A window that has shrunk: only the first segment, which asks for the window.
            if start >= self.send.edge && start != self.send.una {
                return;
            }
            let mut length = (end - start).min(limit);
            if length > room.max(mss) {
                length = room.max(mss) / mss * mss;
            }
            if self.has_bursts() && self.waits_for_device(length, burst) {
                return;
            }
            if !self.send.sent.cut(index, start + length)
                || !self.send_again(now, index, start, start + length, out)
            {
                return;
            }
        }
    }

    /// Sends record `index` again. False if there was no memory.
    pub(super) fn send_again(
        &mut self,
        now: Nanos,
        index: usize,
        start: Position,
        end: Position,
        out: &mut impl Sink<B>,
    ) -> bool {
        if self.emit(now, start, end, out).is_err() {
            return false;
        }
        self.send.sent.sent_again(index, now);
        let segments = (end - start).div_ceil(self.payload()).max(1);
        self.counters.retransmitted += segments;
        self.counters.bytes_retransmitted += end - start;
        let is_slow = self.recovery.phase == Phase::Loss;
        for _ in 0..segments {
            out.note(if is_slow { Noted::SentAgainSlowly } else { Noted::SentAgain });
        }
        if self.recovery.phase == Phase::Fast {
            self.recovery.sent += end - start;
        }
        if self.recovery.undo.is_none() {
            self.recovery.undo = Some(self.stamps.value(now));
        }
        if start == self.send.una {
            self.recovery.base = now;
        }
        true
    }

    /// The largest payload of a segment now.
    #[inline]
    pub(super) fn payload(&self) -> u64 {
        let receive = &self.receive;
        let ranges = !receive.holes.is_empty() || receive.duplicate.is_some();
        let options = match (self.stamps.enabled, ranges) {
            (true, false) => options::TIMESTAMP,
            (false, false) => 0,
            (true, true) => options::MAXIMUM,
            (false, true) => options::MAXIMUM - 4,
        };
        self.send.payload(options)
    }

    /// Sends new data and the FIN.
    #[inline(always)]
    fn send_new(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        if self.send.next > self.send.queue.end() {
            return;
        }
        let mss = self.payload();
        if self.send.sent.is_empty() {
            let idle = now.saturating_sub(self.send.last_at);
            if idle > self.rtt.timeout {
                self.congestion.on_idle(idle, self.rtt.timeout);
            }
        }
        let burst = self.burst(mss);
        while self.send.unsent() {
            let (length, fin) = match self.next_segment(now, mss, burst) {
                Some(next) => next,
                None => break,
            };
            if burst > mss && self.waits_for_device(length, burst) {
                break;
            }
            if !self.send_range(now, length, fin, mss, out) {
                break;
            }
        }
    }

    /// How much the next segment of new data carries, which is at most `burst`, and whether the FIN
    /// goes with it.
    #[inline(always)]
    fn next_segment(&mut self, now: Nanos, mss: u64, burst: u64) -> Option<(u64, bool)> {
        let send = &self.send;
        let unsent = send.queue.end() - send.next;
        let window = send.edge.saturating_sub(send.next);
        if unsent == 0 {
            // The FIN alone: the congestion window does not hold it back.
            return (window > 0).then_some((0, true));
        }
        let least = unsent.min(mss);
        if window < least {
            return None;
        }
        let flight = send.flight();
        let room = self.congestion.window.saturating_sub(self.pipe());
        let many = send.sent.len() as u64;
        if room < least && flight > 0
            || many >= SMALL_SEGMENTS && many >= self.congestion.window / mss
        {
            self.congestion.limited = true;
            return None;
        }
        let mut length = unsent.min(window).min(burst).min(room.max(least));
        if burst > mss && unsent > mss {
            length = self.bound_burst(now, length, (unsent, window, room), (mss, burst))?;
        }
        let send = &self.send;
        let tail = length == unsent;
        if length >= mss && (!tail || !self.may_send_small()) {
            length -= length % mss;
        } else if length < mss && !self.may_send_small() {
            return None;
        }
        Some((length, send.fin && length == unsent && window > length))
    }

    /// True when a segment that is not full may go (Nagle, RFC 1122 4.2.3.4, with Minshall's
    /// change, as Linux: `tcp_nagle_check`).
    #[inline]
    fn may_send_small(&self) -> bool {
        let send = &self.send;
        if send.fin || send.urgent.is_some() {
            return true;
        }
        if send.cork || send.more {
            return false;
        }
        send.nodelay || send.una == send.next || send.small <= send.una
    }

    /// Sends `length` new bytes, and the FIN behind them. False if there was no memory.
    #[inline]
    pub(super) fn send_range(
        &mut self,
        now: Nanos,
        length: u64,
        fin: bool,
        mss: u64,
        out: &mut impl Sink<B>,
    ) -> bool {
        let (start, end) = (self.send.next, self.send.next + length + u64::from(fin));
        if !self.send.sent.reserve() || self.make(now, start, end, out).is_err() {
            return false;
        }
        if self.send.sent.is_empty() {
            self.recovery.base = now;
        }
        self.send.sent.push(start, end, now);
        self.send.next = end;
        if length > 0 {
            if length < mss || !length.is_multiple_of(mss) {
                self.send.small = end;
            }
            self.counters.bytes_sent += length;
            self.receive.answered(now);
        }
        if self.recovery.phase == Phase::Fast {
            self.recovery.sent += length;
        }
        true
    }

    /// Makes a segment of the positions from `start` to before `end`.
    pub(super) fn emit(
        &mut self,
        now: Nanos,
        start: Position,
        end: Position,
        out: &mut impl Sink<B>,
    ) -> Result<(), Error> {
        self.make(now, start, end, out)
    }

    /// The same, as a part of its caller: for new data.
    #[inline(always)]
    fn make(
        &mut self,
        now: Nanos,
        start: Position,
        end: Position,
        out: &mut impl Sink<B>,
    ) -> Result<(), Error> {
        let syn = start == BASE;
        let mut segment = Segment::new(self.send.wire(start), None, Flags::empty());
        if end > FIRST {
            self.send.queue.range(start, end, &mut segment.payload)?;
            if end >= self.send.queue.end() {
                if !segment.payload.is_empty() {
                    segment.flags |= Flags::PSH;
                }
                if self.send.fin && end > self.send.queue.end() {
                    segment.flags |= Flags::FIN;
                }
            }
            if !segment.payload.is_empty() {
                segment.cut_at = self.cut_at(end - start, &segment);
                self.counters.data_segments_out += segment.count();
            }
            if let Some(urgent) = self.send.urgent
                && start < urgent
            {
                segment.flags |= Flags::URG;
                segment.urgent = (urgent - start).min(0xffff) as u16;
            }
        }
        if syn {
            segment.flags |= Flags::SYN;
            segment.options.mss = Some(self.announced_mss);
            segment.options.sack_permitted = self.sack;
            segment.options.window_scale = self.window_scale();
        }
        self.finish(now, segment, out);
        Ok(())
    }

    /// The shift to announce: always in a SYN, in a SYN-ACK only if the peer scales.
    fn window_scale(&self) -> Option<u8> {
        let offered = self.state == State::SynSent || self.peer_scales;
        (self.window_scaling && offered).then_some(self.receive.shift)
    }

    /// Adds what every segment has, and sends it.
    #[inline(always)]
    fn finish(&mut self, now: Nanos, mut segment: Segment<B>, out: &mut impl Sink<B>) {
        if self.stamps.enabled {
            segment.options.timestamp = Some((self.stamps.value(now), self.stamps.recent));
        }
        if self.state != State::SynSent {
            segment.ack = Some(self.receive.wire(self.receive.next));
            if self.sack && (self.receive.duplicate.is_some() || !self.receive.holes.is_empty()) {
                self.add_sack(&mut segment.options);
            }
            self.receive.acknowledged();
            self.timers.acknowledge = NEVER;
        }
        segment.window = if segment.flags.contains(Flags::SYN) {
            self.receive.free().min(0xffff) as u16
        } else {
            self.receive.offer()
        };
        self.send.last_at = now;
        self.counters.segments_out += segment.count();
        out.send(segment);
    }

    /// RFC 2018, 4 and RFC 2883, 4: first what arrived twice, then the newest blocks.
    fn add_sack(&mut self, options: &mut Options) {
        let receive = &mut self.receive;
        let most = if options.timestamp.is_some() { 3 } else { 4 };
        let initial = receive.initial;
        let wire = |at| crate::seq::wire(initial, at);
        if let Some((from, to)) = receive.duplicate.take() {
            options.sack.push((wire(from), wire(to)));
        }
        receive.holes.report(|from, to| {
            if options.sack.len() < most {
                options.sack.push((wire(from), wire(to)));
            }
        });
    }

    /// Sends an acknowledgement without data.
    pub(super) fn send_ack(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        let seq = self.acceptable();
        let segment = Segment::new(seq, None, Flags::empty());
        self.finish(now, segment, out);
    }

    /// A number that the peer accepts: SND.NXT, or the right edge of a window that has shrunk
    /// (Linux: `tcp_acceptable_seq`).
    fn acceptable(&self) -> crate::Seq {
        let send = &self.send;
        send.wire(if send.edge < send.next && send.edge >= send.una {
            send.edge
        } else {
            send.next
        })
    }

    /// Sends an old number, which makes the peer acknowledge (RFC 9293, 3.8.4; Linux:
    /// `tcp_xmit_probe_skb`).
    pub(super) fn send_probe(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        let segment = Segment::new(self.send.wire(self.send.una - 1), None, Flags::empty());
        self.finish(now, segment, out);
    }

    /// Sends a reset that the peer accepts.
    pub(super) fn send_reset(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        let segment = Segment::new(self.acceptable(), None, Flags::RST);
        self.finish(now, segment, out);
    }
}
