//! Hayate's switch between user and supervisor mode: of the calling process, and of another one.

use crate::experiment::Experiment;
use crate::sampler::{Sampler, Skip};
use crate::sys::process::Child;
use crate::sys::raw::{self, checked};

/// Which switch is timed; the opposite one follows untimed.
#[derive(Clone, Copy)]
enum Way {
    Supervisor,
    User,
}

fn samples(m: &mut Sampler, pid: usize, way: Way) -> Result<(), Skip> {
    // In a suite that was started in supervisor mode a switch would end that mode permanently.
    if raw::in_ring_0() {
        return Err(Skip("the suite runs in supervisor mode".into()));
    }
    let own = Skip::because("switch_supervisor");
    checked(raw::switch_supervisor(pid, 0)).map_err(own)?;
    checked(raw::switch_user(pid))?;
    let clock = m.clock();
    m.collect(|| {
        if matches!(way, Way::User) {
            checked(raw::switch_supervisor(pid, 0))?;
        }
        let start = clock.start();
        let done = match way {
            Way::Supervisor => raw::switch_supervisor(pid, 0),
            Way::User => raw::switch_user(pid),
        };
        let ticks = clock.stop().saturating_sub(start);
        checked(done)?;
        if matches!(way, Way::Supervisor) {
            checked(raw::switch_user(pid))?;
        }
        Ok(ticks)
    })
}

fn switch(name: &str, title: &str, way: Way, other: bool) -> Experiment {
    Experiment::time(format!("cpu/mode/{name}"), title, move |_, m| {
        if !other {
            return samples(m, 0, way);
        }
        let sleeper = Child::start(|| {
            loop {
                std::thread::park();
            }
        })?;
        samples(m, sleeper.pid() as usize, way)
    })
    .method("one call of Hayate's switch_supervisor or switch_user")
    .hardware(1.0, "trap", "into the kernel and back")
    .software(1500.0, "instruction", "the root of the page table, interrupts' table, the log")
}

/// The experiments of this file.
pub fn experiments() -> Vec<Experiment> {
    vec![
        switch(
            "self-to-supervisor",
            "a process switches itself to supervisor mode",
            Way::Supervisor,
            false,
        ),
        switch("self-to-user", "a process switches itself to user mode", Way::User, false),
        switch(
            "other-to-supervisor",
            "switch of a sleeping process to supervisor mode",
            Way::Supervisor,
            true,
        ),
        switch("other-to-user", "switch of a sleeping process to user mode", Way::User, true),
    ]
}
