//! The controller `io`: which group pays for what a process asks of disks, and the rest of threads
//! whose group has asked for too much. Uses and limits are in
//! [`crate::drivers::io`].
//!
//! A group to which its parent gives the controller has a handle there. Its members, and those of
//! groups below that have none, are counted for it; nothing of that is kept with a process, so one
//! that moves is counted elsewhere from its next request on. An account of memory says for whom its
//! pages are written ([`settle`]).

use core::sync::atomic::Ordering;

use hayate_abi::Result;

use super::group::{Group, Lock};
use super::rest::Rest;
use crate::drivers::io;
use crate::drivers::io::{Threads, groups};
use crate::process::record::Process;
use crate::process::thread::try_current;
use crate::reclaim::charge::records;

/// Registers what is asked of threads; boot calls it once.
pub fn init() {
    io::register(Threads {
        current: || try_current().map(|thread| of(&thread.process)),
        is_ending: || try_current().is_some_and(|thread| thread.process.is_exiting()),
    });
}

fn of(process: &Process) -> u32 {
    if process.is_grouped() { of_group(&process.cgroup()) } else { 0 }
}

/// The handle of a group, or of the nearest around it that has one; 0: none.
fn of_group(group: &Group) -> u32 {
    let handles = group.levels().map(|level| level.io.load(Ordering::SeqCst));
    handles.into_iter().find(|&handle| handle != 0).unwrap_or(0)
}

/// Lets a group be counted for itself.
///
/// # Errors
/// `ENOMEM`; then it is not.
pub fn begin(group: &Group, _: &Lock) -> Result<()> {
    let handle = groups::open(group.parent().map_or(0, |parent| of_group(parent)))?;
    group.io.store(handle, Ordering::SeqCst);
    Ok(())
}

/// Ends that. Threads that rest for its limits go on.
pub fn end(group: &Group, _: &Lock) {
    match group.io.swap(0, Ordering::SeqCst) {
        0 => {}
        handle => {
            groups::close(handle);
            io::wake();
        }
    }
}

/// Tells the account of memory of a group for whom its pages are written.
pub fn settle(group: &Group) {
    match group.memory.account.load(Ordering::SeqCst) {
        0 => {}
        account => records::set_io(account, of_group(group)),
    }
}

/// Rests, as the current thread on its way to user mode, while its group owes something.
#[cold]
pub fn rest() {
    let Some(thread) = try_current() else { return };
    let mut rest = Rest::of(&thread.process);
    io::owed(|| rest.note());
}
