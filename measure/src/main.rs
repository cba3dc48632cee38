//! The measurement suite: one static binary for any Linux and for Hayate.
//!
//! From top to bottom: [`args`] reads the command line, [`commands`] carries it out, [`session`]
//! makes the passes, [`pace`] limits them to their time, [`runner`] runs a round in a process of
//! its own, the [`experiments`] take samples with the [`sampler`] and the [`clock`], [`primitives`]
//! predict, [`fingerprint`] describes the machine, [`scaling`] compares two processes with one,
//! [`naive`] is another method of measuring for comparison, and [`sys`] contains the system calls.
//! Statistics and the file format are in the crate `measure-data`, pictures in `measure-report`.

mod args;
mod clock;
mod commands;
mod exit;
mod experiment;
mod experiments;
mod fingerprint;
mod idle;
mod infer;
mod naive;
mod pace;
mod primitives;
mod programs;
mod progress;
mod runner;
mod sampler;
mod save;
mod scaling;
mod serve;
mod session;
mod sys;
mod table;

use args::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Command::List { globs, json } => commands::list::list(globs, *json),
        Command::Run(a) => commands::run::run(a),
        Command::Machine { json, dir } => commands::list::machine(*json, dir),
        Command::Compare { a, b, threshold, all } => {
            commands::compare::compare(a, b, *threshold, *all)
        }
        Command::Report { runs, output } => commands::report::report(runs, output),
        Command::Serve { listen } => commands::serve::serve(listen),
        Command::Selftest(a) => commands::run::selftest(a),
        Command::Oracle(a) => commands::oracle::oracle(a),
        Command::Scaling(a) => commands::scaling::scaling(a),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("measure: {}", failure.message);
            }
            ExitCode::from(failure.status)
        }
    }
}
