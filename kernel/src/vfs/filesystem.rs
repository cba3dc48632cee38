//! Mounted file systems ([`FileSystem`]). `filesystem_type.rs` has the types that can be mounted,
//! `mount.rs` the places where they are.

use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::attributes::DeviceNumber;
use super::dentry::{HeldNames, Name};
use super::handle::Handle;
use super::inode::Inode;

/// How long the dentry cache may keep the answers of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Entries change only through this kernel's operations on this very mount: cache positive and
    /// negative answers.
    All,
    /// Cache entries that exist; ask again for names that did not.
    Positive,
    /// Ask every time (procfs).
    Never,
    /// Ask every time, since others change the tree as well, but a name that is in use keeps its
    /// dentry: the file system has [`FileSystem::held`].
    InUse,
}

/// The numbers of `statfs(2)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// The type's magic number (`TMPFS_MAGIC`...).
    pub magic: u64,
    /// Size of a block in bytes.
    pub block_size: u64,
    /// Blocks in total.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for ordinary users.
    pub available: u64,
    /// Inodes in total.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// The file system's identity.
    pub id: u64,
    /// The longest name.
    pub name_length: u64,
}

/// A mounted file system (Linux' superblock).
pub trait FileSystem: Send + Sync {
    /// Returns the name of its type, as in `/proc/mounts`.
    fn type_name(&self) -> &'static str;
    /// Returns the `st_dev` of its files, encoded.
    fn device(&self) -> u64;
    /// Returns its root directory.
    fn root(&self) -> Arc<dyn Inode>;
    /// Returns the names that lead from there to where a mount of it begins.
    fn beginning(&self) -> Result<Vec<Name>> {
        Ok(Vec::new())
    }
    /// Returns the path of a mount's beginning as `/proc/PID/mountinfo` shows it; `root` is the
    /// path from the root.
    fn shown_root(&self, root: Vec<u8>) -> Result<Vec<u8>> {
        Ok(root)
    }
    /// Returns the numbers of `statfs(2)`.
    fn usage(&self) -> Usage;
    /// Whether it shows what mounts on it may hide from the programs of a container, so that no
    /// other mount of it may show that (`SB_I_USERNS_VISIBLE`).
    fn shows_system(&self) -> bool {
        false
    }
    /// How long the dentry cache may keep its answers.
    fn caching(&self) -> Caching {
        Caching::All
    }
    /// Returns the names that are in use, for [`Caching::InUse`].
    fn held(&self) -> Option<&HeldNames> {
        None
    }
    /// Whether writing is impossible whatever the mount's flags.
    fn read_only(&self) -> bool {
        false
    }
    /// Returns its options for `/proc/mounts`, as `,size=1024k`; empty or beginning with a comma.
    fn options(&self) -> String {
        String::new()
    }
    /// Applies the options of a remount.
    fn reconfigure(&self, read_only: bool, data: &[u8]) -> Result<()> {
        let _ = (read_only, data);
        Ok(())
    }
    /// Writes all data that is only in memory to the store.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    /// Called when the last mount is gone, with nothing open and no lock held but those of the
    /// mount tree: writes all that is in memory, and gives the store up.
    fn unmounted(&self) {}
    /// Returns the handle of one of its files ([`by_handle`](super::by_handle)); `EOPNOTSUPP`: it
    /// has none.
    fn handle(&self, inode: &Arc<dyn Inode>) -> Result<Handle> {
        let _ = inode;
        Err(Errno::EOPNOTSUPP)
    }
    /// Returns the file of a handle. Whatever the error but `ENOMEM`, it is not there.
    fn by_handle(&self, handle: &Handle) -> Result<Arc<dyn Inode>> {
        let _ = handle;
        Err(Errno::ESTALE)
    }
    /// Returns the names that lead from the root to a directory that [`by_handle`] found.
    ///
    /// [`by_handle`]: FileSystem::by_handle
    fn way_to(&self, directory: &Arc<dyn Inode>) -> Result<Vec<Name>> {
        let _ = directory;
        Err(Errno::ESTALE)
    }
}

/// Returns a new device number for a file system without a device (major 0), as Linux'
/// `get_anon_bdev`.
pub fn anonymous_device() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    DeviceNumber::new(0, NEXT.fetch_add(1, Ordering::Relaxed)).encode()
}

/// A file system's reference to its own root directory. The root owns the file system, so the file
/// system must not own the root once a mount does, or neither would be freed: it gives its
/// reference away at the first use.
pub struct RootHandle<T: Inode>(SpinLock<Root<T>>);

enum Root<T> {
    /// Not mounted yet.
    Own(Arc<T>),
    /// The mount's root dentry holds it.
    Mounted(Weak<T>),
}

impl<T: Inode> RootHandle<T> {
    /// Makes a handle without a root; [`set`](Self::set) must come before the first
    /// [`get`](Self::get).
    pub fn empty() -> Self {
        Self(SpinLock::new(Root::Mounted(Weak::new())))
    }

    /// Owns a new file system's root until it is mounted.
    pub fn set(&self, root: Arc<T>) {
        *self.0.lock() = Root::Own(root);
    }

    /// Returns the root; `None` only after the last mount is gone.
    pub fn get(&self) -> Option<Arc<T>> {
        let mut root = self.0.lock();
        match &*root {
            Root::Own(own) => {
                let own = Arc::clone(own);
                *root = Root::Mounted(Arc::downgrade(&own));
                Some(own)
            }
            Root::Mounted(held) => held.upgrade(),
        }
    }
}
