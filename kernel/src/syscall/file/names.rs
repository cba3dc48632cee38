//! Names and directories: making, removing, renaming, enumerating, the working directory.

use alloc::vec::Vec;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::{Errno, Result};
use hayate_machine::user;

use super::{View, at, context, locate, open_file, path};
use crate::credentials::{Capability, access};
use crate::reclaim::growth;
use crate::vfs::directory;
use crate::vfs::inode::{DeviceNumber, DirectorySink, FileKind, RenameFlags};
use crate::vfs::mount::Location;
use crate::vfs::notify;
use crate::vfs::open::read_directory;
use crate::vfs::path::{PATH_MAX, WalkFlags, permitted};
use crate::vfs::watch::Mask;

/// `mkdir(2)`
pub fn mkdir(path_address: usize, mode: u32) -> Result<()> {
    mkdirat(AT_FDCWD, path_address, mode)
}

/// `mkdirat(2)`
pub fn mkdirat(fd: i32, path_address: usize, mode: u32) -> Result<()> {
    let (view, path) = (View::current()?, path(path_address)?);
    let mode = mode as u16 & 0o7777;
    directory::mkdir(&view.resolver(fd, &path)?, &path, mode).map(drop)
}

/// `mknod(2)`
pub fn mknod(path_address: usize, mode: u32, device: usize) -> Result<()> {
    mknodat(AT_FDCWD, path_address, mode, device)
}

/// `mknodat(2)`
pub fn mknodat(fd: i32, path_address: usize, mode: u32, device: usize) -> Result<()> {
    let kind = match FileKind::from_mode(mode) {
        None if mode & 0o170_000 == 0 => FileKind::Regular,
        None => return Err(Errno::EINVAL),
        Some(FileKind::Directory) => return Err(Errno::EPERM),
        Some(FileKind::Symlink) => return Err(Errno::EINVAL),
        Some(kind) => kind,
    };
    let (view, path) = (View::current()?, path(path_address)?);
    let mode = mode as u16 & 0o7777;
    let device = match kind {
        FileKind::CharDevice | FileKind::BlockDevice => DeviceNumber::decode(device as u64),
        _ => DeviceNumber::NONE,
    };
    directory::mknod(&view.resolver(fd, &path)?, &path, kind, mode, device).map(drop)
}

/// `symlink(2)`
pub fn symlink(target: usize, path_address: usize) -> Result<()> {
    symlinkat(target, AT_FDCWD, path_address)
}

/// `symlinkat(2)`
pub fn symlinkat(target: usize, fd: i32, path_address: usize) -> Result<()> {
    let target = path(target)?;
    let (view, path) = (View::current()?, path(path_address)?);
    directory::symlink(&view.resolver(fd, &path)?, &target, &path).map(drop)
}

/// `link(2)`
pub fn link(from: usize, to: usize) -> Result<()> {
    linkat(AT_FDCWD, from, AT_FDCWD, to, 0)
}

/// `linkat(2)`
pub fn linkat(from_fd: i32, from: usize, to_fd: i32, to: usize, flags: u32) -> Result<()> {
    if flags & !(at::SYMLINK_FOLLOW | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let view = View::current()?;
    if flags & at::EMPTY_PATH != 0 && !view.credentials().has(Capability::DacReadSearch) {
        return Err(Errno::ENOENT);
    }
    let follow = flags & at::SYMLINK_FOLLOW != 0;
    let flags = flags & at::EMPTY_PATH | if follow { 0 } else { at::SYMLINK_NOFOLLOW };
    let old = locate(&view, from_fd, from, flags)?;
    let to = path(to)?;
    directory::link(&view.resolver(to_fd, &to)?, &old, &to)
}

/// `unlink(2)`
pub fn unlink(path_address: usize) -> Result<()> {
    unlinkat(AT_FDCWD, path_address, 0)
}

/// `rmdir(2)`
pub fn rmdir(path_address: usize) -> Result<()> {
    unlinkat(AT_FDCWD, path_address, at::REMOVEDIR)
}

/// `unlinkat(2)`
pub fn unlinkat(fd: i32, path_address: usize, flags: u32) -> Result<()> {
    if flags & !at::REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let (view, path) = (View::current()?, path(path_address)?);
    let resolver = view.resolver(fd, &path)?;
    if flags & at::REMOVEDIR != 0 {
        directory::rmdir(&resolver, &path)
    } else {
        directory::unlink(&resolver, &path)
    }
}

/// `rename(2)`
pub fn rename(from: usize, to: usize) -> Result<()> {
    renameat2(AT_FDCWD, from, AT_FDCWD, to, 0)
}

/// `renameat(2)`
pub fn renameat(from_fd: i32, from: usize, to_fd: i32, to: usize) -> Result<()> {
    renameat2(from_fd, from, to_fd, to, 0)
}

/// `renameat2(2)`
pub fn renameat2(from_fd: i32, from: usize, to_fd: i32, to: usize, flags: u32) -> Result<()> {
    let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let (view, from, to) = (View::current()?, path(from)?, path(to)?);
    if flags.contains(RenameFlags::WHITEOUT) {
        view.credentials().require(Capability::Mknod)?;
    }
    let old = view.resolver(from_fd, &from)?;
    let new = view.resolver(to_fd, &to)?;
    directory::rename(&old, &from, &new, &to, flags)
}

/// `readlink(2)`
pub fn readlink(path_address: usize, buffer: usize, size: usize) -> Result<usize> {
    readlinkat(AT_FDCWD, path_address, buffer, size)
}

/// `readlinkat(2)`
pub fn readlinkat(fd: i32, path_address: usize, buffer: usize, size: usize) -> Result<usize> {
    // The size is an int in Linux.
    if size as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let (view, path) = (View::current()?, path(path_address)?);
    let flags = WalkFlags::NOFOLLOW | WalkFlags::EMPTY;
    let place = view.resolve(fd, &path, flags)?;
    let inode = place.inode()?;
    if inode.attributes().kind != FileKind::Symlink {
        return Err(if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL });
    }
    let text = inode.read_link()?;
    if place.mount.notes_access(false) {
        inode.note_access(place.mount.notes_every_access());
    }
    let length = text.len().min(size);
    user::copy_out(buffer, text.get(..length).unwrap_or_default())?;
    Ok(length)
}

/// `getcwd(2)`: returns the length including the NUL.
pub fn getcwd(buffer: usize, size: usize) -> Result<usize> {
    use crate::vfs::dentry::DentryState;
    let context = context()?;
    let working = context.working();
    if working.dentry.state().contains(DentryState::UNLINKED) {
        return Err(Errno::ENOENT);
    }
    let (path, reachable) = working.path_from(&context.root())?;
    let mut text = Vec::new();
    if !reachable {
        text.extend_from_slice(b"(unreachable)");
    }
    growth::append(&mut text, &path)?;
    growth::append(&mut text, b"\0")?;
    if text.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if text.len() > size {
        return Err(Errno::ERANGE);
    }
    user::copy_out(buffer, &text)?;
    Ok(text.len())
}

fn enter(view: &View, place: Location) -> Result<()> {
    let attributes = place.inode()?.attributes();
    if attributes.kind != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    permitted(view.credentials(), &attributes, access::EXECUTE)?;
    view.context().set_working(place);
    Ok(())
}

/// `chdir(2)`
pub fn chdir(path_address: usize) -> Result<()> {
    let (view, path) = (View::current()?, path(path_address)?);
    let place = view.resolve(AT_FDCWD, &path, WalkFlags::DIRECTORY)?;
    enter(&view, place)
}

/// `fchdir(2)`
pub fn fchdir(fd: i32) -> Result<()> {
    let file = super::files().get(fd)?;
    enter(&View::current()?, file.location().clone())
}

/// `umask(2)`
pub fn umask(mask: u32) -> Result<u32> {
    Ok(u32::from(context()?.set_umask(mask as u16)))
}

/// Packs entries into the program's buffer in the format of `getdents`.
struct Packer {
    address: usize,
    left: usize,
    done: usize,
    modern: bool,
    failure: Option<Errno>,
}

impl Packer {
    /// Encodes an entry: head, name, padding to 8 bytes; the old call has the kind at the very end.
    fn pack(&self, number: u64, kind: FileKind, name: &[u8], next: u64) -> Vec<u8> {
        let head = if self.modern { 19 } else { 18 };
        let tail = if self.modern { 1 } else { 2 };
        let length = (head + name.len() + tail).next_multiple_of(8);
        let mut record = Vec::with_capacity(length);
        record.extend_from_slice(&number.to_le_bytes());
        record.extend_from_slice(&next.to_le_bytes());
        record.extend_from_slice(&(length as u16).to_le_bytes());
        if self.modern {
            record.push(kind.dirent_type());
        }
        record.extend_from_slice(name);
        record.resize(length, 0);
        if !self.modern
            && let Some(last) = record.last_mut()
        {
            *last = kind.dirent_type();
        }
        record
    }
}

impl DirectorySink for Packer {
    fn entry(&mut self, number: u64, kind: FileKind, name: &[u8], next: u64) -> bool {
        let record = self.pack(number, kind, name, next);
        if record.len() > self.left {
            // Not even one entry fits.
            if self.done == 0 {
                self.failure = Some(Errno::EINVAL);
            }
            return false;
        }
        if let Err(error) = user::copy_out(self.address + self.done, &record) {
            self.failure = Some(error);
            return false;
        }
        self.done += record.len();
        self.left -= record.len();
        true
    }
}

fn get_entries(fd: i32, buffer: usize, count: u32, modern: bool) -> Result<usize> {
    let file = open_file(fd)?;
    let mut packer =
        Packer { address: buffer, left: count as usize, done: 0, modern, failure: None };
    if !user::in_user_half(buffer, count as usize) {
        return Err(Errno::EFAULT);
    }
    let outcome = read_directory(&file, &mut packer);
    notify::file(&file, Mask::ACCESS);
    match (packer.done, outcome, packer.failure) {
        (0, Err(error), _) | (0, Ok(()), Some(error)) => Err(error),
        (done, _, _) => Ok(done),
    }
}

/// `getdents(2)`
pub fn getdents(fd: i32, buffer: usize, count: u32) -> Result<usize> {
    get_entries(fd, buffer, count, false)
}

/// `getdents64(2)`
pub fn getdents64(fd: i32, buffer: usize, count: u32) -> Result<usize> {
    get_entries(fd, buffer, count, true)
}
