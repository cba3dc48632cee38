//! Loss recovery: decides which segments are lost, and how fast they are sent again.
//!
//! With SACK, loss is a matter of time (RFC 8985), and the count of RFC 6675 rules how much is
//! sent. Without it, three duplicate acknowledgements lose the first segment (RFC 5681) and each
//! partial acknowledgement the next one (NewReno, RFC 6582); each duplicate stands for one segment
//! that arrived. In both cases the window falls in proportion to what arrives (RFC 6937), and new
//! data follow each segment that is known to have arrived, which contains limited transmit (RFC
//! 3042). A timestamp older than the first retransmission undoes it all (Eifel, RFC 3522 and 4015).

use super::{Connection, Phase};
use crate::config::MIN_MSS;
use crate::scoreboard::{DUPLICATES, Sample};
use crate::timers::NEVER;
use crate::{Bytes, Nanos, Sink, State};

impl<B: Bytes> Connection<B> {
    /// Looks for lost segments by time; sets when to look again.
    pub(super) fn detect(&mut self, now: Nanos) {
        let recovering = self.recovery.phase != Phase::Open;
        let rtt = (self.rtt.least, self.rtt.smoothed);
        let mss = self.congestion.mss;
        let wait = self.send.sent.detect(now, mss, recovering, rtt);
        self.recovery.reorder_at = wait.map_or(NEVER, |wait| now + wait);
    }

    /// Takes the report of an acknowledgement. `advanced`: it acknowledges new data.
    pub(super) fn recover(
        &mut self,
        now: Nanos,
        sample: &Sample,
        flight: u64,
        advanced: bool,
        duplicate: bool,
    ) {
        let lost = self.send.sent.lost;
        if self.sack {
            if self.recovery.phase != Phase::Open || self.send.sent.sacked > 0 {
                self.detect(now);
            } else {
                self.recovery.reorder_at = NEVER;
            }
        } else {
            self.count_duplicates(sample, advanced, duplicate);
        }
        let more_lost = self.send.sent.lost > lost;
        let over = self.send.una >= self.recovery.point;
        match self.recovery.phase {
            Phase::Open => {
                if self.send.sent.lost > 0 {
                    self.enter_fast();
                    self.reduce(sample.delivered, advanced, more_lost);
                } else {
                    let rtt = self.rtt.smoothed;
                    self.congestion.on_ack(now, sample.delivered, flight, rtt);
                }
            }
            Phase::Fast if over => {
                self.congestion.window = self.congestion.threshold.max(self.congestion.mss);
                self.leave();
            }
            Phase::Fast => self.reduce(sample.delivered, advanced, more_lost),
            Phase::Loss => {
                if over {
                    self.leave();
                }
                self.congestion.limited = true;
                self.congestion.on_ack(now, sample.delivered, flight, self.rtt.smoothed);
            }
        }
    }

    fn leave(&mut self) {
        self.recovery.phase = Phase::Open;
        self.recovery.emulated = 0;
        self.recovery.duplicates = 0;
        self.recovery.undo = None;
        self.send.sent.on_recovered();
    }

    /// Without SACK: RFC 5681, 3.2 and RFC 6582.
    fn count_duplicates(&mut self, sample: &Sample, advanced: bool, duplicate: bool) {
        let mss = self.congestion.mss;
        if advanced {
            self.recovery.duplicates = 0;
            // One segment made the acknowledgement advance, the others were counted before.
            let counted = sample.delivered.saturating_sub(mss);
            self.recovery.emulated = self.recovery.emulated.saturating_sub(counted);
            if self.recovery.phase != Phase::Open && self.send.una < self.recovery.point {
                self.send.sent.lose_first(mss);
            }
        } else if duplicate {
            self.recovery.duplicates += 1;
            if self.recovery.phase != Phase::Loss {
                let most = self.send.flight().saturating_sub(mss);
                self.recovery.emulated = (self.recovery.emulated + mss).min(most);
            }
            if u64::from(self.recovery.duplicates) == DUPLICATES
                && self.recovery.phase == Phase::Open
                && self.send.una >= self.recovery.point
            {
                self.send.sent.lose_first(mss);
            }
        }
    }

    /// Fast recovery begins.
    pub(super) fn enter_fast(&mut self) {
        let recovery = &mut self.recovery;
        recovery.prior_window = self.congestion.window;
        recovery.prior_threshold = self.congestion.threshold;
        self.congestion.on_loss();
        recovery.phase = Phase::Fast;
        recovery.point = self.send.next;
        recovery.undo = None;
        recovery.flight = self.send.flight().max(1);
        (recovery.delivered, recovery.sent) = (0, 0);
        recovery.probe = None;
        self.counters.recoveries += 1;
    }

    /// Segments were lost by time alone: no acknowledgement gives a quota.
    pub(super) fn enter_fast_by_time(&mut self) {
        self.enter_fast();
        self.reduce(0, false, true);
    }

    /// RFC 6937: the window of this acknowledgement.
    fn reduce(&mut self, delivered: u64, advanced: bool, more_lost: bool) {
        let (pipe, mss) = (self.pipe(), self.congestion.mss);
        let threshold = self.congestion.threshold;
        let recovery = &mut self.recovery;
        let delivered = if self.sack || advanced { delivered } else { mss };
        recovery.delivered += delivered;
        let mut quota = if pipe > threshold {
            let share = u128::from(recovery.delivered) * u128::from(threshold);
            let share = share.div_ceil(u128::from(recovery.flight)) as u64;
            share.saturating_sub(recovery.sent)
        } else {
            let mut limit = recovery.delivered.saturating_sub(recovery.sent).max(delivered);
            if advanced && !more_lost {
                limit += mss;
            }
            limit.min(threshold - pipe)
        };
        if recovery.sent == 0 {
            quota = quota.max(mss);
        }
        self.congestion.window = (pipe + quota).max(mss);
    }

    /// A timeout (RFC 5681, 3.1; RFC 6298, 5).
    pub(super) fn enter_loss(&mut self) {
        let reneged = self.send.sent.reneged();
        let fresh = self.recovery.phase == Phase::Open
            || self.recovery.phase == Phase::Loss && self.recovery.timeouts == 0;
        if fresh {
            self.recovery.prior_window = self.congestion.window;
            self.recovery.prior_threshold = self.congestion.threshold;
            self.recovery.undo = None;
            self.congestion.on_loss();
        }
        self.congestion.on_timeout();
        self.send.sent.lose_all(reneged);
        self.recovery.phase = Phase::Loss;
        self.recovery.point = self.send.next;
        self.recovery.emulated = 0;
        self.recovery.duplicates = 0;
        self.recovery.probe = None;
        self.recovery.reorder_at = NEVER;
    }

    /// The path's MTU has changed (RFC 1191, RFC 8201); `mss` is it less 40 (IPv6: 60). Segments in
    /// flight that are too long now are sent again, in shorter ones, and the window stays (Linux:
    /// `tcp_simple_retransmit`).
    pub fn set_path_mss(&mut self, now: Nanos, mss: u32, out: &mut impl Sink<B>) {
        let before = self.send.mss;
        self.path_mss = mss.clamp(MIN_MSS, 0xffff);
        if matches!(self.state, State::SynSent | State::Closed | State::TimeWait) {
            self.send.mss = self.path_mss;
            return;
        }
        self.send.limit_mss(self.path_mss);
        let payload = self.send.mss - self.stamp_len() as u32;
        self.congestion.set_mss(payload);
        if self.send.mss >= before || self.state == State::SynReceived {
            return;
        }
        self.send.sent.lose_longer(payload.into());
        if self.send.sent.pending > 0 && self.recovery.phase == Phase::Open {
            self.recovery.prior_window = self.congestion.window;
            self.recovery.prior_threshold = self.congestion.threshold;
            self.recovery.phase = Phase::Loss;
            self.recovery.point = self.send.next;
        }
        self.transmit(now, out);
    }

    /// Undoes a recovery if the acknowledgement's echo is older than the first retransmission.
    pub(super) fn undo(&mut self, echo: u32) {
        let Some(first) = self.recovery.undo else { return };
        if self.recovery.phase == Phase::Open || (echo.wrapping_sub(first) as i32) >= 0 || echo == 0
        {
            return;
        }
        self.send.sent.undo();
        let congestion = &mut self.congestion;
        congestion.window = congestion.window.max(self.recovery.prior_window);
        congestion.threshold = congestion.threshold.max(self.recovery.prior_threshold);
        self.counters.undone += 1;
        self.leave();
        self.recovery.point = self.send.una;
    }

    /// RFC 8985, 7.4: the end of a tail loss probe. `duplicate`: the peer had its data twice.
    pub(super) fn settle_probe(&mut self, duplicate: bool) {
        let Some((end, again)) = self.recovery.probe else { return };
        if self.send.una < end {
            return;
        }
        self.recovery.probe = None;
        if again && !duplicate && self.recovery.phase == Phase::Open {
            // The probe repaired a loss: it counts like any other.
            self.congestion.on_loss();
            self.congestion.window = self.congestion.threshold.min(self.congestion.window);
        }
    }
}
