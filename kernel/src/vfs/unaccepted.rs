//! Connections that wait to be accepted, counted for the user who listens.
//!
//! No limit of open files bounds such a connection: it has no descriptor yet, and its caller's may
//! be closed. A listener's backlog bounds those of one listener, and a user may have thousands of
//! listeners. So the memory of the sockets at both ends is counted for the listener's user, but for
//! the superuser, and bounded by a part of memory. (Linux bounds the number of all Unix-domain
//! sockets, `unix_create1`, and that of no others.)
//!
//! No lock: the count is one number of a user.

use alloc::sync::Arc;

use hayate_machine::frames;

use super::users::Holdings;

/// The bytes that the connections of a user may take that wait to be accepted: a sixteenth of
/// memory.
fn bound() -> usize {
    frames::total() * (4096 / 16)
}

/// The part of one connection; uncounted when dropped.
pub struct Unaccepted {
    user: Option<Arc<Holdings>>,
    bytes: usize,
}

impl Unaccepted {
    /// Counts a connection whose sockets take so many bytes. `None` if its user has too many.
    pub fn count(user: Option<&Arc<Holdings>>, bytes: usize) -> Option<Unaccepted> {
        let Some(user) = user else { return Some(Unaccepted { user: None, bytes: 0 }) };
        let sum = user.unaccepted.add(bytes);
        let share = Unaccepted { user: Some(Arc::clone(user)), bytes };
        (sum <= bound()).then_some(share)
    }
}

impl Drop for Unaccepted {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            user.unaccepted.give(self.bytes);
        }
    }
}
