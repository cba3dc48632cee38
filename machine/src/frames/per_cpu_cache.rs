//! The per-CPU caches: free frames that a processor takes and gives without a lock.
//!
//! Each processor has two: frames with undefined content, and frames that are all zeroes.

use crate::cpu::{MAX_CPUS, PerCpu};
use crate::per_cpu;
use hayate_frames::Stack;

/// How many frames of each sort a processor keeps; it takes half as many at a time.
const MOST: usize = 128;
/// How many zeroed frames each processor keeps.
pub(super) const ZEROED: usize = 64;

/// One processor's private frames. Only that processor changes them, with interrupts off; other
/// processors read the counts.
pub(super) struct PerCpuCache {
    pub(super) free: Stack<MOST>,
    pub(super) zeroed: Stack<ZEROED>,
}

per_cpu! {
    static OWN: PerCpu<PerCpuCache> =
        PerCpu::new(PerCpuCache { free: Stack::new(), zeroed: Stack::new() });
}

/// Returns this processor's cache.
#[inline(always)]
pub(super) fn own() -> &'static PerCpuCache {
    OWN.here()
}

/// Returns how many frames are in the caches of all processors.
pub(super) fn count() -> usize {
    let of_cpu = |own: &PerCpuCache| own.free.len() + own.zeroed.len();
    (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)).map(of_cpu).sum()
}
