//! Executing a program (`execve(2)`): from the prepared program to the running one.
//!
//! [`execute`] gets a program that was prepared beside the old one ([`crate::program::prepare`])
//! and ends the other threads. From [`commit`] on, the point of no return, nothing can fail. There
//! the process changes its space, its program and its position ([`super::transform`]), and gives up
//! what belonged to the old ones.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::process::{RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_STACK};
use hayate_abi::signal::{SIGCHLD, SignalStack};
use hayate_abi::{Errno, Result};
use hayate_machine::fpu;
use hayate_machine::trap::UserRegs;

use super::images::Course;
use super::images::key::Key;
use super::limits::Limits;
use super::record::{Process, Vectors, notice};
use super::restart::Restart;
use super::signal::{ActionTable, send};
use super::thread::{Thread, name_of};
use super::tracing::link;
use super::transform::{Executed, Position, Running};
use super::{access, cgroup, futex, left_space, pids, timer, tracing};
use crate::credentials::Capability;
use crate::memory;
use crate::program;
use crate::program::{Beginning, ExecRequest, Prepared, Strings};
use crate::recycle::watch::Unwatched;
use crate::schedule;
use crate::supervisor::switch;
use crate::vfs::descriptor::FdTable;

/// Replaces the program of the current thread by a prepared one. On success `regs` are those of its
/// first instruction, or of an image's. `course` says which.
///
/// Fails only before the point of no return: `EAGAIN` if another thread executes a program at the
/// same time, `EINTR`-like if the process is ending, `ENOMEM` if memory is exhausted for a copy of
/// a descriptor table that another process shares.
pub fn execute(
    thread: &Thread,
    regs: &mut UserRegs,
    prepared: Prepared,
    course: Course,
) -> Result<()> {
    let mut files = own_files(thread)?;
    // One that is alone takes over the number of the first, too, if that has ended before.
    if thread.process.thread_count() != 1 || thread.id() != thread.process.id() {
        outlive_others(thread)?;
        // One of the ended threads may have begun to share the table just before its end. The
        // threads are gone, so the call cannot fail any more: if memory is exhausted, the process
        // ends, as in Linux (`begin_new_exec`).
        if files.is_none() {
            files = own_files(thread).inspect_err(|_| send::kill(&thread.process))?;
        }
    }
    if prepared.set_id && prepared.secure && !prepared.refused {
        // From here on only a tracer with privilege attaches.
        let process = &thread.process;
        let before = process.steady(|| process.dumpable.swap(0, Ordering::Relaxed));
        if may_be_misled(thread) {
            // Another process began to share the directories, or to trace the thread, since the
            // program was prepared.
            process.dumpable.store(before, Ordering::Relaxed);
            return Err(Errno::EAGAIN);
        }
    }
    commit(thread, regs, prepared, files, course);
    Ok(())
}

/// Whether another process can change the root, the working directory or the umask under a program
/// that the thread executes, or traces the thread without privilege. Such a program gains no rights
/// by set-id bits, unless root executes it (`LSM_UNSAFE_SHARE` and `LSM_UNSAFE_PTRACE` of
/// `check_unsafe_exec`, fs/exec.c, and `cap_bprm_creds_from_file`, security/commoncap.c).
#[cold]
pub fn may_be_misled(thread: &Thread) -> bool {
    if thread.credentials().has_own(Capability::Setuid) {
        return false;
    }
    if thread.process.is_involved() && tracing::link::bars_privilege(thread) {
        return true;
    }
    let Ok(directories) = thread.directories() else { return false };
    // One reference is the thread's, one is this function's. A call may hold another one for a
    // moment, so the loop below looks for processes that share it.
    if Arc::strong_count(&directories) == 2 {
        return false;
    }
    let Ok(processes) = pids::processes() else { return true };
    let mut shared = false;
    for process in processes {
        if !core::ptr::eq(&*process, &*thread.process) {
            process.for_each_thread(|other| shared |= other.has_directories(&directories));
        }
    }
    shared
}

/// Ends all other threads of the process and takes over its number (`de_thread`).
fn outlive_others(thread: &Thread) -> Result<()> {
    let process = &thread.process;
    let me = schedule::current();
    {
        let mut control = process.control.lock();
        if control.exit.is_some() || control.survivor.is_some() {
            // Another thread ends this one, which notices on its way to user mode.
            return Err(Errno::EAGAIN);
        }
        control.survivor = Some(me.id());
        process.raise_notice(notice::EXEC);
        process.interrupt_all();
    }
    let alone = wait_until_alone(process);
    process.control.lock().survivor = None;
    process.clear_notice(notice::EXEC);
    alone?;
    if thread.id() != process.id() {
        let own = thread.id();
        if process.is_involved() {
            tracing::link::takes_over(thread);
        }
        thread.become_first();
        pids::release(own);
    }
    Ok(())
}

fn wait_until_alone(process: &Process) -> Result<()> {
    let outcome = process.child_events.wait_through(None, || match process.thread_count() {
        1 => Some(Ok(())),
        _ => process.is_exiting().then_some(Err(Errno::EAGAIN)),
    });
    outcome.unwrap_or(Err(Errno::EAGAIN))
}

/// The point of no return. `files`: the new descriptor table, if there is one.
fn commit(
    thread: &Thread,
    regs: &mut UserRegs,
    prepared: Prepared,
    files: Option<Arc<FdTable>>,
    course: Course,
) {
    let process = &thread.process;
    let Prepared { space, entry, stack, executable, name, .. } = prepared;
    let Prepared { credentials, secure, set_id, concealed, reads, .. } = prepared;
    thread.moved.read_files(reads);
    let mut running = Running { thread, regs };

    leave_space_for_good(thread);
    let old = thread.credentials();
    if secure {
        thread.parent_death_signal.store(0, Ordering::Relaxed);
    }
    // As `begin_new_exec` of fs/exec.c does with `suid_dumpable` 0: a file that the user may not
    // read does not become readable by being executed.
    let hidden = concealed || old.euid != old.uid || old.egid != old.gid;
    let program =
        Executed { executable: Some(executable), vectors: vectors(&stack), name: name_of(&name) };
    let (old_space, old_program) = process.steady(|| {
        link::begin_program(process, &space);
        switch::begin_program(process, &space, set_id);
        process.dumpable.store(u32::from(!hidden), Ordering::Relaxed);
        process.is_newcomer.store(concealed, Ordering::Relaxed);
        access::conceal(thread, &old, &credentials);
        thread.set_credentials(credentials);
        (running.change_space(space), running.change_program(program))
    });
    if process.is_grouped() {
        // It may have been moved since the space was made.
        cgroup::memory::settle(process);
    }
    if let Some(old) = old_space {
        left_space::release(old);
    }
    leave_program_for_good(thread, files);
    drop(old_program);
    process.exit_signal.store(SIGCHLD, Ordering::Relaxed);
    running.change_position(&Position::start(entry as u64, stack.pointer as u64));
    match course {
        Course::Plain => {}
        Course::Image(begin) => {
            if let Some(status) = begin.complete(&mut running) {
                // As `exit_group(2)`, but the thread ends on its way to user mode, when nothing
                // here holds a reference any more.
                process.begin_exit((status & 0xff) << 8);
            }
        }
        Course::Recorded(plan) => plan.begin(thread, vectors(&stack)),
        Course::Template(begin) => begin.complete(&mut running),
    }
}

/// Starts the program of the current thread again, as it was started first: a recorded program that
/// has seen another time ([`super::images::start_again_by`]).
///
/// Fails as `execve(2)`; the program then goes on, which it must not.
#[cold]
pub fn again(thread: &Thread, regs: &mut UserRegs, key: &Key) -> Result<()> {
    let process = &thread.process;
    let directories = thread.directories()?;
    let credentials = thread.credentials();
    let executable = process.executable().ok_or(Errno::ENOENT)?;
    let request = ExecRequest {
        location: executable.location().clone(),
        path: key.path(),
        path_vanishes: false,
        arguments: Strings::of(key.arguments())?,
        environment: Strings::of(key.environment())?,
        context: &directories,
        credentials: &credentials,
        no_new_privileges: thread.no_new_privileges.load(Ordering::Relaxed),
        refuses_privilege: &|| true,
        limits: space_limits(&process.limits()),
        randomise: key.is_random(),
    };
    let prepared = program::prepare::<Unwatched>(request, |_, _, _| Beginning::Usual)?;
    process.set_actions(Arc::new(ActionTable::ignoring(key.ignored())));
    thread.set_blocked(key.blocked());
    execute(thread, regs, prepared, Course::Plain)
}

/// Releases the robust futexes, clears the thread's number and forgets its area for sequences,
/// while the space is still there.
pub fn leave_space_for_good(thread: &Thread) {
    futex::release_robust_list(thread);
    thread.sequences.forget();
    let shared = thread.space().is_some_and(|space| Arc::strong_count(&space) > 2);
    if shared {
        futex::clear_tid(thread);
    }
    thread.clear_tid.store(0, Ordering::Relaxed);
}

/// Gives up what a new program does not inherit: handlers, timers, descriptors that exec closes,
/// the state of the floating-point unit (`execve(2)`). `files`: the result of [`own_files`].
pub fn leave_program_for_good(thread: &Thread, files: Option<Arc<FdTable>>) {
    let process = &thread.process;
    if files.is_some() {
        thread.set_files(files);
    }
    thread.files().exec();
    process.set_actions(Arc::new(process.actions().for_program()));
    *thread.signal_stack.lock() = SignalStack::default();
    *thread.restart.lock() = Restart::Nothing;
    timer::release_posix(process);
    process.count_program();
    fpu::reset();
}

/// The limits of a space under these resource limits.
pub fn space_limits(limits: &Limits) -> memory::Limits {
    let soft = |resource| limits.soft(resource).min(usize::MAX as u64) as usize;
    memory::Limits {
        address_space: soft(RLIMIT_AS),
        data: soft(RLIMIT_DATA),
        stack: soft(RLIMIT_STACK),
        locked: soft(RLIMIT_MEMLOCK),
    }
}

/// Where the strings of a new stack lie.
pub fn vectors(stack: &crate::program::stack::Stack) -> Vectors {
    Vectors {
        arguments: stack.arguments,
        arguments_end: stack.environment,
        environment: stack.environment,
        environment_end: stack.environment_end,
        auxiliary: stack.auxiliary,
        auxiliary_end: stack.auxiliary_end,
    }
}

/// Copies the descriptor table for the new program if another process shares it, so that exec
/// closes descriptors in the copy alone. `None` if only this process has the table.
///
/// Fails with `ENOMEM`.
pub fn own_files(thread: &Thread) -> Result<Option<Arc<FdTable>>> {
    let files = thread.files();
    // One reference is the thread's, one is this function's.
    if Arc::strong_count(&files) <= 2 {
        return Ok(None);
    }
    let mut own = 1;
    thread.process.for_each_thread(|other| {
        own += usize::from(other.has_files(&files));
    });
    if Arc::strong_count(&files) <= own {
        return Ok(None);
    }
    Ok(Some(files.unshare()?))
}
