//! Which processors run the kernel.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::local::MAX_CPUS;

static ONLINE: AtomicUsize = AtomicUsize::new(0);

/// How many CPUs run the kernel now; they are numbered from 0.
#[inline]
pub fn count() -> usize {
    ONLINE.load(Ordering::Relaxed)
}

/// Counts CPU `cpu` as online; CPUs come up one after the other.
pub(crate) fn set_online(cpu: usize) {
    ONLINE.fetch_max(cpu + 1, Ordering::Release);
}

/// The mask of all CPUs that run the kernel.
pub fn online_mask() -> u64 {
    u64::MAX >> (MAX_CPUS - count().clamp(1, MAX_CPUS))
}
