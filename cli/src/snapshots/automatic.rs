//! Starts that `run` keeps by itself.
//!
//! The first run of a machine boots it. The second boots it, too, and then saves one like it as a
//! snapshot, which takes about a second, once. Later runs of that machine begin there, so that
//! nobody pays who runs something once. Before it is saved, the program that the options name and
//! its libraries are read; only its dynamic linker runs, to find them.
//!
//! A machine is one by all that makes it: the options that define it, QEMU, kernel, disks, the
//! host's processor. When one of these changes it is another machine, whose first run boots.
//!
//! A run boots as always if it asks for what a clone has not: the kernel's messages (`--log`), a
//! shared folder, a disk of the user, non-volatile memory, a network described by options, and the
//! like; or more memory than [`MEMORY_MOST`], since a clone gives none back before it ends. `--boot`
//! asks for a boot.
//!
//! The folder `build/starts` has the newest [`MOST`] of these snapshots, and beside them a file for
//! each machine that ran once. It can be removed at any time.
//!
//! Road not taken: keeping the start in a process that outlives the command. Nobody expects one,
//! and a second later the host may be at its limit of processes, or of patience.

use super::clone::{self, Clone};
use super::directory::Snapshots;
use super::make::{Plan, save};
use super::manifest::{Identity, checksum, processor};
use super::options;
use crate::arguments::{Mode, Run};
use crate::guest::qemu::Qemu;
use crate::guest::terminal;
use crate::progress::Progress;
use anyhow::Result;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most starts that are kept.
const MOST: usize = 6;
/// The most machines that are remembered after one run.
const MOST_SEEN: usize = 64;
/// The largest machine whose start is kept, in MiB.
const MEMORY_MOST: u64 = 2048;
/// The most tries to keep a start: the command may be killed, or the disk be full.
const MOST_TRIES: u64 = 3;
/// The beginning of the names of files about machines that ran once.
const SEEN: &str = ".seen-";
/// The longest that saving may take, in seconds.
const PATIENCE: u64 = 60;
/// The host name of every machine that boots.
const HOSTNAME: &str = "hayate";

/// Returns the name of the machine that these options make, or `None` if its start is not kept.
pub fn key(options: &Run, qemu: &Qemu) -> Option<String> {
    let is_plain = !options.boot
        && options.log.is_none()
        && !options.in_memory
        && options.machine.qemu.is_empty()
        && options.machine.memory <= MEMORY_MOST
        && options::check_make(&machine_of(options)).is_ok();
    if !is_plain {
        return None;
    }
    // The machine that boots reports a file that cannot be examined.
    name(options, qemu).ok()
}

fn name(options: &Run, qemu: &Qemu) -> Result<String> {
    let mut chosen = machine_of(options);
    chosen.machine.accel = qemu.accel();
    let mut text = format!("{:?}\n{:?}\n", options::defining(&chosen), processor());
    text += &format!("{} {}\n", qemu.has_kvm(), qemu.has_network());
    let files = [qemu.program.as_path(), &qemu.boot.kernel];
    for file in files.into_iter().chain(qemu.disks()) {
        let Identity { path, state, .. } = Identity::of(file)?;
        text += &format!("{} {state}\n", path.display());
    }
    Ok(checksum(text.as_bytes())[..32].to_string())
}

/// The options without those about the program and its streams.
fn machine_of(options: &Run) -> Run {
    let (tty, no_tty, timing, mode) = (false, false, false, Mode::User);
    Run { command: Vec::new(), tty, no_tty, timing, mode, ..options.clone() }
}

/// Returns the machine if its start was kept and can be used.
pub fn find(key: &str, options: &Run) -> Option<Clone> {
    let all = Snapshots::kept().ok()?;
    let snapshot = all.find(key).ok().filter(|found| found.manifest.obstacle().is_none())?;
    // It was used now: those that were not go first.
    let _ =
        File::open(all.folder().join(key)).and_then(|file| file.set_modified(SystemTime::now()));
    clone::of(snapshot, &machine_of(options), options, Some(HOSTNAME)).ok()
}

/// Notes that the machine ran; the second time its start is kept.
pub fn remember(key: &str, options: &Run) {
    // Where nothing can be written, nothing is kept.
    let Ok(all) = Snapshots::kept() else { return };
    if let Err(why) = note(&all, key, options) {
        terminal::say(&format!("cannot keep the start of this machine for later runs: {why:#}"));
    }
}

/// The file about a machine that ran is empty after its first run. It has a byte for each time that
/// its start was about to be kept, and goes when it is.
fn note(all: &Snapshots, key: &str, options: &Run) -> Result<()> {
    let seen = all.folder().join(format!("{SEEN}{key}"));
    let Ok(found) = seen.metadata() else {
        File::create(&seen)?;
        return keep_newest(all, |name| name.starts_with(SEEN), MOST_SEEN);
    };
    if found.len() >= MOST_TRIES {
        return Ok(());
    }
    let mut file = File::options().append(true).open(&seen)?;
    if file.try_lock().is_err() {
        // Another run is about to keep it.
        return Ok(());
    }
    file.write_all(b".")?;
    keep(all, key, options)?;
    let _ = std::fs::remove_file(&seen);
    Ok(())
}

fn keep(all: &Snapshots, key: &str, options: &Run) -> Result<()> {
    let _progress = Progress::new("Keeping the start of this machine for later runs");
    all.clear_up()?;
    let making = all.begin(key)?;
    // With the program, whose start is rehearsed.
    let run = Run { command: options.command.clone(), ..machine_of(options) };
    let plan = Plan {
        run: &run,
        name: HOSTNAME,
        words: Vec::new(),
        texts: Vec::new(),
        warm: Vec::new(),
        rehearses: true,
        limit: Some(PATIENCE),
    };
    save(&making, &plan)?;
    keep_newest(all, |name| !name.starts_with('.'), MOST)
}

/// Removes all but the newest of the entries whose names fit.
fn keep_newest(all: &Snapshots, fits: impl Fn(&str) -> bool, most: usize) -> Result<()> {
    let mut entries: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in all.folder().read_dir()? {
        let entry = entry?;
        if fits(&entry.file_name().to_string_lossy()) {
            // Another run may have removed it.
            let Ok(metadata) = entry.metadata() else { continue };
            entries.push((metadata.modified()?, entry.path()));
        }
    }
    entries.sort();
    let old = entries.len().saturating_sub(most);
    entries.iter().take(old).try_for_each(|(_, path)| forget(all, path))
}

fn forget(all: &Snapshots, path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let gone = match path.is_dir() {
        true => all.remove(&name),
        false => std::fs::remove_file(path).map_err(Into::into),
    };
    // Another run may have been faster.
    if path.exists() { gone } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::options::tests::run;

    fn key_of(words: &[&str]) -> Option<String> {
        let (run, plain) = (run(words, &[]), run(&["--accel=tcg"], &[]));
        let file = std::env::current_exe().unwrap();
        let qemu = Qemu::stand_in(&file, &plain.machine, std::time::Duration::from_secs(1));
        key(&run, &qemu)
    }

    #[test]
    fn a_machine_is_one_whatever_it_runs() {
        let plain = key_of(&["--accel=tcg"]).unwrap();
        for words in [
            &["--accel=tcg", "--", "true"][..],
            &["--accel=tcg", "--env=A=1", "--user=1000", "--directory=/tmp"],
            &["--accel=tcg", "--timing", "--timeout=5", "--no-tty"],
            &["--accel=tcg", "--mode=supervisor"],
        ] {
            assert_eq!(key_of(words).as_ref(), Some(&plain), "{words:?}");
        }
        for word in ["--memory=512M", "--cpus=2", "--recycle=none", "--aslr=start"] {
            assert_ne!(key_of(&["--accel=tcg", word]).unwrap(), plain, "{word}");
        }
    }

    #[test]
    fn some_machines_always_boot() {
        for word in [
            "--boot",
            "--log=-",
            "--memory=4G",
            "--deterministic",
            "--linux",
            "--nvm=64M",
            "--volume=/tmp:/tmp",
            "--disk=/tmp/disk",
            "--persist=a",
            "--net=tap:t0",
            "--publish=8080:80",
            "--qemu=-S",
        ] {
            assert_eq!(key_of(&["--accel=tcg", word]), None, "{word}");
        }
    }
}
