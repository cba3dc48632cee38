//! CUBIC (RFC 9438) in integers: bytes, milliseconds.

use crate::{MILLISECOND, Nanos};

/// State of one connection.
#[derive(Debug, Default)]
pub(crate) struct Cubic {
    /// The window before the last reduction (W_max), and before the one before it.
    peak: u64,
    /// When this growth began; 0 for not yet.
    epoch: Nanos,
    /// Milliseconds from the epoch to the plateau (K).
    plateau: u64,
    /// The window that Reno would have (W_est), and the bytes that do not make a segment yet.
    reno: u64,
    /// The window's growth that is less than a byte, in parts of a window.
    remainder: u64,
}

/// The cube root, rounded down.
fn cube_root(value: u64) -> u64 {
    let mut root = 0u64;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        if u128::from(next).pow(3) <= u128::from(value) {
            root = next;
        }
    }
    root
}

impl Cubic {
    /// Forgets the growth, not the peak: a timeout, or silence.
    pub(crate) fn restart(&mut self) {
        self.epoch = 0;
    }

    /// A loss at `window`: returns the threshold, 0.7 of it, and remembers the peak, lower if the
    /// last peak was not reached (fast convergence, RFC 9438 4.7).
    pub(crate) fn reduce(&mut self, window: u64, mss: u64) -> u64 {
        self.peak = if window < self.peak { window / 20 * 17 } else { window };
        self.epoch = 0;
        (window / 10 * 7).max(2 * mss)
    }

    /// The window after `acked` more bytes.
    pub(crate) fn grow(
        &mut self,
        now: Nanos,
        window: u64,
        acked: u64,
        mss: u64,
        rtt: Nanos,
    ) -> u64 {
        if self.epoch == 0 {
            self.epoch = now.max(1);
            self.reno = window;
            self.remainder = 0;
            self.peak = self.peak.max(window);
            // K = cbrt((W_max - cwnd) / C) with C = 0.4 segments / s^3.
            let missing = (self.peak - window).min(1 << 32);
            self.plateau = cube_root(missing.saturating_mul(2_500_000_000) / mss);
        }
        // W_cubic one round trip ahead (RFC 9438, 4.2).
        let elapsed = (now.saturating_sub(self.epoch) + rtt) / MILLISECOND;
        let distance = i128::from(elapsed.min(1 << 24)) - i128::from(self.plateau);
        let offset = distance.pow(3) * i128::from(mss) * 2 / 5_000_000_000;
        let cubic = (i128::from(self.peak) + offset).clamp(0, 1 << 40) as u64;
        // Reno-friendly (4.3): alpha is 9/17 until W_est has reached the peak, then 1.
        let share = if self.reno < self.peak { acked * 9 / 17 } else { acked };
        self.reno += share * mss / window.max(1);
        // 4.4 and 4.5: towards the target, which is at most 1.5 windows, in this round trip.
        let target = cubic.clamp(window, window + window / 2);
        self.remainder += (target - window) * acked;
        let step = self.remainder / window.max(1);
        self.remainder %= window.max(1);
        (window + step).max(self.reno.min(window + window / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for (value, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (1_000_000, 100)] {
            assert_eq!(cube_root(value), root);
        }
        assert_eq!(cube_root(u64::MAX), 2_642_245);
    }

    /// A loss at 100 segments, 200 ms round trips (so that Reno is behind): the window is back at
    /// its peak after K seconds (RFC 9438, 4.2), K = cbrt(100 * 0.3 / 0.4) = 4.2 s, and grows
    /// behind it.
    #[test]
    fn growth_is_concave_then_convex() {
        let mss = 1000;
        let mut cubic = Cubic::default();
        let mut window = cubic.reduce(100 * mss, mss);
        assert_eq!(window, 70 * mss);
        let (round, mut now) = (200 * MILLISECOND, 1);
        let mut windows = std::vec::Vec::new();
        for _ in 0..50 {
            for _ in 0..window / mss {
                window = cubic.grow(now, window, mss, mss, round);
            }
            windows.push(window / mss);
            now += round;
        }
        let at = |seconds: usize| windows[seconds * 5 - 1];
        assert!((93..=99).contains(&at(2)), "{windows:?}");
        assert!((98..=101).contains(&at(4)), "{windows:?}");
        assert!((110..=130).contains(&at(8)), "{windows:?}");
    }
}
