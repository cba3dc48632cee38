//! Files without a path, and their pseudo file systems.
//!
//! A pipe, a socket or an epoll instance still has a place ([`Location`]), so that `fstat`,
//! `/proc/PID/fd` and the *at calls need no special case: an anonymous dentry in a mount that is
//! not attached to the tree.

use alloc::sync::Arc;

use hayate_abi::Result;
use hayate_machine::sync::Lazy;

use super::dentry::Dentry;
use super::filesystem::{FileSystem, Usage, anonymous_device};
use super::inode::{Attributes, Change, FileKind, Inode, Metadata};
use super::mount::{Location, Mount};
use super::open_file::{FileOps, OpenFile};

/// A pseudo file system.
pub struct Pseudo {
    name: &'static str,
    magic: u64,
    device: u64,
    root: Arc<AnonymousInode>,
}

impl FileSystem for Pseudo {
    fn type_name(&self) -> &'static str {
        self.name
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn usage(&self) -> Usage {
        Usage {
            magic: self.magic,
            block_size: 4096,
            id: self.device,
            name_length: 255,
            ..Usage::default()
        }
    }
}

/// Makes the mount of a pseudo file system; the caller keeps it in a static.
pub fn pseudo(name: &'static str, magic: u64) -> Arc<Mount> {
    let device = anonymous_device();
    let root = AnonymousInode::new(device, FileKind::Anonymous, 0o600);
    Mount::whole(Arc::new(Pseudo { name, magic, device, root }), 0, name.into())
}

/// Returns a place in a pseudo file system for `inode`, shown as `name`.
pub fn location(mount: &Arc<Mount>, name: &[u8], inode: Arc<dyn Inode>) -> Location {
    let filesystem = Arc::clone(mount.filesystem());
    let dentry = Dentry::anonymous(filesystem, name, inode);
    Location { mount: Arc::clone(mount), dentry }
}

static ANON_INODES: Lazy<Arc<Mount>> = Lazy::new(|| pseudo("anon_inodefs", 0x0904_1934));

/// Opens an object that consists only of its operations (epoll, eventfd, timerfd...), shown as
/// `anon_inode:[NAME]`. All share one inode, as on Linux.
pub fn open(name: &'static str, ops: Arc<dyn FileOps>, flags: u32) -> Result<Arc<OpenFile>> {
    let inode = ANON_INODES.filesystem().root();
    let shown = alloc::format!("anon_inode:{name}");
    OpenFile::new(ops, location(&ANON_INODES, shown.as_bytes(), inode), flags)
}

/// An inode with nothing but metadata.
pub struct AnonymousInode {
    metadata: Metadata,
}

impl AnonymousInode {
    /// Makes an inode of this kind and mode on `device`.
    pub fn new(device: u64, kind: FileKind, mode: u16) -> Arc<AnonymousInode> {
        Arc::new(AnonymousInode { metadata: Metadata::anonymous(device, kind, mode) })
    }
}

impl Inode for AnonymousInode {
    fn attributes(&self) -> Attributes {
        self.metadata.attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata)
    }

    fn set_metadata(&self, _: &Change) -> Result<()> {
        Err(hayate_abi::Errno::EPERM)
    }
}

/// Returns a substitute root for a file system whose last mount is gone: a directory without
/// entries. No program gets to see it.
pub fn empty_root() -> Arc<dyn Inode> {
    AnonymousInode::new(anonymous_device(), FileKind::Directory, 0)
}
