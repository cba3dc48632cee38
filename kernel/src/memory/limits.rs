//! How much a process may map and lock.
//!
//! The limit on locked memory does not bind a caller with `CAP_IPC_LOCK`. This is checked when a
//! caller would exceed the limit, not when the space is made, because programs drop privileges, and
//! processes with different privileges may share a space.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicUsize};

use machine::sync::Once;

/// How much a process may map, in bytes: copies of its resource limits, kept where they are
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: usize,
    /// `RLIMIT_DATA`.
    pub data: usize,
    /// `RLIMIT_STACK`.
    pub stack: usize,
    /// `RLIMIT_MEMLOCK`, which does not bind privileged callers; see [`may_lock`].
    pub locked: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let none = usize::MAX;
        Limits { address_space: none, data: none, stack: 8 << 20, locked: 8 << 20 }
    }
}

/// [`Limits`] that other threads may change.
#[derive(Default)]
pub struct AtomicLimits {
    address_space: AtomicUsize,
    data: AtomicUsize,
    stack: AtomicUsize,
    locked: AtomicUsize,
}

impl AtomicLimits {
    /// The limits in force.
    #[inline]
    pub fn get(&self) -> Limits {
        Limits {
            address_space: self.address_space.load(Relaxed),
            data: self.data.load(Relaxed),
            stack: self.stack.load(Relaxed),
            locked: self.locked.load(Relaxed),
        }
    }

    /// Sets other limits.
    #[inline]
    pub fn set(&self, limits: Limits) {
        self.address_space.store(limits.address_space, Relaxed);
        self.data.store(limits.data, Relaxed);
        self.stack.store(limits.stack, Relaxed);
        self.locked.store(limits.locked, Relaxed);
    }
}

static PRIVILEGED: Once<fn() -> bool> = Once::new();

/// Sets the function that tells whether the running thread may lock without limit (`CAP_IPC_LOCK`),
/// since that is a property of processes. Boot calls it once.
pub fn set_privilege(ask: fn() -> bool) {
    PRIVILEGED.call_once(|| ask);
}

/// Whether `more` bytes may be locked besides `locked` ones, under a limit of `limit`.
#[inline]
pub(super) fn may_lock(more: usize, locked: usize, limit: usize) -> bool {
    more <= limit.saturating_sub(locked) || is_privileged()
}

/// Whether the running thread may lock without limit.
#[cold]
pub(super) fn is_privileged() -> bool {
    PRIVILEGED.get().is_some_and(|ask| ask())
}

/// The largest number of regions in a space (`vm.max_map_count`).
static MOST_REGIONS: AtomicU32 = AtomicU32::new(65530);

/// The largest number of regions that a space may get (`vm.max_map_count`).
pub fn most_regions() -> usize {
    MOST_REGIONS.load(Relaxed) as usize
}

/// Sets [`most_regions`]. A space that has more regions keeps them.
pub fn set_most_regions(most: u32) {
    MOST_REGIONS.store(most, Relaxed);
}
