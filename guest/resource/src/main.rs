//! `resource`: shows the resources that processes consist of, those that are kept, and the policy.
//!
//! A front end of `/proc/hayate` (docs/resources.md), which it reads as any program could.
#![forbid(unsafe_code)]

mod command;
mod proc;

use command::{Arguments, Command};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// The command line is wrong.
const USAGE: u8 = 2;
/// The requested resource does not exist, or the request cannot be carried out.
const FAILED: u8 = 1;

/// A failure: one line that says what is wrong and what to do about it.
pub struct Failure {
    /// The line.
    pub text: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// Returns the failure for a resource that does not exist or a request that cannot be carried
    /// out.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), status: FAILED }
    }

    /// Returns the failure for a wrong command line.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), status: USAGE }
    }
}

fn main() -> ExitCode {
    match command::parse(lexopt::Parser::from_env()).and_then(|arguments| run(&arguments)) {
        Ok(text) => {
            let written = std::io::stdout().lock().write_all(text.as_bytes());
            match written {
                // The reader has closed the pipe.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    eprintln!("resource: cannot write standard output: {error}");
                    ExitCode::from(FAILED)
                }
                _ => ExitCode::SUCCESS,
            }
        }
        Err(failure) => {
            eprintln!("resource: {}", failure.text);
            if failure.status == USAGE {
                eprintln!("`resource --help` lists the commands");
            }
            ExitCode::from(failure.status)
        }
    }
}

fn run(arguments: &Arguments) -> Result<String, Failure> {
    if let Command::Help = arguments.command {
        return Ok(command::HELP.into());
    }
    proc::present()?;
    match &arguments.command {
        Command::Help => Ok(String::new()),
        Command::List { kind, name } => {
            proc::list(kind.as_deref(), name.as_deref(), arguments.json)
        }
        Command::Show { kind, which } => proc::show(kind, which, arguments.json),
        Command::Set { kind, which, attribute, value } => proc::set(kind, which, attribute, value),
        Command::Pools => proc::pools(arguments.json),
        Command::Limit { kind, bytes } => proc::limit(kind, *bytes),
        Command::Policy { new: None } => proc::policy(arguments.json),
        Command::Policy { new: Some(new) } => proc::set_policy(new),
        Command::Drop { kind } => proc::drop(kind.as_deref()),
        Command::Frames => proc::frames(arguments.json),
    }
}
