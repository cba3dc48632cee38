//! Confidence intervals of medians by the two-level percentile bootstrap: rounds are drawn with
//! replacement, then samples within each drawn round. Drawing only samples would ignore that the
//! samples of a round rise and fall together, and a second run would often fall outside of the
//! interval.
//!
//! The generator has a fixed seed: the same samples give the same interval to the digit.

use super::quantile::{median, quantile_of_sorted};
use serde::{Deserialize, Serialize};

/// How often a median is drawn again.
const RESAMPLES: usize = 400;
/// Samples drawn per resample at most; more would not narrow the interval visibly.
const DRAWN_AT_MOST: usize = 2_000;
const SEED: u64 = 0x6861_7961_7465;

/// A 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies inside, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half the width relative to `center`; 0 for an empty interval around 0.
    pub fn relative_half_width(&self, center: f64) -> f64 {
        let half = (self.high - self.low) / 2.0;
        if half == 0.0 {
            0.0
        } else if center == 0.0 {
            f64::MAX
        } else {
            half / center.abs()
        }
    }
}

/// The 95 % interval of the median of all samples of `rounds`.
pub fn median_interval(rounds: &[Vec<f64>]) -> Interval {
    interval(&mut drawn_medians(rounds, SEED))
}

/// Returns the 95 % interval of median(b) / median(a). A median of 0 in `a` gives (0, `f64::MAX`):
/// the ratio is then undefined.
pub fn ratio_interval(a: &[Vec<f64>], b: &[Vec<f64>]) -> Interval {
    let a = drawn_medians(a, SEED);
    let b = drawn_medians(b, SEED + 1);
    if a.iter().any(|m| *m <= 0.0) {
        return Interval { low: 0.0, high: f64::MAX };
    }
    let mut ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b / a).collect();
    interval(&mut ratios)
}

fn interval(statistics: &mut [f64]) -> Interval {
    statistics.sort_by(f64::total_cmp);
    Interval {
        low: quantile_of_sorted(statistics, 0.025),
        high: quantile_of_sorted(statistics, 0.975),
    }
}

fn drawn_medians(rounds: &[Vec<f64>], seed: u64) -> Vec<f64> {
    let rounds: Vec<&[f64]> = rounds.iter().map(Vec::as_slice).filter(|r| !r.is_empty()).collect();
    let Some(&first) = rounds.first() else { return Vec::new() };
    // Exact data need no drawing, and instruction counts are exact.
    if rounds.iter().all(|r| r.iter().all(|v| *v == first[0])) {
        return vec![first[0]; RESAMPLES];
    }
    let per_round = DRAWN_AT_MOST.div_ceil(rounds.len());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut drawn = Vec::new();
    (0..RESAMPLES)
        .map(|_| {
            drawn.clear();
            for _ in 0..rounds.len() {
                let round = rounds[random.usize(..rounds.len())];
                let count = round.len().min(per_round);
                drawn.extend((0..count).map(|_| round[random.usize(..round.len())]));
            }
            median(&mut drawn)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rounds whose own level wanders by `between` and whose samples scatter by `within`.
    fn rounds(random: &mut fastrand::Rng, n: usize, between: f64, within: f64) -> Vec<Vec<f64>> {
        (0..n)
            .map(|_| {
                let level = 100.0 + between * (random.f64() - 0.5);
                (0..50).map(|_| level + within * (random.f64() - 0.5)).collect()
            })
            .collect()
    }

    #[test]
    fn covers_the_true_median_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(7);
        let covered = (0..200)
            .filter(|_| median_interval(&rounds(&mut random, 10, 10.0, 2.0)).contains(100.0))
            .count();
        assert!(covered >= 176, "{covered} of 200 intervals held the true median");
    }

    #[test]
    fn samples_drawn_alone_would_be_too_sure() {
        // The test shows why there are two levels: with all rounds pooled the interval misses the
        // true value far too often.
        let mut random = fastrand::Rng::with_seed(7);
        let covered = (0..200)
            .filter(|_| {
                let pooled = vec![rounds(&mut random, 10, 10.0, 2.0).concat()];
                median_interval(&pooled).contains(100.0)
            })
            .count();
        assert!(covered < 150, "{covered}");
    }

    #[test]
    fn exact_samples_give_an_exact_interval() {
        let i = median_interval(&[vec![3.0; 4], vec![3.0; 9]]);
        assert_eq!(i, Interval { low: 3.0, high: 3.0 });
        assert_eq!(i.relative_half_width(3.0), 0.0);
        assert_eq!(ratio_interval(&[vec![2.0; 4]], &[vec![3.0; 4]]).low, 1.5);
    }

    proptest! {
        #[test]
        fn interval_lies_within_the_samples(
            v in prop::collection::vec(prop::collection::vec(0.0f64..1e6, 1..20), 1..6),
        ) {
            let i = median_interval(&v);
            let all: Vec<f64> = v.concat();
            let min = all.iter().copied().fold(f64::INFINITY, f64::min);
            let max = all.iter().copied().fold(0.0, f64::max);
            prop_assert!(min <= i.low && i.low <= i.high && i.high <= max);
            prop_assert_eq!(i, median_interval(&v));
        }
    }
}
