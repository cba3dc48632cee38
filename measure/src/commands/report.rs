//! `measure report`.

use super::read_file;
use crate::exit::Failure;
use crate::save::{check, save};
use std::path::{Path, PathBuf};

/// Makes one HTML file of the runs.
pub fn report(runs: &[PathBuf], output: &Path) -> Result<(), Failure> {
    let runs = runs.iter().map(|p| read_file(p)).collect::<Result<Vec<_>, _>>()?;
    check(output)?;
    save(output, &measure_report::html(&runs))?;
    if output.as_os_str() != "-" {
        println!("saved {}", output.display());
    }
    Ok(())
}
