//! The cost of starts over a long run: 1,000 in a row, with all work that they leave behind.
//!
//! A kernel can make one start look cheap by deferring work: freeing the old address space,
//! clearing pages for the next one. Here deferred work is measured too. After the last start the
//! process spins and yields long enough that all deferred work is done, and the additional time,
//! compared with the same loop when no work is left, is added to the starts.
//!
//! It cannot see work that a kernel does only when no program wants the processor.

use super::basics::empty_loop;
use super::processes::{
    M, USUAL, busybox_command, dynamic_program, program, reap, shell_command, sparse_program,
};
use crate::clock::Clock;
use crate::experiment::{Experiment, Setting};
use crate::sampler::{Sampler, Skip};
use crate::sys::memory::{Mapping, Pages};
use crate::sys::process::{Program, Split, fork_exit, vfork_exit};
use crate::sys::raw::sched_yield;
use std::hint::black_box;

/// Starts in one sample.
const STARTS: u32 = 1000;
/// Starts before the samples, so that one-time work is done.
const BEFORE: u32 = 20;
/// The length of the wait: so many times a yield and a loop. In an emulator that counts
/// instructions this is 30 ms by the guest's clock, which is several ticks of its timer.
const YIELDS: u32 = 300;
const TURNS: u32 = 50_000;

/// The experiments that have a total.
const NAMES: [&str; 10] = [
    "fork-exit",
    "fork-parent/256M",
    "vfork-exit",
    "fork-exec-static",
    "vfork-exec-static",
    "posix-spawn",
    "fork-exec-dynamic",
    "exec-sparse",
    "sh-c",
    "sh-c-busybox",
];

/// Inserts the total behind each experiment that has one.
pub fn beside(all: &mut Vec<Experiment>) {
    for name in NAMES {
        let base = format!("cpu/process/{name}");
        if let Some(at) = all.iter().position(|e| e.name == base) {
            let total = total(&all[at], name);
            all.insert(at + 1, total);
        }
    }
}

fn total(base: &Experiment, name: &'static str) -> Experiment {
    let mut made = Experiment::time(
        format!("{}/total", base.name),
        format!("{}: 1,000 and all they leave to do", base.title),
        move |s, m| many(name, s, m),
    )
    .per(STARTS)
    .method("1,000 in a row, then yields and spins until nothing is left to do, by 1,000; the cost of yields and spins when nothing is left is taken off")
    .samples_at_most(1)
    // A thousand of the large ones take minutes in an emulator.
    .rounds_at_most(if matches!(name, "fork-parent/256M" | "exec-sparse" | "sh-c-busybox") { 1 } else { 3 });
    // The cost of one start, if no work is deferred.
    made.model.clone_from(&base.model);
    made
}

fn many(name: &str, s: &Setting, m: &mut Sampler) -> Result<(), Skip> {
    match name {
        "fork-exit" => starts(m, || reap(fork_exit(), "fork")),
        "fork-parent/256M" => {
            let memory =
                Mapping::anonymous(256 * M, Pages::Small).map_err(Skip::because("mmap"))?;
            memory.populate();
            starts(m, || reap(fork_exit(), "fork"))
        }
        "vfork-exit" => starts(m, || reap(vfork_exit(), "vfork")),
        "fork-exec-static" | "vfork-exec-static" => {
            let how = if name.starts_with('v') { Split::Vfork } else { Split::Fork };
            let path = program(s, USUAL)?;
            let program = Program::new(&path, &[&path]);
            starts(m, || reap(program.start(how), "executing a program"))
        }
        "posix-spawn" => {
            let path = program(s, USUAL)?;
            let program = Program::new(&path, &[&path]);
            starts(m, || {
                let pid = program.spawn().map_err(Skip::because("posix_spawn"))?;
                reap(pid as isize, "posix_spawn")
            })
        }
        "exec-sparse" => {
            let path = sparse_program(s)?;
            let program = Program::new(&path, &[&path]);
            starts(m, || reap(program.start(Split::Vfork), "executing a large program"))
        }
        "sh-c-busybox" => {
            let (shell, command) = busybox_command(s)?;
            let program = Program::new(&shell, &[c"sh", c"-c", &command]);
            starts(m, || reap(program.start(Split::Fork), "executing a shell"))
        }
        "fork-exec-dynamic" => {
            let path = dynamic_program()?;
            let program = Program::new(path, &[path]);
            starts(m, || reap(program.start(Split::Fork), "executing a program"))
        }
        _ => {
            let command = shell_command(s)?;
            let program = Program::new(c"/bin/sh", &[c"sh", c"-c", &command]);
            starts(m, || reap(program.start(Split::Fork), "executing a shell"))
        }
    }
}

fn starts(m: &mut Sampler, mut start_one: impl FnMut() -> Result<(), Skip>) -> Result<(), Skip> {
    let clock = m.clock();
    for _ in 0..BEFORE {
        start_one()?;
    }
    // The first settling does the work left from before, the second measures the loop itself.
    settle(clock);
    let nothing_left = settle(clock);
    m.collect(|| {
        let start = clock.start();
        for _ in 0..STARTS {
            start_one()?;
        }
        settle(clock);
        Ok(clock.stop().saturating_sub(start).saturating_sub(nothing_left))
    })
}

/// Lets all other threads run until no work is left; returns the ticks that it took.
fn settle(clock: Clock) -> u64 {
    let start = clock.start();
    for _ in 0..YIELDS {
        black_box(sched_yield());
        empty_loop(TURNS);
    }
    clock.stop().saturating_sub(start)
}
