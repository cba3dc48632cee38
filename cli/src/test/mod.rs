//! `./hayate test`: what is tested, in which order, and the verdict.
//!
//! A *trial* is one thing that is started and ends: a look at the sources, a cargo test, a guest
//! program on this machine's Linux, the same program in a machine of N processors. It reports
//! *cases*, one line each. Whether a trial passed is decided by how it ended (an exit status, the
//! exit device of the machine), never by what it printed: a trial that ends badly has failed even
//! if every line says "ok", and one that printed no case at all has failed too.
//!
//! Order: sources, host tests, guest programs on Linux, then everything in the guest. Each guest
//! program has a machine of its own, so that a panic costs one program and not the rest. As many
//! machines run at once as processors are there for.

mod cargo;
mod command;
mod explain;
mod guest;
mod mode;
mod off2f;
mod report;
mod sources;

use crate::arguments::Test;
use anyhow::Result;
use report::{Case, Printer, Verdict};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

/// What came of a trial.
pub struct Report {
    /// Its cases.
    pub cases: Vec<Case>,
    /// What it printed, shown if a case failed.
    pub output: String,
}

/// One thing to run.
pub struct Trial {
    /// Its name; those of its cases begin with it or say more.
    pub name: String,
    /// Names of cases, as far as they are known before. Empty: the name is all there is.
    pub cases: Vec<String>,
    /// How many processors it keeps busy; 0 for one that leaves them to the others.
    pub weight: usize,
    /// Runs it. The argument are the filters that select among its cases; empty selects all.
    #[expect(clippy::type_complexity, reason = "the one place where it is written out")]
    pub run: Box<dyn FnOnce(&[String]) -> Result<Report> + Send>,
}

impl Trial {
    /// Whether the filters want it: `None` if not, or the filters that its cases must pass.
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
        stages.push(command::trials(options));
        stages.push(mode::trials(options));
        stages.push(explain::trials(options));
        stages.push(off2f::trials(options));
    }
    let mut chosen: Vec<Vec<(Trial, Vec<String>)>> = Vec::new();
    for stage in stages {
        let stage = stage.into_iter().filter_map(|trial| {
            let cases = trial.wanted(&options.filter)?;
            Some((trial, cases))
        });
        chosen.push(stage.collect());
    }
    // Cases of cargo's are not known before they are built: they are looked for if nothing else
    // has such a name.
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
        run_stage(stage, &printer);
    }
    Ok(printer.conclude())
}

/// Runs the trials of a stage, as many at once as there are processors for.
fn run_stage(trials: Vec<(Trial, Vec<String>)>, printer: &Arc<Printer>) {
    let room = std::thread::available_parallelism().map_or(1, usize::from);
    let free = Arc::new((Mutex::new(room), Condvar::new()));
    let mut queue: VecDeque<_> = trials.into();
    let mut running = Vec::new();
    while let Some((trial, filters)) = queue.pop_front() {
        let weight = trial.weight.min(room);
        let (count, changed) = &*free;
        let Ok(count) = count.lock() else { return };
        let Ok(mut count) = changed.wait_while(count, |count| *count < weight) else { return };
        *count -= weight;
        drop(count);
        let (free, printer) = (free.clone(), printer.clone());
        running.push(std::thread::spawn(move || {
            let name = trial.name;
            let report = (trial.run)(&filters).unwrap_or_else(|error| Report {
                cases: vec![Case::new("", Verdict::Failed("it did not run".into()))],
                output: format!("{error:#}"),
            });
            printer.show(&name, report);
            if let Ok(mut count) = free.0.lock() {
                *count += weight;
            }
            free.1.notify_all();
        }));
    }
    for trial in running {
        let _ = trial.join();
    }
}
