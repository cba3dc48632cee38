//! Empty spaces, kept for the next process that needs one.
//!
//! A space that cannot be kept with its program in it ([`super::spaces`]: a fork's child has no
//! origin of its own, or the policy does not allow it) is emptied when its last user has released
//! it: the map is dropped, and all page tables below the root. The root with the kernel's half, the
//! record and its entry on the list of all spaces stay, and serve any process next: nothing of the
//! last program is left in them.
//!
//! Each processor has a small array of them, with the rules of [`super::per_cpu_pool`], which also
//! says why this is not a [`PerCpuPool`](super::per_cpu_pool::PerCpuPool). The spaces have no age,
//! because recording it would cost a clock read at each process's end. They count as the oldest of
//! all pools' contents and so are freed first: each is cheap to make anew.
//!
//! A space that was in supervisor mode is not kept, because its root has another privilege level.
//! The contents of a large space are freed later, as when it is dropped (`paging::teardown`).
//!
//! Lock order: a part's lock is a leaf; spaces are emptied and dropped outside of it.

use alloc::sync::Arc;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use hayate_abi::Result;
use hayate_recycler::{KeptKinds, ResourceKind};
use machine::cpu::{self, MAX_CPUS};
use machine::sync::SpinLock;

use super::per_cpu_pool::own_first;
use super::{policy, pools, statistics};
use crate::memory::attachments;
use crate::memory::layout::Layout;
use crate::memory::limits::Limits;
use crate::memory::page::PAGE;
use crate::memory::space::{Inner, Space};
use crate::reclaim;

/// The most spaces that one processor keeps.
const MOST: usize = 32;

/// The size of one space: its root page table and its record, in bytes.
const SIZE: usize = PAGE + size_of::<Space>();

/// One processor's empty spaces.
type CpuPart = SpinLock<ArrayVec<Arc<Space>, MOST>>;

static PARTS: [CpuPart; MAX_CPUS] = [const { SpinLock::new(ArrayVec::new_const()) }; MAX_CPUS];
/// The bytes that all parts together may hold.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The pools of empty spaces, for [`pools`].
struct Spaces;

/// Sets the limit and registers the pools; boot calls it once.
pub fn init() {
    LIMIT.store(cpu::count() * MOST * SIZE, Relaxed);
    pools::register(&Spaces);
}

/// The most spaces that each part may hold now.
fn most() -> usize {
    (LIMIT.load(Relaxed) / SIZE / cpu::count().max(1)).min(MOST)
}

/// Takes an empty space, if one is kept.
pub fn take(layout: Layout) -> Option<Arc<Space>> {
    if !policy::keeps(KeptKinds::SPACE) {
        return None;
    }
    let space = own_first(&PARTS, |part| part.pop())?;
    space.begin_as_new(layout);
    statistics::reused(ResourceKind::Space, SIZE);
    Some(space)
}

/// Empties a space that has no other user, and keeps it if the policy wants it; else drops it. Call
/// it without locks, since dropping its mappings may close files.
pub fn keep(space: Arc<Space>) {
    if !policy::keeps(KeptKinds::SPACE) {
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
        statistics::stored(ResourceKind::Space, SIZE);
    }
}

/// An empty space for `layout`: a kept one, or one made now.
fn obtain(layout: Layout) -> Result<Arc<Space>> {
    match take(layout) {
        Some(space) => Ok(space),
        None => Space::make(layout),
    }
}

impl Space {
    /// An empty space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(layout: Layout, limits: Limits) -> Result<Arc<Space>> {
        reclaim::leave_room()?;
        let space = obtain(layout)?;
        space.set_limits(limits);
        Ok(space)
    }

    /// Makes a copy for the child of a fork ([`copy_to`](Self::copy_to)).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fork(&self) -> Result<Arc<Space>> {
        let child = obtain(self.layout())?;
        let owner = self.table.owner();
        if owner != 0 {
            child.charge_to(owner);
        }
        self.copy_to(&child)?;
        Ok(child)
    }

    /// Takes everything out of the space. Returns what its map held, to be dropped without the
    /// lock.
    fn clear(&self) -> Inner {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        edit.clear();
        if inner.has_segments {
            attachments::note_ended(inner);
        }
        let layout = inner.layout;
        core::mem::replace(inner, Inner::empty(layout))
    }
}

impl pools::AnyPool for Spaces {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Space
    }

    fn is_wanted(&self) -> bool {
        policy::keeps(KeptKinds::SPACE)
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
                statistics::dropped(ResourceKind::Space, SIZE);
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        PARTS.iter().any(|part| !part.lock().is_empty()).then_some(0)
    }

    fn knows_ages(&self) -> bool {
        false
    }

    fn drop_oldest(&self) -> Option<usize> {
        let gone = PARTS.iter().find_map(|part| part.lock().pop())?;
        drop(gone);
        statistics::dropped(ResourceKind::Space, SIZE);
        Some(SIZE)
    }
}
