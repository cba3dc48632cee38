//! Memory requests that are refused on purpose, to test the callers.
//!
//! A kernel for tests (profile `dev`) calls a judge at each request that may be refused: a frame
//! for a program, contiguous frames, an object of the heap larger than a frame. The judge decides
//! whether the request fails as if memory were exhausted. Small objects come out of the reserve and
//! are never refused ([`crate::heap`]).
//!
//! A release kernel has none of this, and no instruction for it.

use crate::sync::Once;

static JUDGE: Once<fn() -> bool> = Once::new();

/// Registers the function that decides whether the current request is refused. The function is
/// called with locks held: it must neither lock nor allocate. Only the first call counts.
pub fn register(judge: fn() -> bool) {
    JUDGE.call_once(|| judge);
}

/// Whether this request is refused.
#[inline]
pub(crate) fn is_refused() -> bool {
    JUDGE.get().is_some_and(|judge| judge())
}
