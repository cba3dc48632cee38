//! New threads and processes (`fork(2)`, `vfork(2)`, `clone(2)`, `clone3(2)`).
//!
//! A new thread or process is composed of a space, a program and a position
//! ([`super::transform`]); then a record, a thread and an execution are made from it.
//!
//! Everything that can fail is made before anything is visible. Once the new thread's number can be
//! found, only one failure is left: a pending signal. It is undone by removing the new thread from
//! the three places that know it. No lock is held over a step that allocates.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::process::*;
use hayate_abi::ptrace::PTRACE_EVENT_VFORK_DONE;
use hayate_abi::signal::SignalStack;
use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::fpu;
use hayate_machine::trap::UserRegs;
use hayate_machine::user::UserPtr;

use super::cgroup;
use super::cgroup::follow;
use super::cgroup::group::Group;
use super::cgroup::rest::Rest;
use super::family;
use super::membership;
use super::namespaces;
use super::namespaces::Namespaces;
use super::pid_namespace::Inside;
use super::pidfd;
use super::pids;
use super::pids::Number;
use super::record::{Inheritance, Process, notice};
use super::seccomp;
use super::signal::sets::is_signal;
use super::templates;
use super::templates::ChildNumbers;
use super::thread::{Thread, ThreadName, ThreadParts, current};
use super::tracing;
use super::tracing::{link, stop};
use super::transform::{Executed, Position};
use super::visible;
use crate::credentials::Capability;
use crate::memory::Space;
use crate::namespace::Handle;
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::schedule::{Execution, Woken};

/// The arguments of `clone`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneRequest<'a> {
    /// `CLONE_*`.
    pub flags: u64,
    /// The signal that is sent to the parent at the end; 0 for none.
    pub exit_signal: u32,
    /// The new thread's stack pointer; 0 to keep the caller's.
    pub stack: u64,
    /// Where the number is written in the caller's memory (`CLONE_PARENT_SETTID`).
    pub parent_tid: usize,
    /// Where the number is written and cleared in the new thread's memory.
    pub child_tid: usize,
    /// Where a descriptor of the new process is written (`CLONE_PIDFD`).
    pub pidfd: usize,
    /// The new thread's thread pointer (`CLONE_SETTLS`).
    pub tls: u64,
    /// The control group in which it begins instead of the caller's (`CLONE_INTO_CGROUP`).
    pub into: Option<&'a Arc<Group>>,
}

/// The kind of namespaces of which there is none.
const MISSING: u64 = CLONE_NEWTIME;

impl CloneRequest<'_> {
    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Where the child's number is written and cleared in its memory.
    #[cold]
    fn child_numbers(&self) -> ChildNumbers {
        let told = |flag| if self.has(flag) { self.child_tid } else { 0 };
        ChildNumbers { set: told(CLONE_CHILD_SETTID), clear: told(CLONE_CHILD_CLEARTID) }
    }

    /// Fails with `EINVAL` for invalid combinations, and for a kind of namespaces that is not
    /// there.
    fn check(&self) -> Result<()> {
        let requires = |flag, needed| !self.has(flag) || self.has(needed);
        let bad = !requires(CLONE_THREAD, CLONE_SIGHAND)
            || !requires(CLONE_SIGHAND, CLONE_VM)
            || (self.has(CLONE_NEWUSER) && self.has(CLONE_THREAD | CLONE_FS))
            || (self.has(CLONE_NEWPID) && self.has(CLONE_THREAD))
            || (self.has(CLONE_CLEAR_SIGHAND) && self.has(CLONE_SIGHAND))
            || self.has(MISSING)
            || (self.has(CLONE_PIDFD) && self.has(CLONE_THREAD | CLONE_DETACHED))
            || (self.exit_signal != 0 && !is_signal(self.exit_signal));
        if bad { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Starts a thread or a process that continues like the current thread; returns its number, as the
/// current thread sees it.
pub fn start(regs: &mut UserRegs, request: &CloneRequest) -> Result<u32> {
    request.check()?;
    let parent = current();
    if !request.has(CLONE_THREAD)
        && parent.has_signals()
        && !tracing::stop::has_only_past_stop(&parent)
    {
        return Err(Errno::ERESTARTNOINTR);
    }
    check_limit(&parent)?;
    crate::reclaim::leave_room()?;
    let mut number = Number::draw()?;
    let id = number.get();
    let mut position = position_after(regs, request)?;
    let involved = parent.process.is_involved();
    if involved {
        stop::unstep(&parent, &mut position.regs);
    }
    let space = space_for(&parent, request)?;
    let program = Executed::by(&parent);
    let (process, program_name) = if request.has(CLONE_THREAD) {
        (parent.process.clone(), program.name)
    } else {
        new_process(&parent, request, id, program)?
    };
    let thread = new_thread(&parent, request, id, process, program_name, space, &position)?;
    if request.has(CLONE_SYSVSEM) {
        thread.traces.share_undo(&parent.traces);
    }
    let fpu = fpu::fork().ok_or(Errno::ENOMEM)?;
    let execution = Execution::new_user(thread.clone(), &position.regs, fpu)?;
    inherit_schedule(&parent, &thread, &execution, request)?;
    let told = match thread.is_apart() {
        true => number_inside(&thread, &mut number, request)?,
        false => id,
    };
    if parent.declared.is_there() && !request.has(CLONE_VM) {
        templates::keep(&parent, &position, request.child_numbers())?;
    }
    if request.has(CLONE_PARENT_SETTID) {
        // As in Linux, a bad address does not make the call fail.
        let _ = UserPtr::<u32>::new(request.parent_tid).write(&told);
    }
    let descriptor = match request.has(CLONE_PIDFD) {
        true => Some(hold(&parent, &thread.process, request)?),
        false => None,
    };
    thread.set_execution(Some(execution.clone()));

    // One call of `introduce`, so that it stays a part of this function.
    let followed = match involved {
        true => link::follow(&parent, &thread, request.flags, request.exit_signal),
        false => Ok(0),
    };
    let introduced = match followed {
        Ok(event) => introduce(&parent, &thread, number, request).map(|()| event),
        Err(error) => Err(error),
    };
    let event = match introduced {
        Ok(event) => event,
        Err(error) => {
            not_introduced(&parent, &thread, descriptor, involved);
            return Err(error);
        }
    };
    if thread.start_tid() != 0 || thread.process.notice() != 0 || involved {
        execution.interrupt();
    }
    if request.has(CLONE_VFORK) {
        schedule::start_here(&execution);
        drop(execution);
    } else if request.has(CLONE_THREAD) {
        schedule::start(&execution);
    } else {
        schedule::start_child(&execution);
    }
    if event != 0 {
        stop::started(&parent, regs, event, id);
    }
    if request.has(CLONE_VFORK) {
        wait_for_space(&thread);
        if parent.process.is_involved() {
            stop::started(&parent, regs, PTRACE_EVENT_VFORK_DONE, id);
        }
    }
    Ok(told)
}

/// The space of a new thread: the parent's, or a copy.
#[inline(always)]
fn space_for(parent: &Thread, request: &CloneRequest) -> Result<Arc<Space>> {
    let space = parent.space().ok_or(Errno::ESRCH)?;
    if request.has(CLONE_VM) { Ok(space) } else { space.fork() }
}

/// Gives the caller a descriptor of the new process.
fn hold(parent: &Thread, process: &Arc<Process>, request: &CloneRequest) -> Result<i32> {
    let descriptor = parent.install(pidfd::open(process, 0)?, true)?;
    UserPtr::new(request.pidfd).write(&descriptor).inspect_err(|_| {
        let _ = parent.files().close(descriptor);
    })?;
    Ok(descriptor)
}

/// Fails with `EAGAIN` if the user has as many threads as its limit allows and no privilege to
/// exceed it.
fn check_limit(parent: &Thread) -> Result<()> {
    let limit = parent.process.limit(RLIMIT_NPROC);
    // If all threads together are fewer, they need not be counted per user.
    if (pids::count() as u64) < limit {
        return Ok(());
    }
    let credentials = parent.credentials();
    if credentials.uid == 0
        || credentials.has(Capability::SysResource)
        || credentials.has(Capability::SysAdmin)
    {
        return Ok(());
    }
    let mut count = 0;
    for process in pids::processes()? {
        process.for_each_thread(|thread| {
            count += u64::from(thread.credentials().uid == credentials.uid);
        });
    }
    if count >= limit { Err(Errno::EAGAIN) } else { Ok(()) }
}

fn new_process(
    parent: &Thread,
    request: &CloneRequest,
    id: u32,
    program: Executed,
) -> Result<(Arc<Process>, ThreadName)> {
    let from = &parent.process;
    let sibling = request.has(CLONE_PARENT);
    // It would be nobody's child, or have no init above it (`copy_process`).
    if sibling && from.is_unkillable() {
        return Err(Errno::EINVAL);
    }
    let actions = from.actions();
    let actions = if request.has(CLONE_SIGHAND) {
        actions
    } else if request.has(CLONE_CLEAR_SIGHAND) {
        Arc::new(actions.cleared())
    } else {
        Arc::new(actions.fork())
    };
    let process = Arc::new(Process::new(
        id,
        Inheritance {
            parent: if sibling { from.parent() } else { Some(from.clone()) },
            group: from.group(),
            session: from.session(),
            actions,
            limits: from.limits(),
            executable: program.executable,
            vectors: program.vectors,
            dumpable: from.dumpable.load(Ordering::Relaxed),
            dump_filter: from.dump_filter.load(Ordering::Relaxed),
            oom_score_adjust: from.oom_score_adjust.load(Ordering::Relaxed),
            // A sibling is a child of the thread that made the caller (`copy_process`).
            maker: if sibling {
                from.maker.load(Ordering::Relaxed)
            } else {
                schedule::current().id()
            },
            exit_signal: if sibling {
                from.exit_signal.load(Ordering::Relaxed)
            } else {
                request.exit_signal
            },
            keeps_mode: from.keeps_mode.load(Ordering::Relaxed),
            is_newcomer: from.is_newcomer.load(Ordering::Relaxed),
        },
    ));
    Ok((process, program.name))
}

fn new_thread(
    parent: &Thread,
    request: &CloneRequest,
    id: u32,
    process: Arc<Process>,
    name: ThreadName,
    space: Arc<Space>,
    position: &Position,
) -> Result<Arc<Thread>> {
    let files = parent.files();
    let directories = parent.directories()?;
    let shares_space = request.has(CLONE_VM);
    let thread = Thread::new(ThreadParts {
        id,
        process,
        name,
        credentials: parent.credentials(),
        files: if request.has(CLONE_FILES) { files } else { files.fork()? },
        directories: if request.has(CLONE_FS) { directories } else { Arc::new(directories.fork()) },
        space: Some(space),
        fs_base: position.fs_base,
        gs_base: position.gs_base,
        blocked: parent.blocked(),
        signal_stack: if shares_space && !request.has(CLONE_VFORK) {
            SignalStack::default()
        } else {
            *parent.signal_stack.lock()
        },
        borrows: request.has(CLONE_VFORK),
        no_new_privileges: parent.no_new_privileges.load(Ordering::Relaxed),
        personality: parent.personality.load(Ordering::Relaxed),
        // The parent's present value is the child's default (`copy_process`).
        timer_slack: parent.timer_slack.load(Ordering::Relaxed),
    });
    if !shares_space {
        thread.sequences.take_over(parent.sequences.registration());
    }
    if request.has(CLONE_CHILD_CLEARTID) {
        thread.clear_tid.store(request.child_tid, Ordering::Relaxed);
    }
    if request.has(CLONE_CHILD_SETTID) {
        thread.set_start_tid(request.child_tid);
    }
    Ok(thread)
}

/// The position of a new thread: the caller's, with 0 as the result of the call.
#[inline(always)]
fn position_after(regs: &UserRegs, request: &CloneRequest) -> Result<Position> {
    if request.has(CLONE_SETTLS) && request.tls >= cpu::USER_END {
        return Err(Errno::EPERM);
    }
    let mut position = Position {
        regs: regs.copied(),
        fs_base: if request.has(CLONE_SETTLS) { request.tls } else { cpu::user_fs_base() },
        gs_base: cpu::user_gs_base(),
    };
    position.regs.rax = 0;
    position.regs.orig_rax = u64::MAX;
    if request.stack != 0 {
        position.regs.rsp = request.stack;
    }
    Ok(position)
}

fn inherit_schedule(
    maker: &Thread,
    thread: &Thread,
    execution: &Execution,
    request: &CloneRequest,
) -> Result<()> {
    let parent = schedule::current();
    if parent.bequeaths() {
        execution.set_scheduling(parent.scheduling().for_child());
        if execution.inherit_io(&parent, request.has(CLONE_IO))? {
            maker.traces.note_shared_io();
            thread.traces.note_shared_io();
        }
        execution.set_memory_policy(parent.memory_policy());
        if parent.group() != 0 {
            execution.set_group(parent.group());
        }
        if !parent.may_read_tsc() {
            execution.starts_without_tsc();
        }
        if parent.is_guarded() {
            seccomp::pass_on(thread);
            execution.guard();
        }
        if let Some(set) = maker.own_namespaces() {
            thread.enter_namespaces(execution, set);
        }
    }
    if request.has(namespaces::KINDS) {
        renew_namespaces(maker, thread, execution, request.flags)?;
    }
    if parent.affinity() != u64::MAX {
        // The mask had an online processor when the parent got it, so this does not fail.
        let _ = execution.set_affinity(parent.affinity());
    }
    Ok(())
}

/// Puts the new thread into new namespaces.
#[cold]
fn renew_namespaces(
    maker: &Thread,
    thread: &Thread,
    execution: &Execution,
    flags: u64,
) -> Result<()> {
    const SHARED_AND_APART: u64 = CLONE_FS | CLONE_NEWNS;
    if flags & SHARED_AND_APART == SHARED_AND_APART {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE_NEWUSER != 0 {
        let new = membership::in_new_user_namespace(maker)?;
        thread.set_credentials(Arc::new(new));
        thread.process.is_newcomer.store(true, Ordering::Relaxed);
    }
    let own = maker.own_namespaces();
    let own = own.map_or_else(Namespaces::first, |own| Namespaces::clone(&own));
    // The new thread's places, which it does not share.
    let places = thread.directories()?;
    let mut new = own.renewed(flags, &thread.credentials(), &maker.process, &places)?;
    new.place(&places);
    thread.enter_namespaces(execution, Arc::new(new.set));
    Ok(())
}

/// Gives the new thread, which is in other namespaces than the first, its numbers in the PID
/// namespace in which it begins. Returns the one that the current thread sees.
#[cold]
fn number_inside(thread: &Thread, number: &mut Number, request: &CloneRequest) -> Result<u32> {
    let process = &thread.process;
    let Some(set) = thread.own_namespaces() else { return Ok(number.get()) };
    if request.has(CLONE_THREAD) && !process.is_in(&set.pids) {
        return Err(Errno::EINVAL);
    }
    if let Handle::Other(namespace) = &set.pids {
        let own = number.enter(namespace)?;
        if request.has(CLONE_THREAD) {
            thread.set_own_numbers(namespace.shown(process.id()), own);
        } else {
            process.inside.call_once(|| Inside::new(namespace.clone(), own == 1));
            let parent = namespace.shown(process.parent_id());
            process.shown_parent_id.store(parent, Ordering::Relaxed);
            thread.set_own_numbers(own, own);
        }
    }
    Ok(visible::shown(number.get()))
}

/// Makes the new thread known: to its process, its parent and the table of numbers.
#[inline(always)]
fn introduce(
    parent: &Thread,
    thread: &Arc<Thread>,
    number: Number,
    request: &CloneRequest,
) -> Result<()> {
    let process = &thread.process;
    if request.has(CLONE_THREAD) {
        let mut threads = process.threads.lock();
        threads.make_room(1)?;
        if process.is_grouped()
            && let Err(refused) = follow::thread_begins(process)
        {
            drop(threads);
            return Err(refused.tell());
        }
        threads.push(thread.clone());
        drop(threads);
        if process.is_grouped() {
            // It may have been moved since its maker was looked at.
            cgroup::cpu::settle(process);
        }
        if schedule::current().is_guarded() {
            // Another thread may have given all of them filters since the first look.
            guard_later(thread);
        }
        number.to_thread(thread);
        return Ok(());
    }
    process.threads.lock().push(thread.clone());
    if let Err(error) = family::adopt(process) {
        process.threads.lock().clear();
        return Err(error);
    }
    number.to_process(process);
    // A signal to the whole group may have been sent before the child was in the table. It has
    // reached the parent by now or will reach the child (see `send::to_group`).
    let told = parent.process.queue.mask() & !parent.blocked() != 0
        || parent.process.notice() & notice::EXIT != 0;
    if told {
        withdraw(process);
        return Err(Errno::ERESTARTNOINTR);
    }
    let is_inside = process.own_pid_namespace().is_some()
        || parent.process.is_grouped()
        || request.into.is_some();
    if is_inside { begin_inside(parent, process, request.into) } else { Ok(()) }
}

/// Lets a process begin in a PID namespace, unless nothing begins there any more, and in a control
/// group.
#[cold]
fn begin_inside(parent: &Thread, process: &Arc<Process>, into: Option<&Arc<Group>>) -> Result<()> {
    let admitted = match process.own_pid_namespace() {
        Some(namespace) => namespace.admit(process),
        None => Ok(()),
    };
    let begun = admitted.and_then(|()| follow::process_begins(&parent.process, process, into));
    // A process that ends all of the group has told the parent, or finds the child in the list.
    let ends = parent.process.notice() & notice::EXIT != 0;
    let begun = if ends { begun.and(Err(Errno::ERESTARTNOINTR)) } else { begun };
    begun.inspect_err(|_| withdraw(process))
}

/// Takes a process back that was made known.
#[cold]
fn withdraw(process: &Arc<Process>) {
    family::disown(process);
    // Before the look, as at an end: a mover looks at it after it has marked the process.
    process.raise_notice(notice::EXIT);
    if process.is_grouped() {
        leave_group(process);
    }
    let gone = core::mem::take(&mut *process.threads.lock());
    pids::withdraw(process);
    drop(gone);
    process.parent.lock().take();
}

/// Takes a process out of a control group into which somebody has moved it before it began.
#[cold]
fn leave_group(process: &Process) {
    follow::process_ends(process, true);
    follow::process_gone(process);
}

/// Undoes what was done for a thread that does not begin.
#[cold]
fn not_introduced(parent: &Thread, thread: &Thread, descriptor: Option<i32>, involved: bool) {
    thread.set_execution(None);
    if involved {
        link::unfollow(thread);
    }
    if let Some(descriptor) = descriptor {
        // It was open a moment ago. If another thread closed it, nothing is left to do.
        let _ = parent.files().close(descriptor);
    }
}

/// Gives a new thread the filters that its maker has got by now.
#[cold]
fn guard_later(thread: &Thread) {
    seccomp::pass_on(thread);
    if let Some(execution) = thread.execution() {
        execution.guard();
    }
}

/// Waits, as the parent of a vfork, until the child has its own space or has ended. Only the end of
/// the parent's own process ends the wait earlier.
fn wait_for_space(child: &Thread) {
    let parent = current();
    let execution = schedule::current();
    let mut interrupted = false;
    let mut rest = Rest::of(&parent.process);
    loop {
        let given_back = || (!child.borrows.load(Ordering::SeqCst)).then_some(());
        // The child has hardly done so yet: it is not asked before the queue is entered.
        match child.given_back.sleep_interruptible(given_back) {
            Ok(()) => break,
            Err(Woken::Interrupted | Woken::TimedOut) => {
                interrupted = true;
                // Before the question: an end that begins behind it interrupts the next sleep.
                execution.clear_interrupt();
                if parent.process.is_exiting() {
                    break;
                }
                rest.note();
            }
        }
    }
    drop(rest);
    execution.goes_on();
    if interrupted {
        execution.interrupt();
    }
}
