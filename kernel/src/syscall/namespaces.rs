//! `setns(2)`: entering namespaces that others made.
//!
//! The order of the checks, and their errors, are those of kernel/nsproxy.c of Linux 6.1. Nothing
//! is changed before all of them have passed.

use alloc::sync::Arc;
use core::slice;

use arrayvec::ArrayVec;
use hayate_abi::process::*;
use hayate_abi::{Errno, Result};

use super::file::open_file;
use crate::credentials::{Capability, Credentials};
use crate::fs::proc::namespaces::{Namespace, of_file};
use crate::process;
use crate::process::access::Ids;
use crate::process::membership;
use crate::process::namespaces;
use crate::process::namespaces::Namespaces;
use crate::process::{Thread, access, pidfd};
use crate::schedule;
use crate::user_namespace::UserNamespace;

/// `setns(2)`
pub fn setns(fd: i32, kind: i32) -> Result<()> {
    let wanted = u64::from(kind.cast_unsigned());
    let file = open_file(fd)?;
    let thread = process::current();
    if let Some(namespace) = of_file(&file) {
        if wanted != 0 && wanted != namespace.kind() {
            return Err(Errno::EINVAL);
        }
        return enter(&thread, slice::from_ref(namespace));
    }
    let held = pidfd::process(&file);
    if held.as_ref().is_err_and(|&error| error == Errno::EBADF) {
        return Err(Errno::EINVAL);
    }
    const KINDS: u64 = namespaces::KINDS | CLONE_NEWNET;
    if wanted == 0 || wanted & !KINDS != 0 {
        return Err(Errno::EINVAL);
    }
    let other = held?.first_thread().ok_or(Errno::ESRCH)?;
    access::check(&other, Ids::Real)?;
    let set = other.namespaces().ok_or(Errno::ESRCH)?;
    let user = other.credentials().user.clone();
    let all = [
        Namespace::User(user),
        Namespace::Mount(set.mounts),
        Namespace::Uts(set.uts),
        Namespace::Ipc(set.ipc),
        Namespace::Pid(other.process.pid_namespace()),
        Namespace::Network(set.network),
        Namespace::Cgroup(set.cgroups),
    ];
    let chosen: ArrayVec<Namespace, 7> =
        all.into_iter().filter(|one| wanted & one.kind() != 0).collect();
    enter(&thread, &chosen)
}

/// Puts the current thread into namespaces, into all of them or into none.
fn enter(thread: &Thread, chosen: &[Namespace]) -> Result<()> {
    let old = thread.namespaces().ok_or(Errno::ESRCH)?;
    let mut new = old.clone();
    let directories = thread.directories()?;
    let own = thread.credentials();
    // Those of the user namespace that is entered come first, and count for the others.
    let mut entered = None;
    for namespace in chosen {
        let inside = entered.as_ref().map_or(&own.user, |inside: &Credentials| &inside.user);
        check(&own, inside, namespace)?;
        match namespace {
            // One reference is the thread's, one is this function's (`userns_install`).
            Namespace::User(_)
                if thread.process.thread_count() > 1 || Arc::strong_count(&directories) > 2 =>
            {
                return Err(Errno::EINVAL);
            }
            Namespace::User(user) => {
                own.require_in(user, Capability::SysAdmin)?;
                membership::leave_supervisor_out(thread)?;
                let mut inside = Credentials::clone(&own);
                inside.enter(user.clone());
                entered = Some(inside);
            }
            Namespace::Uts(uts) => new.uts = uts.clone(),
            Namespace::Ipc(ipc) => new.ipc = ipc.clone(),
            // One reference is the thread's, one is this function's (`mntns_install`).
            Namespace::Mount(_) if chosen.len() == 1 && Arc::strong_count(&directories) > 2 => {
                return Err(Errno::EINVAL);
            }
            Namespace::Mount(mounts) => new.mounts = mounts.clone(),
            // Nobody gets out of its namespace (`pidns_install`).
            Namespace::Pid(pids) if !pids.is_within(&thread.process.pid_namespace()) => {
                return Err(Errno::EINVAL);
            }
            Namespace::Pid(pids) => new.pids = pids.clone(),
            Namespace::Network(network) => new.network = network.clone(),
            Namespace::Cgroup(cgroups) => new.cgroups = cgroups.clone(),
        }
    }
    let has = |kind| chosen.iter().any(|namespace| namespace.kind() & kind != 0);
    if has(CLONE_NEWIPC) {
        thread.traces.remember_segments(&old.ipc.shm)?;
        thread.traces.leave_undo(thread.process.id());
    }
    if has(CLONE_NEWNS)
        && let Some(root) = new.mounts.root()
    {
        directories.set_working(root.clone());
        directories.set_root(root);
    }
    if has(namespaces::KINDS) {
        thread.enter_namespaces(&schedule::current(), Arc::<Namespaces>::new(new));
    }
    if let Some(inside) = entered {
        thread.enter_user_namespace(&own, Arc::new(inside));
    }
    Ok(())
}

/// Whether a thread with the credentials `own` may enter a namespace: it has the right to
/// administer what that belongs to, and the user namespace in which it then is, `inside`.
fn check(own: &Credentials, inside: &UserNamespace, namespace: &Namespace) -> Result<()> {
    if let Namespace::User(user) = namespace {
        // It is in it: nobody gains capabilities by entering anew (`userns_install`).
        return if own.user.is(user) { Err(Errno::EINVAL) } else { Ok(()) };
    }
    if let Some(owner) = namespace.owner() {
        own.require_in(&owner, Capability::SysAdmin)?;
    }
    if matches!(namespace, Namespace::Mount(_)) {
        own.require_in(inside, Capability::SysChroot)?;
    }
    own.require_in(inside, Capability::SysAdmin)
}
