//! Permission to look into a process: its memory, its descriptors, the targets of its links
//! (`ptrace(2)`, "Ptrace access mode checking"; `__ptrace_may_access`, kernel/ptrace.c of Linux
//! 6.1).
//!
//! Besides matching ids, the process must be **dumpable**. It is not if it has or had rights which
//! other processes of its user have not, or executes a program that they may not read. exec and
//! every change of credentials decide that anew ([`super::exec`], [`conceal`]); a process may
//! change it itself (`PR_SET_DUMPABLE`).
//!
//! The right to trace is that of a user namespace: whoever has it in one may look into the
//! processes of that and of those inside, and into no others, whichever numbers their users have. A
//! process that enters a namespace brings the memory of its program along, which is not the
//! namespace's ([`may_trace_undumpable`]).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::record::Process;
use super::thread::{Thread, current};
use super::visible;
use crate::credentials::{Capability, Credentials};
use crate::memory::Space;

/// The value of `PR_GET_DUMPABLE` with which other processes of the same user may look in.
const DUMPABLE: u32 = 1;

/// Which of the caller's ids count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// For access through files: procfs (`PTRACE_MODE_FSCREDS`).
    FileSystem,
    /// For access by a system call of its own (`PTRACE_MODE_REALCREDS`).
    Real,
}

/// Fails with `EPERM` unless the caller may look into the thread's process.
pub fn check(target: &Thread, ids: Ids) -> Result<()> {
    let caller = current();
    if Arc::ptr_eq(&caller.process, &target.process) {
        return Ok(());
    }
    let (own, other) = (caller.credentials(), target.credentials());
    if !is_within(&own, &other) {
        return Err(Errno::EPERM);
    }
    let traces = own.has_in(&other.user, Capability::SysPtrace);
    let (uid, gid, capabilities) = match ids {
        Ids::FileSystem => (own.fsuid, own.fsgid, own.effective),
        Ids::Real => (own.uid, own.gid, own.permitted),
    };
    let same = [other.uid, other.euid, other.suid].iter().all(|&id| id == uid)
        && [other.gid, other.egid, other.sgid].iter().all(|&id| id == gid);
    let contains = || own.user.is(&other.user) && capabilities.contains(other.permitted);
    let is_open = || is_dumpable(&target.process) || may_trace_undumpable(&own, target);
    let may = (traces || same && contains()) && is_open();
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether a thread that has restricted itself may look into another: one with the same
/// restrictions, and perhaps more (`hook_ptrace_access_check`, security/landlock/ptrace.c).
pub fn is_within(own: &Credentials, other: &Credentials) -> bool {
    own.confinement.as_ref().is_none_or(|confined| confined.covers(other.confinement.as_ref()))
}

/// Whether these credentials give the right to trace the thread's process though it is not
/// dumpable: that of the user namespace in which its program began (`mm->user_ns`). Of a process
/// that has entered its namespace since, the administrator of the machine alone has it.
pub fn may_trace_undumpable(own: &Credentials, target: &Thread) -> bool {
    if target.process.is_newcomer.load(Ordering::Relaxed) {
        return own.has(Capability::SysPtrace);
    }
    own.has_in(&target.credentials().user, Capability::SysPtrace)
}

/// Whether the process is open to other processes of its user.
pub fn is_dumpable(process: &Process) -> bool {
    process.dumpable.load(Ordering::Relaxed) == DUMPABLE
}

/// Updates the process after the current thread's credentials changed from `old` to `new`. Other
/// processes of the new user must not see what it did with its old rights, or will do with its new
/// ones, and the end of a parent with other rights must not signal it (`commit_creds`,
/// kernel/cred.c).
pub fn conceal(thread: &Thread, old: &Credentials, new: &Credentials) {
    if new.differs_in_rights(old) {
        thread.process.dumpable.store(0, Ordering::Relaxed);
        thread.parent_death_signal.store(0, Ordering::Relaxed);
    }
}

/// Returns the space of a process that the caller may read and write (`process_vm_readv(2)`): its
/// own, and those of processes of the same user that have not gained privilege.
///
/// Fails with `ESRCH` if there is none, `EPERM` if the caller may not.
pub fn foreign_space(pid: i32) -> Result<Arc<Space>> {
    let number = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    let target = visible::thread(number).ok_or(Errno::ESRCH)?;
    // Check and take the space of one program, even if the process executes another one meanwhile.
    target.process.steady(|| {
        check(&target, Ids::Real)?;
        target.space().ok_or(Errno::ESRCH)
    })
}
