//! Takes samples: warm-up, then samples until there are enough or the time is up.
//!
//! With a fixed number of iterations no decision here depends on a clock, so that a run in an
//! emulator that counts instructions is exactly reproducible.

use crate::clock::Clock;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// Why an experiment cannot be measured here; the sentence is shown to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl Skip {
    /// For closures: returns the reason that names what failed.
    pub fn because(what: &str) -> impl Fn(io::Error) -> Skip + '_ {
        move |error| Skip(format!("{what}: {error}"))
    }
}

impl From<io::Error> for Skip {
    fn from(error: io::Error) -> Self {
        Skip(error.to_string())
    }
}

/// How many samples a round takes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Exactly this number, whatever the time.
    pub iterations: Option<u32>,
    /// Otherwise: at least so many,
    pub at_least: usize,
    /// at most so many,
    pub at_most: usize,
    /// and no more once this has passed.
    pub budget: Duration,
    /// Whether the first samples are discarded. Not if a sample is long and warms up by itself, or
    /// if the first sample is the one to be measured.
    pub warm_up: bool,
}

/// Collects the samples of one round.
#[derive(Debug)]
pub struct Sampler {
    clock: Clock,
    plan: Plan,
    ticks: Vec<u64>,
}

impl Sampler {
    /// An empty one.
    pub fn new(clock: Clock, plan: Plan) -> Self {
        let room = plan.iterations.map_or(plan.at_most, |i| i as usize);
        Self { clock, plan, ticks: Vec::with_capacity(room.min(1 << 16)) }
    }

    /// The clock to read.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The samples.
    pub fn into_ticks(self) -> Vec<u64> {
        self.ticks
    }

    /// Repeats `sample`, which does its own preparation and returns raw ticks.
    pub fn collect(&mut self, mut sample: impl FnMut() -> Result<u64, Skip>) -> Result<(), Skip> {
        if let Some(iterations) = self.plan.iterations {
            let thrown_away = if self.plan.warm_up { (iterations / 10).clamp(1, 10) } else { 0 };
            for _ in 0..thrown_away {
                black_box(sample()?);
            }
            for _ in 0..iterations {
                self.ticks.push(sample()?);
            }
            return Ok(());
        }
        let began = Instant::now();
        // Warm-up: a tenth of the time or of the samples, at least one.
        let thrown_away = if self.plan.warm_up { (self.plan.at_most / 10).max(1) } else { 0 };
        for _ in 0..thrown_away {
            black_box(sample()?);
            if began.elapsed() >= self.plan.budget / 10 {
                break;
            }
        }
        let began = Instant::now();
        while self.ticks.len() < self.plan.at_most {
            let enough = self.ticks.len() >= self.plan.at_least;
            if enough && began.elapsed() >= self.plan.budget {
                break;
            }
            self.ticks.push(sample()?);
        }
        Ok(())
    }

    /// Samples of `count` times `operation`.
    #[inline(always)]
    pub fn batch(&mut self, count: u32, mut operation: impl FnMut()) -> Result<(), Skip> {
        let clock = self.clock;
        self.collect(|| {
            let start = clock.start();
            for _ in 0..count {
                operation();
            }
            Ok(clock.stop().saturating_sub(start))
        })
    }

    /// Takes samples of `count` times an operation that can fail; a failure is the reason to skip.
    #[inline(always)]
    pub fn try_batch(
        &mut self,
        count: u32,
        mut operation: impl FnMut() -> Result<(), Skip>,
    ) -> Result<(), Skip> {
        let clock = self.clock;
        self.collect(|| {
            let start = clock.start();
            for _ in 0..count {
                operation()?;
            }
            Ok(clock.stop().saturating_sub(start))
        })
    }
}
