//! Comparison: finds real differences, and reports none when there is none.

mod common;

use common::{clock, result, run};
use measure_data::compare::{Limits, compare, compare_runs};
use measure_data::run::{Fact, Quantity, Run};
use measure_data::{Comparison, Verdict};
use proptest::prelude::*;

/// Returns `count` rounds of 100 samples around `center`: each round has a level of its own within
/// `between`, samples scatter by `within`, and one in ten is an outlier upwards.
fn noisy(
    random: &mut fastrand::Rng,
    count: usize,
    center: f64,
    between: f64,
    within: f64,
) -> Vec<Vec<u64>> {
    let mut one_round = || {
        let level = center * (1.0 + between * (random.f64() - 0.5));
        (0..100)
            .map(|_| {
                let outlier = if random.u8(..10) == 0 { 3.0 * random.f64() } else { 0.0 };
                (level * (1.0 + within * (random.f64() - 0.5) + outlier)) as u64
            })
            .collect()
    };
    (0..count).map(|_| one_round()).collect()
}

fn compared(quantity: Quantity, a: Vec<Vec<u64>>, b: Vec<Vec<u64>>) -> Comparison {
    let clock = clock();
    let (a, b) = (result("x", quantity, a), result("x", quantity, b));
    compare((&a, &clock), (&b, &clock), &Limits::default())
}

#[test]
fn the_same_twice_is_no_difference_19_times_in_20() {
    for (between, within) in [(0.0, 0.1), (0.05, 0.1), (0.2, 0.1), (0.5, 0.5)] {
        let mut random = fastrand::Rng::with_seed(1);
        let alarms = (0..300)
            .filter(|_| {
                let a = noisy(&mut random, 10, 10_000.0, between, within);
                let b = noisy(&mut random, 10, 10_000.0, between, within);
                let verdict = compared(Quantity::Time, a, b).verdict;
                verdict == Verdict::Better || verdict == Verdict::Worse
            })
            .count();
        assert!(alarms <= 6, "{alarms} false alarms of 300 with {between}, {within}");
    }
}

#[test]
fn a_difference_of_a_tenth_is_found() {
    let mut random = fastrand::Rng::with_seed(2);
    let found = (0..100)
        .filter(|_| {
            let a = noisy(&mut random, 10, 10_000.0, 0.04, 0.1);
            let b = noisy(&mut random, 10, 11_000.0, 0.04, 0.1);
            compared(Quantity::Time, a, b).verdict == Verdict::Worse
        })
        .count();
    assert!(found >= 95, "{found} of 100");
}

#[test]
fn seven_per_cent_are_found_by_a_quick_run() {
    let mut random = fastrand::Rng::with_seed(8);
    let found = (0..100)
        .filter(|_| {
            let a = noisy(&mut random, 8, 10_000.0, 0.02, 0.1);
            let b = noisy(&mut random, 8, 10_700.0, 0.02, 0.1);
            compared(Quantity::Time, a, b).verdict == Verdict::Worse
        })
        .count();
    assert!(found >= 95, "{found} of 100");
}

/// Rounds on a machine that slowly gets slower and faster: each begins where the last one ended.
fn wandering(random: &mut fastrand::Rng, count: usize, level: &mut f64) -> Vec<Vec<u64>> {
    let mut rounds = Vec::new();
    for _ in 0..count {
        *level = (*level * (1.0 + 0.12 * (random.f64() - 0.5))).clamp(8_000.0, 14_000.0);
        rounds.extend(noisy(random, 1, *level, 0.0, 0.02));
    }
    rounds
}

#[test]
fn a_machine_that_changes_slowly_is_not_taken_for_a_difference() {
    let mut random = fastrand::Rng::with_seed(9);
    let alarms = (0..200)
        .filter(|_| {
            let mut level = 10_000.0;
            let a = wandering(&mut random, 8, &mut level);
            let b = wandering(&mut random, 8, &mut level);
            let verdict = compared(Quantity::Time, a, b).verdict;
            verdict == Verdict::Better || verdict == Verdict::Worse
        })
        .count();
    // Without the comparison of the halves there would be a hundred.
    assert!(alarms <= 40, "{alarms} of 200");
}

#[test]
fn one_pass_claims_nothing_of_samples_that_scatter() {
    // Within one process the samples hardly scatter, but the next process has another level.
    let level = |center: u64| vec![(0..40).map(|i| center + i % 30).collect::<Vec<u64>>()];
    let verdict = compared(Quantity::Time, level(10_000), level(13_000)).verdict;
    assert_eq!(verdict, Verdict::TooNoisy);
}

#[test]
fn five_passes_of_a_quick_run_suffice_for_a_clear_difference() {
    let mut random = fastrand::Rng::with_seed(3);
    let a = noisy(&mut random, 5, 10_000.0, 0.02, 0.05);
    let b = noisy(&mut random, 5, 13_000.0, 0.02, 0.05);
    assert_eq!(compared(Quantity::Time, a.clone(), b.clone()).verdict, Verdict::Worse);
    assert_eq!(compared(Quantity::Time, b, a).verdict, Verdict::Better);
}

#[test]
fn few_passes_claim_only_what_is_beyond_doubt() {
    // Three rounds differ from three others by chance one time in ten.
    let mut random = fastrand::Rng::with_seed(6);
    let alarms = (0..200)
        .filter(|_| {
            let a = noisy(&mut random, 3, 10_000.0, 0.4, 0.05);
            let b = noisy(&mut random, 3, 10_000.0, 0.4, 0.05);
            let verdict = compared(Quantity::Time, a, b).verdict;
            verdict == Verdict::Better || verdict == Verdict::Worse
        })
        .count();
    assert!(alarms <= 4, "{alarms} of 200");
    // For almost exact samples, such as instruction counts, one pass shows a difference of a tenth.
    let near = |center: u64| vec![(0..10).map(|i| center + i % 3).collect::<Vec<u64>>()];
    assert_eq!(compared(Quantity::Time, near(10_000), near(9_000)).verdict, Verdict::Better);
}

#[test]
fn less_is_better_for_time_and_more_for_bandwidth() {
    let (few, many) = (vec![vec![1000; 5]; 5], vec![vec![2000; 5]; 5]);
    assert_eq!(compared(Quantity::Time, few.clone(), many.clone()).verdict, Verdict::Worse);
    // Twice the ticks for the same bytes is half the bandwidth.
    assert_eq!(compared(Quantity::Bandwidth, few, many).verdict, Verdict::Worse);
}

#[test]
fn exact_samples_need_no_statistics() {
    let a = vec![vec![1000; 5]];
    let one_more = compared(Quantity::Time, a.clone(), vec![vec![1001; 5]]);
    assert!(one_more.exact);
    assert_eq!(one_more.verdict, Verdict::Worse);
    let equal = compared(Quantity::Time, a.clone(), a);
    assert_eq!((equal.verdict, equal.ratio), (Verdict::NoDifference, 1.0));
}

#[test]
fn a_neighbour_that_disturbs_one_run_is_no_regression() {
    // Run B is disturbed nine times in ten by a third; its floor is that of A.
    let mut random = fastrand::Rng::with_seed(4);
    let a = noisy(&mut random, 10, 10_000.0, 0.02, 0.02);
    let mut b = noisy(&mut random, 10, 10_000.0, 0.02, 0.02);
    for round in &mut b {
        let len = round.len();
        for sample in round.iter_mut().take(len * 8 / 10) {
            *sample = *sample * 4 / 3;
        }
    }
    let verdict = compared(Quantity::Time, a, b).verdict;
    assert_eq!(verdict, Verdict::TooNoisy);
}

/// Returns rounds on a machine that other work keeps busy: half of the samples, and in some rounds
/// nearly all, take up to four times as long; the others scatter little.
fn busy(random: &mut fastrand::Rng, count: usize, center: f64) -> Vec<Vec<u64>> {
    let mut one_round = || {
        let share = 0.2 + 0.7 * random.f64();
        (0..60)
            .map(|_| {
                let disturbed = if random.f64() < share { 3.0 * random.f64() } else { 0.0 };
                (center * (1.0 + 0.02 * random.f64() + disturbed)) as u64
            })
            .collect()
    };
    (0..count).map(|_| one_round()).collect()
}

#[test]
fn the_same_twice_on_a_busy_machine_is_no_difference_19_times_in_20() {
    let mut random = fastrand::Rng::with_seed(7);
    let count = |verdict: Verdict, random: &mut fastrand::Rng, factor: f64| {
        (0..40)
            .filter(|_| {
                let a = busy(random, 6, 10_000.0);
                let b = busy(random, 6, 10_000.0 * factor);
                compared(Quantity::Time, a, b).verdict == verdict
            })
            .count()
    };
    let none = count(Verdict::NoDifference, &mut random, 1.0);
    assert!(none >= 38, "{none} of 40");
    // A result that is a fifth slower must still not be called the same.
    let none = count(Verdict::NoDifference, &mut random, 1.2);
    assert!(none <= 1, "{none} of 40 called the same");
}

#[test]
fn wild_samples_are_too_noisy_to_tell() {
    let mut random = fastrand::Rng::with_seed(5);
    let a = noisy(&mut random, 5, 10_000.0, 1.5, 0.5);
    let b = noisy(&mut random, 5, 14_000.0, 1.5, 0.5);
    assert_eq!(compared(Quantity::Time, a, b).verdict, Verdict::TooNoisy);
}

#[test]
fn runs_are_matched_by_name() {
    let exact = |name: &str, quantity| result(name, quantity, vec![vec![10; 3]]);
    let mut a = run(vec![
        exact("both", Quantity::Time),
        exact("gone", Quantity::Time),
        exact("changed", Quantity::Time),
    ]);
    let mut b = run(vec![
        exact("both", Quantity::Time),
        exact("new", Quantity::Time),
        exact("changed", Quantity::Bandwidth),
    ]);
    let fact =
        |value: &str| Fact { group: "kernel".into(), name: "release".into(), value: value.into() };
    a.machine.facts.push(fact("6.1"));
    b.machine.facts.push(fact("6.2"));
    let c = compare_runs(&a, &b, &Limits::default());
    assert_eq!(c.results.len(), 1);
    assert_eq!((c.only_a, c.only_b), (vec!["gone".into()], vec!["new".into()]));
    assert_eq!(c.changed_meaning, ["changed"]);
    assert_eq!(c.facts, [("kernel release".into(), "6.1".into(), "6.2".into())]);
}

#[test]
fn joined_runs_have_the_rounds_of_all() {
    let one = run(vec![result("x", Quantity::Time, vec![vec![10; 3]; 2])]);
    let mut two = run(vec![
        result("x", Quantity::Time, vec![vec![20; 3]; 2]),
        result("y", Quantity::Time, vec![vec![1; 3]]),
    ]);
    let joined = Run::join(&[one.clone(), two.clone()]).unwrap();
    assert_eq!(joined.results.len(), 1);
    assert_eq!(joined.results[0].rounds.len(), 4);
    assert_eq!(joined.results[0].summary.median, 15.0);
    two.clock.ticks_per_second = 1.04e9;
    let converted = Run::join(&[one.clone(), two.clone()]).unwrap();
    assert_eq!(converted.results[0].rounds[2], [19; 3], "20 ticks of a clock that is 4 % faster");
    two.clock.ticks_per_second = 2e9;
    assert_eq!(Run::join(&[one, two]), None);
    assert_eq!(Run::join(&[]), None);
}

proptest! {
    #[test]
    fn nothing_breaks_on_any_samples(
        a in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..6), 1..8),
        b in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..6), 1..8),
        time in any::<bool>(),
    ) {
        let quantity = if time { Quantity::Time } else { Quantity::Bandwidth };
        let c = compared(quantity, a, b);
        prop_assert!(!c.ratio.is_nan() && !c.p.is_nan() && (0.0..=1.0).contains(&c.p));
    }

    #[test]
    fn swapping_the_runs_swaps_the_verdict(seed in 0u64..50, shift in 0.7f64..1.4) {
        let mut random = fastrand::Rng::with_seed(seed);
        let a = noisy(&mut random, 8, 10_000.0, 0.03, 0.05);
        let b = noisy(&mut random, 8, 10_000.0 * shift, 0.03, 0.05);
        let there = compared(Quantity::Time, a.clone(), b.clone()).verdict;
        let back = compared(Quantity::Time, b, a).verdict;
        let claimed = [Verdict::Better, Verdict::Worse];
        if claimed.contains(&there) && claimed.contains(&back) {
            prop_assert!(there != back);
        }
    }
}
