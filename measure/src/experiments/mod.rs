//! All experiments, in the order in which they are shown.

pub mod bandwidth;
pub mod basics;
pub mod chase;
pub mod faults;
pub mod files;
pub mod latency;
pub mod mode;
pub mod named;
pub mod net;
pub mod processes;
pub mod signals;
pub mod sweeps;
pub mod switch;
pub mod syscalls;
pub mod totals;

use crate::experiment::{Experiment, Setting};

/// All experiments of the suite.
pub fn all(setting: &Setting) -> Vec<Experiment> {
    let mut all = basics::experiments(setting.exits);
    all.extend(syscalls::experiments());
    all.extend(signals::experiments());
    all.extend(processes::experiments(setting));
    all.extend(switch::experiments());
    all.extend(mode::experiments());
    all.extend(latency::experiments(setting));
    all.extend(bandwidth::experiments(setting));
    all.extend(faults::experiments());
    all.extend(net::experiments(setting));
    all.extend(files::experiments(setting));
    all
}
