//! `./hayate test`: the tests, their order, and the verdict.
//!
//! A *trial* is one thing that is started and ends: a check of the sources, a cargo test, a guest
//! program on this machine's Linux, the same program in a machine of N processors. It reports
//! *cases*, one line each. Whether a trial passed is decided by how it ended (an exit status, the
//! exit device of the machine), never by its output: a trial that ends badly has failed even if
//! every line says "ok", and a trial without a single case has failed too.
//!
//! Order: sources, host tests, guest programs on Linux, then everything in the guest. Each guest
//! program has a machine of its own, so that a panic costs only one program. As many machines run
//! at once as the host has processors: the programs wait more than they compute. A stress trial
//! computes, and has the processors of the host to itself.
//!
//! With `--retry N` a trial that failed runs again, at the end of its stage and alone, up to N
//! times. If it then passes, it is *flaky*: its output from the failure is shown, it is named at
//! the end, and it does not fail the whole. Otherwise, with some hundred rows of which one fails
//! once in a hundred runs, the verdict on a change would be luck. More than [`MOST_RETRIED`]
//! failures are not an accident, and none of them is run again.

mod cargo;
mod command;
mod explain;
mod guest;
mod manners;
mod mode;
mod off2f;
mod processor;
mod report;
mod sources;
pub mod start;

use crate::arguments::Test;
use anyhow::Result;
use report::{Case, Printer, Verdict};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// The most failed trials of a stage that are run again.
const MOST_RETRIED: usize = 3;

/// The result of a trial.
pub struct Report {
    /// Its cases.
    pub cases: Vec<Case>,
    /// Its output, shown if a case failed.
    pub output: String,
}

impl Report {
    /// Whether a case failed.
    fn failed(&self) -> bool {
        self.cases.iter().any(|case| matches!(case.verdict, Verdict::Failed(_)))
    }
}

/// A trial.
pub struct Trial {
    /// Its name; the names of its cases begin with it.
    pub name: String,
    /// Names of its cases, as far as they are known in advance. Empty: only the trial's name is
    /// known.
    pub cases: Vec<String>,
    /// How many processors it keeps busy; 0 if it leaves them to other trials.
    pub weight: usize,
    /// Runs it. The argument contains the filters that select among its cases; empty selects all.
    #[expect(clippy::type_complexity, reason = "the one place where it is written out")]
    pub run: Box<dyn Fn(&[String]) -> Result<Report> + Send>,
}

impl Trial {
    /// Returns the filters for its cases if the trial is selected, otherwise `None`.
    fn wanted(&self, filters: &[String]) -> Option<Vec<String>> {
        if filters.is_empty() || filters.iter().any(|filter| self.name.contains(filter)) {
            return Some(Vec::new());
        }
        let full = |case: &String| format!("{}::{case}", self.name);
        let chosen: Vec<String> = self
            .cases
            .iter()
            .filter(|case| filters.iter().any(|filter| full(case).contains(filter)))
            .cloned()
            .collect();
        (!chosen.is_empty()).then_some(chosen)
    }
}

/// Runs the tests; the exit status is 1 if one failed.
pub fn test(options: &Test) -> Result<u8> {
    let printer = Arc::new(Printer::new(options.nocapture));
    let mut stages: Vec<Vec<Trial>> = Vec::new();
    if !options.linux_only {
        stages.push(sources::trials());
        stages.push(cargo::trials());
    }
    let programs = guest::programs()?;
    stages.push(guest::on_linux(&programs));
    if !options.linux_only {
        let mut machines = guest::stress(options, &programs);
        machines.extend(guest::kernel_trials(options));
        machines.extend(guest::in_machines(options, &programs));
        machines.extend(guest::in_supervisor_mode(options, &programs));
        stages.push(machines);
        stages.push(start::trials(options));
        stages.push(command::trials(options));
        stages.push(manners::trials(options));
        stages.push(processor::trials(options));
        stages.push(mode::trials(options));
        stages.push(explain::trials(options));
        stages.push(off2f::trials(options));
    }
    let mut chosen: Vec<Vec<Chosen>> = Vec::new();
    for stage in stages {
        let stage = stage.into_iter().filter_map(|trial| {
            let cases = trial.wanted(&options.filter)?;
            Some((trial, cases))
        });
        chosen.push(stage.collect());
    }
    // Cargo's cases are not known before they are built: they are searched only if nothing else has
    // such a name.
    if chosen.iter().all(Vec::is_empty) && !options.linux_only {
        let stage = cargo::trials().into_iter().map(|trial| (trial, options.filter.clone()));
        chosen.push(stage.collect());
    }
    if options.list {
        for (trial, cases) in chosen.iter().flatten() {
            let names = if cases.is_empty() { &trial.cases } else { cases };
            if names.is_empty() {
                println!("{}", trial.name);
            }
            for case in names {
                println!("{}::{case}", trial.name);
            }
        }
        return Ok(0);
    }
    for stage in chosen {
        run_stage(stage, &printer, options.retry);
    }
    Ok(printer.conclude())
}

/// A trial and the filters for its cases.
type Chosen = (Trial, Vec<String>);

/// Runs the trials of a stage, as many at once as the processors allow; then runs the failed ones
/// again, alone and up to `retries` times.
fn run_stage(trials: Vec<Chosen>, printer: &Arc<Printer>, retries: u32) {
    let room = std::thread::available_parallelism().map_or(1, usize::from);
    let free = Arc::new((Mutex::new(room), Condvar::new()));
    let failed = Arc::new(Mutex::new(Vec::<(Chosen, Report)>::new()));
    let mut queue: VecDeque<_> = trials.into();
    let mut running = Vec::new();
    while let Some((trial, filters)) = queue.pop_front() {
        let weight = trial.weight.min(room);
        let (count, changed) = &*free;
        let Ok(count) = count.lock() else { return };
        let Ok(mut count) = changed.wait_while(count, |count| *count < weight) else { return };
        *count -= weight;
        drop(count);
        let (free, printer, failed) = (free.clone(), printer.clone(), failed.clone());
        running.push(std::thread::spawn(move || {
            let began = Instant::now();
            let report = run(&trial, &filters);
            printer.took(&trial.name, began.elapsed());
            match failed.lock() {
                Ok(mut failed) if retries > 0 && report.failed() => {
                    printer.postpone(&trial.name, &report);
                    failed.push(((trial, filters), report));
                }
                _ => printer.show(&trial.name, report),
            }
            if let Ok(mut count) = free.0.lock() {
                *count += weight;
            }
            free.1.notify_all();
        }));
    }
    for trial in running {
        let _ = trial.join();
    }
    let Ok(mut failed) = failed.lock() else { return };
    let retries = if failed.len() > MOST_RETRIED { 0 } else { retries };
    for ((trial, filters), first) in failed.drain(..) {
        let mut report = first;
        for _ in 0..retries {
            let next = run(&trial, &filters);
            let passed = !next.failed();
            if passed {
                printer.flaky(&trial.name, &report);
            }
            report = next;
            if passed {
                break;
            }
        }
        printer.show(&trial.name, report);
    }
}

fn run(trial: &Trial, filters: &[String]) -> Report {
    (trial.run)(filters).unwrap_or_else(|error| Report {
        cases: vec![Case::new("", Verdict::Failed("it did not run".into()))],
        output: format!("{error:#}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Trials that fail `times` times and then pass.
    fn conclusion(trials: usize, times: u32, retries: u32) -> u8 {
        let trial = |_| {
            let runs = AtomicU32::new(0);
            let run = move |_: &[String]| {
                let verdict = if runs.fetch_add(1, Ordering::SeqCst) < times {
                    Verdict::Failed("too early".into())
                } else {
                    Verdict::Passed
                };
                Ok(Report { cases: vec![Case::new("", verdict)], output: String::new() })
            };
            let trial =
                Trial { name: "t".into(), cases: Vec::new(), weight: 1, run: Box::new(run) };
            (trial, Vec::new())
        };
        let printer = Arc::new(Printer::new(false));
        run_stage((0..trials).map(trial).collect(), &printer, retries);
        printer.conclude()
    }

    #[test]
    fn a_failed_trial_runs_again_if_asked() {
        assert_eq!(conclusion(2, 0, 0), 0);
        assert_eq!(conclusion(2, 1, 0), 1);
        assert_eq!(conclusion(2, 1, 1), 0);
        assert_eq!(conclusion(2, 2, 1), 1);
        assert_eq!(conclusion(2, 2, 2), 0);
    }

    #[test]
    fn many_failures_are_no_accident() {
        assert_eq!(conclusion(MOST_RETRIED, 1, 1), 0);
        assert_eq!(conclusion(MOST_RETRIED + 1, 1, 1), 1);
    }
}
