//! What ended processes owe, for those who count frames. What is done when frames run out is in
//! [`crate::resource::pressure`].

use machine::frames;
use machine::paging::teardown;

use crate::schedule;

/// Gives back all that ended processes have yet to give back. Others run meanwhile: call it without spin
/// locks.
pub fn settle() {
    teardown::settle(|| {
        schedule::breathe();
    });
}

/// How the frames of memory are used when ended processes owe nothing any more. As [`settle`].
pub fn settled_counts() -> frames::Counts {
    settle();
    frames::counts()
}
