//! Congestion control: how many bytes may be in flight (RFC 5681), by Reno or CUBIC.
//!
//! The windows count bytes. A growth needs that the window was what held the sender back
//! (RFC 7661; Linux: `tcp_is_cwnd_limited`).

use crate::Nanos;
use crate::cubic::Cubic;

/// The algorithms, by the names of TCP_CONGESTION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 9438, "cubic".
    Cubic,
    /// RFC 5681, "reno".
    Reno,
}

impl Algorithm {
    /// The algorithm of that name.
    pub fn from_name(name: &[u8]) -> Option<Algorithm> {
        match name {
            b"cubic" => Some(Algorithm::Cubic),
            b"reno" => Some(Algorithm::Reno),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Cubic => "cubic",
            Algorithm::Reno => "reno",
        }
    }
}

/// No slow-start threshold yet.
pub(crate) const INFINITE: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct Congestion {
    /// Bytes that may be in flight.
    pub window: u64,
    /// Below it the window doubles each round trip.
    pub threshold: u64,
    /// Largest segment: the windows' grain.
    pub mss: u64,
    /// The window has held data back since the last acknowledgement.
    pub limited: bool,
    /// Bytes acknowledged that Reno has not turned into a segment yet.
    credit: u64,
    algorithm: Algorithm,
    cubic: Cubic,
}

impl Congestion {
    pub(crate) fn new(algorithm: Algorithm, mss: u32) -> Congestion {
        let mss = u64::from(mss);
        Congestion {
            window: 10 * mss,
            threshold: INFINITE,
            mss,
            limited: false,
            credit: 0,
            algorithm,
            cubic: Cubic::default(),
        }
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
        self.cubic = Cubic::default();
    }

    /// RFC 6928: ten segments (Linux' TCP_INIT_CWND, without RFC 6928's 14600 bytes).
    pub(crate) fn initial(&self) -> u64 {
        10 * self.mss
    }

    /// The segment has a new size; the window keeps its number of segments.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        let mss = u64::from(mss);
        if mss != self.mss {
            self.window = (self.window / self.mss).max(1) * mss;
            self.mss = mss;
        }
    }

    /// `acked` bytes arrived while nothing is known to be lost.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: Nanos, acked: u64, flight: u64, rtt: Nanos) {
        if self.window < self.threshold {
            // In slow start the window may be twice what was in flight.
            if !self.limited && self.window >= 2 * flight {
                return;
            }
            let room = self.threshold - self.window;
            self.window += acked.min(room);
            if acked <= room {
                return;
            }
        } else if !self.limited {
            return;
        }
        self.limited = false;
        match self.algorithm {
            Algorithm::Reno => self.add(acked),
            Algorithm::Cubic => {
                self.window = self.cubic.grow(now, self.window, acked, self.mss, rtt);
            }
        }
    }

    /// Reno's congestion avoidance: one segment for each window of bytes (RFC 5681, 3.1).
    fn add(&mut self, acked: u64) {
        self.credit += acked;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window += self.mss;
        }
    }

    /// A loss: the new threshold. The window is recovery's affair.
    pub(crate) fn on_loss(&mut self) {
        self.credit = 0;
        self.threshold = match self.algorithm {
            Algorithm::Reno => (self.window / 2).max(2 * self.mss),
            Algorithm::Cubic => self.cubic.reduce(self.window, self.mss),
        };
    }

    /// A timeout (RFC 5681, 3.1): one segment.
    pub(crate) fn on_timeout(&mut self) {
        self.window = self.mss;
        self.cubic.restart();
    }

    /// The sender was silent for `idle`: the window halves each `timeout` down to the initial one
    /// (RFC 5681, 4.1; Linux: `tcp_cwnd_restart`).
    pub(crate) fn on_idle(&mut self, idle: Nanos, timeout: Nanos) {
        let least = self.initial().min(self.window);
        self.threshold = self.threshold.max(self.window / 4 * 3).min(INFINITE);
        let halvings = (idle / timeout.max(1)).min(63) as u32;
        self.window = (self.window >> halvings).max(least);
        self.limited = false;
        self.cubic.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = 100_000_000;

    #[test]
    fn slow_start_doubles_and_needs_a_full_window() {
        let mut control = Congestion::new(Algorithm::Reno, 1000);
        control.on_ack(0, 1000, 2000, RTT);
        assert_eq!(control.window, 10_000);
        control.limited = true;
        control.on_ack(0, 10_000, 10_000, RTT);
        assert_eq!(control.window, 20_000);
    }

    #[test]
    fn reno_adds_one_segment_each_round() {
        let mut control = Congestion::new(Algorithm::Reno, 1000);
        control.on_loss();
        assert_eq!(control.threshold, 5_000);
        control.window = control.threshold;
        for _ in 0..5 {
            control.limited = true;
            control.on_ack(0, 1000, 5000, RTT);
        }
        assert_eq!(control.window, 6_000);
    }

    #[test]
    fn a_silent_sender_begins_again() {
        let mut control = Congestion::new(Algorithm::Cubic, 1000);
        control.window = 160_000;
        control.on_idle(3 * RTT, RTT);
        assert_eq!(control.window, 20_000);
        control.on_idle(900 * RTT, RTT);
        assert_eq!(control.window, 10_000);
    }

    #[test]
    fn names() {
        for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
            assert_eq!(Algorithm::from_name(algorithm.name().as_bytes()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name(b"bbr"), None);
    }
}
