//! All pools: listing them, limiting them, dropping their contents.
//!
//! A pool belongs to the module whose resources it keeps; that module registers it here at boot.
//! Under memory pressure kept resources are the first to be dropped, the oldest first whatever
//! their kind: [`relieve`].

use arrayvec::ArrayVec;
use hayate_recycler::{ResourceCounts, ResourceKind};
use machine::layout::PAGE_SIZE;
use machine::sync::SpinLock;

use super::statistics;
use crate::reclaim;
use crate::reclaim::Cache;

/// A pool of kept resources. Its functions are called without locks and may sleep, because dropping
/// may close files.
pub trait AnyPool: Send + Sync {
    /// The kind of resource that it keeps.
    fn kind(&self) -> ResourceKind;

    /// Whether the policy allows it to keep anything.
    fn is_wanted(&self) -> bool;

    /// The most that it may keep, in bytes.
    fn limit(&self) -> usize;

    /// Changes the limit and drops what exceeds it.
    fn set_limit(&self, bytes: usize);

    /// When its oldest resource was stored (monotonic clock, nanoseconds); `None` if it is empty.
    fn oldest(&self) -> Option<u64>;

    /// Whether [`oldest`](Self::oldest) tells when the resource was last used.
    fn knows_ages(&self) -> bool {
        true
    }

    /// For how many periods a resource is kept that nobody uses ([`drop_unused`]): more where it is
    /// worth more.
    fn patience(&self) -> u64 {
        1
    }

    /// Drops its oldest resource; returns the bytes that took, `None` if the pool is empty.
    fn drop_oldest(&self) -> Option<usize>;

    /// Follows a change of the policy. The caller then drops what the new one does not allow.
    fn follow_policy(&self) {}

    /// The counts of its resources, if [`statistics`] does not count them.
    fn counts(&self) -> ResourceCounts {
        ResourceCounts::default()
    }

    /// Drops what it keeps of a page cache (number `id`), so that the file can be deleted.
    fn forget_page_cache(&self, id: u64) {
        let _ = id;
    }
}

/// The most pools.
const MOST: usize = 16;

static POOLS: SpinLock<ArrayVec<&'static dyn AnyPool, MOST>> = SpinLock::new(ArrayVec::new_const());

/// Adds a pool; at boot, once each.
///
/// # Panics
/// If there are more pools than the list has places: a mistake in the kernel.
pub fn register(pool: &'static dyn AnyPool) {
    if POOLS.lock().try_push(pool).is_err() {
        panic!("more pools than the list of them has places");
    }
    reclaim::register_kept(&AllPools);
}

/// The pools, as memory to give up when frames run out.
struct AllPools;

impl Cache for AllPools {
    fn shrink(&self, most: usize) -> usize {
        relieve(most * PAGE_SIZE).div_ceil(PAGE_SIZE)
    }
}

/// All pools.
pub fn all() -> ArrayVec<&'static dyn AnyPool, MOST> {
    POOLS.lock().clone()
}

/// Drops the oldest kept resources of all kinds until `bytes` are free; returns the bytes freed.
/// Zero: nothing is kept. Called when frames run out, without locks.
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
    // Dropping a resource of zero bytes is progress too.
    freed.max(usize::from(any))
}

/// Drops one kept resource that nobody used for a period before `now` (monotonic clock and period
/// in nanoseconds), or for as many as its pool has [patience](AnyPool::patience). In an idle
/// machine also one whose pool knows no ages. False: there is none. Called without locks.
pub fn drop_unused(now: u64, period: u64, is_idle: bool) -> bool {
    let is_unused = |pool: &dyn AnyPool, since: u64| {
        let patience = period.saturating_mul(pool.patience());
        if pool.knows_ages() { now.saturating_sub(since) >= patience } else { is_idle }
    };
    all().iter().any(|pool| {
        pool.oldest().is_some_and(|since| is_unused(*pool, since)) && pool.drop_oldest().is_some()
    })
}

/// Whether nothing is kept in any pool.
pub fn are_empty() -> bool {
    all().iter().all(|pool| pool.oldest().is_none())
}

/// Drops everything kept of a kind, or of all kinds; returns the bytes freed.
pub fn drop_all(kind: Option<ResourceKind>) -> usize {
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

/// Drops what is kept of a page cache, before its file or file system is removed.
pub fn forget_page_cache(id: u64) {
    for pool in all() {
        pool.forget_page_cache(id);
    }
}

/// Sets how much is kept of a kind, in bytes, in all its pools together. Returns false if no pool
/// keeps that kind.
pub fn set_limit(kind: ResourceKind, bytes: usize) -> bool {
    let pools = all();
    let count = pools.iter().filter(|pool| pool.kind() == kind).count();
    for pool in pools.iter().filter(|pool| pool.kind() == kind) {
        pool.set_limit(bytes / count);
    }
    count != 0
}

/// The most that is kept of a kind, in bytes, in all its pools; `None` if no pool keeps it.
pub fn limit(kind: ResourceKind) -> Option<usize> {
    let limits = all().into_iter().filter(|pool| pool.kind() == kind).map(|pool| pool.limit());
    limits.reduce(usize::saturating_add)
}

/// The counts of a kind, summed over all pools and processors.
pub fn counts(kind: ResourceKind) -> ResourceCounts {
    let mut sum = statistics::counts(kind);
    for pool in all().iter().filter(|pool| pool.kind() == kind) {
        sum += pool.counts();
    }
    sum
}

/// Notifies the pools of another policy and empties those that it does not allow.
pub fn follow_policy() {
    for pool in all() {
        pool.follow_policy();
        if !pool.is_wanted() {
            while pool.drop_oldest().is_some() {}
        }
    }
}
