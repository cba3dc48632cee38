//! Counts of resources made, reused, stored and dropped, for each kind.
//!
//! Each processor counts for itself with plain loads and stores; [`counts`] adds them up. A sum
//! taken while others count is close, not exact.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use hayate_recycler::{ResourceCounts, ResourceKind};
use machine::cpu::{MAX_CPUS, PerCpu};
use machine::per_cpu;

/// One processor's counts of one kind.
struct Own {
    made: AtomicU64,
    reused: AtomicU64,
    stored: AtomicU64,
    dropped: AtomicU64,
    /// The number and bytes of kept resources. Only the sums over all processors are meaningful,
    /// since one processor may store what another takes out.
    kept: AtomicU64,
    bytes: AtomicU64,
}

impl Own {
    const fn new() -> Own {
        Own {
            made: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

per_cpu! {
    static OWN: PerCpu<[Own; ResourceKind::COUNT]> =
        PerCpu::new([const { Own::new() }; ResourceKind::COUNT]);
}

/// Adds to a counter that only this processor writes.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Counts a resource that was made new.
#[inline]
pub fn made(kind: ResourceKind) {
    add(&OWN.here()[kind.index()].made, 1);
}

/// Counts a resource of `bytes` that was put into a pool.
#[inline]
pub fn stored(kind: ResourceKind, bytes: usize) {
    let own = &OWN.here()[kind.index()];
    add(&own.stored, 1);
    add(&own.kept, 1);
    add(&own.bytes, bytes as u64);
}

/// Counts a resource of `bytes` that was taken out of a pool to be used.
#[inline]
pub fn reused(kind: ResourceKind, bytes: usize) {
    let own = &OWN.here()[kind.index()];
    add(&own.reused, 1);
    add(&own.kept, 1u64.wrapping_neg());
    add(&own.bytes, (bytes as u64).wrapping_neg());
}

/// Counts a use of a resource that stays in its pool (a program record, which many share).
#[inline]
pub fn shared(kind: ResourceKind) {
    add(&OWN.here()[kind.index()].reused, 1);
}

/// Counts a resource of `bytes` that was dropped from a pool.
#[inline]
pub fn dropped(kind: ResourceKind, bytes: usize) {
    let own = &OWN.here()[kind.index()];
    add(&own.dropped, 1);
    add(&own.kept, 1u64.wrapping_neg());
    add(&own.bytes, (bytes as u64).wrapping_neg());
}

/// The counts of a kind, summed over all processors.
pub fn counts(kind: ResourceKind) -> ResourceCounts {
    let mut sum = ResourceCounts::default();
    for all in (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)) {
        let own = &all[kind.index()];
        sum += ResourceCounts {
            made: own.made.load(Relaxed),
            reused: own.reused.load(Relaxed),
            stored: own.stored.load(Relaxed),
            dropped: own.dropped.load(Relaxed),
            kept: own.kept.load(Relaxed),
            bytes: own.bytes.load(Relaxed),
        };
    }
    // A sum read while others count may be off by a few, even below zero.
    let floor = |count: u64| (count as i64).max(0) as u64;
    (sum.kept, sum.bytes) = (floor(sum.kept), floor(sum.bytes));
    sum
}
