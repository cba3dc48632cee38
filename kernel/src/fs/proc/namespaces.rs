//! `/proc/PID/ns`: the namespaces of a process (namespaces(7)), and what an open one can be asked
//! (ioctl_ns(2)).
//!
//! A file is its namespace: it has the namespace's number, and holds it, so that an open file, or a
//! mount on which it is bound, keeps a namespace that no thread is in. Two processes show the same
//! number if and only if they share the namespace.
//!
//! The kind that does not exist (time) has no file, as in a kernel built without it. A thread that
//! has ended is in no namespaces but those of its users (`ENOENT`).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::*;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::Lazy;
use hayate_machine::user::UserPtr;

use super::target::Target;
use super::tree::{Item, What};
use crate::ipc::namespace::IpcNamespace;
use crate::namespace::Handle;
use crate::net::config::Network;
use crate::process::cgroup::namespace::CgroupNamespace;
use crate::process::identity::UtsNamespace;
use crate::process::numbers;
use crate::process::pid_namespace::PidNamespace;
use crate::process::thread::current;
use crate::user_namespace::UserNamespace;
use crate::vfs::anonymous;
use crate::vfs::inode::{Attributes, Change, FileKind, Inode, Metadata};
use crate::vfs::mount::{Location, Mount, MountNamespace};
use crate::vfs::mount_tree;
use crate::vfs::open_file::flags::O_RDONLY;
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits};

/// `NSFS_MAGIC`.
const MAGIC: u64 = 0x6e73_6673;

static NAMESPACES: Lazy<Arc<Mount>> = Lazy::new(|| anonymous::pseudo(mount_tree::NSFS, MAGIC));

/// A namespace.
#[derive(Clone)]
pub enum Namespace {
    /// Names.
    Uts(Handle<UtsNamespace>),
    /// Objects of System V, message queues of POSIX.
    Ipc(Handle<IpcNamespace>),
    /// Mounts.
    Mount(Handle<MountNamespace>),
    /// Interfaces, addresses, ports, sockets.
    Network(Handle<Network>),
    /// Numbers of processes.
    Pid(Handle<PidNamespace>),
    /// Paths of control groups.
    Cgroup(Handle<CgroupNamespace>),
    /// Users.
    User(Handle<UserNamespace>),
}

impl Namespace {
    /// Its kind, as the flag of `clone(2)`.
    pub fn kind(&self) -> u64 {
        match self {
            Namespace::Uts(_) => CLONE_NEWUTS,
            Namespace::Ipc(_) => CLONE_NEWIPC,
            Namespace::Mount(_) => CLONE_NEWNS,
            Namespace::Network(_) => CLONE_NEWNET,
            Namespace::Pid(_) => CLONE_NEWPID,
            Namespace::Cgroup(_) => CLONE_NEWCGROUP,
            Namespace::User(_) => CLONE_NEWUSER,
        }
    }

    /// Its kind, as in the text of a link.
    fn name(&self) -> &'static str {
        match self {
            Namespace::Uts(_) => "uts",
            Namespace::Ipc(_) => "ipc",
            Namespace::Mount(_) => "mnt",
            Namespace::Network(_) => "net",
            Namespace::Pid(_) => "pid",
            Namespace::Cgroup(_) => "cgroup",
            Namespace::User(_) => "user",
        }
    }

    fn number(&self) -> u64 {
        match self {
            Namespace::Uts(uts) => uts.number,
            Namespace::Ipc(ipc) => ipc.number,
            Namespace::Mount(mounts) => mounts.number,
            Namespace::Network(network) => network.number,
            Namespace::Pid(pids) => pids.number,
            Namespace::Cgroup(cgroups) => cgroups.number,
            Namespace::User(user) => user.number,
        }
    }

    /// The user namespace that it belongs to; `None` for the first of these, which belongs to none
    /// (`ns->ops->owner`).
    pub fn owner(&self) -> Option<Handle<UserNamespace>> {
        match self {
            Namespace::Uts(uts) => Some(uts.owner.clone()),
            Namespace::Ipc(ipc) => Some(ipc.owner.clone()),
            Namespace::Mount(mounts) => Some(mounts.owner.clone()),
            Namespace::Pid(pids) => Some(pids.owner.clone()),
            Namespace::Network(network) => Some(network.owner.clone()),
            Namespace::Cgroup(cgroups) => Some(cgroups.owner.clone()),
            Namespace::User(user) => user.parent().cloned(),
        }
    }

    /// Opens the user namespace that it belongs to, and returns the descriptor. `EPERM` if it is
    /// not the caller's or inside of that: nobody sees above (`ns_get_owner`).
    fn open_owner(&self) -> Result<i64> {
        let thread = current();
        let owner = self.owner().filter(|owner| owner.is_within(&thread.credentials().user));
        Namespace::User(owner.ok_or(Errno::EPERM)?).open()
    }

    /// Opens the PID namespace in which it was made, and returns the descriptor. `EPERM` if that is
    /// not the caller's or inside of that (`pidns_get_parent`).
    fn open_parent(pids: &PidNamespace) -> Result<i64> {
        let own = current().process.pid_namespace();
        let parent = pids.parent().filter(|parent| parent.is_within(&own));
        Namespace::Pid(parent.cloned().ok_or(Errno::EPERM)?).open()
    }

    fn open(self) -> Result<i64> {
        let ops = Arc::new(OpenNamespace(self.clone()));
        let file = OpenFile::new(ops, self.place(), O_RDONLY)?;
        Ok(current().install(file, true)?.into())
    }

    fn text(&self) -> Vec<u8> {
        format!("{}:[{}]", self.name(), self.number()).into_bytes()
    }

    fn place(self) -> Location {
        let (text, device) = (self.text(), NAMESPACES.filesystem().device());
        let file = Arc::new(NamespaceFile { device, namespace: self });
        anonymous::location(&NAMESPACES, &text, file)
    }
}

/// Which namespace of a thread an item is.
type Choose = fn(&Target) -> Result<Namespace>;

macro_rules! namespace {
    ($name:literal, $choose:expr) => {
        Item {
            name: $name,
            what: What::Magic(
                |target| Ok(choose(target, $choose)?.place()),
                |target| Ok(choose(target, $choose)?.text()),
            ),
        }
    };
}

/// The items of `/proc/PID/ns`.
pub static ITEMS: &[Item<Target>] = &[
    namespace!("cgroup", |target| Ok(Namespace::Cgroup(set(target)?.cgroups))),
    namespace!("ipc", |target| Ok(Namespace::Ipc(set(target)?.ipc))),
    namespace!("mnt", |target| Ok(Namespace::Mount(set(target)?.mounts))),
    namespace!("net", |target| Ok(Namespace::Network(set(target)?.network))),
    namespace!("pid", |target| Ok(Namespace::Pid(target.process()?.pid_namespace()))),
    namespace!("pid_for_children", |target| {
        // There is none before its first process (`pidns_for_children_get`).
        let pids = set(target)?.pids;
        if pids.has_begun() { Ok(Namespace::Pid(pids)) } else { Err(Errno::ENOENT) }
    }),
    namespace!("user", |target| Ok(Namespace::User(user(target)?))),
    namespace!("uts", |target| Ok(Namespace::Uts(set(target)?.uts))),
];

fn choose(target: &Target, choose: Choose) -> Result<Namespace> {
    target.check_access()?;
    choose(target)
}

/// The set of a thread that the caller may look into.
fn set(target: &Target) -> Result<crate::process::namespaces::Namespaces> {
    target.look(|thread| thread.namespaces())?.ok_or(Errno::ENOENT)
}

/// The user namespace of a thread that the caller may look into.
fn user(target: &Target) -> Result<Handle<UserNamespace>> {
    Ok(target.look(|thread| thread.credentials())?.user.clone())
}

/// A namespace as a file, which can be opened and compared.
struct NamespaceFile {
    device: u64,
    namespace: Namespace,
}

impl Inode for NamespaceFile {
    fn attributes(&self) -> Attributes {
        Attributes { kind: FileKind::Regular, mode: 0o444, uid: 0, gid: 0, capabilities: false }
    }

    fn metadata(&self) -> Result<Metadata> {
        let metadata = Metadata::anonymous(self.device, FileKind::Regular, 0o444);
        Ok(Metadata { number: self.namespace.number(), ..metadata })
    }

    fn set_metadata(&self, _: &Change) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn mount_namespace(&self) -> Option<u64> {
        match &self.namespace {
            Namespace::Mount(mounts) => Some(mounts.number),
            _ => None,
        }
    }

    fn open(self: Arc<Self>, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(OpenNamespace(self.namespace.clone())))
    }
}

/// An open namespace: it has no content (reads fail with EINVAL).
struct OpenNamespace(Namespace);

/// The namespace of an open file, if it is one.
pub fn of_file(file: &OpenFile) -> Option<&Namespace> {
    file.ops_as::<OpenNamespace>().map(|open| &open.0)
}

impl FileOps for OpenNamespace {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    /// `ns_ioctl`, fs/nsfs.c of Linux 6.1.
    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        const NS_GET_USERNS: u32 = 0xb701;
        const NS_GET_PARENT: u32 = 0xb702;
        const NS_GET_NSTYPE: u32 = 0xb703;
        const NS_GET_OWNER_UID: u32 = 0xb704;
        match (command, &self.0) {
            (NS_GET_USERNS, namespace) => namespace.open_owner(),
            (NS_GET_PARENT, user @ Namespace::User(_)) => user.open_owner(),
            (NS_GET_PARENT, Namespace::Pid(pids)) => Namespace::open_parent(pids),
            (NS_GET_PARENT, _) => Err(Errno::EINVAL),
            (NS_GET_NSTYPE, namespace) => Ok(namespace.kind() as i64),
            (NS_GET_OWNER_UID, Namespace::User(user)) => {
                UserPtr::new(arg as usize).write(&numbers::shown_user(user.owner))?;
                Ok(0)
            }
            (NS_GET_OWNER_UID, _) => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }
}
