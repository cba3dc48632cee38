//! Debian's unshare, bubblewrap, runc and systemd, unmodified, in a machine, as root and as an
//! ordinary user: `sandboxes.sh` has what they are asked to do. The calls have cases of their own
//! (`tests/c/userns.c`, `tests/c/usermount.c`, `tests/c/netns.c`, `tests/c/propagate.c`,
//! `tests/c/devpts.c`, `tests/c/devcg.c`).

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use super::debuggers::run_check;
use crate::arguments::Test;
use crate::image::default;
use anyhow::Result;

const CHECKS: [(&str, Check); 9] = [
    ("unshare_maps_the_user", |hayate| check(hayate, "unshare")),
    ("unshare_mounts_memory", |hayate| check(hayate, "mounts")),
    ("unshare_numbers_processes", |hayate| check(hayate, "processes")),
    ("unshare_makes_a_network", |hayate| check(hayate, "network")),
    ("unshare_shares_mounts", |hayate| check(hayate, "propagation")),
    ("bubblewrap_keeps_a_program_in", |hayate| check(hayate, "bubblewrap")),
    ("bubblewrap_makes_a_dev", |hayate| check(hayate, "dev")),
    ("runc_runs_bundles", |hayate| check(hayate, "runc")),
    ("systemd_runs_services_with_limits", |hayate| check(hayate, "systemd")),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("sandboxes", &CHECKS, options)
}

const SCRIPT: &str = include_str!("sandboxes.sh");

/// Runs one check of the script in a machine.
fn check(hayate: &Hayate, check: &str) -> Result<()> {
    run_check(hayate, &default::SANDBOXES, &["--cpus", "2"], SCRIPT, check)
}
