//! Completes the deferred free of ended processes, for callers that count frames.
//! [`crate::reclaim`] decides on the rest that is done when frames run out.

use machine::frames;
use machine::paging::teardown;

use crate::schedule;

/// Frees all that ended processes have yet to free. Other executions may run meanwhile: call it
/// without spin locks.
pub fn settle() {
    teardown::free_all(|| {
        schedule::breathe();
    });
}

/// The use of all frames after the deferred free is complete. Call it as [`settle`].
pub fn settled_counts() -> frames::FrameCounts {
    settle();
    frames::counts()
}
