//! A disk that Linux and Hayate change in turn: after each turn the other must find the very tree,
//! with every number that stat(2) and statfs(2) give, and e2fsck nothing.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use super::disks::seeded;
use super::file_systems::DiskFile;
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};

const CHECKS: [(&str, Check); 1] = [("what_one_system_did_the_other_finds", in_turn)];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("disks", &CHECKS, options)
}

/// Returns the lines with which a system describes the disk at `at` after `count` random
/// operations.
fn sees(hayate: &Hayate, at: &str, seed: u64, count: u32) -> Result<String> {
    let (seed, count) = (seed.to_string(), count.to_string());
    let script = ["python3", "-c", include_str!("exchange.py"), &seed, &count];
    let output = hayate.run(&["--disk", at, "--timeout", "900"], &script)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Fails with the lines that differ.
fn same(left: &str, found: &str) -> Result<()> {
    let without = |text: &str, other: &str| -> Vec<String> {
        let known: std::collections::HashSet<&str> = other.lines().collect();
        text.lines().filter(|line| !known.contains(line)).take(5).map(String::from).collect()
    };
    let (lost, new) = (without(left, found), without(found, left));
    ensure!(lost.is_empty() && new.is_empty(), "it left {lost:#?}, the other finds {new:#?}");
    Ok(())
}

fn in_turn(hayate: &Hayate) -> Result<()> {
    let mut linux = hayate.clone();
    linux.linux = true;
    // Linux' kernel is fetched here, and that is said.
    linux.run(&[], &["true"])?;
    let disk = DiskFile::of_size(hayate, "512M")?;
    let (seed, mut random) = seeded();
    let turns = if hayate.long { 60 } else { 2 };
    for turn in 0..turns {
        let (one, other) = if turn % 2 == 0 { (&linux, hayate) } else { (hayate, &linux) };
        let context = || format!("turn {turn}, seed {seed}");
        let left = sees(one, &disk.at_d(""), random(u64::MAX), 60).with_context(context)?;
        disk.is_in_order().with_context(context)?;
        // Hayate's machine unmounts the disk, so that Linux need not replay a journal.
        for at in [disk.at_d(":ro"), disk.at_d("")] {
            let found = sees(other, &at, 0, 0).with_context(context)?;
            same(&left, &found).with_context(context)?;
        }
        disk.is_in_order().with_context(context)?;
    }
    Ok(())
}
