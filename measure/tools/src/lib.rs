//! The measuring tools of `./hayate`: `compare`, `experiment` and `explain`.
//!
//! They stand on the host command (`cli/`), which knows nothing of them: it has the machines, the
//! images and the builds, the tools decide what is run in them and show what was measured. Nothing
//! here is needed to run or to test a program. From the top down:
//!
//! - [`compare`], [`experiment`], [`explain`] are the commands, one module each; [`arguments`] has
//!   their options.
//! - `suite` boots systems in turn and joins their runs of `measure`; `boot` is one boot of one
//!   system.
//! - `numbers` says numbers and what they mean, `output` writes results.
//!
//! Samples and statistics are in `crates/measure-data`, which `measure` itself uses.
#![forbid(unsafe_code)]

pub mod arguments;
mod boot;
pub mod compare;
pub mod experiment;
pub mod explain;
mod numbers;
mod output;
mod suite;
