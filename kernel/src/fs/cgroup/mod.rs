//! The file system of control groups (`cgroup2`; cgroups(7), "Cgroups version 2").
//!
//! | file | contents |
//! |---|---|
//! | `options` | what a mount of it is told |
//! | `permission` | who may move a process from one group to another |
//! | `file` | a file of a group: where it is, what it shows, what writing does |
//! | `files` | the files of groups, and those of controllers that are small |
//! | `cpu`, `io`, `memory` | those of the controllers of these names |
//! | `node` | groups and their files as inodes, and open files |
//!
//! There is one tree, however often it is mounted. A group is the inode of its directory. Groups
//! and files come and go without the dentry cache (a controller that is given to a group brings
//! files), so it asks at every walk, and keeps names only while they are in use
//! ([`Caching::InUse`]). A mount shows the tree from the root of the mounter's cgroup namespace on.
//!
//! Road not taken: a file system of its own for each namespace, with the same groups under other
//! inodes; a watcher of one would miss what happens in the other.

mod cpu;
mod file;
mod files;
mod handles;
mod io;
mod memory;
mod node;
mod options;
mod permission;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::path;
use hayate_machine::sync::Lazy;

use crate::credentials::Credentials;
use crate::namespace::Handle;
use crate::process::cgroup::group;
use crate::process::cgroup::group::Group;
use crate::process::cgroup::namespace::{CgroupNamespace, FIRST};
use crate::process::thread::{Thread, try_current};
use crate::reclaim::growth;
use crate::user_namespace::UserNamespace;
use crate::vfs::dentry::{HeldNames, Name};
use crate::vfs::filesystem::{Caching, FileSystem, Usage};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, register_type};
use crate::vfs::handle::Handle as FileHandle;
use crate::vfs::inode::{Inode, downcast};
use crate::vfs::open_file::OpenFile;

/// `CGROUP2_SUPER_MAGIC`.
const MAGIC: u64 = 0x6367_7270;

/// The names in use, of all mounts.
static HELD: Lazy<HeldNames> = Lazy::new(HeldNames::default);

/// Registers the type with mount(2).
pub fn register() {
    static TYPE: FileSystemType =
        FileSystemType { name: "cgroup2", needs_device: false, user: of_namespace, mount };
    register_type(&TYPE);
}

/// The cgroup namespace of the calling thread; the first at boot.
fn callers() -> Handle<CgroupNamespace> {
    try_current().map_or(Handle::First(&FIRST), |thread| thread.cgroups())
}

/// A mount belongs to whom the cgroup namespace belongs to (`cgroup_init_fs_context`).
fn of_namespace(_: &Credentials) -> Handle<UserNamespace> {
    callers().owner.clone()
}

fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let namespace = callers();
    options::apply(&namespace, request.options())?;
    Ok(Arc::new(Cgroups { namespace }))
}

/// A mounted view of the tree.
struct Cgroups {
    /// The mounter's.
    namespace: Handle<CgroupNamespace>,
}

impl FileSystem for Cgroups {
    fn type_name(&self) -> &'static str {
        "cgroup2"
    }

    fn device(&self) -> u64 {
        *group::DEVICE
    }

    fn root(&self) -> Arc<dyn Inode> {
        group::root().clone()
    }

    fn beginning(&self) -> Result<Vec<Name>> {
        self.namespace.root().names()
    }

    /// As the reader's namespace sees it (`cgroup_show_path`).
    fn shown_root(&self, root: Vec<u8>) -> Result<Vec<u8>> {
        let own = callers().root().path()?;
        let (up, rest) = path::relative(&root, &own);
        let mut shown = Vec::new();
        for _ in 0..up {
            growth::append(&mut shown, b"/..")?;
        }
        growth::append(&mut shown, rest)?;
        if shown.is_empty() {
            growth::append(&mut shown, b"/")?;
        }
        Ok(shown)
    }

    fn usage(&self) -> Usage {
        Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() }
    }

    fn caching(&self) -> Caching {
        Caching::InUse
    }

    fn held(&self) -> Option<&HeldNames> {
        Some(&HELD)
    }

    fn handle(&self, inode: &Arc<dyn Inode>) -> Result<FileHandle> {
        handles::of(inode)
    }

    fn by_handle(&self, handle: &FileHandle) -> Result<Arc<dyn Inode>> {
        handles::find(handle)
    }

    fn way_to(&self, directory: &Arc<dyn Inode>) -> Result<Vec<Name>> {
        downcast::<Group>(directory).ok_or(Errno::ESTALE)?.names()
    }

    fn options(&self) -> String {
        options::shown()
    }

    fn reconfigure(&self, _: bool, data: &[u8]) -> Result<()> {
        options::apply(&callers(), crate::vfs::filesystem_type::options(data))
    }
}

/// The group of an open directory.
///
/// # Errors
/// `EBADF`: it is none of a group.
pub fn group_of(directory: &OpenFile) -> Result<Arc<Group>> {
    downcast::<Group>(directory.inode()).and_then(Group::arc).ok_or(Errno::EBADF)
}

/// The group in which a process of `maker` may begin, as the descriptor of its directory says
/// (`cgroup_css_set_fork`). `as_thread`: a thread of the same process is to begin.
///
/// # Errors
/// `EBADF` (no directory of a group), `ENOENT` (it was removed), `EACCES`, `EBUSY`, `EOPNOTSUPP`.
pub fn group_to_begin_in(
    directory: &OpenFile,
    maker: &Thread,
    as_thread: bool,
) -> Result<Arc<Group>> {
    let group = group_of(directory)?;
    let lock = group::lock();
    group.live(&lock)?;
    let credentials = maker.credentials();
    permission::may_write(&group, &credentials)?;
    let from = maker.process.cgroup();
    permission::may_move(&from, &group, &credentials, &maker.cgroups(), !as_thread)?;
    Ok(group)
}
