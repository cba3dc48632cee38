//! Numbers of processes, threads, groups and sessions at the edges of the kernel, where a program
//! tells or is told one: those of the current thread's PID namespace ([`super::pid_namespace`]).
//!
//! A thread of the first namespaces finds out with one look that nothing is translated
//! ([`Thread::is_apart`]). What is outside its namespace is seen by nobody: it is not found, and
//! its number is shown as 0.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;

use super::pid_namespace::PidNamespace;
use super::pids;
use super::record::Process;
use super::thread::{Thread, current};

/// No number of the kernel: nothing has it.
pub const NOBODY: u32 = u32::MAX;

/// The PID namespace of the current thread, if that is not the first.
#[inline]
fn with_own<T>(look: impl FnOnce(&PidNamespace) -> T) -> Option<T> {
    let thread = current();
    if !thread.is_apart() {
        return None;
    }
    thread.process.own_pid_namespace().map(|own| look(own))
}

/// The number that the current thread is shown for one of the kernel; 0 if it has none.
#[inline]
pub fn shown(kernel: u32) -> u32 {
    if current().is_apart() { shown_inside(kernel) } else { kernel }
}

#[cold]
fn shown_inside(kernel: u32) -> u32 {
    with_own(|own| own.shown(kernel)).unwrap_or(kernel)
}

/// Likewise; numbers that are none of a process stay as they are.
pub fn shown_signed(kernel: i32) -> i32 {
    u32::try_from(kernel).map_or(kernel, |kernel| shown(kernel) as i32)
}

/// The kernel's number for the one that the current thread means; [`NOBODY`] if there is none.
#[inline]
pub fn meant(number: u32) -> u32 {
    if current().is_apart() { meant_inside(number) } else { number }
}

#[cold]
fn meant_inside(number: u32) -> u32 {
    with_own(|own| own.meant(number).unwrap_or(NOBODY)).unwrap_or(number)
}

/// The process that has this number for the current thread.
#[inline]
pub fn process(number: u32) -> Option<Arc<Process>> {
    pids::process(meant(number))
}

/// The thread that has this number for the current thread.
#[inline]
pub fn thread(number: u32) -> Option<Arc<Thread>> {
    pids::thread(meant(number))
}

/// The processes that the current thread sees, in the order of their numbers. `ENOMEM`.
pub fn processes() -> Result<Vec<Arc<Process>>> {
    with_own(PidNamespace::processes).unwrap_or_else(pids::processes)
}

/// The number of a process, thread or group as a thread of `viewer` sees it.
pub fn shown_to(viewer: &Process, kernel: u32) -> u32 {
    viewer.own_pid_namespace().map_or(kernel, |own| own.shown(kernel))
}

/// Whether the current thread is seen in the PID namespace of a process.
pub fn is_seen_by(process: &Process) -> bool {
    process.own_pid_namespace().is_none_or(|own| own.contains(current().process.id()))
}
