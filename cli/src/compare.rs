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
//! Modules: [`boot`] is one boot of one system, [`table`] the printed and saved results.

pub mod boot;
pub mod table;

use crate::arguments::{Compare, Profile};
use crate::failure::{Failure, USAGE};
use crate::guest::accel::settled;
use crate::{compile, image, step::Step};
use anyhow::{Context, Result, bail};
use boot::{Missing, Setup, System};
use measure_data::read::write_run;
use measure_data::{Limits, Run, Verdict};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
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
/// A result could not be written.
const UNWRITTEN: u8 = 6;

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
    let targets: Vec<&Path> =
        [&options.json, &options.markdown].into_iter().flatten().map(PathBuf::as_path).collect();
    targets.iter().try_for_each(|path| writable(path))?;
    if targets.iter().filter(|path| is_output(path)).count() > 1 {
        return Err(Failure::error(USAGE, "only one of --json and --markdown can be \"-\""));
    }

    let setup = Setup {
        counting: !options.wall,
        accel: if options.wall { settled(options.accel, options.profile)? } else { options.accel },
        cpus: 1,
        memory: options.memory,
        kernel: options.kernel.clone(),
        profile: options.profile,
        image: image::small::get(&measure)?,
        globs,
        programs: Vec::new(),
        before: None,
        cold: false,
        warm: Vec::new(),
        passes: options.passes,
        iterations: options.iterations,
        memory_limit: options.memory_limit.clone(),
        timeout: Duration::from_secs(options.timeout),
    };
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
    if !targets.iter().any(|path| is_output(path)) {
        print!("{}", table.text());
    }
    if !unwritten.is_empty() {
        return Err(Failure::error(UNWRITTEN, unwritten.join("; ")));
    }
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

/// Returns the output of `measure list` for the globs: called before anything boots.
pub fn names(measure: &Path, globs: &[String]) -> Result<String> {
    let output = Command::new(measure).arg("list").args(globs).output();
    let output = output.with_context(|| format!("cannot start {}", measure.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("measure: ");
        let said = said.replace("`measure list`", "./hayate compare --list");
        return Err(Failure::error(USAGE, said));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Boots every system so often, in turn, and joins the runs of each.
fn measured(
    setup: &Setup,
    systems: &[System],
    boots: u32,
    folder: Option<&Path>,
) -> Result<Vec<Run>> {
    let found = measured_or_missing(setup, systems, boots, folder)?;
    let run = |(found, system): (Result<Run, Missing>, &System)| {
        found.with_context(|| format!("{} cannot be measured", system.title))
    };
    found.into_iter().zip(systems).map(run).collect()
}

/// Like [`measured`], but a system may lack a required feature. The run of each boot is written to
/// `folder` as soon as the boot ends, so that stopping an hour of boots loses none of the finished
/// ones.
pub fn measured_or_missing(
    setup: &Setup,
    systems: &[System],
    boots: u32,
    folder: Option<&Path>,
) -> Result<Vec<Result<Run, Missing>>> {
    setup.prepare(systems)?;
    let mut runs: Vec<Result<Vec<Run>, Missing>> = Vec::new();
    runs.resize_with(systems.len(), || Ok(Vec::new()));
    for boot in 0..boots {
        let mut order: Vec<usize> = (0..systems.len()).collect();
        if boot % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let Ok(measured) = &mut runs[at] else { continue };
            let title = &systems[at].title;
            let _step = Step::new(format!("Measuring {title}, boot {} of {boots}", boot + 1));
            match setup.boot(&systems[at]) {
                Ok(run) => {
                    if let Some(folder) = folder.filter(|_| boots > 1) {
                        make(folder)?;
                        let name = format!("{}-{}.json", systems[at].key, boot + 1);
                        save(&folder.join(name), &write_run(&run)?)?;
                    }
                    measured.push(run);
                }
                Err(error) => runs[at] = Err(error.downcast::<Missing>()?),
            }
        }
    }
    let join = |(runs, system): (Result<Vec<Run>, Missing>, &System)| {
        let title = &system.title;
        let runs = match runs {
            Ok(runs) => runs,
            Err(missing) => return Ok(Err(missing)),
        };
        let joined = Run::join(&runs).with_context(|| {
            format!("the clock of {title} ran at another speed in each boot: measure again")
        })?;
        Ok(Ok(joined))
    };
    runs.into_iter().zip(systems).map(join).collect()
}

fn keep(folder: &Path, systems: &[System], runs: &[Run]) -> Result<()> {
    make(folder)?;
    for (system, run) in systems.iter().zip(runs) {
        save(&folder.join(format!("{}.json", system.key)), &write_run(run)?)?;
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

fn is_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks whether a file can be written there: an error is better before an hour of measuring than
/// after.
fn writable(path: &Path) -> Result<()> {
    if is_output(path) {
        return Ok(());
    }
    let tried = std::fs::File::options().append(true).create(true).open(path);
    tried.map(drop).map_err(|error| {
        Failure::error(UNWRITTEN, format!("cannot write {}: {error}", path.display()))
    })
}

/// Writes a result through a file beside it; if that fails, writes it to another place and says
/// where.
pub fn save(path: &Path, text: &str) -> Result<()> {
    if is_output(path) {
        let mut output = std::io::stdout();
        let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
        return written.context("cannot write to standard output");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let write = |folder: &Path| -> std::io::Result<tempfile::NamedTempFile> {
        let mut file = tempfile::NamedTempFile::with_prefix_in("hayate-", folder)?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    };
    let attempt = write(folder.unwrap_or(Path::new("."))).and_then(|file| {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(path).map_err(|error| error.error)
    });
    let Err(error) = attempt else { return Ok(()) };
    let saved = write(&std::env::temp_dir()).and_then(|file| Ok(file.keep()?.1));
    match saved {
        Ok(other) => {
            bail!("cannot write {} ({error}); it is in {}", path.display(), other.display())
        }
        Err(_) => {
            eprint!("{text}");
            bail!("cannot write {} ({error}); it is above", path.display())
        }
    }
}
