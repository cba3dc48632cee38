//! Round-trip time and retransmission timeout (RFC 6298), with Linux' bounds.

use crate::{MILLISECOND, Nanos, SECOND};

/// The least that a timeout is above the round-trip time (`TCP_RTO_MIN`).
pub const RTO_MIN: Nanos = 200 * MILLISECOND;
/// `TCP_RTO_MAX`.
pub const RTO_MAX: Nanos = 120 * SECOND;
/// `TCP_TIMEOUT_INIT`, RFC 6298 (2.1).
pub(crate) const RTO_INITIAL: Nanos = SECOND;

/// Estimates, in nanoseconds; 0 stands for none yet.
#[derive(Debug)]
pub(crate) struct Rtt {
    /// Smoothed round-trip time.
    pub smoothed: Nanos,
    /// Its variation.
    pub variation: Nanos,
    /// The least that was seen; ages by replacement after five minutes (`tcp_min_rtt_wlen`).
    pub least: Nanos,
    least_at: Nanos,
    /// The timeout without backoff.
    pub timeout: Nanos,
}

impl Rtt {
    pub(crate) const fn new() -> Rtt {
        Rtt { smoothed: 0, variation: 0, least: 0, least_at: 0, timeout: RTO_INITIAL }
    }

    /// Takes a sample of a segment that was sent once (Karn).
    #[inline]
    pub(crate) fn sample(&mut self, now: Nanos, sample: Nanos) {
        let sample = sample.max(1000);
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            let error = self.smoothed.abs_diff(sample);
            self.variation = self.variation - self.variation / 4 + error / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        }
        if self.least == 0 || sample <= self.least || now - self.least_at > 300 * SECOND {
            (self.least, self.least_at) = (sample, now);
        }
        self.timeout = (self.smoothed + (4 * self.variation).max(RTO_MIN)).min(RTO_MAX);
    }

    /// The timeout after `backoff` timeouts in a row (RFC 6298, 5.5).
    #[inline]
    pub(crate) fn backed_off(&self, backoff: u32) -> Nanos {
        (self.timeout << backoff.min(20)).min(RTO_MAX)
    }

    /// How long `retries` timeouts of `base` that double take (Linux: `tcp_model_timeout`).
    pub(crate) fn patience(base: Nanos, retries: u32) -> Nanos {
        let doublings = (RTO_MAX / base).checked_ilog2().unwrap_or(0);
        if retries <= doublings {
            ((2 << retries) - 1) * base
        } else {
            ((2 << doublings) - 1) * base + u64::from(retries - doublings) * RTO_MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sample_sets_the_timeout() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.timeout, SECOND);
        rtt.sample(0, 400 * MILLISECOND);
        assert_eq!(rtt.timeout, 1200 * MILLISECOND);
        assert_eq!(rtt.variation, 200 * MILLISECOND);
    }

    #[test]
    fn a_steady_path_has_the_least_timeout() {
        let mut rtt = Rtt::new();
        for _ in 0..200 {
            rtt.sample(0, 10 * MILLISECOND);
        }
        assert!((209..=211).contains(&(rtt.timeout / MILLISECOND)), "{}", rtt.timeout);
        assert_eq!(rtt.backed_off(30), RTO_MAX);
    }

    #[test]
    fn fifteen_retries_are_924_seconds() {
        // ip-sysctl.rst, tcp_retries2: "a hypothetical timeout of 924.6 seconds".
        assert_eq!(Rtt::patience(RTO_MIN, 15) / MILLISECOND, 924_600);
    }
}
