//! Signals: installing a handler and delivering to oneself.

use crate::experiment::Experiment;
use crate::sampler::Skip;
use crate::sys::raw::{self, checked};
use crate::sys::signal::install_empty;
use std::hint::black_box;

const BATCH: u32 = 50;

/// The experiments of this file.
pub fn experiments() -> Vec<Experiment> {
    vec![
        Experiment::time("cpu/signal/install", "installing a signal handler", |_, m| {
            m.try_batch(BATCH, || install_empty(libc::SIGUSR1).map_err(Skip::because("sigaction")))
        })
        .per(BATCH)
        .method("50 calls of sigaction(2) by the C library")
        .hardware(1.0, "trap", "into the kernel and back")
        .software(250.0, "instruction", "the library's and the kernel's bookkeeping"),
        Experiment::time("cpu/signal/deliver", "a signal to oneself and its handler", |_, m| {
            install_empty(libc::SIGUSR1).map_err(Skip::because("sigaction"))?;
            let pid = raw::getpid() as usize;
            checked(raw::kill(pid, libc::SIGUSR1 as usize)).map_err(Skip::because("kill"))?;
            m.batch(BATCH, || {
                black_box(raw::kill(pid, libc::SIGUSR1 as usize));
            })
        })
        .per(BATCH)
        .method("50 times kill(2) of the own process, an empty handler, sigreturn(2)")
        .hardware(2.0, "trap", "kill and sigreturn")
        .software(
            3500.0,
            "instruction",
            "queue, frame with the vector registers, restore",
        ),
    ]
}
