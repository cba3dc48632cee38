//! Tests of what runs on the host: pure crates, this command, and the parts of guest programs
//! that can be tested without a guest.

use super::report::{Case, judge};
use super::{Report, Trial};
use crate::{compile, step::Step};
use anyhow::Result;
use std::process::Stdio;

/// The crates in `crates/`, as cargo names them by leaving out the rest: unit tests in them and the
/// tests of their `tests/` folders, mutations of untrusted input among them.
const CRATES: &[&str] = &[
    "--tests",
    "--workspace",
    "--exclude=hayate-machine",
    "--exclude=hayate-kernel",
    "--exclude=hayate-cli",
    "--exclude=hayate-init",
    "--exclude=hayate-guest",
    "--exclude=measure",
    "--exclude=hayate-tests",
    "--exclude=hayate-stress",
];

/// The trials.
pub fn trials() -> Vec<Trial> {
    let sets: [(&str, &[&str]); 3] = [
        ("host/crates", CRATES),
        ("host/command", &["-p", "hayate-cli"]),
        (
            "host/guest-programs",
            &["-p", "hayate-init", "-p", "hayate-guest", "-p", "resource", "-p", "measure"],
        ),
    ];
    sets.into_iter()
        .map(|(name, packages)| Trial {
            name: name.into(),
            cases: Vec::new(),
            weight: 2,
            run: Box::new(move |filters| run(name, packages, filters)),
        })
        .collect()
}

fn run(name: &str, packages: &[&str], filters: &[String]) -> Result<Report> {
    let _step = Step::new(format!("Building and running {name}"));
    let mut command = compile::cargo()?;
    // Quiet would hide which crate a case belongs to.
    command.env_remove("CARGO_TERM_QUIET");
    command.args(["test", "--no-fail-fast"]).args(packages).arg("--").args(filters);
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds our copies of the pipe's other end.
    drop(command);
    let output = std::io::read_to_string(reader)?;
    let status = child.wait()?;
    let mut module = String::new();
    let mut cases = Vec::new();
    for line in output.lines() {
        if let Some(name) = running(line) {
            module = name;
        } else if let Some(mut case) = Case::of_line(line) {
            case.name = format!("{module}::{}", case.name);
            cases.push(case);
        }
    }
    let end = if status.success() { Ok(()) } else { Err(format!("cargo test: {status}")) };
    // A filter may select nothing in one of several sets.
    let cases = if cases.is_empty() && end.is_ok() && !filters.is_empty() {
        cases
    } else {
        judge(cases, end)
    };
    Ok(Report { cases, output })
}

/// The crate of a line `Running unittests src/lib.rs (target/debug/deps/hayate_frames-0123)`.
fn running(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name}/doc"));
    }
    let (_, file) = line.strip_prefix("Running ")?.rsplit_once('(')?;
    let file = file.trim_end_matches(')').rsplit('/').next()?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name).replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_named() {
        let line = "     Running unittests src/lib.rs (target/debug/deps/hayate_frames-01ab)";
        assert_eq!(running(line).as_deref(), Some("hayate-frames"));
        assert_eq!(running("   Doc-tests hayate_job").as_deref(), Some("hayate_job/doc"));
        assert_eq!(running("test x ... ok"), None);
    }
}
