//! Linear and logarithmic scales with round ticks.

/// Maps values to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    log: Option<f64>,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A linear scale of `low..high` onto `from..to`.
    pub fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { log: None, low, high, from, to }
    }

    /// A logarithmic one, with ticks at powers of `base`; values must be positive.
    pub fn logarithmic(base: f64, low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * base };
        Self { log: Some(base), low, high, from, to }
    }

    /// The position of `value`; outside values end at the edge.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            None => (value - self.low) / (self.high - self.low),
            Some(_) => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// At most about `wanted` round values within the scale.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        match self.log {
            Some(base) => self.powers(base, wanted),
            None => self.steps(wanted),
        }
    }

    /// Like [`Scale::ticks`], but whole numbers only: there is no half process.
    pub fn whole_ticks(&self, wanted: usize) -> Vec<f64> {
        self.ticks(wanted).into_iter().filter(|t| t.fract().abs() < 1e-9).collect()
    }

    fn powers(&self, base: f64, wanted: usize) -> Vec<f64> {
        // A little slack, so that the ends are not lost to rounding.
        let first = (self.low.ln() / base.ln() - 1e-9).ceil() as i32;
        let last = (self.high.ln() / base.ln() + 1e-9).floor() as i32;
        let count = (last - first + 1).max(0) as usize;
        let step = count.div_ceil(wanted.max(1)).max(1);
        let powers = (first..=last).filter(|p| (p - first) % step as i32 == 0);
        let ticks: Vec<f64> = powers.map(|p| base.powi(p)).collect();
        // Less than two powers would leave a scale with too few marks: mark 1, 2 and 5 instead.
        if ticks.len() >= 2 || base != 10.0 {
            return ticks;
        }
        (first - 1..=last + 1)
            .flat_map(|p| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(p)))
            .filter(|v| (self.low * 0.999..=self.high * 1.001).contains(v))
            .collect()
    }

    fn steps(&self, wanted: usize) -> Vec<f64> {
        let raw = (self.high - self.low) / wanted.max(1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|m| m * power)
            .find(|s| *s >= raw)
            .unwrap_or(10.0 * power);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last.min(first + 100)).map(|i| i as f64 * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let s = Scale::linear(0.0, 97.0, 0.0, 100.0);
        assert_eq!(s.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(s.at(48.5), 50.0);
        assert_eq!(s.at(1e9), 100.0);
        let s = Scale::logarithmic(2.0, 1024.0, 65536.0, 0.0, 60.0);
        assert_eq!(s.ticks(4), [1024.0, 4096.0, 16384.0, 65536.0]);
        assert!((s.at(8192.0) - 30.0).abs() < 1e-9);
        let s = Scale::logarithmic(10.0, 2.0, 9.0, 0.0, 1.0);
        assert_eq!(s.ticks(6), [2.0, 5.0]);
    }

    #[test]
    fn degenerate_ranges_stay_finite() {
        for s in [Scale::linear(5.0, 5.0, 0.0, 9.0), Scale::logarithmic(10.0, 0.0, 0.0, 0.0, 9.0)] {
            assert!(s.at(5.0).is_finite());
            assert!(s.ticks(5).len() < 500);
        }
    }
}
