//! The kernel's own tests, and guest programs: on this machine's Linux first, then in machines.

use super::report::{Case, judge};
use super::{Report, Trial};
use crate::arguments::disks::MakeDisk;
use crate::arguments::network::{Net, Network};
use crate::arguments::{Board, Machine, Monitor, Profile, Test};
use crate::disks;
use crate::guest::disk;
use crate::guest::disk::UserDisk;
use crate::guest::log::Sink;
use crate::guest::session::{End, Outcome, Session, Streams};
use crate::guest::{accel, backtrace, initramfs};
use crate::image::{convert, default};
use crate::run::IN_SUPERVISOR_MODE;
use crate::{paths, progress::Progress, tool};
use anyhow::{Context, Result};
use hayate_job::{Job, Mount, Root};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// The programs' folder in a guest.
pub(super) const GUEST_FOLDER: &str = "/tests";
/// A guest program's time limit for one case: software translation on a busy host is slow.
const CASE_SECONDS: &str = "120";
/// A machine's time limit, for all cases of one program.
pub(super) const MACHINE_LIMIT: Duration = Duration::from_secs(900);
/// QEMU's exit status when the kernel's tests passed: 0x10 written to the exit device.
const KERNEL_PASSED: i32 = 0x10 << 1 | 1;

/// Held while images and the kernel are made.
static MAKING_ARTIFACTS: Mutex<()> = Mutex::new(());

/// The guest programs, built, with their cases.
pub struct Programs {
    /// Their folder on the host.
    pub folder: PathBuf,
    /// `SUITE/AREA` and its cases.
    areas: BTreeMap<String, Vec<String>>,
}

/// Builds the guest programs and asks them for their cases.
pub fn programs() -> Result<Programs> {
    let folder = paths::build("tests")?;
    {
        let _alone = paths::lock("tests")?;
        let _step = Progress::new("Building the guest programs");
        let mut make = tool::command("make")?;
        tool::command("musl-gcc")?;
        make.args(["-s", "-C", "tests", "-j2"]).arg(format!("OUT={}", folder.display()));
        tool::run(make.current_dir(paths::project()))?;
    }
    let list = tool::run(Command::new(folder.join("runall")).arg("--list"))?;
    let mut areas: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&list.stdout).lines() {
        if let Some((area, case)) = line.split_once("::") {
            areas.entry(area.into()).or_default().push(case.into());
        }
    }
    Ok(Programs { folder, areas })
}

/// Returns the trials of every program on this machine's Linux: a case that fails here says nothing
/// about Hayate.
pub fn on_linux(programs: &Programs) -> Vec<Trial> {
    let trial = |(area, cases): (&String, &Vec<String>)| {
        let (folder, known, suite) = (programs.folder.clone(), cases.clone(), suite_on_linux(area));
        let area = area.clone();
        let trial = Trial::new(format!("linux/{area}"), move |chosen| {
            let mut command = Command::new(folder.join("runall"));
            command.args(selection(&area, &known, chosen));
            command.stdin(std::process::Stdio::null());
            let output = command.output().context("cannot start runall")?;
            let end = if output.status.success() {
                Ok(())
            } else {
                Err(format!("the program ended with {}", output.status))
            };
            let text = String::from_utf8_lossy(&output.stdout);
            let said = String::from_utf8_lossy(&output.stderr);
            Ok(Report { cases: judge(cases_of(&text, &area), end), output: said.into_owned() })
        });
        // One program at a time of each suite, beside the compilers: cases mostly wait.
        trial.cases(cases.clone()).weight(0).exclusive(suite)
    };
    programs.areas.iter().map(trial).collect()
}

/// Returns the trials of the kernel's own tests: a machine without a program, which ends by the
/// exit device. Only kernels of profile `dev` have these tests.
pub fn kernel_trials(options: &Test) -> Vec<Trial> {
    let trial = |&cpus: &u8| {
        let mut machine = machine(options, cpus);
        machine.profile = Profile::Dev;
        machine.append.push("ktest".into());
        machine.network = Network::of(Net::User);
        let trial = Trial::new(format!("kernel/{cpus}-cpu"), move |_| {
            let qemu = {
                let _one_at_a_time = MAKING_ARTIFACTS.lock();
                accel::machine(&machine)?
            };
            let session = Session::new(qemu, Streams::None, Sink::None, Some(MACHINE_LIMIT));
            let outcome = session.run(None)?;
            let log = outcome.log.text();
            let cases = log.lines().filter_map(Case::of_line).collect();
            let end = match outcome.end {
                End::Machine(KERNEL_PASSED) => Ok(()),
                _ => Err(describe_end(&outcome)),
            };
            Ok(Report { cases: judge(cases, end), output: messages(&outcome) })
        });
        trial.weight(usize::from(cpus))
    };
    options.cpus.iter().map(trial).collect()
}

/// The thing of which there is one for each suite on this machine's Linux.
fn suite_on_linux(area: &str) -> &'static str {
    if area.starts_with("dynamic/") {
        "the dynamic suite on Linux"
    } else {
        "other suites on Linux"
    }
}

/// Whether a suite runs with so many processors only with `--long`, or where a filter asks for it.
/// The suites differ in their C library, not in their cases. So each runs with one number of
/// processors; with two, the static one runs in supervisor mode, and while its mode changes.
fn is_for_long_runs(area: &str, cpus: u8) -> bool {
    area.starts_with("static/") && cpus != 4 || area.starts_with("dynamic/") && cpus != 1
}

/// Returns the trials of every program in Hayate, in a machine of its own for each number of
/// processors. Each counts as one processor of the host: cases mostly wait, and a machine of 2 or 4
/// processors used less than one.
pub fn in_machines(options: &Test, programs: &Programs) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &cpus in &options.cpus {
        for (area, cases) in &programs.areas {
            let name = format!("hayate/{cpus}-cpu/{area}");
            let is_asked_for = !options.filter.is_empty() || options.includes_long(&name);
            if is_for_long_runs(area, cpus) && !is_asked_for {
                continue;
            }
            let (folder, area, known) = (programs.folder.clone(), area.clone(), cases.clone());
            let machine = machine(options, cpus);
            let trial = Trial::new(name, move |chosen| {
                let mut words = vec![format!("{GUEST_FOLDER}/runall")];
                words.extend(selection(&area, &known, chosen));
                let disks = TestDisks::of(&area)?;
                let given = disks.as_ref().map_or(&[][..], |disks| &disks.given);
                let (outcome, output, said) =
                    run_with(given, &machine, &folder, &words, MACHINE_LIMIT)?;
                let cases = judge(cases_of(&output, &area), end(&outcome));
                let output = format!("{said}{}", failure_shown(&outcome));
                Ok(Report { cases, output })
            });
            trials.push(trial.cases(cases.clone()));
        }
    }
    trials
}

/// How long all programs of a suite may take in one machine.
const SUITE_LIMIT: Duration = Duration::from_secs(1200);

/// How long some cases of a suite are run while modes change, where the whole suite takes minutes.
const FEW_CASES_SECONDS: &str = "60";

/// A run of all programs of a suite in one machine, in another way than usual.
struct SuiteRun {
    name: &'static str,
    cpus: u8,
    suite: &'static str,
    /// Words before `runall`.
    before: &'static [&'static str],
    /// Options of `runall`.
    options: &'static [&'static str],
    /// A word on the kernel's command line.
    append: &'static str,
    /// How often each program is started.
    starts: u32,
    long: bool,
}

const SUITE_RUNS: [SuiteRun; 13] = {
    const STORM: &[&str] = &["/tests/stress/modestorm", "--"];
    const MINUTES: &[&str] = &["/tests/stress/modestorm", "--seconds", "600", "--"];
    const HOUR: &[&str] = &["/tests/stress/modestorm", "--seconds", "3600", "--"];
    // Every call site is patched, not only those that a program reaches often.
    const GATE: &str = "gate=first";
    const fn row(name: &'static str, cpus: u8, suite: &'static str, long: bool) -> SuiteRun {
        let before = &IN_SUPERVISOR_MODE;
        SuiteRun { name, cpus, suite, before, options: &[], append: GATE, starts: 1, long }
    }
    const fn storm(
        name: &'static str,
        suite: &'static str,
        before: &'static [&'static str],
        long: bool,
    ) -> SuiteRun {
        SuiteRun { before, ..row(name, 2, suite, long) }
    }
    const fn images(suite: &'static str) -> SuiteRun {
        SuiteRun {
            before: &[],
            options: &["--images"],
            append: "recycle=full+image",
            starts: 5,
            ..row("from_images", 2, suite, true)
        }
    }
    [
        storm("mode_changes_100_times_a_second_for_an_hour", "static", HOUR, true),
        storm("mode_changes_100_times_a_second_for_ten_minutes", "static", MINUTES, true),
        storm("mode_changes_100_times_a_second", "static", STORM, false),
        row("supervisor_mode", 2, "static", false),
        row("supervisor_mode", 1, "static", true),
        row("supervisor_mode", 4, "static", true),
        row("supervisor_mode", 2, "dynamic", true),
        row("supervisor_mode", 2, "programs", true),
        storm("mode_changes_100_times_a_second", "dynamic", STORM, true),
        storm("mode_changes_100_times_a_second", "programs", STORM, true),
        images("dynamic"),
        images("static"),
        images("programs"),
    ]
};

/// Returns the trials of whole suites: in supervisor mode, while another process switches their mode
/// a hundred times a second, and from images, compared with starts without. All programs of a suite
/// share one machine, so that switches happen during all kinds of activity, and images are of
/// programs that change the world.
pub fn suites(options: &Test, programs: &Programs) -> Vec<Trial> {
    let is_chosen = |row: &&SuiteRun| {
        options.cpus.contains(&row.cpus) && (!row.long || options.includes_long(&row.trial_name()))
    };
    let chosen: Vec<&SuiteRun> = SUITE_RUNS.iter().filter(is_chosen).collect();
    let is_within = |row: &SuiteRun| chosen.iter().any(|other| row.is_part_of(other));
    let rows = chosen.iter().filter(|row| !is_within(row));
    rows.map(|row| row.trial(options, programs)).collect()
}

impl SuiteRun {
    fn trial_name(&self) -> String {
        format!("{}/{}-cpu/{}", self.name, self.cpus, self.suite)
    }

    /// Returns how many seconds the row is asked to go on changing modes; 0: for one run of its
    /// suite.
    fn seconds(&self) -> u64 {
        let seconds = self.before.windows(2).find(|words| words[0] == "--seconds");
        seconds.and_then(|words| words[1].parse().ok()).unwrap_or(0)
    }

    /// Whether another row does the same for a longer time.
    fn is_part_of(&self, other: &SuiteRun) -> bool {
        let is_same =
            (self.suite, self.cpus, self.append) == (other.suite, other.cpus, other.append);
        is_same && self.before.first() == other.before.first() && self.seconds() < other.seconds()
    }

    /// Returns the machine's time limit: that of a suite for each start, and the time that the row is
    /// asked to go on changing modes. A guest that hangs must not take the time of all other rows.
    fn limit(&self) -> Duration {
        SUITE_LIMIT * self.starts + Duration::from_secs(self.seconds())
    }

    fn trial(&self, options: &Test, programs: &Programs) -> Trial {
        let (before, then, limit) = (self.before, self.options, self.limit());
        let prefix = format!("{}/", self.suite);
        let (mut known, mut all) = (Vec::new(), Vec::new());
        for (path, cases) in &programs.areas {
            let Some(area) = path.strip_prefix(&prefix) else { continue };
            known.extend(cases.iter().map(|case| format!("{area}::{case}")));
            all.push(format!("{path}::"));
        }
        let (mut machine, folder) = (machine(options, self.cpus), programs.folder.clone());
        machine.append.push(self.append.into());
        let trial = Trial::new(self.trial_name(), move |chosen| {
            let mut words: Vec<String> = before.iter().map(|&word| word.into()).collect();
            if let Some(at) = words.iter().position(|word| word == "--seconds")
                && !chosen.is_empty()
                && let Some(seconds) = words.get_mut(at + 1)
            {
                // Some cases take a part of the time of all.
                *seconds = FEW_CASES_SECONDS.into();
            }
            words.push(format!("{GUEST_FOLDER}/runall"));
            words.extend(then.iter().map(|&word| word.into()));
            if chosen.is_empty() {
                words.extend(all.iter().cloned());
            } else {
                words.extend(chosen.iter().map(|case| format!("{prefix}{case}")));
            }
            let (outcome, output, said) = run(&machine, &folder, &words, limit)?;
            let cases = judge(named_within(&prefix, &output), end(&outcome));
            Ok(Report { cases, output: format!("{said}{}", failure_shown(&outcome)) })
        });
        // Minutes of switches run beside other rows, for their cases mostly wait.
        trial.cases(known).weight(if self.seconds() > 0 { 0 } else { 1 })
    }
}

pub(super) fn machine(options: &Test, cpus: u8) -> Machine {
    Machine {
        cpus,
        processor: None,
        memory: 1024,
        accel: options.accel,
        board: Board::Q35,
        aslr: None,
        deterministic: false,
        nvm: None,
        network: Network::default(),
        append: Vec::new(),
        qemu: Vec::new(),
        kernel: None,
        background: false,
        vmm: Monitor::Qemu,
        linux: options.guest_linux,
        profile: options.profile,
    }
}

/// Disks of a program that wants some: its cases find them by their serial numbers.
struct TestDisks {
    given: Vec<UserDisk>,
    _folder: TempDir,
}

impl TestDisks {
    /// Makes those of a program, `SUITE/AREA`. `None`: it wants none.
    fn of(area: &str) -> Result<Option<TestDisks>> {
        const BYTES: u64 = 64 << 20;
        let (plain, formatted): (&[&str], &str) = match area.rsplit('/').next() {
            Some("iocg") => (&["iocg"], "iocgfs"),
            Some(area @ ("direct" | "handle")) => (&[], area),
            _ => return Ok(None),
        };
        let folder = tempfile::tempdir()?;
        let place = |name: &str| folder.path().join(format!("{name}.img"));
        for name in plain {
            std::fs::File::create(place(name))?.set_len(BYTES)?;
        }
        let file = place(formatted);
        disks::make(&MakeDisk { size: 2 * BYTES, from: None, label: None, force: false, file })?;
        let names = plain.iter().chain([&formatted]);
        let options: Vec<_> = names.map(|name| place(name).into_os_string()).collect();
        Ok(Some(TestDisks { given: disk::given(&options)?, _folder: folder }))
    }
}

/// Runs a program of the tests in a machine with the default image. Returns its output.
pub(super) fn run(
    machine: &Machine,
    tests: &Path,
    words: &[String],
    limit: Duration,
) -> Result<(Outcome, String, String)> {
    run_with(&[], machine, tests, words, limit)
}

/// The same, in a machine with these disks.
fn run_with(
    disks: &[UserDisk],
    machine: &Machine,
    tests: &Path,
    words: &[String],
    limit: Duration,
) -> Result<(Outcome, String, String)> {
    let (root, tests, mut qemu) = {
        // The first trial makes these, the others find them.
        let _one_at_a_time = MAKING_ARTIFACTS.lock();
        (default::DEFAULT.get()?, convert::disk(tests)?, accel::machine(machine)?)
    };
    let root = Root::disk(qemu.disk(&root)?);
    let tests = qemu.disk(&tests)?;
    for disk in disks {
        qemu.user_disk(disk.clone());
    }
    let variable = |text: &str| text.as_bytes().to_vec();
    let job = Job {
        arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: vec![
            variable("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            variable("HOME=/root"),
            variable("LANG=C.UTF-8"),
            variable(&format!("TEST_TIMEOUT={CASE_SECONDS}")),
        ],
        directory: None,
        user: (0, 0),
        account: None,
        stop_signal: None,
        hostname: "hayate".into(),
        root,
        persist: None,
        mounts: vec![Mount { device: tests, kind: "ext4".into(), path: variable(GUEST_FOLDER) }],
        disks: Vec::new(),
        volumes: Vec::new(),
        streams: hayate_job::Streams::Separate,
        input_along: false,
        network: qemu.network(),
        explain: None,
    };
    let initramfs = initramfs::make(&job, None, None, &[], &qemu.boot.modules)?;
    let (output, error) = (OutputBuffer::default(), OutputBuffer::default());
    let streams = Streams::Separate {
        input: Some(Box::new(std::io::empty())),
        output: Box::new(output.clone()),
        error: Box::new(error.clone()),
    };
    let session = Session::new(qemu, streams, Sink::None, Some(limit)).orderly();
    let outcome = session.run(Some(&initramfs))?;
    Ok((outcome, output.text(), error.text()))
}

/// Bytes kept in memory.
#[derive(Clone, Default)]
struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl OutputBuffer {
    fn text(&self) -> String {
        self.0.lock().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Ok(mut kept) = self.0.lock() {
            kept.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How the program in the machine ended.
pub(super) fn end(outcome: &Outcome) -> Result<(), String> {
    match outcome.end {
        End::Program(0) => Ok(()),
        _ => Err(describe_end(outcome)),
    }
}

fn describe_end(outcome: &Outcome) -> String {
    match &outcome.end {
        End::Program(status) => format!("the program ended with status {status}"),
        End::Panic => "the kernel panicked".into(),
        End::TimedOut => "the machine did not end in time".into(),
        End::Killed(signal) => format!("the machine was ended by signal {signal}"),
        End::Machine(status) => format!("QEMU ended with status {status}"),
        End::Failed(fault) => fault.to_string(),
    }
}

/// Returns the messages of init, the kernel and QEMU.
fn messages(outcome: &Outcome) -> String {
    let log = backtrace::symbolise(&outcome.log.text(), &outcome.kernel);
    format!("{}\n{log}{}", outcome.errors.join("\n"), outcome.complaint)
}

/// Returns the same, unless the program itself failed.
pub(super) fn failure_shown(outcome: &Outcome) -> String {
    match outcome.end {
        End::Program(_) => outcome.errors.join("\n"),
        _ => messages(outcome),
    }
}

/// Returns filters that make runall run these cases of an area, or all of it.
fn selection(area: &str, known: &[String], chosen: &[String]) -> Vec<String> {
    if chosen.is_empty() || chosen.len() == known.len() {
        return vec![format!("{area}::")];
    }
    chosen.iter().map(|case| format!("{area}::{case}")).collect()
}

/// Returns the cases in runall's output, by their names within the area.
fn cases_of(output: &str, area: &str) -> Vec<Case> {
    named_within(&format!("{area}::"), output)
}

/// Returns the cases in runall's output, by their names without this prefix.
fn named_within(prefix: &str, output: &str) -> Vec<Case> {
    let cases = output.lines().filter_map(Case::of_line);
    let within = cases.map(|case| Case {
        name: case.name.strip_prefix(prefix).unwrap_or(&case.name).into(),
        ..case
    });
    within.collect()
}
