//! The executions that wait in one run queue, ordered by rank.
//!
//! The first one, which mostly is the only one, has a field of its own; the others are a red-black
//! tree through a link in each [`Execution`]. Insertion and removal take O(log n) steps and no
//! memory, so they cannot fail under the queue's lock however many threads a program starts. Among
//! equal ranks the execution that came first is first.
//!
//! An execution's `rank` is its key. It is written only here, before the execution is linked, and
//! does not change until the execution is taken out. A change of nice value or policy meanwhile
//! takes effect when the execution is queued next. An execution is in at most one queue, because
//! its state is RUNNABLE there and only the change to that state puts it in.
//!
//! All functions are called under the run queue's lock.
//!
//! Road not taken: a binary heap of counted references. It grows, and a failed allocation would be
//! a panic under the innermost lock when memory is down to the reserve. A tree without the field
//! for the first costs 45 instructions more with each switch.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use intrusive_collections::{Bound, KeyAdapter, RBTree};

use super::execution::Execution;

#[allow(unsafe_code)]
mod adapter {
    use alloc::sync::Arc;

    use crate::schedule::execution::Execution;
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

/// A rank after every other: no execution waits.
const NOBODY: u64 = u64::MAX;

/// The executions that wait; see the module.
pub struct Waiting {
    /// The execution that ranks before all in the tree; the tree is empty if it is `None`.
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
    /// An empty queue.
    #[allow(clippy::new_without_default, reason = "made in constants, where no Default is")]
    pub const fn new() -> Waiting {
        let others = RBTree::new(RunAdapter::NEW);
        Waiting { first: None, first_rank: NOBODY, others, length: 0 }
    }

    /// The number of waiting executions.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Those that wait, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Execution> {
        self.first.as_deref().into_iter().chain(self.others.iter())
    }

    /// The rank of the first execution; `None` if the queue is empty.
    #[inline(always)]
    pub fn first_rank(&self) -> Option<u64> {
        (self.first_rank != NOBODY).then_some(self.first_rank)
    }

    /// Puts `execution` in, after those of the same rank. `rank` is below `u64::MAX`.
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
            // The old first execution ranks before the others, or came first among those of its
            // rank.
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

    /// Moves the first execution of the tree into the field `first`.
    #[inline(never)]
    fn move_up(&mut self) {
        self.first = self.others.front_mut().remove();
        let rank = self.first.as_ref().map(|first| first.rank.load(Ordering::Relaxed));
        self.first_rank = rank.unwrap_or(NOBODY);
    }

    /// Takes out the first execution that may run on `cpu` and has a rank of at least `least`.
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

    /// Whether an execution waits that may run on `cpu` and has a rank of at least `least`.
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
