//! What a page cache has whose changed pages are written to the source
//! ([`write_back`](super::write_back)).

use hayate_protocols::write_errors::WriteErrors;

use crate::schedule::WaitQueue;

/// The state of writing back, of one page cache.
#[derive(Default)]
pub struct WriteState {
    /// Writes that failed.
    pub errors: WriteErrors,
    /// Woken when pages have been written.
    pub done: WaitQueue,
}
