//! Requests for memory that are refused on purpose, to test what becomes of the asker.
//!
//! A kernel for tests (profile `dev`) asks a judge at each request that may be refused: a frame for
//! a program, a row of frames, an object of the heap larger than a frame. The judge says whether
//! memory shall have run out for the execution that asks. Small objects come out of the reserve and
//! are never refused ([`crate::heap`]).
//!
//! A kernel that is built for use has none of this, and no instruction for it.

use crate::sync::Once;

static JUDGE: Once<fn() -> bool> = Once::new();

/// Registers who says whether the current request is refused. The function is called with locks
/// held:
/// it must neither lock nor allocate. Only the first call counts.
pub fn register(judge: fn() -> bool) {
    JUDGE.call_once(|| judge);
}

/// Whether this request is refused.
#[inline]
pub(crate) fn is_refused() -> bool {
    JUDGE.get().is_some_and(|judge| judge())
}
