//! The state in which all starts from one image or template begin, and the spaces that earlier ones
//! left: see [`crate::recycle::heirs`].
//!
//! Lock order: the lock of the heirs is a leaf; no space is dropped while it is held.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use machine::sync::SpinLock;

use super::space::{HEIR_BYTES, Heir, LINEAGES, Lineage, Space};

/// The memory that all heirs keep, in bytes.
pub fn bytes() -> usize {
    HEIR_BYTES.load(Relaxed)
}

impl Heir {
    /// Counts the memory of a space that is kept; the end of the heir subtracts it.
    pub fn new(space: Arc<Space>, bytes: usize) -> Heir {
        HEIR_BYTES.fetch_add(bytes, Relaxed);
        Heir { space, bytes }
    }

    /// The memory that only it keeps, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Lineage {
    /// Makes the lineage of a space in which nothing runs. From then on the space tells it of files
    /// that are truncated.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of(space: &Space) -> Result<Arc<Lineage>> {
        let place = LINEAGES.reserve()?;
        let made = {
            let mut guard = space.table.lock();
            let (inner, mut edit) = guard.parts();
            let map = inner.map.try_clone(|region| Some(region.value.clone()));
            map.ok().zip(edit.freeze().ok()).map(|(map, frozen)| Lineage {
                frozen,
                map,
                heap: inner.heap_start..inner.heap_end,
                data: inner.data,
                full_above: inner.full_above,
                private: space.resident().anonymous,
                heirs: SpinLock::new(ArrayVec::new_const()),
                inherited: AtomicU64::new(0),
                closed: AtomicBool::new(false),
                place,
            })
        };
        let Some(made) = made else {
            LINEAGES.leave(place);
            return Err(Errno::ENOMEM);
        };
        let lineage = Arc::new(made);
        LINEAGES.enter(place, &lineage);
        space.descend_from(&lineage);
        Ok(lineage)
    }

    /// Keeps nothing any more.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}

/// Calls `visit` with every lineage; no lock is held during a call.
pub fn for_each(visit: impl FnMut(&Arc<Lineage>)) {
    LINEAGES.for_each(visit);
}

impl Space {
    /// Notes that the space is in the state of a lineage now.
    pub fn descend_from(&self, lineage: &Arc<Lineage>) {
        self.table.lock().lineage = Arc::downgrade(lineage);
    }

    /// The lineage in whose state it began, if that still exists.
    pub fn lineage(&self) -> Option<Arc<Lineage>> {
        self.table.lock().lineage.upgrade()
    }
}
