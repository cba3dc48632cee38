//! Samples, statistics and comparison of measurement runs.
//!
//! `measure` writes runs and the host command reads them; this crate defines what both use. It uses
//! no clock, no system call and no file: a run is read from text and written as text. [`compare`]
//! and [`infer`] use [`statistics`], [`run`] holds the data, [`units`] prints numbers.
//!
//! **Samples are kept in rounds.** One round contains the samples of one fresh process in one pass
//! over the suite; the passes are spread over the whole run. Samples within a round share a
//! process, its physical pages and the state of the machine, so they are not independent, and a
//! test that takes them for independent finds a "difference" between any two runs. Therefore every
//! interval and every test here treats the round as the unit that is repeated (Kalibera and Jones,
//! "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
//!
//! Road not taken: mean and standard deviation, as the classical suites print them. Timing samples
//! are skewed to the right by interrupts and preemption. Both are printed for comparison with
//! published tables, but no decision uses them.
#![forbid(unsafe_code)]

pub mod compare;
pub mod infer;

pub mod read;
pub mod run;
pub mod scaling;
pub mod statistics;
pub mod units;

pub use compare::{Comparison, Limits, Verdict, compare_runs};
pub use read::{ReadError, read_run};
pub use run::{Measurement, Run};
