//! The namespaces that a thread is in (namespaces(7)), as one set.
//!
//! As Linux' `nsproxy`, a set is shared: a thread that is in other namespaces than the first has a
//! reference to one, which its children share; `unshare(2)`, `setns(2)` and the flags of `clone(2)`
//! give a thread a changed copy. A thread of the first namespaces has no reference at all, and so
//! fork copies none and touches no count that all processors share: that its maker has one is a bit
//! of the word that [`crate::schedule::Execution::bequeaths`] reads anyway, and that there is one
//! to drop is a mark that the end of a thread reads anyway ([`crate::ipc::sysv::traces`]).
//!
//! There are further UTS, IPC, mount, PID, network and cgroup namespaces ([`super::identity`],
//! [`crate::ipc::namespace`], [`crate::vfs::mount`], [`super::pid_namespace`],
//! [`crate::net::config`], [`super::cgroup::namespace`]). Each belongs to the
//! user namespace of its maker ([`crate::user_namespace`]), and `CAP_SYS_ADMIN` there makes and
//! enters one. The user namespace of a thread is in its credentials and not in the set; but a
//! thread of another one than the first always has a set, and so has every thread of another PID
//! namespace. Of the other kinds there is the first alone, or none: a request for another one is
//! EINVAL, as from a kernel built without them.
//!
//! Programs that begin at images or templates are those of the first namespaces, and nobody else's:
//! neither is made of, or begun by, a thread that has a set ([`Thread::is_apart`]).
//!
//! [`Thread::is_apart`]: super::Thread::is_apart

use alloc::boxed::Box;
use alloc::sync::Arc;

use hayate_abi::process::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER,
    CLONE_NEWUTS, CLONE_SYSVSEM,
};
use hayate_abi::{Errno, Result};

use super::cgroup::namespace as cgroup;
use super::cgroup::namespace::CgroupNamespace;
use super::identity;
use super::identity::UtsNamespace;
use super::limits::PID_MAX;
use super::pid_namespace;
use super::pid_namespace::PidNamespace;
use super::record::Process;
use crate::credentials::{Capability, Credentials};
use crate::ipc::namespace as ipc;
use crate::ipc::namespace::IpcNamespace;
use crate::namespace::Handle;
use crate::net::config::{self, Network};
use crate::vfs::context::FsContext;
use crate::vfs::mount;
use crate::vfs::mount::{Location, MountNamespace};
use crate::vfs::mount_copy;
use crate::vfs::users;
use crate::vfs::users::{Count, Counted, Holdings, Limit};

/// The kinds of which there are more than the first, as flags of `clone(2)`.
pub const KINDS: u64 = OF_SET | CLONE_NEWUSER;

/// Those that a set has. Its user namespace is in the credentials of a thread.
const OF_SET: u64 =
    CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;

/// `/proc/sys/user/max_uts_namespaces`: half as many as there may be threads (`fork_init`).
pub static MOST_UTS: Limit = Limit::new(|| PID_MAX as usize / 2);
/// `/proc/sys/user/max_ipc_namespaces`
pub static MOST_IPC: Limit = Limit::new(|| PID_MAX as usize / 2);

/// `/proc/sys/user/max_mnt_namespaces`
pub static MOST_MNT: Limit = Limit::new(|| PID_MAX as usize / 2);

/// `/proc/sys/user/max_pid_namespaces`
pub static MOST_PID: Limit = Limit::new(|| PID_MAX as usize / 2);

/// `/proc/sys/user/max_net_namespaces`
pub static MOST_NET: Limit = Limit::new(|| PID_MAX as usize / 2);

/// `/proc/sys/user/max_cgroup_namespaces`
pub static MOST_CGROUP: Limit = Limit::new(|| PID_MAX as usize / 2);

/// `/proc/sys/user/max_user_namespaces`
pub static MOST_USER: Limit = Limit::new(|| PID_MAX as usize / 2);

/// Counts a namespace that `maker` makes: for the user who answers for it in the first user
/// namespace. `ENOSPC` if that one may have no more.
pub(super) fn count(
    maker: &Credentials,
    which: fn(&Holdings) -> &Count,
    most: &Limit,
) -> Result<Counted> {
    let user = users::of(maker.user.answerable(maker.euid))?;
    Counted::new(user, which, most.get()).ok_or(Errno::ENOSPC)
}

/// A set.
#[derive(Clone)]
pub struct Namespaces {
    /// Names.
    pub uts: Handle<UtsNamespace>,
    /// Objects of System V, message queues of POSIX.
    pub ipc: Handle<IpcNamespace>,
    /// Mounts. A thread's root and working directory lie in it, unless their mount was detached or
    /// a descriptor led elsewhere.
    pub mounts: Handle<MountNamespace>,
    /// Numbers of the processes that it makes; its own are those of its process
    /// ([`Process::pid_namespace`](super::Process::pid_namespace)).
    pub pids: Handle<PidNamespace>,
    /// Sockets that it makes are there, and its interfaces are seen.
    pub network: Handle<Network>,
    /// The control group from which paths of control groups begin.
    pub cgroups: Handle<CgroupNamespace>,
}

/// A changed set, and the places of the thread in its mounts, if these are others.
pub struct Renewed {
    /// The set.
    pub set: Namespaces,
    places: Option<(Location, Location)>,
}

impl Renewed {
    /// Moves root and working directory to where they are in the new mounts.
    pub fn place(&mut self, context: &FsContext) {
        if let Some((root, working)) = self.places.take() {
            context.set_root(root);
            context.set_working(working);
        }
    }
}

impl Namespaces {
    /// The first ones.
    pub fn first() -> Namespaces {
        Namespaces {
            uts: Handle::First(&identity::FIRST),
            ipc: Handle::First(&ipc::FIRST),
            mounts: Handle::First(&mount::FIRST),
            pids: Handle::First(&pid_namespace::FIRST),
            network: config::first(),
            cgroups: Handle::First(&cgroup::FIRST),
        }
    }

    /// This set with new namespaces of the kinds in `flags` (`copy_namespaces`, kernel/nsproxy.c),
    /// for a thread of `process` whose places are those of `context`. They belong to the user
    /// namespace of `maker`, which a new one is made for before ([`super::membership`]).
    ///
    /// # Errors
    /// `EPERM` without the right to administer that; `EINVAL` if adjustments of semaphores are to
    /// be shared across IPC namespaces, or if children of the thread begin in another PID namespace
    /// already; `ENOSPC` if the user has as many as it may, or a PID namespace would lie too deep;
    /// `ENOMEM`.
    pub fn renewed(
        &self,
        flags: u64,
        maker: &Credentials,
        process: &Process,
        context: &FsContext,
    ) -> Result<Renewed> {
        const APART_AND_SHARED: u64 = CLONE_NEWIPC | CLONE_SYSVSEM;
        if flags & OF_SET == 0 {
            return Ok(Renewed { set: self.clone(), places: None });
        }
        maker.require_own(Capability::SysAdmin)?;
        if flags & APART_AND_SHARED == APART_AND_SHARED {
            return Err(Errno::EINVAL);
        }
        let owner = || maker.user.clone();
        let mut new = self.clone();
        let mut places = None;
        if flags & CLONE_NEWNS != 0 {
            let counted = count(maker, |user| &user.mount_namespaces, &MOST_MNT)?;
            let copied = mount_copy::copy_namespace(&self.mounts, context, owner(), counted)?;
            new.mounts = copied.namespace;
            places = Some((copied.root, copied.working));
        }
        if flags & CLONE_NEWUTS != 0 {
            let counted = count(maker, |user| &user.uts_namespaces, &MOST_UTS)?;
            new.uts = self.uts.another(owner(), counted);
        }
        if flags & CLONE_NEWIPC != 0 {
            let counted = count(maker, |user| &user.ipc_namespaces, &MOST_IPC)?;
            new.ipc = IpcNamespace::another(owner(), counted);
        }
        if flags & CLONE_NEWPID != 0 {
            // `copy_pid_ns`, kernel/pid_namespace.c.
            let fits =
                self.pids.is(&process.pid_namespace()) && maker.user.is_within(&self.pids.owner);
            if !fits {
                return Err(Errno::EINVAL);
            }
            let counted = count(maker, |user| &user.pid_namespaces, &MOST_PID)?;
            new.pids = pid_namespace::another(&self.pids, owner(), counted)?;
        }
        if flags & CLONE_NEWNET != 0 {
            let counted = count(maker, |user| &user.network_namespaces, &MOST_NET)?;
            new.network = config::another(owner(), Box::new(counted))?;
        }
        if flags & CLONE_NEWCGROUP != 0 {
            let counted = count(maker, |user| &user.cgroup_namespaces, &MOST_CGROUP)?;
            new.cgroups = CgroupNamespace::another(process.cgroup(), owner(), counted);
        }
        Ok(Renewed { set: new, places })
    }
}

/// The set of a thread.
pub enum Membership {
    /// The first namespaces.
    First,
    /// Others, at least one.
    Other(Arc<Namespaces>),
    /// None any more: the thread ends.
    Left,
}
