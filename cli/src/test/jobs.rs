//! The experiment with ordinary jobs, a part of it: with `--long`, because its image takes a minute
//! to make, and its machines five more.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

const CHECKS: [(&str, Check); 1] =
    [("are_measured_on_each_number_of_processors", on_each_number_of_processors)];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = trials_of("jobs", &CHECKS, options);
    trials.retain(|trial| options.includes_long(&trial.name));
    trials.into_iter().map(|trial| trial.weight(2)).collect()
}

/// A job that starts programs and one that does not, in both systems, on one processor and on two:
/// each has its time in every boot, and its aim.
fn on_each_number_of_processors(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = hayate.any("experiment")?;
    command.args(["jobs", "--only", "starts,dd", "-o"]).arg(folder.path());
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Whether an aim is reached is for the results to tell, and not for a busy host.
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{}: {said}", output.status);
    let text = std::fs::read_to_string(folder.path().join("jobs.json"))?;
    let found: Value = serde_json::from_str(&text)?;
    let further = found["further"].as_array().context("only one number of processors")?;
    ensure!(further.len() == 1, "one and two processors: {text}");
    for (part, picture) in [(&found, "jobs.svg"), (&further[0], "jobs-2.svg")] {
        for (line, name) in [(0, "program/starts"), (1, "program/dd")] {
            ensure!(part["lines"][line]["name"] == name, "{text}");
            for system in [0, 1] {
                let time = part["lines"][line]["values"][system]["median"].as_f64();
                // A millisecond: 300 starts, and 64 MiB, take longer on any machine.
                ensure!(time.is_some_and(|time| time > 1e6), "{name}: {time:?}; {text}{said}");
            }
        }
        let aims = part["aims"].as_array().map_or(0, Vec::len);
        ensure!(aims == 2, "{aims} aims: {text}");
        ensure!(folder.path().join(picture).exists(), "no picture {picture}");
    }
    let page = std::fs::read_to_string(folder.path().join("jobs.md"))?;
    let one = page.contains("1024 MiB of memory, one processor; 5 boots of each system");
    ensure!(one && page.contains("1024 MiB of memory, two processors;"), "{page}");
    Ok(())
}
