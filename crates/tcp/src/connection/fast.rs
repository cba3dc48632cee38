//! The usual segment (Van Jacobson's header prediction; Linux: `tcp_rcv_established`): the next
//! data in one piece, or an acknowledgement of all of the one segment in flight, or both, while
//! nothing is lost, missing, urgent or ending. It is a short form of `input` and `acknowledge`,
//! with most of their questions answered by "no" at once. Any other segment goes there, untouched.

use super::{Connection, Phase};
use crate::receive::Due;
use crate::seq::Position;
use crate::timers::{NEVER, TimerPurpose};
use crate::{Bytes, Events, Flags, Nanos, Segment, Sink, State, options};

/// The facts of a segment that may be a usual one.
struct Usual {
    /// Bytes of data that it brings.
    length: u64,
    /// Bytes of ours that it acknowledges.
    acked: u64,
    /// The window that it announces.
    window: u64,
    /// The peer's timestamp, if the two use them.
    stamp: Option<u32>,
}

impl<B: Bytes> Connection<B> {
    /// Takes a usual segment; `None` if it is not, and then nothing has changed.
    #[inline(always)]
    pub(super) fn predict(
        &mut self,
        now: Nanos,
        segment: &mut Segment<B>,
        out: &mut impl Sink<B>,
    ) -> Option<Events> {
        let usual = self.examine(segment)?;
        let mut events = Events::empty();
        let sequence = self.receive.next;
        if usual.acked > 0 {
            events |= self.take_acknowledgement(now, usual.acked)?;
        }
        self.note_peer(now, sequence, &usual);
        if usual.length > 0 {
            let push = segment.flags.contains(Flags::PSH);
            self.take_piece(now, segment.payload.pop()?, usual.length, push);
            events |= Events::READABLE;
        }
        if self.send.unsent() {
            self.transmit(now, out);
        } else if self.send.sent.is_empty() {
            self.timers.send = NEVER;
        } else if usual.acked > 0 {
            self.arm(now);
        }
        if self.receive.due == Due::Now {
            self.send_ack(now, out);
        }
        Some(events)
    }

    /// Returns the facts of a segment if it is a usual one, as far as they show it: an
    /// acknowledgement may still be of more than the one segment in flight.
    #[inline(always)]
    fn examine(&mut self, segment: &Segment<B>) -> Option<Usual> {
        let ack = segment.ack?;
        let (send, receive) = (&self.send, &self.receive);
        let usual = self.state == State::Established
            && (segment.flags | Flags::PSH) == Flags::PSH
            && segment.seq == receive.wire(receive.next)
            && segment.options.sack.is_empty()
            && segment.cut_at == 0
            && receive.is_simple()
            && self.recovery.phase == Phase::Open;
        if !usual {
            return None;
        }
        let stamp = match segment.options.timestamp {
            Some((value, _)) if self.stamps.enabled => {
                if (value.wrapping_sub(self.stamps.recent) as i32) < 0 {
                    return None;
                }
                Some(value)
            }
            _ if self.stamps.enabled => return None,
            _ => None,
        };
        let length = match segment.payload.as_slice() {
            [] => 0,
            [piece] => piece.len() as u64,
            _ => return None,
        };
        let acked = u64::from(ack.distance(send.wire(send.una)) as u32);
        if acked > send.flight() || length == 0 && acked == 0 {
            return None;
        }
        if length > 0 && !self.receive.fits(length, segment.payload.first()?.cost()) {
            return None;
        }
        let window = u64::from(segment.window) << self.send.shift;
        if acked == 0 && self.send.una + window < self.send.edge {
            return None;
        }
        Some(Usual { length, acked, window, stamp })
    }

    /// Takes the acknowledgement of all of the one segment in flight; `None` if it is another, and
    /// then nothing has changed.
    #[inline(always)]
    fn take_acknowledgement(&mut self, now: Nanos, acked: u64) -> Option<Events> {
        if self.recovery.probe.is_some() || self.recovery.undo.is_some() {
            return None;
        }
        let una = self.send.una + acked;
        let sent_at = self.send.sent.take_only(una, now)?;
        let room = self.send.room();
        self.send.una = una;
        self.send.queue.advance(una);
        if self.send.urgent.is_some_and(|urgent| urgent <= una) {
            self.send.urgent = None;
        }
        self.counters.bytes_acknowledged += acked;
        self.recovery.timeouts = 0;
        self.recovery.backoff = 0;
        self.recovery.duplicates = 0;
        self.recovery.base = now;
        self.rtt.sample(now, now.saturating_sub(sent_at));
        if self.congestion.limited || self.congestion.window < 2 * acked {
            self.congestion.on_ack(now, acked, acked, self.rtt.smoothed);
        }
        Some(self.freed(room))
    }

    /// Notes that the peer lives, its window and its timestamp, from a segment that begins at
    /// `sequence`.
    #[inline(always)]
    fn note_peer(&mut self, now: Nanos, sequence: Position, usual: &Usual) {
        self.recovery.probes = 0;
        self.recovery.keepalives = 0;
        self.receive.heard_at = now;
        self.send.edge = self.send.una + usual.window;
        self.send.updated = sequence;
        if usual.window > self.send.largest {
            self.send.largest = usual.window;
        }
        self.recovery.probe_backoff = 0;
        if let Some(value) = usual.stamp
            && sequence <= self.receive.acked
        {
            (self.stamps.recent, self.stamps.recent_at) = (value, now);
        }
    }

    /// Takes the next piece of data, for which [`Connection::examine`] found room.
    #[inline(always)]
    fn take_piece(&mut self, now: Nanos, piece: B, length: u64, push: bool) {
        self.counters.data_segments_in += 1;
        self.counters.bytes_received += length;
        self.receive.observe(now, length as u32, self.rtt.timeout);
        self.receive.append(piece, length);
        self.receive.pushed |= push;
        if let Some(delay) = self.receive.schedule(self.rtt.smoothed) {
            self.delay_ack(now, delay);
        }
    }

    /// Sends the one small piece that waits while nothing is in flight; false if it is not so, and
    /// then nothing has changed.
    #[inline(always)]
    pub(super) fn send_single(&mut self, now: Nanos, out: &mut impl Sink<B>) -> bool {
        let (send, receive) = (&mut self.send, &mut self.receive);
        let (start, end) = (send.next, send.queue.end());
        let length = end.saturating_sub(start);
        let usual = self.state == State::Established
            && length > 0
            && send.sent.is_empty()
            && receive.holes.is_empty()
            && receive.duplicate.is_none()
            && !(send.cork || send.more || send.fin)
            && send.urgent.is_none()
            && self.recovery.phase == Phase::Open
            && end <= send.edge
            && length + options::TIMESTAMP as u64 <= u64::from(send.mss)
            && 2 * length <= send.largest
            && now.saturating_sub(send.last_at) <= self.rtt.timeout;
        if !usual || !send.sent.reserve() {
            return false;
        }
        let Some(piece) = send.queue.only(start) else { return false };
        let mut segment =
            Segment::new(send.wire(start), Some(receive.wire(receive.next)), Flags::PSH);
        segment.payload.push(piece);
        if self.stamps.enabled {
            segment.options.timestamp = Some((self.stamps.value(now), self.stamps.recent));
        }
        segment.window = receive.offer();
        receive.acknowledged();
        receive.answered(now);
        send.sent.push(start, end, now);
        (send.next, send.small, send.last_at) = (end, end, now);
        self.recovery.base = now;
        self.timers.acknowledge = NEVER;
        self.timers.purpose = TimerPurpose::Timeout;
        self.timers.send = now + self.rtt.backed_off(self.recovery.backoff);
        self.counters.data_segments_out += 1;
        self.counters.segments_out += 1;
        self.counters.bytes_sent += length;
        out.send(segment);
        true
    }
}
