//! ext4, read-only (and ext2 and ext3).
//!
//! The pure crate `hayate-ext4` reads the format; this module connects it to the kernel. Metadata
//! is read through the page cache of the disk; the content of each file through a page cache of its
//! own, filled straight from the disk in requests as large as the file's extents allow.
//!
//! An inode is read once and kept as long as it is referenced (by the dentry cache, for instance);
//! all names of one file lead to one [`node::Node`]. Nothing ever changes, so nothing needs
//! invalidation.
//!
//! Lock order: the table of nodes is a spin lock and a leaf. Block maps and directory indexes are
//! built under a sleeping lock of their node.
//!
//! Road not taken: writing. `rsext4` could, but the root file system of a disposable machine gets
//! its writes from an overlay in memory, and an image that cannot change can be shared by any
//! number of machines.

mod content;
mod directory;
mod node;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};

use hayate_abi::{Errno, Result};
use hayate_ext4::{ROOT, Source, Volume};
use hayate_machine::sync::SpinLock;
use hayate_machine::warn;

use self::node::Node;
use super::disk;
use super::disk::Disk;
use crate::vfs::anonymous::empty_root;
use crate::vfs::filesystem::{FileSystem, RootHandle, Usage};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, register_type};
use crate::vfs::inode::{FileKind, Inode};
use crate::vfs::mount::flags::MS_RDONLY;

/// `EXT4_SUPER_MAGIC`.
const MAGIC: u64 = 0xef53;

/// A mounted volume.
pub struct Ext4 {
    /// The type name that it was mounted with: `ext2`, `ext3` or `ext4`.
    type_name: &'static str,
    disk: Arc<Disk>,
    volume: Volume,
    /// A tree, not a hash table: a hash table needs one large piece of memory, which may not be
    /// free while the page cache fills the memory.
    nodes: SpinLock<BTreeMap<u32, Weak<Node>>>,
    root: RootHandle<Node>,
    /// Itself; nodes keep a reference.
    this: Weak<Ext4>,
}

/// Registers the types for `mount(2)`.
pub fn register() {
    register_type(&FileSystemType {
        name: "ext4",
        needs_device: true,
        mount: |request| mount(request, "ext4"),
    });
    register_type(&FileSystemType {
        name: "ext3",
        needs_device: true,
        mount: |request| mount(request, "ext3"),
    });
    register_type(&FileSystemType {
        name: "ext2",
        needs_device: true,
        mount: |request| mount(request, "ext2"),
    });
}

fn mount(request: &MountRequest<'_>, name: &'static str) -> Result<Arc<dyn FileSystem>> {
    let source = request.source_location()?.metadata()?;
    if source.kind != FileKind::BlockDevice {
        return Err(Errno::ENOTBLK);
    }
    if request.flags & MS_RDONLY == 0 {
        // The error of Linux for a write-protected disk; mount(8) then tries read-only.
        return Err(Errno::EROFS);
    }
    Ok(open(disk::disk(source.represents)?, name)?)
}

/// Opens the volume on `disk`. `EINVAL` when there is none or it uses an unsupported feature,
/// `EUCLEAN` when it is corrupt, `EBADMSG` for a wrong checksum; the log has the details.
pub fn open(disk: Arc<Disk>, type_name: &'static str) -> Result<Arc<Ext4>> {
    let complain = |error: hayate_ext4::Error| {
        warn!("{type_name}: {}: {error}", disk.name());
        errno(error)
    };
    let volume = Volume::open(&Metadata(&disk), disk.size()).map_err(complain)?;
    // The root must be a directory before the volume is mounted.
    let root = volume.inode(&Metadata(&disk), ROOT).map_err(complain)?;
    if !root.is(0o040_000) {
        return Err(complain(hayate_ext4::Error::Corrupt("the root directory")));
    }
    let filesystem = Arc::new_cyclic(|this| Ext4 {
        type_name,
        disk: Arc::clone(&disk),
        volume,
        nodes: SpinLock::new(BTreeMap::new()),
        root: RootHandle::empty(),
        this: this.clone(),
    });
    let root = filesystem.node(ROOT)?;
    filesystem.root.set(root);
    Ok(filesystem)
}

impl Ext4 {
    /// Removes the entry of a node that has no references left.
    fn forget(&self, number: u32) {
        let mut nodes = self.nodes.lock();
        // A new node may have taken its place already.
        if nodes.get(&number).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&number);
        }
    }

    /// Returns the node of inode `number`.
    fn node(&self, number: u32) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.lock().get(&number).and_then(Weak::upgrade) {
            return Ok(node);
        }
        let inode = self.volume.inode(&Metadata(&self.disk), number).map_err(|e| self.error(e))?;
        let this = self.this.upgrade().ok_or(Errno::EIO)?;
        let node = Arc::new(Node::new(this, inode)?);
        let mut nodes = self.nodes.lock();
        // Another processor may have inserted it meanwhile.
        if let Some(other) = nodes.get(&number).and_then(Weak::upgrade) {
            drop(nodes);
            return Ok(other);
        }
        nodes.insert(number, Arc::downgrade(&node));
        Ok(node)
    }

    /// Logs what is wrong with the volume, in more detail than the error number it returns.
    fn error(&self, error: hayate_ext4::Error) -> Errno {
        warn!("{}: {}: {error}", self.type_name, self.disk.name());
        errno(error)
    }
}

fn errno(error: hayate_ext4::Error) -> Errno {
    match error {
        hayate_ext4::Error::Io => Errno::EIO,
        hayate_ext4::Error::NotExt4 | hayate_ext4::Error::Unsupported(_) => Errno::EINVAL,
        hayate_ext4::Error::Corrupt(_) => Errno::EUCLEAN,
        hayate_ext4::Error::Checksum(_) => Errno::EBADMSG,
        hayate_ext4::Error::Memory => Errno::ENOMEM,
    }
}

/// The disk as a source of metadata, through its page cache.
struct Metadata<'a>(&'a Disk);

impl Source for Metadata<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) -> hayate_ext4::Result<()> {
        self.0.read(offset, into).map_err(|error| match error {
            Errno::ENOMEM => hayate_ext4::Error::Memory,
            _ => hayate_ext4::Error::Io,
        })
    }
}

impl FileSystem for Ext4 {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn device(&self) -> u64 {
        self.disk.number().encode()
    }

    fn root(&self) -> Arc<dyn Inode> {
        match self.root.get() {
            Some(root) => root,
            None => empty_root(),
        }
    }

    fn usage(&self) -> Usage {
        let numbers = self.volume.statistics();
        let uuid = self.volume.uuid();
        let id = uuid.iter().fold(0u64, |id, &byte| id.rotate_left(8) ^ u64::from(byte));
        Usage {
            magic: MAGIC,
            block_size: self.volume.block_size() as u64,
            blocks: numbers.blocks,
            free: numbers.free_blocks,
            available: numbers.free_blocks,
            files: numbers.inodes.into(),
            files_free: numbers.free_inodes.into(),
            id,
            name_length: 255,
        }
    }

    fn read_only(&self) -> bool {
        true
    }

    fn options(&self) -> String {
        String::new()
    }

    fn reconfigure(&self, read_only: bool, _: &[u8]) -> Result<()> {
        if read_only { Ok(()) } else { Err(Errno::EROFS) }
    }
}
