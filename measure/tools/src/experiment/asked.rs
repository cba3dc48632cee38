//! A server in the machine that ApacheBench asks from the host, through a port that QEMU's own
//! network publishes: what a client outside of the machine waits for an answer.
//!
//! The systems are booted in turn, round after round, so that what disturbs the host disturbs all;
//! of each the best round counts, which it disturbed least.

use super::describe::{Asked, Description};
use super::results::{self, Line, Results, Value};
use crate::boot::{READY, Setup, System};
use crate::numbers::counted;
use anyhow::{Context, Result, ensure};
use hayate_cli::failure::{Failure, USAGE};
use hayate_cli::progress::Progress;
use std::process::Command;

/// The text above the numbers, in place of that for times.
pub const KIND: &str = "Numbers are time by the host's clock, from the request of a client on this \
    host to the end of the answer, with a connection for each, through QEMU's own network. Where \
    QEMU translates in software (tcg) only ratios mean something.";

/// The client.
const CLIENT: &str = "ab";

/// The times of one system: of each work, in each round.
type Times = Vec<Vec<f64>>;

/// Measures an experiment of this kind.
pub fn made(
    name: &str,
    what: &Description,
    (wanted, setup, systems): (&Asked, &Setup, &[System]),
) -> Result<Results> {
    if Command::new(CLIENT).arg("-V").output().is_err() {
        let text = "ApacheBench is not there: apt-get install apache2-utils";
        return Err(Failure::error(USAGE, text));
    }
    setup.prepare(systems)?;
    let mut of: Vec<results::System> = systems.iter().map(results::System::of).collect();
    let mut times: Vec<Times> = vec![vec![Vec::new(); what.workload.len()]; systems.len()];
    for round in 1..=wanted.rounds {
        for ((system, of), times) in systems.iter().zip(&mut of).zip(&mut times) {
            let text = format!("Asking {}, round {round} of {}", system.title, wanted.rounds);
            let _step = Progress::new(text);
            let (release, answers) = answers(what, wanted, setup, system)?;
            of.release = Some(release);
            times.iter_mut().zip(answers).for_each(|(times, time)| times.push(time));
        }
    }
    let machine = format!(
        "{} MiB of memory, one processor; {} of each system in turn, in each {} one after the \
         other, behind {} that do not count.",
        what.memory,
        counted(wanted.rounds, "boot", "boots"),
        counted(wanted.requests, "request", "requests"),
        wanted.first,
    );
    let mut results = Results::new(name, what, false, (machine, of));
    results.lines = lines(what, &times);
    results.aims = results::aims(what, &results.systems, &results.lines);
    Ok(results)
}

/// Boots a system and asks for each document; returns its release and what an answer takes, in
/// nanoseconds.
fn answers(
    what: &Description,
    wanted: &Asked,
    setup: &Setup,
    system: &System,
) -> Result<(String, Vec<f64>)> {
    let mut words = system.launcher.clone();
    // It says so when the launcher's server answers, and stays until its input ends.
    words.extend(["/bin/sh", "-c"].map(String::from));
    words.push(format!("uname -r; echo {READY}; read -r _; exit 0"));
    let all = what.workload.iter().filter_map(|work| work.ask.as_deref());
    setup.serve(system, words, wanted.port, |port, said| {
        let ask = |path: &str| {
            let place = format!("http://127.0.0.1:{port}/{path}");
            if wanted.first > 0 {
                asked(wanted.first, &place)?;
            }
            asked(wanted.requests, &place)
        };
        let ask = |path| ask(path).with_context(|| format!("{}, {path}", system.title));
        let answers: Result<_> = all.map(ask).collect();
        let release = said.lines().next().unwrap_or_default();
        Ok((release.trim_end().into(), answers?))
    })
}

/// Asks for a document so often; returns what an answer takes, in nanoseconds.
fn asked(requests: u32, place: &str) -> Result<f64> {
    let mut command = Command::new(CLIENT);
    // Answers may differ in their length (-l).
    command.args(["-q", "-l", "-n", &requests.to_string(), place]);
    let output = command.output().context("cannot start ApacheBench")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ApacheBench: {}{}", said.trim_end(), error.trim_end());
    mean(&said, requests).with_context(|| format!("ApacheBench says: {}", said.trim_end()))
}

/// The time of a request that ApacheBench reports, in nanoseconds, if all were answered well.
fn mean(said: &str, requests: u32) -> Result<f64> {
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next())
    };
    let complete = value("Complete requests:").and_then(|count| count.parse().ok());
    ensure!(complete == Some(requests), "not all requests are complete");
    ensure!(value("Failed requests:") == Some("0"), "requests failed");
    ensure!(!said.contains("Non-2xx"), "the server refused requests");
    let time: f64 = value("Time per request:").context("no time")?.parse().context("the time")?;
    ensure!(time > 0.0, "no time passed");
    Ok(time * 1e6)
}

/// The best time of each system for each work, with the worst.
fn lines(what: &Description, times: &[Times]) -> Vec<Line> {
    let value = |rounds: &Vec<f64>| {
        let best = rounds.iter().copied().reduce(f64::min)?;
        let worst = rounds.iter().copied().reduce(f64::max)?;
        Some(Value { median: best, low: best, high: worst })
    };
    let line = |(at, work): (usize, &super::describe::Work)| Line {
        name: work.name.clone(),
        title: work.title.clone().unwrap_or_else(|| work.name.clone()),
        at_most: work.at_most,
        values: times.iter().map(|times| times.get(at).and_then(value)).collect(),
        totals: vec![None; times.len()],
    };
    what.workload.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Server Software:        Apache\n\nConcurrency Level:      1\n\
        Time taken for tests:   0.461 seconds\nComplete requests:      20\n\
        Failed requests:        0\nRequests per second:    43.38 [#/sec] (mean)\n\
        Time per request:       23.052 [ms] (mean)\n\
        Time per request:       23.052 [ms] (mean, across all concurrent requests)\n";

    #[test]
    fn the_time_of_a_request_is_read() {
        assert!((mean(SAID, 20).unwrap() - 23_052_000.0).abs() < 1.0);
        assert!(mean(SAID, 21).is_err());
        for (from, to) in [
            ("Failed requests:        0", "Failed requests:        1"),
            ("Requests per", "Non-2xx responses:      20\nRequests per"),
            ("23.052 [ms]", "0.000 [ms]"),
            ("23.052 [ms]", "much [ms]"),
            ("Time per request:", "Time:"),
        ] {
            assert!(mean(&SAID.replace(from, to), 20).is_err(), "{to}");
        }
        assert!(mean("", 20).is_err());
    }

    #[test]
    fn the_best_round_counts() {
        let what: Description = serde_json::from_str(
            r#"{"title": "A", "question": "x", "counting": false, "memory": 512,
            "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1,
            "asked": {"port": 80, "requests": 9, "first": 1, "rounds": 3}, "rate": "Requests",
            "systems": [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}],
            "workload": [{"name": "w", "ask": "x", "at_most_of": {"b": 0.5}}]}"#,
        )
        .unwrap();
        let times = [vec![vec![3e6, 1e6, 2e6]], vec![vec![5e6, 4e6, 9e6]]];
        let lines = lines(&what, &times);
        let value = lines[0].values[0].unwrap();
        assert_eq!((value.median, value.high), (1e6, 3e6));
        let systems = ["a", "b"].map(|name| results::System {
            name: name.into(),
            title: name.into(),
            linux: false,
            words: String::new(),
            release: None,
            missing: None,
            failed: false,
            skipped: Vec::new(),
        });
        let mut results = Results::new("x", &what, false, (String::new(), systems.to_vec()));
        results.lines = lines;
        results.aims = results::aims(&what, &results.systems, &results.lines);
        assert!((results.aims[0].ratio - 0.25).abs() < 1e-9);
        let page = super::super::page::markdown(&results);
        assert!(page.contains("Time, best of 3 (and worst)"), "{page}");
        assert!(page.contains("1.00 ms (3.00 ms)") && page.contains("| 1000 | 250 |"), "{page}");
    }
}
