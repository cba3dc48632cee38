//! The interface of a file system for each file: the [`Inode`] trait and the plain data around it.
//!
//! An inode is the file itself, whatever its names. A file system implements the operations that
//! make sense for it and leaves the others at their defaults, which return what Linux returns for a
//! file of the wrong kind.
//!
//! # What the caller guarantees
//!
//! Operations on a directory that look up or change entries are called with the *directory lock* of
//! its dentry held (see [`super::dentry`]), a sleeping lock. So two of them never run at once on
//! one directory, and a file system needs a lock of its own only against its readers (`read_dir`,
//! `metadata`). The caller has already checked permissions, name lengths, read-only mounts,
//! existence of the target, and that the target is no mount point. A file system checks what only
//! it can know (an empty directory, a full disk).
//!
//! No spin lock is held by the caller: every operation may sleep.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use hayate_abi::{Errno, Result};

use super::open_file::{FileOps, OpenRequest};
use crate::page_cache::cache::PageCache;

pub use super::attributes::{
    Attributes, Change, DeviceNumber, FileKind, Metadata, Owner, Timestamp,
};

/// Receives the entries of a directory; see [`Inode::read_dir`].
pub trait DirectorySink {
    /// Takes one entry. `next` is the position after this entry. Returns false if the entry did not
    /// fit: then it was not taken, and the enumeration must stop before it.
    fn entry(&mut self, number: u64, kind: FileKind, name: &[u8], next: u64) -> bool;
}

bitflags::bitflags! {
    /// The flags of `renameat2(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with `EEXIST` when the new name exists.
        const NOREPLACE = 1;
        /// Exchange the two names atomically.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) at the old name.
        const WHITEOUT = 4;
    }
}

/// The target of a symbolic link, or of a magic link of procfs, which leads to a place instead of a
/// path.
pub enum Jump {
    /// The link is an ordinary symbolic link: read it and walk the text.
    Text,
    /// Continue at this place (`/proc/PID/{cwd,root,exe,fd/N}`).
    Location(super::mount::Location),
}

/// A file as its file system sees it. Implementations live in an `Arc`, whose address is the
/// identity.
pub trait Inode: Any + Send + Sync {
    /// Returns kind, permission bits and owner, which the path walk needs at every step. Cheap:
    /// takes at most a short spin lock.
    fn attributes(&self) -> Attributes;

    /// Returns all that `stat(2)` reports.
    fn metadata(&self) -> Result<Metadata>;

    /// Returns device and inode number, which never change. A file system that asks somebody for
    /// the metadata knows these without.
    fn identity(&self) -> Result<(u64, u64)> {
        self.metadata().map(|metadata| metadata.identity())
    }

    /// Changes what `change` names (`chmod`, `chown`, `truncate`, `utimensat`). The caller has
    /// checked permissions and computed which set-id bits are cleared. Times that are not named
    /// follow POSIX: a change of size sets mtime and ctime, any change sets ctime.
    fn set_metadata(&self, change: &Change) -> Result<()> {
        let _ = change;
        Err(Errno::EPERM)
    }

    /// Finds an entry of this directory; `ENOENT` when there is none. Never called with `.` or
    /// `..`.
    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let _ = name;
        Err(Errno::ENOTDIR)
    }

    /// Whether its name leads to it for as long as the file system is mounted. Asked only where the
    /// file system keeps no names ([`Caching::Never`](super::filesystem::Caching::Never)).
    fn is_fixed(&self) -> bool {
        false
    }

    /// Makes a regular file. A file system in which no file can be made fails with `EACCES`
    /// (`vfs_create`, fs/namei.c).
    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let _ = (name, mode, owner);
        Err(Errno::EACCES)
    }

    /// Makes a regular file without a name (`O_TMPFILE`); [`Inode::link`] can give it one later.
    fn create_unnamed(&self, mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let _ = (mode, owner);
        Err(Errno::EOPNOTSUPP)
    }

    /// Makes a directory.
    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let _ = (name, mode, owner);
        Err(Errno::EPERM)
    }

    /// Makes a device node, FIFO or socket node.
    fn mknod(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: DeviceNumber,
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        let _ = (name, kind, mode, device, owner);
        Err(Errno::EPERM)
    }

    /// Makes a symbolic link holding `target`.
    fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<dyn Inode>> {
        let _ = (name, target, owner);
        Err(Errno::EPERM)
    }

    /// Gives `target` one more name here. `target` is an inode of the same file system and no
    /// directory.
    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let _ = (name, target);
        Err(Errno::EPERM)
    }

    /// Removes the name of `target`, which is no directory.
    fn unlink(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let _ = (name, target);
        Err(Errno::EPERM)
    }

    /// Removes the directory `target`; `ENOTEMPTY` when it has entries.
    fn rmdir(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let _ = (name, target);
        Err(Errno::EPERM)
    }

    /// Moves `moved` from `name` here to `new_name` in `new_directory` (same file system), and
    /// replaces `replaced` if that is given (the caller has checked the kinds; `ENOTEMPTY` for a
    /// directory with entries). With `EXCHANGE`, `replaced` is given and takes the old name.
    #[allow(clippy::too_many_arguments, reason = "one operation of six parts, as in Linux")]
    fn rename(
        &self,
        name: &[u8],
        moved: &Arc<dyn Inode>,
        new_directory: &Arc<dyn Inode>,
        new_name: &[u8],
        replaced: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let _ = (name, moved, new_directory, new_name, replaced, flags);
        Err(Errno::EPERM)
    }

    /// Enumerates a directory from `*position` on, without `.` and `..`. The caller makes these
    /// two, at positions 0 and 1: the first call here comes with 2. After each entry that the sink
    /// took, `*position` must be the position after it. A position stays valid while other entries
    /// are added and removed, as POSIX requires.
    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let _ = (position, sink);
        Err(Errno::ENOTDIR)
    }

    /// Updates the access time after a directory or link was read: if `always`, or if relatime
    /// requires it (mount(2)). File systems that keep no such time do nothing.
    fn note_access(&self, always: bool) {
        let _ = always;
    }

    /// Returns the text of a symbolic link.
    fn read_link(&self) -> Result<Vec<u8>> {
        Err(Errno::EINVAL)
    }

    /// Returns the target of this link; procfs overrides it for its magic links.
    fn follow(&self) -> Result<Jump> {
        Ok(Jump::Text)
    }

    /// Opens a regular file (or a file system's own device) and returns the operations of the open
    /// file, often `self`. Not called for directories, device nodes, FIFOs, sockets or symbolic
    /// links unless [`Inode::opens_itself`] is true.
    fn open(self: Arc<Self>, request: &OpenRequest) -> Result<Arc<dyn FileOps>> {
        let _ = request;
        Err(Errno::ENXIO)
    }

    /// Returns the number of the mount namespace that it is, if it is one.
    fn mount_namespace(&self) -> Option<u64> {
        None
    }

    /// Opens a directory for enumeration; `None` if that needs nothing of the file system.
    fn open_directory(self: Arc<Self>) -> Result<Option<Arc<dyn FileOps>>> {
        Ok(None)
    }

    /// Whether `open` is called for any kind of file: for nodes that carry their device or pipe
    /// with them instead of a number to look up.
    fn opens_itself(&self) -> bool {
        false
    }

    /// Returns the page cache of the file, if it has one.
    fn page_cache(&self) -> Option<Arc<PageCache>> {
        None
    }

    /// Returns the content that the file had before it was copied up (overlay). Open files may
    /// still be counted there.
    fn earlier_page_cache(&self) -> Option<Arc<PageCache>> {
        None
    }

    /// Returns the name that `/proc/PID/fd/N` shows for an inode without a path, as `pipe:[17]`.
    fn anonymous_name(&self) -> Option<Vec<u8>> {
        None
    }

    /// Whether a cached entry for this inode is still valid; for a file system whose entries vanish
    /// by themselves (procfs). Not called with [`super::filesystem::Caching::Never`].
    fn still_valid(&self) -> bool {
        true
    }

    /// Reads an extended attribute. The default is for a file system without extended attributes.
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        let _ = name;
        Err(Errno::EOPNOTSUPP)
    }

    /// Sets or (with `None`) removes an extended attribute; `flags` of `setxattr(2)`.
    fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
        let _ = (name, value, flags);
        Err(Errno::EOPNOTSUPP)
    }

    /// Returns the names of the extended attributes, each ended by a zero byte.
    fn list_xattr(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Writes data that is only in memory to the store (`fsync`; `data_only` for `fdatasync`).
    fn sync(&self, data_only: bool) -> Result<()> {
        let _ = data_only;
        Ok(())
    }
}

/// Returns the inode as a `T` if it is one: a file system recognizes its own inodes so.
pub fn downcast<T: Inode>(inode: &Arc<dyn Inode>) -> Option<&T> {
    let any: &dyn Any = &**inode;
    any.downcast_ref::<T>()
}

/// Like [`downcast`], with a reference of its own.
pub fn downcast_arc<T: Inode>(inode: &Arc<dyn Inode>) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = inode.clone();
    any.downcast::<T>().ok()
}
