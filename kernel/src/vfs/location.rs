//! Places: what is there, what is mounted there, and the path to it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::dentry::{DentryState, Name};
use super::inode::{FileKind, Inode, Metadata};
use super::mount::{Location, mounted_at};
use super::watch;
use super::watch::{Event, Mask};
use crate::reclaim::growth;

fn is_special(kind: FileKind) -> bool {
    use FileKind::{BlockDevice, CharDevice, Fifo, Socket};
    matches!(kind, CharDevice | BlockDevice | Fifo | Socket)
}

impl Location {
    /// Tells the watchers of the file here and of its directory about an event.
    pub fn tell_watchers(&self, mask: Mask) {
        let dentry = &self.dentry;
        let Some(inode) = dentry.inode() else { return };
        let kind = inode.attributes().kind;
        let mask = mask.about(kind);
        let unlinked = dentry.state().contains(DentryState::UNLINKED);
        let tell = |inode: &Arc<dyn Inode>, name: &[u8]| {
            if let Ok(metadata) = inode.metadata() {
                watch::tell(metadata.identity(), Event { mask, name, cookie: 0, unlinked });
            }
        };
        // A user who may read a directory must not learn when another user types on a terminal in
        // it (`fsnotify_parent` since Linux 6.13 and 6.1.120: no ACCESS and MODIFY of special
        // files).
        let quiet = mask.intersects(Mask::ACCESS | Mask::MODIFY) && is_special(kind);
        if !quiet && let Some(parent) = dentry.parent().and_then(|parent| parent.inode()) {
            tell(&parent, &dentry.name());
        }
        tell(&inode, &[]);
    }

    /// Whether a mount begins here.
    pub fn is_mount_root(&self) -> bool {
        Arc::ptr_eq(&self.dentry, self.mount.root())
    }

    /// Whether the two are the same place.
    pub fn is_same(&self, other: &Location) -> bool {
        Arc::ptr_eq(&self.dentry, &other.dentry) && Arc::ptr_eq(&self.mount, &other.mount)
    }

    /// Returns the file here; `ENOENT` if there is none.
    pub fn inode(&self) -> Result<Arc<dyn Inode>> {
        self.dentry.inode().ok_or(Errno::ENOENT)
    }

    /// Returns all that `stat(2)` reports.
    pub fn metadata(&self) -> Result<Metadata> {
        self.inode()?.metadata()
    }

    /// Returns the root of the topmost mount at this place; the place itself if nothing is mounted
    /// here.
    #[inline]
    pub fn into_topmost(mut self) -> Location {
        while self.dentry.state().contains(DentryState::MOUNTED) {
            match mounted_at(&self) {
                Some(mount) => {
                    mount.entered();
                    self = mount.root_location();
                }
                None => return self.unless_sealed(),
            }
        }
        self
    }

    /// Goes from the root of a mount to its mount point, through all layers; any other place stays.
    pub fn into_mount_point(mut self) -> Location {
        while Arc::ptr_eq(&self.dentry, self.mount.root()) {
            match self.mount.attached() {
                Some(place) => self = place,
                None => break,
            }
        }
        self
    }

    /// Returns the path from `root` to here, as `getcwd` and `/proc` show it, and whether `root` is
    /// on the way (otherwise Linux puts `(unreachable)` before the path). `ENOMEM`: a program can
    /// make a tree of any depth.
    pub fn path_from(&self, root: &Location) -> Result<(Vec<u8>, bool)> {
        let mut parts: Vec<Name> = Vec::new();
        let mut here = self.clone();
        let reached = loop {
            if here.is_same(root) {
                break true;
            }
            if Arc::ptr_eq(&here.dentry, here.mount.root()) {
                match here.mount.attached() {
                    Some(place) => here = place,
                    None => break false,
                }
                continue;
            }
            let Some(parent) = here.dentry.parent() else { break false };
            growth::push(&mut parts, here.dentry.name())?;
            here.dentry = parent;
        };
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            growth::append(&mut path, b"/")?;
            growth::append(&mut path, part)?;
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok((path, reached))
    }

    /// Returns the path as `/proc/PID/fd` and `maps` show it: anonymous files by their name,
    /// removed ones with ` (deleted)` appended. `ENOMEM`.
    pub fn display(&self, root: &Location) -> Result<Vec<u8>> {
        let state = self.dentry.state();
        if state.contains(DentryState::ANONYMOUS) {
            return growth::copy(&self.dentry.name());
        }
        let (mut path, _) = self.path_from(root)?;
        if state.contains(DentryState::UNLINKED) {
            growth::append(&mut path, b" (deleted)")?;
        }
        Ok(path)
    }
}
