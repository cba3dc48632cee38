//! The comparison as a table for a terminal, as Markdown and as JSON.

use crate::boot::{Setup, System};
use crate::numbers::{count, kind};
use measure_data::compare::compare_runs;
use measure_data::run::Quantity;
use measure_data::statistics::median;
use measure_data::{Comparison, Limits, Run, Verdict, units};
use serde_json::{Value, json};
use std::fmt::Write;

/// One result in every system.
pub struct Row {
    /// The comparison of Hayate with Linux at its best.
    pub found: Comparison,
    /// The median of Linux as shipped, if that was measured.
    pub shipped: Option<f64>,
    /// The cost per start of 1,000 in a row with all deferred work done: Hayate, Linux at its best.
    total: Option<(f64, f64)>,
    /// The result in words.
    title: String,
}

/// The data to show.
pub struct Table {
    /// The results that both systems could measure.
    pub rows: Vec<Row>,
    systems: Vec<System>,
    /// System, experiment, reason.
    skipped: Vec<(String, String, String)>,
    counting: bool,
    /// The machine and how often it was measured, in a sentence.
    machine: String,
    threshold: f64,
}

impl Table {
    /// Compares `runs`, one for each of `systems`: Hayate, Linux at its best, and perhaps Linux
    /// as shipped.
    pub fn new(
        setup: &Setup,
        boots: u32,
        systems: &[System],
        runs: &[Run],
        limits: &Limits,
    ) -> Table {
        let (hayate, best) = (&runs[0], &runs[1]);
        let shipped = runs.get(2);
        let all = compare_runs(best, hayate, limits).results;
        // A total is placed behind its base result.
        let base = |name: &str| {
            let base = name.strip_suffix("/total")?;
            all.iter().any(|found| found.name == base).then_some(())
        };
        let rows = all.iter().filter(|found| base(&found.name).is_none()).map(|found| {
            let title = best.result(&found.name).map(|result| result.title.clone());
            let total = format!("{}/total", found.name);
            let total = all.iter().find(|found| found.name == total).map(|t| (t.b, t.a));
            // From the samples: the summary of a counted run was computed with the guest's clock.
            let shipped = shipped.and_then(|run| {
                let values = run.result(&found.name)?.values(&run.clock);
                Some(median(&mut values.concat()))
            });
            Row { shipped, total, title: title.unwrap_or_default(), found: found.clone() }
        });
        let skipped = systems.iter().zip(runs).flat_map(|(system, run)| {
            run.skipped.iter().map(|s| (system.title.clone(), s.name.clone(), s.reason.clone()))
        });
        let linux = best.machine.fact("kernel", "release").unwrap_or("of unknown release");
        let times =
            |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let machine = format!(
            "Hayate {} and Linux {linux} in the same machine: q35, one processor \"{}\", {} MiB, \
             root file system in memory{}; {} of each system, {} of {} each",
            env!("CARGO_PKG_VERSION"),
            best.machine.fact("cpu", "model").unwrap_or("unknown"),
            setup.memory,
            if setup.disk { ", files on a new ext4 disk" } else { "" },
            times(boots, "boot"),
            times(setup.passes, "pass").replace("passs", "passes"),
            times(setup.iterations, "sample"),
        );
        Table {
            rows: rows.collect(),
            systems: systems.to_vec(),
            skipped: skipped.collect(),
            counting: setup.counting,
            machine,
            threshold: limits.threshold,
        }
    }

    /// How many results have `verdict`.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.found.verdict == verdict).count()
    }

    /// Returns the counts of the verdicts.
    fn sum(&self) -> String {
        format!(
            "Hayate against Linux at its best: {} better, {} worse, {} no difference of more than \
             {} %, {} too noisy to tell",
            self.count(Verdict::Better),
            self.count(Verdict::Worse),
            self.count(Verdict::NoDifference),
            self.threshold * 100.0,
            self.count(Verdict::TooNoisy)
        )
    }

    fn has_totals(&self) -> bool {
        self.rows.iter().any(|row| row.total.is_some())
    }

    fn headings(&self) -> Vec<&str> {
        let mut headings = vec![if self.counting { "instructions" } else { "time" }];
        headings.extend(self.systems.iter().map(|system| system.title.as_str()));
        if self.has_totals() {
            headings.extend(["Hayate, 1,000 / 1,000", "best, 1,000 / 1,000"]);
        }
        headings.extend(["best / Hayate", "95 %", "Hayate is"]);
        headings
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let found = &row.found;
        let show = |value: f64| self.show(found.quantity, value);
        let mut cells = vec![found.name.clone(), show(found.b), show(found.a)];
        if self.systems.len() > 2 {
            cells.push(row.shipped.map_or("-".into(), show));
        }
        if self.has_totals() {
            let [ours, theirs] = row.total.map_or([None; 2], |(a, b)| [Some(a), Some(b)]);
            cells.extend([ours, theirs].map(|total| total.map_or(String::new(), show)));
        }
        let (ratio, low, high) = advantage(found);
        cells.push(times(ratio));
        cells.push(if found.exact {
            "exact".into()
        } else {
            format!("{} to {}", times(low), times(high))
        });
        cells.push(found.verdict.words().into());
        cells
    }

    fn show(&self, quantity: Quantity, value: f64) -> String {
        match quantity {
            Quantity::Time if self.counting => count(value),
            Quantity::Bandwidth if self.counting => format!("{:.2} B each", value / 1e9),
            _ => units::value(quantity, value),
        }
    }

    /// The table for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n{}\n\n", self.machine, kind(self.counting)[0]);
        let mut lines = vec![self.headings().into_iter().map(String::from).collect()];
        lines.extend(self.rows.iter().map(|row| self.cells(row)));
        let columns = self.headings().len();
        let width = |column: usize| {
            lines.iter().map(|line: &Vec<String>| line[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in &lines {
            let mut text = format!("{:<width$}", line[0], width = widths[0]);
            for (cell, width) in line[1..columns - 1].iter().zip(&widths[1..]) {
                let _ = write!(text, "  {cell:>width$}");
            }
            let _ = writeln!(out, "{text}  {}", line[columns - 1]);
        }
        let _ = write!(out, "\n{}\n{}\n", self.sum(), kind(self.counting)[1]);
        if self.has_totals() {
            let _ = writeln!(out, "{TOTAL}");
        }
        for (system, name, reason) in &self.skipped {
            let _ = writeln!(out, "not measured in {system}: {name}: {reason}");
        }
        out
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("{}.\n\n{}\n\n", self.machine, kind(self.counting).join(" "));
        let headings = self.headings();
        let _ = writeln!(out, "| {} |", headings.join(" | "));
        let rule = (0..headings.len())
            .map(|column| if column == 0 || column + 1 == headings.len() { "---" } else { "---:" });
        let _ = writeln!(out, "|{}|", rule.collect::<Vec<_>>().join("|"));
        for row in &self.rows {
            let mut cells = self.cells(row);
            cells[0] = format!("{}<br>`{}`", row.title, row.found.name);
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        let _ = writeln!(out, "\n{}.", self.sum());
        if self.has_totals() {
            let _ = writeln!(out, "{TOTAL}");
        }
        if !self.skipped.is_empty() {
            out.push('\n');
        }
        for (system, name, reason) in &self.skipped {
            let _ = writeln!(out, "* not measured in {system}: `{name}`: {reason}");
        }
        out
    }

    /// The comparison as JSON.
    pub fn json(&self) -> String {
        let unit = |quantity| match quantity {
            Quantity::Time if self.counting => "instructions",
            Quantity::Time => "nanoseconds",
            Quantity::Bandwidth if self.counting => "bytes per 1e9 instructions",
            Quantity::Bandwidth => "bytes per second",
        };
        let rows = self.rows.iter().map(|row| {
            let found = &row.found;
            let (ratio, low, high) = advantage(found);
            json!({
                "name": found.name,
                "title": row.title,
                "unit": unit(found.quantity),
                "hayate": found.b,
                "linux-best": found.a,
                "linux-shipped": row.shipped,
                "total": row.total.map(|(hayate, best)| json!({
                    "starts": 1000, "hayate": hayate, "linux-best": best,
                })),
                "best / hayate": ratio,
                "low": low,
                "high": high,
                "exact": found.exact,
                "p": found.p,
                "delta": found.delta,
                "verdict": found.verdict.words(),
            })
        });
        let skipped = self.skipped.iter().map(
            |(system, name, reason)| json!({ "system": system, "name": name, "reason": reason }),
        );
        let value = json!({
            "format": "hayate-compare",
            "version": 1,
            "mode": if self.counting { "instructions" } else { "wall" },
            "machine": self.machine,
            "kind": kind(self.counting).join(" "),
            "systems": self.systems.iter().map(|system| {
                json!({ "name": system.key, "title": system.title, "words": system.words })
            }).collect::<Value>(),
            "results": rows.collect::<Value>(),
            "skipped": skipped.collect::<Value>(),
        });
        format!("{value:#}\n")
    }
}

const TOTAL: &str = "1,000 / 1,000: of as many starts in a row, until everything that they leave \
    to be done is done; work that a kernel puts off counts there.";

/// Returns by what factor Hayate takes less than Linux at its best (or moves more), with the
/// interval.
fn advantage(found: &Comparison) -> (f64, f64, f64) {
    match found.quantity {
        Quantity::Time => (1.0 / found.ratio, 1.0 / found.interval.high, 1.0 / found.interval.low),
        Quantity::Bandwidth => (found.ratio, found.interval.low, found.interval.high),
    }
}

/// A ratio.
fn times(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() || r > 1e9 => "-".into(),
        r if r < 9.995 => format!("{r:.2}"),
        r if r < 99.95 => format!("{r:.1}"),
        r => count(r.round()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_three_digits() {
        assert_eq!(times(3.816), "3.82");
        assert_eq!(times(12.99), "13.0");
        assert_eq!(times(2160.4), "2,160");
        assert_eq!(times(f64::INFINITY), "-");
    }
}
