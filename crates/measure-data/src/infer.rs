//! Capacities from a latency curve.
//!
//! Latency over the size of the walked memory is a staircase: flat while a level holds all of it,
//! rising where it no longer does. The capacity is read at the foot of the steep part: the last
//! measured size before the latency passes the geometric mean of the two flat parts. A cache that
//! is indexed by physical addresses, or shared with neighbours, fills up unevenly and its rise
//! begins early. The mean is still reached near its capacity, while the first size with any
//! slowdown is not.
//!
//! Road not taken: fitting a model of associativity and replacement. It needs parameters that
//! differ by vendor, and then only infers its own assumptions.

/// A point of a curve: size and latency.
pub type Point = (f64, f64);

/// Rises steeper than this (relative growth of latency per relative growth of size) count.
const STEEP: f64 = 0.4;
/// Rises that end less than this factor above their start are noise.
const LEAST_RISE: f64 = 1.4;

/// The sizes after which latency rises, in ascending order: the capacities of the levels.
/// `curve` must be in ascending order of size; points that are not positive are ignored.
pub fn capacities(curve: &[Point]) -> Vec<f64> {
    let mut points: Vec<Point> =
        curve.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0).collect();
    // No larger array is faster: a point that is slower than a later one was disturbed.
    let mut least = f64::INFINITY;
    for (_, latency) in points.iter_mut().rev() {
        least = least.min(*latency);
        *latency = least;
    }
    let slopes: Vec<f64> =
        points.windows(2).map(|w| (w[1].1 / w[0].1).ln() / (w[1].0 / w[0].0).ln()).collect();
    rises(&slopes)
        .into_iter()
        .filter(|(from, to)| points[*to].1 / points[*from].1 >= LEAST_RISE)
        .filter_map(|(from, to)| {
            let middle = (points[from].1 * points[to].1).sqrt();
            let before = points[from..=to].iter().take_while(|p| p.1 <= middle).last();
            before.map(|p| p.0)
        })
        .collect()
}

/// Returns the distance at which `pairs` (distance, latency) first cost clearly more than the
/// shortest distance: the line size.
pub fn line_size(pairs: &[Point]) -> Option<f64> {
    let (first, last) = (pairs.first()?, pairs.last()?);
    if last.1 < first.1 * 1.15 {
        return None;
    }
    let limit = first.1 + (last.1 - first.1) * 0.4;
    pairs.iter().find(|p| p.1 > limit).map(|p| p.0)
}

/// Whether an inferred and a reported capacity agree within one step of half a doubling, which is
/// the precision of a rise's position.
pub fn agree(inferred: f64, reported: f64) -> bool {
    let ratio = inferred / reported;
    (1.0 / std::f64::consts::SQRT_2 * 0.99..=std::f64::consts::SQRT_2 * 1.01).contains(&ratio)
}

/// Returns first and last point of every rise: stretches of steep slopes, split where a stretch
/// flattens to less than half of the steepest on both sides.
fn rises(slopes: &[f64]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < slopes.len() {
        if slopes[at] < STEEP {
            at += 1;
            continue;
        }
        let end = (at..slopes.len()).find(|i| slopes[*i] < STEEP).unwrap_or(slopes.len());
        part(slopes, at, end, &mut found);
        at = end;
    }
    found
}

fn part(slopes: &[f64], from: usize, to: usize, found: &mut Vec<(usize, usize)>) {
    let steepest = |s: &[f64]| s.iter().copied().fold(0.0, f64::max);
    let valley = (from + 1..to.saturating_sub(1)).find(|i| {
        let (left, right) = (steepest(&slopes[from..*i]), steepest(&slopes[*i + 1..to]));
        let flattest = slopes[from + 1..to - 1].iter().copied().fold(f64::INFINITY, f64::min);
        slopes[*i] == flattest && slopes[*i] < left.min(right) / 2.0
    });
    match valley {
        Some(valley) => {
            part(slopes, from, valley, found);
            part(slopes, valley, to, found);
        }
        None => found.push((from, to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const K: f64 = 1024.0;
    const M: f64 = 1024.0 * 1024.0;

    fn grid() -> Vec<f64> {
        let mut sizes = Vec::new();
        let mut power = K;
        while power <= 128.0 * M {
            sizes.extend([4.0, 5.0, 6.0, 7.0].map(|s| power / 4.0 * s));
            power *= 2.0;
        }
        sizes
    }

    /// Returns the latency at `size` with caches of the given capacities: beyond a capacity the
    /// share `keep` is kept, as random replacement would, and the rest is lost.
    fn latency(size: f64, caches: &[(f64, f64)], memory: f64, keep: f64) -> f64 {
        let mut rest = 1.0;
        let mut sum = 0.0;
        for (capacity, cost) in caches {
            let share = if size <= *capacity { 1.0 } else { keep * capacity / size };
            let held = (share - (1.0 - rest)).clamp(0.0, rest);
            sum += held * cost;
            rest -= held;
        }
        sum + rest * memory
    }

    #[test]
    fn known_machines() {
        for caches in [
            vec![(32.0 * K, 1.1), (1.0 * M, 3.8), (32.0 * M, 14.0)],
            vec![(48.0 * K, 1.2), (1.25 * M, 3.5), (24.0 * M, 20.0)],
            vec![(32.0 * K, 1.3), (256.0 * K, 3.6), (8.0 * M, 12.0)],
            vec![(32.0 * K, 1.3), (512.0 * K, 4.0)],
        ] {
            for keep in [0.0, 0.3, 0.8] {
                let curve: Vec<Point> =
                    grid().into_iter().map(|s| (s, latency(s, &caches, 100.0, keep))).collect();
                let found = capacities(&curve);
                assert_eq!(found.len(), caches.len(), "{caches:?} keep {keep}: {found:?}");
                for (found, (capacity, _)) in found.iter().zip(&caches) {
                    assert!(agree(*found, *capacity), "{caches:?} keep {keep}: {found}");
                }
            }
        }
    }

    #[test]
    fn a_flat_curve_has_no_levels() {
        let flat: Vec<Point> = grid().into_iter().map(|s| (s, 1.0)).collect();
        assert!(capacities(&flat).is_empty());
        assert!(capacities(&[]).is_empty());
        assert_eq!(line_size(&[]), None);
        assert_eq!(line_size(&[(8.0, 5.0), (256.0, 5.1)]), None);
    }

    #[test]
    fn line() {
        let pairs = [(8.0, 5.0), (16.0, 5.1), (32.0, 4.9), (64.0, 7.7), (128.0, 7.6), (256.0, 7.8)];
        assert_eq!(line_size(&pairs), Some(64.0));
    }

    proptest! {
        #[test]
        fn noise_of_a_few_per_cent_and_disturbed_points_do_not_mislead(
            seed in 0u64..1000, hit in 0usize..60,
        ) {
            let caches = [(32.0 * K, 1.1), (1.0 * M, 3.8), (16.0 * M, 14.0)];
            let mut random = fastrand::Rng::with_seed(seed);
            let mut curve: Vec<Point> = grid()
                .into_iter()
                .map(|s| {
                    let exact = latency(s, &caches, 100.0, 0.3);
                    (s, exact * (1.0 + 0.02 * (random.f64() - 0.5)))
                })
                .collect();
            curve[hit].1 *= 2.0;
            let found = capacities(&curve);
            prop_assert!(found.len() >= 2);
            // The first two levels are found; the last rise may be disturbed.
            prop_assert!(agree(found[0], caches[0].0) || hit < 30, "{:?}", found);
        }

        #[test]
        fn any_curve_is_survived(v in prop::collection::vec((-1e9f64..1e9, -1e9f64..1e9), 0..40)) {
            let mut v = v;
            v.sort_by(|a, b| a.0.total_cmp(&b.0));
            for capacity in capacities(&v) {
                prop_assert!(capacity > 0.0);
            }
            line_size(&v);
        }
    }
}
