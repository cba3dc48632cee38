//! Debian's strace and gdb, unmodified, in a machine: `debuggers.sh` has what they are asked to do.
//! The calls have cases of their own (`tests/c/ptrace.c`, `tests/c/ptracestop.c`).

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use crate::image::default;
use anyhow::{Context, Result, ensure};

const CHECKS: [(&str, Check); 9] = [
    ("strace_follows_a_shell", |hayate| check(hayate, "strace", "1")),
    ("strace_follows_make", |hayate| check(hayate, "strace_make", "2")),
    ("strace_attaches", |hayate| check(hayate, "strace_attach", "2")),
    ("strace_changes_results", |hayate| check(hayate, "strace_inject", "1")),
    ("gdb_stops_and_steps", |hayate| check(hayate, "gdb", "1")),
    ("gdb_watches_a_variable", |hayate| check(hayate, "gdb_watch", "2")),
    ("gdb_calls_functions", |hayate| check(hayate, "gdb_calls", "1")),
    ("gdb_follows_a_fork", |hayate| check(hayate, "gdb_forks", "2")),
    ("gdb_attaches_to_threads_of_python", |hayate| check(hayate, "gdb_threads", "2")),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("debuggers", &CHECKS, options)
}

const SCRIPT: &str = include_str!("debuggers.sh");

/// Runs one check of the script in a machine.
fn check(hayate: &Hayate, check: &str, processors: &str) -> Result<()> {
    run_check(hayate, &default::DEBUGGERS, &["--cpus", processors], SCRIPT, check)
}

/// Runs `check` of a script in a machine whose root is the image of `recipe`: its last line is
/// `done`, and its status 0.
pub(super) fn run_check(
    hayate: &Hayate,
    recipe: &default::Recipe,
    options: &[&str],
    script: &str,
    check: &str,
) -> Result<()> {
    let image = recipe.get()?;
    let image = image.to_string_lossy();
    let script = format!("set -- {check}\n{script}");
    let usual = ["--net", "none", "--rootfs", &image, "--timeout", "300"];
    let output = hayate.run(&[&usual, options].concat(), &["/bin/sh", "-c", &script])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().with_context(|| format!("it said only {said}"))?;
    ensure!(last == "done" && output.status.success(), "{text}{said}");
    Ok(())
}
