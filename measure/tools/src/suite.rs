//! The suite in several systems: which experiments it has, and the systems measured in turn.

use crate::boot::{Missing, Setup, System};
use crate::output::{make, save};
use anyhow::{Context, Result};
use hayate_cli::failure::{Failure, USAGE};
use hayate_cli::progress::Progress;
use measure_data::Run;
use measure_data::read::write_run;
use std::path::Path;
use std::process::Command;

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
pub fn measured(
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
            let _step = Progress::new(format!("Measuring {title}, boot {} of {boots}", boot + 1));
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
