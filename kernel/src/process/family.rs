//! Parents and children.
//!
//! A process owns its children, ended ones included, until it has waited for them; a child has a
//! reference to its parent. Both links are changed under locks of the two processes, never under a
//! global lock. Lock order: a child's `parent`, then the parent's `children`. The lock of `parent`
//! also covers the step from running to ended, so that exactly one parent is notified of an end
//! even if parents end meanwhile.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};

use super::cgroup::follow;
use super::job_control;
use super::pids;
use super::record::{Process, end_code, notice};
use super::signal::actions::ActionTable;
use super::signal::send;
use super::signal::send::about_child;
use super::tracing::report;
use super::visible;

/// Makes a new process, whose parent is set already, a child of that parent. Fails with `EAGAIN` if
/// the parent is ending.
pub fn adopt(child: &Arc<Process>) -> Result<()> {
    let parent = child.parent.lock();
    let Some(parent) = parent.as_ref() else { return Ok(()) };
    let mut children = parent.children.lock();
    if children.closed {
        return Err(Errno::EAGAIN);
    }
    children.add(child.clone());
    Ok(())
}

/// Undoes [`adopt`].
pub fn disown(child: &Process) {
    let parent = child.parent.lock();
    let removed = parent.as_ref().and_then(|parent| parent.children.lock().remove(child));
    drop(parent);
    drop(removed);
}

/// Hands the children of an ending process to the nearest subreaper above it that is not ending, or
/// to the init of its PID namespace. Sends them their parent-death signals.
pub fn hand_over_children(process: &Arc<Process>) {
    let mut orphans = {
        let mut children = process.children.lock();
        children.closed = true;
        children.list.take()
    };
    while let Some(orphan) = orphans.pop_front() {
        hand_over(process, orphan);
    }
}

fn hand_over(from: &Arc<Process>, orphan: Arc<Process>) {
    let stranded = job_control::would_strand(&orphan, from);
    let mut link = orphan.parent.lock();
    let mut reaper = nearest_reaper(from);
    loop {
        let mut children = reaper.children.lock();
        if !children.closed {
            children.add(orphan.clone());
            break;
        }
        drop(children);
        reaper = nearest_reaper(&reaper);
    }
    orphan.parent_id.store(reaper.id(), Ordering::Relaxed);
    let shown = visible::shown_to(&orphan, reaper.id());
    orphan.shown_parent_id.store(shown, Ordering::Relaxed);
    orphan.maker.store(0, Ordering::Relaxed);
    let old = link.replace(reaper.clone());
    let ended = orphan.notice() & (notice::ZOMBIE | notice::HELD) == notice::ZOMBIE;
    // A child cannot choose the signal that a reaper gets (`reparent_leader`, kernel/exit.c).
    orphan.exit_signal.store(SIGCHLD, Ordering::Relaxed);
    let vanishes = ended && tell_end(&orphan, &reaper, &reaper.actions());
    drop(link);
    drop(old);
    if vanishes {
        release(&reaper, &orphan);
        return;
    }
    // Not under the lock of the list: SIGKILL takes it. (Without memory, more than four threads get
    // none.)
    for thread in orphan.threads().unwrap_or_default() {
        let signal = thread.parent_death_signal.load(Ordering::Relaxed);
        if signal != 0 {
            let _ = send::to_thread(&thread, Siginfo::from_sender(signal, SI_USER, from.id(), 0));
        }
    }
    if stranded {
        job_control::hang_up_if_stopped(orphan.group());
    }
}

/// The process that takes the orphans of `process`: the first one above it, in the same PID
/// namespace, that asked for them (`PR_SET_CHILD_SUBREAPER`) and is not ending itself, otherwise
/// the namespace's init (`find_new_reaper`, kernel/exit.c).
fn nearest_reaper(process: &Arc<Process>) -> Arc<Process> {
    let mut namespace = process.pid_namespace();
    let mut at = process.parent();
    while let Some(above) = at.filter(|above| above.is_in(&namespace)) {
        if above.subreaper.load(Ordering::Relaxed) && !above.is_exiting() {
            return above;
        }
        at = above.parent();
    }
    // The init of a namespace takes orphans while it waits for all others to end. When it has
    // ended itself, there are none; yet nobody is left without a parent.
    loop {
        match namespace.init().filter(|init| !Arc::ptr_eq(init, process)) {
            Some(init) => return init,
            None => match namespace.parent().cloned() {
                Some(parent) => namespace = parent,
                None => return pids::init_process(),
            },
        }
    }
}

/// Marks a process as ended and notifies its parent. Returns the parent if that ignores its
/// children: the caller must then remove the process with [`release`].
pub fn end(process: &Arc<Process>) -> Option<Arc<Process>> {
    let link = process.parent.lock();
    if process.is_involved() && end_traced(process, link.as_ref()) {
        return None;
    }
    // Asked for once: both answers below are about the same actions.
    let parent = link.as_ref().map(|parent| (parent, parent.actions()));
    // Set both bits at once: a parent that ignores its children must not find one to wait for.
    let vanishes = parent.as_ref().is_some_and(|(_, actions)| lets_vanish(process, actions));
    process.raise_notice(notice::ZOMBIE | if vanishes { notice::VANISHING } else { 0 });
    // Wake the pollers of a descriptor of the process.
    process.signal_events.wake_all();
    let (parent, actions) = parent?;
    tell_end(process, parent, &actions);
    vanishes.then(|| parent.clone())
}

/// As [`end`] for a process that may be traced: a tracer waits for it first, and one that is also
/// the parent gets to wait for it even if it ignores its children. `false`: it is not traced.
#[cold]
fn end_traced(process: &Arc<Process>, parent: Option<&Arc<Process>>) -> bool {
    let held = report::holds(process, parent);
    let Some(parent) = parent.filter(|parent| held || report::traces_first(parent, process)) else {
        return false;
    };
    process.raise_notice(notice::ZOMBIE | if held { notice::HELD } else { 0 });
    process.signal_events.wake_all();
    if held {
        report::tell_end(process);
    } else {
        tell_end(process, parent, &parent.actions());
    }
    true
}

/// Shows an ended process to its parent, if no tracer has to wait for it any more.
pub fn unhold(process: &Arc<Process>) {
    if process.notice() & notice::HELD == 0 {
        return;
    }
    let vanished = {
        let link = process.parent.lock();
        if process.notice() & notice::HELD == 0 || report::holds(process, link.as_ref()) {
            return;
        }
        let traced = link.as_ref().is_some_and(|parent| report::traces_first(parent, process));
        let vanishes =
            !traced && link.as_ref().is_some_and(|parent| lets_vanish(process, &parent.actions()));
        if vanishes {
            process.raise_notice(notice::VANISHING);
        }
        process.clear_notice(notice::HELD);
        if let Some(parent) = link.as_ref() {
            tell_end(process, parent, &parent.actions());
        }
        link.clone().filter(|_| vanishes)
    };
    if let Some(parent) = vanished {
        release(&parent, process);
    }
}

/// Whether a parent with these actions lets the child vanish when it ends (SIGCHLD ignored, or
/// SA_NOCLDWAIT).
fn lets_vanish(child: &Process, actions: &ActionTable) -> bool {
    child.exit_signal.load(Ordering::Relaxed) == SIGCHLD && actions.about_children().0
}

/// Notifies `parent`, which has these actions, that `child` has ended; the caller holds the child's
/// `parent` lock. Returns whether the parent ignores its children, so that the child vanishes.
fn tell_end(child: &Process, parent: &Arc<Process>, actions: &ActionTable) -> bool {
    let signal = child.exit_signal.load(Ordering::Relaxed);
    // Nearly every shell and server waits without a handler for the signal: then the signal's
    // information is not even gathered. A blocked signal is sent, because the action may change
    // before it is unblocked (`sig_ignored`).
    let unheard = signal == SIGCHLD
        && actions.ignores(SIGCHLD)
        && parent.blocked_by_all() & bit(SIGCHLD) == 0
        && !parent.is_involved();
    if signal != 0 && !unheard {
        let (code, value) = end_code(child.exit_status.load(Ordering::Relaxed));
        let mut info = about_child(child, code, value);
        info.si_signo = signal as i32;
        let _ = send::to_process(parent, info);
    }
    parent.child_events.wake_all();
    lets_vanish(child, actions)
}

/// Whether a process is `above` or one of its descendants.
pub fn descends_from(process: &Arc<Process>, above: &Process) -> bool {
    let mut at = Some(process.clone());
    while let Some(here) = at {
        if core::ptr::eq(&*here, above) {
            return true;
        }
        at = here.parent();
    }
    false
}

/// Returns the process with this number. Fails with `ESRCH` if there is none.
pub fn find(number: u32) -> Result<Arc<Process>> {
    pids::process(number).ok_or(Errno::ESRCH)
}

/// Removes an ended child for which the parent will not wait.
pub fn release(parent: &Process, child: &Arc<Process>) {
    let taken = parent.children.lock().remove(child);
    if let Some(child) = taken {
        bury(child);
        // The parent may be waiting for this child, which no longer exists (ECHILD).
        parent.child_events.wake_all();
    }
}

/// Forgets who traced an ended process, and takes it out of its control group.
#[cold]
fn forget(child: &Arc<Process>) {
    if child.is_involved() {
        report::forget(child);
    }
    if child.is_grouped() {
        follow::process_gone(child);
    }
}

/// Removes an ended process: frees its number and drops its record.
pub(super) fn bury(child: Arc<Process>) {
    let id = child.id();
    if child.is_marked() {
        forget(&child);
    }
    // The last thread is still in the list, for queries about the zombie.
    let threads = core::mem::take(&mut *child.threads.lock());
    let parent = child.parent.lock().take();
    pids::bury(&child);
    // That thread need not be the first one, and then has a number of its own.
    for thread in threads.iter().filter(|thread| thread.id() != id) {
        pids::release(thread.id());
    }
    drop(threads);
    drop(parent);
}
