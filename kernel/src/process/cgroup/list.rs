//! The members of a group, as processes.

use alloc::sync::Arc;
use core::ops::Bound::{Excluded, Unbounded};

use super::group::Group;
use crate::process::pids;
use crate::process::record::Process;

/// Calls `visit` for each member of a group other than the root. A process that begins meanwhile
/// may be missed: it finds out by itself what happens to the group.
pub fn each_member(group: &Group, mut visit: impl FnMut(&Arc<Process>)) {
    let mut last = 0;
    loop {
        let next = group.members.lock().numbers.range((Excluded(last), Unbounded)).next().copied();
        let Some(number) = next else { return };
        last = number;
        if let Some(process) = pids::process(number) {
            visit(&process);
        }
    }
}
