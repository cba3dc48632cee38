//! Waiting for children (`wait4(2)`, `waitid(2)`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::process::*;
use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};

use super::family;
use super::family::bury;
use super::record::{Process, end_code};
use super::signal::stop::StopChange;
use super::thread::Thread;
use super::tracing;
use super::tracing::report::{Change, Found};
use super::usage::Usage;
use super::visible;
use crate::schedule;
use crate::schedule::Woken;

/// Which children to wait for.
#[derive(Clone, Copy, Debug)]
pub enum WaitFor {
    /// Any.
    Any,
    /// The one with this number.
    Process(u32),
    /// Those of a process group.
    Group(u32),
}

/// Beside the options of `waitid(2)`, and none of them: the report tells the child's user.
pub const WITH_USER: u32 = 1 << 16;

/// The report of `wait` about a child.
pub struct Report {
    /// Its number, as the caller sees it.
    pub pid: u32,
    /// Its real user. Of a child that has ended only [on request](WITH_USER), else 0.
    pub uid: u32,
    /// The status in the form of `wait4`.
    pub status: i32,
    /// The code (`CLD_*`) in the form of `waitid`.
    pub code: i32,
    /// The value that belongs to the code: an exit status or a signal.
    pub value: i32,
    /// The resources that it and its own children consumed.
    pub usage: Usage,
}

impl WaitFor {
    fn matches(self, child: &Process) -> bool {
        match self {
            WaitFor::Any => true,
            WaitFor::Process(id) => child.id() == id,
            WaitFor::Group(group) => child.group() == group,
        }
    }
}

/// Whether `__WCLONE` and `__WALL` allow this child: one that ends without SIGCHLD is a "clone".
fn kind_matches(child: &Process, options: u32) -> bool {
    options & __WALL != 0
        || (options & __WCLONE != 0) == (child.exit_signal.load(Ordering::Relaxed) != SIGCHLD)
}

/// Whether the child is one of the current thread (`__WNOTHREAD`): it made the child, or the thread
/// that did so has ended and it is the first thread of the process (`find_alive_thread`,
/// kernel/exit.c).
fn is_of_caller(parent: &Process, child: &Process) -> bool {
    let me = schedule::current().id();
    let maker = child.maker.load(Ordering::Relaxed);
    if maker == me {
        return true;
    }
    let (mut first, mut is_there) = (None, false);
    parent.for_each_thread(|thread| {
        if let Some(execution) = thread.execution() {
            first.get_or_insert(execution.id());
            is_there |= execution.id() == maker;
        }
    });
    !is_there && first == Some(me)
}

/// Waits for a child to change its state.
///
/// * `options` - of `WEXITED`, `WSTOPPED`, `WCONTINUED`, `WNOHANG`, `WNOWAIT`, `__W*`, and
///   [`WITH_USER`].
///
/// Returns `None` with `WNOHANG` if there are children but none has changed. Fails with `ECHILD` if
/// there is no child to wait for, `ERESTARTSYS` if a signal comes first.
pub fn wait(parent: &Arc<Process>, which: WaitFor, options: u32) -> Result<Option<Report>> {
    if options & WNOHANG == 0 {
        schedule::current().waits_for_child();
    }
    // The common case first, without touching the queue.
    if let Some(result) = look(parent, which, options) {
        return result;
    }
    let found = parent.child_events.sleep_interruptible(|| look(parent, which, options));
    match found {
        Ok(result) => result,
        Err(Woken::Interrupted | Woken::TimedOut) => Err(Errno::ERESTARTSYS),
    }
}

/// Checks the children once. `None` if the caller must sleep.
fn look(parent: &Arc<Process>, which: WaitFor, options: u32) -> Option<Result<Option<Report>>> {
    let keep = options & WNOWAIT != 0;
    let mut any = false;
    let mut children = parent.children.lock();
    let mut ended = None;
    let mut at = children.oldest();
    while let Some(child) = at.get() {
        if !which.matches(child)
            || !kind_matches(child, options)
            || options & __WNOTHREAD != 0 && !is_of_caller(parent, child)
        {
            at.move_next();
            continue;
        }
        any = true;
        if options & WEXITED != 0 && child.is_waitable() {
            ended = at.clone_pointer();
            break;
        }
        let stops = options & WSTOPPED != 0;
        let continues = options & WCONTINUED != 0;
        if (stops || continues)
            && let Some(change) = change_of(parent, child, (stops, continues), keep)
        {
            let report = report_change(child, change);
            drop(children);
            return Some(Ok(Some(report)));
        }
        at.move_next();
    }
    let Some(child) = ended else {
        drop(children);
        if parent.is_involved() {
            let (found, traces) = look_at_traced(parent, which, options);
            any |= traces;
            if found.is_some() {
                return Some(Ok(found));
            }
        }
        return if !any {
            Some(Err(Errno::ECHILD))
        } else if options & WNOHANG != 0 {
            Some(Ok(None))
        } else {
            None
        };
    };
    if keep {
        drop(children);
        return Some(Ok(Some(report_end(&child, options))));
    }
    let taken = children.remove(&child);
    drop(children);
    drop(taken);
    Some(Ok(Some(reap(parent, child, options))))
}

/// Takes an ended child out of the list, if there is one.
pub(super) fn take_ended(parent: &Process) -> Option<Arc<Process>> {
    let mut children = parent.children.lock();
    let mut at = children.oldest();
    while at.get().is_some_and(|child| !child.is_waitable()) {
        at.move_next();
    }
    let child = at.clone_pointer()?;
    children.remove(&child)
}

/// Buries an ended child, which is on no list any more; what it consumed is the parent's.
#[inline(always)]
pub(super) fn reap(parent: &Process, child: Arc<Process>, options: u32) -> Report {
    let report = report_end(&child, options);
    parent.children_usage.lock().add(&report.usage);
    let moved = *child.moved.lock();
    if !moved.is_nothing() {
        parent.moved.lock().add(&moved);
    }
    bury(child);
    report
}

/// The change of a child that is not reported yet. The stops of one that the parent itself traces
/// are those of its threads.
fn change_of(
    parent: &Process,
    child: &Process,
    (stops, continues): (bool, bool),
    keep: bool,
) -> Option<StopChange> {
    let traced = parent.is_involved() && tracing::report::traces_first(parent, child);
    child.untold_change(stops && !traced, continues, keep)
}

/// Looks at the threads that the process traces. The second value: whether there are any to wait
/// for.
#[cold]
fn look_at_traced(caller: &Arc<Process>, which: WaitFor, options: u32) -> (Option<Report>, bool) {
    let matches = |thread: &Thread| match which {
        WaitFor::Any => true,
        WaitFor::Process(id) => thread.id() == id,
        WaitFor::Group(group) => thread.process().group() == group,
    };
    let (found, any) = tracing::report::look(caller, options, matches);
    let Some(Found { tracee, change }) = found else { return (None, any) };
    let thread = &tracee.thread;
    let process = thread.process();
    let report = |status, (code, value)| Report {
        pid: visible::shown(thread.id()),
        uid: thread.credentials().uid,
        status,
        code,
        value,
        usage: process.usage(),
    };
    let report = match change {
        Change::Stopped(code) => report((code << 8 | 0x7f) as i32, (CLD_TRAPPED, code as i32)),
        Change::Ended(status) => report(status, end_code(status)),
        Change::Process(is_child) => {
            let taken = (is_child && options & WNOWAIT == 0)
                .then(|| caller.children.lock().remove(process))
                .flatten();
            match taken {
                Some(child) => reap(caller, child, options),
                None => report_end(process, options),
            }
        }
    };
    if !matches!(change, Change::Stopped(_)) && options & WNOWAIT == 0 {
        tracing::link::settle(&tracee);
    }
    (Some(report), true)
}

fn report_end(child: &Process, options: u32) -> Report {
    let status = child.exit_status.load(Ordering::Relaxed);
    let (code, value) = end_code(status);
    let mut usage = child.children_usage();
    usage.add(&child.ended_usage.lock());
    // Not looked up for those who do not ask: this is a part of every start.
    let uid = if options & WITH_USER != 0 { real_user(child) } else { 0 };
    Report { pid: visible::shown(child.id()), uid, status, code, value, usage }
}

fn report_change(child: &Process, change: StopChange) -> Report {
    let (status, code, value) = match change {
        StopChange::Stopped(signal) => ((signal as i32) << 8 | 0x7f, CLD_STOPPED, signal as i32),
        StopChange::Continued => (0xffff, CLD_CONTINUED, SIGCONT as i32),
    };
    let usage = child.usage();
    Report { pid: visible::shown(child.id()), uid: real_user(child), status, code, value, usage }
}

fn real_user(child: &Process) -> u32 {
    child.threads.lock().first().map_or(0, |thread| thread.real_user())
}

/// Whether a process has a child with this number, without waiting.
pub fn find_child(parent: &Process, id: u32) -> bool {
    parent.children.lock().iter().any(|child| child.id() == id)
}

/// Returns the process with this number if it is a child. Fails with `ECHILD` if not.
pub fn child(parent: &Process, id: u32) -> Result<Arc<Process>> {
    let child = family::find(id).map_err(|_| Errno::ECHILD)?;
    if find_child(parent, id) { Ok(child) } else { Err(Errno::ECHILD) }
}
