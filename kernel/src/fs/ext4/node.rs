//! An inode of the volume as the kernel's [`Inode`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Map, Time};
use hayate_machine::sync::Once;
use hayate_off2f::MARK;

use super::content::Content;
use super::directory::Index;
use super::{Ext4, Metadata as Disk};
use crate::in_place::view;
use crate::page_cache::cache::PageCache;
use crate::schedule::Mutex;
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata, Timestamp,
};
use crate::vfs::open_file::{FileOps, OpenRequest};

/// A file, directory, link or device node of the volume.
pub struct Node {
    pub(super) filesystem: Arc<Ext4>,
    pub(super) inode: hayate_ext4::Inode,
    kind: FileKind,
    /// Held while one of the following is filled.
    filling: Mutex<()>,
    map: Once<Arc<Map>>,
    page_cache: Once<Arc<PageCache>>,
    index: Once<Index>,
}

impl Node {
    pub(super) fn new(filesystem: Arc<Ext4>, inode: hayate_ext4::Inode) -> Result<Self> {
        let kind = FileKind::from_mode(inode.mode.into()).ok_or(Errno::EUCLEAN)?;
        Ok(Self {
            filesystem,
            inode,
            kind,
            filling: Mutex::new(()),
            map: Once::new(),
            page_cache: Once::new(),
            index: Once::new(),
        })
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
        let filesystem = &self.filesystem;
        let map = filesystem
            .volume
            .map(&Disk(&filesystem.disk), &self.inode)
            .map_err(|error| filesystem.error(error))?;
        Ok(self.map.call_once(|| Arc::new(map)))
    }

    /// Returns the directory's index of names.
    pub(super) fn index(&self) -> Result<&Index> {
        let map = self.map()?;
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let _filling = self.filling.lock();
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let index = Index::build(self, map)?;
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
        let source = Arc::new(Content::new(Arc::clone(&self.filesystem.disk), map, size));
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

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        Attributes {
            kind: self.kind,
            mode: self.inode.mode & 0o7777,
            uid: self.inode.uid,
            gid: self.inode.gid,
        }
    }

    fn metadata(&self) -> Result<Metadata> {
        let inode = &self.inode;
        let (major, minor) = inode.device();
        let is_device = matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Metadata {
            device: self.filesystem.disk.number().encode(),
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
            block_size: self.filesystem.volume.block_size() as u32,
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
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let number = self.find(name)?;
        Ok(self.filesystem.node(number)?)
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.enumerate(position, sink)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        let filesystem = &self.filesystem;
        filesystem
            .volume
            .link_target(&Disk(&filesystem.disk), &self.inode)
            .map_err(|error| filesystem.error(error))
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
        if name != view::ATTRIBUTE {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.is_marked() {
            return Err(Errno::ENODATA);
        }
        let (map, size) = (Arc::clone(self.map()?), self.inode.size);
        view::first_page(&Content::new(Arc::clone(&self.filesystem.disk), map, size), size)
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        if self.kind == FileKind::Regular { self.content().ok().cloned() } else { None }
    }
}
