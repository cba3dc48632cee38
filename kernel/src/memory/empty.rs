//! Empty spaces, kept for the next process that needs one.
//!
//! A space that cannot be kept with its program in it ([`super::keep`]: a fork's child has no origin
//! of its own, or the policy does not want it) is emptied when its last user has left: the map goes,
//! and everything below the root. What stays, the root with the kernel's half in it, the record and its
//! place on the list of all spaces, serves any process next: nothing of the last one is in it.
//!
//! Each processor has a few at hand; taking looks into the others' only when the own ones are used up.
//! They have no age, as telling it would cost every end a clock: they pass for the oldest of all that is
//! kept, and so go first. None is much work to make anew.
//!
//! A space that was in supervisor mode is not kept: its root has another privilege. What a large one holds
//! is given back when there is time for it, as when it is dropped (`paging::teardown`).
//!
//! Lock order: a part's lock is a leaf; spaces are emptied and dropped outside of it.

use alloc::sync::Arc;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use hayate_recycler::{Keep, Kind};
use machine::cpu::{self, MAX_CPUS};
use machine::sync::SpinLock;

use super::PAGE;
use super::layout::Layout;
use super::space::{Inner, Space};
use crate::resource::{policy, pools, statistics};

/// How many a processor has at hand at most.
const MOST: usize = 32;

/// What one takes: its root, and its record.
const SIZE: usize = PAGE + size_of::<Space>();

type Part = SpinLock<ArrayVec<Arc<Space>, MOST>>;

static PARTS: [Part; MAX_CPUS] = [const { SpinLock::new(ArrayVec::new_const()) }; MAX_CPUS];
/// What all parts together may hold, in bytes.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The pools of empty spaces, for [`pools`].
struct Spaces;

/// Sets the limit and registers the pools; boot calls it once.
pub fn init() {
    LIMIT.store(cpu::count() * MOST * SIZE, Relaxed);
    pools::register(&Spaces);
}

/// How many each part may hold.
fn most() -> usize {
    (LIMIT.load(Relaxed) / SIZE / cpu::count().max(1)).min(MOST)
}

/// Takes one.
pub(super) fn take(layout: Layout) -> Option<Arc<Space>> {
    if !policy::keeps(Keep::SPACE) {
        return None;
    }
    let own = cpu::id();
    let mut kept = PARTS[own].lock().pop();
    if kept.is_none() {
        let others = (0..cpu::count()).filter(|&other| other != own);
        kept = others.filter_map(|other| PARTS[other].try_lock()?.pop()).next();
    }
    let space = kept?;
    space.begin_as_new(layout);
    statistics::reused(Kind::Space, SIZE);
    Some(space)
}

/// Empties a space that nobody uses any more, and keeps it if it is wanted; else it goes. Call it
/// without locks: what it maps may close files.
pub(super) fn keep(space: Arc<Space>) {
    if !policy::keeps(Keep::SPACE) {
        return;
    }
    // Dropped here, after the space's lock.
    let _gone = space.clear();
    let part = &PARTS[cpu::id()];
    let most = most();
    let refused = {
        let mut part = part.lock();
        if part.len() < most {
            part.try_push(space).err().map(|error| error.element())
        } else {
            Some(space)
        }
    };
    if refused.is_none() {
        statistics::stored(Kind::Space, SIZE);
    }
}

impl Space {
    /// Takes everything out of it. What its map held comes back, to be dropped without the lock.
    fn clear(&self) -> Inner {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        edit.clear();
        let layout = inner.layout;
        core::mem::replace(inner, Inner::empty(layout))
    }
}

impl pools::Keeper for Spaces {
    fn kind(&self) -> Kind {
        Kind::Space
    }

    fn is_wanted(&self) -> bool {
        policy::keeps(Keep::SPACE)
    }

    fn limit(&self) -> usize {
        LIMIT.load(Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        LIMIT.store(bytes, Relaxed);
        for part in &PARTS {
            loop {
                let gone = {
                    let mut part = part.lock();
                    if part.len() > most() { part.pop() } else { None }
                };
                if gone.is_none() {
                    break;
                }
                statistics::dropped(Kind::Space, SIZE);
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        PARTS.iter().any(|part| !part.lock().is_empty()).then_some(0)
    }

    fn drop_oldest(&self) -> Option<usize> {
        let gone = PARTS.iter().find_map(|part| part.lock().pop())?;
        drop(gone);
        statistics::dropped(Kind::Space, SIZE);
        Some(SIZE)
    }
}
