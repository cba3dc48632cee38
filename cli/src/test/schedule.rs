//! Runs the trials of a stage at the same time, as far as the host's processors allow.
//!
//! A trial has a weight, the number of processors that it keeps busy, and perhaps a thing that it
//! needs for itself, such as the folder that cargo locks. Whenever a processor is free, the first
//! waiting trial starts that fits. The heaviest trials come first, so that none of them has to wait
//! until light ones leave it a whole machine while a processor idles; among trials of one weight
//! the order is that of the stage, which puts long ones first: the stage ends when the last short
//! ones do. A trial of weight 0 runs beside the light ones, most of them at low priority, and
//! starts before them: they leave it more of the processors than heavy ones do.

use super::report::{Case, Printer, Verdict};
use super::{Report, Trial};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// The most failed trials of a stage that are run again.
pub const MOST_RETRIED: usize = 8;

/// A trial and the filters for its cases.
pub type Chosen = (Trial, Vec<String>);

/// The means that a trial occupies while it runs.
#[derive(Clone, Copy)]
struct Needs {
    processors: usize,
    thing: Option<&'static str>,
}

/// The means that running trials leave to the others.
struct Room {
    /// Processors without a trial.
    processors: usize,
    /// The things that a running trial needs for itself.
    taken: BTreeSet<&'static str>,
}

impl Room {
    fn fits(&self, needs: Needs) -> bool {
        let free = needs.thing.is_none_or(|thing| !self.taken.contains(thing));
        needs.processors <= self.processors && free
    }

    fn enter(&mut self, needs: Needs) {
        self.processors -= needs.processors;
        self.taken.extend(needs.thing);
    }

    fn leave(&mut self, needs: Needs) {
        self.processors += needs.processors;
        if let Some(thing) = needs.thing {
            self.taken.remove(thing);
        }
    }
}

/// Runs the trials of a stage, as many at once as the processors allow; then runs what failed
/// again, alone and up to `retries` times: of a trial whose cases are known, the cases that failed.
pub fn run_stage(trials: Vec<Chosen>, printer: &Arc<Printer>, retries: u32) {
    let failed = Mutex::new(Vec::<(Chosen, Report)>::new());
    let first_run = |chosen: Chosen| {
        let (trial, filters) = &chosen;
        let began = Instant::now();
        let report = run(trial, filters);
        printer.took(&trial.name, began.elapsed());
        if retries > 0 && report.failed() {
            printer.postpone(&trial.name, &report);
            failed.lock().unwrap_or_else(PoisonError::into_inner).push((chosen, report));
        } else {
            printer.show(&trial.name, report);
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    run_all(trials, processors, &first_run);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let retries = if failed.len() > MOST_RETRIED { 0 } else { retries };
    for ((trial, filters), first) in failed {
        printer.show(&trial.name, run_again(&trial, &filters, first, printer, retries));
    }
}

/// Calls `run` for every trial, each in a thread of its own, and waits for all of them.
fn run_all(mut trials: Vec<Chosen>, processors: usize, run: &(impl Fn(Chosen) + Sync)) {
    let needs = |(trial, _): &Chosen| Needs {
        processors: trial.weight.min(processors),
        thing: trial.exclusive,
    };
    trials.sort_by_key(|(trial, _)| Reverse(rank(trial.weight.min(processors))));
    let room = Mutex::new(Room { processors, taken: BTreeSet::new() });
    let left = Condvar::new();
    std::thread::scope(|scope| {
        while !trials.is_empty() {
            let mut now = room.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(next) = trials.iter().position(|chosen| now.fits(needs(chosen))) else {
                drop(left.wait(now));
                continue;
            };
            let chosen = trials.remove(next);
            let needs = needs(&chosen);
            now.enter(needs);
            drop(now);
            let (room, left) = (&room, &left);
            scope.spawn(move || {
                run(chosen);
                room.lock().unwrap_or_else(PoisonError::into_inner).leave(needs);
                left.notify_one();
            });
        }
    });
}

/// Where trials of this weight stand: the heaviest first, and those of weight 0 before those of
/// weight 1.
fn rank(weight: usize) -> usize {
    if weight == 0 { 3 } else { 2 * weight }
}

/// Runs a failed trial again until it passes, up to `retries` times; returns its last report.
fn run_again(
    trial: &Trial,
    filters: &[String],
    first: Report,
    printer: &Printer,
    retries: u32,
) -> Report {
    let mut report = first;
    for _ in 0..retries {
        let only = failed_cases(trial, &report);
        let next = run(trial, only.as_deref().unwrap_or(filters));
        let passed = !next.failed();
        if passed {
            printer.flaky(&trial.name, &report);
        }
        report = match only {
            Some(_) => instead_of_failures(report, next),
            None => next,
        };
        if passed {
            break;
        }
    }
    report
}

/// The cases of a report that failed, if they are all cases that the trial can run alone.
fn failed_cases(trial: &Trial, report: &Report) -> Option<Vec<String>> {
    let failed = report.cases.iter().filter(|case| matches!(case.verdict, Verdict::Failed(_)));
    let names: Vec<String> = failed.map(|case| case.name.clone()).collect();
    names.iter().all(|name| trial.cases.contains(name)).then_some(names)
}

/// The first report with the second one's cases in the place of those that failed.
fn instead_of_failures(first: Report, second: Report) -> Report {
    let mut cases = first.cases;
    cases.retain(|case| !matches!(case.verdict, Verdict::Failed(_)));
    cases.extend(second.cases);
    Report { cases, output: second.output }
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
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    use std::time::Duration;

    /// Trials that fail `times` times and then pass.
    fn conclusion(trials: usize, times: u32, retries: u32) -> u8 {
        let trial = |_| {
            let runs = AtomicU32::new(0);
            let trial = Trial::new("t", move |_| {
                let verdict = if runs.fetch_add(1, Ordering::SeqCst) < times {
                    Verdict::Failed("too early".into())
                } else {
                    Verdict::Passed
                };
                Ok(Report { cases: vec![Case::new("", verdict)], output: String::new() })
            });
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
    fn only_the_cases_that_failed_run_again() {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let seen = ran.clone();
        let trial = Trial::new("t", move |filters| {
            let mut seen = seen.lock().unwrap();
            seen.push(filters.to_vec());
            let is_first = seen.len() == 1;
            let names = if is_first { vec!["a".to_string(), "b".into()] } else { filters.to_vec() };
            let case = |name: &String| match is_first && name == "b" {
                true => Case::new(name, Verdict::Failed("too early".into())),
                false => Case::new(name, Verdict::Passed),
            };
            Ok(Report { cases: names.iter().map(case).collect(), output: String::new() })
        });
        let printer = Arc::new(Printer::new(false));
        let trial = trial.cases(vec!["a".into(), "b".into()]);
        run_stage(vec![(trial, Vec::new())], &printer, 1);
        assert_eq!(*ran.lock().unwrap(), [vec![], vec!["b".to_string()]]);
        assert_eq!(printer.conclude(), 0);
    }

    #[test]
    fn many_failures_are_no_accident() {
        assert_eq!(conclusion(MOST_RETRIED, 1, 1), 0);
        assert_eq!(conclusion(MOST_RETRIED + 1, 1, 1), 1);
    }

    /// Trials by weight and exclusive thing, on so many processors: their order.
    fn order(trials: &[(usize, Option<&'static str>)], processors: usize) -> Vec<usize> {
        let busy = AtomicUsize::new(0);
        let things = Mutex::new(BTreeSet::new());
        let order = Mutex::new(Vec::new());
        let make = |(number, &(weight, thing)): (usize, &(usize, Option<&'static str>))| {
            let trial = Trial::new(number.to_string(), |_| {
                Ok(Report { cases: Vec::new(), output: String::new() })
            });
            (Trial { exclusive: thing, ..trial.weight(weight) }, Vec::new())
        };
        run_all(trials.iter().enumerate().map(make).collect(), processors, &|(trial, _)| {
            let weight = trial.weight.min(processors);
            assert!(busy.fetch_add(weight, Ordering::SeqCst) + weight <= processors);
            if let Some(thing) = trial.exclusive {
                assert!(things.lock().unwrap().insert(thing), "two trials have {thing}");
            }
            order.lock().unwrap().push(trial.name.parse().unwrap());
            std::thread::sleep(Duration::from_millis(20));
            if let Some(thing) = trial.exclusive {
                things.lock().unwrap().remove(thing);
            }
            busy.fetch_sub(weight, Ordering::SeqCst);
        });
        order.into_inner().unwrap()
    }

    #[test]
    fn heavy_trials_come_first() {
        let trials = [(1, None), (2, None), (16, None)];
        assert_eq!(order(&trials, 2), [1, 2, 0]);
        assert_eq!(order(&trials, 16)[0], 2);
        assert_eq!(order(&trials, 1), [0, 1, 2]);
        assert_eq!([2, 0, 1].map(rank), [4, 3, 2]);
    }

    #[test]
    fn one_trial_at_a_time_has_a_thing_and_another_overtakes() {
        let trials = [(1, Some("a")), (1, Some("a")), (1, None), (1, None), (1, Some("a"))];
        let order = order(&trials, 2);
        let at = |number| order.iter().position(|&other| other == number).unwrap();
        assert!(at(2) < at(1), "{order:?}");
        assert!(at(0) < at(1) && at(1) < at(4), "{order:?}");
    }
}
