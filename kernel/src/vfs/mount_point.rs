//! Mount points in file systems whose names are looked up anew each time ([`Caching::Never`]):
//! procfs and sysfs.
//!
//! A mount hangs at a dentry, and such a file system keeps none. So the dentries that lead to a
//! mount point are kept from its first mount on: a walk finds them before it asks the file system.
//! That is right only for names that stay, and stay what they are ([`Inode::is_fixed`]); a mount at
//! another one, below the directory of a process, is refused. (Linux keeps dentries of all names,
//! and unmounts what is below a process when that ends.)
//!
//! [`Inode::is_fixed`]: super::inode::Inode::is_fixed

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::dentry::Dentry;
use super::filesystem::Caching;
use super::mount::Location;
use crate::reclaim::growth;

/// The same place by dentries that are kept, where its file system keeps none: the root of a mount
/// that shows a part of it. What is kept below it then goes with the file system
/// ([`Dentry::dismantle`]); a dentry of a walk alone would be in no tree, and would stay for ever
/// with those that it keeps. A place below a name that does not stay remains what it is: nothing is
/// mounted there. The caller holds the lock of mounts.
///
/// # Errors
/// `ENOMEM`.
pub fn kept(place: &Location) -> Result<Location> {
    if place.dentry.filesystem().caching() != Caching::Never {
        return Ok(place.clone());
    }
    let mut way: Vec<Arc<Dentry>> = Vec::new();
    let mut here = Arc::clone(&place.dentry);
    while let Some(parent) = here.parent() {
        if !here.inode().is_some_and(|inode| inode.is_fixed()) {
            return Ok(place.clone());
        }
        growth::push(&mut way, here)?;
        here = parent;
    }
    for child in way.iter().rev() {
        let next = {
            let _lock = here.lock_directory();
            match here.cached(&child.name()) {
                Some(kept) => kept,
                None => {
                    let own = child.parent().is_some_and(|parent| Arc::ptr_eq(&parent, &here));
                    let child = if own {
                        Arc::clone(child)
                    } else {
                        Dentry::child(&here, child.name(), child.inode())
                    };
                    here.adopt(&child)?;
                    child
                }
            }
        };
        here = next;
    }
    Ok(Location { mount: Arc::clone(&place.mount), dentry: here })
}

/// Keeps the dentries that lead to `place`, where its file system does not. The caller holds the
/// lock of mounts and changes nothing before; the lock of directories comes behind it.
///
/// # Errors
/// `EINVAL` if a name on the way does not stay; `EBUSY` if another walk's dentries were kept
/// meanwhile, which a new walk finds; `ENOMEM`.
pub fn keep_way(place: &Location) -> Result<()> {
    if place.dentry.filesystem().caching() != Caching::Never {
        return Ok(());
    }
    let mut way: Vec<(Arc<Dentry>, Arc<Dentry>)> = Vec::new();
    let mut here = Arc::clone(&place.dentry);
    while !Arc::ptr_eq(&here, place.mount.root())
        && let Some(parent) = here.parent()
    {
        if !here.inode().is_some_and(|inode| inode.is_fixed()) {
            return Err(Errno::EINVAL);
        }
        growth::push(&mut way, (Arc::clone(&parent), here))?;
        here = parent;
    }
    for (parent, child) in way.iter().rev() {
        let _lock = parent.lock_directory();
        match parent.cached(&child.name()) {
            Some(kept) if Arc::ptr_eq(&kept, child) => {}
            Some(_) => return Err(Errno::EBUSY),
            None => parent.adopt(child)?,
        }
    }
    Ok(())
}
