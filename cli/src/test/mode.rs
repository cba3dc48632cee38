//! Black-box tests of supervisor mode: the option, the guest program `mode`, the kernel's own
//! option, and interrupts that only the machine can raise.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const CHECKS: [(&str, Check); 6] = [
    ("programs_run_in_supervisor_mode", supervisor),
    ("user_mode_is_the_default", user),
    ("only_root_gets_supervisor_mode", nobody),
    ("processes_are_switched_and_listed", processes),
    ("it_can_be_turned_off", off),
    ("an_nmi_is_survived", nmi),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    // Linux has no supervisor mode for programs.
    if options.guest_linux { Vec::new() } else { trials_of("mode", &CHECKS, options) }
}

fn supervisor(hayate: &Hayate) -> Result<()> {
    let script = "grep ^Mode: /proc/self/status; /bin/sh -c 'grep ^mode: /proc/$$/mode'; exit 7";
    let output = hayate.run(&["--mode", "supervisor"], &["/bin/sh", "-c", script])?;
    expect(&output, 7, "Mode:\tsupervisor\nmode: supervisor\n", "")?;
    let output = hayate.run(&["--mode", "supervisor"], &["no-such-program"])?;
    expect(&output, 127, "", "no-such-program")
}

fn user(hayate: &Hayate) -> Result<()> {
    let output = hayate.run(&[], &["grep", "^Mode:", "/proc/self/status"])?;
    expect(&output, 0, "Mode:\tuser\n", "")
}

fn nobody(hayate: &Hayate) -> Result<()> {
    let output = hayate.run(&["--mode", "supervisor", "--user", "1000"], &["true"])?;
    expect(&output, 125, "", "it needs root with CAP_SYS_RAWIO")
}

fn processes(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "\
        sh -c 'while :; do read line </proc/uptime; done' & worker=$!
        mode list
        mode supervisor $worker
        until mode list $worker | grep -q ' supervisor .* 1 '; do :; done
        count() { mode list $worker | tail -n 1 | tr -s ' ' | cut -d ' ' -f \"$1\"; }
        before=$(count 5); sleep 0.2
        until [ \"$(count 5)\" -gt $((before + 100)) ]; do :; done
        [ \"$(count 7)\" -gt 0 ] && echo turned
        mode list | grep -c supervisor
        mode user $worker
        mode list $worker | tail -n 1 | tr -s ' ' | cut -d ' ' -f 3,4
        mode list | grep -c supervisor
        mode supervisor 4000000; echo $?
        mode nonsense 2>/dev/null; echo $?
        kill $worker";
    let output = hayate.run(&["--cpus", "2"], &["/bin/sh", "-c", SCRIPT])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, rest) = text.split_once('\n').context("no output")?;
    ensure!(head.contains("BY-CALL") && head.contains("LEFT"), "no head: {text}");
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("4000000: there is no such process"), "{said}");
    ensure!(rest == "turned\n1\nuser 2\n0\n1\n2\n", "{text}{said}");
    Ok(())
}

fn off(hayate: &Hayate) -> Result<()> {
    let options = ["--append", "supervisor=off"];
    let script = "mode supervisor $$; echo $?; grep ^Mode: /proc/$$/status; mode user $$; echo $?";
    let output = hayate.run(&options, &["/bin/sh", "-c", script])?;
    expect(&output, 0, "1\nMode:\tuser\n1\n", "it is turned off")?;
    let options = ["--append", "supervisor=off", "--mode", "supervisor"];
    let output = hayate.run(&options, &["true"])?;
    expect(&output, 125, "", "it is turned off")
}

/// The machine's monitor raises NMIs while programs run in ring 0: in their own code, in calls by
/// the gate, and with interrupts off.
fn nmi(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "\
        sh -c 'while :; do :; done' & first=$!
        sh -c 'while :; do read line </proc/uptime; done' & second=$!
        echo ready; read line; kill $first $second; mode list | grep -c supervisor; exit 3";
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("monitor");
    let monitor = format!("unix:{},server,nowait", path.display());
    let options = ["--cpus", "2", "--mode", "supervisor", "--qemu=-monitor", "--qemu", &monitor];
    let mut command = hayate.command(&options, &["/bin/bash", "-c", SCRIPT])?;
    let mut child = command.stdin(std::process::Stdio::piped()).spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line == "ready\n", "{line:?}");
    let mut monitor = UnixStream::connect(&path)?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        monitor.write_all(b"nmi\n")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    child.stdin.take().context("no input")?.write_all(b"end\n")?;
    let ended = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.code() == Some(3), "{}: {said}", ended.status);
    Ok(())
}
