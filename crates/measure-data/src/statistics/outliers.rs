//! Outlier classes by Tukey's fences: 1.5 and 3 interquartile ranges beyond the quartiles. Outliers
//! are counted and shown, never dropped; the median is robust against them.

use super::quantile::quantile_of_sorted;
use serde::{Deserialize, Serialize};

/// How many samples lie beyond the fences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outliers {
    /// More than 3 ranges below the first quartile.
    pub low_severe: usize,
    /// More than 1.5 ranges below.
    pub low_mild: usize,
    /// More than 1.5 ranges above the third quartile.
    pub high_mild: usize,
    /// More than 3 ranges above.
    pub high_severe: usize,
}

impl Outliers {
    /// Classes of `sorted` values.
    pub fn of_sorted(sorted: &[f64]) -> Self {
        let (q1, q3) = (quantile_of_sorted(sorted, 0.25), quantile_of_sorted(sorted, 0.75));
        let range = q3 - q1;
        let mut found = Self::default();
        for value in sorted {
            match *value {
                v if v < q1 - 3.0 * range => found.low_severe += 1,
                v if v < q1 - 1.5 * range => found.low_mild += 1,
                v if v > q3 + 3.0 * range => found.high_severe += 1,
                v if v > q3 + 1.5 * range => found.high_mild += 1,
                _ => {}
            }
        }
        found
    }

    /// All of them.
    pub fn count(&self) -> usize {
        self.low_severe + self.low_mild + self.high_mild + self.high_severe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let mut v: Vec<f64> = (0..=100).map(f64::from).collect();
        v.extend([-250.0, -80.0, 180.0, 190.0, 1000.0]);
        v.sort_by(f64::total_cmp);
        let o = Outliers::of_sorted(&v);
        assert_eq!(o, Outliers { low_severe: 1, low_mild: 1, high_mild: 2, high_severe: 1 });
        assert_eq!(o.count(), 5);
        assert_eq!(Outliers::of_sorted(&[1.0; 9]).count(), 0);
        assert_eq!(Outliers::of_sorted(&[]).count(), 0);
    }
}
