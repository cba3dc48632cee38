//! `off2f count`: the cost of one start of a program, by the kernel's counts before and after it.
//!
//! The counts are those of the whole machine: run it where nothing else starts.

use anyhow::{Context, Result};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

const FILE: &str = "/proc/hayate/text_faults";

/// Starts the program and prints the counts.
pub fn count(words: &[OsString], json: bool) -> ExitCode {
    match counted(words, json) {
        Ok(text) => {
            // The reader may have closed the pipe.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("off2f: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the kernel's counts: faults on the text of programs and of libraries, KiB of text read,
/// requests to storage, KiB read in total.
fn kernel() -> Result<[u64; 5]> {
    let text = std::fs::read_to_string(FILE)
        .with_context(|| format!("cannot read {FILE}, which only Hayate has"))?;
    let number = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.filter(|(known, _)| *known == name).find_map(|(_, n)| n.parse().ok());
        found.with_context(|| format!("{FILE} has no count {name}"))
    };
    let mut all = [0; 5];
    let names = ["program", "library", "text-kib", "storage-requests", "storage-kib"];
    for (to, name) in all.iter_mut().zip(names) {
        *to = number(name)?;
    }
    Ok(all)
}

/// Returns the page faults of all ended processes that this process started.
fn faults() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The fields after the name, which may contain anything: cminflt and cmajflt of proc(5).
    let (_, rest) = text.rsplit_once(')').context("cannot parse /proc/self/stat")?;
    let field = |at: usize| rest.split_whitespace().nth(at).and_then(|n| n.parse::<u64>().ok());
    let sum = field(8).zip(field(10)).map(|(minor, major)| minor + major);
    sum.context("/proc/self/stat has no page faults of children")
}

fn run(words: &[OsString]) -> Result<()> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().with_context(|| program.display().to_string())?;
    anyhow::ensure!(status.success(), "{}: {status}", program.display());
    Ok(())
}

fn counted(words: &[OsString], json: bool) -> Result<String> {
    // Once without counting, so that the pages that this program itself needs are in memory.
    run(&["/proc/self/exe".into(), "--help".into()])?;
    let _ = (kernel()?, faults()?);
    let (before, faults_before) = (kernel()?, faults()?);
    run(words)?;
    let (after, faults_after) = (kernel()?, faults()?);
    let mut counts = [0; 5];
    for (to, (before, after)) in counts.iter_mut().zip(before.into_iter().zip(after)) {
        *to = after - before;
    }
    let [program, library, text, requests, storage] = counts;
    let other = (faults_after - faults_before).saturating_sub(program + library);
    if json {
        let value = json!({
            "program-text-faults": program,
            "library-text-faults": library,
            "other-faults": other,
            "text-kib": text,
            "storage-requests": requests,
            "storage-kib": storage,
        });
        return Ok(format!("{value}\n"));
    }
    Ok(format!(
        "page faults      {program} on program text, {library} on library text, {other} others\n\
         text read        {text} KiB\n\
         storage          {storage} KiB in {requests} requests\n"
    ))
}
