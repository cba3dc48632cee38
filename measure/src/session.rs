//! A measuring session: selects experiments, measures the primitives, makes the passes, and turns
//! the results into runs.

use crate::args::RunArguments;
use crate::clock::Clock;
use crate::exit::{CANNOT_MEASURE, Failure, USAGE};
use crate::experiment::{Experiment, Setting};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::runner::{Outcome, round};
use crate::sampler::Plan;
use crate::sys::signal::{note_stop_requests, stop_requested};
use crate::{experiments, fingerprint, infer, primitives, sys};
use measure_data::run::{
    Completion, FORMAT, Fact, Machine, Measurement, Primitive, Run, Settings, Skipped, Suite,
    VERSION,
};
use measure_data::statistics::Summary;
use sha2::{Digest, Sha256};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use wildmatch::WildMatch;

/// The time limits of a default run and of a quick one.
const WHOLE_RUN: Duration = Duration::from_secs(270);
const QUICK_RUN: Duration = Duration::from_secs(50);
/// More passes are made for results whose interval is wider than this to either side.
const TARGET: f64 = 0.02;

/// One experiment and its measurements, for each of the session's copies.
struct Slot {
    experiment: Experiment,
    rounds: Vec<Vec<Vec<u64>>>,
    skipped: Option<String>,
}

/// A session.
pub struct Session {
    setting: Setting,
    clock: Clock,
    machine: Machine,
    settings: Settings,
    label: Option<String>,
    slots: Vec<Slot>,
    primitives: Vec<Primitive>,
    progress: Progress,
    started: u64,
    pace: Pace,
    interrupted: bool,
    /// Removes the files of the run at the end.
    _files: RunDirectory,
}

/// The directory of a run's files, removed when dropped.
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Creates it, and makes `setting` point into it.
    pub fn make(setting: &mut Setting) -> Result<Self, Failure> {
        let files = setting.directory.join(format!("measure-{}", std::process::id()));
        std::fs::create_dir(&files).map_err(|error| {
            let place = setting.directory.display();
            Failure::new(CANNOT_MEASURE, format!("creating files in {place}: {error}; use --dir"))
        })?;
        setting.directory.clone_from(&files);
        Ok(Self(files))
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // Files that cannot be removed are ignored.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the setting without measuring; `list` uses it too.
pub fn setting(a: &RunArguments) -> Result<Setting, Failure> {
    let remote = a.remote.as_ref().map(|text| {
        let address = text.to_socket_addrs().ok().and_then(|mut found| found.next());
        address.ok_or_else(|| Failure::new(USAGE, format!("--remote {text}: give HOST:PORT")))
    });
    let usual = fingerprint::memory_size().map_or(64 << 20, |m| (m / 4).min(256 << 20));
    let base = a.dir.clone().unwrap_or_else(default_directory);
    Ok(Setting {
        directory: base,
        caches: Vec::new(),
        cpus: sys::allowed_cpus(),
        memory_limit: a.memory_limit.unwrap_or(usual),
        file_limit: a.file_limit,
        remote: remote.transpose()?,
        exits: fingerprint::exits(),
        raised: false,
        programs: a.programs()?,
        without_idle: a.without_idle,
    })
}

fn default_directory() -> PathBuf {
    let usable = |path: &&'static str| {
        let probe = PathBuf::from(path).join(format!("measure-{}.probe", std::process::id()));
        std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)).is_ok()
    };
    ["/var/tmp", "/tmp"].into_iter().find(usable).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// The experiments whose names match `globs`; all for no globs.
pub fn select(all: Vec<Experiment>, globs: &[String]) -> Result<Vec<Experiment>, Failure> {
    let patterns: Vec<WildMatch> = globs.iter().map(|g| WildMatch::new(g)).collect();
    for (glob, pattern) in globs.iter().zip(&patterns) {
        if !all.iter().any(|e| pattern.matches(&e.name)) {
            return Err(Failure::new(
                USAGE,
                format!("no experiment matches {glob}; `measure list` shows all names"),
            ));
        }
    }
    let wanted =
        |e: &Experiment| patterns.is_empty() || patterns.iter().any(|p| p.matches(&e.name));
    Ok(all.into_iter().filter(wanted).collect())
}

impl Session {
    /// Prepares a session that measures everything `copies` times in turn.
    pub fn new(a: &RunArguments, copies: usize) -> Result<Self, Failure> {
        if let Some(path) = a.needs.iter().find(|path| !path.exists()) {
            let text = format!("{} is not there, and --needs asks for it", path.display());
            return Err(Failure::new(CANNOT_MEASURE, text));
        }
        let mut setting = setting(a)?;
        let mut machine = fingerprint::machine(&setting.directory);
        setting.caches.clone_from(&machine.caches);
        let experiments = select(experiments::all(&setting), &a.globs)?;
        note_stop_requests();

        let files = RunDirectory::make(&mut setting)?;

        let cpu = pin(a, &setting)?;
        // Not with a fixed number of samples: then every system must make the same calls.
        setting.raised = !a.no_priority && a.iterations.is_none() && sys::priority::raise();
        machine.facts.push(Fact {
            group: "suite".into(),
            name: "priority".into(),
            value: if setting.raised { "raised above other work" } else { "as started" }.into(),
        });
        let clock = Clock::calibrate(a.clock)
            .map_err(|error| Failure::new(CANNOT_MEASURE, format!("no clock: {error}")))?;
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let slots = experiments.into_iter().map(|experiment| Slot {
            experiment,
            rounds: vec![Vec::new(); copies],
            skipped: None,
        });
        let fixed = a.iterations.is_some() || a.seconds.is_some() || a.passes.is_some();
        Ok(Self {
            clock,
            machine,
            settings: Settings {
                quick: a.quick,
                passes: a.passes.unwrap_or(if a.quick { 8 } else { 10 }),
                iterations: a.iterations,
                seconds: a.seconds.unwrap_or(if a.quick { 0.2 } else { 1.0 }),
                cpu,
            },
            label: a.label.clone(),
            slots: slots.collect(),
            primitives: Vec::new(),
            progress: Progress::new(a.no_progress),
            started: started.map_or(0, |d| d.as_secs()),
            pace: Pace::new((!fixed).then_some(if a.quick { QUICK_RUN } else { WHOLE_RUN })),
            interrupted: false,
            setting,
            _files: files,
        })
    }

    fn plan(&self) -> Plan {
        let passes = f64::from(self.settings.passes);
        Plan {
            iterations: self.settings.iterations,
            at_least: 5,
            at_most: if self.settings.quick { 40 } else { 100 },
            budget: Duration::from_secs_f64(self.settings.seconds / passes),
            warm_up: true,
        }
    }

    /// Measures the primitives and makes all passes, until done or stopped.
    pub fn measure(&mut self) {
        self.measure_primitives();
        let passes = self.settings.passes;
        for pass in 1..=passes {
            if self.pass(pass, |slot| slot.rounds[0].len() < pass as usize) == Passed::Ended {
                break;
            }
        }
        // More passes up to a target confidence: noisy results get up to twice as many rounds.
        if self.settings.iterations.is_none() {
            for pass in passes + 1..=2 * passes {
                let clock = self.clock.describe();
                let noisy: Vec<bool> = self.slots.iter().map(|s| s.is_noisy(&clock)).collect();
                let mut noisy = noisy.into_iter();
                let more = self.pass(pass, |_| noisy.next().unwrap_or(false));
                if more != Passed::Measured {
                    break;
                }
            }
        }
        self.progress.done();
    }

    fn measure_primitives(&mut self) {
        let experiments: Vec<&Experiment> = self.slots.iter().map(|s| &s.experiment).collect();
        let needed = primitives::needed(&experiments, &self.setting);
        let plan =
            Plan { at_least: 3, at_most: 50, budget: Duration::from_millis(50), ..self.plan() };
        self.progress.step("measuring what predictions are made of");
        for primitive in needed {
            match round(&primitive, &self.setting, self.clock, plan) {
                Outcome::Ticks(mut ticks) => {
                    ticks.sort_unstable();
                    let median = ticks.get(ticks.len() / 2).copied().unwrap_or(0) as f64;
                    let ns = self.clock.ns((median - self.clock.overhead).max(0.0));
                    self.primitives.push(Primitive {
                        name: primitive.name,
                        ns: ns / primitive.work,
                        method: primitive.method,
                    });
                }
                // Predictions that need this primitive are missing then, and the results say so.
                Outcome::Skip(_) => {}
                Outcome::Stopped => return,
            }
        }
    }

    /// Makes one pass over the experiments that still need a round.
    fn pass(&mut self, pass: u32, mut wants: impl FnMut(&Slot) -> bool) -> Passed {
        let passes = self.settings.passes;
        let chosen: Vec<bool> = self
            .slots
            .iter()
            .map(|s| {
                let wanted = wants(s);
                // An experiment limited to few rounds gets more if it is noisy and there is time.
                let most = s.experiment.rounds_at_most.saturating_mul(1 + u32::from(pass > passes));
                let room = s.rounds[0].len() < most as usize;
                wanted && room && s.skipped.is_none()
            })
            .collect();
        let count = chosen.iter().filter(|c| **c).count();
        if count == 0 {
            return Passed::Nothing;
        }
        // Not started, and not announced, once the user or the clock has ended the run.
        if stop_requested() {
            self.interrupted = true;
            return Passed::Ended;
        }
        if pass > 1 && self.pace.is_over() {
            return Passed::Ended;
        }
        self.progress.pass(pass, passes, count);
        let copies = self.slots.first().map_or(1, |s| s.rounds.len());
        let mut left = (count + self.in_later_passes(pass)) * copies;
        for at in (0..self.slots.len()).filter(|at| chosen[*at]) {
            if stop_requested() {
                self.interrupted = true;
                return Passed::Ended;
            }
            if pass > 1 && self.pace.is_over() {
                return Passed::Ended;
            }
            let name = &self.slots[at].experiment.name;
            self.progress.experiment(pass, passes, at + 1, self.slots.len(), name);
            if !self.rounds(pass, at, &mut left) {
                self.interrupted = true;
                return Passed::Ended;
            }
        }
        Passed::Measured
    }

    /// One round of the experiment in slot `at` for each copy. `left` is how many rounds the time
    /// has to last for. False: the user stopped it.
    fn rounds(&mut self, pass: u32, at: usize, left: &mut usize) -> bool {
        let plan = self.plan();
        let slot = &mut self.slots[at];
        let copies = slot.rounds.len();
        let mut taken = vec![Vec::new(); copies];
        for turn in 0..copies {
            // A B, then B A: so that neither copy always comes first.
            let copy = if pass.is_multiple_of(2) { copies - 1 - turn } else { turn };
            let mut plan = slot.experiment.limited(plan);
            plan.budget = self.pace.budget(plan.budget, *left);
            let started = Instant::now();
            let outcome = round(&slot.experiment, &self.setting, self.clock, plan);
            self.pace.made(plan.budget, started.elapsed());
            *left -= 1;
            match outcome {
                Outcome::Ticks(ticks) => taken[copy] = ticks,
                Outcome::Skip(reason) => slot.skipped = Some(reason),
                Outcome::Stopped => return false,
            }
        }
        if taken.iter().all(|t| !t.is_empty()) {
            for (rounds, ticks) in slot.rounds.iter_mut().zip(taken) {
                rounds.push(ticks);
            }
        } else if slot.skipped.is_none() {
            slot.skipped = Some("no sample was taken".into());
        }
        true
    }

    /// Returns the runs, one for each copy.
    pub fn into_runs(self) -> Vec<Run> {
        let copies = self.slots.first().map_or(1, |s| s.rounds.len());
        (0..copies).map(|copy| self.run(copy)).collect()
    }

    /// Returns how many rounds of one copy the passes after `pass` still have to make.
    fn in_later_passes(&self, pass: u32) -> usize {
        let rounds = |s: &Slot| self.settings.passes.min(s.experiment.rounds_at_most);
        let open = self.slots.iter().filter(|s| s.skipped.is_none());
        open.map(|s| rounds(s).saturating_sub(pass) as usize).sum()
    }

    fn run(&self, copy: usize) -> Run {
        let clock = self.clock.describe();
        let results: Vec<Measurement> = self
            .slots
            .iter()
            .filter(|s| !s.rounds[copy].is_empty())
            .map(|s| self.measurement(&s.experiment, s.rounds[copy].clone()))
            .collect();
        let skipped = self.slots.iter().filter(|s| s.rounds[copy].is_empty()).map(|s| Skipped {
            name: s.experiment.name.clone(),
            reason: s.skipped.clone().unwrap_or_else(|| "the run was stopped before it".into()),
        });
        let mut run = Run {
            format: FORMAT.into(),
            version: VERSION,
            suite: suite(),
            label: self.label.clone().unwrap_or_else(|| default_label(&self.machine)),
            started: self.started,
            seconds: self.pace.elapsed().as_secs_f64(),
            completion: if self.interrupted {
                Completion::Interrupted
            } else {
                Completion::Complete
            },
            settings: self.settings.clone(),
            machine: self.machine.clone(),
            clock,
            primitives: self.primitives.clone(),
            skipped: skipped.collect(),
            results,
            inferred: Vec::new(),
        };
        run.inferred = infer::from_curves(&run);
        run
    }

    fn measurement(&self, e: &Experiment, rounds: Vec<Vec<u64>>) -> Measurement {
        let turn = self.primitives.iter().find(|p| p.name == "loop").map_or(0.0, |p| p.ns);
        let loops = if e.loop_taken_off { e.work * turn } else { 0.0 };
        let mut measurement = Measurement {
            name: e.name.clone(),
            title: e.title.clone(),
            method: e.method.clone(),
            quantity: e.quantity,
            work: e.work,
            subtracted_ticks: self.clock.overhead + loops * self.clock.ticks_per_second / 1e9,
            axis: e.axis.clone(),
            prediction: primitives::predict(e, &self.primitives),
            note: None,
            rounds,
            summary: Summary::of(&[]),
        };
        measurement.summary = Summary::of(&measurement.values(&self.clock.describe()));
        measurement
    }
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// No experiment needed a round.
    Nothing,
    /// Rounds were measured.
    Measured,
    /// Stopped by the user, or the time is up.
    Ended,
}

impl Slot {
    fn is_noisy(&self, clock: &measure_data::run::Clock) -> bool {
        if self.rounds[0].is_empty() {
            return false;
        }
        let values: Vec<Vec<f64>> = self.rounds[0]
            .iter()
            .map(|r| r.iter().map(|t| *t as f64 / clock.ticks_per_second).collect())
            .collect();
        let summary = Summary::of(&values);
        summary.interval.relative_half_width(summary.median) > TARGET
    }
}

/// Pins to the requested or the last processor; if the default pinning is impossible, the scheduler
/// decides.
fn pin(a: &RunArguments, setting: &Setting) -> Result<Option<u32>, Failure> {
    if a.no_pin {
        return Ok(None);
    }
    let Some(cpu) = a.cpu.or(setting.cpus.last().copied()) else { return Ok(None) };
    match sys::pin(&[cpu]) {
        Ok(()) => Ok(Some(cpu as u32)),
        Err(error) if a.cpu.is_some() => {
            Err(Failure::new(USAGE, format!("--cpu {cpu}: {error}; `measure machine` counts them")))
        }
        Err(_) => Ok(None),
    }
}

/// Pins this process to the last processor it may use, where that is possible.
pub fn pin_to_last(setting: &Setting) {
    if let Some(cpu) = setting.cpus.last() {
        // A kernel without affinity decides by itself.
        let _ = sys::pin(&[*cpu]);
    }
}

fn default_label(machine: &Machine) -> String {
    let part = |group, name| machine.fact(group, name).unwrap_or_default();
    let label = format!(
        "{} {} on {}",
        part("kernel", "system"),
        part("kernel", "release"),
        part("cpu", "model")
    );
    label.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The version and hash of this binary.
pub fn suite() -> Suite {
    let own = std::env::current_exe().or_else(|_| {
        std::env::args_os().next().map(PathBuf::from).ok_or(std::io::Error::other("no name"))
    });
    let hash = own
        .and_then(std::fs::read)
        .map(|bytes| Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect::<String>());
    Suite { version: env!("CARGO_PKG_VERSION").into(), binary_sha256: hash.ok() }
}
