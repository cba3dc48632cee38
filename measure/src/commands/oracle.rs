//! `measure oracle`: compares the suite's medians with those of the naive method.
//!
//! The naive method has no single answer (see `naive`), and machines drift. So both methods
//! alternate, each turn in a process of its own, and the medians over many turns are compared: a
//! disturbance of the machine affects both alike. The suite must be within a tenth of one of the
//! two naive medians, or between them.

use crate::args::OracleArguments;
use crate::clock::{Clock, Source};
use crate::exit::{CANNOT_MEASURE, Failure, USAGE, WORSE};
use crate::experiment::{Experiment, Setting};
use crate::naive::{SUBJECTS, Subject};
use crate::runner::{Outcome, in_child, round};
use crate::sampler::Plan;
use crate::session::{pin_to_last, setting};
use crate::{experiments, fingerprint};
use measure_data::statistics::median;
use std::time::Duration;

/// The largest accepted difference of the medians.
const AGREE: f64 = 0.10;
/// The suite's plan for one turn.
const PLAN: Plan = Plan {
    iterations: Some(100),
    at_least: 100,
    at_most: 100,
    budget: Duration::from_secs(1),
    warm_up: true,
};

/// Compares, prints, and fails if a median is further off than a tenth.
pub fn oracle(a: &OracleArguments) -> Result<(), Failure> {
    let mut setting = setting(&a.run_arguments())?;
    setting.caches = fingerprint::machine(&setting.directory).caches;
    pin_to_last(&setting);
    let clock = Clock::calibrate(Some(Source::Tsc))
        .map_err(|error| Failure::new(CANNOT_MEASURE, format!("no counter to read: {error}")))?;
    let all = experiments::all(&setting);
    let chosen: Vec<_> = SUBJECTS
        .iter()
        .filter(|s| a.names.is_empty() || a.names.iter().any(|n| n == s.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = SUBJECTS.iter().map(|s| s.name).collect();
        return Err(Failure::new(USAGE, format!("both ways know {}", names.join(", "))));
    }
    println!(
        "{:<24} {:>10} {:>10} {:>13} {:>8}",
        "ticks of the counter", "suite", "in a loop", "behind a call", "ratio"
    );
    let mut off = Vec::new();
    for subject in chosen {
        let Some(experiment) = all.iter().find(|e| e.name == subject.name) else { continue };
        let (suite, naive) = medians(a.turns, subject, experiment, (&setting, clock))?;
        let nearest = suite.clamp(naive[0].min(naive[1]), naive[0].max(naive[1]));
        let ratio = suite / nearest;
        println!(
            "{:<24} {suite:>10.1} {:>10.1} {:>13.1} {ratio:>8.3}",
            subject.name, naive[0], naive[1]
        );
        // Also for a ratio that is NaN.
        if !((1.0 - AGREE)..=(1.0 + AGREE)).contains(&ratio) {
            off.push(subject.name);
        }
    }
    if off.is_empty() {
        println!("all medians agree within a tenth");
        return Ok(());
    }
    let text = format!("the suite and the naive method differ by over a tenth: {}", off.join(", "));
    Err(Failure::new(WORSE, text))
}

/// Takes turns, and returns the median of the suite and those of the naive method.
fn medians(
    turns: u32,
    subject: &Subject,
    experiment: &Experiment,
    (setting, clock): (&Setting, Clock),
) -> Result<(f64, [f64; 2]), Failure> {
    let (mut suite, mut naive) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..turns {
        match round(experiment, setting, clock, PLAN) {
            Outcome::Ticks(ticks) => {
                let mut values: Vec<f64> = ticks
                    .iter()
                    .map(|t| (*t as f64 - clock.overhead).max(0.0) / experiment.work)
                    .collect();
                suite.push(median(&mut values));
            }
            Outcome::Skip(reason) => {
                let text = format!("{}: {reason}", subject.name);
                return Err(Failure::new(CANNOT_MEASURE, text));
            }
            Outcome::Stopped => return Err(Failure::silent(crate::exit::STOPPED)),
        }
        let Some(answers) = in_child(subject.answer) else {
            let text = format!("{}: the naive method gave no answer", subject.name);
            return Err(Failure::new(CANNOT_MEASURE, text));
        };
        naive.iter_mut().zip(answers).for_each(|(all, answer)| all.push(answer));
    }
    Ok((median(&mut suite), naive.map(|mut all| median(&mut all))))
}
