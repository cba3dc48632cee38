//! A pool with one part for each processor: the rules by which resources are handed over.
//!
//! A [`PerCpuPool`] holds resources under keys. Each processor has a part of its own, a
//! [`Pool`] under a spin lock, and these rules hold for all of them:
//!
//! * **Storing.** A resource goes into the part of the processor that stores it, where its memory
//!   is most likely in the caches.
//! * **Taking.** The own part is searched first, and the newest match is taken. The other parts are
//!   searched only when the own one has no match, and a part whose lock is held is skipped:
//!   to make a resource anew is cheaper than to wait ([`own_first`]).
//! * **Limit.** The pool's limit is divided equally among the parts. A part above its share gives
//!   up its oldest resources.
//! * **Giving up.** Under memory pressure the oldest resource of all parts is dropped first. Each
//!   resource knows when it was stored.
//! * **Forgetting.** When a file is deleted, whatever refers to its page cache is dropped.
//! * **Counting.** Every resource that comes or goes is counted by its kind
//!   ([`statistics`]), on the processor where that happens.
//!
//! A pool says only what differs: the [`Resource`].
//!
//! Lock order: a part's lock is a leaf. No resource is dropped, filled or restored under it,
//! because that may close files or take the locks of a space. At most one part is locked at a time.
//!
//! Cost: the functions of the start path ([`PerCpuPool::take`], [`PerCpuPool::store`]) are inlined
//! and have no dynamic call: one uncontended lock, the search in one chain, and the counts. To find
//! the oldest resource, all parts are locked one after the other; only a lack of frames asks for
//! it.
//!
//! Two pools are not built on this. [`super::empty_spaces`] needs neither keys nor ages, and a
//! fork's child should pay for neither: its parts are short arrays, which share [`own_first`] with
//! this pool. [`super::stacks`] has no parts here, because `machine::stack` keeps the stacks where
//! the switch of contexts finds them.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use hayate_recycler::{Fingerprint, Pool, ResourceKind, Stored};
use machine::cpu::{self, MAX_CPUS};
use machine::sync::SpinLock;

use super::{pools, statistics};

/// The differences from pool to pool.
pub trait Resource: Send + Sized + 'static {
    /// The part that a taker's key must be equal to.
    type Key: Fingerprint + PartialEq + Send;

    /// The kind under which it is counted.
    const KIND: ResourceKind;

    /// Whether the policy in force allows such resources to be kept.
    fn is_wanted() -> bool;

    /// When it was stored or made (monotonic clock, nanoseconds).
    fn since(&self) -> u64;

    /// Whether [`since`](Self::since) is when it was last used: not if takers share it.
    const KNOWS_AGES: bool = true;

    /// Whether it must be dropped before the page cache with this number is deleted.
    fn refers_to(&self, key: &Self::Key, page_cache: u64) -> bool;
}

/// One processor's part.
type CpuPart<V> = SpinLock<Pool<<V as Resource>::Key, V>>;

/// Stored resources, with a part for each processor.
pub struct PerCpuPool<V: Resource> {
    parts: [CpuPart<V>; MAX_CPUS],
    /// The bytes that all parts together may hold.
    limit: AtomicUsize,
}

/// Takes something from this processor's part, or else from the first other part that has it and
/// is not locked.
#[inline]
pub fn own_first<P, T>(
    parts: &[SpinLock<P>; MAX_CPUS],
    mut take: impl FnMut(&mut P) -> Option<T>,
) -> Option<T> {
    let own = cpu::id();
    let mut taken = take(&mut parts[own].lock());
    if taken.is_none() {
        let others = (0..cpu::count()).filter(|&other| other != own);
        taken = others.filter_map(|other| take(&mut *parts[other].try_lock()?)).next();
    }
    taken
}

impl<V: Resource> PerCpuPool<V> {
    /// A pool that keeps nothing until [`init`](Self::init) has given it a limit.
    pub(super) const fn new() -> Self {
        PerCpuPool {
            parts: [const { SpinLock::new(Pool::new(0)) }; MAX_CPUS],
            limit: AtomicUsize::new(0),
        }
    }

    /// Sets the limit and adds the pool to the list of all; boot calls it once.
    pub fn init(&'static self, limit: usize) {
        pools::AnyPool::set_limit(self, limit);
        pools::register(self);
    }

    /// Stores a resource of `bytes`, or drops it if it exceeds the limit or memory is exhausted.
    /// Call it without locks, because the values that it displaces are dropped here.
    #[inline]
    pub fn store(&self, key: V::Key, value: V, bytes: usize) {
        let part = &self.parts[cpu::id()];
        // A refused value is dropped after the lock is released.
        let stored = part.lock().store(key, value, bytes);
        if stored.is_ok() {
            statistics::stored(V::KIND, bytes);
            drop_excess(part);
        }
    }

    /// Takes the newest resource with this key that `fits`. The caller counts it as reused, or as
    /// dropped.
    #[inline]
    pub fn take(&self, key: &V::Key, fits: impl Fn(&V) -> bool) -> Option<Stored<V::Key, V>> {
        own_first(&self.parts, |part| part.take_if(key, &fits))
    }

    /// The newest resource with this key in this processor's part, for a resource that many users
    /// share: it stays.
    #[inline]
    pub fn share(&self, key: &V::Key) -> Option<V>
    where
        V: Clone,
    {
        let shared = self.parts[cpu::id()].lock().get(key).cloned()?;
        statistics::shared(V::KIND);
        Some(shared)
    }

    /// The parts, to show what they hold.
    pub fn parts(&self) -> impl Iterator<Item = &CpuPart<V>> {
        self.parts.iter()
    }
}

/// Drops what a part holds above its share. The lock is not held while a resource is dropped.
#[inline]
fn drop_excess<V: Resource>(part: &CpuPart<V>) {
    loop {
        let gone = part.lock().excess();
        let Some(gone) = gone else { return };
        statistics::dropped(V::KIND, gone.bytes);
    }
}

/// When the oldest resource of a part was stored.
fn oldest<V: Resource>(part: &CpuPart<V>) -> Option<u64> {
    part.lock().iter().next().map(|oldest| oldest.value.since())
}

impl<V: Resource> pools::AnyPool for PerCpuPool<V> {
    fn kind(&self) -> ResourceKind {
        V::KIND
    }

    fn is_wanted(&self) -> bool {
        V::is_wanted()
    }

    fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Relaxed);
        for part in &self.parts {
            part.lock().set_limit(bytes / cpu::count().max(1));
            drop_excess(part);
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.parts.iter().filter_map(oldest).min()
    }

    fn knows_ages(&self) -> bool {
        V::KNOWS_AGES
    }

    fn drop_oldest(&self) -> Option<usize> {
        let ages = self.parts.iter().filter_map(|part| Some((oldest(part)?, part)));
        let (_, part) = ages.min_by_key(|(since, _)| *since)?;
        let gone = part.lock().take_oldest()?;
        statistics::dropped(V::KIND, gone.bytes);
        Some(gone.bytes)
    }

    fn forget_page_cache(&self, id: u64) {
        for part in &self.parts {
            loop {
                let gone = part.lock().take_where(|key, value| value.refers_to(key, id));
                let Some(gone) = gone else { break };
                statistics::dropped(V::KIND, gone.bytes);
            }
        }
    }
}
