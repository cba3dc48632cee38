//! Files of `experiments/`: the descriptions of experiments, as data.

use anyhow::{Context, Result};
use hayate_cli::failure::{Failure, USAGE};
use hayate_cli::paths;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An experiment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The title above table and picture.
    pub title: String,
    /// The question that the experiment answers.
    pub question: String,
    /// Whether instructions are counted; otherwise time is measured.
    pub counting: bool,
    /// Whether time is measured as well, in further boots of the same systems.
    #[serde(default)]
    pub time: bool,
    /// With `time`, the heading of a further table: how many units of each work go into a second.
    pub rate: Option<String>,
    /// Memory of the machine in MiB.
    pub memory: u64,
    /// The numbers of processors: everything is measured on machines with each of them.
    #[serde(default = "one_processor")]
    pub processors: Vec<u8>,
    /// Largest array or parent process.
    pub memory_limit: String,
    /// Boots of each system.
    pub boots: u32,
    /// Passes in each boot.
    pub passes: u32,
    /// Samples in each pass.
    pub iterations: u32,
    /// The root file system on a disk: `default`, or a value of `./hayate run --rootfs`. Without it
    /// a small one in memory: the suite, a shell, a dynamic program.
    pub image: Option<String>,
    /// Whether the machine has a new ext4 disk that it writes, at `/disk`.
    #[serde(default)]
    pub disk: bool,
    /// The speeds of the disk of the root; each of them is measured.
    #[serde(default)]
    pub storage: Vec<Storage>,
    /// Whether the machine is in QEMU's own network, with `measure serve` on the host as the other
    /// end of `net/remote`. Packets then come when the host brings them: for time, not for counts.
    #[serde(default)]
    pub host: bool,
    /// Whether the machine has two network devices that are joined, and `measure serve` behind the
    /// second is the other end of `net/remote`.
    #[serde(default)]
    pub pair: bool,
    /// The machine serves, and a program on the host asks: that is timed, by the host's clock.
    pub asked: Option<Asked>,
    /// A shell command in the guest before each start of a program, untimed.
    pub before: Option<String>,
    /// Whether the first starts of programs count too.
    #[serde(default)]
    pub cold: bool,
    /// Whether page faults and reads from storage are counted, too, in one more start of each
    /// program in each Hayate.
    #[serde(default)]
    pub counts: bool,
    /// Whether it is asked, too, what images of each program the first system keeps.
    #[serde(default)]
    pub kept: bool,
    /// The systems, Hayate first.
    pub systems: Vec<Participant>,
    /// The works that each system runs.
    #[serde(default)]
    pub workload: Vec<Work>,
    /// Curves over a size.
    #[serde(default)]
    pub sweeps: Vec<Sweep>,
    /// Computes after how many calls a change of the system pays off.
    pub break_even: Option<BreakEven>,
    /// Two processes against one, on two processors, instead of all of the above.
    pub scaling: Option<Scaling>,
}

/// A change that has a single cost and makes calls cheaper.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakEven {
    /// The costs of the change: names of the workload, measured in the system `from`.
    pub costs: Vec<String>,
    /// The system without the change, by its name.
    pub from: String,
    /// The system with the change.
    pub to: String,
    /// The calls: names of the workload.
    pub calls: Vec<String>,
}

/// A server in the machine that ApacheBench on the host asks, one request after the other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The port of the machine.
    pub port: u16,
    /// How many requests are timed.
    pub requests: u32,
    /// How many are sent before these.
    pub first: u32,
    /// How often the systems are booted in turn; the best time of each counts.
    pub rounds: u32,
}

/// Two processes against one, by `measure scaling`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// How often one and two processes are measured in turn.
    pub rounds: u32,
    /// How long each process works in each round.
    pub milliseconds: u32,
    /// The required ratio of two processes to one, in the first system, by name of the work.
    #[serde(default)]
    pub at_least: BTreeMap<String, f64>,
}

/// A system of an experiment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participant {
    /// Its name in data.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Whether it is Debian's Linux; otherwise Hayate.
    #[serde(default)]
    pub linux: bool,
    /// Words of its command line: the switches under test.
    #[serde(default)]
    pub words: String,
    /// A path that must exist in the guest; without it this kernel does not support the words.
    pub needs: Option<String>,
    /// A program and arguments that start the suite, such as `mode run --`.
    #[serde(default)]
    pub launcher: Vec<String>,
    /// Arguments passed on to QEMU.
    #[serde(default)]
    pub qemu: Vec<String>,
    /// Whether the programs of the image are in two files, their texts on non-volatile memory.
    #[serde(default)]
    pub off2f: bool,
    /// Whether and how the image lies on an NVDIMM, mounted with `-o dax`: Linux' own execution in
    /// place.
    pub dax: Option<Dax>,
}

/// The alignment of an image on an NVDIMM.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dax {
    /// In a partition at the usual place.
    Plain,
    /// Such that the first program that is run can be mapped in large pages.
    Aligned,
}

/// A speed of storage, as QEMU throttles it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Its name in data.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// QEMU's `throttling.*` options without that word: `{"bps-read": 10000000}`.
    #[serde(default)]
    pub throttle: BTreeMap<String, u64>,
}

/// One work to be measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// A name of `measure list`, or, with `run`, a new name.
    pub name: String,
    /// Its title for people; by default the suite's.
    pub title: Option<String>,
    /// A command to start and time, split at spaces.
    pub run: Option<String>,
    /// A script for `/bin/sh` to start and time, in place of `run`.
    pub script: Option<String>,
    /// With `asked`, the path of a document that the machine serves.
    pub ask: Option<String>,
    /// Two lengths of that command, of which each takes the place of `{}` in it: the value is what
    /// one unit more takes, without the command's own start and end.
    pub each: Option<Each>,
    /// The limit of the first system, in instructions or nanoseconds.
    pub at_most: Option<f64>,
    /// The limits of other systems, by their names.
    #[serde(default)]
    pub at_most_in: BTreeMap<String, f64>,
    /// The fraction of the second system's value that the first must stay below, by name of the
    /// storage.
    #[serde(default)]
    pub at_most_of_second: BTreeMap<String, f64>,
    /// The fractions of other systems' values that the first must stay below, by their names.
    #[serde(default)]
    pub at_most_of: BTreeMap<String, f64>,
    /// The same for systems other than the first: by their names, and then by the others'.
    #[serde(default)]
    pub at_most_by: BTreeMap<String, BTreeMap<String, f64>>,
    /// Whether the experiment's `before` and `cold` do not apply to this program.
    #[serde(default)]
    pub warm: bool,
    /// Whether 1,000 starts in a row, with all deferred work done, are measured as well.
    #[serde(default)]
    pub total: bool,
}

impl Work {
    /// Returns its name among the results of the suite.
    pub fn result(&self) -> String {
        if self.is_program() { format!("program/{}", self.name) } else { self.name.clone() }
    }

    /// Whether it is a program or a script of the description's own, and not one of the suite's
    /// experiments.
    pub fn is_program(&self) -> bool {
        self.run.is_some() || self.script.is_some()
    }

    /// Returns the names and commands of the programs that it runs: none without `run`.
    pub fn programs(&self) -> Vec<(String, String)> {
        match (&self.run, self.each) {
            (None, _) => Vec::new(),
            (Some(command), None) => vec![(self.name.clone(), command.clone())],
            (Some(command), Some(Each { from, to })) => [from, to]
                .map(|length| {
                    let command = command.replace(LENGTH, &length.to_string());
                    (format!("{}-{length}", self.name), command)
                })
                .to_vec(),
        }
    }
}

fn one_processor() -> Vec<u8> {
    vec![1]
}

/// Two lengths of a command.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Each {
    /// The shorter.
    pub from: u32,
    /// The longer.
    pub to: u32,
}

/// Stands for the length in a command that is run in two lengths.
const LENGTH: &str = "{}";

/// A curve of several results.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The title above the picture.
    pub title: String,
    /// The results, by their names up to the size: `cpu/process/exec-text/`.
    pub results: String,
}

/// Names and files of all experiments, in alphabetical order.
pub fn known() -> Result<Vec<(String, PathBuf)>> {
    let folder = paths::project().join("experiments");
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            found.push((name.to_string(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

/// Reads an experiment.
pub fn read(path: &Path) -> Result<Description> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let what: Description = serde_json::from_str(&text)
        .with_context(|| format!("{shown} does not describe an experiment"))?;
    check(&what).map_err(|problem| Failure::error(USAGE, format!("{shown}: {problem}")))?;
    Ok(what)
}

impl Description {
    /// Keeps the systems and works of these names; of a kind of which none is named, all. Aims that
    /// compare with a system that is left out go with it.
    pub fn keep(&mut self, names: &[String]) -> Result<()> {
        let systems = self.systems.iter().map(|system| &system.name);
        let works = self.workload.iter().map(|work| &work.name);
        let known: Vec<&String> = systems.chain(works).collect();
        if let Some(wrong) = names.iter().find(|name| !known.contains(name)) {
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let text = format!("no system or work {wrong}; there are {known}");
            return Err(Failure::error(USAGE, text));
        }
        if self.systems.iter().any(|system| names.contains(&system.name)) {
            // Aims are the first system's.
            let first = self.systems.first().is_some_and(|system| names.contains(&system.name));
            self.systems.retain(|system| names.contains(&system.name));
            for work in self.workload.iter_mut().filter(|_| !first) {
                work.at_most = None;
                work.at_most_of.clear();
                work.at_most_of_second.clear();
            }
        }
        if self.workload.iter().any(|work| names.contains(&work.name)) {
            self.workload.retain(|work| names.contains(&work.name));
            self.sweeps.clear();
            self.break_even = None;
        }
        let systems = &self.systems;
        let kept = |name: &String| systems.iter().any(|system| system.name == *name);
        for work in &mut self.workload {
            work.at_most_in.retain(|name, _| kept(name));
            work.at_most_of.retain(|name, _| kept(name));
            work.at_most_by.retain(|name, _| kept(name));
            work.at_most_by.values_mut().for_each(|others| others.retain(|name, _| kept(name)));
        }
        let even = self.break_even.take();
        self.break_even = even.filter(|even| kept(&even.from) && kept(&even.to));
        Ok(())
    }
}

fn check(what: &Description) -> Result<(), &'static str> {
    if what.scaling.is_some() {
        let others = !what.workload.is_empty()
            || !what.sweeps.is_empty()
            || what.counts
            || what.kept
            || what.processors != one_processor();
        return if what.systems.is_empty() || what.counting || others || what.image.is_some() {
            Err("\"scaling\" needs systems, \"counting\": false, and nothing else to measure")
        } else {
            Ok(())
        };
    }
    check_works(what)?;
    check_processors(what)?;
    check_asked(what)?;
    check_storage(what)?;
    check_names(what)
}

/// Checks that there is something to measure, and that it can be measured in that way.
fn check_works(what: &Description) -> Result<(), &'static str> {
    if what.systems.is_empty() || what.workload.is_empty() && what.sweeps.is_empty() {
        return Err("it needs systems, and a workload or sweeps");
    }
    if what.workload.iter().any(|work| work.run.is_some() && work.script.is_some()) {
        return Err("a work has a \"run\" or a \"script\"");
    }
    if what.workload.iter().any(|work| work.warm && !work.is_program()) {
        return Err("\"warm\" is said of programs to \"run\", and of scripts");
    }
    let lengths = |work: &Work| {
        let places = work.run.as_ref().map_or(0, |command| command.matches(LENGTH).count());
        work.each.is_none_or(|each| places == 1 && each.from < each.to)
    };
    if !what.workload.iter().all(lengths) {
        return Err("\"each\" needs a \"run\" with one {}, and \"from\" less than \"to\"");
    }
    if what.workload.iter().any(|work| work.each.is_some() && (work.total || what.counts)) {
        return Err("with \"each\" there is neither \"total\" nor \"counts\"");
    }
    if what.host && (what.pair || what.counting) {
        return Err(
            "with \"host\" packets come when the host brings them: for time, without \"pair\"",
        );
    }
    if what.disk && (what.counts || what.kept || what.asked.is_some() || what.scaling.is_some()) {
        return Err("with \"disk\" there are no \"counts\", \"kept\", \"asked\" and \"scaling\"");
    }
    if what.pair && what.image.is_some() {
        return Err("\"pair\" is prepared in the small image; leave \"image\" out");
    }
    if what.counts && what.workload.iter().all(|work| work.run.is_none()) {
        return Err("\"counts\" are of programs to \"run\"");
    }
    if what.kept && what.workload.iter().any(|work| work.run.is_none() || work.each.is_some()) {
        return Err("\"kept\" is asked of programs to \"run\", without \"each\"");
    }
    if what.rate.is_some() && !what.time && what.counting {
        return Err("a \"rate\" is of measured time");
    }
    if what.time && !what.counting {
        return Err("\"time\" is measured anyway where nothing is counted");
    }
    Ok(())
}

/// Checks that machines with each number of processors can be measured.
fn check_processors(what: &Description) -> Result<(), &'static str> {
    let mut numbers = what.processors.clone();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() || numbers.len() != what.processors.len() || numbers[0] == 0 {
        return Err("\"processors\" are numbers above 0, each once");
    }
    // Which of two processors comes first is up to the host.
    let others = what.counting || what.counts || what.kept;
    if numbers != [1] && others {
        return Err("several processors are measured by the clock, without \"counts\", \"kept\"");
    }
    Ok(())
}

/// Checks that what the host asks, and nothing else, is measured.
fn check_asked(what: &Description) -> Result<(), &'static str> {
    let Some(asked) = &what.asked else {
        let asks = what.workload.iter().any(|work| work.ask.is_some());
        return if asks { Err("\"ask\" needs \"asked\"") } else { Ok(()) };
    };
    let other = |work: &Work| work.ask.is_none() || work.is_program() || work.total;
    if what.workload.iter().any(other) || !what.sweeps.is_empty() || what.kept || what.counts {
        return Err("with \"asked\" each work has an \"ask\", and nothing else is measured");
    }
    if what.counting || what.host || what.pair || what.cold || what.before.is_some() {
        return Err("\"asked\" is timed by the host's clock, in the machine's own network");
    }
    if asked.port == 0 || asked.requests == 0 || asked.rounds == 0 {
        return Err("\"asked\" needs a port, requests and rounds");
    }
    Ok(())
}

/// Checks that images and the storage that they lie on go together.
fn check_storage(what: &Description) -> Result<(), &'static str> {
    // When instructions are counted, Hayate's disks are in QEMU's memory, and the time in which
    // Linux waited is subtracted.
    let slow = what.storage.iter().any(|storage| !storage.throttle.is_empty());
    if what.counting && slow {
        return Err("a disk answers in the host's time; say \"counting\": false");
    }
    if what.image.is_none() && what.systems.iter().any(|system| system.off2f) {
        return Err("\"off2f\" needs an \"image\" whose programs are converted");
    }
    if what.image.is_none() && what.systems.iter().any(|system| system.dax.is_some()) {
        return Err("\"dax\" needs an \"image\" that lies on an NVDIMM");
    }
    if what.systems.iter().any(|system| system.dax.is_some() && !system.linux) {
        return Err("\"dax\" is Linux' own way; Hayate's is \"off2f\"");
    }
    if what.systems.iter().any(|system| system.dax.is_some()) && !what.storage.is_empty() {
        return Err("an NVDIMM is of no \"storage\"; leave that or \"dax\" out");
    }
    if what.image.is_none() && !what.storage.is_empty() {
        return Err("\"storage\" needs an \"image\" that lies on it");
    }
    Ok(())
}

/// Checks that systems and works that are named are there.
fn check_names(what: &Description) -> Result<(), &'static str> {
    let system = |name: &String| what.systems.iter().any(|system| system.name == *name);
    if !what.workload.iter().flat_map(|work| work.at_most_in.keys()).all(system) {
        return Err("\"at_most_in\" names a system that is not there");
    }
    if !what.workload.iter().flat_map(|work| work.at_most_of.keys()).all(system) {
        return Err("\"at_most_of\" names a system that is not there");
    }
    let parts = what.workload.iter().flat_map(|work| &work.at_most_by);
    if !parts.flat_map(|(name, others)| others.keys().chain([name])).all(system) {
        return Err("\"at_most_by\" names a system that is not there");
    }
    let compares = |work: &Work| !work.at_most_of.is_empty() || !work.at_most_by.is_empty();
    if !what.storage.is_empty() && what.workload.iter().any(compares) {
        return Err("with \"storage\" say \"at_most_of_second\", by its names");
    }
    if let Some(even) = &what.break_even {
        let work = |name: &String| what.workload.iter().any(|work| work.name == *name);
        if ![&even.from, &even.to].into_iter().all(system)
            || !even.costs.iter().chain(&even.calls).all(work)
        {
            return Err("\"break_even\" names a system or a work that is not there");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_can_be_read() {
        let known = known().unwrap();
        assert!(!known.is_empty());
        for (name, path) in known {
            let what = read(&path).unwrap();
            let mut names: Vec<&str> = what.systems.iter().map(|s| s.name.as_str()).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{name}: {names:?}");
        }
    }

    #[test]
    fn two_lengths_are_two_commands() {
        let text = |work: &str, more: &str| {
            format!(
                r#"{{"title": "x", "question": "x", "counting": true, "memory": 512,
                "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, {more}
                "systems": [{{"name": "a", "title": "A"}}],
                "workload": [{{"name": "w", {work}}}]}}"#
            )
        };
        let read = |work: &str, more: &str| -> Description {
            serde_json::from_str(&text(work, more)).unwrap()
        };
        let each = r#""run": "ask {} x", "each": {"from": 5, "to": 10}"#;
        let what = read(each, "");
        assert!(check(&what).is_ok());
        let programs = what.workload[0].programs();
        let programs: Vec<(&str, &str)> =
            programs.iter().map(|(name, command)| (&**name, &**command)).collect();
        assert_eq!(programs, [("w-5", "ask 5 x"), ("w-10", "ask 10 x")]);
        for wrong in [
            r#""run": "ask x", "each": {"from": 5, "to": 10}"#,
            r#""run": "ask {} {}", "each": {"from": 5, "to": 10}"#,
            r#""run": "ask {}", "each": {"from": 5, "to": 5}"#,
            r#""run": "ask {}", "total": true, "each": {"from": 5, "to": 6}"#,
            r#""each": {"from": 5, "to": 10}"#,
        ] {
            assert!(check(&read(wrong, "")).is_err(), "{wrong}");
        }
        assert!(check(&read(each, r#""counts": true,"#)).is_err());
    }

    #[test]
    fn a_script_and_several_processors_are_for_the_clock() {
        let verdict = |counting: bool, more: &str, work: &str| {
            let text = format!(
                r#"{{"title": "x", "question": "x", "counting": {counting}, "memory": 512,
                "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, {more}
                "systems": [{{"name": "a", "title": "A"}}],
                "workload": [{{"name": "w", {work}}}]}}"#
            );
            check(&serde_json::from_str(&text).unwrap())
        };
        let (script, two) = (r#""script": "ls | wc -l""#, r#""processors": [1, 2],"#);
        assert_eq!(verdict(false, two, script), Ok(()));
        assert_eq!(verdict(true, "", script), Ok(()));
        assert_eq!(verdict(false, "", r#""script": "ls", "warm": true"#), Ok(()));
        assert!(verdict(true, two, script).is_err());
        assert!(verdict(false, "", r#""script": "ls", "run": "ls""#).is_err());
        assert!(verdict(false, r#""counts": true,"#, script).is_err());
        for wrong in ["[]", "[0]", "[1, 1]"] {
            let wrong = format!(r#""processors": {wrong},"#);
            assert!(verdict(false, &wrong, script).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_the_host_asks_is_measured_alone() {
        let text = |counting: bool, asked: &str, work: &str| {
            format!(
                r#"{{"title": "x", "question": "x", "counting": {counting}, "memory": 512,
                "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, {asked}
                "systems": [{{"name": "a", "title": "A"}}],
                "workload": [{{"name": "w", {work}}}]}}"#
            )
        };
        let verdict = |counting, asked, work| {
            check(&serde_json::from_str(&text(counting, asked, work)).unwrap()).is_ok()
        };
        let asked = r#""asked": {"port": 80, "requests": 9, "first": 1, "rounds": 5},"#;
        let ask = r#""ask": "index.html""#;
        assert!(verdict(false, asked, ask));
        assert!(!verdict(true, asked, ask));
        assert!(!verdict(false, "", ask));
        assert!(!verdict(false, asked, r#""run": "/bin/true""#));
        let never = r#""asked": {"port": 80, "requests": 9, "first": 1, "rounds": 0},"#;
        assert!(!verdict(false, never, ask));
    }

    #[test]
    fn a_part_of_an_experiment_keeps_what_is_named() {
        let text = r#"{"title": "x", "question": "x", "counting": true, "memory": 512,
            "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1,
            "systems": [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}],
            "workload": [{"name": "v"}, {"name": "w", "at_most_of": {"b": 0.5},
                "at_most_by": {"b": {"a": 0.25}}}]}"#;
        let kept = |names: &[&str]| {
            let mut what: Description = serde_json::from_str(text).unwrap();
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            what.keep(&names).map(|()| (what.systems.len(), what.workload))
        };
        let (systems, works) = kept(&["a"]).unwrap();
        assert_eq!((systems, works.len()), (1, 2));
        assert!(works[1].at_most_of.is_empty() && works[1].at_most_by.is_empty());
        let works = kept(&["b"]).unwrap().1;
        assert!(works[1].at_most_of.is_empty() && works[1].at_most_by["b"].is_empty());
        let (systems, works) = kept(&["w"]).unwrap();
        assert_eq!((systems, works.len()), (2, 1));
        assert_eq!((works[0].at_most_of.len(), works[0].at_most_by["b"].len()), (1, 1));
        assert!(kept(&["a", "c"]).is_err());
    }

    #[test]
    fn a_description_with_a_wrong_word_is_refused() {
        let wrong = r#"{"title": "x", "systms": []}"#;
        assert!(serde_json::from_str::<Description>(wrong).is_err());
    }

    #[test]
    fn execution_in_place_is_said_of_linux_and_an_image() {
        let text = |image: &str, system: &str, more: &str, work: &str| {
            format!(
                r#"{{"title": "x", "question": "x", "counting": true, "memory": 512,
                "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, {image} {more}
                "systems": [{{"name": "a", "title": "A"}}, {{"name": "b", "title": "B", {system}}}],
                "workload": [{{"name": "w", {work}}}]}}"#
            )
        };
        let verdict = |image, system, more, work| {
            check(&serde_json::from_str(&text(image, system, more, work)).unwrap()).is_ok()
        };
        let (image, dax) = (r#""image": "large-text","#, r#""linux": true, "dax": "plain""#);
        let work = r#""run": "/p/large", "warm": true, "at_most_of": {"b": 0.1}"#;
        assert!(verdict(image, dax, "", work));
        assert!(!verdict("", dax, "", work));
        assert!(!verdict(image, r#""dax": "aligned""#, "", work));
        let storage = r#""storage": [{"name": "s", "title": "S"}],"#;
        assert!(!verdict(image, dax, storage, r#""run": "/p/large""#));
        assert!(!verdict(image, r#""linux": true"#, storage, work));
        assert!(!verdict(image, dax, "", r#""run": "/p/large", "at_most_of": {"c": 0.1}"#));
        assert!(!verdict(image, dax, "", r#""run": "/p/large", "at_most_by": {"b": {"c": 0.1}}"#));
        assert!(!verdict(image, dax, "", r#""run": "/p/large", "at_most_by": {"c": {"b": 0.1}}"#));
        assert!(!verdict(image, dax, "", r#""warm": true"#));
    }

    #[test]
    fn a_slow_disk_and_counted_instructions_exclude_each_other() {
        let text = r#"{"title": "x", "question": "x", "counting": true, "memory": 512,
            "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, "image": "default",
            "systems": [{"name": "a", "title": "A"}],
            "workload": [{"name": "date", "run": "/bin/date"}]}"#;
        let mut what: Description = serde_json::from_str(text).unwrap();
        assert!(check(&what).is_ok());
        what.systems[0].linux = true;
        assert!(check(&what).is_ok());
        let slow = r#"{"name": "s", "title": "S", "throttle": {"iops-read": 60}}"#;
        what.storage.push(serde_json::from_str(slow).unwrap());
        assert!(check(&what).is_err());
        assert_eq!(what.workload[0].result(), "program/date");
    }

    #[test]
    fn names_of_systems_and_works_must_be_there() {
        let text = |limit: &str, to: &str| {
            format!(
                r#"{{"title": "x", "question": "x", "counting": true, "memory": 512,
                "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1,
                "systems": [{{"name": "a", "title": "A"}}],
                "workload": [{{"name": "w", "at_most_in": {{"{limit}": 1}}}}],
                "break_even": {{"costs": ["w"], "from": "a", "to": "{to}", "calls": ["w"]}}}}"#
            )
        };
        let verdict = |limit, to| check(&serde_json::from_str(&text(limit, to)).unwrap());
        assert!(verdict("a", "a").is_ok());
        assert!(verdict("b", "a").is_err());
        assert!(verdict("a", "b").is_err());
    }
}
