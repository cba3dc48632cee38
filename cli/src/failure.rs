//! Errors that end `./hayate`, and the exit status each of them means.
//!
//! Everything travels as `anyhow::Error`; where the status is not the common 125, a [`Failure`]
//! lies at its root. The statuses are those that `docker run` and shells use, so that scripts
//! need not learn new ones; `./hayate run --help` lists them.

use std::fmt;

/// Hayate itself could not do it: a tool is missing, a root file system is unusable.
pub const FAULT: u8 = 125;
/// The time limit of `--timeout` passed.
pub const TIMEOUT: u8 = 124;
/// The kernel panicked (`EX_SOFTWARE` of sysexits.h).
pub const PANIC: u8 = 70;
/// The command line was wrong.
pub const USAGE: u8 = 2;

/// An error with an exit status of its own.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    text: String,
}

impl Failure {
    /// An error that ends `./hayate` with this status.
    pub fn error(status: u8, text: impl Into<String>) -> anyhow::Error {
        Failure { status, text: text.into() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// The exit status that an error means.
pub fn status(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Failure>().map_or(FAULT, |failure| failure.status)
}
