//! `./hayate start`: starts the supervisor of a machine, and waits until it is ready.

use crate::failure;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The hidden command that [`super::supervisor`] carries out.
pub const KEEP: &str = "keep";

/// Starts a machine with the options of this process's own command line, and prints its name.
pub fn start() -> Result<u8> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    // The first is this program, the second `start`.
    let options: Vec<OsString> = std::env::args_os().skip(2).collect();
    let mut supervisor = Command::new(program)
        .arg(KEEP)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the machine's supervisor")?;
    let output = supervisor.stdout.take().context("no output")?;
    let mut name = String::new();
    BufReader::new(output).read_line(&mut name).context("cannot hear the supervisor")?;
    if name.ends_with('\n') {
        print!("{name}");
        return Ok(0);
    }
    let status = supervisor.wait().context("cannot wait for the supervisor")?;
    match status.code() {
        // It has said why.
        Some(code @ 1..) => Ok(u8::try_from(code).unwrap_or(failure::FAULT)),
        _ => {
            anyhow::bail!("the machine's supervisor ended before the machine was ready ({status})")
        }
    }
}
