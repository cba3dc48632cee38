//! Reads a run back. For any bytes, the result is a run or a sentence that says what is wrong with
//! the file and what to do.

use crate::run::{FORMAT, Measurement, Run, VERSION};
use serde_json::Value;
use std::fmt;

/// Why a file is not a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// No byte in it.
    Empty,
    /// Correct up to the end, but the file ends too early.
    Truncated {
        /// Line of the end.
        line: usize,
    },
    /// Not JSON at all.
    NotJson {
        /// The parser's message, with its line and column.
        detail: String,
    },
    /// JSON with other content.
    Foreign,
    /// A run in another version of the format.
    OtherVersion {
        /// The version it says.
        found: u64,
    },
    /// A run in our version with inconsistent content.
    Invalid {
        /// The inconsistency.
        detail: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the file is empty; run `measure run --json FILE` again"),
            Self::Truncated { line } => write!(
                f,
                "the file is cut off at line {line}; it was not copied or written to its end, \
                 so copy it again or run `measure run --json FILE` again"
            ),
            Self::NotJson { detail } => {
                write!(f, "not a JSON file ({detail}); give a file from `measure run --json FILE`")
            }
            Self::Foreign => write!(
                f,
                "JSON, but not a run of measure; give a file from `measure run --json FILE`"
            ),
            Self::OtherVersion { found } => write!(
                f,
                "a run in format version {found}, and this measure reads version {VERSION}; \
                 use the measure that wrote it, or measure again with this one"
            ),
            Self::Invalid { detail } => {
                write!(f, "a damaged run: {detail}; run `measure run --json FILE` again")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Parses and checks a run.
pub fn read_run(text: &str) -> Result<Run, ReadError> {
    if text.trim().is_empty() {
        return Err(ReadError::Empty);
    }
    let value: Value = serde_json::from_str(text).map_err(|e| {
        if e.is_eof() {
            ReadError::Truncated { line: e.line() }
        } else {
            ReadError::NotJson { detail: e.to_string() }
        }
    })?;
    if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(ReadError::Foreign);
    }
    match value.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(found) => return Err(ReadError::OtherVersion { found }),
        None => return Err(ReadError::Invalid { detail: "it has no version".into() }),
    }
    let run: Run =
        serde_json::from_value(value).map_err(|e| ReadError::Invalid { detail: e.to_string() })?;
    check(&run).map_err(|detail| ReadError::Invalid { detail })?;
    Ok(run)
}

fn check(run: &Run) -> Result<(), String> {
    let clock = run.clock.ticks_per_second;
    if !clock.is_normal() || clock <= 0.0 {
        return Err(format!("its clock has {clock} ticks per second"));
    }
    let mut names: Vec<&str> = run.results.iter().map(|r| r.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(format!("it has two results called {}", twice[0]));
    }
    run.results.iter().try_for_each(check_result)
}

fn check_result(result: &Measurement) -> Result<(), String> {
    let name = &result.name;
    if !result.work.is_normal() || result.work <= 0.0 {
        return Err(format!("{name} did {} operations per sample", result.work));
    }
    if !result.subtracted_ticks.is_finite() || result.subtracted_ticks < 0.0 {
        return Err(format!("{name} subtracts {} ticks", result.subtracted_ticks));
    }
    if result.rounds.iter().all(Vec::is_empty) {
        return Err(format!("{name} has no samples"));
    }
    Ok(())
}

/// Text of a run, ending in a newline.
pub fn write_run(run: &Run) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string(run)?;
    text.push('\n');
    Ok(text)
}
