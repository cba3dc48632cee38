//! `/proc/PID/ns`: the namespaces of a process (namespaces(7)).
//!
//! There is one namespace of each kind, the first, and every process is in it. So the files have
//! the numbers of the first namespaces on Linux (`PROC_*_INIT_INO`, include/linux/proc_ns.h): two
//! processes show the same number if and only if they share the namespace, which is what these
//! files are read for. setns(2) and unshare(2) are not implemented.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Lazy;

use super::target::Target;
use super::tree::{Item, What};
use crate::vfs::anonymous;
use crate::vfs::inode::{Attributes, Change, FileKind, Inode, Metadata};
use crate::vfs::mount::{Location, Mount};
use crate::vfs::open_file::{FileOps, OpenRequest, Traits};

/// `NSFS_MAGIC`.
const MAGIC: u64 = 0x6e73_6673;

/// A namespace's name in its links, and its inode's number.
type NamespaceKind = (&'static str, u64);

const CGROUP: NamespaceKind = ("cgroup", 0xefff_fffb);
const IPC: NamespaceKind = ("ipc", 0xefff_ffff);
const MNT: NamespaceKind = ("mnt", 0xf000_0000);
const NET: NamespaceKind = ("net", 0xf000_0001);
const PID: NamespaceKind = ("pid", 0xefff_fffc);
const TIME: NamespaceKind = ("time", 0xefff_fffa);
const USER: NamespaceKind = ("user", 0xefff_fffd);
const UTS: NamespaceKind = ("uts", 0xefff_fffe);

static NAMESPACES: Lazy<Arc<Mount>> = Lazy::new(|| anonymous::pseudo("nsfs", MAGIC));

macro_rules! namespace {
    ($name:literal, $kind:expr) => {
        Item { name: $name, what: What::Magic(|it| place(it, $kind), |it| text(it, $kind)) }
    };
}

/// The items of `/proc/PID/ns`.
pub static ITEMS: &[Item<Target>] = &[
    namespace!("cgroup", CGROUP),
    namespace!("ipc", IPC),
    namespace!("mnt", MNT),
    namespace!("net", NET),
    namespace!("pid", PID),
    namespace!("pid_for_children", PID),
    namespace!("time", TIME),
    namespace!("time_for_children", TIME),
    namespace!("user", USER),
    namespace!("uts", UTS),
];

fn text(target: &Target, (name, number): NamespaceKind) -> Result<Vec<u8>> {
    target.check_access()?;
    Ok(format!("{name}:[{number}]").into_bytes())
}

fn place(target: &Target, kind: NamespaceKind) -> Result<Location> {
    let shown = text(target, kind)?;
    let device = NAMESPACES.filesystem().device();
    Ok(anonymous::location(&NAMESPACES, &shown, Arc::new(Namespace { device, number: kind.1 })))
}

/// A namespace as a file, which can be opened and compared.
struct Namespace {
    device: u64,
    number: u64,
}

impl Inode for Namespace {
    fn attributes(&self) -> Attributes {
        Attributes { kind: FileKind::Regular, mode: 0o444, uid: 0, gid: 0, capabilities: false }
    }

    fn metadata(&self) -> Result<Metadata> {
        let metadata = Metadata::anonymous(self.device, FileKind::Regular, 0o444);
        Ok(Metadata { number: self.number, ..metadata })
    }

    fn set_metadata(&self, _: &Change) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn open(self: Arc<Self>, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(OpenNamespace))
    }
}

/// An open namespace: it has no content (reads fail with EINVAL), and is held for its identity.
struct OpenNamespace;

impl FileOps for OpenNamespace {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }
}
