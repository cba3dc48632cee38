//! Handles of files of a volume: the number of the inode, and its generation, which another inode
//! with the number does not have (fs/ext4/super.c, `ext4_nfs_get_inode`; fs/libfs.c,
//! `generic_fh_to_dentry`).

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Error, Inode, ROOT};

use crate::reclaim::growth;
use crate::vfs::dentry::Name;
use crate::vfs::handle::Handle;

/// `FILEID_INO32_GEN`
const KIND: i32 = 1;
/// The same with that of a directory behind it, which is not needed (`FILEID_INO32_GEN_PARENT`).
const KIND_WITH_PARENT: i32 = 2;
/// Lower numbers than this are the volume's own, but for the root's (`EXT4_GOOD_OLD_FIRST_INO`).
const FIRST: u32 = 11;
/// Directories on the way to the root; a volume whose way is longer goes in circles.
const DEEPEST: usize = 1 << 16;

/// The handle of an inode.
pub fn of(inode: &Inode) -> Handle {
    Handle::of_words(KIND, &[inode.number, inode.generation])
}

/// The inode of a handle, which `read` reads. `ESTALE`: there is none.
pub fn find(
    handle: &Handle,
    read: impl FnOnce(u32) -> hayate_ext4::Result<Inode>,
) -> Result<Inode> {
    let [number, generation] = handle.words()?;
    if !matches!(handle.kind, KIND | KIND_WITH_PARENT) || number != ROOT && number < FIRST {
        return Err(Errno::ESTALE);
    }
    let inode = read(number).map_err(|error| match error {
        Error::Memory => Errno::ENOMEM,
        _ => Errno::ESTALE,
    })?;
    let is_it = inode.generation == generation && inode.mode != 0;
    if is_it { Ok(inode) } else { Err(Errno::ESTALE) }
}

/// The names that lead to a directory from the root. `step`: the number of the directory that one
/// lies in, and its name there.
pub fn way(mut number: u32, step: impl Fn(u32) -> Result<(u32, Name)>) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    while number != ROOT {
        if names.len() == DEEPEST {
            return Err(Errno::EUCLEAN);
        }
        let (above, name) = step(number)?;
        growth::push(&mut names, name)?;
        number = above;
    }
    names.reverse();
    Ok(names)
}
