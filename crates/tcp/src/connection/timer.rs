//! Time has passed.

use super::{Connection, Phase};
use crate::receive::{DELAY_MIN, Due};
use crate::rtt::{RTO_MAX, RTO_MIN, Rtt};
use crate::seq::{BASE, FIRST};
use crate::timers::{NEVER, TimerPurpose};
use crate::{Bytes, Error, Events, MILLISECOND, Nanos, Noted, Sink, State};

impl<B: Bytes> Connection<B> {
    /// Acts on what is due at `now`; earlier it does nothing.
    pub fn on_timer(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        let mut events = Events::empty();
        if now >= self.timers.acknowledge {
            self.timers.acknowledge = NEVER;
            if self.receive.due == Due::Delayed {
                self.receive.delay_expired(self.rtt.timeout);
                out.note(Noted::DelayedAcknowledgement);
                self.send_ack(now, out);
            }
        }
        if now >= self.timers.send {
            self.timers.send = NEVER;
            events |= match self.timers.purpose {
                TimerPurpose::Timeout => self.on_timeout(now, out),
                TimerPurpose::Reorder => self.on_reorder(now, out),
                TimerPurpose::Tail => self.on_tail(now, out),
                TimerPurpose::Persist => self.on_persist(now, out),
            };
            self.arm(now);
            self.heed_user_timeout(now);
        }
        if now >= self.timers.keepalive {
            events |= self.on_keepalive(now, out);
        }
        if now >= self.timers.linger {
            self.timers.linger = NEVER;
            if self.state == State::FinWait2 {
                events |= self.finish_quietly();
            }
        }
        events
    }

    /// Sets the retransmission timer to what the connection waits for.
    #[inline]
    pub(super) fn arm(&mut self, now: Nanos) {
        let timers = &mut self.timers;
        if self.send.sent.is_empty() {
            if !self.send.unsent() || self.state == State::Closed {
                timers.send = NEVER;
            } else if timers.purpose != TimerPurpose::Persist || timers.send == NEVER {
                timers.purpose = TimerPurpose::Persist;
                timers.send = now + self.rtt.backed_off(self.recovery.probe_backoff);
            }
            return;
        }
        let recovery = &self.recovery;
        timers.purpose = TimerPurpose::Timeout;
        timers.send = recovery.base + self.rtt.backed_off(recovery.backoff);
        if recovery.reorder_at < timers.send {
            (timers.purpose, timers.send) = (TimerPurpose::Reorder, recovery.reorder_at);
        } else if self.sack
            && recovery.phase == Phase::Open
            && recovery.backoff == 0
            && recovery.probe.is_none()
            && self.send.sent.sacked == 0
            && self.rtt.smoothed != 0
            && self.send.flight() > self.congestion.mss
        {
            // RFC 8985, 7.2; Linux: `tcp_schedule_loss_probe`. With a single segment in flight the
            // probe would have to wait for a delayed acknowledgement, longer than the timeout.
            let from = recovery.base.max(self.send.last_at);
            let probe = from + 2 * self.rtt.smoothed + 2 * MILLISECOND;
            if probe < timers.send {
                (timers.purpose, timers.send) = (TimerPurpose::Tail, probe);
            }
        }
    }

    /// The next attempt comes no later than the end of the user's patience (Linux:
    /// `tcp_clamp_rto_to_user_timeout`, `tcp_clamp_probe0_to_user_timeout`).
    fn heed_user_timeout(&mut self, now: Nanos) {
        let recovery = &self.recovery;
        let tries = match self.timers.purpose {
            TimerPurpose::Timeout => recovery.timeouts,
            TimerPurpose::Persist => recovery.probes,
            TimerPurpose::Reorder | TimerPurpose::Tail => 0,
        };
        if let Some(timeout) = self.user_timeout
            && tries > 0
            && !self.orphan
            && self.timers.send != NEVER
        {
            let end = recovery.stalled_at.saturating_add(timeout);
            self.timers.send = self.timers.send.min(end.max(now + 2 * MILLISECOND));
        }
    }

    /// Nobody answers: the error is that of the last router that answered.
    fn give_up(&mut self) -> Events {
        let error = self.soft_error.take().unwrap_or(Error::TimedOut);
        self.fail(error)
    }

    /// RFC 6298, 5.4 to 5.7.
    fn on_timeout(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        if self.send.sent.is_empty() {
            return Events::empty();
        }
        if self.recovery.timeouts == 0 {
            self.recovery.stalled_at = self.send.sent.first_sent().unwrap_or(now);
        }
        if self.is_hopeless(now) {
            let events = self.give_up();
            return events;
        }
        self.counters.timeouts += 1;
        out.note(Noted::Timeout);
        let handshake = matches!(self.state, State::SynSent | State::SynReceived);
        if !handshake {
            self.enter_loss();
        }
        self.recovery.timeouts += 1;
        self.recovery.backoff = (self.recovery.backoff + 1).min(20);
        self.recovery.base = now;
        if handshake {
            if self.emit(now, BASE, FIRST, out).is_ok() {
                self.send.sent.sent_again(0, now);
                self.counters.retransmitted += 1;
                self.counters.retransmitted_syns += 1;
                out.note(Noted::SynSentAgain);
            }
        } else {
            self.retransmit(now, out);
        }
        Events::empty()
    }

    /// Linux: `tcp_write_timeout`.
    fn is_hopeless(&self, now: Nanos) -> bool {
        let limits = &self.limits;
        let count = self.recovery.timeouts;
        let elapsed = now.saturating_sub(self.recovery.stalled_at);
        match self.state {
            State::SynSent => match self.user_timeout {
                Some(timeout) => elapsed >= timeout || count >= limits.syn_retries.max(20),
                None => count >= limits.syn_retries,
            },
            State::SynReceived => count >= limits.synack_retries,
            // The peer has closed its window and answers: it lives (Linux:
            // `tcp_rtx_probe0_timed_out`).
            _ if self.send.edge <= self.send.una && !self.orphan => {
                let silent = now.saturating_sub(self.receive.heard_at);
                count > 0
                    && match self.user_timeout {
                        Some(timeout) => elapsed >= timeout,
                        None => elapsed > 2 * RTO_MAX && silent > 2 * RTO_MAX,
                    }
            }
            _ => {
                let retries = if self.orphan { limits.orphan_retries } else { limits.retries };
                let patience = match self.user_timeout {
                    Some(timeout) if !self.orphan => timeout,
                    _ => Rtt::patience(RTO_MIN, retries),
                };
                count > 0 && elapsed >= patience
            }
        }
    }

    /// RFC 8985, 6.3.
    fn on_reorder(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        self.detect(now);
        if self.send.sent.lost > 0 && self.recovery.phase == Phase::Open {
            self.enter_fast_by_time();
        }
        self.retransmit(now, out);
        if self.send.unsent() {
            self.transmit(now, out);
        }
        Events::empty()
    }

    /// RFC 8985, 7.3: new data if there are and the peer's window permits, else the last segment.
    fn on_tail(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        let mss = self.payload();
        let unsent = self.send.queue.end().saturating_sub(self.send.next);
        let window = self.send.edge.saturating_sub(self.send.next);
        let length = unsent.min(mss);
        self.counters.probes += 1;
        out.note(Noted::TailProbe);
        if length > 0 && window >= length && !self.send.cork {
            let fin = self.send.fin && length == unsent && window > length;
            if self.send_range(now, length, fin, mss, out) {
                self.recovery.probe = Some((self.send.next, false));
            }
        } else if let Some((index, start, end)) = self.send.sent.tail(mss)
            && self.send_again(now, index, start, end, out)
        {
            self.recovery.probe = Some((end, true));
            // A probe alone is no reason for an undo.
            self.recovery.undo = None;
        }
        // The timeout's time begins now (RFC 8985, 7.3). Without a probe it must come as well.
        self.recovery.base = now;
        if self.recovery.probe.is_none() {
            self.recovery.probe = Some((self.send.next, false));
        }
        Events::empty()
    }

    /// Data wait and nothing is in flight: a closed window, a segment too small to be sent, or
    /// memory that was refused (RFC 9293, 3.8.6.1; Linux: `tcp_send_probe0`).
    fn on_persist(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        if self.recovery.probes == 0 {
            self.recovery.stalled_at = now;
        }
        if self.persists_in_vain(now) {
            return self.give_up();
        }
        let window = self.send.edge.saturating_sub(self.send.next);
        let unsent = self.send.queue.end().saturating_sub(self.send.next);
        if window > 0 {
            let mss = self.payload();
            let length = unsent.min(window).min(mss);
            let fin = self.send.fin && length == unsent && window > length;
            if length > 0 || fin {
                if self.send_range(now, length, fin, mss, out) {
                    self.recovery.probe_backoff = 0;
                    return Events::empty();
                }
                // No memory: again later, and the peer is not to blame.
                return Events::empty();
            }
        }
        self.send_probe(now, out);
        self.counters.window_probes += 1;
        out.note(Noted::WindowProbe);
        self.recovery.probes += 1;
        self.recovery.probe_backoff = (self.recovery.probe_backoff + 1).min(20);
        Events::empty()
    }

    /// Linux: `tcp_probe_timer`.
    fn persists_in_vain(&self, now: Nanos) -> bool {
        let recovery = &self.recovery;
        if self.orphan {
            let slow = self.rtt.backed_off(recovery.probe_backoff) >= RTO_MAX;
            return recovery.probes >= self.limits.orphan_retries
                || slow && recovery.probe_backoff >= self.limits.orphan_retries;
        }
        match self.user_timeout {
            Some(timeout) => {
                recovery.probes > 0 && now.saturating_sub(recovery.stalled_at) >= timeout
            }
            None => recovery.probes >= self.limits.retries,
        }
    }

    pub(super) fn start_keepalive(&mut self, now: Nanos) {
        let open = !matches!(
            self.state,
            State::Closed | State::TimeWait | State::SynSent | State::SynReceived
        );
        self.timers.keepalive = match self.keepalive {
            Some(keepalive) if open => {
                let silent = now.saturating_sub(self.receive.heard_at);
                now + keepalive.idle.saturating_sub(silent).clamp(MILLISECOND, 1 << 50)
            }
            _ => NEVER,
        };
    }

    /// Linux: `tcp_keepalive_timer`. The time is looked at here, so that segments need not move the
    /// timer.
    fn on_keepalive(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Events {
        self.timers.keepalive = NEVER;
        let Some(keepalive) = self.keepalive else { return Events::empty() };
        if matches!(self.state, State::Closed | State::TimeWait) {
            return Events::empty();
        }
        let mut next = keepalive.idle;
        if self.send.flight() == 0 && !self.send.unsent() {
            let silent = now.saturating_sub(self.receive.heard_at);
            if silent >= keepalive.idle {
                let probes = self.recovery.keepalives;
                let dead = match self.user_timeout {
                    Some(timeout) => silent >= timeout && probes > 0,
                    None => probes >= keepalive.count,
                };
                if dead {
                    self.send_reset(now, out);
                    return self.give_up();
                }
                self.send_probe(now, out);
                out.note(Noted::KeepAlive);
                self.recovery.keepalives += 1;
                next = keepalive.interval;
            } else {
                next = keepalive.idle - silent;
            }
        }
        self.timers.keepalive = now + next.clamp(MILLISECOND, 1 << 50);
        Events::empty()
    }

    /// The deadline of an acknowledgement that may wait.
    #[inline]
    pub(super) fn delay_ack(&mut self, now: Nanos, delay: Nanos) {
        let at = now + delay.max(DELAY_MIN);
        self.timers.acknowledge = self.timers.acknowledge.min(at);
    }
}
