//! Who may look into a process: its memory, its descriptors, where its links lead (`ptrace(2)`,
//! "Ptrace access mode checking"; `__ptrace_may_access`, kernel/ptrace.c of Linux 6.1).
//!
//! Besides the ids it takes that the process is **dumpable**: one that has or had rights which its
//! equals have not, or executes a program that they may not read, is not. exec and every change of
//! credentials decide that anew ([`super::exec`], [`conceal`]); a process may change it itself
//! (`PR_SET_DUMPABLE`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::{Process, Thread, current};
use crate::credentials::{Capability, Credentials};

/// The value of `PR_GET_DUMPABLE` with which others of the same user may look in.
const DUMPABLE: u32 = 1;

/// By which of its ids the caller asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// For what is asked through files: procfs (`PTRACE_MODE_FSCREDS`).
    FileSystem,
    /// For what is asked by a call of its own (`PTRACE_MODE_REALCREDS`).
    Real,
}

/// `EPERM` unless the caller may look into the thread's process.
pub fn check(target: &Thread, ids: Ids) -> Result<()> {
    let caller = current();
    if Arc::ptr_eq(&caller.process, &target.process) {
        return Ok(());
    }
    let (own, other) = (caller.credentials(), target.credentials());
    if own.has(Capability::SysPtrace) {
        return Ok(());
    }
    let (uid, gid, capabilities) = match ids {
        Ids::FileSystem => (own.fsuid, own.fsgid, own.effective),
        Ids::Real => (own.uid, own.gid, own.permitted),
    };
    let same = [other.uid, other.euid, other.suid].iter().all(|&id| id == uid)
        && [other.gid, other.egid, other.sgid].iter().all(|&id| id == gid);
    let may = same && is_dumpable(&target.process) && capabilities.contains(other.permitted);
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether the process hides nothing from others of its user.
pub fn is_dumpable(process: &Process) -> bool {
    process.dumpable.load(Ordering::Relaxed) == DUMPABLE
}

/// After the current thread's credentials changed from `old` to `new`: what the process did with
/// rights that it had, or will do with those it got, is not for its new equals to see, nor is it to
/// be signalled by the end of a parent that it has outgrown (`commit_creds`, kernel/cred.c).
pub fn conceal(thread: &Thread, old: &Credentials, new: &Credentials) {
    if new.differs_in_rights(old) {
        thread.process.dumpable.store(0, Ordering::Relaxed);
        thread.parent_death_signal.store(0, Ordering::Relaxed);
    }
}
