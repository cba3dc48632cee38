//! Work areas: what the kernel works with for a thread, kept for the next.
//!
//! The stack is kept by [`machine::stack`], each processor's next ones ready at hand: it costs a start
//! one pop and an end one push, and the counting one instruction more. Here is what makes a pool of it:
//! the policy, the limit, and giving up when memory runs out.
//!
//! Not kept here is the area for the registers of a thread: it comes from the heap's free list of its
//! size, which is each processor's own too, and a list of its own would cost the same. What the next
//! owner could see of it is overwritten as a whole when it is made ([`machine::fpu`]).
//!
//! The stacks have no age, as telling it would cost every end a clock: they pass for the oldest
//! of all that is kept, and so go first. None is as quickly made anew.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use hayate_recycler::{Counts, Keep, Kind};
use machine::stack::{self, STACK_SIZE};
use machine::{cpu, frames};

use crate::resource::{policy, pools};

/// What may be kept, in bytes, if the policy keeps any.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The pool of kernel stacks, for [`pools`].
struct WorkAreas;

/// Sets the limit and registers the pool; boot calls it once.
pub fn init() {
    // A sixty-fourth of memory, and what a few threads on each processor need in any case.
    let least = cpu::count() * 8 * STACK_SIZE;
    pools::Keeper::set_limit(&WorkAreas, (frames::total() / 64 * 4096).max(least));
    pools::register(&WorkAreas);
}

impl pools::Keeper for WorkAreas {
    fn kind(&self) -> Kind {
        Kind::WorkArea
    }

    fn is_wanted(&self) -> bool {
        policy::keeps(Keep::WORK_AREA)
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
            // Somebody may have changed it meanwhile, and been here before us.
            if wanted() == bytes {
                break;
            }
        }
    }

    fn oldest(&self) -> Option<u64> {
        (stack::counts().kept != 0).then_some(0)
    }

    fn drop_oldest(&self) -> Option<usize> {
        stack::drop_one()
    }

    fn counts(&self) -> Counts {
        let stack::Counts { made, stored, dropped, kept } = stack::counts();
        // What was put in and is neither there nor dropped was taken out again.
        let reused = stored.saturating_sub(dropped + kept);
        Counts { made, reused, stored, dropped, kept, bytes: kept * STACK_SIZE as u64 }
    }
}
