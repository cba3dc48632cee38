//! All pools: to list them, to limit them, to have them drop what they hold.
//!
//! A pool belongs to the module whose resources it keeps; that module registers it here at boot.
//! Under memory pressure what is kept is the first to go, the oldest first whatever its kind:
//! [`relieve`].

use arrayvec::ArrayVec;
use hayate_recycler::{Counts, Kind};
use machine::sync::SpinLock;

use super::statistics;

/// A pool of kept resources. Its functions are called without locks and may sleep: what is dropped
/// may close files.
pub trait Keeper: Send + Sync {
    /// The kind of what it keeps.
    fn kind(&self) -> Kind;

    /// Whether the policy wants it to keep anything.
    fn is_wanted(&self) -> bool;

    /// How much it may keep, in bytes.
    fn limit(&self) -> usize;

    /// Changes the limit; drops what is then too much.
    fn set_limit(&self, bytes: usize);

    /// When the oldest thing in it was stored (monotonic clock, nanoseconds); `None`: it is empty.
    fn oldest(&self) -> Option<u64>;

    /// Drops the oldest thing in it; the bytes it took, `None` if the pool is empty.
    fn drop_oldest(&self) -> Option<usize>;

    /// Another policy is in force; what it does not want is dropped after this.
    fn follow_policy(&self) {}

    /// What became of what it keeps, if that is not counted by [`statistics`](super::statistics).
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Drops what it keeps of a plate (number `id`), so that the file can go.
    fn forget_plate(&self, id: u64) {
        let _ = id;
    }
}

/// How many pools there may be.
const MOST: usize = 16;

static POOLS: SpinLock<ArrayVec<&'static dyn Keeper, MOST>> = SpinLock::new(ArrayVec::new_const());

/// Adds a pool; at boot, once each.
///
/// # Panics
/// If there are more pools than the list has places: a mistake in the kernel.
pub fn register(pool: &'static dyn Keeper) {
    if POOLS.lock().try_push(pool).is_err() {
        panic!("more pools than the list of them has places");
    }
}

/// All pools.
pub fn all() -> ArrayVec<&'static dyn Keeper, MOST> {
    POOLS.lock().clone()
}

/// Drops the oldest kept things of all kinds until `bytes` are free; gives how many bytes it was.
/// Zero: nothing is kept. Called by memory when frames run out, without locks.
pub fn relieve(bytes: usize) -> usize {
    let pools = all();
    let mut freed = 0;
    let mut any = false;
    while freed < bytes.max(1) {
        let oldest = pools.iter().filter_map(|pool| Some((pool.oldest()?, pool)));
        let Some((_, pool)) = oldest.min_by_key(|(since, _)| *since) else { break };
        if let Some(gone) = pool.drop_oldest() {
            freed += gone;
            any = true;
        }
    }
    // Something without weight is progress too.
    freed.max(usize::from(any))
}

/// Drops everything kept of a kind, or of all kinds; gives how many bytes it was.
pub fn drop_all(kind: Option<Kind>) -> usize {
    let mut freed = 0;
    for pool in all() {
        if kind.is_none_or(|kind| kind == pool.kind()) {
            while let Some(gone) = pool.drop_oldest() {
                freed += gone;
            }
        }
    }
    freed
}

/// Drops what is kept of a plate: its file is about to go, or its file system.
pub fn forget_plate(id: u64) {
    for pool in all() {
        pool.forget_plate(id);
    }
}

/// Sets how much is kept of a kind, in bytes, in all its pools together. `false`: no pool keeps it.
pub fn set_limit(kind: Kind, bytes: usize) -> bool {
    let pools = all();
    let count = pools.iter().filter(|pool| pool.kind() == kind).count();
    for pool in pools.iter().filter(|pool| pool.kind() == kind) {
        pool.set_limit(bytes / count);
    }
    count != 0
}

/// How much is kept of a kind at most, in bytes, in all its pools; `None`: no pool keeps it.
pub fn limit(kind: Kind) -> Option<usize> {
    let limits = all().into_iter().filter(|pool| pool.kind() == kind).map(|pool| pool.limit());
    limits.reduce(usize::saturating_add)
}

/// What became of a kind, of all pools and processors.
pub fn counts(kind: Kind) -> Counts {
    let mut sum = statistics::counts(kind);
    for pool in all().iter().filter(|pool| pool.kind() == kind) {
        sum += pool.counts();
    }
    sum
}

/// Tells the pools of another policy and empties those that it does not want.
pub(super) fn follow_policy() {
    for pool in all() {
        pool.follow_policy();
        if !pool.is_wanted() {
            while pool.drop_oldest().is_some() {}
        }
    }
}
