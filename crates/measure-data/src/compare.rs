//! Comparing two runs, result by result.
//!
//! A difference is claimed only when every one of these holds:
//!
//! 1. the Mann-Whitney test is significant at [`Limits::alpha`]. It uses the medians of the rounds
//!    where both sides have at least [`ROUNDS_FOR_TEST`] (rounds are independent, samples are not).
//!    With fewer rounds it uses all samples, and then the ranges of the samples (5th to 95th
//!    percentile) of the two sides must also lie further apart than either is wide. With fewer than
//!    [`ROUNDS_TO_CLAIM`] the variation between rounds is unknown, and only samples almost without
//!    scatter, such as counts of instructions, show a difference;
//! 2. Cliff's delta of all samples is at least small-to-medium (0.33);
//! 3. the medians differ by more than [`Limits::threshold`], and the 95 % interval of their ratio
//!    does not contain 1;
//! 4. the least disturbed tenth of the samples shows at least half of the difference in the same
//!    direction: a neighbour on the machine moves the median, but not the floor;
//! 5. the medians differ by more than twice the difference between the first and the second half of
//!    the rounds of either side: a machine that changes during a run changes between two runs as
//!    well.
//!
//! If one of these fails, the verdict is "no difference" in any of these cases: the medians and the
//! least disturbed tenths both agree within the threshold; the ratio's interval is narrow and
//! neither the medians nor these tenths are further apart than twice the threshold; the whole
//! interval lies within twice the threshold; or, on a busy machine, the least disturbed tenths
//! agree within the threshold and the test or the interval of the medians' ratio allows equality.
//! Otherwise the verdict is "too noisy": neither a difference nor its absence can be claimed. A
//! real difference moves the floor as well, and so is never reported as none.
//!
//! Samples without any scatter, as in instruction-count mode, are exact: any difference between
//! them is a difference, and equality proves that there is none.

use crate::run::{Clock, Measurement, Quantity, Run};
use crate::statistics::{EffectSize, Interval, mann_whitney, median, quantile, ratio_interval};

/// With at least so many rounds on each side, the test uses the medians of the rounds.
pub const ROUNDS_FOR_TEST: usize = 5;
/// With at least so many rounds on each side, samples that scatter can show a difference.
pub const ROUNDS_TO_CLAIM: usize = 3;
/// The scatter (5th to 95th percentile) up to which fewer rounds suffice.
const ALMOST_EXACT: f64 = 0.001;
/// If the ratio's interval is wider than this to either side, the result is too noisy.
const WIDEST: f64 = 0.25;
const LEAST_DELTA: f64 = 0.33;

/// The limits that define a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Largest p-value.
    pub alpha: f64,
    /// Smallest relative difference that matters.
    pub threshold: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { alpha: 0.01, threshold: 0.05 }
    }
}

/// The verdict of comparing one result of B with A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// There is no difference that matters.
    NoDifference,
    /// The samples scatter too much to tell.
    TooNoisy,
}

impl Verdict {
    /// The words as printed.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::TooNoisy => "too noisy to tell",
        }
    }
}

/// One result compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The result's name.
    pub name: String,
    /// Its quantity.
    pub quantity: Quantity,
    /// Median in A.
    pub a: f64,
    /// Median in B.
    pub b: f64,
    /// B / A; 1 when both are 0.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub interval: Interval,
    /// p-value of the Mann-Whitney test.
    pub p: f64,
    /// Cliff's delta of the samples.
    pub delta: f64,
    /// Its size in a word.
    pub effect: EffectSize,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the samples of both sides have no scatter at all.
    pub exact: bool,
}

/// Two runs compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunComparison {
    /// Results that both runs have, in the order of A.
    pub results: Vec<Comparison>,
    /// Results that only A has.
    pub only_a: Vec<String>,
    /// Results that only B has.
    pub only_b: Vec<String>,
    /// Results whose meaning changed between the runs.
    pub changed_meaning: Vec<String>,
    /// Facts about the machine that differ: group and name, A, B.
    pub facts: Vec<(String, String, String)>,
}

impl RunComparison {
    /// How many results have `verdict`.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.results.iter().filter(|c| c.verdict == verdict).count()
    }
}

/// Compares run `b` with run `a`.
pub fn compare_runs(a: &Run, b: &Run, limits: &Limits) -> RunComparison {
    let mut out = RunComparison::default();
    for result in &a.results {
        match b.result(&result.name) {
            None => out.only_a.push(result.name.clone()),
            Some(other) if other.quantity != result.quantity || other.title != result.title => {
                out.changed_meaning.push(result.name.clone());
            }
            Some(other) => {
                out.results.push(compare((result, &a.clock), (other, &b.clock), limits));
            }
        }
    }
    out.only_b
        .extend(b.results.iter().filter(|r| a.result(&r.name).is_none()).map(|r| r.name.clone()));
    for fact in &a.machine.facts {
        let other = b.machine.fact(&fact.group, &fact.name).unwrap_or("not known");
        if other != fact.value {
            let name = format!("{} {}", fact.group, fact.name);
            out.facts.push((name, fact.value.clone(), other.to_owned()));
        }
    }
    out
}

/// Compares one result of two runs.
pub fn compare(
    a: (&Measurement, &Clock),
    b: (&Measurement, &Clock),
    limits: &Limits,
) -> Comparison {
    let rounds_a = a.0.values(a.1);
    let rounds_b = b.0.values(b.1);
    let (all_a, all_b) = (rounds_a.concat(), rounds_b.concat());
    let median_a = median(&mut all_a.clone());
    let median_b = median(&mut all_b.clone());
    let ratio = ratio_of(median_a, median_b);
    let interval = ratio_interval(&rounds_a, &rounds_b);
    let samples = mann_whitney(&all_a, &all_b);
    let (centers_a, centers_b) = (centers(&rounds_a), centers(&rounds_b));
    let (p, doubtful) = significance((&centers_a, &all_a), (&centers_b, &all_b), samples.p);
    let drift = drift(&centers_a).max(drift(&centers_b));
    let exact = scatterless(&all_a) && scatterless(&all_b);
    let quantity = a.0.quantity;
    let floor = floor_ratio(quantity, &all_a, &all_b);
    let limit = (1.0 + limits.threshold).ln();
    let differs = if exact {
        median_a != median_b
    } else {
        let beyond =
            |r: f64, limit: f64| if ratio >= 1.0 { r.ln() > limit } else { r.ln() < -limit };
        p < limits.alpha
            && !doubtful
            && samples.delta.abs() >= LEAST_DELTA
            && beyond(ratio, limit.max(2.0 * drift))
            && !interval.contains(1.0)
            && beyond(floor, limit / 2.0)
            && (median_b - median_a).abs() > resolution(a).max(resolution(b))
    };
    let agree = ratio.ln().abs() <= limit && floor.ln().abs() <= limit;
    let wide = interval.high > ratio * (1.0 + WIDEST) || interval.low < ratio * (1.0 - WIDEST);
    let unopposed = p >= limits.alpha || interval.contains(1.0);
    let floors_agree = floor.ln().abs() <= limit && unopposed;
    let apart = wide || ratio.ln().abs() > 2.0 * limit || floor.ln().abs() > 2.0 * limit;
    let tight = -interval.low.ln() <= 2.0 * limit && interval.high.ln() <= 2.0 * limit;
    let too_noisy = !exact && !agree && !floors_agree && !tight && apart;
    let verdict = match (differs, (ratio < 1.0) == (quantity == Quantity::Time)) {
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
        (false, _) if too_noisy => Verdict::TooNoisy,
        (false, _) => Verdict::NoDifference,
    };
    Comparison {
        name: a.0.name.clone(),
        quantity,
        a: median_a,
        b: median_b,
        ratio,
        interval,
        p,
        delta: samples.delta,
        effect: EffectSize::of(samples.delta),
        verdict,
        exact,
    }
}

/// Returns p, and whether a difference is not to be claimed on it: of few rounds only what lies
/// beyond all doubt is. Each side is the centers of its rounds and all its samples; `of_samples` is
/// p where there are too few rounds for a test over them.
fn significance(a: (&[f64], &[f64]), b: (&[f64], &[f64]), of_samples: f64) -> (f64, bool) {
    let rounds = a.0.len().min(b.0.len());
    let enough = rounds >= ROUNDS_FOR_TEST;
    let p = if enough { mann_whitney(a.0, b.0).p } else { of_samples };
    let doubtful = !enough && !far_apart(a.1, b.1)
        || rounds < ROUNDS_TO_CLAIM && !(almost_exact(a.1) && almost_exact(b.1));
    (p, doubtful)
}

fn ratio_of(a: f64, b: f64) -> f64 {
    if a == b {
        1.0
    } else if a > 0.0 {
        b / a
    } else {
        f64::MAX
    }
}

fn centers(rounds: &[Vec<f64>]) -> Vec<f64> {
    rounds.iter().filter(|r| !r.is_empty()).map(|r| median(&mut r.clone())).collect()
}

/// Whether the gap between the middle nine tenths of two sets of samples is wider than either of
/// these ranges.
fn far_apart(a: &[f64], b: &[f64]) -> bool {
    let range = |v: &[f64]| (quantile(v, 0.05), quantile(v, 0.95));
    let ((low_a, high_a), (low_b, high_b)) = (range(a), range(b));
    let gap = (low_b - high_a).max(low_a - high_b);
    gap > (high_a - low_a).max(high_b - low_b)
}

/// How much the second half of the rounds differs from the first, as a logarithm.
fn drift(centers: &[f64]) -> f64 {
    let (first, second) = centers.split_at(centers.len() / 2);
    if first.is_empty() {
        return 0.0;
    }
    ratio_of(median(&mut first.to_vec()), median(&mut second.to_vec())).ln().abs()
}

fn almost_exact(values: &[f64]) -> bool {
    quantile(values, 0.95) - quantile(values, 0.05) <= ALMOST_EXACT * quantile(values, 0.5)
}

fn scatterless(values: &[f64]) -> bool {
    values.len() > 1 && values.iter().all(|v| *v == values[0])
}

/// Returns the ratio of the least disturbed tenths: short times, high bandwidths.
fn floor_ratio(quantity: Quantity, a: &[f64], b: &[f64]) -> f64 {
    let q = match quantity {
        Quantity::Time => 0.1,
        Quantity::Bandwidth => 0.9,
    };
    ratio_of(quantile(a, q), quantile(b, q))
}

/// Returns the smallest difference of a time that the clock can resolve, per operation.
fn resolution((result, clock): (&Measurement, &Clock)) -> f64 {
    match result.quantity {
        Quantity::Time => clock.resolution_ticks / clock.ticks_per_second * 1e9 / result.work,
        Quantity::Bandwidth => 0.0,
    }
}
