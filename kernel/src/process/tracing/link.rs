//! The beginning and the end of tracing (kernel/ptrace.c of Linux 6.1).

use alloc::sync::Arc;

use hayate_abi::process::{CLONE_PTRACE, CLONE_UNTRACED, CLONE_VFORK};
use hayate_abi::ptrace::*;
use hayate_abi::signal::{SI_KERNEL, SI_USER, SIGCHLD, SIGSTOP, Siginfo};
use hayate_abi::{Errno, Result};

use super::tracee::{LINKS, Phase, Tracee, Until, is_traced, of};
use crate::credentials::Capability;
use crate::memory::Space;
use crate::process::access;
use crate::process::access::Ids;
use crate::process::family;
use crate::process::pids;
use crate::process::record::{Process, end_code};
use crate::process::signal::{send, stop};
use crate::process::thread::{Thread, current};
use crate::reclaim::growth::Grow;

/// How a thread is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It is stopped (`PTRACE_ATTACH`).
    Stops,
    /// It goes on, with these options (`PTRACE_SEIZE`).
    GoesOn(u32),
}

/// Begins to trace another process's thread. Fails with `EPERM` if the caller may not, or somebody
/// does already.
pub fn attach(target: &Arc<Thread>, manner: Manner) -> Result<()> {
    let caller = current();
    let process = target.process();
    if Arc::ptr_eq(process, caller.process()) {
        return Err(Errno::EPERM);
    }
    let tracer = caller.arc().ok_or(Errno::ESRCH)?;
    let (seized, options) = match manner {
        Manner::Stops => (false, 0),
        Manner::GoesOn(options) => (true, options),
    };
    let tracee = Tracee::new(target, &tracer, caller.credentials(), seized, options)?;
    process.involve();
    caller.process().involve();
    process.steady(|| {
        access::check(target, Ids::Real)?;
        enter(&tracee)
    })?;
    if target.execution().is_none() {
        // It has ended meanwhile, and may not have seen that it is traced.
        detach(&tracee, 0);
        return Err(Errno::EPERM);
    }
    if let Some(space) = target.space() {
        hold(&space);
    }
    if manner == Manner::Stops {
        let _ = target.queue.push(Siginfo::new(SIGSTOP, SI_KERNEL), u64::MAX);
        target.interrupt();
    } else if let Some(execution) = target.execution() {
        execution.nudge();
    }
    // One that is stopped with its process stops for its tracer now.
    stop::wake();
    Ok(())
}

/// Makes the parent of the current thread's process trace the thread (`PTRACE_TRACEME`). Fails with
/// `EPERM` if somebody traces it already, or it has more rights than the parent
/// (`cap_ptrace_traceme`).
pub fn trace_me() -> Result<()> {
    let thread = current().arc().ok_or(Errno::ESRCH)?;
    let process = thread.process();
    if is_traced(&thread) {
        return Err(Errno::EPERM);
    }
    let parent = process.parent().ok_or(Errno::EPERM)?;
    let maker = process.maker.load(core::sync::atomic::Ordering::Relaxed);
    let mut tracer = None;
    parent.for_each_thread(|other| {
        let is_maker = other.execution().is_some_and(|execution| execution.id() == maker);
        if is_maker || tracer.is_none() {
            tracer = Some(other.clone());
        }
    });
    // A parent that ends traces nobody, and that is no error.
    let Some(tracer) = tracer.filter(|tracer| tracer.execution().is_some()) else { return Ok(()) };
    let (own, above) = (thread.credentials(), tracer.credentials());
    let contains = above.user.is(&own.user) && above.permitted.contains(own.permitted);
    let may = contains || above.has_in(&own.user, Capability::SysPtrace);
    if !may || !access::is_within(&above, &own) {
        return Err(Errno::EPERM);
    }
    let tracee = Tracee::new(&thread, &tracer, above, false, 0)?;
    process.involve();
    parent.involve();
    process.steady(|| enter(&tracee))?;
    if tracer.execution().is_none() {
        detach(&tracee, 0);
        return Ok(());
    }
    if let Some(space) = thread.space() {
        hold(&space);
    }
    // From its next return to user mode on it is stopped.
    thread.interrupt();
    Ok(())
}

/// Puts a relation into the list. Fails with `EPERM` if the thread is traced, `ENOMEM`.
fn enter(tracee: &Arc<Tracee>) -> Result<()> {
    let mut links = LINKS.lock();
    if links.iter().any(|link| Arc::ptr_eq(&link.thread, &tracee.thread)) {
        return Err(Errno::EPERM);
    }
    links.make_room(1)?;
    tracee.state.lock().linked = true;
    links.push(tracee.clone());
    Ok(())
}

/// Keeps a space out of pools and of supervisor mode for good.
fn hold(space: &Space) {
    space.stay_out();
    space.return_to_user();
}

/// A program begins in a space: if its process is traced, the space is one that is held.
pub fn begin_program(process: &Process, space: &Space) {
    if process.is_involved() && super::is_any_traced(process) {
        space.stay_out();
        space.stay_user();
    }
}

/// Whether a tracer without privilege traces the thread: a program that it executes then gains no
/// rights (`LSM_UNSAFE_PTRACE`, security/commoncap.c).
#[cold]
pub fn bars_privilege(thread: &Thread) -> bool {
    let user = &thread.credentials().user;
    of(thread).is_some_and(|tracee| !tracee.credentials.has_in(user, Capability::SysPtrace))
}

/// Makes the tracer of `parent` trace a new thread, which cannot be found yet, if that is asked
/// for. Returns the event at which `parent` then stops; 0: none. Fails with `ENOMEM`.
#[cold]
pub fn follow(parent: &Thread, child: &Arc<Thread>, flags: u64, exit_signal: u32) -> Result<u32> {
    if let Some(space) = parent.space().filter(|space| space.stays_out())
        && let Some(copy) = child.space().filter(|copy| !Arc::ptr_eq(copy, &space))
    {
        copy.stay_out();
    }
    let Some(above) = of(parent) else { return Ok(0) };
    let event = if flags & CLONE_VFORK != 0 {
        PTRACE_EVENT_VFORK
    } else if exit_signal != SIGCHLD {
        PTRACE_EVENT_CLONE
    } else {
        PTRACE_EVENT_FORK
    };
    let options = above.state.lock().options;
    let asked = flags & CLONE_UNTRACED == 0 && options >> event & 1 != 0;
    if !asked && flags & CLONE_PTRACE == 0 {
        return Ok(0);
    }
    let credentials = above.credentials.clone();
    let tracee = Tracee::new(child, &above.tracer, credentials, above.seized, options)?;
    child.process().involve();
    {
        let mut links = LINKS.lock();
        // A tracer that ends takes its threads out of the list first.
        if !above.state.lock().linked {
            return Ok(0);
        }
        links.make_room(1)?;
        let mut state = tracee.state.lock();
        state.linked = true;
        state.trap = above.seized;
        drop(state);
        links.push(tracee.clone());
    }
    if !above.seized {
        let _ = child.queue.push(Siginfo::new(SIGSTOP, SI_USER), u64::MAX);
    }
    Ok(if asked { event } else { 0 })
}

/// Undoes [`follow`]: the thread does not begin.
#[cold]
pub fn unfollow(child: &Thread) {
    if let Some(tracee) = of(child) {
        detach(&tracee, 0);
    }
}

/// Ends a relation; a stopped thread goes on with this signal.
pub fn detach(tracee: &Arc<Tracee>, signal: u32) {
    let gone = {
        let mut links = LINKS.lock();
        let mut state = tracee.state.lock();
        state.linked = false;
        if state.is_stopped() {
            state.until = Until::default();
            state.leave_stop(signal);
        }
        let place = links.iter().position(|link| Arc::ptr_eq(link, tracee));
        place.map(|place| links.swap_remove(place))
    };
    drop(gone);
    settle(tracee);
}

/// What follows when a relation is out of the list. Call it without locks.
pub fn settle(tracee: &Tracee) {
    if core::mem::take(&mut tracee.state.lock().keeps_number) {
        pids::release(tracee.thread.id());
    }
    tracee.resumed.wake_all();
    // It finds that it is not traced any more.
    if let Some(execution) = tracee.thread.execution() {
        execution.nudge();
    }
    family::unhold(tracee.thread.process());
}

/// Ends the relations in which the current thread, which ends, is the tracer.
#[cold]
pub fn tracer_ends(thread: &Thread) {
    loop {
        let mine = |link: &&Arc<Tracee>| core::ptr::eq(&*link.tracer, thread);
        let Some(tracee) = LINKS.lock().iter().find(mine).cloned() else { return };
        let (kills, signal) = {
            let state = tracee.state.lock();
            let signal = if state.delivers { state.code } else { 0 };
            (state.options & PTRACE_O_EXITKILL != 0, signal)
        };
        if kills {
            kill(tracee.thread.process());
        }
        detach(&tracee, signal);
    }
}

/// Ends a process by `SIGKILL`, also one that is about to end and stopped for its tracer.
pub fn kill(process: &Arc<Process>) {
    let _ = send::to_process(process, Siginfo::new(hayate_abi::signal::SIGKILL, SI_KERNEL));
}

/// `SIGKILL` came to a process that is ending: none of its threads stops any more.
#[cold]
pub fn killed(process: &Process) {
    let links = LINKS.lock();
    for link in links.iter().filter(|link| core::ptr::eq(&**link.thread.process(), process)) {
        link.state.lock().killed = true;
        link.resumed.wake_all();
    }
}

/// A thread that may be traced has ended; its process, too, if it was the `last` one. Returns
/// whether its number stays in use.
#[cold]
pub fn thread_ends(thread: &Thread, status: i32, last: bool) -> bool {
    let Some(tracee) = of(thread) else { return false };
    if tracee.is_first() {
        // It is reported with its process.
        return false;
    }
    let process = thread.process();
    let status = process.control.lock().exit.unwrap_or(status);
    {
        let mut state = tracee.state.lock();
        if !state.linked {
            return false;
        }
        state.phase = Phase::Ended(status);
        state.keeps_number = !last;
    }
    let (code, value) = end_code(status);
    tracee.tell(code, value);
    !last
}

/// The thread has executed a program and takes over the number of its process: the first thread,
/// which has ended, is reported by nobody.
#[cold]
pub fn takes_over(thread: &Thread) {
    let process = thread.process();
    let first = {
        let mut links = LINKS.lock();
        let place = links.iter().position(|link| {
            core::ptr::eq(&**link.thread.process(), &**process)
                && link.is_first()
                && !core::ptr::eq(&*link.thread, thread)
        });
        place.map(|place| links.swap_remove(place))
    };
    if let Some(first) = first {
        first.state.lock().linked = false;
    }
}

/// `SIGCONT` came: tells the tracers that have asked to know.
#[cold]
pub fn continued(process: &Process) {
    // Each once, by its number.
    let mut last = 0;
    loop {
        let next = {
            let links = LINKS.lock();
            let its = links.iter().filter(|link| {
                link.seized
                    && link.thread.id() > last
                    && core::ptr::eq(&**link.thread.process(), process)
            });
            its.min_by_key(|link| link.thread.id()).cloned()
        };
        let Some(tracee) = next else { return };
        last = tracee.thread.id();
        tracee.trap(|state| state.notify = true);
    }
}
