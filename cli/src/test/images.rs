//! Remembered starts: `./hayate run --recycle full+image`.
//!
//! The checks run in the guest (`images.sh`): they start the same commands again and again, so that
//! they begin at images, and compare what they print.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};

const CHECKS: [(&str, Check); 8] = [
    ("print_the_same_at_each_start", |hayate| check(hayate, &[], "same_output")),
    ("see_every_change", |hayate| check(hayate, &[], "changes_are_seen")),
    ("see_what_is_mounted", |hayate| check(hayate, &[], "mounts")),
    ("end_as_they_should", |hayate| check(hayate, &[], "statuses")),
    ("have_their_own_number_and_time", |hayate| check(hayate, &[], "numbers_and_time")),
    ("serve_one_user_each", |hayate| check(hayate, &[], "users")),
    ("are_never_stale_in_a_storm", |hayate| check(hayate, &["--cpus", "2"], "storm 200 0.2")),
    ("are_never_stale_in_a_long_storm", long_storm),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = trials_of("images", &CHECKS, options);
    trials
        .retain(|trial| !trial.name.ends_with("long_storm") || options.includes_long(&trial.name));
    trials
}

const SCRIPT: &str = include_str!("images.sh");

/// Runs one check of the script in a machine with these options.
fn check(hayate: &Hayate, options: &[&str], check: &str) -> Result<()> {
    let options = [&["--recycle", "full+image", "--net", "none"], options].concat();
    let script = format!("set -- {check}\n{SCRIPT}");
    let output = hayate.run(&options, &["/bin/sh", "-c", &script])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().with_context(|| format!("it said only {said}"))?;
    ensure!(last == "done" && output.status.success(), "{text}{said}");
    Ok(())
}

/// Ten minutes of changes.
fn long_storm(hayate: &Hayate) -> Result<()> {
    check(hayate, &["--cpus", "2"], "storm 5000 0.4")
}
