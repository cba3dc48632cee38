//! The numbers of one result, and the verdict on how far they can be trusted.

use super::bootstrap::{Interval, median_interval};
use super::outliers::Outliers;
use super::quantile::{quantile_of_sorted, sorted};
use serde::{Deserialize, Serialize};

/// Statistics of the values of one result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Smallest value.
    pub minimum: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub median: f64,
    /// 95 % confidence interval of the median.
    pub interval: Interval,
    /// 95th percentile.
    pub p95: f64,
    /// Mean, for comparison with published tables.
    pub mean: f64,
    /// Standard deviation, likewise.
    pub deviation: f64,
    /// Samples beyond Tukey's fences.
    pub outliers: Outliers,
    /// Largest minus smallest round median, relative to the median: drift between passes.
    pub drift: f64,
    /// The verdict.
    pub noise: Noise,
}

/// How noisy a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// Every sample is the same: the clock counts instructions.
    Exact,
    /// The interval reaches at most 2 % to each side of the median.
    Quiet,
    /// At most 5 %.
    Fair,
    /// At most 20 %.
    Noisy,
    /// More: the number says little.
    TooNoisy,
}

impl Noise {
    /// The word as printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Quiet => "quiet",
            Self::Fair => "fair",
            Self::Noisy => "noisy",
            Self::TooNoisy => "too noisy",
        }
    }
}

impl Summary {
    /// The statistics of `rounds`; all 0 where there is no sample.
    pub fn of(rounds: &[Vec<f64>]) -> Self {
        let values = sorted(&rounds.concat());
        let n = values.len();
        let count = n.max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let median = quantile_of_sorted(&values, 0.5);
        let interval = median_interval(rounds);
        let centers: Vec<f64> = rounds
            .iter()
            .filter(|r| !r.is_empty())
            .map(|r| quantile_of_sorted(&sorted(r), 0.5))
            .collect();
        let highest = centers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lowest = centers.iter().copied().fold(f64::INFINITY, f64::min);
        let drift =
            if median > 0.0 && !centers.is_empty() { (highest - lowest) / median } else { 0.0 };
        let noise = if n > 1 && values.first() == values.last() {
            Noise::Exact
        } else if n < 3 {
            Noise::TooNoisy
        } else {
            match interval.relative_half_width(median) {
                w if w <= 0.02 => Noise::Quiet,
                w if w <= 0.05 => Noise::Fair,
                w if w <= 0.20 => Noise::Noisy,
                _ => Noise::TooNoisy,
            }
        };
        Self {
            n,
            minimum: values.first().copied().unwrap_or(0.0),
            p5: quantile_of_sorted(&values, 0.05),
            median,
            interval,
            p95: quantile_of_sorted(&values, 0.95),
            mean,
            deviation: if n > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
            outliers: Outliers::of_sorted(&values),
            drift,
            noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_numbers() {
        let s = Summary::of(&[vec![2.0, 4.0, 4.0, 4.0], vec![5.0, 5.0, 7.0, 9.0]]);
        assert_eq!((s.n, s.minimum, s.median, s.mean), (8, 2.0, 4.5, 5.0));
        assert!((s.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((s.drift - 2.0 / 4.5).abs() < 1e-12);
    }

    #[test]
    fn verdicts() {
        assert_eq!(Summary::of(&[vec![7.0; 5]]).noise, Noise::Exact);
        assert_eq!(Summary::of(&[vec![7.0]]).noise, Noise::TooNoisy);
        let nearly: Vec<f64> = (0..100).map(|i| 1000.0 + f64::from(i % 7)).collect();
        assert_eq!(Summary::of(&[nearly.clone(), nearly]).noise, Noise::Quiet);
        let wild: Vec<f64> = (1..30).map(|i| f64::from(i * i * i)).collect();
        assert_eq!(Summary::of(&[wild]).noise, Noise::TooNoisy);
    }

    #[test]
    fn nothing_measured_gives_finite_numbers() {
        for rounds in [vec![], vec![vec![]], vec![vec![0.0; 4]]] {
            let s = Summary::of(&rounds);
            let text = serde_json::to_string(&s).unwrap();
            assert!(!text.contains("null"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn ordered(v in prop::collection::vec(prop::collection::vec(0.0f64..1e9, 0..20), 0..5)) {
            let s = Summary::of(&v);
            prop_assert!(s.minimum <= s.p5 && s.p5 <= s.median && s.median <= s.p95);
            prop_assert!(s.drift >= 0.0 && s.deviation >= 0.0);
            prop_assert!(!serde_json::to_string(&s).unwrap().contains("null"));
        }
    }
}
