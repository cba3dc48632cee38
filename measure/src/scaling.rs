//! Compares the throughput of starts by two processes at once with that of one process.
//!
//! Each process of each round is a fresh one. It prepares itself, waits until all processes of its
//! round are ready, and then works for a fixed time by its own clock. Its throughput is what it
//! does in a second, and that of two is the sum. The time is fixed, not the number of starts:
//! otherwise the slower of two would have the machine to itself at the end.
//!
//! Each kind is measured twice. First each process and its children run on a processor of their
//! own, which shows how much two starts at once slow each other down. Then the system decides: it
//! has to find the second processor, and may also move children of one process there, which costs
//! or gains time.

use crate::clock::Clock;
use crate::experiment::Setting;
use crate::experiments::basics::empty_loop;
use crate::experiments::processes::{USUAL, program, reap};
use crate::sampler::Skip;
use crate::sys::memory::Mapping;
use crate::sys::pin;
use crate::sys::process::{Child, Ended, Program, Split, become_group, fork_exit, vfork_exit};
use crate::sys::raw::sched_yield;
use measure_data::scaling::{CEILING, Work};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Turns of the loop that count as one.
const TURNS: u32 = 10_000;
/// How often a process does its work before it is ready.
const BEFORE: u32 = 20;
/// Words between the results of two processes: they must not share a cache line.
const LINE: usize = 16;

/// An action that a process repeats.
#[derive(Clone, Copy)]
enum Act {
    Loop,
    Bare(Split),
    Exec(Split),
}

/// The kinds of works: name, title, action, and whether each process has a processor of its own.
const KINDS: [(&str, &str, Act, bool); 9] = [
    (CEILING, "10,000 turns of a loop", Act::Loop, true),
    ("vfork-exit", "vfork, exit, wait", Act::Bare(Split::Vfork), true),
    ("fork-exit", "fork, exit, wait", Act::Bare(Split::Fork), true),
    ("vfork-exec", "vfork, exec of a static program, exit, wait", Act::Exec(Split::Vfork), true),
    ("fork-exec", "fork, exec of a static program, exit, wait", Act::Exec(Split::Fork), true),
    ("free/vfork-exit", "vfork, exit, wait; not pinned", Act::Bare(Split::Vfork), false),
    ("free/fork-exit", "fork, exit, wait; not pinned", Act::Bare(Split::Fork), false),
    ("free/vfork-exec", "vfork, exec, exit, wait; not pinned", Act::Exec(Split::Vfork), false),
    ("free/fork-exec", "fork, exec, exit, wait; not pinned", Act::Exec(Split::Fork), false),
];

/// Measures all in turn, `rounds` times.
pub fn measure(
    setting: &Setting,
    clock: Clock,
    rounds: u32,
    time: Duration,
) -> Result<Vec<Work>, Skip> {
    let path = program(setting, USUAL)?;
    let mut works: Vec<Work> = Vec::new();
    works.extend(KINDS.map(|(name, title, ..)| Work::new(name, title)));
    for round in 0..rounds as usize {
        for (work, (name, _, act, pinned)) in works.iter_mut().zip(KINDS) {
            // Which processor a single process gets alternates, and which of the two comes first.
            let cpus = |processes: usize| -> Vec<usize> {
                let all = setting.cpus.iter().cycle().skip(round);
                if pinned { all.take(processes).copied().collect() } else { Vec::new() }
            };
            for processes in if round % 2 == 0 { [1, 2] } else { [2, 1] } {
                let once = || act.once(&path);
                let done = together(once, clock, processes, &cpus(processes), time)
                    .map_err(|Skip(reason)| Skip(format!("{name}: {reason}")))?;
                if processes == 1 { work.one.push(done) } else { work.two.push(done) }
            }
        }
    }
    Ok(works)
}

impl Act {
    fn once(self, path: &CStr) -> Result<(), Skip> {
        match self {
            Act::Loop => empty_loop(TURNS),
            Act::Bare(Split::Vfork) => reap(vfork_exit(), "vfork")?,
            Act::Bare(Split::Fork) => reap(fork_exit(), "fork")?,
            Act::Exec(how) => reap(Program::new(path, &[path]).start(how), "executing a program")?,
        }
        Ok(())
    }
}

/// Returns the throughput per second of so many processes together.
fn together(
    once: impl Fn() -> Result<(), Skip>,
    clock: Clock,
    processes: usize,
    cpus: &[usize],
    time: Duration,
) -> Result<f64, Skip> {
    // Word 0: how many are ready. Then, for each process, its count and its nanoseconds.
    let shared = Mapping::shared(4096).map_err(Skip::because("shared memory"))?;
    let line = |process: usize| LINE * (process + 1);
    let start = |process: usize| {
        Child::start(|| {
            become_group();
            let pinned = cpus.get(process).map_or(Ok(()), |cpu| pin(&[*cpu]));
            let ready = pinned.is_ok() && (0..BEFORE).all(|_| once().is_ok());
            meet(shared.word(0), processes, ready);
            let Some((done, passed)) = work(&once, clock, time).filter(|_| ready) else {
                return 1;
            };
            shared.word(line(process)).store(done, Ordering::Release);
            shared.word(line(process) + 1).store(passed, Ordering::Release);
            0
        })
    };
    let children: Result<Vec<Child>, _> = (0..processes).map(start).collect();
    for child in children.map_err(Skip::because("fork"))? {
        let ended = child.wait();
        if ended != Ended::Exit(0) {
            return Err(Skip(format!("a process ended with {ended:?}")));
        }
    }
    let read = |word: usize| f64::from(shared.word(word).load(Ordering::Acquire));
    Ok((0..processes).map(|p| read(line(p)) * 1e9 / read(line(p) + 1).max(1.0)).sum())
}

/// Waits until all are ready. A process that cannot get ready does not make the others wait.
fn meet(ready: &AtomicU32, processes: usize, is_ready: bool) {
    ready.fetch_add(if is_ready { 1 } else { processes as u32 }, Ordering::AcqRel);
    while (ready.load(Ordering::Acquire) as usize) < processes {
        sched_yield();
    }
}

/// Works for `time`; returns how often, and in how many nanoseconds.
fn work(once: impl Fn() -> Result<(), Skip>, clock: Clock, time: Duration) -> Option<(u32, u32)> {
    let (mut done, start) = (0, clock.start());
    loop {
        once().ok()?;
        done += 1;
        let passed = clock.ns(clock.stop().saturating_sub(start) as f64);
        if passed >= time.as_nanos() as f64 {
            return Some((done, passed as u32));
        }
    }
}
