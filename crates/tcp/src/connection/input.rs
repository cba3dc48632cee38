//! A segment comes in (RFC 9293, 3.10.7).

use super::{CHALLENGE_INTERVAL, Connection};
use crate::receive::Due;
use crate::seq::{self, BASE, FIRST, Position};
use crate::timers::Timers;
use crate::{Bytes, Error, Events, Flags, Nanos, Noted, Pieces, SECOND, Segment, Seq, Sink, State};

/// How long a timestamp of the peer is believed: 24 days (RFC 7323, 5.5; `TCP_PAWS_24DAYS`).
const STAMP_LIFE: Nanos = 24 * 24 * 3600 * SECOND;

impl<B: Bytes> Connection<B> {
    /// Takes a segment of this connection, checksum verified. Answers and data that it permits go
    /// to `out`.
    pub fn on_segment(
        &mut self,
        now: Nanos,
        mut segment: Segment<B>,
        out: &mut impl Sink<B>,
    ) -> Events {
        self.counters.segments_in += segment.count();
        if let Some(events) = self.predict(now, &mut segment, out) {
            return events;
        }
        match self.state {
            State::Closed | State::TimeWait => Events::empty(),
            State::SynSent => self.on_segment_syn_sent(now, segment, out),
            _ => self.on_segment_synchronized(now, segment, out),
        }
    }

    /// Does the same, and keeps `time` with the data that the receive queue takes of it.
    pub fn on_segment_at(
        &mut self,
        now: Nanos,
        segment: Segment<B>,
        time: u64,
        out: &mut impl Sink<B>,
    ) -> Events {
        let length = segment.payload_len() as u64;
        let from = self.receive.position(segment.seq);
        let before = self.receive.queue.end();
        let events = self.on_segment(now, segment, out);
        let receive = &self.receive;
        let came = receive.queue.end();
        // Early data may have been dropped, those of this segment or all.
        self.arrivals.keep(receive.queue.start(), receive.holes.end().unwrap_or(came));
        let (next, end) = (from.max(before), (from + length).min(came));
        if next < end {
            self.arrivals.note(next, end, time);
        } else if let Some((_, end)) = receive.holes.cover(from.max(came)) {
            let (from, to) = (from.max(came), end.min(from + length));
            if from < to {
                self.arrivals.note(from, to, time);
            }
        }
        events
    }

    /// RFC 9293, 3.10.7.3.
    fn on_segment_syn_sent(
        &mut self,
        now: Nanos,
        segment: Segment<B>,
        out: &mut impl Sink<B>,
    ) -> Events {
        let flags = segment.flags;
        if let Some(ack) = segment.ack {
            let at = seq::position(self.send.initial, self.send.una, ack);
            // RFC 7323, 3.2: the echo must be one of ours. A wrong number is an old segment.
            let echo = segment.options.timestamp.map_or(0, |(_, echo)| echo);
            let future = (self.stamps.value(now).wrapping_sub(echo) as i32) < 0;
            if at != FIRST || self.stamps.enabled && echo != 0 && future {
                if !flags.contains(Flags::RST) {
                    out.send(Segment::new(ack, None, Flags::RST));
                }
                return Events::empty();
            }
            if flags.contains(Flags::RST) {
                return self.fail(Error::Refused);
            }
        } else if flags.contains(Flags::RST) {
            return Events::empty();
        }
        if !flags.contains(Flags::SYN) {
            return Events::empty();
        }
        self.take_syn(now, segment.seq, &segment.options, u64::from(segment.window));
        if segment.ack.is_none() {
            // Simultaneous open: the SYN goes again, now with an acknowledgement.
            self.state = State::SynReceived;
            self.recovery.base = now;
            if self.emit(now, BASE, FIRST, out).is_ok() {
                self.send.sent.sent_again(0, now);
            }
            self.arm(now);
            return Events::empty();
        }
        self.establish(now);
        let mut events = Events::CONNECTED | Events::WRITABLE;
        events |= self.on_ack(now, FIRST, &segment, BASE, 0);
        // Data and a FIN in a SYN-ACK are not taken; the peer sends them again.
        self.receive.due = Due::Now;
        self.transmit(now, out);
        self.acknowledge(now, out);
        self.arm(now);
        events
    }

    #[inline(never)]
    fn on_segment_synchronized(
        &mut self,
        now: Nanos,
        mut segment: Segment<B>,
        out: &mut impl Sink<B>,
    ) -> Events {
        let length = segment.payload_len() as u64;
        let seq = self.receive.position(segment.seq);
        let end = seq + length + u64::from(segment.flags.contains(Flags::FIN));
        if let Err(events) = self.check(now, &segment, seq, end, out) {
            return events;
        }
        let Some(ack) = segment.ack else { return Events::empty() };
        let ack = seq::position(self.send.initial, self.send.una, ack);
        self.keep_stamp(now, &segment, seq);
        let mut events = Events::empty();
        if self.state == State::SynReceived {
            if ack != FIRST || self.send.next != FIRST {
                out.send(Segment::new(self.send.wire(ack), None, Flags::RST));
                return events;
            }
            self.establish(now);
            events |= Events::CONNECTED | Events::WRITABLE;
        }
        if ack > self.send.next || ack + self.send.largest.max(1 << 16) < self.send.una {
            // RFC 5961, 5.2.
            self.challenge(now, out);
            return events;
        }
        self.receive.heard_at = now;
        self.recovery.keepalives = 0;
        if ack >= self.send.una {
            events |= self.on_ack(now, ack, &segment, seq, length);
            if self.send.fin {
                events |= self.on_fin_acknowledged(now);
                if self.state == State::Closed {
                    return events;
                }
            }
        }
        if segment.flags.contains(Flags::URG) {
            events |= self.on_urgent(seq, segment.urgent);
        }
        if end > seq {
            let payload = core::mem::take(&mut segment.payload);
            events |= self.on_data(now, seq, end, length, &segment, payload, out);
        }
        if self.state == State::Closed {
            return events;
        }
        events | self.answer(now, out)
    }

    /// Sends what a segment permits and asks for, once it is taken.
    #[inline]
    fn answer(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        if self.send.sent.pending > 0 || self.send.unsent() {
            self.transmit(now, out);
        } else {
            self.arm(now);
        }
        self.acknowledge(now, out);
        if self.state != State::TimeWait {
            return Events::empty();
        }
        self.timers = Timers::new();
        Events::TIME_WAIT
    }

    /// Keeps the peer's timestamp, for the echo, if it is the newest of a segment that reaches back
    /// to our last acknowledgement (RFC 7323, 4.3).
    #[inline]
    fn keep_stamp(&mut self, now: Nanos, segment: &Segment<B>, seq: Position) {
        if let Some((value, _)) = segment.options.timestamp
            && self.stamps.enabled
            && seq <= self.receive.acked
            && (value.wrapping_sub(self.stamps.recent) as i32) >= 0
        {
            (self.stamps.recent, self.stamps.recent_at) = (value, now);
        }
    }

    /// Lets a segment pass that is next or otherwise acceptable. The error is how the connection
    /// changed when the segment was answered instead.
    #[inline]
    fn check(
        &mut self,
        now: Nanos,
        segment: &Segment<B>,
        seq: Position,
        end: Position,
        out: &mut impl Sink<B>,
    ) -> Result<(), Events> {
        let rare = Flags::RST | Flags::SYN | Flags::URG;
        if seq != self.receive.next || segment.flags.intersects(rare) || end > self.receive.edge {
            return self.is_acceptable(now, segment, seq, end, out);
        }
        if self.is_too_old(now, segment) {
            return Err(self.reject(now, segment, seq, end, out));
        }
        Ok(())
    }

    /// RFC 7323, 5.3 (PAWS). A segment without a timestamp passes, as in Linux.
    #[inline]
    fn is_too_old(&self, now: Nanos, segment: &Segment<B>) -> bool {
        let stamps = &self.stamps;
        match segment.options.timestamp {
            Some((value, _)) if stamps.enabled => {
                (value.wrapping_sub(stamps.recent) as i32) < 0
                    && now.saturating_sub(stamps.recent_at) < STAMP_LIFE
            }
            _ => false,
        }
    }

    /// The checks of what is not simply next (RFC 9293, 3.10.7.4, steps 1 to 4; RFC 5961).
    fn is_acceptable(
        &mut self,
        now: Nanos,
        segment: &Segment<B>,
        seq: Position,
        end: Position,
        out: &mut impl Sink<B>,
    ) -> Result<(), Events> {
        let flags = segment.flags;
        let reset = flags.contains(Flags::RST);
        if !reset && self.is_too_old(now, segment) {
            return Err(self.reject(now, segment, seq, end, out));
        }
        if self.state == State::SynReceived && flags.contains(Flags::SYN) && seq == BASE && !reset {
            // The SYN again: so is our answer. A SYN-ACK: both ends began (RFC 9293, 3.5).
            if segment.ack.is_none() {
                if self.may_challenge(now) && self.emit(now, BASE, FIRST, out).is_ok() {
                    self.send.sent.sent_again(0, now);
                }
                return Err(Events::empty());
            }
            return Ok(());
        }
        let window = self.receive.edge.max(self.receive.next);
        if end < self.receive.acked || seq > window {
            if reset {
                return Err(Events::empty());
            }
            return Err(self.reject(now, segment, seq, end, out));
        }
        if reset {
            // RFC 5961, 3.2: exactly the next number, or (Linux) the end of what is selectively
            // acknowledged.
            let exact = seq == self.receive.next || self.receive.holes.end() == Some(seq);
            if exact {
                return Err(self.on_reset());
            }
            self.challenge(now, out);
            return Err(Events::empty());
        }
        if flags.contains(Flags::SYN) {
            // RFC 5961, 4.2.
            self.challenge(now, out);
            return Err(Events::empty());
        }
        Ok(())
    }

    /// Answers a segment outside the window. Only those that carry data are answered each time: an
    /// answer to another could begin a war of acknowledgements (Linux: `tcp_oow_rate_limited`).
    #[cold]
    fn reject(
        &mut self,
        now: Nanos,
        segment: &Segment<B>,
        seq: Position,
        end: Position,
        out: &mut impl Sink<B>,
    ) -> Events {
        if segment.flags.contains(Flags::RST) {
            return Events::empty();
        }
        if segment.payload.is_empty() || segment.flags.contains(Flags::SYN) {
            self.challenge(now, out);
        } else {
            self.note_duplicate(seq, end);
            self.send_ack(now, out);
        }
        Events::empty()
    }

    fn may_challenge(&mut self, now: Nanos) -> bool {
        if self.challenged_at != 0 && now < self.challenged_at + CHALLENGE_INTERVAL {
            return false;
        }
        self.challenged_at = now.max(1);
        true
    }

    /// An acknowledgement that lets an honest peer find out (RFC 5961), at a bounded rate.
    fn challenge(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        if self.may_challenge(now) {
            self.counters.challenges += 1;
            out.note(Noted::Challenge);
            self.send_ack(now, out);
        }
    }

    /// Reports a range that arrived twice (RFC 2883).
    fn note_duplicate(&mut self, from: Position, to: Position) {
        if self.sack && from < to && to <= self.receive.edge {
            self.receive.duplicate = Some((from, to));
        }
    }

    fn on_reset(&mut self) -> Events {
        let error = match self.state {
            // A connection that both ends began, or one that nobody has accepted yet.
            State::SynReceived => Error::Refused,
            State::CloseWait => Error::Pipe,
            _ => Error::Reset,
        };
        self.fail(error)
    }

    fn on_urgent(&mut self, seq: Position, pointer: u16) -> Events {
        let open = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if pointer > 0 && open && self.receive.set_mark(seq + u64::from(pointer)) {
            return Events::URGENT;
        }
        Events::empty()
    }

    /// Data or a FIN.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn on_data(
        &mut self,
        now: Nanos,
        seq: Position,
        end: Position,
        length: u64,
        segment: &Segment<B>,
        payload: Pieces<B>,
        out: &mut impl Sink<B>,
    ) -> Events {
        let open = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if !open {
            // Behind the FIN there is nothing new: data from before it came again.
            if end <= self.receive.next && end > seq {
                self.note_duplicate(seq, end);
                self.receive.due = Due::Now;
            }
            return Events::empty();
        }
        if self.orphan && length > 0 && seq + length > self.receive.next {
            // RFC 2525, 2.17; Linux: LINUX_MIB_TCPABORTONDATA.
            self.send_reset(now, out);
            return self.finish_quietly();
        }
        let fin = segment.flags.contains(Flags::FIN);
        if fin && self.receive.fin.is_none() && end <= self.receive.edge + 1 {
            // A FIN before data that have arrived is a lie.
            let least = self.receive.holes.end().unwrap_or(0).max(self.receive.next);
            self.receive.fin = (end > least).then_some(end - 1);
        }
        let mut events = Events::empty();
        if length > 0 {
            let unit = if segment.cut_at == 0 { length } else { length.min(segment.cut_at.into()) };
            self.counters.data_segments_in += length.div_ceil(unit);
            let before = self.receive.next;
            self.queue_data(now, seq, seq + length, unit as u32, payload);
            if self.receive.next > before {
                self.counters.bytes_received += self.receive.next - before;
                self.receive.pushed |= segment.flags.contains(Flags::PSH);
                events |= Events::READABLE;
                if self.receive.fetch_mark() {
                    events |= Events::URGENT;
                }
            }
        }
        if self.receive.fin == Some(self.receive.next) {
            events |= self.on_fin();
        } else if fin && end <= self.receive.next {
            self.receive.due = Due::Now;
        }
        events
    }

    /// Puts data where they belong. `unit`: bytes of data of each segment on the wire.
    #[inline]
    fn queue_data(
        &mut self,
        now: Nanos,
        seq: Position,
        end: Position,
        unit: u32,
        payload: Pieces<B>,
    ) {
        let receive = &mut self.receive;
        let last = receive.fin.unwrap_or(Position::MAX).min(receive.edge);
        let cost = payload.iter().map(Bytes::cost).sum();
        if seq == receive.next && end <= last && receive.admit(cost, true) {
            receive.observe(now, unit, self.rtt.timeout);
            let early = !receive.holes.is_empty();
            if receive.deliver(payload).is_err() || early {
                receive.due = Due::Now;
            } else if let Some(delay) = receive.schedule(self.rtt.smoothed) {
                self.delay_ack(now, delay);
            }
            return;
        }
        self.queue_odd_data(now, seq, end, last, payload);
    }

    /// Data that begin before or behind what is expected, or end behind the window.
    #[cold]
    fn queue_odd_data(
        &mut self,
        now: Nanos,
        seq: Position,
        end: Position,
        last: Position,
        payload: Pieces<B>,
    ) {
        self.receive.due = Due::Now;
        let next = self.receive.next;
        if seq < next {
            self.note_duplicate(seq, end.min(next));
        }
        let (from, to) = (seq.max(next), end.min(last));
        if from >= to {
            return;
        }
        let payload = if (from, to) == (seq, end) {
            payload
        } else {
            match cut(payload, seq, from, to) {
                Some(payload) => payload,
                None => return,
            }
        };
        let cost = payload.iter().map(Bytes::cost).sum();
        let receive = &mut self.receive;
        if !receive.admit(cost, from == next) {
            self.counters.dropped += 1;
            return;
        }
        if from == next {
            receive.observe(now, (to - from) as u32, self.rtt.timeout);
            let _ = receive.deliver(payload);
            return;
        }
        self.counters.out_of_order += 1;
        if let Ok(Some((from, to))) = receive.holes.insert(from, payload) {
            self.note_duplicate(from, to);
        }
    }

    /// The peer's FIN is next (RFC 9293, 3.10.7.4, step 8).
    fn on_fin(&mut self) -> Events {
        self.receive.next += 1;
        self.receive.edge = self.receive.edge.max(self.receive.next);
        self.receive.holes.clear();
        self.receive.due = Due::Now;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.state = State::TimeWait,
            _ => {}
        }
        Events::PEER_CLOSED | Events::READABLE
    }

    /// Moves on if our FIN is acknowledged (step 5).
    fn on_fin_acknowledged(&mut self, now: Nanos) -> Events {
        if !self.send.fin_acknowledged() {
            return Events::empty();
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.start_linger(now);
                Events::empty()
            }
            State::Closing => {
                self.state = State::TimeWait;
                Events::empty()
            }
            State::LastAck => self.finish_quietly() | Events::DRAINED,
            _ => Events::empty(),
        }
    }

    /// A router reports that a segment with number `seq` could not be delivered (RFC 5461; Linux:
    /// `tcp_v4_err`). Before the handshake is done, it ends the attempt; later the error is told if
    /// the connection times out.
    pub fn on_unreachable(&mut self, seq: Seq, error: Error) -> Events {
        if !self.in_flight(seq) {
            return Events::empty();
        }
        match self.state {
            State::SynSent | State::SynReceived => self.fail(error),
            State::Closed | State::TimeWait => Events::empty(),
            _ => {
                self.soft_error = Some(error);
                Events::empty()
            }
        }
    }
}

/// The part `from..to` of pieces that begin at `start`.
fn cut<B: Bytes>(
    pieces: Pieces<B>,
    start: Position,
    from: Position,
    to: Position,
) -> Option<Pieces<B>> {
    let mut result = Pieces::new();
    result.try_reserve(pieces.len()).ok()?;
    let mut at = start;
    for piece in pieces {
        let end = at + piece.len() as u64;
        if end > from && at < to {
            let low = (from.max(at) - at) as usize;
            let high = (to.min(end) - at) as usize;
            result.push(piece.slice(low, high));
        }
        at = end;
    }
    Some(result)
}
