//! Tests that run on the host: pure crates, this command, and the parts of guest programs that can
//! be tested without a guest.

use super::report::{Case, Verdict, judge};
use super::{Report, Trial};
use crate::{compile, paths, progress::Progress, tool};
use anyhow::Result;
use std::process::{Command, Stdio};

/// The folder of cargo's profile `dev`, which cargo locks while it compiles: two trials that
/// compile into it run one after the other.
pub(super) const CARGO_FOLDER: &str = "target/debug";

/// Everything whose tests run on the host, selected by excluding the rest: unit tests and those of
/// `tests/` folders, including mutations of untrusted input. It is one call of cargo, for the
/// features of a dependency are those that all selected crates ask for: several calls would compile
/// many of them several times.
const ON_THE_HOST: &[&str] = &[
    "--tests",
    "--workspace",
    "--exclude=hayate-machine",
    "--exclude=hayate-kernel",
    "--exclude=hayate-tests",
    "--exclude=hayate-stress",
];

/// The models of crates/protocols: with loom's atomic types instead of the processor's, and a
/// target folder of their own, so that nothing else is rebuilt.
const MODELS: &[&str] = &[
    "--release",
    "-p",
    "hayate-protocols",
    "-p",
    "hayate-frames",
    "--test",
    "models",
    "--target-dir",
    "target/loom",
];

/// The toolchain of Miri: a nightly of a fixed date, used only for this check.
const MIRI: &str = "nightly-2026-05-20";

/// The crate that Miri runs: the one with unsafe code.
const INTERPRETED: &[&str] = &["--lib", "-p", "hayate-machine", "--target-dir", "target/miri"];

/// Tests read the host's clock and environment, and turn addresses into pointers, as in a kernel.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-permissive-provenance";

/// The trials.
pub fn trials() -> Vec<Trial> {
    let tests = Trial::new("host/tests", |filters| {
        let mut command = compile::cargo()?;
        command.args(["test", "--no-fail-fast"]).args(ON_THE_HOST);
        run("host/tests", command, filters)
    });
    // The others have folders of their own.
    vec![
        tests.exclusive(CARGO_FOLDER),
        Trial::new("host/miri", miri),
        Trial::new("host/models", models),
    ]
}

/// Runs the models: every order of the steps of the lock-free protocols.
fn models(filters: &[String]) -> Result<Report> {
    let mut command = compile::cargo()?;
    command.args(["test", "--no-fail-fast"]).args(MODELS).env("RUSTFLAGS", "--cfg loom");
    run("host/models", command, filters)
}

/// Runs tests under an interpreter that finds undefined behaviour. If it is not installed, the case
/// is skipped: only this check needs a nightly toolchain.
fn miri(filters: &[String]) -> Result<Report> {
    let rustup = || -> Result<Command> {
        let mut rustup = tool::command("rustup")?;
        rustup.args(["run", MIRI, "cargo", "miri"]).current_dir(paths::project());
        Ok(rustup)
    };
    let is_there = rustup().is_ok_and(|mut rustup| {
        rustup.arg("--version").output().is_ok_and(|said| said.status.success())
    });
    if !is_there {
        let how =
            format!("rustup toolchain install {MIRI} --profile minimal --component miri,rust-src");
        let skipped = Case::new("", Verdict::Skipped(format!("no Miri; to have it: {how}")));
        return Ok(Report { cases: vec![skipped], output: String::new() });
    }
    let mut command = rustup()?;
    command.args(["test", "--no-fail-fast"]).args(INTERPRETED);
    // Few rounds of the random tests: an interpreter is some hundred times slower.
    command.env("PROPTEST_CASES", "4").env("MIRIFLAGS", FLAGS);
    run("host/miri", command, filters)
}

fn run(name: &str, mut command: Command, filters: &[String]) -> Result<Report> {
    let _step = Progress::new(format!("Building and running {name}"));
    // Quiet output would not show which crate a case belongs to.
    command.env_remove("CARGO_TERM_QUIET");
    command.arg("--").args(filters);
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds this process's copies of the pipe's other end.
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
