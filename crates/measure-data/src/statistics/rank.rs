//! The Mann-Whitney U test and the effect size that belongs to it.
//!
//! Up to [`EXACT_UP_TO`] values the p-value is exact, ties included: of all ways to divide the
//! pooled mid-ranks into two groups, it counts those whose rank sum is at least as far from its
//! expectation. Above that it uses the normal approximation with tie and continuity correction
//! (Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", 4.1).

use serde::{Deserialize, Serialize};
use statrs::function::erf::erfc;

/// Largest number of pooled values for which all groups are counted.
const EXACT_UP_TO: usize = 40;

/// The outcome of a Mann-Whitney test of `b` against `a`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MannWhitney {
    /// Pairs in which `b` is greater, ties counting half.
    pub u: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Cliff's delta: -1 when every `b` is below every `a`, 1 when above, 0 in balance.
    pub delta: f64,
}

/// Words for Cliff's delta (Romano et al., 2006).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectSize {
    /// Below 0.147.
    Negligible,
    /// Below 0.33.
    Small,
    /// Below 0.474.
    Medium,
    /// The rest.
    Large,
}

impl EffectSize {
    /// The word for `delta`.
    pub fn of(delta: f64) -> Self {
        match delta.abs() {
            d if d < 0.147 => Self::Negligible,
            d if d < 0.33 => Self::Small,
            d if d < 0.474 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// The word as printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Negligible => "negligible",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

/// Tests whether `b` tends to be greater or smaller than `a`. If a side is empty, p is 1.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> MannWhitney {
    if a.is_empty() || b.is_empty() {
        return MannWhitney { u: 0.0, p: 1.0, delta: 0.0 };
    }
    let (ranks, ties) = doubled_ranks(a, b);
    let (na, nb) = (a.len() as f64, b.len() as f64);
    // `b` follows `a` in `ranks`.
    let doubled_sum: u64 = ranks[a.len()..].iter().sum();
    let u = doubled_sum as f64 / 2.0 - nb * (nb + 1.0) / 2.0;
    let delta = 2.0 * u / (na * nb) - 1.0;
    let p = if ranks.len() <= EXACT_UP_TO {
        exact_p(&ranks, b.len(), doubled_sum)
    } else {
        approximate_p(na, nb, u, ties)
    };
    MannWhitney { u, p, delta }
}

/// Twice the mid-rank of every value (an integer even with ties), `a` first, and the tie term
/// sum(t^3 - t).
fn doubled_ranks(a: &[f64], b: &[f64]) -> (Vec<u64>, f64) {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|x, y| all[*x].total_cmp(&all[*y]));
    let mut ranks = vec![0; all.len()];
    let mut ties = 0.0;
    let mut start = 0;
    while start < order.len() {
        let mut end = start;
        while end < order.len() && all[order[end]] == all[order[start]] {
            end += 1;
        }
        // total_cmp sorts NaN last; it is equal to nothing, so each is its own group.
        let end = end.max(start + 1);
        // Ranks start+1 ..= end share (start + 1 + end) / 2.
        for place in &order[start..end] {
            ranks[*place] = (start + 1 + end) as u64;
        }
        let t = (end - start) as f64;
        ties += t * t * t - t;
        start = end;
    }
    (ranks, ties)
}

/// Returns the share of all groups of `hand` ranks whose sum is as far from the expected sum as
/// `sum`.
fn exact_p(ranks: &[u64], hand: usize, sum: u64) -> f64 {
    let total: u64 = ranks.iter().sum();
    let width = total as usize + 1;
    // ways[k][s]: hands of k ranks with sum s.
    let mut ways = vec![vec![0.0f64; width]; hand + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        let rank = *rank as usize;
        for k in (1..=hand).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            for s in rank..width {
                more[0][s] += fewer[k - 1][s - rank];
            }
        }
    }
    let expected = total as f64 * hand as f64 / ranks.len() as f64;
    let distance = (sum as f64 - expected).abs() - 1e-9;
    let hands: f64 = ways[hand].iter().sum();
    let as_far: f64 = ways[hand]
        .iter()
        .enumerate()
        .filter(|(s, _)| (*s as f64 - expected).abs() >= distance)
        .map(|(_, w)| w)
        .sum();
    (as_far / hands).min(1.0)
}

fn approximate_p(na: f64, nb: f64, u: f64, ties: f64) -> f64 {
    let n = na + nb;
    let variance = na * nb / 12.0 * ((n + 1.0) - ties / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - na * nb / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_r() {
        // wilcox.test(c(1.1,2.2,3.3,4.4,5.5), c(2,4,6,8,10)) in R: W = 6, p = 0.2222.
        let t = mann_whitney(&[1.1, 2.2, 3.3, 4.4, 5.5], &[2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(t.u, 19.0);
        assert!((t.p - 0.222_222).abs() < 1e-4, "{}", t.p);
        // Complete separation of 5 and 5: 2 / choose(10, 5).
        let t = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((t.p - 2.0 / 252.0).abs() < 1e-12);
        assert_eq!(t.delta, 1.0);
    }

    #[test]
    fn all_equal_is_no_difference() {
        let t = mann_whitney(&[3.0; 8], &[3.0; 8]);
        assert_eq!((t.p, t.delta), (1.0, 0.0));
        let t = mann_whitney(&[3.0; 80], &[3.0; 80]);
        assert_eq!((t.p, t.delta), (1.0, 0.0));
        assert_eq!(mann_whitney(&[], &[1.0]).p, 1.0);
    }

    #[test]
    fn ties_within_the_groups_still_tell_them_apart() {
        let t = mann_whitney(&[300.0; 5], &[329.0; 5]);
        assert!((t.p - 2.0 / 252.0).abs() < 1e-12);
    }

    #[test]
    fn false_alarms_come_as_often_as_promised() {
        let mut random = fastrand::Rng::with_seed(3);
        for n in [8, 60] {
            let alarms = (0..1000)
                .filter(|_| {
                    let a: Vec<f64> = (0..n).map(|_| random.f64()).collect();
                    let b: Vec<f64> = (0..n).map(|_| random.f64()).collect();
                    mann_whitney(&a, &b).p < 0.05
                })
                .count();
            assert!((20..=75).contains(&alarms), "{alarms} of 1000 with n = {n}");
        }
    }

    proptest! {
        #[test]
        fn symmetric(
            a in prop::collection::vec(0i32..20, 1..40), b in prop::collection::vec(0i32..20, 1..40),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let (ab, ba) = (mann_whitney(&a, &b), mann_whitney(&b, &a));
            prop_assert!((ab.p - ba.p).abs() < 1e-9);
            prop_assert!((ab.delta + ba.delta).abs() < 1e-9);
            prop_assert!((ab.u + ba.u - (a.len() * b.len()) as f64).abs() < 1e-9);
            prop_assert!((0.0..=1.0).contains(&ab.p));
            let greater: f64 = b.iter().flat_map(|b| a.iter().map(move |a| match b.total_cmp(a) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            })).sum();
            prop_assert!((ab.u - greater).abs() < 1e-9);
        }

        #[test]
        fn approximation_meets_the_exact_value(
            a in prop::collection::vec(0.0f64..1.0, 20), b in prop::collection::vec(0.2f64..1.2, 20),
        ) {
            let exact = mann_whitney(&a, &b);
            let (_, ties) = doubled_ranks(&a, &b);
            prop_assert!((approximate_p(20.0, 20.0, exact.u, ties) - exact.p).abs() < 0.02);
        }
    }
}
