//! Runs experiments: each round of each experiment in a process of its own, one pass over the whole
//! suite after the other.
//!
//! A process per round separates experiments' memory, signals and threads, gets new physical pages
//! each time, and turns a crash or a hang into one line of the result. Passes spread the rounds of
//! an experiment over the whole run, so that a disturbance of a few seconds does not affect all of
//! them.
//!
//! A round's ticks come back through a pipe as JSON. If the kernel cannot fork, rounds run in this
//! process; nothing else changes.

use crate::clock::Clock;
use crate::experiment::{Experiment, Setting};
use crate::sampler::{Plan, Sampler, Skip};
use crate::sys::priority::become_raised_session;
use crate::sys::process::{Child, Ended, become_group};
use crate::sys::signal::{forget_stop_requests, stop_requested};
use serde::{Deserialize, Serialize};
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A round that takes longer than this beyond its budget is considered hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its raw ticks.
    Ticks(Vec<u64>),
    /// Why there are none.
    Skip(String),
    /// The user stopped the run meanwhile.
    Stopped,
}

/// Runs one round of `experiment`.
pub fn round(experiment: &Experiment, setting: &Setting, clock: Clock, plan: Plan) -> Outcome {
    let Ok((reader, writer)) = std::io::pipe() else {
        return in_process(experiment, setting, clock, plan);
    };
    let child = Child::start(|| {
        forget_stop_requests();
        if setting.raised {
            become_raised_session()
        } else {
            become_group()
        }
        let outcome = in_process(experiment, setting, clock, plan);
        let sent =
            serde_json::to_vec(&outcome).is_ok_and(|text| (&writer).write_all(&text).is_ok());
        i32::from(!sent)
    });
    let child = match child {
        Ok(child) => child,
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            return in_process(experiment, setting, clock, plan);
        }
        Err(error) => return Outcome::Skip(format!("starting a process: {error}")),
    };
    drop(writer);
    receive(reader, child, Instant::now() + plan.budget + PATIENCE)
}

/// Returns the result of `work` in a process of its own; `None` if the process fails.
pub fn in_child(work: impl FnOnce() -> Option<[f64; 2]>) -> Option<[f64; 2]> {
    let (mut reader, writer) = std::io::pipe().ok()?;
    let child = Child::start(|| match work() {
        Some(answers) => {
            let bytes = answers.map(f64::to_le_bytes).concat();
            i32::from((&writer).write_all(&bytes).is_err())
        }
        None => 1,
    })
    .ok()?;
    drop(writer);
    let mut bytes = [[0; 8]; 2];
    let read = reader.read_exact(bytes.as_flattened_mut());
    let ended = child.wait();
    (read.is_ok() && ended == Ended::Exit(0)).then(|| bytes.map(f64::from_le_bytes))
}

fn in_process(experiment: &Experiment, setting: &Setting, clock: Clock, plan: Plan) -> Outcome {
    let mut sampler = Sampler::new(clock, plan);
    match experiment.measure(setting, &mut sampler) {
        Ok(()) => Outcome::Ticks(sampler.into_ticks()),
        Err(Skip(reason)) => Outcome::Skip(reason),
    }
}

fn receive(mut reader: PipeReader, child: Child, deadline: Instant) -> Outcome {
    let mut text = Vec::new();
    let mut part = vec![0; 1 << 16];
    loop {
        if stop_requested() {
            child.kill_group();
            return Outcome::Stopped;
        }
        if Instant::now() >= deadline {
            child.kill_group();
            return Outcome::Skip(format!(
                "no result after {} seconds: it hangs here",
                PATIENCE.as_secs()
            ));
        }
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // A long wait: waking up would disturb the child, which runs on the same processor.
        // Ctrl-C ends it early. SAFETY: one pollfd, which the kernel fills in.
        if unsafe { libc::poll(&mut poll, 1, 2000) } == 0 {
            continue;
        }
        match reader.read(&mut part) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let ended = child.wait();
    if let Ok(outcome) = serde_json::from_slice(&text) {
        return outcome;
    }
    if stop_requested() {
        return Outcome::Stopped;
    }
    Outcome::Skip(match ended {
        Ended::Signal(signal) => format!("the measuring process was ended by signal {signal}"),
        Ended::Exit(status) => format!("the measuring process ended with status {status}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn setting() -> Setting {
        Setting {
            directory: PathBuf::from("/tmp"),
            caches: Vec::new(),
            cpus: vec![0],
            memory_limit: 1 << 20,
            file_limit: 1 << 20,
            remote: None,
            exits: false,
            raised: false,
            programs: Vec::new(),
            without_idle: false,
        }
    }

    fn run(body: fn(&Setting, &mut Sampler) -> Result<(), Skip>) -> Outcome {
        let clock = Clock::calibrate(None).unwrap();
        let plan = Plan {
            iterations: Some(7),
            at_least: 1,
            at_most: 1,
            budget: Duration::from_millis(1),
            warm_up: true,
        };
        round(&Experiment::time("t", "t", body), &setting(), clock, plan)
    }

    #[test]
    fn rounds_come_back_from_their_process() {
        // Tests run in threads, but the children only take samples and exit.
        let Outcome::Ticks(ticks) = run(|_, m| m.batch(10, || {})) else { panic!() };
        assert_eq!(ticks.len(), 7);
        assert_eq!(
            run(|_, _| Err(Skip("no such thing".into()))),
            Outcome::Skip("no such thing".into())
        );
        let Outcome::Skip(reason) = run(|_, _| std::process::abort()) else { panic!() };
        assert!(reason.contains("signal 6"), "{reason}");
    }
}
