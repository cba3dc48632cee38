//! Black-box tests of the starts that `run` keeps by itself.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use crate::machines::manage::resident;
use crate::paths;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CHECKS: [(&str, Check); 6] = [
    ("the_third_run_begins_there", third),
    ("its_program_and_libraries_are_in_memory", rehearsed),
    ("its_folders_are_those_of_each_run", folders),
    ("a_large_machine_gives_memory_back", large),
    ("a_torn_one_is_not_used_and_made_again", torn),
    ("several_runs_at_once_make_and_use_one", at_once),
];

/// The words of `--timing` about a machine that did not boot.
const RESTORED: &str = "the machine is restored";

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    // Linux always boots.
    if options.guest_linux { Vec::new() } else { trials_of("starts", &CHECKS, options) }
}

/// A machine that no other test and no user has.
struct Own<'a> {
    hayate: &'a Hayate,
    memory: &'static str,
    word: String,
}

impl<'a> Own<'a> {
    fn new(hayate: &'a Hayate) -> Own<'a> {
        Own::sized(hayate, "192M")
    }

    fn sized(hayate: &'a Hayate, memory: &'static str) -> Own<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Own { hayate, memory, word: format!("test={}-{number}", std::process::id()) }
    }

    fn start(&self, options: &[&str], script: &str) -> Result<Child> {
        let own = ["--memory", self.memory, "--append", &self.word, "--timing"];
        let options: Vec<&str> = own.iter().chain(options).copied().collect();
        let mut command = self.hayate.command(&options, &["sh", "-c", script])?;
        Ok(command.env_remove("HAYATE_BOOT").stdin(Stdio::piped()).spawn()?)
    }

    fn run(&self, options: &[&str], script: &str, input: &str) -> Result<Output> {
        let mut child = self.start(options, script)?;
        child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    /// Runs a script that prints `want`; returns whether the machine did not boot.
    fn says(&self, options: &[&str], script: &str, want: &str) -> Result<bool> {
        let output = self.run(options, script, "")?;
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        ensure!(said == want, "{script:?} printed {said:?}, not {want:?}; errors: {errors}");
        ensure!(output.status.success(), "{script:?}: {}; errors: {errors}", output.status);
        Ok(errors.contains(RESTORED))
    }

    /// Lets the start be kept.
    fn keep(&self) -> Result<()> {
        ensure!(!self.says(&[], "echo 1", "1\n")?, "the first run did not boot");
        ensure!(!self.says(&[], "echo 2", "2\n")?, "the second run did not boot");
        Ok(())
    }

    /// The folder of its start: its manifest tells the options.
    fn folder(&self) -> Result<PathBuf> {
        for entry in paths::build("starts")?.read_dir()? {
            let folder = entry?.path();
            let manifest = std::fs::read_to_string(folder.join("manifest")).unwrap_or_default();
            if manifest.contains(&format!("\"append\":\"{}\"", self.word)) {
                return Ok(folder);
            }
        }
        bail!("there is no start of this machine")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Later runs print the same as one that boots, whatever they are started with.
fn third(hayate: &Hayate) -> Result<()> {
    let own = Own::new(hayate);
    own.keep()?;
    ensure!(own.says(&[], "hostname; echo $HOME", "hayate\n/root\n")?, "the third run booted");
    let options = ["--env", "A=1", "--user", "1000", "--directory", "/tmp"];
    ensure!(own.says(&options, "echo $A; id -u; pwd", "1\n1000\n/tmp\n")?, "the fourth run booted");
    // Boots when asked to, and when it is another machine.
    ensure!(!own.says(&["--boot"], "echo 3", "3\n")?, "--boot did not boot");
    ensure!(!own.says(&["--cpus", "2"], "nproc", "2\n")?, "another machine was not booted");
    let output = own.run(&[], "cat; echo no >&2; exit 7", "given\n")?;
    ensure!(output.status.code() == Some(7), "the status is {}", output.status);
    ensure!(text(&output.stdout) == "given\n", "printed {:?}", text(&output.stdout));
    ensure!(text(&output.stderr).starts_with("no\n"), "errors {:?}", text(&output.stderr));
    // What a run writes is its own.
    own.says(&[], "echo x > /root/left", "")?;
    own.says(&[], "ls /root", "")?;
    let seeds: BTreeSet<String> = (0..3)
        .map(|_| Ok(text(&own.run(&[], "head -c 16 /dev/urandom | od -x", "")?.stdout)))
        .collect::<Result<_>>()?;
    ensure!(seeds.len() == 3, "random bytes came twice: {seeds:?}");
    Ok(())
}

/// A shell waits for the disk when it begins in a machine that booted, and not at a kept start.
fn rehearsed(hayate: &Hayate) -> Result<()> {
    let own = Own::new(hayate);
    own.keep()?;
    let waits = |options: &[&str]| -> Result<u32> {
        // The twelfth field: faults that waited for a device (`proc_pid_stat(5)`).
        let script = "read a b c d e f g h i j k l m < /proc/$$/stat; echo $l";
        Ok(text(&own.run(options, script, "")?.stdout).trim().parse()?)
    };
    let (booted, kept) = (waits(&["--boot"])?, waits(&[])?);
    ensure!(booted > 0 && kept == 0, "{booted} waits after a boot, {kept} at a kept start");
    Ok(())
}

/// A start is kept without the folders that its run shared; each run has its own, at paths of its
/// own.
fn folders(hayate: &Hayate) -> Result<()> {
    let own = Own::new(hayate);
    let host = tempfile::tempdir()?;
    let volume = |name: &str, rest: &str| -> Result<String> {
        let folder = host.path().join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("name"), name)?;
        Ok(format!("{}:{rest}", folder.display()))
    };
    let mut restored = Vec::new();
    for (round, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let path = format!("/at/{round}");
        let (first, second) = (volume(name, &path)?, volume("read", "/read:ro")?);
        let options = ["--volume", &first, "--volume", &second];
        let script = format!(
            "cat {path}/name /read/name; echo; echo of {name} > {path}/made; \
             touch /read/made 2>/dev/null || echo refused; ls -d /at/*"
        );
        restored.push(own.says(&options, &script, &format!("{name}read\nrefused\n{path}\n"))?);
        let made = std::fs::read_to_string(host.path().join(name).join("made"))?;
        ensure!(made == format!("of {name}\n"), "the host reads {made:?}");
    }
    ensure!(restored == [false, false, true, true], "restored: {restored:?}");
    // One folder less is another machine.
    let volume = volume("a", "/a")?;
    ensure!(!own.says(&["--volume", &volume], "cat /a/name; echo", "a\n")?, "it did not boot");
    Ok(())
}

/// What a program that ended has used goes back to the host while the machine runs.
fn large(hayate: &Hayate) -> Result<()> {
    const USED: u64 = 300 << 20;
    let own = Own::sized(hayate, "3G");
    own.keep()?;
    let script = format!(
        "python3 -c 'import sys; x = b\"x\" * {USED}; print(\"full\", flush=True); \
         sys.stdin.buffer.raw.read(3)'; read go"
    );
    let mut child = own.start(&[], &script)?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    ensure!(line == "full\n", "{line:?}");
    // The one child of the command is QEMU.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let qemu = std::fs::read_to_string(children)?.trim().parse()?;
    let held = || resident(qemu).context("what QEMU takes cannot be read");
    let during = held()?;
    let mut input = child.stdin.take().context("no input")?;
    input.write_all(b"go\n")?;
    let end = Instant::now() + Duration::from_secs(30);
    while held()? + USED / 10 * 9 > during {
        ensure!(Instant::now() < end, "{during} bytes were held, and still {}", held()?);
        std::thread::sleep(Duration::from_millis(50));
    }
    input.write_all(b"go\n")?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    let errors = text(&output.stderr);
    ensure!(errors.contains(RESTORED), "it booted: {errors}");
    Ok(())
}

fn torn(hayate: &Hayate) -> Result<()> {
    let own = Own::new(hayate);
    own.keep()?;
    let devices = own.folder()?.join("devices");
    File::options().write(true).open(devices)?.set_len(100)?;
    ensure!(!own.says(&[], "echo 3", "3\n")?, "a torn start was used");
    ensure!(!own.says(&[], "echo 4", "4\n")?, "a torn start was used");
    ensure!(own.says(&[], "echo 5", "5\n")?, "the start was not made again");
    Ok(())
}

fn at_once(hayate: &Hayate) -> Result<()> {
    let own = Own::new(hayate);
    let all = |count: usize| -> Result<usize> {
        let runs = std::thread::scope(|scope| {
            let runs: Vec<_> =
                (0..count).map(|_| scope.spawn(|| own.says(&[], "echo here", "here\n"))).collect();
            let ended = runs.into_iter().map(|run| run.join());
            ended.map(|ended| ended.unwrap_or_else(|_| Ok(false))).collect::<Result<Vec<_>>>()
        })?;
        Ok(runs.into_iter().filter(|restored| *restored).count())
    };
    all(1)?;
    all(3)?;
    let restored = all(3)?;
    ensure!(restored == 3, "{restored} of 3 runs began at the kept start");
    Ok(())
}
