//! The way to a directory of a tmpfs, for its handle: directories have no parents here (the
//! dentries have), so it is searched from the root on. The call is the administrator's, who waits a
//! little.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::{TmpFs, TmpInode};
use crate::reclaim::growth::push;
use crate::vfs::dentry::Name;
use crate::vfs::inode::{Inode, downcast_arc};

impl TmpFs {
    /// The names that lead to a directory from the root. `ESTALE`: it was removed; `ENOMEM`.
    pub(super) fn search(&self, directory: &Arc<dyn Inode>) -> Result<Vec<Name>> {
        let wanted = downcast_arc::<TmpInode>(directory).ok_or(Errno::ESTALE)?;
        // Each with its name, and where in the list the directory is that it lies in.
        let mut list = Vec::new();
        push(&mut list, (0, Name::from(&b"/"[..]), Arc::clone(&self.root)))?;
        let mut next = 0;
        while let Some((_, _, here)) = list.get(next) {
            if Arc::ptr_eq(here, &wanted) {
                return names(&list, next);
            }
            for (name, inode) in here.directories()? {
                push(&mut list, (next, name, inode))?;
            }
            next += 1;
        }
        Err(Errno::ESTALE)
    }
}

/// The names of a directory in the list, and of those that it lies in.
fn names(list: &[(usize, Name, Arc<TmpInode>)], mut at: usize) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    while let Some((above, name, _)) = list.get(at).filter(|_| at != 0) {
        push(&mut names, Arc::clone(name))?;
        at = *above;
    }
    names.reverse();
    Ok(names)
}
