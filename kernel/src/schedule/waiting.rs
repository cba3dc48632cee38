//! The executions that wait in one run queue, ordered by rank.
//!
//! The first one, mostly the only one, has a place of its own; the others are a red-black tree
//! through a link in each [`Execution`]. Putting one in and taking one out takes O(log n) steps and
//! no memory, so it cannot fail under the queue's lock however many a program starts. Among equals
//! the one that came first is first.
//!
//! An execution's `rank` is its key: it is written only here, before the execution is linked, and
//! holds until it is taken out. What changes meanwhile (nice value, policy) counts from the next
//! time it is queued. An execution is in at most one queue, because its state is RUNNABLE there and
//! only the change to that state puts it in.
//!
//! Everything is called under the run queue's lock.
//!
//! Road not taken: a binary heap of counted references. It grows, and where memory is down to the
//! reserve that is a panic under the innermost lock. A tree without the place for the first costs
//! 45 instructions more with each switch.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use intrusive_collections::{Bound, KeyAdapter, RBTree};

use super::execution::Execution;

#[allow(unsafe_code)]
mod adapter {
    use super::{Arc, Execution};
    use intrusive_collections::{RBTreeAtomicLink, intrusive_adapter};
    intrusive_adapter!(pub RunAdapter = Arc<Execution>: Execution { run_link => RBTreeAtomicLink });
}
use adapter::RunAdapter;

impl<'a> KeyAdapter<'a> for RunAdapter {
    type Key = u64;
    #[inline(always)]
    fn get_key(&self, execution: &'a Execution) -> u64 {
        execution.rank.load(Ordering::Relaxed)
    }
}

/// Behind every rank.
const NOBODY: u64 = u64::MAX;

/// The executions that wait; see the module.
pub(super) struct Waiting {
    /// What ranks before everything in the tree, which is empty without it.
    first: Option<Arc<Execution>>,
    /// Its rank, or [`NOBODY`].
    first_rank: u64,
    others: RBTree<RunAdapter>,
    length: usize,
}

/// Whether `execution` may run on `cpu`.
#[inline]
fn may_run(execution: &Execution, cpu: usize) -> bool {
    execution.affinity() >> cpu & 1 != 0
}

impl Waiting {
    /// Nobody waits.
    pub const fn new() -> Waiting {
        let others = RBTree::new(RunAdapter::NEW);
        Waiting { first: None, first_rank: NOBODY, others, length: 0 }
    }

    /// How many wait.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The rank of the first; `None` if nobody waits.
    #[inline(always)]
    pub fn first_rank(&self) -> Option<u64> {
        (self.first_rank != NOBODY).then_some(self.first_rank)
    }

    /// Puts `execution` in, behind those of the same rank. `rank` is below `u64::MAX`.
    #[inline]
    pub fn put(&mut self, rank: u64, execution: Arc<Execution>) {
        execution.rank.store(rank, Ordering::Relaxed);
        self.length += 1;
        if self.first.is_none() {
            self.first_rank = rank;
            self.first = Some(execution);
        } else {
            self.put_beside(rank, execution);
        }
    }

    #[inline(never)]
    fn put_beside(&mut self, rank: u64, execution: Arc<Execution>) {
        if rank >= self.first_rank {
            self.others.insert(execution);
        } else if let Some(second) = self.first.replace(execution) {
            self.first_rank = rank;
            // It ranks before the others, or is the one of its rank that came first.
            self.others.front_mut().insert_before(second);
        }
    }

    /// Takes the first one out.
    #[inline]
    pub fn take_first(&mut self) -> Option<Arc<Execution>> {
        let taken = self.first.take()?;
        self.length -= 1;
        self.first_rank = NOBODY;
        if self.length != 0 {
            self.move_up();
        }
        Some(taken)
    }

    /// Gives the first of the others the place of its own.
    #[inline(never)]
    fn move_up(&mut self) {
        self.first = self.others.front_mut().remove();
        let rank = self.first.as_ref().map(|first| first.rank.load(Ordering::Relaxed));
        self.first_rank = rank.unwrap_or(NOBODY);
    }

    /// Takes the first one out that may run on `cpu`, of those whose rank is at least `least`.
    pub fn take_allowed(&mut self, cpu: usize, least: u64) -> Option<Arc<Execution>> {
        if self.first_is_allowed(cpu, least) {
            return self.take_first();
        }
        let mut cursor = self.others.lower_bound_mut(Bound::Included(&least));
        while !may_run(cursor.get()?, cpu) {
            cursor.move_next();
        }
        let taken = cursor.remove()?;
        self.length -= 1;
        Some(taken)
    }

    /// Whether one waits that may run on `cpu`, of those whose rank is at least `least`.
    pub fn has_allowed(&self, cpu: usize, least: u64) -> bool {
        if self.first_is_allowed(cpu, least) {
            return true;
        }
        let mut cursor = self.others.lower_bound(Bound::Included(&least));
        while let Some(execution) = cursor.get() {
            if may_run(execution, cpu) {
                return true;
            }
            cursor.move_next();
        }
        false
    }

    fn first_is_allowed(&self, cpu: usize, least: u64) -> bool {
        self.first_rank >= least && self.first.as_ref().is_some_and(|first| may_run(first, cpu))
    }
}
