//! Rows of machines about the host's memory: it comes back after a job, when the machine is idle
//! and when the host asks for it.

use super::super::command::{Hayate, expect};
use super::{Stay, until};
use crate::machines::manage::resident;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How much a job touches.
const TOUCHED: u64 = 512 << 20;

pub fn given_back(hayate: &Hayate) -> Result<()> {
    gives_back(hayate, &["--cpus", "2"])
}

pub fn given_back_on_microvm(hayate: &Hayate) -> Result<()> {
    gives_back(hayate, &["--machine", "microvm"])
}

/// After a job that touched much memory the host has at least nine tenths of it back within two
/// seconds, by what it holds for QEMU. On a busy host one of five jobs has to show it; the others
/// may take longer, but each is given back.
fn gives_back(hayate: &Hayate, options: &[&str]) -> Result<()> {
    const WITHIN: Duration = Duration::from_secs(2);
    let stay = Stay::started(hayate, &[&["--memory", "1G"], options].concat(), &[])?;
    let qemu = stay.state()?.qemu.context("no QEMU")?.pid;
    let held = || resident(qemu).context("what QEMU takes cannot be read");
    let script = format!(
        "import sys; x = b'x' * {TOUCHED}; print(x.count(b'x'), flush=True); sys.stdin.read()"
    );
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let before = held()?;
        let mut job = stay.exec(&[], &["/usr/bin/python3", "-c", &script])?;
        let mut job = job.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = job.stdin.take();
        let mut line = String::new();
        BufReader::new(job.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line.trim().parse() == Ok(TOUCHED), "{line:?}");
        let during = held()?;
        // Almost all: QEMU may give back something of its own meanwhile.
        ensure!(during >= before + TOUCHED / 100 * 98, "{before} bytes, then {during}");
        drop(input);
        ensure!(job.wait()?.success(), "the job failed");
        let ended = Instant::now();
        let is_back = || Ok(held()? <= during - TOUCHED / 10 * 9);
        until("the memory of a job", is_back)?;
        best = best.min(ended.elapsed());
        if best <= WITHIN {
            // It is told in the machine as well, and listed.
            let frames = "sed -n 's/^given-back //p' /proc/hayate/frames";
            ensure!(stay.number(frames)? >= TOUCHED / 10 * 9 / 4096, "{frames}");
            let line = stay.listed(&[])?.context("it is not listed")?;
            let shown = |bytes: u64| line.contains(&format!("  {} MiB  ", bytes >> 20));
            ensure!((during - TOUCHED - (64 << 20)..during).step_by(1 << 20).any(shown), "{line}");
            return Ok(());
        }
    }
    bail!("the host had the memory of a job back after {best:?} at best")
}

/// How many bytes the host holds of the memory that a machine has. QEMU's own are not among them:
/// its buffer of translated code grows with each program that looks.
fn held_for_guest(stay: &Stay) -> Result<u64> {
    let state = stay.state()?;
    let pid = state.qemu.context("no QEMU")?.pid;
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let size = |range: &str| {
        let (start, end) = range.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        hex(end)?.checked_sub(hex(start)?)
    };
    let mut lines = text.lines();
    let wanted = Some(state.memory << 20);
    lines
        .find(|line| line.split(' ').next().and_then(size) == wanted)
        .with_context(|| format!("QEMU has no memory of {} MiB", state.memory))?;
    let kilobytes = lines
        .find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .context("what the host holds cannot be read")?;
    Ok(kilobytes << 10)
}

/// Kept parts of programs and cached pages of files go back to the host when nobody uses them for a
/// period; with `idle-age=0` they stay.
pub fn shrinks(hayate: &Hayate) -> Result<()> {
    /// Bytes that the job leaves in the cache.
    const READ: u64 = 64 << 20;
    const JOB: &str = "for i in 1 2 3 4; do perl -e 1 & python3 -c pass & wait; done; \
        find /usr -xdev -type f -size -2000k | head -n 4000 | xargs cat 2>/dev/null | \
        head -c 64M >/dev/null";
    const CACHED: &str = "awk '/^Cached:/ { print $2 * 1024 }' /proc/meminfo";
    const KEPT: &str = "awk 'NR > 1 { sum += $7 } END { print sum }' /proc/hayate/pools";
    let used =
        |stay: &Stay| -> Result<(u64, u64)> { Ok((stay.number(CACHED)?, stay.number(KEPT)?)) };
    let stay = Stay::started(hayate, &["--append", "idle-age=3"], &[])?;
    let always = Stay::started(hayate, &["--append", "idle-age=0"], &[])?;
    let mut full = Vec::new();
    for machine in [&stay, &always] {
        expect(&machine.shell(JOB)?, 0, "", "")?;
        let (cached, kept) = used(machine)?;
        ensure!(cached >= READ && kept >= 1 << 20, "{cached} bytes cached, {kept} kept");
        full.push(kept);
    }
    let during = held_for_guest(&stay)?;
    // To look is a start, which keeps some: not more often than a period.
    until("an idle machine to shrink", || {
        std::thread::sleep(Duration::from_secs(7));
        let (cached, kept) = used(&stay)?;
        Ok(cached < READ / 4 && kept < full[0] / 2)
    })?;
    until("the host to have it", || Ok(held_for_guest(&stay)? <= during - READ / 2))?;
    // It works as before, and the other one has all of it.
    expect(&stay.shell("python3 -c 'print(42)'")?, 0, "42\n", "")?;
    let (cached, kept) = used(&always)?;
    ensure!(cached >= READ && kept >= full[1] / 2, "{cached} bytes cached, {kept} kept");
    Ok(())
}

pub fn inflated(hayate: &Hayate) -> Result<()> {
    inflates(hayate, &["--cpus", "2"])
}

pub fn inflated_on_microvm(hayate: &Hayate) -> Result<()> {
    inflates(hayate, &["--machine", "microvm"])
}

/// The balloon has the size that the host asks for. A program that needs the memory gets it, and
/// the host has it again when it asks again.
fn inflates(hayate: &Hayate, options: &[&str]) -> Result<()> {
    const SIZE: &str = "sed -n 's/^inflated //p' /proc/hayate/frames";
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("qmp");
    let monitor = format!("--qemu=unix:{},server=on,wait=off", place.display());
    let own = ["--memory", "512M", "--qemu=-qmp", &monitor];
    let stay = Stay::started(hayate, &[&own[..], options].concat(), &[])?;
    let mut monitor = UnixStream::connect(&place)?;
    monitor.write_all(b"{\"execute\": \"qmp_capabilities\"}\n")?;
    let mut ask = |mib: u64| {
        let bytes = mib << 20;
        let line = format!("{{\"execute\": \"balloon\", \"arguments\": {{\"value\": {bytes}}}}}\n");
        monitor.write_all(line.as_bytes())
    };
    let is = |frames: u64| Ok(stay.number(SIZE)? == frames);
    ask(192)?;
    until("the balloon to have 320 MiB", || is(320 << 8))?;
    // More than the rest: it comes back from the host.
    let script = format!("print(len(b'x' * {}))", 300 << 20);
    let output = stay.exec(&[], &["/usr/bin/python3", "-c", &script])?.output()?;
    expect(&output, 0, &format!("{}\n", 300 << 20), "")?;
    let left = stay.number(SIZE)?;
    ensure!(left < 220 << 8, "the host still has {left} frames");
    // What it asks for is not more than there is, and others go on.
    ask(64)?;
    until("the balloon to have nearly all", || Ok(stay.number(SIZE)? > 350 << 8))?;
    expect(&stay.shell("echo lives")?, 0, "lives\n", "")?;
    ask(512)?;
    until("the balloon to be empty", || is(0))?;
    Ok(())
}

/// A balloon that takes no free memory is told of none; a machine that counts instructions has
/// none.
pub fn without_balloon(hayate: &Hayate) -> Result<()> {
    let given = "sed -n 's/^given-back-ever //p' /proc/hayate/frames; sleep 2; \
        sed -n 's/^given-back-ever //p' /proc/hayate/frames";
    let plain: &[&str] = &["--qemu=-device", "--qemu=virtio-balloon-pci"];
    let (left_alone, none) = ("what the host asks for goes back", "powering off");
    for (options, log) in [(plain, left_alone), (&["--deterministic"][..], none)] {
        let options = [options, &["--log", "-"]].concat();
        let output = hayate.run(&options, &["/bin/sh", "-c", given])?;
        expect(&output, 0, "0\n0\n", log)?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(log == left_alone || !text.contains("balloon"), "{text}");
    }
    Ok(())
}
