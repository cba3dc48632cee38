//! Quantiles by linear interpolation (type 7 of Hyndman and Fan, The American Statistician
//! 50(4), 1996), the default of R and NumPy, so that others can check our numbers.

/// A sorted copy of `values`.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    v
}

/// The quantile `q` (clamped to 0..=1) of values in ascending order; 0 for no values.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let fraction = position - below as f64;
    sorted[below] + (sorted[above] - sorted[below]) * fraction
}

/// The quantile `q` of values in any order; 0 for no values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    quantile_of_sorted(&sorted(values), q)
}

/// The median of values in any order, found without sorting all of them; 0 for no values.
pub fn median(values: &mut [f64]) -> f64 {
    let n = values.len();
    if n == 0 {
        return 0.0;
    }
    let (low, middle, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    let upper = *middle;
    if n % 2 == 1 {
        return upper;
    }
    let lower = low.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    lower + (upper - lower) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_r() {
        // quantile(c(1,2,4,8,16), c(.05,.25,.5,.95)) in R.
        let v = [16.0, 1.0, 4.0, 2.0, 8.0];
        for (q, want) in [(0.05, 1.2), (0.25, 2.0), (0.5, 4.0), (0.95, 14.4)] {
            assert!((quantile(&v, q) - want).abs() < 1e-12);
        }
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(median(&mut []), 0.0);
    }

    proptest! {
        #[test]
        fn median_is_the_middle_quantile(mut v in prop::collection::vec(-1e9f64..1e9, 1..200)) {
            let by_sorting = quantile(&v, 0.5);
            let selected = median(&mut v);
            prop_assert!((selected - by_sorting).abs() <= 1e-6);
        }

        #[test]
        fn quantiles_ascend_and_stay_inside(
            v in prop::collection::vec(-1e9f64..1e9, 1..100), a in 0.0f64..1.0, b in 0.0f64..1.0,
        ) {
            let s = sorted(&v);
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(quantile_of_sorted(&s, low) <= quantile_of_sorted(&s, high));
            prop_assert!(quantile_of_sorted(&s, low) >= s[0]);
            prop_assert!(quantile_of_sorted(&s, high) <= s[s.len() - 1]);
        }
    }
}
