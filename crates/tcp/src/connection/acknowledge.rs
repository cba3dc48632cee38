//! An acknowledgement comes in.

use super::{Connection, Phase};
use crate::scoreboard::Sample;
use crate::seq::Position;
use crate::timers::NEVER;
use crate::{Bytes, Events, Flags, MILLISECOND, Nanos, Pressure, Segment};

impl<B: Bytes> Connection<B> {
    /// Takes the acknowledgement of a segment that is acceptable: `ack` is neither above what was
    /// sent nor long gone. `length` is that of the segment's data.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        now: Nanos,
        ack: Position,
        segment: &Segment<B>,
        seq: Position,
        length: u64,
    ) -> Events {
        let mut sample = Sample::default();
        let (una, flight) = (self.send.una, self.send.flight());
        self.recovery.probes = 0;
        let mut duplicate = ack == una && length == 0 && flight > 0;
        let closed = self.send.edge <= una;
        if self.update_window(ack, segment, seq) {
            duplicate = false;
            if closed && ack == una && self.recovery.phase == Phase::Loss {
                // The peer dropped all that was sent into the closed window.
                self.send.sent.lose_all(false);
                (self.recovery.backoff, self.recovery.base) = (0, now);
            }
        }
        let advanced = ack > una;
        let room = self.send.room();
        let times = (self.rtt.least, self.echoed(now, segment));
        if advanced {
            self.advance(now, ack, times, &mut sample);
        }
        if !segment.options.sack.is_empty() && self.sack {
            self.take_sack(now, ack, segment, times, &mut sample);
        }
        if flight == 0 {
            return Events::empty();
        }
        if advanced {
            self.measure(now, segment, &sample);
            if let Some((_, echo)) = segment.options.timestamp
                && self.recovery.undo.is_some()
            {
                self.undo(echo);
            }
        }
        self.recover(now, &sample, flight, advanced, duplicate);
        if self.recovery.probe.is_some() {
            self.settle_probe(sample.duplicate);
        }
        if advanced { self.freed(room) } else { Events::empty() }
    }

    /// The events of a send queue that has become shorter.
    #[inline]
    pub(super) fn freed(&mut self, before: usize) -> Events {
        let send = &mut self.send;
        // The buffer holds two congestion windows (Linux: `tcp_sndbuf_expand`).
        if send.limit < send.limit_max && send.pressure == Pressure::None {
            let wanted = (2 * self.congestion.window).min(send.limit_max as u64) as usize;
            send.limit = send.limit.max(wanted);
        }
        let third = send.bound() / 3;
        let mut events = Events::empty();
        if before < third && send.room() >= third {
            events |= Events::WRITABLE;
        }
        if send.fin && send.drained() {
            events |= Events::DRAINED;
        }
        events
    }

    /// RFC 9293, 3.10.7.4 (and Linux: `tcp_may_update_window`). True if the window changed.
    #[inline]
    fn update_window(&mut self, ack: Position, segment: &Segment<B>, seq: Position) -> bool {
        let send = &mut self.send;
        // The window of a SYN is never shifted.
        let shift = if segment.flags.contains(Flags::SYN) { 0 } else { send.shift };
        let window = u64::from(segment.window) << shift;
        let edge = ack + window;
        let newer = ack > send.una
            || seq > send.updated
            || seq == send.updated && (edge > send.edge || window == 0);
        if !newer || ack < send.una {
            return false;
        }
        let changed = edge != send.edge;
        send.updated = seq;
        send.edge = edge;
        send.largest = send.largest.max(window);
        if changed && window > 0 {
            self.recovery.probe_backoff = 0;
        }
        changed
    }

    /// The end of the millisecond in which the timestamp was taken that a segment echoes: what was
    /// sent later has not caused it. `NEVER` if that is not known, or nothing is sent again.
    #[inline]
    fn echoed(&self, now: Nanos, segment: &Segment<B>) -> Nanos {
        match segment.options.timestamp {
            Some((_, echo)) if self.stamps.enabled && self.recovery.phase != Phase::Open => {
                let age = self.stamps.value(now).wrapping_sub(echo);
                // A stamp of the future or of another day is none.
                let known = echo != 0 && age <= 1 << 24;
                let begin = (now / MILLISECOND).checked_sub(age.into()).filter(|_| known);
                begin.map_or(NEVER, |begin| (begin + 1) * MILLISECOND)
            }
            _ => NEVER,
        }
    }

    #[inline]
    fn advance(&mut self, now: Nanos, ack: Position, times: (Nanos, Nanos), sample: &mut Sample) {
        let send = &mut self.send;
        self.counters.bytes_acknowledged += ack - send.una;
        send.sent.acknowledge(now, ack, times, sample);
        send.queue.advance(ack);
        send.una = ack;
        if send.urgent.is_some_and(|urgent| urgent <= ack) {
            send.urgent = None;
        }
        self.recovery.timeouts = 0;
        self.recovery.base = now;
    }

    /// The round-trip time: of a segment that was sent once, or by the timestamp (Karn; RFC 7323,
    /// 4.1).
    #[inline]
    fn measure(&mut self, now: Nanos, segment: &Segment<B>, sample: &Sample) {
        if let Some(sent_at) = sample.sent_at
            && !sample.retransmitted
        {
            self.rtt.sample(now, now.saturating_sub(sent_at));
        } else if let Some((_, echo)) = segment.options.timestamp
            && self.stamps.enabled
            && echo != 0
        {
            let elapsed = self.stamps.value(now).wrapping_sub(echo);
            if elapsed > 1 << 24 {
                return;
            }
            self.rtt.sample(now, u64::from(elapsed.max(1)) * MILLISECOND);
        } else {
            return;
        }
        self.recovery.backoff = 0;
    }

    #[cold]
    fn take_sack(
        &mut self,
        now: Nanos,
        ack: Position,
        segment: &Segment<B>,
        times: (Nanos, Nanos),
        sample: &mut Sample,
    ) {
        let send = &mut self.send;
        let place = |seq| crate::seq::position(send.initial, send.una, seq);
        let mss = self.congestion.mss;
        let ranges = &segment.options.sack;
        for (index, (from, to)) in ranges.iter().enumerate() {
            let (from, to) = (place(*from), place(*to));
            if from >= to || to > send.next {
                continue;
            }
            if index == 0 {
                // RFC 2883, 4: below the acknowledgement, or inside the next block.
                let inside = ranges
                    .get(1)
                    .is_some_and(|(low, high)| from >= place(*low) && to <= place(*high));
                if to <= ack || inside {
                    sample.duplicate = true;
                    self.counters.duplicates_reported += 1;
                    if self.recovery.probe.is_none() {
                        send.sent.on_duplicate();
                    }
                    continue;
                }
            }
            if from < send.una {
                continue;
            }
            send.sent.sack(now, (from, to), mss, times, sample);
        }
    }
}
