//! Errors that end `./hayate`, and their exit statuses.
//!
//! Every error is an `anyhow::Error`; if its status is not the usual 125, a [`Failure`] is its root
//! cause. The statuses are those of `docker run` and of shells, so that scripts need not learn new
//! ones; `./hayate run --help` lists them.

use std::fmt;

/// Hayate itself failed: a tool is missing, or a root file system is unusable.
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

/// Returns the exit status of an error.
pub fn status(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Failure>().map_or(FAULT, |failure| failure.status)
}
