//! Prints lines about tests, in the format of cargo's own test runner, and the sum at the end.

use super::Report;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The verdict on a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed, and why, if that is known.
    Failed(String),
    /// It could not be run here, and why.
    Skipped(String),
}

/// A case with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name within its trial; empty if the trial is one case.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
}

impl Case {
    /// A case with this verdict.
    pub fn new(name: &str, verdict: Verdict) -> Case {
        Case { name: name.into(), verdict }
    }

    /// Parses a line `test NAME ... ok`, which a log may have prefixed.
    pub fn of_line(line: &str) -> Option<Case> {
        let line = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((_, text)) => text,
            None => line,
        };
        let (name, verdict) = line.trim_end().strip_prefix("test ")?.split_once(" ... ")?;
        let within = |text: &str| text.trim().trim_matches(['(', ')']).to_string();
        let verdict = if verdict == "ok" || verdict.starts_with("ok ") {
            Verdict::Passed
        } else if let Some(why) = verdict.strip_prefix("skipped") {
            Verdict::Skipped(within(why))
        } else if let Some(why) = verdict.strip_prefix("ignored") {
            Verdict::Skipped(within(why.trim_start_matches(',')))
        } else {
            Verdict::Failed(within(verdict.strip_prefix("FAILED").unwrap_or(verdict)))
        };
        Some(Case::new(name, verdict))
    }
}

/// Combines the cases of a trial with its end. A bad end that no case explains is a failed case of
/// its own, and so is a trial that passed without a single case.
pub fn judge(mut cases: Vec<Case>, end: Result<(), String>) -> Vec<Case> {
    let failed = cases.iter().any(|case| matches!(case.verdict, Verdict::Failed(_)));
    match end {
        Err(why) if !failed => cases.push(Case::new("", Verdict::Failed(why))),
        Ok(()) if cases.is_empty() => {
            cases.push(Case::new("", Verdict::Failed("it reported no case".into())));
        }
        _ => {}
    }
    cases
}

/// How many of the slowest trials are named at the end.
const SLOWEST: usize = 8;
/// A trial that took less time is not slow.
const SLOW: Duration = Duration::from_secs(30);

/// Prints and counts.
pub struct Printer {
    began: Instant,
    show_all: bool,
    colour: bool,
    sum: Mutex<Sum>,
}

#[derive(Default)]
struct Sum {
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
    /// Cases that failed at first and passed when run again.
    flaky: Vec<String>,
    /// Trials that took at least [`SLOW`].
    slow: Vec<(Duration, String)>,
    /// How long the trials took whose names differ in the last part only.
    kinds: BTreeMap<String, Duration>,
    /// How long each stage took.
    stages: Vec<(&'static str, Duration)>,
}

impl Printer {
    /// Returns a printer; `show_all` shows the output of trials even if they pass.
    pub fn new(show_all: bool) -> Printer {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Printer { began: Instant::now(), show_all, colour, sum: Mutex::default() }
    }

    /// Prints the cases of a trial, all at once, and its output if one failed.
    pub fn show(&self, trial: &str, report: Report) {
        let Ok(mut sum) = self.sum.lock() else { return };
        let mut failed = false;
        for case in report.cases {
            let name = full(trial, &case.name);
            let verdict = match case.verdict {
                Verdict::Passed => {
                    sum.passed += 1;
                    self.paint("32", "ok")
                }
                Verdict::Skipped(why) => {
                    sum.skipped += 1;
                    self.paint("33", &format!("skipped ({why})"))
                }
                Verdict::Failed(why) => {
                    failed = true;
                    sum.failed.push(name.clone());
                    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                    self.paint("31", &format!("FAILED{why}"))
                }
            };
            println!("test {name} ... {verdict}");
        }
        let output = report.output.trim_end();
        if (failed || self.show_all) && !output.is_empty() {
            println!("---- {trial} printed:\n{output}\n----");
        }
    }

    /// Records how long a trial took.
    pub fn took(&self, trial: &str, time: Duration) {
        let Ok(mut sum) = self.sum.lock() else { return };
        if time >= SLOW {
            sum.slow.push((time, trial.into()));
        }
        let kind = trial.rsplit_once('/').map_or(trial, |(kind, _)| kind);
        *sum.kinds.entry(kind.into()).or_default() += time;
    }

    /// Runs a stage, and records how long it took.
    pub fn stage(&self, name: &'static str, run: impl FnOnce()) {
        let began = Instant::now();
        run();
        if let Ok(mut sum) = self.sum.lock() {
            sum.stages.push((name, began.elapsed()));
        }
    }

    /// Reports that a trial failed and will be run again.
    pub fn postpone(&self, trial: &str, report: &Report) {
        for name in failures(trial, report) {
            let word = self.paint("33", "failed");
            println!("test {name} ... {word}; {trial} will run again");
        }
    }

    /// Shows the failure of a trial that passed when it was run again, and counts its cases as
    /// flaky.
    pub fn flaky(&self, trial: &str, report: &Report) {
        let Ok(mut sum) = self.sum.lock() else { return };
        println!("---- {trial} failed at first, and printed:\n{}\n----", report.output.trim_end());
        sum.flaky.extend(failures(trial, report));
    }

    /// Prints the sum; returns the exit status.
    pub fn conclude(&self) -> u8 {
        let Ok(mut sum) = self.sum.lock() else { return 1 };
        sum.show_times();
        if !sum.flaky.is_empty() {
            println!("\nflaky (failed at first, passed alone; a fault to look for):");
            for name in &sum.flaky {
                println!("    {name}");
            }
        }
        if !sum.failed.is_empty() {
            println!("\nfailed:");
            for name in &sum.failed {
                println!("    {name}");
            }
        }
        let good = sum.failed.is_empty() && sum.passed > 0;
        let word = if good { self.paint("32", "ok") } else { self.paint("31", "FAILED") };
        let flaky = match sum.flaky.len() {
            0 => String::new(),
            count => format!(", {count} flaky"),
        };
        println!(
            "\ntest result: {word}. {} passed, {} failed, {} skipped{flaky}; {} s",
            sum.passed,
            sum.failed.len(),
            sum.skipped,
            self.began.elapsed().as_secs()
        );
        if sum.passed == 0 && sum.failed.is_empty() {
            println!("no test has such a name; ./hayate test --list names all");
        }
        u8::from(!good)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.into() }
    }
}

impl Sum {
    /// Shows where the time went, if it was long.
    fn show_times(&mut self) {
        if self.slow.is_empty() {
            return;
        }
        self.slow.sort_by(|one, other| other.cmp(one));
        self.slow.truncate(SLOWEST);
        let mut kinds: Vec<(Duration, String)> =
            std::mem::take(&mut self.kinds).into_iter().map(|(kind, time)| (time, kind)).collect();
        kinds.retain(|(time, _)| *time >= SLOW);
        kinds.sort_by(|one, other| other.cmp(one));
        println!("\nslowest:");
        for (time, name) in &self.slow {
            println!("    {:5} s  {name}", time.as_secs());
        }
        println!("\nslowest kinds, all trials together:");
        for (time, kind) in &kinds {
            println!("    {:5} s  {kind}/", time.as_secs());
        }
        println!();
        for (stage, time) in &self.stages {
            println!("    {:5} s  all {stage}", time.as_secs());
        }
    }
}

fn full(trial: &str, case: &str) -> String {
    if case.is_empty() { trial.to_string() } else { format!("{trial}::{case}") }
}

/// Returns the names of the failed cases, with the reasons.
fn failures(trial: &str, report: &Report) -> Vec<String> {
    let failed = report.cases.iter().filter_map(|case| match &case.verdict {
        Verdict::Failed(why) if why.is_empty() => Some(full(trial, &case.name)),
        Verdict::Failed(why) => Some(format!("{} ({why})", full(trial, &case.name))),
        _ => None,
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let case = |line: &str| Case::of_line(line).map(|case| (case.name, case.verdict));
        assert_eq!(case("test a::b ... ok"), Some(("a::b".into(), Verdict::Passed)));
        assert_eq!(case("[    0.01] test a ... ok\r"), Some(("a".into(), Verdict::Passed)));
        assert_eq!(
            case("test m::x ... FAILED (mem.c:12: 1 != 2)"),
            Some(("m::x".into(), Verdict::Failed("mem.c:12: 1 != 2".into())))
        );
        assert_eq!(
            case("test m::x ... skipped (no perl)"),
            Some(("m::x".into(), Verdict::Skipped("no perl".into())))
        );
        assert_eq!(case("test result: ok. 3 passed"), None);
        assert_eq!(case("something else"), None);
    }

    #[test]
    fn the_end_of_a_trial_decides() {
        let passed = vec![Case::new("a", Verdict::Passed)];
        assert_eq!(judge(passed.clone(), Ok(())), passed);
        assert_eq!(judge(passed, Err("exit status 1".into())).len(), 2);
        assert!(matches!(judge(Vec::new(), Ok(()))[0].verdict, Verdict::Failed(_)));
    }
}
