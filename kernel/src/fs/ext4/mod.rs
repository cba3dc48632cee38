//! ext4 (and ext2 and ext3), read and written.
//!
//! The pure crate `hayate-ext4` knows the format; this module connects it to the kernel. A mount
//! for writing is a [`live`] volume, which has its own description. What follows is about mounts
//! that only read, as that of the root of a disposable machine, which gets its writes from an
//! overlay in memory: an image that cannot change can be shared by any number of machines.
//!
//! Metadata is read through the page cache of the disk ([`volume`]); the content of each file
//! through a page cache of its own, filled straight from the disk in requests as large as the
//! file's extents allow ([`content`]). From below to above: [`volume`], [`directory`] and
//! [`content`], [`node`], and [`file`](mod@file).
//!
//! An inode is read once and kept as long as it is referenced (by the dentry cache, for instance);
//! all names of one file lead to one [`node::Node`]. Nothing ever changes, so nothing needs
//! invalidation.
//!
//! Lock order: the table of nodes is a spin lock and a leaf. Block maps and directory indexes are
//! built under a sleeping lock of their node.
//!
//! Road not taken: the crate `rsext4`, which writes as well. It wants the whole volume behind one
//! exclusive reference, for reading a file too.

mod content;
mod directory;
mod file;
mod handles;
mod live;
mod node;
mod volume;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use self::node::{Ext4, Node};
use self::volume::{DiskVolume, MAGIC, identity};
use super::disk;
use super::disk::Disk;
use crate::vfs::anonymous::empty_root;
use crate::vfs::dentry::Name;
use crate::vfs::filesystem::{FileSystem, Usage};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_machine, register_type};
use crate::vfs::handle::Handle;
use crate::vfs::inode::{FileKind, Inode, downcast};
use crate::vfs::mount::flags::MS_RDONLY;

/// Registers the types for `mount(2)`.
pub fn register() {
    register_type(&FileSystemType {
        name: "ext4",
        needs_device: true,
        user: of_machine,
        mount: |request| mount(request, "ext4"),
    });
    register_type(&FileSystemType {
        name: "ext3",
        needs_device: true,
        user: of_machine,
        mount: |request| mount(request, "ext3"),
    });
    register_type(&FileSystemType {
        name: "ext2",
        needs_device: true,
        user: of_machine,
        mount: |request| mount(request, "ext2"),
    });
}

fn mount(request: &MountRequest<'_>, name: &'static str) -> Result<Arc<dyn FileSystem>> {
    let source = request.source_location()?.metadata()?;
    if source.kind != FileKind::BlockDevice {
        return Err(Errno::ENOTBLK);
    }
    let disk = disk::disk(source.represents)?;
    if request.flags & MS_RDONLY == 0 {
        if disk.is_read_only() {
            // mount(8) then tries read-only.
            return Err(Errno::EROFS);
        }
        return Ok(live::open(disk, name)?);
    }
    match live::mounted(&disk) {
        // As `sget` of Linux: one disk is one file system.
        Some(live) if live.read_only() => Ok(live),
        Some(_) => Err(Errno::EBUSY),
        None => Ok(open(disk, name)?),
    }
}

/// Gives up all volumes that are mounted for writing: the machine ends.
pub fn close_all() {
    live::close_all();
}

/// Opens the volume on `disk`, with the errors of [`DiskVolume::open`].
pub fn open(disk: Arc<Disk>, type_name: &'static str) -> Result<Arc<Ext4>> {
    Ext4::new(DiskVolume::open(disk, type_name)?)
}

impl FileSystem for Ext4 {
    fn type_name(&self) -> &'static str {
        self.volume.type_name
    }

    fn device(&self) -> u64 {
        self.volume.disk.number().encode()
    }

    fn root(&self) -> Arc<dyn Inode> {
        match self.root_node() {
            Some(root) => root,
            None => empty_root(),
        }
    }

    fn usage(&self) -> Usage {
        let format = &self.volume.format;
        let numbers = format.statistics();
        Usage {
            magic: MAGIC,
            block_size: format.block_size() as u64,
            blocks: numbers.blocks,
            free: numbers.free_blocks,
            available: numbers.free_blocks,
            files: numbers.inodes.into(),
            files_free: numbers.free_inodes.into(),
            id: identity(format),
            name_length: 255,
        }
    }

    fn read_only(&self) -> bool {
        true
    }

    fn handle(&self, inode: &Arc<dyn Inode>) -> Result<Handle> {
        downcast::<Node>(inode).map(|node| handles::of(&node.inode)).ok_or(Errno::EOPNOTSUPP)
    }

    fn by_handle(&self, handle: &Handle) -> Result<Arc<dyn Inode>> {
        let inode = handles::find(handle, |number| self.volume.find_inode(number))?;
        if inode.links == 0 { Err(Errno::ESTALE) } else { Ok(self.node(inode.number)?) }
    }

    fn way_to(&self, directory: &Arc<dyn Inode>) -> Result<Vec<Name>> {
        let node = downcast::<Node>(directory).ok_or(Errno::ESTALE)?;
        handles::way(node.inode.number, |number| self.step_up(number))
    }

    fn options(&self) -> String {
        String::new()
    }

    fn reconfigure(&self, read_only: bool, _: &[u8]) -> Result<()> {
        if read_only { Ok(()) } else { Err(Errno::EROFS) }
    }
}
