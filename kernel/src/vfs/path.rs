//! Path walk: from the text of a path to a [`Location`] (`path_resolution(7)`).
//!
//! The crate [`hayate_path_walk`] decides how names, links, `.` and `..` and limits to the walk are
//! handled. This module provides the tree that it walks: dentries and mounts, seen with the
//! caller's root, working directory and credentials. A name is looked up in the dentry cache; only
//! if it is not cached does the walk take the directory lock and ask the file system.
//!
//! [`Resolver`] is the interface: it holds the root, working directory and credentials that count,
//! and the directory from which a relative path starts.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
pub use hayate_path_walk::{Ending, PATH_MAX, WalkFlags};
use hayate_path_walk::{EntryKind, Hold, Target, Tree};

use super::context::FsContext;
use super::dentry::{Dentry, DentryState, NAME_MAX, Name};
use super::filesystem::Caching;
use super::inode::{Attributes, FileKind, Inode, Jump};
use super::mount::Location;
use super::mount::flags::MS_NOSYMFOLLOW;
use crate::credentials::{Credentials, access};

/// The view of the tree that a walk takes.
pub struct Resolver<'a> {
    /// Root and working directory.
    pub context: &'a FsContext,
    /// The credentials of the caller.
    pub credentials: &'a Credentials,
    /// The directory where a relative path starts instead of the working directory (the *at calls).
    pub start: Option<Location>,
}

/// The directory of the last name of a path, and that name.
pub type Parent<'a> = hayate_path_walk::Parent<Resolver<'a>>;
/// One walk in progress.
pub type Walk<'w, 'a> = hayate_path_walk::Walk<'w, Resolver<'a>>;

/// Checks access to a file by its attributes; `wanted` is a union of [`access`]' bits.
#[inline]
pub fn permitted(credentials: &Credentials, attributes: &Attributes, wanted: u32) -> Result<()> {
    let mode = attributes.kind.mode_bits() | u32::from(attributes.mode);
    credentials.may_access(attributes.uid, attributes.gid, mode, wanted)
}

impl<'a> Resolver<'a> {
    /// Returns the place that `path` leads to; it exists.
    pub fn resolve(&self, path: &[u8], flags: WalkFlags) -> Result<Location> {
        hayate_path_walk::resolve(self, path, flags)
    }

    /// Returns the directory of the last name of `path`, and that name.
    pub fn resolve_parent(&self, path: &[u8]) -> Result<Parent<'a>> {
        Walk::begin(self, path, WalkFlags::empty())?.parent(path)
    }
}

/// Returns the child `name` of `directory`, which may be a negative dentry. Takes the directory
/// lock if the name is not cached.
#[inline]
pub fn lookup(directory: &Arc<Dentry>, inode: &Arc<dyn Inode>, name: &[u8]) -> Result<Arc<Dentry>> {
    if let Some(child) = directory.cached(name) {
        return Ok(child);
    }
    if matches!(directory.filesystem().caching(), Caching::Never | Caching::InUse) {
        return lookup_locked(directory, inode, name);
    }
    let _lock = directory.lock_directory();
    lookup_locked(directory, inode, name)
}

/// Asks a file system whose tree others change as well. What the name led to before does not count,
/// except for what is mounted there. Needs no lock: of two answers the file system gave one later.
#[cold]
fn lookup_in_use(
    directory: &Arc<Dentry>,
    inode: &Arc<dyn Inode>,
    name: &[u8],
) -> Result<Arc<Dentry>> {
    let name = Name::from(name);
    let held = directory.filesystem().held().and_then(|held| held.find(directory, &name));
    if let Some(held) = &held
        && held.state().contains(DentryState::MOUNTED)
    {
        return Ok(Arc::clone(held));
    }
    let found = match inode.lookup(&name) {
        Ok(found) => Some(directory.hold(&name, found)),
        Err(Errno::ENOENT) => None,
        Err(error) => return Err(error),
    };
    if let Some(held) =
        held.filter(|held| !found.as_ref().is_some_and(|new| Arc::ptr_eq(new, held)))
        && let Some(content) = held.inode().and_then(|inode| inode.page_cache())
    {
        // Another file, or none: nothing is to be kept of the old one.
        content.forget();
    }
    Ok(found.unwrap_or_else(|| Dentry::child(directory, name, None)))
}

/// Like [`lookup`], for a caller that holds the directory lock.
pub fn lookup_locked(
    directory: &Arc<Dentry>,
    inode: &Arc<dyn Inode>,
    name: &[u8],
) -> Result<Arc<Dentry>> {
    if let Some(child) = directory.cached(name) {
        return Ok(child);
    }
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let caching = directory.filesystem().caching();
    if caching == Caching::InUse {
        return lookup_in_use(directory, inode, name);
    }
    let found = match inode.lookup(name) {
        Ok(found) => Some(found),
        Err(Errno::ENOENT) => None,
        Err(error) => return Err(error),
    };
    let keep = match caching {
        Caching::All => true,
        Caching::Positive => found.is_some(),
        Caching::Never | Caching::InUse => false,
    };
    let child = Dentry::child(directory, Name::from(name), found);
    // In a removed directory nothing is ever found, and nothing would take the name out of the
    // cache again.
    if keep && !directory.state().contains(DentryState::UNLINKED) {
        directory.adopt(&child)?;
    }
    Ok(child)
}

/// Returns the root of the mount at `place`, if there is one. The mark `MOUNTED` belongs to the
/// dentry, which other mounts of the same tree may show too, so it does not prove a mount here.
#[cold]
fn covering(place: &Location) -> Option<Location> {
    let top = place.clone().into_topmost();
    (!top.is_same(place)).then_some(top)
}

impl Tree for Resolver<'_> {
    type Place = Location;
    type Directory = Arc<dyn Inode>;
    type Entry = Arc<Dentry>;
    type Name = Name;

    fn root(&self) -> Location {
        self.context.root()
    }

    fn start(&self) -> Location {
        self.start.clone().unwrap_or_else(|| self.context.working())
    }

    fn is_root(&self, place: &Location) -> bool {
        self.context.is_root(place)
    }

    fn same(&self, one: &Location, other: &Location) -> bool {
        one.is_same(other)
    }

    fn same_mount(&self, one: &Location, other: &Location) -> bool {
        Arc::ptr_eq(&one.mount, &other.mount)
    }

    #[inline(always)]
    fn search(&self, here: &Location) -> Result<Arc<dyn Inode>> {
        let inode = here.inode()?;
        let attributes = inode.attributes();
        if attributes.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        permitted(self.credentials, &attributes, access::EXECUTE)?;
        Ok(inode)
    }

    #[inline(always)]
    fn lookup(
        &self,
        here: &Location,
        directory: &Arc<dyn Inode>,
        name: &[u8],
    ) -> Result<(Arc<Dentry>, EntryKind)> {
        let child = lookup(&here.dentry, directory, name)?;
        let kind = match child.inode().ok_or(Errno::ENOENT)?.attributes().kind {
            FileKind::Directory => EntryKind::Directory,
            FileKind::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        };
        Ok((child, kind))
    }

    #[inline(always)]
    fn step(&self, here: &mut Location, entry: Arc<Dentry>) {
        here.dentry = entry;
    }

    #[inline(always)]
    fn covering(&self, here: &Location) -> Option<Location> {
        let marked = here.dentry.state().contains(DentryState::MOUNTED);
        if marked { covering(here) } else { None }
    }

    fn hold(&self, here: &Location) -> Hold<Location> {
        if Arc::ptr_eq(&here.dentry, here.mount.root()) {
            return here.mount.attached().map_or(Hold::Nothing, Hold::Mount);
        }
        let Some(dentry) = here.dentry.parent() else { return Hold::Nothing };
        let root = here.mount.root();
        if root.parent().is_some() && !dentry.is_within(root) {
            return Hold::Lost;
        }
        Hold::Directory(Location { mount: Arc::clone(&here.mount), dentry })
    }

    fn follow(&self, here: &Location, entry: &Arc<Dentry>) -> Result<Target<Location>> {
        if here.mount.flags() & MS_NOSYMFOLLOW != 0 {
            return Err(Errno::ELOOP);
        }
        let inode = entry.inode().ok_or(Errno::ENOENT)?;
        match inode.follow()? {
            Jump::Location(target) => Ok(Target::Place(target)),
            Jump::Text => {
                if here.mount.notes_access(false) {
                    inode.note_access(here.mount.notes_every_access());
                }
                inode.read_link().map(Target::Text)
            }
        }
    }

    fn is_directory(&self, here: &Location) -> Result<bool> {
        Ok(here.inode()?.attributes().kind == FileKind::Directory)
    }
}
