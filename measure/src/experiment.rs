//! An experiment: a name, a method in words, a model that predicts its result from measured
//! primitives, and code that takes the samples of one round.

use crate::sampler::{Plan, Sampler, Skip};
use measure_data::run::{Axis, Cache, Quantity, TermKind};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The data about the run that experiments may need.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where files are created: a fresh directory of this run.
    pub directory: PathBuf,
    /// Data caches that the machine reports.
    pub caches: Vec<Cache>,
    /// Processors that may be used, and those that the measuring process is pinned to.
    pub cpus: Vec<usize>,
    /// Largest array of a memory experiment, in bytes.
    pub memory_limit: u64,
    /// Largest file of a file experiment, in bytes.
    pub file_limit: u64,
    /// The other host that runs `measure serve`.
    pub remote: Option<SocketAddr>,
    /// Whether a hypervisor is below, to which CPUID exits.
    pub exits: bool,
    /// Whether rounds have a higher priority than other work on the machine.
    pub raised: bool,
    /// Programs that the user named, to be started.
    pub programs: Vec<Named>,
    /// Whether the time in which the only processor was idle is taken off of what waits for a
    /// device.
    pub without_idle: bool,
}

/// A program that the user named (`--program`).
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name in results.
    pub name: String,
    /// The program and its arguments: a shell and its script for `--script`.
    pub command: Vec<String>,
    /// A shell command to run before each start, untimed.
    pub before: Option<String>,
    /// Whether the first starts are discarded.
    pub warm_up: bool,
}

impl Setting {
    /// The reported size of the cache of `level`, or a common one.
    pub fn cache(&self, level: u32) -> u64 {
        let common = match level {
            1 => 32 << 10,
            2 => 512 << 10,
            _ => 8 << 20,
        };
        self.caches.iter().find(|c| c.level == level).map_or(common, |c| c.bytes)
    }

    /// The size of the outermost cache.
    pub fn last_cache(&self) -> u64 {
        self.caches.iter().map(|c| c.bytes).max().unwrap_or(8 << 20)
    }
}

/// One addend of a model: `count` times the primitive, per operation or per byte.
#[derive(Clone, Copy, Debug)]
pub struct ModelTerm {
    /// Hardware or software.
    pub kind: TermKind,
    /// How often.
    pub count: f64,
    /// Name of the primitive.
    pub primitive: &'static str,
    /// Why.
    pub why: &'static str,
}

type Body = Box<dyn Fn(&Setting, &mut Sampler) -> Result<(), Skip>>;

/// An experiment.
pub struct Experiment {
    /// Path-like name.
    pub name: String,
    /// The title in words.
    pub title: String,
    /// How it measures.
    pub method: String,
    /// Time per operation, or bytes per second.
    pub quantity: Quantity,
    /// Operations or bytes in a sample.
    pub work: f64,
    /// Whether `work` turns of an empty loop are subtracted in addition to the timer.
    pub loop_taken_off: bool,
    /// Place on a curve.
    pub axis: Option<Axis>,
    /// The model.
    pub model: Vec<ModelTerm>,
    /// The most rounds; expensive preparation would make more too slow.
    pub rounds_at_most: u32,
    /// Samples of a round at most.
    pub samples_at_most: u32,
    /// Whether samples are discarded at the start of a round.
    pub warm_up: bool,
    body: Body,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Experiment {
    /// An experiment that measures the time of an operation, one per sample.
    pub fn time(
        name: impl Into<String>,
        title: impl Into<String>,
        body: impl Fn(&Setting, &mut Sampler) -> Result<(), Skip> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            method: String::new(),
            quantity: Quantity::Time,
            work: 1.0,
            loop_taken_off: false,
            axis: None,
            model: Vec::new(),
            rounds_at_most: u32::MAX,
            samples_at_most: u32::MAX,
            warm_up: true,
            body: Box::new(body),
        }
    }

    /// An experiment that measures how fast `bytes` are moved in a sample.
    pub fn bandwidth(
        name: impl Into<String>,
        title: impl Into<String>,
        bytes: u64,
        body: impl Fn(&Setting, &mut Sampler) -> Result<(), Skip> + 'static,
    ) -> Self {
        let mut made = Self::time(name, title, body);
        made.quantity = Quantity::Bandwidth;
        made.work = bytes as f64;
        made
    }

    /// Sets the method.
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// One sample holds `count` operations.
    pub fn per(mut self, count: u32) -> Self {
        self.work = f64::from(count);
        self
    }

    /// Subtracts the cost of an empty loop as well.
    pub fn without_loop(mut self) -> Self {
        self.loop_taken_off = true;
        self
    }

    /// Adds base hardware cost to the prediction.
    pub fn hardware(self, count: f64, primitive: &'static str, why: &'static str) -> Self {
        self.term(TermKind::Hardware, count, primitive, why)
    }

    /// Adds estimated software cost to the prediction.
    pub fn software(self, count: f64, primitive: &'static str, why: &'static str) -> Self {
        self.term(TermKind::Software, count, primitive, why)
    }

    fn term(
        mut self,
        kind: TermKind,
        count: f64,
        primitive: &'static str,
        why: &'static str,
    ) -> Self {
        if count > 0.0 {
            self.model.push(ModelTerm { kind, count, primitive, why });
        }
        self
    }

    /// Puts the result on the curve `series` at `x`.
    pub fn at(mut self, series: impl Into<String>, x: f64, unit: &str) -> Self {
        self.axis = Some(Axis { series: series.into(), x, unit: unit.to_owned() });
        self
    }

    /// Limits the number of rounds.
    pub fn rounds_at_most(mut self, rounds: u32) -> Self {
        self.rounds_at_most = rounds;
        self
    }

    /// Limits the number of samples in a round, none of which is discarded.
    pub fn samples_at_most(mut self, samples: u32) -> Self {
        self.samples_at_most = samples;
        self.warm_up = false;
        self
    }

    /// Discards no sample.
    pub fn without_warm_up(mut self) -> Self {
        self.warm_up = false;
        self
    }

    /// `plan` with this experiment's own limits.
    pub fn limited(&self, plan: Plan) -> Plan {
        let most = self.samples_at_most as usize;
        Plan {
            iterations: plan.iterations.map(|i| i.min(self.samples_at_most)),
            at_least: plan.at_least.min(most),
            at_most: plan.at_most.min(most),
            warm_up: plan.warm_up && self.warm_up,
            ..plan
        }
    }

    /// Takes the samples of one round.
    pub fn measure(&self, setting: &Setting, sampler: &mut Sampler) -> Result<(), Skip> {
        (self.body)(setting, sampler)
    }
}
