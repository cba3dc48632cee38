//! Memory bandwidth: reading, writing and copying more than the caches hold.

use crate::experiment::{Experiment, Setting};
use crate::sampler::{Sampler, Skip};
use crate::sys::memory::{Mapping, Pages};
use crate::sys::pin;
use std::arch::asm;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// The access to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads of 16 bytes.
    Read,
    /// Stores of 16 bytes.
    Write,
    /// Both, from the first half to the second half.
    Copy,
}

impl Access {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }

    fn primitive(self) -> &'static str {
        match self {
            Self::Read => "load-byte-memory",
            Self::Write => "store-byte-memory",
            Self::Copy => "copy-byte-memory",
        }
    }
}

/// Bytes per turn of the unrolled loops.
const TURN: usize = 128;

/// Accesses `mapping` once from start to end; returns the bytes counted as moved.
#[inline(always)]
pub fn sweep(mapping: &mut Mapping, access: Access) -> usize {
    let memory = mapping.bytes();
    let (start, len) = (memory.as_mut_ptr(), memory.len());
    // SAFETY: every access lies within the mapping, which starts at a page and whose length
    // (or half of it) is cut down to whole turns; SSE2 is part of x86-64.
    unsafe {
        match access {
            Access::Read => asm!(
                "2:",
                "movaps xmm0, [{p}]", "movaps xmm1, [{p} + 16]",
                "movaps xmm2, [{p} + 32]", "movaps xmm3, [{p} + 48]",
                "movaps xmm0, [{p} + 64]", "movaps xmm1, [{p} + 80]",
                "movaps xmm2, [{p} + 96]", "movaps xmm3, [{p} + 112]",
                "add {p}, 128", "dec {n}", "jnz 2b",
                p = inout(reg) start => _, n = inout(reg) len / TURN => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                options(nostack),
            ),
            Access::Write => asm!(
                "pxor xmm0, xmm0",
                "2:",
                "movaps [{p}], xmm0", "movaps [{p} + 16], xmm0",
                "movaps [{p} + 32], xmm0", "movaps [{p} + 48], xmm0",
                "movaps [{p} + 64], xmm0", "movaps [{p} + 80], xmm0",
                "movaps [{p} + 96], xmm0", "movaps [{p} + 112], xmm0",
                "add {p}, 128", "dec {n}", "jnz 2b",
                p = inout(reg) start => _, n = inout(reg) len / TURN => _,
                out("xmm0") _,
                options(nostack),
            ),
            Access::Copy => {
                let half = len / 2 / TURN * TURN;
                asm!(
                    "2:",
                    "movaps xmm0, [{p}]", "movaps xmm1, [{p} + 16]",
                    "movaps xmm2, [{p} + 32]", "movaps xmm3, [{p} + 48]",
                    "movaps [{q}], xmm0", "movaps [{q} + 16], xmm1",
                    "movaps [{q} + 32], xmm2", "movaps [{q} + 48], xmm3",
                    "movaps xmm0, [{p} + 64]", "movaps xmm1, [{p} + 80]",
                    "movaps xmm2, [{p} + 96]", "movaps xmm3, [{p} + 112]",
                    "movaps [{q} + 64], xmm0", "movaps [{q} + 80], xmm1",
                    "movaps [{q} + 96], xmm2", "movaps [{q} + 112], xmm3",
                    "add {p}, 128", "add {q}, 128", "dec {n}", "jnz 2b",
                    p = inout(reg) start => _, q = inout(reg) start.add(half) => _,
                    n = inout(reg) half / TURN => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                );
                return half;
            }
        }
    }
    len
}

/// The buffer of each thread: beyond the last cache, where the limit allows it.
fn buffer(setting: &Setting, threads: usize) -> usize {
    let wanted = (4 * setting.last_cache()).max(64 << 20);
    let each = wanted.min(setting.memory_limit) as usize / threads;
    (each / 2 / TURN * TURN * 2).max(1 << 20)
}

/// Sweeps with several threads at once; a sample is from their common start to the last end.
fn sweep_together(
    setting: &Setting,
    m: &mut Sampler,
    access: Access,
    threads: usize,
    each: usize,
) -> Result<(), Skip> {
    let mut buffers = (0..threads)
        .map(|_| {
            let buffer = Mapping::anonymous(each, Pages::Large)?;
            buffer.populate();
            Ok(buffer)
        })
        .collect::<Result<Vec<_>, std::io::Error>>()
        .map_err(Skip::because("mmap"))?;
    let clock = m.clock();
    if threads == 1 {
        return m.collect(|| {
            let start = clock.start();
            sweep(&mut buffers[0], access);
            Ok(clock.stop().saturating_sub(start))
        });
    }
    let cpus = &setting.cpus;
    m.collect(|| {
        let (go, ready) = (AtomicU32::new(WAIT), AtomicU32::new(0));
        let done = Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            for (i, buffer) in buffers.iter_mut().enumerate() {
                let (go, ready, done) = (&go, &ready, &done);
                let cpu = cpus.get(i % cpus.len().max(1)).copied();
                let spawned = std::thread::Builder::new().spawn_scoped(scope, move || {
                    // A kernel without affinity distributes the threads by itself.
                    let _ = cpu.map(|cpu| pin(&[cpu]));
                    ready.fetch_add(1, Ordering::Release);
                    while go.load(Ordering::Acquire) == WAIT {
                        std::thread::yield_now();
                    }
                    if go.load(Ordering::Acquire) == GO {
                        sweep(buffer, access);
                        done.wait();
                    }
                });
                if let Err(error) = spawned {
                    go.store(GIVE_UP, Ordering::Release);
                    return Err(Skip(format!("creating a thread: {error}")));
                }
            }
            while ready.load(Ordering::Acquire) < threads as u32 {
                std::thread::yield_now();
            }
            let start = clock.start();
            go.store(GO, Ordering::Release);
            done.wait();
            Ok(clock.stop().saturating_sub(start))
        })
    })
}

/// Signals to the threads: wait, start, or exit because not all of them could be created.
const WAIT: u32 = 0;
const GO: u32 = 1;
const GIVE_UP: u32 = 2;

/// The experiments of this file.
pub fn experiments(setting: &Setting) -> Vec<Experiment> {
    let most = setting.cpus.len().max(1);
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    let mut all = Vec::new();
    for access in [Access::Read, Access::Write, Access::Copy] {
        for threads in counts.iter().copied() {
            let each = buffer(setting, threads);
            let moved = if access == Access::Copy { each / 2 } else { each };
            let word = access.word();
            all.push(
                Experiment::bandwidth(
                    format!("memory/bandwidth/{word}/{threads}"),
                    format!("memory {word} with {threads} {}", if threads == 1 { "thread" } else { "threads" }),
                    (moved * threads) as u64,
                    move |s, m| sweep_together(s, m, access, threads, each),
                )
                .method("one sweep by aligned 16-byte accesses over more than the last cache holds; copying counts each byte once")
                .at(format!("memory {word}"), threads as f64, "threads")
                .rounds_at_most(5)
                .hardware(1.0 / threads as f64, access.primitive(), "one thread alone, and no limit of the bus"),
            );
        }
    }
    all
}
