//! File handles: `name_to_handle_at(2)`, `open_by_handle_at(2)` (fs/fhandle.c of Linux 6.1).
//! [`crate::vfs::by_handle`] says what a handle is.

use alloc::sync::Arc;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};

use super::{View, at, credentials, install, locate, open_file};
use crate::credentials::Capability;
use crate::vfs::by_handle;
use crate::vfs::handle::{Handle, MOST};
use crate::vfs::inode::FileKind;
use crate::vfs::mount::Mount;
use crate::vfs::open;
use crate::vfs::open_file::flags::{O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL};
use crate::vfs::path::{Resolver, WalkFlags};

/// The most bytes of a handle (`MAX_HANDLE_SZ`).
const BYTES_MAX: u32 = 128;
/// `handle_bytes` and `handle_type` of `struct file_handle`; the handle comes behind them.
const HEAD: usize = size_of::<[u32; 2]>();
/// The type of a handle that was not made, because there was no room for it (`FILEID_INVALID`).
const NONE: u32 = 0xff;

/// `name_to_handle_at(2)`
pub fn name_to_handle_at(
    directory: i32,
    path: usize,
    to: usize,
    mount: usize,
    flags: u32,
) -> Result<()> {
    if flags & !(at::SYMLINK_FOLLOW | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    // Links are followed only if the caller says so.
    let follows = if flags & at::SYMLINK_FOLLOW != 0 { 0 } else { at::SYMLINK_NOFOLLOW };
    let place = locate(&View::current()?, directory, path, flags & at::EMPTY_PATH | follows)?;
    let Handle { kind, bytes } = by_handle::of(&place)?;
    let [room, _]: [u32; 2] = UserPtr::new(to).read()?;
    if room > BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    let fits = bytes.len() <= room as usize;
    UserPtr::new(mount).write(&place.mount.id())?;
    let kind = if fits { kind as u32 } else { NONE };
    UserPtr::new(to).write(&[bytes.len() as u32, kind])?;
    if !fits {
        return Err(Errno::EOVERFLOW);
    }
    user::copy_out(to.wrapping_add(HEAD), &bytes)
}

/// The mount whose file system a handle is of: that of a descriptor, or of the working directory.
fn mount_of(fd: i32, view: &View) -> Result<Arc<Mount>> {
    if fd == AT_FDCWD {
        return Ok(Arc::clone(&view.context().working().mount));
    }
    Ok(Arc::clone(&open_file(fd)?.location().mount))
}

/// `open_by_handle_at(2)`. It passes by all directories, so it needs a capability that counts
/// everywhere.
pub fn open_by_handle_at(mount: i32, from: usize, flags: u32) -> Result<i32> {
    credentials().require(Capability::DacReadSearch)?;
    let [length, kind]: [u32; 2] = UserPtr::new(from).read()?;
    if !(1..=BYTES_MAX).contains(&length) {
        return Err(Errno::EINVAL);
    }
    let mut content = [0u8; BYTES_MAX as usize];
    let content = content.get_mut(..length as usize).unwrap_or_default();
    user::copy_in(content, from.wrapping_add(HEAD))?;
    let view = View::current()?;
    let mount = mount_of(mount, &view)?;
    // Bytes behind those of the longest handle do not count.
    let bytes = content.iter().copied().take(MOST).collect();
    let place = by_handle::find(&mount, &Handle { kind: kind as i32, bytes })?;
    let is_directory = place.inode()?.attributes().kind == FileKind::Directory;
    if flags & O_CREAT != 0 {
        // It is there, whatever it is.
        if flags & O_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        if is_directory {
            return Err(Errno::EISDIR);
        }
    }
    if flags & O_DIRECTORY != 0 && !is_directory {
        return Err(Errno::ENOTDIR);
    }
    let resolver =
        Resolver { context: view.context(), credentials: view.credentials(), start: Some(place) };
    let file = open::open(&resolver, b"", flags & !O_CREAT, 0, WalkFlags::EMPTY)?;
    install(file, flags & O_CLOEXEC != 0)
}
