//! The result of a run of the suite: the JSON format.
//!
//! Raw samples are whole clock ticks per sample, exactly as read; everything else can be computed
//! from them. [`Measurement::values`] turns ticks into nanoseconds per operation or bytes per
//! second.

use crate::statistics::Summary;
use crate::units;
use serde::{Deserialize, Serialize};

/// The value of [`Run::format`]; a file without it is not ours.
pub const FORMAT: &str = "hayate-measure";
/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 1;

/// One run of the suite on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`] in a run of this crate.
    pub version: u32,
    /// Which suite measured.
    pub suite: Suite,
    /// A name for the run, shown in comparisons and reports.
    pub label: String,
    /// Seconds since 1970 at the start; 0 without a wall clock.
    pub started: u64,
    /// How long the run took, in seconds.
    pub seconds: f64,
    /// Whether the run came to its end.
    pub completion: Completion,
    /// How it was measured.
    pub settings: Settings,
    /// Where it was measured.
    pub machine: Machine,
    /// The clock that counted the ticks.
    pub clock: Clock,
    /// The measured costs that the predictions use.
    pub primitives: Vec<Primitive>,
    /// The measurements.
    pub results: Vec<Measurement>,
    /// The experiments that were not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Properties of the hardware that the curves show.
    pub inferred: Vec<Inferred>,
}

/// The suite itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// Version of the `measure` binary.
    pub version: String,
    /// SHA-256 of the binary in hexadecimal, where it could be read.
    pub binary_sha256: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completion {
    /// Every requested experiment was measured, or skipped with a reason.
    Complete,
    /// The run was stopped; it contains the measurements up to then.
    Interrupted,
}

/// The switches of a run that influence its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Shorter run with wider intervals.
    pub quick: bool,
    /// Passes over the suite: the number of rounds of every result, at least.
    pub passes: u32,
    /// Fixed number of samples per round, for runs that must not depend on time.
    pub iterations: Option<u32>,
    /// Time that one experiment may take, in seconds.
    pub seconds: f64,
    /// The processor that the measuring process was pinned to.
    pub cpu: Option<u32>,
}

/// The fingerprint of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Facts in the order to show them.
    pub facts: Vec<Fact>,
    /// The data caches that the machine reports, innermost first.
    pub caches: Vec<Cache>,
}

impl Machine {
    /// The value of the fact `name` in `group`, if it is known.
    pub fn fact(&self, group: &str, name: &str) -> Option<&str> {
        self.facts.iter().find(|f| f.group == group && f.name == name).map(|f| f.value.as_str())
    }
}

/// One line of a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The subject of the fact: `cpu`, `memory`, `disk`, ...
    pub group: String,
    /// Its name within the group.
    pub name: String,
    /// Its value, for people.
    pub value: String,
}

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is nearest to the processor.
    pub level: u32,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Line size in bytes.
    pub line: u64,
    /// Where this was read.
    pub source: String,
}

/// The clock that measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// `tsc` or `monotonic`.
    pub name: String,
    /// Ticks in one second.
    pub ticks_per_second: f64,
    /// Ticks between two readings with nothing between them (median), subtracted.
    pub overhead_ticks: f64,
    /// The smallest difference above zero that was seen between two readings.
    pub resolution_ticks: f64,
}

/// A measured building block of predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Primitive {
    /// Its name, as terms refer to it.
    pub name: String,
    /// Its cost in nanoseconds.
    pub ns: f64,
    /// How it was measured.
    pub method: String,
}

/// The meaning of a result's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Nanoseconds per operation; less is better.
    Time,
    /// Bytes per second; more is better.
    Bandwidth,
}

/// One measured result with its prediction and its raw samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Path-like name, `area/subject/detail`.
    pub name: String,
    /// A description of the measurement, in words.
    pub title: String,
    /// How it was measured.
    pub method: String,
    /// The meaning of [`Measurement::values`].
    pub quantity: Quantity,
    /// Operations (or bytes) in one sample.
    pub work: f64,
    /// Ticks subtracted from every sample: the timer, and the loop if the method says so.
    pub subtracted_ticks: f64,
    /// The place on a curve, for results that belong to one.
    pub axis: Option<Axis>,
    /// The prediction.
    pub prediction: Option<Prediction>,
    /// A note that a reader needs to judge the number, if there is one.
    pub note: Option<String>,
    /// Raw ticks of every sample, one list for each round.
    pub rounds: Vec<Vec<u64>>,
    /// Statistics of the values; a reader can compute them again.
    pub summary: Summary,
}

/// A point's place on a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Points of one series are joined by a line.
    pub series: String,
    /// The position.
    pub x: f64,
    /// The unit of the position: `bytes`, `processes`, ...
    pub unit: String,
}

/// The estimate of a result before it is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// In the quantity of the result: nanoseconds per operation or bytes per second.
    pub value: f64,
    /// The sum it came from; nanoseconds per operation or per byte.
    pub terms: Vec<Term>,
}

/// One addend of a prediction: `count` times a measured primitive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Base hardware cost or estimated software cost.
    pub kind: TermKind,
    /// How often.
    pub count: f64,
    /// The primitive's name.
    pub primitive: String,
    /// The primitive's measured cost in nanoseconds.
    pub each_ns: f64,
    /// Why it is needed that often.
    pub why: String,
}

/// Whether a term is the hardware's or the software's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TermKind {
    /// The cost of the machine without any software.
    Hardware,
    /// The estimated cost of the operating system's work.
    Software,
}

/// An experiment that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why, and where possible what to do.
    pub reason: String,
}

/// A property of the hardware that a curve shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inferred {
    /// What: `L1 data cache`, `cache line`, ...
    pub what: String,
    /// The inferred value.
    pub value: f64,
    /// Its unit: `bytes` or `pages`.
    pub unit: String,
    /// The value that the machine reports, if it does.
    pub reported: Option<f64>,
    /// Whether the two agree within the resolution of the curve.
    pub agrees: Option<bool>,
}

/// A prediction that is off by more than this factor is highlighted.
pub const FAR_OFF: f64 = 3.0;

impl Measurement {
    /// Returns the values of every round: nanoseconds per operation, or bytes per second.
    ///
    /// A sample that is no longer than the ticks to be subtracted counts as 0 ns; for a bandwidth
    /// it counts as half a tick, so that values stay finite.
    pub fn values(&self, clock: &Clock) -> Vec<Vec<f64>> {
        let ns_per_tick = 1e9 / clock.ticks_per_second;
        let value = |ticks: u64| {
            let ticks = ticks as f64 - self.subtracted_ticks;
            match self.quantity {
                Quantity::Time => ticks.max(0.0) * ns_per_tick / self.work,
                Quantity::Bandwidth => self.work / (ticks.max(0.5) * ns_per_tick) * 1e9,
            }
        };
        self.rounds.iter().map(|r| r.iter().map(|t| value(*t)).collect()).collect()
    }

    /// Returns the measured value divided by the predicted one.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.summary.median / self.prediction.as_ref()?.value)
    }

    /// Whether the prediction is off by more than a factor of [`FAR_OFF`].
    pub fn mispredicted(&self) -> bool {
        self.ratio().is_some_and(|ratio| !(1.0 / FAR_OFF..=FAR_OFF).contains(&ratio))
    }

    /// The part of the name before the first slash.
    pub fn area(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }
}

impl Inferred {
    /// Returns a sentence with the inferred value, the one that `machine` reports, and whether they
    /// agree.
    pub fn sentence(&self, machine: &Machine) -> String {
        let show = |v: f64| {
            if self.unit == "bytes" { units::size(v) } else { format!("{v:.0} {}", self.unit) }
        };
        let virtualised = machine.fact("cpu", "hypervisor").is_some_and(|h| h != "none");
        let reported = match (self.reported, self.agrees) {
            (Some(r), Some(true)) => format!("; the machine reports {}: they agree", show(r)),
            (Some(r), _) if virtualised && self.value < r => format!(
                "; the machine reports {}: they differ, as in a virtual machine neighbours take \
                 their share",
                show(r)
            ),
            (Some(r), _) => format!("; the machine reports {}: they differ", show(r)),
            (None, _) => "; the machine reports none".into(),
        };
        format!("{}: {} by the curve{reported}", self.what, show(self.value))
    }
}

impl Run {
    /// The result called `name`.
    pub fn result(&self, name: &str) -> Option<&Measurement> {
        self.results.iter().find(|r| r.name == name)
    }

    /// Joins runs of the same suite on the same system into one: the rounds of each result are
    /// appended to each other, as when a comparison boots two systems in turn. Results that are not
    /// in every run are left out; machine and clock are those of the first run.
    ///
    /// If a clock runs up to a tenth faster or slower than the first (on a busy host a guest's
    /// calibration is wrong by some per cent), its ticks are converted to the first's.
    ///
    /// Returns `None` for an empty list, and if clocks differ by more or a result changes its
    /// meaning from run to run, because ticks cannot be pooled then.
    pub fn join(runs: &[Run]) -> Option<Run> {
        let (first, rest) = runs.split_first()?;
        let mut joined = first.clone();
        for run in rest {
            let ratio = run.clock.ticks_per_second / first.clock.ticks_per_second;
            if !(0.9..=1.1).contains(&ratio) {
                return None;
            }
            let steady = (0.99..=1.01).contains(&ratio);
            let converted = |ticks: &u64| {
                if steady { *ticks } else { (*ticks as f64 / ratio).round() as u64 }
            };
            joined.results.retain(|r| run.result(&r.name).is_some());
            for result in &mut joined.results {
                let Some(other) = run.result(&result.name) else { continue };
                if other.quantity != result.quantity || other.work != result.work {
                    return None;
                }
                let rounds = other.rounds.iter();
                result.rounds.extend(rounds.map(|round| round.iter().map(converted).collect()));
            }
            joined.seconds += run.seconds;
        }
        for result in &mut joined.results {
            result.summary = Summary::of(&result.values(&first.clock));
        }
        Some(joined)
    }
}
