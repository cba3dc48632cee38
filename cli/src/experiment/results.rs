//! What came of an experiment, as it is kept in `NAME.json`: everything that tables, pictures and
//! the joint report are made of.

use super::describe::Description;
use crate::compare::table::count;
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
    /// Above table and picture.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// Whether values are instructions; otherwise nanoseconds.
    pub counting: bool,
    /// The machine and how often it was measured, in a sentence.
    pub machine: String,
    /// The systems, ours first.
    pub systems: Vec<System>,
    /// What was run.
    pub lines: Vec<Line>,
    /// Curves.
    pub sweeps: Vec<Curve>,
    /// Page faults and what was read.
    #[serde(default)]
    pub counts: Vec<Counts>,
    /// Aims that are a part of another system's value.
    #[serde(default)]
    pub aims: Vec<Aim>,
}

/// What one start of a program came to, in one system.
#[derive(Clone, Serialize, Deserialize)]
pub struct Counts {
    /// The program.
    pub name: String,
    /// The system.
    pub system: String,
    /// What was counted.
    pub counted: Counted,
}

/// Numbers of one start, as `off2f count --json` writes them in the guest.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counted {
    /// Page faults on the text of programs.
    pub program_text_faults: u64,
    /// Page faults on the text of libraries.
    pub library_text_faults: u64,
    /// All others.
    pub other_faults: u64,
    /// Text that was read from storage for them.
    pub text_kib: u64,
    /// Everything that was read from storage.
    pub storage_kib: u64,
    /// In so many requests.
    pub storage_requests: u64,
}

/// An aim: a part of another system's value.
#[derive(Clone, Serialize, Deserialize)]
pub struct Aim {
    /// What was run.
    pub name: String,
    /// The system that is to be fast.
    pub system: String,
    /// The one it is held against.
    pub other: String,
    /// The value by the other's.
    pub ratio: f64,
    /// What it is to stay below.
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
    /// What was added to its command line.
    pub words: String,
    /// What it says it is.
    pub release: Option<String>,
    /// Why it was not measured at all.
    pub missing: Option<String>,
    /// What it could not measure, and why.
    pub skipped: Vec<(String, String)>,
}

/// One thing that was measured in every system.
#[derive(Clone, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// What it is.
    pub title: String,
    /// What the first system is to stay below.
    pub at_most: Option<f64>,
    /// For each system.
    pub values: Vec<Option<Value>>,
    /// The same of 1,000 in a row with nothing left to be done, by 1,000, where that was asked for.
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
    /// Above the picture.
    pub title: String,
    /// What the position is: `bytes`.
    pub unit: String,
    /// In ascending order.
    pub points: Vec<Point>,
}

/// A place on a curve.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    /// The position.
    pub x: f64,
    /// For each system.
    pub values: Vec<Option<Value>>,
}

impl Results {
    /// The system that the first is held against: the first Linux that was measured, else the
    /// second system.
    pub fn baseline(&self) -> Option<usize> {
        let others =
            || self.systems.iter().enumerate().skip(1).filter(|(_, s)| s.missing.is_none());
        others().find(|(_, s)| s.linux).or_else(|| others().next()).map(|(at, _)| at)
    }

    /// The systems that were measured: what tables and pictures show.
    pub fn measured(&self) -> Vec<usize> {
        (0..self.systems.len()).filter(|at| self.systems[*at].missing.is_none()).collect()
    }

    /// A value of this experiment's kind.
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
    }
}

impl Line {
    /// Whether the first system stays below its limit, where it has one and was measured.
    pub fn met(&self) -> Option<bool> {
        Some(self.values.first()?.as_ref()?.median <= self.at_most?)
    }
}

/// A number of things, with the word that fits.
pub fn counted(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The value called `name` in a run.
pub fn value(run: Option<&Run>, name: &str) -> Option<Value> {
    let run = run?;
    // From the samples: the summary of a counted run was made with the guest's clock.
    let values = run.result(name)?.values(&run.clock);
    let interval = median_interval(&values);
    Some(Value { median: median(&mut values.concat()), low: interval.low, high: interval.high })
}

/// The lines of `what`.
pub fn lines(what: &Description, runs: &[Option<&Run>]) -> Vec<Line> {
    let line = |work: &super::describe::Work| {
        let name = work.result();
        let said = runs.iter().flatten().find_map(|run| Some(run.result(&name)?.title.clone()));
        let total = format!("{name}/total");
        let totals =
            runs.iter().map(|run| Some(value(*run, &total)?.median).filter(|_| work.total));
        Line {
            title: work.title.clone().or(said).unwrap_or_else(|| name.clone()),
            at_most: work.at_most,
            values: runs.iter().map(|run| value(*run, &name)).collect(),
            totals: totals.collect(),
            name,
        }
    };
    what.workload.iter().map(line).collect()
}

/// The aims of `what` that are a part of the second system's value, on each storage they name.
pub fn aims(what: &Description, systems: &[System], lines: &[Line]) -> Vec<Aim> {
    let [first, second, ..] = what.systems.as_slice() else { return Vec::new() };
    let works = what.workload.iter().zip(lines);
    let each = works.flat_map(|(work, line)| work.at_most_of_second.iter().map(move |a| (line, a)));
    each.filter_map(|(line, (storage, at_most))| {
        let place = |name: &str| {
            let key = format!("{name}-{storage}");
            systems.iter().position(|system| system.name == key)
        };
        let (at, other) = (place(&first.name)?, place(&second.name)?);
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

/// The curves of `what`.
pub fn curves(what: &Description, runs: &[Option<&Run>]) -> Vec<Curve> {
    let curve = |sweep: &super::describe::Sweep| {
        let mut places: Vec<(f64, String, String)> = Vec::new();
        for result in runs.iter().flatten().flat_map(|run| &run.results) {
            if let Some(axis) = &result.axis
                && result.name.starts_with(&sweep.results)
                && places.iter().all(|(_, name, _)| *name != result.name)
            {
                places.push((axis.x, result.name.clone(), axis.unit.clone()));
            }
        }
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let points = places.iter().map(|(x, name, _)| Point {
            x: *x,
            values: runs.iter().map(|run| value(*run, name)).collect(),
        });
        Curve {
            title: sweep.title.clone(),
            unit: places.first().map_or_else(String::new, |place| place.2.clone()),
            points: points.collect(),
        }
    };
    what.sweeps.iter().map(curve).collect()
}
