//! The subcommands.

pub mod compare;
pub mod list;
pub mod oracle;
pub mod report;
pub mod run;
pub mod scaling;
pub mod serve;

use crate::exit::{BAD_FILE, Failure};
use measure_data::{Run, read_run};
use std::path::Path;

/// Reads a run from a file, or says what is wrong with it.
pub fn read_file(path: &Path) -> Result<Run, Failure> {
    let failed = |reason: String| Failure::new(BAD_FILE, format!("{}: {reason}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| failed("not a text file; give one from `measure run --json FILE`".into()))?;
    read_run(&text).map_err(|error| failed(error.to_string()))
}
