//! Parents and children.
//!
//! A process owns its children, ended ones included, until it has waited for them; a child knows
//! its parent. Both links are changed under locks of the two processes concerned, never under one
//! for all. Lock order: a child's `parent`, then the parent's `children`; the lock of `parent`
//! also covers the step from living to ended, so that an end is told to exactly one parent
//! however parents die meanwhile.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::signal::*;
use hayate_abi::time::{CLOCK_TICKS_PER_SEC, NANOS_PER_SEC};
use hayate_abi::{Errno, Result};

use super::record::{Process, notice};
use super::signal::send;
use super::{pids, wait};

/// The children of a process.
pub struct Children {
    list: Vec<Arc<Process>>,
    /// The process is ending: nobody can become its child any more.
    closed: bool,
}

impl Children {
    /// No children.
    pub const fn none() -> Children {
        Children { list: Vec::new(), closed: false }
    }

    /// The children.
    pub fn iter(&self) -> core::slice::Iter<'_, Arc<Process>> {
        self.list.iter()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    fn add(&mut self, child: &Arc<Process>) -> Result<()> {
        self.list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.list.push(child.clone());
        Ok(())
    }

    /// Takes a child out.
    pub fn remove(&mut self, child: &Process) -> Option<Arc<Process>> {
        // The child that ended last was often the last to start.
        let index = self.list.iter().rposition(|entry| core::ptr::eq(&**entry, child))?;
        Some(self.list.swap_remove(index))
    }
}

/// Makes a new process, whose parent is set already, a child of that parent. `EAGAIN` if the
/// parent is ending, `ENOMEM` without memory.
pub fn adopt(child: &Arc<Process>) -> Result<()> {
    let parent = child.parent.lock();
    let Some(parent) = parent.as_ref() else { return Ok(()) };
    let mut children = parent.children.lock();
    if children.closed {
        return Err(Errno::EAGAIN);
    }
    children.add(child)
}

/// Takes back [`adopt`].
pub fn disown(child: &Process) {
    let parent = child.parent.lock();
    let removed = parent.as_ref().and_then(|parent| parent.children.lock().remove(child));
    drop(parent);
    drop(removed);
}

/// Hands the children of an ending process to the nearest living subreaper above it, or to the
/// first process. Signals them if they asked for it.
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
            // Without memory for the list the orphan is lost to wait(2), but still ends.
            let _ = children.add(&orphan);
            break;
        }
        drop(children);
        reaper = nearest_reaper(&reaper);
    }
    orphan.parent_id.store(reaper.id(), Ordering::Relaxed);
    let old = link.replace(reaper.clone());
    let ended = orphan.is_zombie();
    // Nobody may choose a signal for a reaper (`reparent_leader`, kernel/exit.c).
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

/// Who takes the orphans of a process: the first process above it that asked to
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

/// Marks a process as ended and tells its parent. True if nobody will wait for it: the caller
/// then takes it away with [`wait::release`], given the parent.
pub fn end(process: &Arc<Process>) -> Option<Arc<Process>> {
    let link = process.parent.lock();
    // Both at once: a parent that ignores its children must not find one to wait for.
    let vanishes = link.as_ref().is_some_and(|parent| is_ignored_by(process, parent));
    process.raise_notice(notice::ZOMBIE | if vanishes { notice::VANISHING } else { 0 });
    // Those who poll a descriptor of the process.
    process.signal_events.wake_all();
    let parent = link.as_ref()?;
    tell_end(process, parent);
    vanishes.then(|| parent.clone())
}

/// Whether `parent` lets the child vanish when it ends (SIGCHLD ignored, or SA_NOCLDWAIT).
fn is_ignored_by(child: &Process, parent: &Process) -> bool {
    child.exit_signal.load(Ordering::Relaxed) == SIGCHLD && parent.actions().about_children().0
}

/// Tells `parent` that `child` has ended; the caller holds the child's `parent` lock. True if
/// the parent does not care, so that the child vanishes.
fn tell_end(child: &Process, parent: &Arc<Process>) -> bool {
    let signal = child.exit_signal.load(Ordering::Relaxed);
    let actions = parent.actions();
    let vanishes = signal == SIGCHLD && actions.about_children().0;
    // Nearly every shell and server waits without caring for the signal: then what it would tell
    // is not even gathered. A blocked one waits, though: the action may change (`sig_ignored`).
    let unheard = signal == SIGCHLD
        && actions.ignores(SIGCHLD)
        && parent.blocked_by_all() & bit(SIGCHLD) == 0;
    if signal != 0 && !unheard {
        let status = child.exit_status.load(Ordering::Relaxed);
        let (code, value) = match status & 0x7f {
            0 => (CLD_EXITED, status >> 8 & 0xff),
            killer if status & 0x80 != 0 => (CLD_DUMPED, killer),
            killer => (CLD_KILLED, killer),
        };
        let mut info = about_child(child, code, value);
        info.si_signo = signal as i32;
        let _ = send::to_process(parent, info);
    }
    parent.child_events.wake_all();
    vanishes
}

/// Tells the parent that a child stopped or went on.
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

/// A process by number, which must exist. `ESRCH` otherwise.
pub fn find(number: u32) -> Result<Arc<Process>> {
    pids::process(number).ok_or(Errno::ESRCH)
}
