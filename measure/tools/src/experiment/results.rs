//! The results of an experiment, as stored in `NAME.json`: tables, pictures and the joint report
//! are made from them.

use super::describe::{Description, Each, Work};
use super::scaling::Scaled;
use crate::boot;
use crate::numbers::count;
use measure_data::run::Quantity;
use measure_data::scaling::Reach;
use measure_data::statistics::{median, median_interval};
use measure_data::{Run, units};
use serde::{Deserialize, Serialize};

/// The value of [`Results::format`].
pub const FORMAT: &str = "hayate-experiment";
/// The version of the format.
pub const VERSION: u32 = 2;

/// The results of one experiment.
#[derive(Clone, Serialize, Deserialize)]
pub struct Results {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// The experiment's name.
    pub name: String,
    /// The title above table and picture.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// Whether values are instructions; otherwise nanoseconds.
    pub counting: bool,
    /// The machine and how often it was measured, in a sentence.
    pub machine: String,
    /// The systems, Hayate first.
    pub systems: Vec<System>,
    /// The results of the workload.
    pub lines: Vec<Line>,
    /// Curves.
    pub sweeps: Vec<Curve>,
    /// Page faults and reads.
    #[serde(default)]
    pub counts: Vec<Counts>,
    /// Images that are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// Aims that are a fraction of another system's value.
    #[serde(default)]
    pub aims: Vec<Aim>,
    /// Limits of systems other than the first.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// The numbers of calls after which a change of the system pays off.
    #[serde(default)]
    pub break_even: Vec<BreakEven>,
    /// The same by the clock, from separate boots, if instructions are counted here.
    #[serde(default)]
    pub time: Option<Box<Results>>,
    /// The same on machines with other numbers of processors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Results>,
    /// Two processes against one.
    #[serde(default)]
    pub scaling: Vec<Scaled>,
    /// Values are the best of so many rounds, and their intervals reach up to the worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_of: Option<u32>,
    /// The heading of the table that shows how often each work is done in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
}

/// A limit of a system other than the first.
#[derive(Clone, Serialize, Deserialize)]
pub struct Limit {
    /// The name of the work.
    pub name: String,
    /// The system.
    pub system: String,
    /// The median.
    pub value: f64,
    /// The limit.
    pub at_most: f64,
}

impl Limit {
    /// Whether the value is within the limit.
    pub fn met(&self) -> bool {
        self.value <= self.at_most
    }
}

/// A change that has a single cost and makes a call cheaper.
#[derive(Clone, Serialize, Deserialize)]
pub struct BreakEven {
    /// The call.
    pub name: String,
    /// The cost of the change.
    pub cost: f64,
    /// The cost of the call without the change.
    pub before: f64,
    /// The cost of the call with the change.
    pub after: f64,
    /// The smallest number of calls that cost no more with the change than without; `None` if the
    /// call does not get cheaper.
    pub calls: Option<u64>,
}

/// The counts of one start of a program, in one system.
#[derive(Clone, Serialize, Deserialize)]
pub struct Counts {
    /// The program.
    pub name: String,
    /// The system.
    pub system: String,
    /// The counts.
    pub counted: Counted,
}

/// What is kept of a program, and of those that it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The program.
    pub name: String,
    /// How many images.
    pub images: u32,
    /// The bytes of their memory.
    pub bytes: u64,
    /// The bytes of spaces that wait for the next starts.
    pub heirs: u64,
    /// Where the program's own image was taken, or why there is none.
    pub horizon: String,
}

/// Numbers of one start, as `off2f count --json` writes them in the guest.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counted {
    /// Page faults on the text of programs.
    pub program_text_faults: u64,
    /// Page faults on the text of libraries.
    pub library_text_faults: u64,
    /// All other page faults.
    pub other_faults: u64,
    /// Text that was read from storage for these faults.
    pub text_kib: u64,
    /// Everything that was read from storage.
    pub storage_kib: u64,
    /// The number of requests for that.
    pub storage_requests: u64,
}

/// An aim: a fraction of another system's value.
#[derive(Clone, Serialize, Deserialize)]
pub struct Aim {
    /// The name of the work.
    pub name: String,
    /// The system whose value is compared.
    pub system: String,
    /// The system that it is compared with.
    pub other: String,
    /// The value divided by the other's.
    pub ratio: f64,
    /// The limit of the ratio.
    pub at_most: f64,
}

/// A system.
#[derive(Clone, Serialize, Deserialize)]
pub struct System {
    /// Its name in data.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Whether it is Linux.
    pub linux: bool,
    /// Words added to its command line.
    pub words: String,
    /// The release that it reports.
    pub release: Option<String>,
    /// Why it was not measured at all.
    pub missing: Option<String>,
    /// Whether that is because it failed, and not because it lacks a required feature.
    #[serde(default)]
    pub failed: bool,
    /// The works that it could not measure, and why.
    pub skipped: Vec<(String, String)>,
}

/// One work that was measured in every system.
#[derive(Clone, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The limit of the first system.
    pub at_most: Option<f64>,
    /// The value of each system.
    pub values: Vec<Option<Value>>,
    /// The cost per start of 1,000 in a row with all deferred work done, if that was requested.
    pub totals: Vec<Option<f64>>,
}

/// A median with its interval.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Value {
    /// The median.
    pub median: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Results over a size.
#[derive(Clone, Serialize, Deserialize)]
pub struct Curve {
    /// The title above the picture.
    pub title: String,
    /// The unit of the position: `bytes`.
    pub unit: String,
    /// The points, in ascending order.
    pub points: Vec<Point>,
}

/// A place on a curve.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    /// The position.
    pub x: f64,
    /// The value of each system.
    pub values: Vec<Option<Value>>,
}

impl System {
    /// Returns a system without any results yet.
    pub fn of(system: &boot::System) -> System {
        System {
            name: system.key.clone(),
            title: system.title.clone(),
            linux: system.linux,
            words: system.words.clone(),
            release: None,
            missing: None,
            failed: false,
            skipped: Vec::new(),
        }
    }
}

impl Results {
    /// Returns the results of `what`, still empty.
    pub fn new(
        name: &str,
        what: &Description,
        counting: bool,
        (machine, systems): (String, Vec<System>),
    ) -> Results {
        Results {
            format: FORMAT.into(),
            version: VERSION,
            name: name.into(),
            title: what.title.clone(),
            question: what.question.clone(),
            counting,
            machine,
            systems,
            lines: Vec::new(),
            sweeps: Vec::new(),
            counts: Vec::new(),
            kept: Vec::new(),
            aims: Vec::new(),
            limits: Vec::new(),
            break_even: Vec::new(),
            time: None,
            further: Vec::new(),
            scaling: Vec::new(),
            best_of: what.asked.as_ref().map(|asked| asked.rounds),
            rate: what.rate.clone().filter(|_| !counting),
        }
    }

    /// Returns the failures and their systems: of systems, and of programs in them.
    pub fn failures(&self) -> Vec<String> {
        let of = |s: &System| {
            let whole = s.missing.as_ref().filter(|_| s.failed).map(|why| why.to_owned());
            let programs = s.skipped.iter().filter(|(name, _)| name.starts_with("program/"));
            let programs = programs.map(|(name, why)| format!("{name}: {why}"));
            let title = &s.title;
            whole.into_iter().chain(programs).map(|why| format!("{title}: {why}")).collect()
        };
        let own = self.systems.iter().flat_map(|s| -> Vec<String> { of(s) });
        own.chain(self.further.iter().flat_map(Results::failures)).collect()
    }

    /// Returns the system that the first is compared with: the first Linux that was measured,
    /// otherwise the second system.
    pub fn baseline(&self) -> Option<usize> {
        let others =
            || self.systems.iter().enumerate().skip(1).filter(|(_, s)| s.missing.is_none());
        others().find(|(_, s)| s.linux).or_else(|| others().next()).map(|(at, _)| at)
    }

    /// Returns the systems that were measured, which tables and pictures show.
    pub fn measured(&self) -> Vec<usize> {
        (0..self.systems.len()).filter(|at| self.systems[*at].missing.is_none()).collect()
    }

    /// Formats a value of this experiment's kind.
    pub fn show(&self, value: f64) -> String {
        if self.counting { count(value) } else { units::time(value) }
    }

    /// Whether totals were measured.
    pub fn has_totals(&self) -> bool {
        self.lines.iter().any(|line| line.totals.iter().any(Option::is_some))
    }

    /// Whether an aim was missed.
    pub fn above(&self) -> bool {
        self.lines.iter().any(|line| line.met() == Some(false))
            || self.aims.iter().any(|aim| aim.ratio > aim.at_most)
            || !self.limits.iter().all(Limit::met)
            || self.reaches().any(|reach| reach == Reach::NotReached)
            || self.further.iter().any(Results::above)
    }

    /// Returns the parts that have a table and a picture of their own: by the clock, and on other
    /// numbers of processors.
    pub fn parts(&self) -> impl Iterator<Item = &Results> {
        self.time.iter().map(Box::as_ref).chain(&self.further)
    }

    /// Whether the result for an aim is undecided.
    pub fn unknown(&self) -> bool {
        self.reaches().any(|reach| matches!(reach, Reach::Busy | Reach::TooNoisy))
    }

    /// Returns the results for the aims of two processes against one.
    pub fn reaches(&self) -> impl Iterator<Item = Reach> + '_ {
        self.scaling.iter().flat_map(|scaled| scaled.lines.iter().filter_map(|line| line.reach))
    }
}

impl Line {
    /// Whether the first system stays below its limit, if it has one and was measured.
    pub fn met(&self) -> Option<bool> {
        Some(self.values.first()?.as_ref()?.median <= self.at_most?)
    }
}

/// Bytes of a mebibyte.
const MEBIBYTE: f64 = 1048576.0;

/// What a value costs: of a bandwidth, in bytes for each 1e9 instructions or nanoseconds, what each
/// MiB takes.
fn cost(quantity: Quantity, value: f64) -> f64 {
    match quantity {
        Quantity::Time => value,
        Quantity::Bandwidth => MEBIBYTE * 1e9 / value,
    }
}

/// The value called `name` in a run, as a [`cost`].
pub fn value(run: Option<&Run>, name: &str) -> Option<Value> {
    let run = run?;
    let result = run.result(name)?;
    // From the samples: the summary of a counted run was computed with the guest's clock.
    let mut values = result.values(&run.clock);
    values.iter_mut().flatten().for_each(|value| *value = cost(result.quantity, *value));
    let interval = median_interval(&values);
    Some(Value { median: median(&mut values.concat()), low: interval.low, high: interval.high })
}

/// The value of a work in a run.
fn value_of(run: Option<&Run>, work: &Work) -> Option<Value> {
    let Some(Each { from, to }) = work.each else { return value(run, &work.result()) };
    let of = |length: u32| value(run, &format!("{}-{length}", work.result()));
    Some(for_each(of(from)?, of(to)?, f64::from(to - from)))
}

/// Returns what one of the `more` units takes by which a command was longer. The interval holds all
/// that the two intervals allow.
fn for_each(short: Value, long: Value, more: f64) -> Value {
    Value {
        median: (long.median - short.median) / more,
        low: (long.low - short.high) / more,
        high: (long.high - short.low) / more,
    }
}

/// Returns the lines of `what`.
pub fn lines(what: &Description, runs: &[Option<&Run>]) -> Vec<Line> {
    let line = |work: &Work| {
        let name = work.result();
        let said = runs.iter().flatten().find_map(|run| {
            let result = run.result(&name)?;
            let each = if result.quantity == Quantity::Bandwidth { ", each MiB" } else { "" };
            Some(format!("{}{each}", result.title))
        });
        let total = format!("{name}/total");
        let totals =
            runs.iter().map(|run| Some(value(*run, &total)?.median).filter(|_| work.total));
        Line {
            title: work.title.clone().or(said).unwrap_or_else(|| name.clone()),
            at_most: work.at_most,
            values: runs.iter().map(|run| value_of(*run, work)).collect(),
            totals: totals.collect(),
            name,
        }
    };
    what.workload.iter().map(line).collect()
}

/// Returns the aims of `what` that are a fraction of another system's value: of the second system's
/// on each named storage, or of the named systems'.
pub fn aims(what: &Description, systems: &[System], lines: &[Line]) -> Vec<Aim> {
    let [first, second, ..] = what.systems.as_slice() else { return Vec::new() };
    let works = what.workload.iter().zip(lines);
    let each = works.flat_map(|(work, line)| {
        let on = |name: &str, storage: &str| format!("{name}-{storage}");
        let seconds = work.at_most_of_second.iter().map(move |(storage, at_most)| {
            (line, on(&first.name, storage), on(&second.name, storage), at_most)
        });
        let own = work.at_most_of.iter().map(|of| (&first.name, of));
        let others = work.at_most_by.iter();
        let others = others.flat_map(|(system, parts)| parts.iter().map(move |of| (system, of)));
        let named = own.chain(others);
        seconds.chain(
            named.map(move |(system, (of, at_most))| (line, system.clone(), of.clone(), at_most)),
        )
    });
    each.filter_map(|(line, system, other, at_most)| {
        let place = |key: &str| systems.iter().position(|system| system.name == key);
        let (at, other) = (place(&system)?, place(&other)?);
        let value = |at: usize| Some(line.values.get(at)?.as_ref()?.median);
        Some(Aim {
            name: line.title.clone(),
            system: systems[at].title.clone(),
            other: systems[other].title.clone(),
            ratio: value(at)? / value(other)?,
            at_most: *at_most,
        })
    })
    .collect()
}

/// Returns the limits of systems other than the first.
pub fn limits(what: &Description, systems: &[System], lines: &[Line]) -> Vec<Limit> {
    let works = what.workload.iter().zip(lines);
    let each = works.flat_map(|(work, line)| work.at_most_in.iter().map(move |at| (line, at)));
    each.filter_map(|(line, (system, at_most))| {
        let at = systems.iter().position(|known| known.name == *system)?;
        Some(Limit {
            name: line.title.clone(),
            system: systems[at].title.clone(),
            value: line.values.get(at)?.as_ref()?.median,
            at_most: *at_most,
        })
    })
    .collect()
}

/// Returns the numbers of calls after which the change that `what` describes pays off; empty if a
/// part of it was not measured.
pub fn break_even(what: &Description, systems: &[System], lines: &[Line]) -> Vec<BreakEven> {
    let Some(even) = &what.break_even else { return Vec::new() };
    let value = |work: &String, system: &String| {
        let at = systems.iter().position(|known| known.name == *system)?;
        let of = what.workload.iter().position(|known| known.name == *work)?;
        Some((lines.get(of)?, lines[of].values.get(at)?.as_ref()?.median))
    };
    let costs = even.costs.iter().map(|cost| Some(value(cost, &even.from)?.1));
    let Some(cost) = costs.sum::<Option<f64>>() else { return Vec::new() };
    let calls = even.calls.iter().filter_map(|call| {
        let ((line, before), (_, after)) = (value(call, &even.from)?, value(call, &even.to)?);
        let gain = before - after;
        let calls = (gain > 0.0).then(|| (cost / gain).ceil() as u64);
        Some(BreakEven { name: line.title.clone(), cost, before, after, calls })
    });
    calls.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what() -> Description {
        let text = r#"{"title": "x", "question": "x", "counting": true, "memory": 512,
            "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1,
            "systems": [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}],
            "workload": [{"name": "there"}, {"name": "back"},
                {"name": "call", "at_most_in": {"b": 25}}, {"name": "slow"}],
            "break_even": {"costs": ["there", "back"], "from": "a", "to": "b",
                "calls": ["call", "slow"]}}"#;
        serde_json::from_str(text).unwrap()
    }

    fn system(name: &str) -> System {
        System {
            name: name.into(),
            title: name.to_uppercase(),
            linux: false,
            words: String::new(),
            release: None,
            missing: None,
            failed: false,
            skipped: Vec::new(),
        }
    }

    fn line(name: &str, values: [Option<f64>; 2]) -> Line {
        let value = |median: f64| Value { median, low: median, high: median };
        let values = values.map(|v| v.map(value)).to_vec();
        Line { name: name.into(), title: name.into(), at_most: None, values, totals: Vec::new() }
    }

    fn lines() -> Vec<Line> {
        vec![
            line("there", [Some(600.0), None]),
            line("back", [Some(401.0), None]),
            line("call", [Some(64.0), Some(24.0)]),
            line("slow", [Some(50.0), Some(50.0)]),
        ]
    }

    #[test]
    fn a_unit_takes_what_the_longer_command_took_more() {
        let value = |low, median, high| Value { low, median, high };
        let unit = for_each(value(9.0, 10.0, 11.0), value(108.0, 110.0, 112.0), 50.0);
        assert_eq!((unit.low, unit.median, unit.high), (1.94, 2.0, 2.06));
    }

    #[test]
    fn a_change_is_paid_after_as_many_calls_as_its_cost_holds_gains() {
        let (what, systems, lines) = (what(), [system("a"), system("b")], lines());
        let found = break_even(&what, &systems, &lines);
        assert_eq!(found.len(), 2);
        // 1,001 / 40 is 25.025: with 25 calls the change does not pay off yet.
        assert_eq!((found[0].cost, found[0].calls), (1001.0, Some(26)));
        assert_eq!(found[1].calls, None);
        // Without the cost of the change the result is unknown.
        let unknown = [line("there", [None, None]), lines[1].clone(), lines[2].clone()];
        assert!(break_even(&what, &systems, &unknown).is_empty());
    }

    #[test]
    fn an_aim_can_be_a_part_of_a_named_systems_value() {
        let (mut what, systems, lines) = (what(), [system("a"), system("b")], lines());
        what.workload[2].at_most_of.insert("b".into(), 2.0);
        let found = aims(&what, &systems, &lines);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].ratio, found[0].at_most), (64.0 / 24.0, 2.0));
        assert_eq!((found[0].system.as_str(), found[0].other.as_str()), ("A", "B"));
        // Another system than the first has aims of its own.
        let of = [("a".to_string(), 0.25)].into();
        what.workload[3].at_most_by.insert("b".into(), of);
        let found = aims(&what, &systems, &lines);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].ratio, found[1].at_most), (1.0, 0.25));
        assert_eq!((found[1].system.as_str(), found[1].other.as_str()), ("B", "A"));
    }

    #[test]
    fn a_bandwidth_costs_less_where_it_is_higher() {
        assert_eq!(cost(Quantity::Time, 40.0), 40.0);
        // Two bytes for each instruction.
        assert_eq!(cost(Quantity::Bandwidth, 2e9), 524_288.0);
        assert!(cost(Quantity::Bandwidth, 3e9) < cost(Quantity::Bandwidth, 2e9));
    }

    #[test]
    fn a_system_that_fails_is_told_from_one_that_lacks_something() {
        let mut systems = [system("a"), system("b"), system("c")];
        systems[0].missing = Some("it panicked".into());
        systems[0].failed = true;
        systems[1].missing = Some("no /proc/mode".into());
        systems[2].skipped.push(("net/remote".into(), "say --remote".into()));
        let mut results = Results::new("x", &what(), true, (String::new(), systems.to_vec()));
        assert_eq!(results.failures(), ["A: it panicked"]);
        assert_eq!(results.measured(), [2]);
        // So is a program that fails; on two processors, too.
        let mut two = results.clone();
        two.systems[2].skipped.push(("program/tar".into(), "it ended with status 2".into()));
        results.further.push(two);
        let failed = results.failures().pop();
        assert_eq!(failed.as_deref(), Some("C: program/tar: it ended with status 2"));
    }

    #[test]
    fn another_system_has_limits_of_its_own() {
        let (what, systems, mut lines) = (what(), [system("a"), system("b")], lines());
        let met = |lines: &[Line]| limits(&what, &systems, lines).iter().all(Limit::met);
        assert_eq!(limits(&what, &systems, &lines).len(), 1);
        assert!(met(&lines));
        lines[2] = line("call", [Some(64.0), Some(25.5)]);
        assert!(!met(&lines));
    }
}
