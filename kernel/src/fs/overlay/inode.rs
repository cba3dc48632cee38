//! The interface of a node to the virtual file system.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::change::New;
use super::copy_up::Content;
use super::node::{Node, PRIVATE};
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata, Owner, RenameFlags,
};
use crate::vfs::open_file::{FileOps, OpenRequest};

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        self.real().attributes()
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.overlay.device, self.number))
    }

    fn metadata(&self) -> Result<Metadata> {
        let mut metadata = self.real().metadata()?;
        metadata.device = self.overlay.device;
        metadata.number = self.number;
        if self.kind == FileKind::Directory
            && self.lowers.len() + usize::from(self.upper().is_some()) > 1
        {
            // As on Linux: the number of directories in a merged directory is unknown, which a
            // count of 1 says.
            metadata.links = 1;
        }
        Ok(metadata)
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        let content = if change.size == Some(0) { Content::Drop } else { Content::Keep };
        self.copy_up(content)?.set_metadata(change)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self.this()?.find(name)?)
    }

    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.make(name, New::File { mode }, owner)
    }

    fn create_unnamed(&self, mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let upper = self.copy_up(Content::Keep)?;
        Ok(Node::of_upper(&self.overlay, upper.create_unnamed(mode, owner)?)?)
    }

    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.make(name, New::Directory { mode }, owner)
    }

    fn mknod(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: DeviceNumber,
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        if kind == FileKind::CharDevice && device == DeviceNumber::NONE {
            // Such a node would be a whiteout.
            return Err(Errno::EPERM);
        }
        self.make(name, New::Node { kind, mode, device }, owner)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<dyn Inode>> {
        self.make(name, New::Symlink { target }, owner)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.link_to(name, &Node::from_inode(target)?)
    }

    fn unlink(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.remove(name, &Node::from_inode(target)?)
    }

    fn rmdir(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.remove(name, &Node::from_inode(target)?)
    }

    fn rename(
        &self,
        name: &[u8],
        moved: &Arc<dyn Inode>,
        new_directory: &Arc<dyn Inode>,
        new_name: &[u8],
        replaced: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let replaced = replaced.map(Node::from_inode).transpose()?;
        let (moved, target) = (Node::from_inode(moved)?, Node::from_inode(new_directory)?);
        self.move_entry((name, &moved), (&target, new_name, replaced.as_ref()), flags)
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.enumerate(position, sink)
    }

    fn note_access(&self, always: bool) {
        // Lower layers are only read.
        let upper = self.upper.lock().clone();
        if let Some(upper) = upper {
            upper.note_access(always);
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.real().read_link()
    }

    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        super::open::open(self, request)
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        self.real().page_cache()
    }

    fn earlier_page_cache(&self) -> Option<Arc<PageCache>> {
        let (first, now) = (self.first.page_cache()?, self.upper()?.page_cache()?);
        (!Arc::ptr_eq(&first, &now)).then_some(first)
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(PRIVATE) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.real().get_xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
        if name.starts_with(PRIVATE) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.copy_up(Content::Keep)?.set_xattr(name, value, flags)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        let all = self.real().list_xattr()?;
        let mut shown = Vec::new();
        for name in all.split_inclusive(|&byte| byte == 0) {
            if !name.starts_with(PRIVATE) {
                shown.make_room(name.len())?;
                shown.extend_from_slice(name);
            }
        }
        Ok(shown)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.upper().map_or(Ok(()), |upper| upper.sync(data_only))
    }
}
