//! Context switches: a token passed around a ring of processes by pipes, or between two
//! threads or processes by futexes. Everything stays on one processor.

use crate::experiment::Experiment;
use crate::sampler::{Sampler, Skip};
use crate::sys::memory::Mapping;
use crate::sys::process::Child;
use crate::sys::raw::{futex_wait, futex_wake, read, sched_yield, write};
use measure_data::units::size;
use std::hint::black_box;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const LAPS: u32 = 10;
const ROUNDS: u32 = 50;

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

fn pipe() -> Result<Pipe, Skip> {
    let (reader, writer) = std::io::pipe().map_err(Skip::because("pipe"))?;
    Ok(Pipe { reader: reader.into(), writer: writer.into() })
}

/// The token that goes around, and the one that ends the threads of a ring.
const TOKEN: u8 = 0;
const END: u8 = 1;

/// The members of a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    Processes,
    Threads,
}

/// Takes the token, walks the working set, and passes the token on. False: the ring is closed.
#[inline(always)]
fn pass(from: &OwnedFd, to: &OwnedFd, set: &mut [u64]) -> bool {
    let mut token = [0u8; 1];
    if read(from.as_raw_fd(), &mut token) != 1 {
        return false;
    }
    walk(set);
    write(to.as_raw_fd(), &token) == 1 && token[0] != END
}

/// Reads and writes one word of every cache line.
#[inline(always)]
fn walk(set: &mut [u64]) {
    for word in set.iter_mut().step_by(8) {
        *word = black_box(*word + 1);
    }
}

fn ring(m: &mut Sampler, who: Members, members: usize, set_bytes: usize) -> Result<(), Skip> {
    let mut set = vec![0u64; set_bytes / 8];
    let without = alone(m, members, &mut set)?;
    let pipes: Vec<Pipe> = (0..members).map(|_| pipe()).collect::<Result<_, _>>()?;
    let serve = |i: usize| {
        let mut own = vec![0u64; set_bytes / 8];
        while pass(&pipes[i - 1].reader, &pipes[i].writer, &mut own) {}
    };
    let (first, last) = (&pipes[0], &pipes[members - 1]);
    if who == Members::Threads {
        return std::thread::scope(|scope| {
            let start = |i| std::thread::Builder::new().spawn_scoped(scope, move || serve(i));
            let started = (1..members).try_for_each(|i| start(i).map(drop));
            let result = started
                .map_err(Skip::because("creating a thread"))
                .and_then(|()| laps(m, first, last, &mut set, without));
            // Each member passes END on and exits; the last one's is not read.
            write(first.writer.as_raw_fd(), &[END]);
            result
        });
    }
    let mut children = Vec::new();
    for i in 1..members {
        let child = Child::start(|| {
            serve(i);
            0
        });
        children.push(child.map_err(Skip::because("fork"))?);
    }
    laps(m, first, last, &mut set, without)
}

/// Returns the cost of passing the token and walking without any switch, to be subtracted.
fn alone(m: &Sampler, members: usize, set: &mut [u64]) -> Result<u64, Skip> {
    let clock = m.clock();
    let alone = pipe()?;
    let mut without = Vec::new();
    for _ in 0..20 {
        let start = clock.start();
        for _ in 0..LAPS * members as u32 {
            write(alone.writer.as_raw_fd(), &[TOKEN]);
            let mut token = [0u8; 1];
            read(alone.reader.as_raw_fd(), &mut token);
            walk(set);
        }
        without.push(clock.stop().saturating_sub(start));
    }
    without.sort_unstable();
    Ok(without[without.len() / 2])
}

/// Sends the token around.
fn laps(
    m: &mut Sampler,
    first: &Pipe,
    last: &Pipe,
    set: &mut [u64],
    without: u64,
) -> Result<(), Skip> {
    let clock = m.clock();
    m.collect(|| {
        let start = clock.start();
        for _ in 0..LAPS {
            walk(set);
            let mut token = [TOKEN];
            if write(first.writer.as_raw_fd(), &token) != 1
                || read(last.reader.as_raw_fd(), &mut token) != 1
            {
                return Err(Skip("the ring of pipes broke".into()));
            }
        }
        Ok(clock.stop().saturating_sub(start).saturating_sub(without))
    })
}

/// Hands over to the other side and waits for the answer: `turn` is 0 for this side, 1 for the
/// other.
#[inline(always)]
fn hand_over(turn: &AtomicU32, mine: u32) {
    turn.store(1 - mine, Ordering::Release);
    futex_wake(turn);
    loop {
        let now = turn.load(Ordering::Acquire);
        if now != 1 - mine {
            return;
        }
        futex_wait(turn, now);
    }
}

const STOP: u32 = 2;

/// The other side of the futex experiments: answers until told to stop.
fn answer(turn: &AtomicU32) {
    loop {
        match turn.load(Ordering::Acquire) {
            1 => {
                turn.store(0, Ordering::Release);
                futex_wake(turn);
            }
            STOP => return,
            now => {
                futex_wait(turn, now);
            }
        }
    }
}

fn futex_samples(m: &mut Sampler, turn: &AtomicU32) -> Result<(), Skip> {
    m.batch(ROUNDS, || hand_over(turn, 0))
}

fn stop(turn: &AtomicU32) {
    turn.store(STOP, Ordering::Release);
    futex_wake(turn);
}

/// Waits for the turn of `own` by yielding the processor, and passes it on. False: the end.
#[inline(always)]
fn yield_for_turn(turn: &AtomicU32, own: u32) -> bool {
    loop {
        match turn.load(Ordering::Acquire) {
            STOP => return false,
            now if now == own => {
                turn.store(1 - own, Ordering::Release);
                return true;
            }
            _ => {
                sched_yield();
            }
        }
    }
}

fn yields() -> Experiment {
    Experiment::time(
        "cpu/switch/yield-process",
        "sched_yield from one process to another",
        |_, m| {
            let shared = Mapping::shared(4096).map_err(Skip::because("shared memory"))?;
            let turn = shared.word(0);
            let child = Child::start(|| {
                while yield_for_turn(turn, 1) {}
                0
            })
            .map_err(Skip::because("fork"))?;
            let result = m.batch(ROUNDS, || {
                yield_for_turn(turn, 0);
            });
            turn.store(STOP, Ordering::Release);
            child.wait();
            result
        },
    )
    .per(2 * ROUNDS)
    .method(
        "two processes on one processor pass a turn in shared memory; the one that waits calls sched_yield(2)",
    )
    .hardware(1.0, "trap", "the call")
    .hardware(8.0, "l2", "translations and lines reloaded after the change of address space")
    .software(900.0, "instruction", "scheduler, address space")
}

/// The experiments of this file.
pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![yields(), pipe_to_itself(), futex_threads(), futex_processes()];
    all.extend([2, 8].map(thread_ring));
    let rings = [
        (2, 0),
        (4, 0),
        (8, 0),
        (16, 0),
        (2, 16 << 10),
        (2, 64 << 10),
        (8, 16 << 10),
        (8, 64 << 10),
    ];
    all.extend(rings.map(|(members, set)| process_ring(members, set)));
    all
}

fn pipe_to_itself() -> Experiment {
    Experiment::time("cpu/pipe/self", "a byte through a pipe, no switch", |_, m| {
        let pipe = pipe()?;
        m.batch(50, || {
            let mut token = [0u8; 1];
            write(pipe.writer.as_raw_fd(), &token);
            read(pipe.reader.as_raw_fd(), &mut token);
        })
    })
    .per(50)
    .method("write(2) of a byte to a pipe and read(2) of it by the same process")
    .hardware(2.0, "trap", "write and read")
    .software(1100.0, "instruction", "pipe buffer, locks, wake-ups")
}

fn futex_threads() -> Experiment {
    Experiment::time("cpu/switch/futex-thread", "switch between two threads by futex", |_, m| {
        let turn = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let other = std::thread::Builder::new().spawn_scoped(scope, || answer(&turn));
            other.map_err(Skip::because("creating a thread"))?;
            let result = futex_samples(m, &turn);
            stop(&turn);
            result
        })
    })
    .per(2 * ROUNDS)
    .method("two threads on one processor take turns: FUTEX_WAKE the other, FUTEX_WAIT")
    .hardware(2.0, "trap", "wake and wait")
    .software(3500.0, "instruction", "futex hash twice, scheduler")
}

fn futex_processes() -> Experiment {
    Experiment::time("cpu/switch/futex-process", "switch between two processes by futex", |_, m| {
        let shared = Mapping::shared(4096).map_err(Skip::because("shared memory"))?;
        let turn = shared.word(0);
        let child = Child::start(|| {
            answer(turn);
            0
        })
        .map_err(Skip::because("fork"))?;
        let result = futex_samples(m, turn);
        stop(turn);
        child.wait();
        result
    })
    .per(2 * ROUNDS)
    .method("two processes on one processor take turns by a futex in shared memory")
    .hardware(2.0, "trap", "wake and wait")
    .hardware(8.0, "l2", "translations and lines reloaded after the change of address space")
    .software(4000.0, "instruction", "futex hash twice, scheduler, address space")
}

fn thread_ring(members: usize) -> Experiment {
    Experiment::time(
        format!("cpu/switch/pipe-thread-{members}"),
        format!("switch among {members} threads"),
        move |_, m| ring(m, Members::Threads, members, 0),
    )
    .per(LAPS * members as u32)
    .method("as among processes by pipes, in one process")
    .at("switch, threads", members as f64, "threads")
    .software(switched(members), "instruction", "sleep, wake-up, scheduler")
}

/// A ring of processes, each with a working set of that many bytes.
fn process_ring(members: usize, set: usize) -> Experiment {
    let name = if set == 0 {
        format!("cpu/switch/pipe-{members}")
    } else {
        format!("cpu/switch/pipe-{members}-{}K", set >> 10)
    };
    let title = if set == 0 {
        format!("switch among {members} processes")
    } else {
        format!("switch among {members} processes of {} each", size(set as f64))
    };
    let series = if set == 0 {
        "switch, no working set".to_owned()
    } else {
        format!("switch, {} working set", size(set as f64))
    };
    Experiment::time(name, title, move |_, m| {
                ring(m, Members::Processes, members, set)
            })
                .per(LAPS * members as u32)
                .method("a byte passed around a ring of pipes; each process walks its working set before it passes; the same writes, reads and walks by one process alone are taken off")
                .at(series, members as f64, "processes")
                .hardware(8.0, "l2", "translations and lines reloaded after the change of address space")
                .hardware((set / 64) as f64 * if members * set > 512 << 10 { 0.25 } else { 0.1 }, "l2", "the working set comes back from the next cache")
                .software(switched(members) + 100.0, "instruction", "sleep, wake-up, scheduler, address space")
}

/// Returns the instructions of a switch by a pipe: with more than two members the woken
/// process does not run at once in place of its waker, but goes through a run queue.
fn switched(members: usize) -> f64 {
    if members > 2 { 3900.0 } else { 2600.0 }
}
