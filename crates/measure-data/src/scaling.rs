//! The throughput of two processes at once on two processors, compared with one process alone.
//!
//! Each round measures one process and two processes in turn, so that a disturbance of the machine
//! affects both; only the ratio of a round is used. The same rounds contain a loop that never
//! enters the kernel: its result with two processes is the ceiling of the machine, and no system
//! can stay above it for long. So a machine without two free processors is recognised, and the
//! system is not blamed for it.

use crate::statistics::{median, median_interval};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The value of [`Scaling::format`].
pub const FORMAT: &str = "measure-scaling";
/// The version of the format.
pub const VERSION: u32 = 1;
/// The name of the loop that never enters the kernel.
pub const CEILING: &str = "loop";
/// The ratio that the loop must reach; otherwise the machine has no two free processors.
pub const TWO_FREE: f64 = 1.9;

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// The release of the system.
    pub release: String,
    /// Processors that processes could use.
    pub processors: usize,
    /// How long each process ran in each round, in milliseconds.
    pub milliseconds: u32,
    /// The works that were run; the ceiling is the first.
    pub works: Vec<Work>,
}

/// One work that was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// The rate of one process, per second, in each round.
    pub one: Vec<f64>,
    /// The rate of two processes together, per second, in each round.
    pub two: Vec<f64>,
}

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Middle {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Whether a system reaches the aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The whole interval lies at or above the aim.
    Reached,
    /// The interval lies below the aim, on a machine that has two free processors.
    NotReached,
    /// The machine has no two free processors, and the result is below the aim.
    Busy,
    /// The aim lies within the interval.
    TooNoisy,
}

impl Middle {
    /// Returns the median and interval of `values`, one of each round.
    pub fn of(values: &[f64]) -> Middle {
        let rounds: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
        let interval = median_interval(&rounds);
        Middle { median: median(&mut values.to_vec()), low: interval.low, high: interval.high }
    }

    /// Returns the text that is printed.
    pub fn text(&self) -> String {
        format!("{:.2} ({:.2} to {:.2})", self.median, self.low, self.high)
    }
}

impl Reach {
    /// Compares `ratio` with `at_least`, on a machine that reaches `ceiling`.
    pub fn of(ratio: &Middle, ceiling: &Middle, at_least: f64) -> Reach {
        if ratio.low >= at_least {
            Reach::Reached
        } else if ceiling.median < TWO_FREE {
            Reach::Busy
        } else if ratio.high >= at_least {
            Reach::TooNoisy
        } else {
            Reach::NotReached
        }
    }

    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Reach::Reached => "reached",
            Reach::NotReached => "not reached",
            Reach::Busy => "cannot be told: the machine has no two free processors",
            Reach::TooNoisy => "too noisy to tell",
        }
    }
}

impl Work {
    /// Returns a work without measurements.
    pub fn new(name: &str, title: &str) -> Work {
        Work { name: name.into(), title: title.into(), one: Vec::new(), two: Vec::new() }
    }

    /// Returns the ratio of two processes to one, round by round.
    pub fn ratios(&self) -> Vec<f64> {
        let pairs = self.one.iter().zip(&self.two).filter(|(one, _)| **one > 0.0);
        pairs.map(|(one, two)| two / one).collect()
    }
}

impl Scaling {
    /// The loop that never enters the kernel.
    pub fn ceiling(&self) -> Option<&Work> {
        self.works.iter().find(|work| work.name == CEILING)
    }

    /// Returns the ratio of two processes to one, divided by the ratio of the loop in the same
    /// round.
    pub fn shares(&self, work: &Work) -> Vec<f64> {
        let Some(ceiling) = self.ceiling() else { return Vec::new() };
        let pairs = work.ratios().into_iter().zip(ceiling.ratios()).filter(|(_, all)| *all > 0.0);
        pairs.map(|(ratio, all)| ratio / all).collect()
    }

    /// As a table.
    pub fn text(&self) -> String {
        let mut out = format!(
            "{:<20} {:>12} {:>12}  {:<21} of the loop's\n",
            "per second", "one process", "two", "times (95 %)"
        );
        for work in &self.works {
            let _ = writeln!(
                out,
                "{:<20} {:>12.0} {:>12.0}  {:<21} {:.2}",
                work.name,
                Middle::of(&work.one).median,
                Middle::of(&work.two).median,
                Middle::of(&work.ratios()).text(),
                Middle::of(&self.shares(work)).median,
            );
        }
        if self.processors < 2 {
            out.push_str("there is one processor\n");
        }
        if let Some(ceiling) = self.ceiling()
            && Middle::of(&ceiling.ratios()).median < TWO_FREE
        {
            let _ = writeln!(
                out,
                "the loop never enters the kernel and reaches less than {TWO_FREE}: this machine has no two free processors"
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn middle(low: f64, median: f64, high: f64) -> Middle {
        Middle { median, low, high }
    }

    #[test]
    fn a_system_is_not_blamed_for_its_machine() {
        let (free, busy) = (middle(1.95, 1.98, 2.0), middle(1.2, 1.4, 1.6));
        assert_eq!(Reach::of(&middle(1.75, 1.8, 1.9), &free, 1.7), Reach::Reached);
        assert_eq!(Reach::of(&middle(1.75, 1.8, 1.9), &busy, 1.7), Reach::Reached);
        assert_eq!(Reach::of(&middle(1.5, 1.55, 1.6), &free, 1.7), Reach::NotReached);
        assert_eq!(Reach::of(&middle(1.2, 1.3, 1.4), &busy, 1.7), Reach::Busy);
        assert_eq!(Reach::of(&middle(1.6, 1.72, 1.9), &free, 1.7), Reach::TooNoisy);
    }

    #[test]
    fn ratios_are_of_rounds() {
        let work = |name: &str, one: &[f64], two: &[f64]| Work {
            one: one.to_vec(),
            two: two.to_vec(),
            ..Work::new(name, name)
        };
        // The machine gets slower by half from round to round: the ratios do not change.
        let ceiling = work(CEILING, &[100.0, 50.0, 25.0], &[200.0, 100.0, 50.0]);
        let starts = work("fork-exit", &[8.0, 4.0, 2.0], &[12.0, 6.0, 3.0]);
        let scaling = Scaling {
            format: FORMAT.into(),
            version: VERSION,
            release: "1".into(),
            processors: 2,
            milliseconds: 100,
            works: vec![ceiling, starts.clone()],
        };
        assert_eq!(starts.ratios(), [1.5, 1.5, 1.5]);
        assert_eq!(scaling.shares(&starts), [0.75, 0.75, 0.75]);
        assert_eq!(Middle::of(&starts.ratios()), middle(1.5, 1.5, 1.5));
        assert!(scaling.text().contains("1.50 (1.50 to 1.50)"), "{}", scaling.text());
        assert!(!scaling.text().contains("no two free processors"), "{}", scaling.text());
    }
}
