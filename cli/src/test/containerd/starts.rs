//! Pods whose machines need no boot.

use super::super::command::Hayate;
use super::checks::same;
use super::daemon::Daemon;
use super::{PATIENCE, installed};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A limit of memory that no other check has, so that its machine is of a kind of its own.
const LIMIT: &str = "101711872";
/// What a machine tells that was restored from a start, and one that booted.
const RESTORED: &str = "1\n";
const BOOTED: &str = "0\n";
/// How a container asks for it (`kernel/src/fs/proc/fresh.rs`).
const ASK: &str = "cat /proc/hayate/fresh";

/// The folders of the starts that are kept, and of those that are being made.
fn folders() -> Result<BTreeSet<PathBuf>> {
    let Ok(entries) = installed()?.join("prefix/lib/hayate/starts").read_dir() else {
        return Ok(BTreeSet::new());
    };
    let entries = entries.map(|entry| Ok(entry?.path())).collect::<Result<BTreeSet<_>>>()?;
    Ok(entries.into_iter().filter(|path| path.is_dir()).collect())
}

/// Runs containers until one begins at a kept start.
fn until_restored(daemon: &Daemon, options: &[&str]) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while daemon.shell(options, ASK, 0)? != RESTORED {
        ensure!(Instant::now() < end, "no start was kept\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The third pod of one kind begins at a start that is kept; pods that begin there are not twins,
/// and a start that is torn is made again.
pub fn kept(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let before = folders()?;
    let options = ["--memory-limit", LIMIT];
    same(&daemon.shell(&options, ASK, 0)?, BOOTED)?;
    same(&daemon.shell(&options, ASK, 0)?, BOOTED)?;
    until_restored(&daemon, &options)?;
    let mut seeds = BTreeSet::new();
    for round in 0..3 {
        let text = "cat /proc/sys/kernel/random/boot_id /sys/class/net/eth0/address; ls /tmp; \
            echo left >/tmp/left; hostname";
        let said = daemon.shell(&options, text, 0)?;
        let lines: Vec<_> = said.lines().map(String::from).collect();
        let [boot, hardware, hostname] = &lines[..] else { bail!("round {round}: {said:?}") };
        ensure!(hostname == "one", "round {round}: the name is {hostname}");
        seeds.extend([boot.clone(), hardware.clone()]);
    }
    ensure!(seeds.len() == 6, "pods are twins: {seeds:?}");
    let made = folders()?;
    let own = made.difference(&before).next().context("no folder of the start is there")?;
    File::options().write(true).open(own.join("devices"))?.set_len(100)?;
    same(&daemon.shell(&options, ASK, 0)?, BOOTED)?;
    until_restored(&daemon, &options)?;
    daemon.is_clean()
}
