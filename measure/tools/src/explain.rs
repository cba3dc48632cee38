//! `./hayate explain`: shows where the time of one start of a program went, beside a second start
//! and beside one that begins at an image.
//!
//! A fresh machine starts the program twice, and then with images until a start begins at one. Its
//! kernel traces the starts (`trace=starts`) and records where the time of each went, such that the
//! parts add up to the whole (crate `hayate-start-account`). By default the machine counts
//! instructions, so the numbers are the same in every run.
//!
//! Modules: [`account`] turns the kernel's record into lines of numbers, [`table`] and [`picture`]
//! show them.

mod account;
mod picture;
mod table;

use crate::arguments::Explain;
use crate::output::save;
use account::Explained;
use anyhow::{Result, anyhow};
use hayate_cli::failure::{FAULT, Failure, USAGE};
use hayate_cli::guest::session::End;
use hayate_cli::run;

/// Starts the program, shows where the time went, and returns the program's status.
pub fn explain(options: &Explain) -> Result<u8> {
    let mut run = options.run.clone();
    let wrong = |text: &str| Err(Failure::error(USAGE, text));
    if run.command.is_empty() {
        return wrong("name the program to start after --, as in ./hayate explain -- /bin/true");
    }
    if run.machine.linux {
        return wrong("explain asks Hayate's own kernel: leave --linux out");
    }
    if run.machine.cpus != 1 {
        return wrong("explain watches one processor: leave --cpus out");
    }
    if options.time && run.machine.deterministic {
        return wrong("--time measures time, --deterministic counts instructions: choose one");
    }
    run.machine.deterministic = !options.time;
    run.machine.append.push("trace=starts".into());
    // With a table on standard error, the program needs streams of its own.
    run.no_tty = !run.tty;
    let how = if options.fork { hayate_job::Explain::Fork } else { hayate_job::Explain::Spawn };
    let (outcome, shown) = run::boot(&run, Some(how))?;
    let status = run::conclude(&outcome, shown)?;
    if !matches!(outcome.end, End::Program(_)) || !outcome.errors.is_empty() {
        return Ok(status);
    }
    let starts = hayate_start_account::parse(&outcome.explained)
        .map_err(|error| anyhow!("what the kernel wrote about the starts is wrong: {error}"))?;
    let explained = Explained::new(options, starts);
    if explained.starts.is_empty() {
        // The program could not be executed, which has been reported, or the starter was killed.
        eprintln!("hayate: the program did not come to its end, so there is nothing to explain");
        return Ok(if status == 0 { FAULT } else { status });
    }
    eprint!("{}", table::show(&explained));
    if let Some(path) = &options.json {
        let mut text = serde_json::to_string_pretty(&account::json(&explained))?;
        text.push('\n');
        save(path, &text)?;
    }
    if let Some(path) = &options.svg {
        save(path, &picture::draw(&explained))?;
    }
    Ok(status)
}
