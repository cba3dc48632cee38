//! Handles of groups and their files: the number of the inode, by which tools know a group
//! (fs/kernfs/mount.c, `kernfs_encode_fh`). A number is never used again.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::node::GroupFile;
use crate::process::cgroup::group::{self, Group};
use crate::vfs::handle::Handle;
use crate::vfs::inode::Inode;

/// `FILEID_KERNFS`
const KIND: i32 = 0xfe;
/// `FILEID_INO32_GEN`, and the same with that of a directory: the halves of the number, in which
/// Linux' block groups are told.
const HALVES: i32 = 1;
const HALVES_WITH_PARENT: i32 = 2;

/// The handle of a group or of a file of one.
pub fn of(inode: &Arc<dyn Inode>) -> Result<Handle> {
    let (_, number) = inode.identity()?;
    Ok(Handle::of_words(KIND, &[number as u32, (number >> 32) as u32]))
}

/// The file of a handle. `ESTALE`: it is gone; `ENOMEM`.
pub fn find(handle: &Handle) -> Result<Arc<dyn Inode>> {
    if !matches!(handle.kind, KIND | HALVES | HALVES_WITH_PARENT) {
        return Err(Errno::ESTALE);
    }
    let [low, high] = handle.words()?;
    let (id, file) = Group::parts(u64::from(low) | u64::from(high) << 32).ok_or(Errno::ESTALE)?;
    let lock = group::lock();
    let found = group::root().subtree(&lock)?.into_iter().find(|group| group.id() == id);
    drop(lock);
    let group = found.ok_or(Errno::ESTALE)?;
    if file == 0 {
        return Ok(group);
    }
    Ok(Arc::new(GroupFile::numbered(group, file).ok_or(Errno::ESTALE)?))
}
