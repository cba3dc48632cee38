//! How a thread gets into namespaces, and which it is in.
//!
//! A thread that was never in others than the first has no set ([`super::namespaces`]); whether it
//! may have one is a mark that is read without a lock ([`Thread::is_apart`]). Its user namespace is
//! in its credentials. A thread outside the first one has the mark as well.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::access;
use super::cgroup::namespace::CgroupNamespace;
use super::identity::UtsNamespace;
use super::namespaces::{MOST_USER, Membership, Namespaces, count};
use super::thread::Thread;
use crate::credentials::{Capability, Credentials};
use crate::ipc::namespace::IpcNamespace;
use crate::ipc::sysv::shm::Segments;
use crate::namespace::Handle;
use crate::net::config::{self, Network};
use crate::schedule::Execution;
use crate::user_namespace;
use crate::vfs::mount::MountNamespace;

/// The credentials of a thread like `maker` in a new user namespace (`create_user_ns`,
/// kernel/user_namespace.c of Linux 6.1).
///
/// # Errors
/// `ENOSPC` if the user has as many as it may, or if the new one would lie too deep; `EPERM` if the
/// root directory of `maker` is not that of its mount namespace, so that the new root could leave
/// it, if user or group of `maker` have no number for which the namespace could be known, or if its
/// programs run in supervisor mode; `ENOMEM`.
pub fn in_new_user_namespace(maker: &Thread) -> Result<Credentials> {
    let old = maker.credentials();
    if old.user.is_deepest() {
        return Err(Errno::ENOSPC);
    }
    let counted = count(&old, |user| &user.user_namespaces, &MOST_USER)?;
    let root = maker.directories()?.root();
    let is_whole = maker.mounts().root().is_some_and(|whole| {
        Arc::ptr_eq(&whole.mount, &root.mount) && Arc::ptr_eq(&whole.dentry, &root.dentry)
    });
    if !is_whole || !old.knows(old.euid, old.egid) {
        return Err(Errno::EPERM);
    }
    leave_supervisor_out(maker)?;
    let may_map_root = old.effective.has(Capability::Setfcap);
    let mut new = Credentials::clone(&old);
    new.enter(user_namespace::another(&old.user, old.euid, may_map_root, Box::new(counted)));
    Ok(new)
}

/// Fails with `EPERM` if programs of the thread run in supervisor mode, or are to: they could do
/// what the namespace is to keep them from.
pub fn leave_supervisor_out(thread: &Thread) -> Result<()> {
    let runs = thread.space().is_some_and(|space| space.is_supervisor());
    let keeps = thread.process.keeps_mode.load(Ordering::Relaxed);
    if runs || keeps { Err(Errno::EPERM) } else { Ok(()) }
}

impl Thread {
    /// Whether it may be in other namespaces than the first: whatever is kept is not for it.
    #[inline]
    pub fn is_apart(&self) -> bool {
        self.traces.has_namespaces()
    }

    /// Whether nothing is for it that is kept of other programs, nor is anything kept of it: it may
    /// be in other namespaces than the first, or is outside the root of control groups.
    #[inline]
    pub fn gets_nothing_kept(&self) -> bool {
        self.is_apart() || self.process.is_outside_root()
    }

    /// Its set of namespaces; `None` if it has left them.
    pub fn namespaces(&self) -> Option<Namespaces> {
        if self.execution.lock().is_none() {
            return None;
        }
        match &*self.namespaces.lock() {
            Membership::First => Some(Namespaces::first()),
            Membership::Other(own) => Some(Namespaces::clone(own)),
            Membership::Left => None,
        }
    }

    /// Its set, if that is not the first namespaces'.
    pub(super) fn own_namespaces(&self) -> Option<Arc<Namespaces>> {
        match &*self.namespaces.lock() {
            Membership::Other(own) => Some(own.clone()),
            Membership::First | Membership::Left => None,
        }
    }

    /// Its UTS namespace. For the current thread.
    pub fn uts(&self) -> Handle<UtsNamespace> {
        self.own_namespaces().map_or_else(|| Namespaces::first().uts, |own| own.uts.clone())
    }

    /// Its IPC namespace. For the current thread.
    pub fn ipc(&self) -> Handle<IpcNamespace> {
        self.own_namespaces().map_or_else(|| Namespaces::first().ipc, |own| own.ipc.clone())
    }

    /// Its cgroup namespace. For the current thread.
    pub fn cgroups(&self) -> Handle<CgroupNamespace> {
        self.own_namespaces().map_or_else(|| Namespaces::first().cgroups, |own| own.cgroups.clone())
    }

    /// Its mount namespace. For the current thread.
    pub fn mounts(&self) -> Handle<MountNamespace> {
        self.own_namespaces().map_or_else(|| Namespaces::first().mounts, |own| own.mounts.clone())
    }

    /// Its network namespace. For the current thread.
    pub fn network(&self) -> Handle<Network> {
        if !self.is_apart() {
            return config::first();
        }
        self.own_namespaces().map_or_else(config::first, |own| own.network.clone())
    }

    /// Puts it into namespaces; `execution` is its own. For the current thread, and for one that is
    /// not started.
    #[cold]
    pub fn enter_namespaces(&self, execution: &Execution, set: Arc<Namespaces>) {
        self.traces.note_namespaces();
        execution.note_namespaces();
        let old = core::mem::replace(&mut *self.namespaces.lock(), Membership::Other(set));
        drop(old);
    }

    /// Puts it into the user namespace of these credentials, which are its own from now on. It has
    /// a set of namespaces already. For the current thread, the only one of its process.
    #[cold]
    pub fn enter_user_namespace(&self, old: &Credentials, new: Arc<Credentials>) {
        // Before it can be looked into from there.
        self.process.is_newcomer.store(true, Ordering::Relaxed);
        access::conceal(self, old, &new);
        self.set_credentials(new);
    }

    /// Leaves its namespaces, since it ends. Returns the segments of the IPC namespace, of which it
    /// may be a maker.
    #[cold]
    pub(super) fn leave_namespaces(&self) -> Handle<Segments> {
        let segments = self.ipc().shm.clone();
        let old = core::mem::replace(&mut *self.namespaces.lock(), Membership::Left);
        drop(old);
        segments
    }
}
