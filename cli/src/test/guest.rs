//! The kernel's own tests, and guest programs: on this machine's Linux first, then in machines.

use super::report::{Case, judge};
use super::{Report, Trial};
use crate::arguments::{Board, Machine, Profile, Test};
use crate::guest::log::Sink;
use crate::guest::session::{End, Outcome, Session, Streams};
use crate::guest::{accel, backtrace, initramfs};
use crate::image::{convert, default};
use crate::run::IN_SUPERVISOR_MODE;
use crate::{place, step::Step, tool};
use anyhow::{Context, Result};
use hayate_job::{Job, Mount, Root};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The programs' folder in a guest.
const PLACE: &str = "/tests";
/// A guest program's time limit for one case: software translation on a busy host is slow.
const CASE_SECONDS: &str = "120";
/// A machine's time limit, for all cases of one program.
const MACHINE: Duration = Duration::from_secs(900);
/// The time limit of the machine that refuses every request.
const DAY: Duration = Duration::from_secs(86_400);
/// How many processors of the host a machine with cases keeps busy, whatever its own number. Cases
/// mostly wait: a machine of 2 or 4 processors used less than one processor of the host.
const ONE_MACHINE: usize = 1;
/// QEMU's exit status when the kernel's tests passed: 0x10 written to the exit device.
const KERNEL_PASSED: i32 = 0x10 << 1 | 1;

/// Held while images and the kernel are made.
static MAKING: Mutex<()> = Mutex::new(());

/// The guest programs, built, with their cases.
pub struct Programs {
    folder: PathBuf,
    /// `SUITE/AREA` and its cases.
    areas: BTreeMap<String, Vec<String>>,
}

/// Builds the guest programs and asks them for their cases.
pub fn programs() -> Result<Programs> {
    let folder = place::build("tests")?;
    {
        let _alone = place::alone("tests")?;
        let _step = Step::new("Building the guest programs");
        let mut make = tool::command("make")?;
        tool::command("musl-gcc")?;
        make.args(["-s", "-C", "tests", "-j2"]).arg(format!("OUT={}", folder.display()));
        tool::run(make.current_dir(place::project()))?;
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
        let (folder, area, known) = (programs.folder.clone(), area.clone(), cases.clone());
        Trial {
            name: format!("linux/{area}"),
            cases: cases.clone(),
            weight: 1,
            run: Box::new(move |chosen| {
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
            }),
        }
    };
    programs.areas.iter().map(trial).collect()
}

/// Returns the trials of the kernel's own tests: a machine without a program, which ends by the
/// exit device.
pub fn kernel_trials(options: &Test) -> Vec<Trial> {
    let trial = |&cpus: &u8| {
        let mut machine = machine(options, cpus);
        machine.append.push("ktest".into());
        Trial {
            name: format!("kernel/{cpus}-cpu"),
            cases: Vec::new(),
            weight: usize::from(cpus),
            run: Box::new(move |_| {
                let qemu = {
                    let _one_at_a_time = MAKING.lock();
                    accel::machine(&machine)?
                };
                let session = Session::new(qemu, Streams::None, Sink::None, Some(MACHINE));
                let outcome = session.run(None)?;
                let log = outcome.log.text();
                let cases = log.lines().filter_map(Case::of_line).collect();
                let end = match outcome.end {
                    End::Machine(KERNEL_PASSED) => Ok(()),
                    _ => Err(told(&outcome)),
                };
                Ok(Report { cases: judge(cases, end), output: shown(&outcome) })
            }),
        }
    };
    options.cpus.iter().map(trial).collect()
}

/// Returns the trials of every program in Hayate, in a machine of its own for each number of
/// processors.
pub fn in_machines(options: &Test, programs: &Programs) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &cpus in &options.cpus {
        for (area, cases) in &programs.areas {
            let (folder, area, known) = (programs.folder.clone(), area.clone(), cases.clone());
            let machine = machine(options, cpus);
            trials.push(Trial {
                name: format!("hayate/{cpus}-cpu/{area}"),
                cases: cases.clone(),
                weight: ONE_MACHINE,
                run: Box::new(move |chosen| {
                    let mut words = vec![format!("{PLACE}/runall")];
                    words.extend(selection(&area, &known, chosen));
                    let (outcome, output, said) = run(&machine, &folder, &words, MACHINE)?;
                    let cases = judge(cases_of(&output, &area), end(&outcome));
                    let output = format!("{said}{}", failure_shown(&outcome));
                    Ok(Report { cases, output })
                }),
            });
        }
    }
    trials
}

/// A run of the guest programs in supervisor mode.
struct InMode {
    name: &'static str,
    cpus: u8,
    suite: &'static str,
    /// Words before `runall`.
    before: &'static [&'static str],
}

/// Returns the trials of the guest programs in supervisor mode, and while another process switches
/// their mode a hundred times a second. All programs of a suite share one machine, so that switches
/// happen during all kinds of activity.
pub fn in_supervisor_mode(options: &Test, programs: &Programs) -> Vec<Trial> {
    const STORM: [&str; 2] = ["/tests/stress/modestorm", "--"];
    const MINUTES: [&str; 4] = ["/tests/stress/modestorm", "--seconds", "600", "--"];
    const HOUR: [&str; 4] = ["/tests/stress/modestorm", "--seconds", "3600", "--"];
    const LIMIT: Duration = Duration::from_secs(5400);
    let kept =
        |cpus, suite| InMode { name: "supervisor_mode", cpus, suite, before: &IN_SUPERVISOR_MODE };
    let storm =
        |suite| InMode { name: "mode_changes_100_times_a_second", cpus: 2, suite, before: &STORM };
    let short = [kept(2, "static"), storm("static")];
    let minutes = "mode_changes_100_times_a_second_for_ten_minutes";
    let hour = "mode_changes_100_times_a_second_for_an_hour";
    let long = [
        InMode { name: minutes, cpus: 2, suite: "static", before: &MINUTES },
        kept(1, "static"),
        kept(4, "static"),
        kept(2, "dynamic"),
        kept(2, "programs"),
        storm("dynamic"),
        storm("programs"),
        InMode { name: hour, cpus: 2, suite: "static", before: &HOUR },
    ];
    let long = if options.long { &long[..] } else { &[] };
    let trial = |mode: &InMode| {
        let InMode { name, cpus, suite, before } = *mode;
        let prefix = format!("{suite}/");
        let known = programs.areas.iter().filter_map(|(area, cases)| {
            let area = area.strip_prefix(&prefix)?;
            Some(cases.iter().map(move |case| format!("{area}::{case}")))
        });
        let known: Vec<String> = known.flatten().collect();
        let (mut machine, folder) = (machine(options, cpus), programs.folder.clone());
        // Every call site is patched, not only those that a program reaches often.
        machine.append.push("gate=first".into());
        Trial {
            name: format!("{name}/{cpus}-cpu/{suite}"),
            cases: known,
            weight: ONE_MACHINE,
            run: Box::new(move |chosen| {
                let mut words: Vec<String> = before.iter().map(|&word| word.into()).collect();
                words.push(format!("{PLACE}/runall"));
                if chosen.is_empty() {
                    words.push(prefix.clone());
                } else {
                    words.extend(chosen.iter().map(|case| format!("{prefix}{case}")));
                }
                let (outcome, output, said) = run(&machine, &folder, &words, LIMIT)?;
                let cases = output.lines().filter_map(Case::of_line).map(|case| Case {
                    name: case.name.strip_prefix(&prefix).unwrap_or(&case.name).into(),
                    ..case
                });
                let cases = judge(cases.collect(), end(&outcome));
                Ok(Report { cases, output: format!("{said}{}", failure_shown(&outcome)) })
            }),
        }
    };
    let all = short.iter().chain(long);
    all.filter(|mode| options.cpus.contains(&mode.cpus)).map(trial).collect()
}

/// A program that puts load on the guest for a while.
struct Strain {
    name: &'static str,
    cpus: u8,
    words: &'static [&'static str],
    /// The machine's memory, in MiB.
    memory: u64,
    /// Whether it runs beside the other trials.
    beside: bool,
}

/// Stress programs that always need a kernel for tests.
const FOR_TESTS: [&str; 2] = ["requests_for_memory_refused", "long_requests_for_memory_refused"];

/// The programs that are refused memory in every run of the tests.
const REFUSED: &str =
    "device,dir,epoll,exec,file,lock,mem,mount,pipe,poll,signal,socket,thread,watch";

/// Returns the trials of the stress programs.
pub fn stress(options: &Test, programs: &Programs) -> Vec<Trial> {
    let strain = |name, cpus, words| Strain { name, cpus, words, memory: 1024, beside: false };
    let small = |name, cpus, words| Strain { name, cpus, words, memory: 128, beside: false };
    let tiny = |name, cpus, words| Strain { name, cpus, words, memory: 64, beside: false };
    let list = [
        strain(
            "spawn_10000_without_a_leak",
            2,
            &["spawner", "--count", "10000", "--procs", "2", "--leak-check"],
        ),
        strain(
            "run_10000_mutated_programs_twice",
            2,
            &["elfmut", "--seed", "1", "--count", "10000", "/tests/stress/tiny"],
        ),
        strain(
            "random_paths_as_a_model_has_them",
            2,
            &["pathfuzz", "--seed", "1", "--count", "100000"],
        ),
        strain(
            "random_system_calls",
            2,
            &["sysfuzz", "--seed", "2", "--seconds", "20", "--procs", "4", "--as-root"],
        ),
        strain(
            "random_system_calls_of_a_user",
            2,
            &["sysfuzz", "--seed", "3", "--seconds", "20", "--procs", "4"],
        ),
        strain(
            "random_system_calls_of_one_process",
            1,
            &["sysfuzz", "--seed", "4", "--seconds", "20", "--procs", "1", "--as-root"],
        ),
        small("starts_until_memory_ends", 1, &["storm", "--seconds", "1", "bomb"]),
        small("starts_until_memory_ends", 2, &["storm", "--seconds", "1", "bomb"]),
        small("large_processes_end_beside_little_memory", 1, &["../static/teardown"]),
        small("large_processes_end_beside_little_memory", 2, &["../static/teardown"]),
        small("the_first_process_outlives_a_hoarder", 1, &["storm", "hoard"]),
        tiny("what_is_kept_gives_way_to_who_asks", 1, &["../static/pressure"]),
        tiny("what_is_kept_gives_way_to_who_asks", 2, &["../static/pressure"]),
        strain(
            "starts_until_a_limit_of_processes",
            2,
            &["storm", "--seconds", "1", "--limit", "60", "bomb"],
        ),
        strain(FOR_TESTS[0], 1, &["refusal", "--stride", "17", "--only", REFUSED, "/tests/static"]),
        strain("killed_at_any_moment", 2, &["storm", "--seconds", "2", "strike"]),
        strain("started_while_replaced", 2, &["storm", "--seconds", "3", "replace"]),
        strain("policy_changed_in_a_storm", 2, &["storm", "--seconds", "1", "policy"]),
        strain("policy_changed_in_a_storm", 4, &["storm", "--seconds", "1", "policy"]),
    ];
    let long = [
        strain(FOR_TESTS[1], 1, &["refusal", "/tests/static"]),
        strain(
            "run_100000_mutated_programs_twice",
            2,
            &["elfmut", "--seed", "2", "--count", "100000", "/tests/stress/tiny"],
        ),
        small(
            "long_starts_until_memory_ends",
            2,
            &["storm", "--seconds", "10", "--runs", "6", "bomb"],
        ),
        strain(
            "long_killed_at_any_moment",
            1,
            &["storm", "--seconds", "10", "--runs", "6", "strike"],
        ),
        strain(
            "long_killed_at_any_moment",
            4,
            &["storm", "--seconds", "10", "--runs", "6", "strike"],
        ),
        strain(
            "long_started_while_replaced",
            1,
            &["storm", "--seconds", "24", "--runs", "3", "replace"],
        ),
        strain(
            "long_started_while_replaced",
            4,
            &["storm", "--seconds", "24", "--runs", "3", "replace"],
        ),
        strain(
            "long_policy_changed_in_a_storm",
            2,
            &["storm", "--seconds", "10", "--runs", "6", "policy"],
        ),
        strain(
            "long_policy_changed_in_a_storm",
            4,
            &["storm", "--seconds", "10", "--runs", "6", "policy"],
        ),
        // Beside everything else: for ten minutes, at low priority on the host.
        Strain {
            name: "random_system_calls_for_ten_minutes",
            cpus: 2,
            words: &["sysfuzz", "--seed", "1", "--seconds", "600", "--procs", "4", "--as-root"],
            memory: 1024,
            beside: true,
        },
    ];
    let trial = |strain: Strain| {
        let Strain { name, cpus, memory, beside, .. } = strain;
        let mut machine = machine(options, cpus);
        machine.memory = memory;
        machine.background = beside;
        if FOR_TESTS.contains(&name) {
            machine.profile = Profile::Dev;
        }
        let folder = programs.folder.clone();
        let mut words: Vec<String> = strain.words.iter().map(|&word| word.into()).collect();
        words[0] = format!("{PLACE}/stress/{}", words[0]);
        Trial {
            name: format!("stress/{cpus}-cpu/{name}"),
            cases: Vec::new(),
            weight: if beside { 0 } else { usize::from(cpus) },
            run: Box::new(move |_| {
                let limit = if name == FOR_TESTS[1] { DAY } else { MACHINE };
                let (outcome, output, said) = run(&machine, &folder, &words, limit)?;
                let end = end(&outcome);
                let verdict = match end {
                    Ok(()) => super::report::Verdict::Passed,
                    Err(why) => super::report::Verdict::Failed(why),
                };
                let output = format!("{output}{said}{}", failure_shown(&outcome));
                Ok(Report { cases: vec![Case::new("", verdict)], output })
            }),
        }
    };
    // The longest is started first.
    let long = long.into_iter().rev().filter(|_| options.long);
    let list = long.chain(list);
    list.filter(|strain| options.cpus.contains(&strain.cpus)).map(trial).collect()
}

fn machine(options: &Test, cpus: u8) -> Machine {
    Machine {
        cpus,
        processor: None,
        memory: 1024,
        accel: options.accel,
        board: Board::Q35,
        deterministic: false,
        nvm: None,
        append: Vec::new(),
        qemu: Vec::new(),
        kernel: None,
        background: false,
        linux: options.guest_linux,
        profile: options.profile,
    }
}

/// Runs a program of the tests in a machine with the default image. Returns its output.
fn run(
    machine: &Machine,
    tests: &Path,
    words: &[String],
    limit: Duration,
) -> Result<(Outcome, String, String)> {
    let (root, tests, mut qemu) = {
        // The first trial makes these, the others find them.
        let _one_at_a_time = MAKING.lock();
        (default::DEFAULT.get()?, convert::disk(tests)?, accel::machine(machine)?)
    };
    let root = Root::disk(qemu.disk(&root)?);
    let tests = qemu.disk(&tests)?;
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
        hostname: "hayate".into(),
        root,
        mounts: vec![Mount { device: tests, kind: "ext4".into(), path: variable(PLACE) }],
        streams: hayate_job::Streams::Separate,
        input_along: false,
        explain: None,
    };
    let initramfs = initramfs::make(&job, None, None, &[], &qemu.modules)?;
    let (output, error) = (Kept::default(), Kept::default());
    let streams = Streams::Separate {
        input: Some(Box::new(std::io::empty())),
        output: Box::new(output.clone()),
        error: Box::new(error.clone()),
    };
    let session = Session::new(qemu, streams, Sink::None, Some(limit));
    let outcome = session.run(Some(&initramfs))?;
    Ok((outcome, output.text(), error.text()))
}

/// Bytes kept in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        self.0.lock().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Write for Kept {
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
fn end(outcome: &Outcome) -> Result<(), String> {
    match outcome.end {
        End::Program(0) => Ok(()),
        _ => Err(told(outcome)),
    }
}

fn told(outcome: &Outcome) -> String {
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
fn shown(outcome: &Outcome) -> String {
    let log = backtrace::symbolise(&outcome.log.text(), &outcome.kernel);
    format!("{}\n{log}{}", outcome.errors.join("\n"), outcome.complaint)
}

/// Returns the same, unless the program itself failed.
fn failure_shown(outcome: &Outcome) -> String {
    match outcome.end {
        End::Program(_) => outcome.errors.join("\n"),
        _ => shown(outcome),
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
    let prefix = format!("{area}::");
    output
        .lines()
        .filter_map(Case::of_line)
        .map(|case| Case {
            name: case.name.strip_prefix(&prefix).unwrap_or(&case.name).into(),
            ..case
        })
        .collect()
}
