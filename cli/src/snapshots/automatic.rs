//! Starts that `run` keeps by itself ([`super::kept`], in the folder `build/starts`).
//!
//! The first run of a machine boots it. The second boots it, too, and then saves one like it as a
//! snapshot, which takes about a second, once. Later runs of that machine begin there. Before it is
//! saved, the program that the options name and its libraries are read; only its dynamic linker
//! runs, to find them.
//!
//! A machine is one by all that makes it: the options that define it, QEMU, kernel, disks, the
//! host's processor. When one of these changes it is another machine, whose first run boots. Of the
//! folders that it shares only their number counts: a machine that is saved has the devices by
//! which they are shared, and a clone mounts its own.
//!
//! A run boots as always if it asks for what a clone has not: the kernel's messages (`--log`), a
//! disk of the user, non-volatile memory, a network described by options, and the like. `--boot`
//! asks for a boot.
//!
//! A machine of more than [`PRIVATE_MOST`] gives unused memory back while it runs, and so has a
//! copy of the snapshot's memory. A smaller one maps the file privately, gives back nothing before
//! it ends, and begins some milliseconds earlier.
//!
//! Road not taken: keeping the start in a process that outlives the command. Nobody expects one,
//! and a second later the host may be at its limit of processes, or of patience.

use super::clone::{self, Clone};
use super::kept::{PATIENCE, Starts};
use super::make::{Plan, save};
use super::manifest::{Identity, checksum, processor};
use super::options;
use crate::arguments::{Mode, Run};
use crate::guest::qemu::Qemu;
use crate::guest::terminal;
use crate::progress::Progress;
use anyhow::Result;

/// The largest machine that gives no memory back before it ends, in MiB.
const PRIVATE_MOST: u64 = 2048;
/// The host name of every machine that boots.
const HOSTNAME: &str = "hayate";

/// Returns the name of the machine that these options make, or `None` if its start is not kept.
pub fn key(options: &Run, qemu: &Qemu) -> Option<String> {
    let is_plain = !options.boot
        && options.log.is_none()
        && !options.in_memory
        && options.machine.qemu.is_empty()
        && options::check_make(&Run { volume: Vec::new(), ..machine_of(options) }).is_ok();
    if !is_plain {
        return None;
    }
    // The machine that boots reports a file that cannot be examined.
    name(options, qemu).ok()
}

fn name(options: &Run, qemu: &Qemu) -> Result<String> {
    let mut chosen = machine_of(options);
    chosen.machine.accel = qemu.accel();
    let volumes = std::mem::take(&mut chosen.volume).len();
    let mut text = format!("{:?}\n{:?}\n", options::defining(&chosen), processor());
    text += &format!("{} {} {volumes}\n", qemu.has_kvm(), qemu.has_network());
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
    let snapshot = Starts::of_run().ok()?.find(key)?;
    clone::of(snapshot, &machine_of(options), options, Some(HOSTNAME)).ok()
}

/// Notes that the machine ran; the second time its start is kept.
pub fn remember(key: &str, options: &Run) {
    // Where nothing can be written, nothing is kept.
    let Ok(starts) = Starts::of_run() else { return };
    let kept = starts.note(key, |making| {
        let _progress = Progress::new("Keeping the start of this machine for later runs");
        // With the program, whose start is rehearsed.
        let run = Run { command: options.command.clone(), ..machine_of(options) };
        let plan = Plan {
            run: &run,
            name: HOSTNAME,
            words: Vec::new(),
            texts: Vec::new(),
            warm: Vec::new(),
            rehearses: true,
            gives_back: options.machine.memory > PRIVATE_MOST,
            limit: Some(PATIENCE),
        };
        save(making, &plan)
    });
    if let Err(why) = kept {
        terminal::say(&format!("cannot keep the start of this machine for later runs: {why:#}"));
    }
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
        let one = key_of(&["--accel=tcg", "--volume=/tmp:/a"]).unwrap();
        assert_eq!(key_of(&["--accel=tcg", "--volume=/usr:/b:ro"]).unwrap(), one);
        for word in [
            "--volume=/tmp:/a",
            "--memory=512M",
            "--memory=16G",
            "--cpus=2",
            "--recycle=none",
            "--aslr=start",
        ] {
            assert_ne!(key_of(&["--accel=tcg", word]).unwrap(), plain, "{word}");
        }
    }

    #[test]
    fn some_machines_always_boot() {
        for word in [
            "--boot",
            "--log=-",
            "--deterministic",
            "--linux",
            "--nvm=64M",
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
