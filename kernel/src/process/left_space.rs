//! What happens to a space that a thread has left at its end or by exec.
//!
//! Usually nobody else has it, and it is kept or taken apart at once ([`spaces`]). Something may
//! refer to it for a moment: a reader of `/proc/PID/maps`, a change of its mode. Then it goes
//! later, and one that was in supervisor mode is not kept. But its segments of shared memory
//! (`shmop(2)`) are detached before the process is waited for, unless another thread or process is
//! in the space. (Linux counts the users of a space apart from its references, `mm_users` and
//! `mm_count`. Here only a space with segments asks, and only in these cases, so no start pays for
//! a count.)

use alloc::sync::Arc;

use super::pids;
use super::record::Process;
use crate::memory::Space;
use crate::recycle::spaces;

/// Releases a space that the current thread has left. Call it without locks.
#[inline]
pub fn release(old: Arc<Space>) {
    if let Some(stays) = spaces::release(old) {
        leave_segments(stays);
    }
}

#[cold]
fn leave_segments(space: Arc<Space>) {
    if !space.has_segments() {
        return;
    }
    // Without memory for the list they go with the space.
    let Ok(processes) = pids::processes() else { return };
    let is_in = |process: &Arc<Process>| {
        let mut found = false;
        process.for_each_thread(|thread| {
            found |= thread.space().is_some_and(|other| Arc::ptr_eq(&other, &space));
        });
        found
    };
    if !processes.iter().any(is_in) {
        space.detach_all();
    }
}
