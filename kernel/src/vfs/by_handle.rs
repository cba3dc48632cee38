//! Files found by their handles, and handles made (`name_to_handle_at(2)`; fs/exportfs of Linux
//! 6.1).
//!
//! A file system that has handles makes one of what it knows a file by
//! ([`FileSystem::handle`](super::filesystem::FileSystem::handle)), and finds the file again
//! (`by_handle` there) as long as it exists, whatever its names are by then. The handle of a file
//! that is gone leads to none, also if another file has its number.
//!
//! A directory has one dentry, which has its lock, so a directory that was found is walked to from
//! the root of its file system, by the names that the file system tells (`way_to`). For any other
//! file a dentry without a place in the tree does, as for one of which Linux has no name in its
//! cache: `/proc/PID/fd` shows it as `/`.
//!
//! Road not taken: to keep dentries by inode, as Linux does (`d_alias`). It would cost each file a
//! link, for a call that few programs make.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::dentry::Dentry;
use super::handle::Handle;
use super::inode::{FileKind, Inode};
use super::mount::{Location, Mount};
use super::path::lookup;

/// The handle of the file at a place. `EOPNOTSUPP`: its file system has none.
pub fn of(location: &Location) -> Result<Handle> {
    location.dentry.filesystem().handle(&location.inode()?)
}

/// The file of a handle, in the file system of a mount: also outside of what that mount shows.
///
/// # Errors
/// `ESTALE` (it is gone, or the handle is none of this file system), `ENOMEM`.
pub fn find(mount: &Arc<Mount>, handle: &Handle) -> Result<Location> {
    let filesystem = mount.filesystem();
    let stale = |error| if error == Errno::ENOMEM { error } else { Errno::ESTALE };
    let inode = filesystem.by_handle(handle).map_err(stale)?;
    let dentry = if inode.attributes().kind == FileKind::Directory {
        walk(mount, &inode).map_err(stale)?
    } else {
        Dentry::anonymous(Arc::clone(filesystem), b"/", inode)
    };
    Ok(Location { mount: Arc::clone(mount), dentry })
}

/// The dentry of a directory.
fn walk(mount: &Mount, directory: &Arc<dyn Inode>) -> Result<Arc<Dentry>> {
    /// How often another name is asked for, because a directory on the way was renamed meanwhile.
    const TRIES: usize = 3;
    let mut root = Arc::clone(mount.root());
    while let Some(parent) = root.parent() {
        root = parent;
    }
    let wanted = directory.identity()?;
    for _ in 0..TRIES {
        let mut here = Some(Arc::clone(&root));
        for name in mount.filesystem().way_to(directory)? {
            let Some(dentry) = here.take() else { break };
            let Some(inode) = dentry.inode() else { break };
            here = Some(lookup(&dentry, &inode, &name)?);
        }
        if let Some(found) = here
            && let Some(inode) = found.inode()
            && inode.identity()? == wanted
        {
            return Ok(found);
        }
    }
    Err(Errno::ESTALE)
}
