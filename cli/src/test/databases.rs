//! Programs that keep their data on a disk: PostgreSQL and SQLite, whose machine is killed in the
//! middle, git, and a package that is made from its source.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use super::disks::{free, seeded};
use super::file_systems::DiskFile;
use crate::arguments::Test;
use crate::image::default;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::time::Duration;

const CHECKS: [(&str, Check); 1] = [("sqlite_loses_no_row_that_was_committed", sqlite)];
/// Those that need images of their own.
const LONG: [(&str, Check); 3] = [
    ("postgresql_loses_no_row_that_was_committed", postgresql),
    ("git_keeps_its_repositories", git),
    ("a_package_is_made_on_a_disk", package),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = trials_of("disks", &CHECKS, options);
    let long = LONG.into_iter().filter(|(name, _)| options.includes_long(&format!("disks/{name}")));
    trials.extend(trials_of("disks", &long.collect::<Vec<_>>(), options));
    trials
}

/// The value of `--rootfs` for the image that a recipe makes.
fn root(recipe: &default::Recipe) -> Result<String> {
    Ok(recipe.get()?.display().to_string())
}

/// A machine's program that tells numbers which it has committed, and one that looks for them.
struct Load<'a> {
    /// Options of `run`, besides the disk.
    options: &'a [&'a str],
    /// Words of a program whose last one is the first number to commit.
    load: &'a [&'a str],
    /// Words of a program that prints how many numbers there are, the largest, and `sound`.
    check: &'a [&'a str],
    /// The word for data that is as it should be.
    sound: &'a str,
    /// The machine lives for at most as many milliseconds after the first number.
    life: u64,
}

impl Load<'_> {
    /// Kills the machine in the middle, and checks in another that each number is there.
    fn outlive(&self, hayate: &Hayate, disk: &DiskFile, rounds: u32) -> Result<()> {
        let at = disk.at_d("");
        let (seed, mut random) = seeded();
        let mut next = 1;
        for round in 0..rounds {
            let cpus = if round % 2 == 0 { "1" } else { "2" };
            let options = [self.options, &["--disk", &at, "--cpus", cpus][..]].concat();
            let first = next.to_string();
            let words = [self.load, &[&first[..]]].concat();
            let mut child = hayate.command(&options, &words)?.spawn()?;
            let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
            if lines.next().transpose()?.is_none_or(|line| line != first) {
                let output = child.wait_with_output()?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                bail!("round {round}: the first number was not told: {said}");
            }
            let reader = std::thread::spawn(move || lines.map_while(Result::ok).last());
            std::thread::sleep(Duration::from_millis(random(self.life)));
            ensure!(child.try_wait()?.is_none(), "round {round}: the load ended");
            child.kill()?;
            child.wait()?;
            free(&at)?;
            let last = reader.join().ok().context("the reader ended")?.unwrap_or(first);
            // The machine may have been killed in the middle of a line: it is a smaller number.
            let told: u64 = last.parse().with_context(|| format!("not a number: {last}"))?;
            let output = hayate.run(&options, self.check)?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let context = || format!("round {round}, told {told}, seed {seed}: {output:?}");
            let words: Vec<&str> = said.split_whitespace().collect();
            let [count, largest, sound] = words[..] else { bail!(context()) };
            ensure!(output.status.success() && sound == self.sound, context());
            let (count, largest): (u64, u64) = (count.parse()?, largest.parse()?);
            // One more may have been committed and not told.
            ensure!(count == largest && (told..).contains(&largest), context());
            next = largest + 1;
            disk.is_in_order().with_context(context)?;
        }
        Ok(())
    }
}

fn sqlite(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = include_str!("sqlite.py");
    let disk = DiskFile::of_size(hayate, "128M")?;
    let load = Load {
        options: &["--timeout", "300"],
        load: &["python3", "-c", SCRIPT, "load"],
        check: &["python3", "-c", SCRIPT, "check"],
        sound: "ok",
        life: 2000,
    };
    load.outlive(hayate, &disk, if hayate.long { 50 } else { 3 })
}

/// Words that call a function of `databases.sh`.
fn shell<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["sh", "-c", include_str!("databases.sh"), "databases.sh"], words].concat()
}

fn postgresql(hayate: &Hayate) -> Result<()> {
    let root = root(&default::DATABASES)?;
    let disk = DiskFile::of_size(hayate, "1G")?;
    let options = ["--rootfs", &root, "--memory", "1G", "--timeout", "900"];
    let at = disk.at_d("");
    let made = [&options[..], &["--disk", &at]].concat();
    expect(&hayate.run(&made, &shell(&["postgres_make"]))?, 0, "made\n", "")?;
    let load = Load {
        options: &options,
        load: &shell(&["postgres_load"]),
        check: &shell(&["postgres_check"]),
        sound: "t",
        life: 15_000,
    };
    load.outlive(hayate, &disk, 10)
}

/// Runs programs one after the other, each in a machine of its own; e2fsck looks at the disk after
/// each.
fn in_turn(hayate: &Hayate, options: &[&str], programs: &[(Vec<&str>, &str)]) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "1G")?;
    let at = disk.at_d("");
    let options = [&["--disk", &at, "--memory", "1G", "--timeout", "1800"], options].concat();
    for (words, output) in programs {
        expect(&hayate.run(&options, words)?, 0, output, "")?;
        disk.is_in_order()?;
    }
    Ok(())
}

fn git(hayate: &Hayate) -> Result<()> {
    let root = root(&default::DATABASES)?;
    let programs = [(shell(&["git_make"]), "made\n"), (shell(&["git_check"]), "checked\n")];
    for cpus in ["1", "2"] {
        in_turn(hayate, &["--rootfs", &root, "--cpus", cpus], &programs)?;
    }
    Ok(())
}

/// The package of `experiment jobs`: its source is copied to the disk, made there, and made again
/// by another machine, which finds nothing to do.
fn package(hayate: &Hayate) -> Result<()> {
    // The compiler warns.
    const MAKE: &str = "cp -r /usr/src/package /d/ && cd /d/package && \
                        if make -s -j2 2>/d/said; then echo made; else cat /d/said >&2; fi";
    const AGAIN: &str = "cd /d/package && make -q && ./tree --version >/dev/null && echo there";
    let root = root(&default::JOBS)?;
    let programs = [(vec!["sh", "-c", MAKE], "made\n"), (vec!["sh", "-c", AGAIN], "there\n")];
    in_turn(hayate, &["--rootfs", &root, "--cpus", "2"], &programs)
}
