//! `./hayate compare`: compares Hayate and Linux in the same machine.
//!
//! The systems boot in turn, each with the same initramfs, the same static `measure` in it, and the
//! same command line of QEMU except for the kernel. Each boot returns a run of the suite with all
//! samples; the runs of a system are joined and compared by the statistics of `measure compare`.
//!
//! In instruction-count mode no action of the host affects the guest while it runs: no disk, no
//! input, ports served within the instruction that writes to them, a log that is never waited for.
//! Two comparisons then print the same numbers, and a test checks that. In wall-clock mode the
//! order of the systems is reversed at each boot, so that a machine that gets slower affects both
//! alike.
//!
//! [`table`] has the printed and saved results.

mod table;

use crate::arguments::Compare;
use crate::boot::{OtherEnd, Setup, System};
use crate::output::{UNWRITTEN, is_output, make, save, writable};
use crate::suite::{measured, names};
use anyhow::Result;
use hayate_cli::arguments::Profile;
use hayate_cli::failure::{Failure, USAGE};
use hayate_cli::guest::accel::settled;
use hayate_cli::{compile, image};
use measure_data::read::write_run;
use measure_data::{Limits, Run, Verdict};
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Table;

/// The default selection of experiments.
const USUAL: [&str; 3] = ["cpu/syscall*", "cpu/process*", "memory/fault/anonymous"];

/// Hayate is worse in some result.
const WORSE: u8 = 1;
/// Some result is too noisy to tell.
const TOO_NOISY: u8 = 3;
/// Nothing could be compared.
const NOTHING: u8 = 4;

/// Compares, prints, saves, and returns the exit status.
pub fn compare(options: &Compare) -> Result<u8> {
    let measure = compile::measure()?;
    let globs = if options.globs.is_empty() && !options.list {
        USUAL.map(String::from).to_vec()
    } else {
        options.globs.clone()
    };
    let list = names(&measure, &globs)?;
    if options.list {
        print!("{list}");
        return Ok(0);
    }
    if !(0.0..=1000.0).contains(&options.threshold) {
        return Err(Failure::error(USAGE, "--threshold: a number of per cent from 0 to 1000"));
    }
    let targets = targets(options);
    targets.iter().try_for_each(|path| writable(path))?;
    if targets.iter().filter(|path| is_output(path)).count() > 1 {
        return Err(Failure::error(USAGE, "only one of --json and --markdown can be \"-\""));
    }
    let setup = setup(options, &measure, globs)?;
    if options.profile == Profile::Dev && options.kernel.is_none() {
        eprintln!("hayate: the development profile is slower than what users run");
    }
    let mut systems = vec![System::hayate(), System::best()];
    if !options.only_best {
        systems.push(System::shipped());
    }
    let boots = options.boots.unwrap_or(if options.wall { 3 } else { 1 });
    let folder = options.runs.as_deref();
    let runs = measured(&setup, &systems, boots, folder)?;
    if let Some(folder) = folder {
        keep(folder, &systems, &runs)?;
    }

    let limits = Limits { threshold: options.threshold / 100.0, ..Limits::default() };
    let table = Table::new(&setup, boots, &systems, &runs, &limits);
    show(options, &table)?;
    Ok(if table.rows.is_empty() {
        NOTHING
    } else if table.count(Verdict::Worse) > 0 {
        WORSE
    } else if table.count(Verdict::TooNoisy) > 0 {
        TOO_NOISY
    } else {
        0
    })
}

/// The machine that all systems boot in, and the experiments.
fn setup(options: &Compare, measure: &Path, globs: Vec<String>) -> Result<Setup> {
    Ok(Setup {
        counting: !options.wall,
        accel: if options.wall { settled(options.accel, options.profile)? } else { options.accel },
        cpus: 1,
        memory: options.memory,
        kernel: options.kernel.clone(),
        profile: options.profile,
        image: image::small::get(measure)?,
        globs,
        programs: Vec::new(),
        scripts: Vec::new(),
        before: None,
        cold: false,
        warm: Vec::new(),
        passes: options.passes,
        iterations: options.iterations,
        memory_limit: options.memory_limit.clone(),
        timeout: Duration::from_secs(options.timeout),
        other_end: OtherEnd::None,
        disk: options.disk,
        share: options.share,
    })
}

/// The files that are asked for.
fn targets(options: &Compare) -> Vec<&Path> {
    [&options.json, &options.markdown].into_iter().flatten().map(PathBuf::as_path).collect()
}

/// Saves what is asked for, and prints the table unless something else goes to standard output.
fn show(options: &Compare, table: &Table) -> Result<()> {
    let mut unwritten = Vec::new();
    let mut put = |path: &Option<PathBuf>, text: String| {
        if let Some(path) = path
            && let Err(error) = save(path, &text)
        {
            unwritten.push(format!("{error:#}"));
        }
    };
    put(&options.json, table.json());
    put(&options.markdown, table.markdown());
    if !targets(options).into_iter().any(is_output) {
        print!("{}", table.text());
    }
    if !unwritten.is_empty() {
        return Err(Failure::error(UNWRITTEN, unwritten.join("; ")));
    }
    Ok(())
}

fn keep(folder: &Path, systems: &[System], runs: &[Run]) -> Result<()> {
    make(folder)?;
    for (system, run) in systems.iter().zip(runs) {
        save(&folder.join(format!("{}.json", system.key)), &write_run(run)?)?;
    }
    Ok(())
}
