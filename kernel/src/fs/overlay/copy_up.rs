//! Copy-up: copies a file from a lower layer to the upper one, at its first change.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::node::{Node, PRIVATE, UpperPlace};
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{Change, FileKind, Inode, Metadata, Owner};

const PAGE: u64 = 4096;

/// Whether a file's content is copied too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it.
    Keep,
    /// None of it: the file is about to be truncated.
    Drop,
}

/// Removes an entry of the working directory. If that fails, the entry stays there, where no
/// program sees it.
pub fn discard(work: &Arc<dyn Inode>, name: &[u8], inode: &Arc<dyn Inode>) {
    let _ = if inode.attributes().kind == FileKind::Directory {
        work.rmdir(name, inode)
    } else {
        work.unlink(name, inode)
    };
}

impl Node {
    /// Returns the inode in the upper layer; copies the file up if needed. `EROFS` without an upper
    /// layer.
    pub fn copy_up(&self, content: Content) -> Result<Arc<dyn Inode>> {
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        self.overlay.upper()?;
        // The ancestors first, from the top: so each one's parent is in the upper layer.
        let mut missing = Vec::new();
        let mut next = self.parent();
        while let Some(parent) = next {
            if parent.upper().is_some() {
                break;
            }
            next = parent.parent();
            missing.make_room(1)?;
            missing.push(parent);
        }
        for ancestor in missing.iter().rev() {
            ancestor.raise(Content::Keep)?;
        }
        self.raise(content)
    }

    fn parent(&self) -> Option<Arc<Node>> {
        self.place.lock().as_ref().map(|place| Arc::clone(&place.parent))
    }

    /// Copies this node up; its parent is in the upper layer already.
    fn raise(&self, content: Content) -> Result<Arc<dyn Inode>> {
        let _copying = self.copying.lock();
        if let Some(upper) = self.upper() {
            return Ok(upper);
        }
        let lower = self.real();
        let metadata = lower.metadata()?;
        let owner = Owner { uid: metadata.uid, gid: metadata.gid };
        // A file's content is copied before its directory is locked.
        let file = if self.kind == FileKind::Regular {
            let work = &self.overlay.upper()?.work;
            let file = work.create_unnamed(metadata.mode, owner)?;
            if content == Content::Keep {
                copy_content(&lower, &file)?;
            }
            copy_metadata(&lower, &metadata, &file)?;
            Some(file)
        } else {
            None
        };
        let Some(parent) = self.parent() else {
            // The file was removed while it was open: it continues in the upper layer without a
            // name. A removed node of another kind has nothing left that could be changed.
            let file = file.ok_or(Errno::ENOENT)?;
            self.set_upper(Arc::clone(&file));
            return Ok(file);
        };
        let _changes = parent.changes.lock();
        let directory = parent.upper().ok_or(Errno::EIO)?;
        // It may have been removed before the lock was taken.
        let name = self.place.lock().as_ref().map(|UpperPlace { name, .. }| name.clone());
        let upper = match (name, file) {
            (None, Some(file)) => file,
            (None, None) => return Err(Errno::ENOENT),
            (Some(name), Some(file)) => {
                directory.link(&name, &file)?;
                self.overlay.changed(&directory, &name);
                file
            }
            (Some(name), None) => {
                let copy = self.copy_other(&lower, &metadata, owner, &directory, &name)?;
                self.overlay.changed(&directory, &name);
                copy
            }
        };
        if self.kind != FileKind::Directory
            && let Ok(copy) = upper.metadata()
        {
            self.overlay.origins.lock().insert(copy.number, self.number);
        }
        self.set_upper(Arc::clone(&upper));
        Ok(upper)
    }

    /// Copies a node that is no regular file, through the working directory, so that it appears
    /// complete.
    fn copy_other(
        &self,
        lower: &Arc<dyn Inode>,
        metadata: &Metadata,
        owner: Owner,
        directory: &Arc<dyn Inode>,
        name: &[u8],
    ) -> Result<Arc<dyn Inode>> {
        let upper = self.overlay.upper()?;
        let _working = upper.working.lock();
        let work = &upper.work;
        let temporary = self.overlay.temporary();
        let mode = metadata.mode;
        let made = match self.kind {
            FileKind::Directory => work.mkdir(&temporary, mode, owner)?,
            FileKind::Symlink => work.symlink(&temporary, &lower.read_link()?, owner)?,
            kind => work.mknod(&temporary, kind, mode, metadata.represents, owner)?,
        };
        let done = copy_metadata(lower, metadata, &made).and_then(|()| {
            work.rename(
                &temporary,
                &made,
                directory,
                name,
                None,
                crate::vfs::inode::RenameFlags::empty(),
            )
        });
        if let Err(error) = done {
            discard(work, &temporary, &made);
            return Err(error);
        }
        Ok(made)
    }
}

fn copy_content(lower: &Arc<dyn Inode>, file: &Arc<dyn Inode>) -> Result<()> {
    let from = lower.page_cache().ok_or(Errno::EIO)?;
    let to = file.page_cache().ok_or(Errno::EIO)?;
    let size = from.size();
    let _content = to.lock_content();
    for index in 0..size.div_ceil(PAGE) {
        if index % 32 == 0 {
            from.readahead(index, 32);
        }
        to.page_for_write(index)?.copy_from(&from.page(index)?);
    }
    to.grow_to(size);
    to.touch();
    Ok(())
}

/// Copies mode, owner, times and attributes.
fn copy_metadata(lower: &Arc<dyn Inode>, from: &Metadata, to: &Arc<dyn Inode>) -> Result<()> {
    for name in lower.list_xattr()?.split(|&byte| byte == 0) {
        if !name.is_empty() && !name.starts_with(PRIVATE) {
            let value = lower.get_xattr(name)?;
            match to.set_xattr(name, Some(&value), 0) {
                // As on Linux, attributes that the upper layer cannot keep are left out.
                Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
    }
    to.set_metadata(&Change {
        mode: (from.kind != FileKind::Symlink).then_some(from.mode),
        uid: Some(from.uid),
        gid: Some(from.gid),
        accessed: Some(from.accessed),
        modified: Some(from.modified),
        size: None,
    })
}
