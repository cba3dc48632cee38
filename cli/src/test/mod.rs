//! `./hayate test`: the tests, their order, and the verdict.
//!
//! A *trial* is one thing that is started and ends: a check of the sources, a cargo test, a guest
//! program on this machine's Linux, the same program in a machine of N processors. It reports
//! *cases*, one line each. Whether a trial passed is decided by how it ended (an exit status, the
//! exit device of the machine), never by its output: a trial that ends badly has failed even if
//! every line says "ok", and a trial without a single case has failed too.
//!
//! There are two stages. The first stays on the host: sources, host tests, guest programs on Linux,
//! and beside them the kernel and the images are made, because the compiler of one large crate
//! keeps one processor busy. The second stage is everything in a guest. Each guest program has a
//! machine of its own, so that a panic costs only one program. [`schedule`] says which trials run
//! at the same time, and in which order.
//!
//! With `--retry N` a trial that failed runs again, at the end of its stage and alone, up to N
//! times. If it then passes, it is *flaky*: its output from the failure is shown, it is named at
//! the end, and it does not fail the whole. Otherwise, with some hundred rows of which one fails
//! once in a hundred runs, the verdict on a change would be luck. More than
//! [`schedule::MOST_RETRIED`] failures are not an accident, and none of them is run again.
//!
//! Road not taken: cargo-nextest and libtest-mimic (ARCHITECTURE.md says why).

mod addresses;
mod artifacts;
mod cargo;
mod command;
mod containerd;
mod containers;
mod databases;
mod debuggers;
mod disks;
mod documents;
mod errors;
mod exchange;
mod explain;
mod file_systems;
mod guest;
mod images;
mod jobs;
mod kept_starts;
mod layers;
mod links;
mod machines;
mod mode;
mod off2f;
mod packets;
mod processor;
mod report;
mod sandboxes;
mod schedule;
mod screen;
mod servers;
mod snapshots;
mod sources;
mod stack;
pub mod start;
mod strace;
mod stress;
mod templates;
mod volumes;
mod written;

use crate::arguments::Test;
use anyhow::Result;
use report::{Case, Printer, Verdict};
use schedule::{Chosen, run_stage};
use std::sync::Arc;

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

/// The function of a trial. Its argument contains the filters that select among the trial's cases;
/// empty selects all.
type Run = Box<dyn Fn(&[String]) -> Result<Report> + Send>;

/// A trial.
pub struct Trial {
    /// Its name; the names of its cases begin with it.
    pub name: String,
    /// Names of its cases, as far as they are known in advance. Empty: only the trial's name is
    /// known.
    pub cases: Vec<String>,
    /// How many processors it keeps busy; 0 if it leaves them to other trials.
    pub weight: usize,
    /// A thing of which there is one, and which the trial needs for itself.
    pub exclusive: Option<&'static str>,
    /// Runs it.
    pub run: Run,
}

impl Trial {
    /// A trial that keeps one processor busy.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(&[String]) -> Result<Report> + Send + 'static,
    ) -> Trial {
        let run = Box::new(run);
        Trial { name: name.into(), cases: Vec::new(), weight: 1, exclusive: None, run }
    }

    /// The same trial with these cases.
    pub fn cases(self, cases: Vec<String>) -> Trial {
        Trial { cases, ..self }
    }

    /// The same trial, with so many processors busy.
    pub fn weight(self, weight: usize) -> Trial {
        Trial { weight, ..self }
    }

    /// The same trial, which runs at no time beside another one that needs `thing`.
    pub fn exclusive(self, thing: &'static str) -> Trial {
        Trial { exclusive: Some(thing), ..self }
    }

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

/// Trials that end before the next stage begins.
struct Stage {
    name: &'static str,
    trials: Vec<Chosen>,
}

/// Runs the tests; the exit status is 1 if one failed.
pub fn test(options: &Test) -> Result<u8> {
    let printer = Arc::new(Printer::new(options.nocapture));
    let stages = stages(options)?;
    if options.list {
        list(&stages);
        return Ok(0);
    }
    for Stage { name, trials } in stages {
        if !trials.is_empty() {
            printer.stage(name, || run_stage(trials, &printer, options.retry));
        }
    }
    Ok(printer.conclude())
}

/// Returns the stages, with the trials that the options select.
fn stages(options: &Test) -> Result<Vec<Stage>> {
    let programs = guest::programs()?;
    let (mut on_host, mut in_machines) = (Vec::new(), Vec::new());
    if !options.linux_only {
        on_host.extend(sources::trials());
        on_host.extend(cargo::trials());
        on_host.extend(artifacts::trials(options, &programs));
        on_host.push(stack::trial());
        in_machines = trials_in_machines(options, &programs);
    }
    on_host.extend(guest::on_linux(&programs));
    let mut stages =
        [("on this host", on_host), ("in machines", in_machines)].map(|(name, all)| {
            let chosen = all.into_iter().filter_map(|trial| {
                let cases = trial.wanted(&options.filter)?;
                Some((trial, cases))
            });
            Stage { name, trials: chosen.collect() }
        });
    // Cargo's cases are not known before they are built: they are searched only if nothing else has
    // such a name.
    if stages.iter().all(|stage| stage.trials.is_empty()) && !options.linux_only {
        let all = cargo::trials().into_iter().map(|trial| (trial, options.filter.clone()));
        stages[0].trials = all.collect();
    }
    Ok(stages.into())
}

/// Returns the trials in machines. Those that take minutes come before the many short ones.
fn trials_in_machines(options: &Test, programs: &guest::Programs) -> Vec<Trial> {
    let mut trials = guest::suites(options, programs);
    trials.extend(stress::trials(options, programs));
    trials.extend(strace::trials(options));
    trials.extend(debuggers::trials(options));
    trials.extend(sandboxes::trials(options));
    trials.extend(servers::trials(options));
    trials.extend(command::trials(options));
    trials.extend(machines::trials(options));
    trials.extend(volumes::trials(options));
    trials.extend(snapshots::trials(options));
    trials.extend(kept_starts::trials(options));
    trials.extend(disks::trials(options));
    trials.extend(file_systems::trials(options));
    trials.extend(written::trials(options));
    trials.extend(databases::trials(options));
    trials.extend(exchange::trials(options));
    trials.extend(addresses::trials(options));
    trials.extend(images::trials(options));
    trials.extend(jobs::trials(options));
    trials.extend(templates::trials(options));
    trials.extend(containers::trials(options));
    trials.extend(containerd::trials(options));
    trials.extend(explain::trials(options));
    trials.extend(off2f::trials(options));
    trials.extend(packets::trials(options));
    trials.extend(links::trials(options));
    trials.extend(guest::kernel_trials(options));
    trials.extend(guest::in_machines(options, programs));
    trials.extend(start::trials(options));
    trials.extend(errors::trials(options));
    trials.extend(processor::trials(options));
    trials.extend(mode::trials(options));
    trials
}

/// Prints the names of the selected cases.
fn list(stages: &[Stage]) {
    for (trial, cases) in stages.iter().flat_map(|stage| &stage.trials) {
        let names = if cases.is_empty() { &trial.cases } else { cases };
        if names.is_empty() {
            println!("{}", trial.name);
        }
        for case in names {
            println!("{}::{case}", trial.name);
        }
    }
}
