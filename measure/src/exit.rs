//! Failures with the exit status that scripts rely on (see `measure --help`).

use std::fmt;

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// The message for the user; empty if everything has been printed.
    pub message: String,
}

/// compare found a regression, or selftest a difference.
pub const WORSE: u8 = 1;
/// Wrong arguments.
pub const USAGE: u8 = 2;
/// Too noisy to tell.
pub const TOO_NOISY: u8 = 3;
/// Nothing could be measured.
pub const CANNOT_MEASURE: u8 = 4;
/// Not a run.
pub const BAD_FILE: u8 = 5;
/// A result could not be written.
pub const CANNOT_WRITE: u8 = 6;
/// Stopped by a signal.
pub const STOPPED: u8 = 130;

impl Failure {
    /// A failure with a message.
    pub fn new(status: u8, message: impl fmt::Display) -> Self {
        Self { status, message: message.to_string() }
    }

    /// Returns a failure that has been explained already.
    pub fn silent(status: u8) -> Self {
        Self { status, message: String::new() }
    }
}
