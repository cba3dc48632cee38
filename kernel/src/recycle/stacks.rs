//! The pool of kernel stacks: stacks of ended threads, kept for new ones.
//!
//! [`machine::stack`] keeps the stacks, with a per-CPU cache of the next ones: this costs a start
//! one pop and an end one push, and one instruction more for the counting. This module makes a pool
//! of it: the policy, the limit, and giving stacks up when memory runs out.
//!
//! The area for a thread's registers is not part of this pool. It comes from the heap's free list
//! of its size, which is a per-CPU cache too; a list of its own would cost the same. The next owner
//! cannot read the old contents, since the whole area is overwritten when it is made
//! ([`machine::fpu`]).
//!
//! The stacks have no age, because recording it would cost a clock read at each thread's end. They
//! count as the oldest of all pools' contents and so are freed first: nothing else is as quickly
//! made anew.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use hayate_recycler::{KeptKinds, ResourceCounts, ResourceKind};
use machine::stack::{self, STACK_SIZE};
use machine::{cpu, frames};

use super::{policy, pools};

/// How many bytes may be kept, if the policy keeps any.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The pool of kernel stacks, for [`pools`].
struct WorkAreas;

/// Sets the limit and registers the pool; boot calls it once.
pub fn init() {
    // A sixty-fourth of memory, but at least the stacks of a few threads on each processor.
    let least = cpu::count() * 8 * STACK_SIZE;
    pools::AnyPool::set_limit(&WorkAreas, (frames::total() / 64 * 4096).max(least));
    pools::register(&WorkAreas);
}

impl pools::AnyPool for WorkAreas {
    fn kind(&self) -> ResourceKind {
        ResourceKind::WorkArea
    }

    fn is_wanted(&self) -> bool {
        policy::keeps(KeptKinds::WORK_AREA)
    }

    fn limit(&self) -> usize {
        LIMIT.load(Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        LIMIT.store(bytes, Relaxed);
        self.follow_policy();
    }

    fn follow_policy(&self) {
        let wanted = || if self.is_wanted() { self.limit() } else { 0 };
        loop {
            let bytes = wanted();
            stack::keep(bytes);
            // Another thread may have changed the limit meanwhile, after its own `stack::keep`.
            if wanted() == bytes {
                break;
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        (stack::counts().kept != 0).then_some(0)
    }

    fn knows_ages(&self) -> bool {
        false
    }

    fn drop_oldest(&self) -> Option<usize> {
        stack::drop_one()
    }

    fn counts(&self) -> ResourceCounts {
        let stack::StackCounts { made, stored, dropped, kept } = stack::counts();
        // A stack that was stored and is neither kept nor dropped was taken out again.
        let reused = stored.saturating_sub(dropped + kept);
        ResourceCounts { made, reused, stored, dropped, kept, bytes: kept * STACK_SIZE as u64 }
    }
}
