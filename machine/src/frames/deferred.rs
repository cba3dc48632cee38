//! Deferred frees: how many frames wait to be freed, and how some of them are freed.
//!
//! The module that defers frees ([`crate::paging::teardown`]) counts them here, and registers a
//! function that frees a part. So the allocator can have frames freed before it refuses a request,
//! and knows nothing of their holders.

use crate::sync::{Once, relax};
use hayate_protocols::deferred::Deferred;

/// The number of pages and tables that wait, and of those that a processor is freeing at this
/// moment.
pub(crate) static PENDING: Deferred = Deferred::new();

static FREE_SOME: Once<fn() -> Option<usize>> = Once::new();

/// Registers the function that frees a part of what waits, and subtracts it from [`PENDING`];
/// `None` if nothing waits. It is called without a lock of the allocator's. Only the first call
/// counts.
pub(crate) fn register(free_some: fn() -> Option<usize>) {
    FREE_SOME.call_once(|| free_some);
}

/// Returns an upper bound of the number of frames whose free is deferred.
#[inline]
pub(crate) fn pending() -> usize {
    PENDING.pending()
}

/// Frees a part of what waits, or waits for other processors that are freeing the last part. False:
/// there was nothing to free.
#[cold]
#[inline(never)]
pub(crate) fn free_now() -> bool {
    FREE_SOME.get().is_some_and(|free_some| PENDING.free_some(free_some, relax))
}
