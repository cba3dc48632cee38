//! Templates of Python and Perl: `template make NAME --python`.
//!
//! The checks run in the guest (`templates.sh`): they run the same commands without and with a bound
//! path, and compare what they print. The system calls have cases of their own (`tests/c/template.c`).

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};

const CHECKS: [(&str, Check); 4] = [
    ("python_starts_print_the_same", |hayate| check(hayate, "python")),
    ("perl_starts_print_the_same", |hayate| check(hayate, "perl_starts")),
    ("perl_scripts_compiled_before_print_the_same", |hayate| check(hayate, "perl_scripts")),
    ("serve_one_user_each", |hayate| check(hayate, "users")),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    if options.guest_linux { Vec::new() } else { trials_of("templates", &CHECKS, options) }
}

const SCRIPT: &str = include_str!("templates.sh");

/// Runs one check of the script in a machine.
fn check(hayate: &Hayate, check: &str) -> Result<()> {
    let script = format!("set -- {check}\n{SCRIPT}");
    let output = hayate.run(&["--net", "none"], &["/bin/sh", "-c", &script])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().with_context(|| format!("it said only {said}"))?;
    ensure!(last == "done" && output.status.success(), "{text}{said}");
    Ok(())
}
