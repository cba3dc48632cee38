//! `measure scaling`.

use crate::args::ScalingArguments;
use crate::clock::Clock;
use crate::exit::{CANNOT_MEASURE, Failure};
use crate::session::{RunDirectory, setting};
use crate::{fingerprint, scaling, sys};
use measure_data::scaling::{FORMAT, Scaling, VERSION};
use std::time::Duration;

/// Measures and prints.
pub fn scaling(a: &ScalingArguments) -> Result<(), Failure> {
    let failed = |reason: String| Failure::new(CANNOT_MEASURE, reason);
    let mut setting = setting(&a.run_arguments())?;
    let _files = RunDirectory::make(&mut setting)?;
    let clock = Clock::calibrate(None).map_err(|error| failed(format!("no clock: {error}")))?;
    let machine = fingerprint::machine(&setting.directory);
    let time = Duration::from_millis(a.milliseconds.into());
    let works = scaling::measure(&setting, clock, a.rounds, time).map_err(|skip| failed(skip.0))?;
    let found = Scaling {
        format: FORMAT.into(),
        version: VERSION,
        release: machine.fact("kernel", "release").unwrap_or_default().into(),
        processors: sys::cpus(),
        milliseconds: a.milliseconds,
        works,
    };
    if a.json {
        println!("{}", serde_json::to_string(&found).map_err(|e| Failure::new(1, e))?);
    } else {
        print!("{}", found.text());
    }
    Ok(())
}
