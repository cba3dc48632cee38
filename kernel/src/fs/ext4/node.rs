//! A mounted volume, and its inodes as the kernel's [`Inode`].

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Map, ROOT, Time};
use hayate_machine::sync::{Once, SpinLock};
use hayate_off2f::MARK;

use super::content::FilePages;
use super::directory::{Directory, Index};
use super::volume::DiskVolume;
use crate::in_place::view;
use crate::page_cache::cache::PageCache;
use crate::schedule::Mutex;
use crate::vfs::dentry::Name;
use crate::vfs::filesystem::RootHandle;
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata, Timestamp,
};
use crate::vfs::open_file::{FileOps, OpenRequest};
use crate::vfs::set_id::CAPABILITIES;

/// A mounted volume.
pub struct Ext4 {
    pub(super) volume: DiskVolume,
    /// A tree, not a hash table: a hash table needs one large piece of memory, which may not be
    /// free while the page cache fills the memory.
    nodes: SpinLock<BTreeMap<u32, Weak<Node>>>,
    root: RootHandle<Node>,
    /// Itself; nodes keep a reference.
    this: Weak<Ext4>,
}

impl Ext4 {
    pub(super) fn new(volume: DiskVolume) -> Result<Arc<Self>> {
        let filesystem = Arc::new_cyclic(|this| Ext4 {
            volume,
            nodes: SpinLock::new(BTreeMap::new()),
            root: RootHandle::empty(),
            this: this.clone(),
        });
        let root = filesystem.node(ROOT)?;
        filesystem.root.set(root);
        Ok(filesystem)
    }

    /// Returns the root directory.
    pub(super) fn root_node(&self) -> Option<Arc<Node>> {
        self.root.get()
    }

    /// Removes the entry of a node that has no references left.
    fn forget(&self, number: u32) {
        let mut nodes = self.nodes.lock();
        // A new node may have taken its place already.
        if nodes.get(&number).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&number);
        }
    }

    /// Returns the number of the directory that a directory lies in, and its name there.
    pub(super) fn step_up(&self, number: u32) -> Result<(u32, Name)> {
        let above = self.node(number)?.directory()?.parent()?;
        let mut name = None;
        self.node(above)?.directory()?.each(|entry| {
            if entry.inode == number {
                name = Some(Name::from(entry.name));
            }
            name.is_none()
        })?;
        Ok((above, name.ok_or(Errno::ESTALE)?))
    }

    /// Returns the node of inode `number`.
    pub(super) fn node(&self, number: u32) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.lock().get(&number).and_then(Weak::upgrade) {
            return Ok(node);
        }
        let inode = self.volume.inode(number)?;
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
}

/// A file, directory, link or device node of the volume.
pub struct Node {
    filesystem: Arc<Ext4>,
    pub(super) inode: hayate_ext4::Inode,
    kind: FileKind,
    /// Whether it has file capabilities, or attributes that cannot be read.
    capabilities: bool,
    /// Held while one of the following is filled.
    filling: Mutex<()>,
    map: Once<Arc<Map>>,
    page_cache: Once<Arc<PageCache>>,
    index: Once<Index>,
}

impl Node {
    fn new(filesystem: Arc<Ext4>, inode: hayate_ext4::Inode) -> Result<Self> {
        let kind = FileKind::from_mode(inode.mode.into()).ok_or(Errno::EUCLEAN)?;
        let capabilities = kind == FileKind::Regular
            && !matches!(filesystem.volume.attribute(&inode, CAPABILITIES), Ok(None));
        Ok(Self {
            filesystem,
            inode,
            kind,
            capabilities,
            filling: Mutex::new(()),
            map: Once::new(),
            page_cache: Once::new(),
            index: Once::new(),
        })
    }

    fn volume(&self) -> &DiskVolume {
        &self.filesystem.volume
    }

    /// Returns the map of the content's blocks.
    pub(super) fn map(&self) -> Result<&Arc<Map>> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let _filling = self.filling.lock();
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let map = self.volume().map(&self.inode)?;
        Ok(self.map.call_once(|| Arc::new(map)))
    }

    fn directory(&self) -> Result<Directory<'_>> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        Ok(Directory { volume: self.volume(), inode: &self.inode, map: self.map()? })
    }

    /// Returns the directory's index of names.
    fn index(&self, directory: &Directory<'_>) -> Result<&Index> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let _filling = self.filling.lock();
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let index = directory.read_index()?;
        Ok(self.index.call_once(|| index))
    }

    /// Returns the page cache of the content.
    fn content(&self) -> Result<&Arc<PageCache>> {
        if let Some(page_cache) = self.page_cache.get() {
            return Ok(page_cache);
        }
        let map = Arc::clone(self.map()?);
        let _filling = self.filling.lock();
        if let Some(page_cache) = self.page_cache.get() {
            return Ok(page_cache);
        }
        let size = self.inode.size;
        let source = Arc::new(FilePages::new(Arc::clone(&self.volume().disk), map, size));
        let shown = if self.is_marked() { view::view(source.clone(), size)? } else { None };
        let page_cache = shown.unwrap_or_else(|| PageCache::cached(size, source, true));
        Ok(self.page_cache.call_once(|| page_cache))
    }

    /// Whether it has the mark of a converted executable.
    pub(super) fn is_marked(&self) -> bool {
        self.kind == FileKind::Regular && u32::from(self.inode.mode) & MARK != 0
    }

    /// Returns the size in bytes that is shown: the original's, if this is a converted executable.
    fn size(&self) -> u64 {
        match self.is_marked().then(|| self.content()) {
            Some(Ok(page_cache)) => page_cache.size(),
            _ => self.inode.size,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.filesystem.forget(self.inode.number);
    }
}

/// The kernel's time for one of the volume.
pub fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        Attributes {
            kind: self.kind,
            mode: self.inode.mode & 0o7777,
            uid: self.inode.uid,
            gid: self.inode.gid,
            capabilities: self.capabilities,
        }
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.volume().disk.number().encode(), self.inode.number.into()))
    }

    fn metadata(&self) -> Result<Metadata> {
        let inode = &self.inode;
        let (major, minor) = inode.device();
        let is_device = matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Metadata {
            device: self.volume().disk.number().encode(),
            number: inode.number.into(),
            kind: self.kind,
            mode: inode.mode & 0o7777,
            links: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            represents: if is_device {
                DeviceNumber::new(major, minor)
            } else {
                DeviceNumber::NONE
            },
            size: self.size(),
            blocks: inode.sectors,
            block_size: self.volume().format.block_size() as u32,
            accessed: timestamp(inode.accessed),
            modified: timestamp(inode.modified),
            changed: timestamp(inode.changed),
            created: timestamp(inode.created.unwrap_or_default()),
        })
    }

    fn set_metadata(&self, _: &Change) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let directory = self.directory()?;
        let number = directory.find(self.index(&directory)?, name)?;
        Ok(self.filesystem.node(number)?)
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        self.directory()?.enumerate(position, sink)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        self.volume().link_target(&self.inode)
    }

    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        if self.kind != FileKind::Regular {
            return Err(Errno::ENXIO);
        }
        if request.writes() {
            return Err(Errno::EROFS);
        }
        // A corrupt map fails here, not at the first read.
        self.content()?;
        Ok(self)
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name == view::ATTRIBUTE {
            if !self.is_marked() {
                return Err(Errno::ENODATA);
            }
            let (map, size) = (Arc::clone(self.map()?), self.inode.size);
            let pages = FilePages::new(Arc::clone(&self.volume().disk), map, size);
            return view::first_page(&pages, size);
        }
        let kept = [&b"user."[..], b"trusted.", b"security."];
        if !kept.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.volume().attribute(&self.inode, name)?.ok_or(Errno::ENODATA)
    }

    fn set_xattr(&self, _: &[u8], _: Option<&[u8]>, _: u32) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        self.volume().attributes(&self.inode)
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        if self.kind == FileKind::Regular { self.content().ok().cloned() } else { None }
    }
}
