//! Runs for tests.

use measure_data::run::{
    Clock, Completion, FORMAT, Machine, Measurement, Quantity, Run, Settings, Suite, VERSION,
};
use measure_data::statistics::Summary;

/// A result with the given rounds; one tick is one nanosecond.
pub fn result(name: &str, quantity: Quantity, rounds: Vec<Vec<u64>>) -> Measurement {
    let mut made = Measurement {
        name: name.into(),
        title: name.into(),
        method: "made up".into(),
        quantity,
        work: 1.0,
        subtracted_ticks: 0.0,
        axis: None,
        prediction: None,
        note: None,
        rounds,
        summary: Summary::of(&[]),
    };
    made.summary = Summary::of(&made.values(&clock()));
    made
}

/// A clock of one tick per nanosecond.
pub fn clock() -> Clock {
    Clock { name: "tsc".into(), ticks_per_second: 1e9, overhead_ticks: 0.0, resolution_ticks: 1.0 }
}

/// A run with these results.
pub fn run(results: Vec<Measurement>) -> Run {
    Run {
        format: FORMAT.into(),
        version: VERSION,
        suite: Suite { version: "0".into(), binary_sha256: None },
        label: "made up".into(),
        started: 0,
        seconds: 1.0,
        completion: Completion::Complete,
        settings: Settings { quick: false, passes: 10, iterations: None, seconds: 1.0, cpu: None },
        machine: Machine::default(),
        clock: clock(),
        primitives: Vec::new(),
        results,
        skipped: Vec::new(),
        inferred: Vec::new(),
    }
}
