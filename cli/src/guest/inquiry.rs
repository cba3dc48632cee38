//! Questions that a QEMU answers without a machine. Any program may have QEMU's name, so that the
//! answer is waited for [`PATIENCE`] only.

use super::terminal;
use super::verdict::Verdict;
use crate::tool;
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long QEMU may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the version that a program reports.
pub fn version(program: &Path) -> Option<(u64, u64)> {
    numbers(&ask(program, &["--version"])?)
}

/// Returns the first line that a program says of its version.
pub fn version_line(program: &Path) -> Option<String> {
    ask(program, &["--version"])?.lines().next().map(String::from)
}

/// Whether this QEMU has a network of its own (`-netdev user`): one that was built without libslirp
/// has not. The answer is kept ([`super::verdict`]). A program that does not answer has none, which
/// is not kept.
pub fn has_own_network(program: &Path) -> Result<bool> {
    let verdict = Verdict::of_network(program)?;
    if let Some(has) = verdict.known() {
        return Ok(has);
    }
    let has = settle(&verdict, || Some(names_user(&ask(program, &["-netdev", "help"])?)))?;
    if has == Some(false) {
        terminal::say(
            "this QEMU has no network of its own (libslirp), so machines have a network only if \
             --net names one",
        );
    }
    Ok(has.unwrap_or(false))
}

/// Whether this QEMU can share folders (`virtio-9p`), which is an option of its build. The answer
/// is kept, unless there is none.
pub fn can_share(program: &Path) -> Result<bool> {
    let verdict = Verdict::of_shares(program)?;
    if let Some(can) = verdict.known() {
        return Ok(can);
    }
    let can = settle(&verdict, || Some(ask(program, &["-device", "help"])?.contains("virtio-9p")))?;
    Ok(can.unwrap_or(false))
}

/// Asks a question that nobody has answered, and keeps the answer. `None`: there was none.
fn settle(verdict: &Verdict, question: impl FnOnce() -> Option<bool>) -> Result<Option<bool>> {
    let _alone = verdict.alone()?;
    // Another process may have asked meanwhile.
    if let Some(known) = verdict.known() {
        return Ok(Some(known));
    }
    let answer = question();
    if answer.is_some() {
        verdict.keep(answer)?;
    }
    Ok(answer)
}

/// Whether `user` is among the kinds of networks, a line for each.
fn names_user(kinds: &str) -> bool {
    kinds.lines().any(|line| line.trim() == "user")
}

/// Returns what the program prints when it is started with these words; `None` if it fails or takes
/// too long.
fn ask(program: &Path, words: &[&str]) -> Option<String> {
    let mut command: Command = tool::command("timeout").ok()?;
    command.args(["-s", "KILL", &PATIENCE.as_secs().to_string()]);
    command.arg(program).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let began = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if began.elapsed() > PATIENCE * 2 {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    if output.status.success() { String::from_utf8(output.stdout).ok() } else { None }
}

/// `QEMU emulator version 7.2.22 (Debian ...)` as 7 and 2.
fn numbers(text: &str) -> Option<(u64, u64)> {
    let (_, rest) = text.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn versions_are_read() {
        assert_eq!(numbers("QEMU emulator version 7.2.22 (Debian 1:7.2)\nCopyright"), Some((7, 2)));
        assert_eq!(numbers("QEMU emulator version 10.0"), Some((10, 0)));
        assert_eq!(numbers("nonsense"), None);
    }

    #[test]
    fn kinds_of_networks_are_read_by_lines() {
        assert!(names_user("Available netdev backend types:\nsocket\nuser\ntap\n"));
        assert!(!names_user("Available netdev backend types:\nsocket\nvhost-user\ntap\n"));
        assert!(!names_user(""));
    }

    #[test]
    fn only_a_program_that_ends_well_has_answered() {
        let folder = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            let path = folder.path().join("q");
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            ask(&path, &["-netdev", "help"])
        };
        assert_eq!(says("echo $2").as_deref(), Some("help\n"));
        assert_eq!(says("echo user; exit 1"), None);
        assert_eq!(says("sleep 100"), None);
        assert_eq!(ask(&folder.path().join("none"), &[]), None);
    }
}
