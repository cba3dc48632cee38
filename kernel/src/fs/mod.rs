//! File systems: the trees below mounts, behind the interfaces of [`crate::vfs`].
//!
//! | file system | where its files are |
//! |---|---|
//! | [`tmpfs`] | in memory: their page caches are the files |
//! | [`ext4`] | on a disk, read-only |
//! | [`ninep`] | at a server on the host, which others use as well |
//! | [`overlay`] | in a writable layer over read-only ones |
//! | [`devfs`] | `/dev`: a tmpfs to which drivers add nodes |
//! | [`cgroup`] | in the tree of control groups |
//! | [`proc`], [`sysfs`] | nowhere: their texts are made when they are read |
//!
//! A file system knows the virtual file system, the page cache and drivers, and no process.
//! [`proc`], [`cgroup`] and [`sysfs`] are the exception: they show the whole kernel, so they stand
//! above processes, and nothing but system calls is above them.
//!
//! [`disk`] keeps the disks that drivers found, with their page caches, for file systems and for
//! `/dev`. [`root`] puts the first root together, from the [`initramfs`] or a disk.

pub mod cgroup;
pub mod devfs;
pub mod disk;
pub mod ext4;
pub mod initramfs;
pub mod ninep;
pub mod overlay;
pub mod proc;
pub mod root;
pub mod sysfs;
pub mod tmpfs;

use crate::vfs::filesystem::Caching;
use crate::vfs::filesystem_type;
use crate::vfs::inode::Owner;
use crate::vfs::mount::{self, Mount};
use crate::vfs::mount_tree;

/// Registers the file systems that know no process, and makes the first root, an empty tmpfs.
/// Called once at boot, after [`crate::vfs::init`] and before a file is opened.
pub fn init() {
    filesystem_type::register_type(&tmpfs::TYPE);
    filesystem_type::register_type(&tmpfs::RAMFS);
    ext4::register();
    ninep::register();
    overlay::register();
    devfs::init();
    tmpfs::memfd::init();
    let root = tmpfs::TmpFs::new("rootfs", 0o755, Owner::default(), None, Caching::All);
    mount::set_root(Mount::whole(root, 0, mount_tree::ROOTFS.into()));
}
