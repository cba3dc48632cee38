//! File handles: `name_to_handle_at(2)`, `open_by_handle_at(2)` (fs/fhandle.c of Linux 6.1).
//!
//! No file system here finds a file by a number, so none gives handles: as with a file system of
//! Linux that has no `export_operations`, the one call answers `EOPNOTSUPP`, and no handle leads to
//! a file (`ESTALE`).

use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::{View, at, credentials, locate, open_file};
use crate::credentials::Capability;

/// The most bytes of a handle (`MAX_HANDLE_SZ`).
const BYTES_MAX: u32 = 128;

/// `name_to_handle_at(2)`
pub fn name_to_handle_at(
    directory: i32,
    path: usize,
    _handle: usize,
    _mount: usize,
    flags: u32,
) -> Result<()> {
    if flags & !(at::SYMLINK_FOLLOW | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    // Links are followed only if the caller says so.
    let follows = if flags & at::SYMLINK_FOLLOW != 0 { 0 } else { at::SYMLINK_NOFOLLOW };
    locate(&View::current()?, directory, path, flags & at::EMPTY_PATH | follows)?;
    Err(Errno::EOPNOTSUPP)
}

/// `open_by_handle_at(2)`
pub fn open_by_handle_at(mount: i32, handle: usize, _flags: u32) -> Result<i32> {
    credentials().require(Capability::DacReadSearch)?;
    // `handle_bytes` and `handle_type` of `struct file_handle`, then the handle itself.
    let [bytes, _kind]: [u32; 2] = UserPtr::new(handle).read()?;
    if !(1..=BYTES_MAX).contains(&bytes) {
        return Err(Errno::EINVAL);
    }
    let mut content = [0u8; BYTES_MAX as usize];
    if let Some(content) = content.get_mut(..bytes as usize) {
        hayate_machine::user::copy_in(content, handle.wrapping_add(size_of::<[u32; 2]>()))?;
    }
    if mount != hayate_abi::file::AT_FDCWD {
        open_file(mount)?;
    }
    Err(Errno::ESTALE)
}
