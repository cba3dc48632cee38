//! Processes and threads (`fork(2)`, `execve(2)`, `wait(2)`, `setpgid(2)` and related calls).

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::process::*;
use hayate_abi::signal::{SIGCHLD, Siginfo};
use hayate_abi::time::{CLOCK_TICKS_PER_SEC, NANOS_PER_SEC, Tms};
use hayate_abi::{Errno, Result};
use hayate_machine::trap::UserRegs;
use hayate_machine::user::{self, UserPtr};

use super::file as paths;
use crate::fs::cgroup;
use crate::memory;
use crate::process;
use crate::process::cgroup::group::Group;
use crate::process::clone;
use crate::process::clone::CloneRequest;
use crate::process::images;
use crate::process::images::Course;
use crate::process::membership;
use crate::process::namespaces;
use crate::process::templates;
use crate::process::tracing;
use crate::process::usage::Usage;
use crate::process::wait;
use crate::process::wait::{Report, WaitFor};
use crate::process::{Process, Thread, exec, exit, job_control, numbers, pidfd, thread, visible};
use crate::program;
use crate::program::{Beginning, Strings, strings};
use crate::reclaim::growth::Grow;
use crate::recycle::watch::{Began, StartPart, Unwatched, Watch};
use crate::schedule;
use crate::schedule::time;
use crate::vfs::path::WalkFlags;

/// `fork(2)`
pub fn fork(regs: &mut UserRegs) -> Result<u32> {
    clone::start(regs, &CloneRequest { exit_signal: SIGCHLD, ..CloneRequest::default() })
}

/// `vfork(2)`
pub fn vfork(regs: &mut UserRegs) -> Result<u32> {
    let flags = CLONE_VM | CLONE_VFORK;
    clone::start(regs, &CloneRequest { flags, exit_signal: SIGCHLD, ..CloneRequest::default() })
}

/// `clone(2)`
pub fn clone(
    regs: &mut UserRegs,
    flags: usize,
    stack: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
) -> Result<u32> {
    let flags = flags as u64 & 0xffff_ffff;
    clone::start(
        regs,
        &CloneRequest {
            flags: flags & !CSIGNAL,
            exit_signal: (flags & CSIGNAL) as u32,
            stack: stack as u64,
            parent_tid,
            pidfd: parent_tid,
            child_tid,
            tls: tls as u64,
            into: None,
        },
    )
}

/// `clone3(2)`
pub fn clone3(regs: &mut UserRegs, arguments: usize, size: usize) -> Result<u32> {
    /// The first published form (`CLONE_ARGS_SIZE_VER0`).
    const FIRST_FORM: usize = 64;
    if size < FIRST_FORM {
        return Err(Errno::EINVAL);
    }
    if size > memory::PAGE {
        return Err(Errno::E2BIG);
    }
    const KNOWN: usize = size_of::<CloneArgs>();
    let mut bytes = [0u8; KNOWN];
    user::copy_in_growing(&mut bytes, arguments, size)?;
    let args: CloneArgs = zerocopy::transmute!(bytes);
    let stack_is_odd = (args.stack == 0) != (args.stack_size == 0);
    let legacy = CSIGNAL | CLONE_DETACHED;
    if args.flags & legacy & !CLONE_NEWTIME != 0
        || args.exit_signal & !CSIGNAL != 0
        || stack_is_odd
        || args.set_tid_size != 0
        || args.set_tid != 0
        || (args.flags & (CLONE_THREAD | CLONE_PARENT) != 0 && args.exit_signal != 0)
    {
        return Err(Errno::EINVAL);
    }
    let stack = args.stack.checked_add(args.stack_size).ok_or(Errno::EINVAL)?;
    let into = match args.flags & CLONE_INTO_CGROUP {
        0 => None,
        // It is in the third form of the arguments, which is the longest.
        _ if size < KNOWN => return Err(Errno::EINVAL),
        _ => Some(group_to_begin_in(args.cgroup, args.flags)?),
    };
    clone::start(
        regs,
        &CloneRequest {
            flags: args.flags,
            exit_signal: args.exit_signal as u32,
            stack,
            parent_tid: args.parent_tid as usize,
            pidfd: args.pidfd as usize,
            child_tid: args.child_tid as usize,
            tls: args.tls,
            into: into.as_ref(),
        },
    )
}

/// The control group that `CLONE_INTO_CGROUP` names. `EINVAL` for what is no descriptor; `EBADF`
/// and the errors of [`cgroup::group_to_begin_in`].
#[cold]
fn group_to_begin_in(descriptor: u64, flags: u64) -> Result<Arc<Group>> {
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::EINVAL)?;
    let thread = process::current();
    let directory = thread.file(descriptor)?;
    cgroup::group_to_begin_in(&directory, &thread, flags & CLONE_THREAD != 0)
}

/// `exit(2)`: ends the thread.
pub fn exit(status: i32) -> Result<()> {
    exit::end_thread((status & 0xff) << 8)
}

/// `exit_group(2)`
pub fn exit_group(status: i32) -> Result<()> {
    exit::end_process((status & 0xff) << 8)
}

/// `execve(2)`
pub fn execve(
    regs: &mut UserRegs,
    path: usize,
    arguments: usize,
    environment: usize,
) -> Result<usize> {
    execveat(regs, hayate_abi::file::AT_FDCWD, path, arguments, environment, 0)
}

/// `execveat(2)`
pub fn execveat(
    regs: &mut UserRegs,
    directory: i32,
    path: usize,
    arguments: usize,
    environment: usize,
    flags: u32,
) -> Result<usize> {
    execute::<Unwatched>(regs, directory, path, arguments, environment, flags)
}

/// `execveat(2)`, measured or not.
#[inline]
pub(super) fn execute<W: Watch>(
    regs: &mut UserRegs,
    directory: i32,
    path: usize,
    arguments: usize,
    environment: usize,
    flags: u32,
) -> Result<usize> {
    let mut course = Course::Plain;
    let prepared = prepare::<W>(directory, path, (arguments, environment), flags, &mut course)?;
    W::enter(StartPart::Change);
    exec::execute(&process::current(), regs, prepared, course)?;
    // The register that a call's result goes to is one of the new program's.
    Ok(regs.rax as usize)
}

/// Prepares what `execveat(2)` asks for; sets `course` if it begins in another way than most.
fn prepare<W: Watch>(
    directory: i32,
    path: usize,
    (arguments, environment): (usize, usize),
    flags: u32,
    course: &mut Course,
) -> Result<program::Prepared> {
    const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
    const AT_EMPTY_PATH: u32 = 0x1000;
    const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    W::enter(StartPart::LookUp);
    let path = paths::path(path)?;
    let mut walk = WalkFlags::empty();
    walk.set(WalkFlags::NOFOLLOW, flags & AT_SYMLINK_NOFOLLOW != 0);
    walk.set(WalkFlags::EMPTY, flags & AT_EMPTY_PATH != 0);
    let view = paths::View::current()?;
    let location = view.resolve(directory, &path, walk)?;
    if flags & AT_SYMLINK_NOFOLLOW != 0
        && location.inode()?.attributes().kind == crate::vfs::attributes::FileKind::Symlink
    {
        return Err(Errno::ELOOP);
    }
    // The path that the program gets. A path relative to a descriptor goes through /dev/fd.
    let by_descriptor =
        directory != hayate_abi::file::AT_FDCWD && path.first().is_none_or(|&byte| byte != b'/');
    let shown: Cow<'_, [u8]> = if by_descriptor {
        descriptor_path(directory, &path)?.into()
    } else {
        Cow::Borrowed(&path)
    };
    let path_vanishes = by_descriptor && thread.files().close_on_exec(directory).unwrap_or(false);

    W::enter(StartPart::Arguments);
    let limits = thread.process.limits();
    let mut budget = strings::budget(limits.soft(RLIMIT_STACK));
    let arguments = Strings::read(arguments, &mut budget)?;
    let environment = Strings::read(environment, &mut budget)?;
    let randomise = memory::places::are_random()
        && thread.personality.load(Ordering::Relaxed) & ADDR_NO_RANDOMIZE == 0;
    let begin = |program: &program::Program, arguments: &Strings, environment: &Strings| {
        let start = images::Start { path: &shown, arguments, environment, randomise };
        if !images::are_wanted() && !templates::table::is_any_bound()
            || tracing::is_traced(&thread)
            || thread.gets_nothing_kept()
        {
            W::begins(&shown, || (Began::First, images::asking::told(&thread, program, &start)));
            return Beginning::Usual;
        }
        let strings = (&*shown, arguments, environment);
        W::enter(StartPart::Space);
        *course = match bound_template(&thread, program, strings) {
            Some(begin) => Course::Template(begin),
            None if !images::are_wanted() => Course::Plain,
            None => images::choose(&thread, program, &start),
        };
        W::begins(&shown, || (course.began(), images::asking::told(&thread, program, &start)));
        course.beginning()
    };
    let request = program::ExecRequest {
        location,
        path: &shown,
        path_vanishes,
        arguments,
        environment,
        context: view.context(),
        credentials: view.credentials(),
        no_new_privileges: thread.no_new_privileges.load(Ordering::Relaxed),
        refuses_privilege: &|| exec::may_be_misled(&thread),
        limits: exec::space_limits(&limits),
        randomise,
    };
    program::prepare::<W>(request, begin)
}

/// How a program begins whose path is bound to a template, if the template serves this start.
#[cold]
fn bound_template(
    thread: &Thread,
    program: &program::Program,
    strings: (&[u8], &Strings, &Strings),
) -> Option<Box<templates::Begin>> {
    if !templates::table::is_any_bound() {
        return None;
    }
    templates::choose(thread, program, strings, exec::space_limits(&thread.process.limits()))
}

fn descriptor_path(directory: i32, path: &[u8]) -> Result<Vec<u8>> {
    let mut shown = alloc::format!("/dev/fd/{directory}").into_bytes();
    shown.make_room(path.len() + 1)?;
    if !path.is_empty() {
        shown.push(b'/');
        shown.extend_from_slice(path);
    }
    Ok(shown)
}

/// `wait4(2)`
pub fn wait4(pid: i32, status: usize, options: u32, usage: usize) -> Result<u32> {
    const KNOWN: u32 = WNOHANG | WUNTRACED | WCONTINUED | __WNOTHREAD | __WCLONE | __WALL;
    if options & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let own = process::current();
    let which = match pid {
        i32::MIN => return Err(Errno::ESRCH),
        -1 => WaitFor::Any,
        0 => WaitFor::Group(own.process.group()),
        group if group < 0 => WaitFor::Group(visible::meant(group.unsigned_abs())),
        id => WaitFor::Process(visible::meant(id.unsigned_abs())),
    };
    let Some(report) = wait::wait(&own.process, which, options | WEXITED)? else { return Ok(0) };
    if status != 0 {
        UserPtr::new(status).write(&report.status)?;
    }
    if usage != 0 {
        UserPtr::new(usage).write(&report.usage.to_rusage())?;
    }
    Ok(report.pid)
}

/// `waitid(2)`
pub fn waitid(kind: i32, id: i32, info: usize, options: u32, usage: usize) -> Result<()> {
    const P_ALL: i32 = 0;
    const P_PID: i32 = 1;
    const P_PGID: i32 = 2;
    const P_PIDFD: i32 = 3;
    const STATES: u32 = WEXITED | WSTOPPED | WCONTINUED;
    const KNOWN: u32 = STATES | WNOHANG | WNOWAIT | __WNOTHREAD | __WCLONE | __WALL;
    if options & !KNOWN != 0 || options & STATES == 0 {
        return Err(Errno::EINVAL);
    }
    let own = process::current();
    let mut nonblocking = false;
    let which = match kind {
        P_ALL => WaitFor::Any,
        P_PID if id > 0 => WaitFor::Process(visible::meant(id.unsigned_abs())),
        P_PIDFD if id >= 0 => {
            let file = paths::open_file(id)?;
            nonblocking = file.nonblocking();
            let held = pidfd::process(&file).map_err(|error| match error {
                Errno::ESRCH => Errno::ECHILD,
                error => error,
            })?;
            WaitFor::Process(held.id())
        }
        P_PGID if id == 0 => WaitFor::Group(own.process.group()),
        P_PGID if id > 0 => WaitFor::Group(visible::meant(id.unsigned_abs())),
        _ => return Err(Errno::EINVAL),
    };
    let wanted = if nonblocking { options | WNOHANG } else { options };
    let report = wait::wait(&own.process, which, wanted | wait::WITH_USER)?;
    if nonblocking && report.is_none() && options & WNOHANG == 0 {
        return Err(Errno::EAGAIN);
    }
    if info != 0 {
        let mut shown = Siginfo::new(0, 0);
        if let Some(Report { code, pid, uid, value, .. }) = report {
            shown = Siginfo::from_child(code, pid, numbers::shown_user(uid), value, 0, 0);
        }
        UserPtr::new(info).write(&shown)?;
    }
    if let Some(report) = report.filter(|_| usage != 0) {
        UserPtr::new(usage).write(&report.usage.to_rusage())?;
    }
    Ok(())
}

/// `getpid(2)`
pub fn getpid() -> u32 {
    thread::current_process_id()
}

/// `getppid(2)`
pub fn getppid() -> u32 {
    process::current().process.shown_parent_id()
}

/// `gettid(2)`
pub fn gettid() -> u32 {
    thread::current_thread_id()
}

/// The process with this number, 0 for the caller. Fails with `ESRCH`.
fn target(pid: i32) -> Result<Arc<Process>> {
    match pid {
        0 => Ok(process::current().process.clone()),
        pid => visible::process(u32::try_from(pid).map_err(|_| Errno::ESRCH)?).ok_or(Errno::ESRCH),
    }
}

/// `getpgrp(2)`
pub fn getpgrp() -> u32 {
    visible::shown(process::current().process.group())
}

/// `getpgid(2)`
pub fn getpgid(pid: i32) -> Result<u32> {
    Ok(visible::shown(target(pid)?.group()))
}

/// `getsid(2)`
pub fn getsid(pid: i32) -> Result<u32> {
    Ok(visible::shown(target(pid)?.session_id()))
}

/// `setsid(2)`
pub fn setsid() -> Result<u32> {
    job_control::start_session(&process::current().process).map(visible::shown)
}

/// `setpgid(2)`
pub fn setpgid(pid: i32, group: i32) -> Result<()> {
    let own = process::current().process.clone();
    let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
    if group == 0 && pid < 0 {
        // The group would have that negative number.
        return Err(Errno::EINVAL);
    }
    let target = target(pid)?;
    let group = if group == 0 { target.id() } else { visible::meant(group) };
    if !Arc::ptr_eq(&target, &own) {
        if target.parent_id() != own.id() {
            return Err(Errno::ESRCH);
        }
        if target.session_id() != own.session_id() {
            return Err(Errno::EPERM);
        }
        if target.programs() != 0 {
            return Err(Errno::EACCES);
        }
    }
    if target.session_id() == target.id() {
        return Err(Errno::EPERM);
    }
    if group != target.id() {
        match job_control::first_of_group(group)? {
            Some(member) if member.session_id() == own.session_id() => {}
            _ => return Err(Errno::EPERM),
        }
    }
    target.set_group(group);
    Ok(())
}

/// `set_tid_address(2)`
pub fn set_tid_address(address: usize) -> u32 {
    let thread = process::current();
    thread.clear_tid.store(address, Ordering::Relaxed);
    thread.own_id()
}

/// `unshare(2)`
pub fn unshare(flags: usize) -> Result<()> {
    let mut flags = flags as u64;
    if flags & CLONE_NEWUSER != 0 {
        flags |= CLONE_THREAD | CLONE_FS;
    }
    let thread = process::current();
    let known = CLONE_FILES | CLONE_FS | CLONE_SYSVSEM | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    if flags & !(known | namespaces::KINDS) != 0 {
        // There are no other namespaces, as in a kernel built without them.
        return Err(Errno::EINVAL);
    }
    let alone = flags & (CLONE_THREAD | CLONE_SIGHAND | CLONE_VM) != 0;
    if alone && thread.process.thread_count() > 1 {
        return Err(Errno::EINVAL);
    }
    let old = thread.credentials();
    let user = match flags & CLONE_NEWUSER {
        0 => None,
        _ => Some(Arc::new(membership::in_new_user_namespace(&thread)?)),
    };
    let apart = match flags & namespaces::KINDS {
        0 => None,
        // Adjustments are left behind in any case: what is to be shared is none of `renewed`'s.
        kinds => {
            let own = thread.namespaces().ok_or(Errno::ESRCH)?;
            let maker = user.as_ref().unwrap_or(&old);
            Some(own.renewed(kinds, maker, &thread.process, &*thread.directories()?)?)
        }
    };
    if flags & CLONE_FILES != 0 {
        thread.unshare_files()?;
    }
    // Places in other mounts cannot be shared (`ksys_unshare`).
    if flags & (CLONE_FS | CLONE_NEWNS) != 0 {
        thread.unshare_directories()?;
    }
    if flags & (CLONE_SYSVSEM | CLONE_NEWIPC) != 0 {
        thread.traces.leave_undo(thread.process.id());
    }
    if flags & CLONE_NEWIPC != 0 {
        thread.traces.leave_segments(&thread.ipc().shm);
    }
    if let Some(mut apart) = apart {
        apart.place(&*thread.directories()?);
        thread.enter_namespaces(&schedule::current(), Arc::new(apart.set));
    }
    if let Some(new) = user {
        thread.enter_user_namespace(&old, new);
    }
    Ok(())
}

/// `getrlimit(2)`
pub fn getrlimit(resource: u32, limit: usize) -> Result<()> {
    let own = process::current();
    let found = own.process.limits().get(resource as usize).ok_or(Errno::EINVAL)?;
    UserPtr::new(limit).write(&found)
}

/// `setrlimit(2)`
pub fn setrlimit(resource: u32, limit: usize) -> Result<()> {
    let new: Rlimit = UserPtr::new(limit).read()?;
    let own = process::current();
    set_limit(&own, &own.process, resource as usize, new)
}

/// `prlimit64(2)`
pub fn prlimit64(pid: i32, resource: u32, new: usize, old: usize) -> Result<()> {
    let own = process::current();
    let new: Option<Rlimit> = match new {
        0 => None,
        address => Some(UserPtr::new(address).read()?),
    };
    let target = match pid {
        0 => own.process.clone(),
        pid => {
            let number = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
            visible::thread(number).ok_or(Errno::ESRCH)?.process.clone()
        }
    };
    if !Arc::ptr_eq(&target, &own.process) {
        may_limit(&own, &target)?;
    }
    let found = target.limits().get(resource as usize).ok_or(Errno::EINVAL)?;
    if let Some(new) = new {
        set_limit(&own, &target, resource as usize, new)?;
    }
    if old != 0 {
        UserPtr::new(old).write(&found)?;
    }
    Ok(())
}

/// Fails with `EPERM` unless all ids match or the caller is privileged
/// (`check_prlimit_permission`).
fn may_limit(own: &Thread, target: &Process) -> Result<()> {
    let mine = own.credentials();
    let Some(theirs) = target.first_thread().map(|thread| thread.credentials()) else {
        return Err(Errno::ESRCH);
    };
    let same = [theirs.uid, theirs.euid, theirs.suid].iter().all(|&id| id == mine.uid)
        && [theirs.gid, theirs.egid, theirs.sgid].iter().all(|&id| id == mine.gid);
    if same {
        Ok(())
    } else {
        mine.require_in(&theirs.user, crate::credentials::Capability::SysResource)
    }
}

fn set_limit(own: &Thread, target: &Process, resource: usize, new: Rlimit) -> Result<()> {
    if new.rlim_cur > new.rlim_max {
        return Err(Errno::EINVAL);
    }
    let old = target.limits().get(resource).ok_or(Errno::EINVAL)?;
    if new.rlim_max > old.rlim_max {
        own.credentials().require(crate::credentials::Capability::SysResource)?;
    }
    if resource == RLIMIT_NOFILE && new.rlim_max > crate::vfs::descriptor::MAXIMUM as u64 {
        return Err(Errno::EPERM);
    }
    if !core::ptr::eq(&*own.process, target)
        && let Some(space) = target.first_thread().and_then(|thread| thread.space())
    {
        // Its program may see this, and the next start of the same command must not.
        space.note_outside();
    }
    target.change_limits(|limits| limits.set(resource, new));
    if resource == RLIMIT_CPU {
        target.watch_cpu_time();
    }
    if matches!(resource, RLIMIT_AS | RLIMIT_DATA | RLIMIT_STACK | RLIMIT_MEMLOCK)
        && let Some(thread) = target.first_thread()
        && let Some(space) = thread.space()
    {
        space.set_limits(exec::space_limits(&target.limits()));
    }
    Ok(())
}

/// `getrusage(2)`
pub fn getrusage(who: i32, usage: usize) -> Result<()> {
    let own = process::current();
    let found = match who {
        0 => own.process.usage(),
        -1 => own.process.children_usage(),
        1 => own.usage(),
        _ => return Err(Errno::EINVAL),
    };
    UserPtr::new(usage).write(&found.to_rusage())
}

fn ticks(nanos: u64) -> i64 {
    (nanos / (NANOS_PER_SEC / CLOCK_TICKS_PER_SEC)) as i64
}

/// `times(2)`
pub fn times(buffer: usize) -> Result<i64> {
    let own = process::current();
    if buffer != 0 {
        let (mine, children): (Usage, Usage) = (own.process.usage(), own.process.children_usage());
        UserPtr::new(buffer).write(&Tms {
            tms_utime: ticks(mine.user_ns),
            tms_stime: ticks(mine.system_ns),
            tms_cutime: ticks(children.user_ns),
            tms_cstime: ticks(children.system_ns),
        })?;
    }
    Ok(ticks(time::monotonic_ns()))
}

/// `personality(2)`
pub fn personality(persona: u32) -> u32 {
    let thread = process::current();
    if persona == u32::MAX {
        thread.personality.load(Ordering::Relaxed)
    } else {
        thread.personality.swap(persona, Ordering::Relaxed)
    }
}
