//! What a tracer's `wait(2)` finds: stops of the threads that it traces, and their ends
//! (`wait_consider_task`, kernel/exit.c of Linux 6.1).

use alloc::sync::Arc;

use hayate_abi::process::{__WNOTHREAD, WEXITED, WNOWAIT};

use super::tracee::{LINKS, Phase, Tracee};
use crate::process::record::{Process, end_code};
use crate::process::thread::Thread;
use crate::schedule;

/// What was found of a thread.
pub struct Found {
    /// The relation. It is out of the list if what was found ends it: the caller then calls
    /// [`settle`](super::link::settle), when it has read what it reports.
    pub tracee: Arc<Tracee>,
    /// The change.
    pub change: Change,
}

/// What has changed.
pub enum Change {
    /// It has stopped; the upper part of a wait status.
    Stopped(u32),
    /// It has ended, with this wait status.
    Ended(i32),
    /// It was its process's first, and that has ended. `true`: the caller is the parent, and reaps
    /// it.
    Process(bool),
}

/// Whether `process` traces the first thread of `child`.
#[cold]
pub fn traces_first(process: &Process, child: &Process) -> bool {
    LINKS.lock().iter().any(|link| {
        core::ptr::eq(&**link.tracer.process(), process)
            && core::ptr::eq(&**link.thread.process(), child)
            && link.is_first()
    })
}

/// Whether an ended process is kept from its parent: another process traces its first thread, or a
/// thread of it has ended and its tracer has yet to wait for that (`delay_group_leader`). The
/// caller holds the lock of the process's parent.
#[cold]
pub fn holds(process: &Process, parent: Option<&Arc<Process>>) -> bool {
    LINKS.lock().iter().any(|link| {
        core::ptr::eq(&**link.thread.process(), process)
            && if link.is_first() {
                parent.is_none_or(|parent| !Arc::ptr_eq(parent, link.tracer.process()))
            } else {
                matches!(link.state.lock().phase, Phase::Ended(_))
            }
    })
}

/// Tells the tracer of an ended process's first thread, if that is not its parent.
#[cold]
pub fn tell_end(process: &Process) {
    let first = LINKS
        .lock()
        .iter()
        .find(|link| core::ptr::eq(&**link.thread.process(), process) && link.is_first())
        .cloned();
    if let Some(tracee) = first {
        let status = process.exit_status.load(core::sync::atomic::Ordering::Relaxed);
        let (code, value) = end_code(status);
        tracee.tell(code, value);
    }
}

/// Looks once at the threads that a process traces and for which `matches` holds. The second value:
/// whether there is any.
#[cold]
pub fn look(
    caller: &Arc<Process>,
    options: u32,
    matches: impl Fn(&Thread) -> bool,
) -> (Option<Found>, bool) {
    let me = schedule::current().id();
    let (mut any, mut found) = (false, None);
    {
        let mut links = LINKS.lock();
        for (place, link) in links.iter().enumerate() {
            let mine = Arc::ptr_eq(link.tracer.process(), caller)
                && (options & __WNOTHREAD == 0
                    || link.tracer.execution().is_some_and(|own| own.id() == me));
            if !mine || !matches(&link.thread) {
                continue;
            }
            any = true;
            if let Some(change) = change_of(link, &links, options) {
                found = Some((place, Found { tracee: link.clone(), change }));
                break;
            }
        }
        let Some((place, found)) = &found else { return (None, any) };
        let ends = !matches!(found.change, Change::Stopped(_) | Change::Process(true));
        if ends && options & WNOWAIT == 0 {
            // Not the last reference: that is in `found`.
            drop(links.swap_remove(*place));
            found.tracee.state.lock().linked = false;
        }
    }
    (found.map(|(_, found)| found), true)
}

/// What `wait` may report of a thread now.
fn change_of(link: &Tracee, links: &[Arc<Tracee>], options: u32) -> Option<Change> {
    let process = link.thread.process();
    if link.is_first() && process.is_zombie() {
        let others = links.iter().any(|other| {
            core::ptr::eq(&**other.thread.process(), &**process)
                && matches!(other.state.lock().phase, Phase::Ended(_))
        });
        // By number: the lock of a process's parent is taken before the list's.
        let is_child = process.parent_id() == link.tracer.process().id();
        return (options & WEXITED != 0 && !others).then_some(Change::Process(is_child));
    }
    let mut state = link.state.lock();
    match state.phase {
        Phase::Stopped if state.untold && !state.listening => {
            state.untold = options & WNOWAIT != 0;
            Some(Change::Stopped(state.code))
        }
        Phase::Ended(status) if options & WEXITED != 0 => Some(Change::Ended(status)),
        _ => None,
    }
}

/// Forgets the relation to the first thread of a process that its parent has waited for.
#[cold]
pub fn forget(process: &Process) {
    let gone = {
        let mut links = LINKS.lock();
        let place = links
            .iter()
            .position(|link| core::ptr::eq(&**link.thread.process(), process) && link.is_first());
        place.map(|place| links.swap_remove(place))
    };
    if let Some(gone) = gone {
        gone.state.lock().linked = false;
    }
}
