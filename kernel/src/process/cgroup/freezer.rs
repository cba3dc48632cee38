//! Processes that rest, since their group is being frozen (`cgroup.freeze`; kernel/cgroup/freezer.c
//! of Linux 6.1).
//!
//! While a group is being frozen, its members have the notice [`notice::FREEZE`], and each thread
//! rests on its way back to user mode. A thread that sleeps there for another reason, since it is
//! stopped, stopped for its tracer, or waits for the space that it lent (`vfork(2)`), counts as one
//! that rests ([`super::rest`]). A process of which all threads rest counts in its group
//! ([`super::frost`]).
//!
//! `SIGKILL`, and any other signal that would end the process without a core file, ends one that
//! rests; a tracer reaches it as any other.

use alloc::sync::Arc;

use hayate_abi::Result;
use hayate_abi::signal::{NSIG, SIG_DFL, bit};

use super::group::{Group, Lock, News};
use super::rest::Rest;
use super::{frost, list};
use crate::process::record::{Process, notice};
use crate::process::signal::sets::{CORE, IGNORED_BY_DEFAULT, STOPS};
use crate::process::signal::stop;
use crate::process::thread::Thread;
use crate::process::tracing;
use crate::schedule;
use crate::schedule::WaitQueue;

/// Where threads rest. One queue for all: a superfluous wake-up does no harm.
static RESTING: WaitQueue = WaitQueue::new();

/// Rests, as the current thread, until its process is not to freeze any more, or has something else
/// to do on its way back to user mode.
#[cold]
pub fn rest_here(thread: &Thread) {
    let process = &thread.process;
    let mut rest = Rest::of(process);
    rest.note();
    let goes_on = || {
        let raised = process.notice();
        let is_called = raised & (notice::EXIT | notice::EXEC | notice::ZOMBIE) != 0
            || raised & notice::STOP != 0 && !tracing::is_traced(thread);
        (raised & notice::FREEZE == 0 || is_called).then_some(())
    };
    loop {
        if let Some(signal) = fatal(thread) {
            process.begin_exit(signal as i32);
            return;
        }
        if RESTING.wait_interruptible(None, goes_on).is_ok() {
            return;
        }
        schedule::current().clear_interrupt();
        if process.is_involved() {
            // Its tracer may want something.
            return;
        }
    }
}

/// A pending signal that ends the thread's process without a core file (`sig_fatal`). Linux finds
/// it when it is sent.
fn fatal(thread: &Thread) -> Option<u32> {
    let process = &thread.process;
    let pending = thread.pending() & !thread.blocked();
    let candidates = pending & !(CORE | IGNORED_BY_DEFAULT | STOPS);
    if candidates == 0 || process.is_unkillable() || tracing::is_traced(thread) {
        return None;
    }
    let actions = process.actions();
    let ends =
        |signal: &u32| candidates & bit(*signal) != 0 && actions.get(*signal).sa_handler == SIG_DFL;
    (1..=NSIG).find(ends)
}

/// Freezes or thaws a group, and those in it that nothing else freezes (`cgroup_freeze`). The
/// caller holds the lock of the tree.
///
/// # Errors
/// `ENOMEM`.
pub fn set_frozen(group: &Group, frozen: bool, lock: &Lock) -> Result<()> {
    let subtree = group.subtree(lock)?;
    if group.settings().frozen == frozen {
        return Ok(());
    }
    group.set(lock, |settings| settings.frozen = frozen);
    let mut any = false;
    for below in &subtree {
        let around = below.parent().is_some_and(|parent| parent.members.lock().freezes);
        let freezes = around || below.settings().frozen;
        if core::mem::replace(&mut below.members.lock().freezes, freezes) == freezes {
            continue;
        }
        any = true;
        list::each_member(below, |process| {
            tell_notice(process, freezes);
            if freezes {
                process.interrupt_all();
            }
        });
        frost::changes(below, 0).tell();
    }
    wake();
    if !any {
        // The groups around it decide: there is nothing to wait for.
        News::of(group, 1).tell();
    }
    Ok(())
}

/// Raises the notice of a process, or takes it away.
pub(super) fn tell_notice(process: &Process, freezes: bool) {
    if freezes {
        process.raise_notice(notice::FREEZE);
    } else {
        process.clear_notice(notice::FREEZE);
    }
}

/// Lets all that rest or are stopped look again.
pub(super) fn wake() {
    RESTING.wake_all();
    stop::wake();
}

/// Lets a process whose notice has changed find that out.
pub(super) fn look_again(process: &Arc<Process>) {
    if process.notice() & notice::FREEZE != 0 {
        process.interrupt_all();
    }
    wake();
}
