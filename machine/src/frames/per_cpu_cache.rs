//! The per-CPU caches: free frames that a processor takes and gives without a lock.
//!
//! Each processor has three: frames with undefined content, frames that are all zeroes, and runs of
//! contiguous frames.

use crate::cpu::{MAX_CPUS, PerCpu};
use crate::per_cpu;
use hayate_frames::Stack;

/// How many frames of each sort a processor keeps; it takes half as many at a time.
const MOST: usize = 128;
/// How many zeroed frames each processor keeps.
pub(super) const ZEROED: usize = 64;
/// How many frames a run has: 32 KiB, as much as Linux gives a socket at a time
/// (`SKB_FRAG_PAGE_ORDER`). A power of two.
pub const RUN: u32 = 8;
/// How many runs each processor keeps; it takes half as many at a time.
const RUNS: usize = 8;

/// One processor's private frames. Only that processor changes them, with interrupts off; other
/// processors read the counts.
pub(super) struct PerCpuCache {
    pub(super) free: Stack<MOST>,
    pub(super) zeroed: Stack<ZEROED>,
    /// The first frames of runs.
    pub(super) runs: Stack<RUNS>,
}

per_cpu! {
    static OWN: PerCpu<PerCpuCache> = PerCpu::new(PerCpuCache {
        free: Stack::new(),
        zeroed: Stack::new(),
        runs: Stack::new(),
    });
}

/// Returns this processor's cache.
#[inline(always)]
pub(super) fn own() -> &'static PerCpuCache {
    OWN.here()
}

/// Returns how many frames are in the caches of all processors.
pub(super) fn count() -> usize {
    let of_cpu =
        |own: &PerCpuCache| own.free.len() + own.zeroed.len() + own.runs.len() * RUN as usize;
    (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)).map(of_cpu).sum()
}
