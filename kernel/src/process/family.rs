//! Parents and children.
//!
//! A process owns its children, ended ones included, until it has waited for them; a child has a
//! reference to its parent. Both links are changed under locks of the two processes, never under a
//! global lock. Lock order: a child's `parent`, then the parent's `children`. The lock of `parent`
//! also covers the step from running to ended, so that exactly one parent is notified of an end
//! even if parents end meanwhile.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::signal::*;
use hayate_abi::time::{CLOCK_TICKS_PER_SEC, NANOS_PER_SEC};
use hayate_abi::{Errno, Result};

use super::record::{Process, notice};
use super::signal::send;
use super::{dump, pids, wait};
use crate::reclaim::growth::Grow;

/// The children of a process.
pub struct Children {
    list: Vec<Arc<Process>>,
    /// The process is ending and gets no more children.
    closed: bool,
}

impl Children {
    /// An empty list.
    pub const fn none() -> Children {
        Children { list: Vec::new(), closed: false }
    }

    /// Iterates over the children.
    pub fn iter(&self) -> core::slice::Iter<'_, Arc<Process>> {
        self.list.iter()
    }

    /// The number of children.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    fn add(&mut self, child: &Arc<Process>) -> Result<()> {
        self.list.make_room(1)?;
        self.list.push(child.clone());
        Ok(())
    }

    /// Removes a child.
    pub fn remove(&mut self, child: &Process) -> Option<Arc<Process>> {
        // The child that ended last was often the last to start.
        let index = self.list.iter().rposition(|entry| core::ptr::eq(&**entry, child))?;
        Some(self.list.swap_remove(index))
    }
}

/// Makes a new process, whose parent is set already, a child of that parent. Fails with `EAGAIN` if
/// the parent is ending, `ENOMEM` if memory is exhausted.
pub fn adopt(child: &Arc<Process>) -> Result<()> {
    let parent = child.parent.lock();
    let Some(parent) = parent.as_ref() else { return Ok(()) };
    let mut children = parent.children.lock();
    if children.closed {
        return Err(Errno::EAGAIN);
    }
    children.add(child)
}

/// Undoes [`adopt`].
pub fn disown(child: &Process) {
    let parent = child.parent.lock();
    let removed = parent.as_ref().and_then(|parent| parent.children.lock().remove(child));
    drop(parent);
    drop(removed);
}

/// Hands the children of an ending process to the nearest subreaper above it that is not ending, or
/// to the first process. Sends them their parent-death signals.
pub fn hand_over_children(process: &Arc<Process>) {
    let orphans = {
        let mut children = process.children.lock();
        children.closed = true;
        core::mem::take(&mut children.list)
    };
    for orphan in orphans {
        hand_over(process, orphan);
    }
}

fn hand_over(from: &Arc<Process>, orphan: Arc<Process>) {
    let stranded = super::session::would_strand(&orphan, from);
    let mut link = orphan.parent.lock();
    let mut reaper = nearest_reaper(from);
    loop {
        let mut children = reaper.children.lock();
        if !children.closed {
            // If memory for the list is exhausted, the orphan is lost to wait(2), but still ends.
            let _ = children.add(&orphan);
            break;
        }
        drop(children);
        reaper = nearest_reaper(&reaper);
    }
    orphan.parent_id.store(reaper.id(), Ordering::Relaxed);
    let old = link.replace(reaper.clone());
    let ended = orphan.is_zombie();
    // A child cannot choose the signal that a reaper gets (`reparent_leader`, kernel/exit.c).
    orphan.exit_signal.store(SIGCHLD, Ordering::Relaxed);
    let vanishes = ended && tell_end(&orphan, &reaper);
    drop(link);
    drop(old);
    if vanishes {
        wait::release(&reaper, &orphan);
        return;
    }
    orphan.for_each_thread(|thread| {
        let signal = thread.parent_death_signal.load(Ordering::Relaxed);
        if signal != 0 {
            let _ = send::to_thread(thread, Siginfo::from_sender(signal, SI_USER, from.id(), 0));
        }
    });
    if stranded {
        super::session::hang_up_if_stopped(orphan.group());
    }
}

/// The process that takes the orphans of `process`: the first one above it that asked for them
/// (`PR_SET_CHILD_SUBREAPER`) and is not ending itself, otherwise pid 1.
fn nearest_reaper(process: &Arc<Process>) -> Arc<Process> {
    let mut at = process.parent();
    while let Some(above) = at {
        if above.subreaper.load(Ordering::Relaxed) && !above.is_exiting() {
            return above;
        }
        at = above.parent();
    }
    super::init_process()
}

/// Marks a process as ended and notifies its parent. Returns the parent if that ignores its
/// children: the caller must then remove the process with [`wait::release`].
pub fn end(process: &Arc<Process>) -> Option<Arc<Process>> {
    let link = process.parent.lock();
    // Set both bits at once: a parent that ignores its children must not find one to wait for.
    let vanishes = link.as_ref().is_some_and(|parent| is_ignored_by(process, parent));
    process.raise_notice(notice::ZOMBIE | if vanishes { notice::VANISHING } else { 0 });
    // Wake the pollers of a descriptor of the process.
    process.signal_events.wake_all();
    let parent = link.as_ref()?;
    tell_end(process, parent);
    vanishes.then(|| parent.clone())
}

/// Whether `parent` lets the child vanish when it ends (SIGCHLD ignored, or SA_NOCLDWAIT).
fn is_ignored_by(child: &Process, parent: &Process) -> bool {
    child.exit_signal.load(Ordering::Relaxed) == SIGCHLD && parent.actions().about_children().0
}

/// Notifies `parent` that `child` has ended; the caller holds the child's `parent` lock. Returns
/// whether the parent ignores its children, so that the child vanishes.
fn tell_end(child: &Process, parent: &Arc<Process>) -> bool {
    let signal = child.exit_signal.load(Ordering::Relaxed);
    let actions = parent.actions();
    let vanishes = signal == SIGCHLD && actions.about_children().0;
    // Nearly every shell and server waits without a handler for the signal: then the signal's
    // information is not even gathered. A blocked signal is sent, because the action may change
    // before it is unblocked (`sig_ignored`).
    let unheard = signal == SIGCHLD
        && actions.ignores(SIGCHLD)
        && parent.blocked_by_all() & bit(SIGCHLD) == 0;
    if signal != 0 && !unheard {
        let status = child.exit_status.load(Ordering::Relaxed);
        let (code, value) = match status & 0x7f {
            0 => (CLD_EXITED, status >> 8 & 0xff),
            killer if status & dump::DUMPED != 0 => (CLD_DUMPED, killer),
            killer => (CLD_KILLED, killer),
        };
        let mut info = about_child(child, code, value);
        info.si_signo = signal as i32;
        let _ = send::to_process(parent, info);
    }
    parent.child_events.wake_all();
    vanishes
}

/// Notifies the parent that a child stopped or continued.
pub fn tell_change(child: &Arc<Process>, code: i32, signal: u32) {
    let Some(parent) = child.parent() else { return };
    if parent.actions().about_children().1 {
        let _ = send::to_process(&parent, about_child(child, code, signal as i32));
    }
    parent.child_events.wake_all();
}

fn about_child(child: &Process, code: i32, status: i32) -> Siginfo {
    let usage = child.usage();
    let ticks = |nanos: u64| (nanos / (NANOS_PER_SEC / CLOCK_TICKS_PER_SEC)) as i64;
    let uid = child.first_thread().map_or(0, |thread| thread.credentials().uid);
    let (user, system) = (ticks(usage.user_ns), ticks(usage.system_ns));
    Siginfo::from_child(code, child.id(), uid, status, user, system)
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
