//! Extended attributes (`xattr(7)`): decoded here, implemented by the file systems, most of which
//! have none.
//!
//! Each name begins with a namespace, and each namespace has rules of its own about its readers and
//! writers ([`permission`], [`check_security`]). The rules apply to requests of programs, whatever
//! the file system. A file system that uses attributes itself, as the overlay does, asks the one
//! below it without these rules.

use alloc::vec::Vec;

use hayate_abi::capability::FileCapabilities;
use hayate_abi::{Errno, Result};
use hayate_machine::user;

use super::metadata::place_of;
use super::{open_file, string};
use crate::credentials::{Capability, access};
use crate::in_place::view;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::directory::check_writable;
use crate::vfs::inode::{Attributes, FileKind, Inode};
use crate::vfs::mount::Location;
use crate::vfs::notify;
use crate::vfs::path::permitted;
use crate::vfs::set_id::CAPABILITIES;
use crate::vfs::watch::Mask;

const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
const SYSTEM: &[u8] = b"system.";
const USER: &[u8] = b"user.";
const S_ISVTX: u16 = 0o1000;

/// The longest name with its NUL (`XATTR_NAME_MAX` + 1).
const NAME_MAX: usize = 256;
/// The largest value (`XATTR_SIZE_MAX`).
const SIZE_MAX: usize = 65536;

fn name(address: usize) -> Result<Vec<u8>> {
    let name = string(address, NAME_MAX).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::ERANGE,
        other => other,
    })?;
    if name.is_empty() { Err(Errno::ERANGE) } else { Ok(name) }
}

fn set(place: &Location, name_address: usize, value: usize, size: usize, flags: u32) -> Result<()> {
    const CREATE_OR_REPLACE: u32 = 3;
    if flags & !CREATE_OR_REPLACE != 0 {
        return Err(Errno::EINVAL);
    }
    let name = name(name_address)?;
    if size > SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let mut bytes = Vec::new();
    bytes.make_room_exact(size)?;
    bytes.resize(size, 0);
    user::copy_in(&mut bytes, value)?;
    change(place, &name, Some(&bytes), flags)
}

fn change(place: &Location, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
    check_writable(place)?;
    let inode = place.inode()?;
    let is_capabilities = name == CAPABILITIES;
    if let Some(value) = value.filter(|_| is_capabilities) {
        check_capabilities(value)?;
    }
    permission(&*inode, name, true)?;
    check_security(&*inode, name)?;
    let kept = match value {
        Some(value) if is_capabilities => kept_capabilities(value)?,
        _ => None,
    };
    inode.set_xattr(name, kept.as_ref().map(|kept| &kept[..]).or(value), flags)?;
    notify::place(place, Mask::ATTRIB);
    Ok(())
}

/// Whether the namespace of an attribute allows the caller to read or write it (`xattr_permission`,
/// fs/xattr.c of Linux 6.1). Names in no namespace are left to the file system, which refuses them.
fn permission(inode: &dyn Inode, name: &[u8], write: bool) -> Result<()> {
    let credentials = super::credentials();
    // A reader must not learn that a hidden attribute exists.
    let refused = if write { Errno::EPERM } else { Errno::ENODATA };
    if name.starts_with(SECURITY) || name.starts_with(SYSTEM) {
        return Ok(());
    }
    if name.starts_with(TRUSTED) {
        return if credentials.has(Capability::SysAdmin) { Ok(()) } else { Err(refused) };
    }
    let attributes = inode.attributes();
    if name.starts_with(USER) {
        let directory = attributes.kind == FileKind::Directory;
        if attributes.kind != FileKind::Regular && !directory {
            return Err(refused);
        }
        let sticky = directory && attributes.mode & S_ISVTX != 0;
        if sticky && write && !credentials.owns(attributes.uid) {
            return Err(Errno::EPERM);
        }
    }
    permitted(&credentials, &attributes, if write { access::WRITE } else { access::READ })
}

/// Checks the right to change attributes of `security.` (`cap_inode_setxattr` and
/// `cap_inode_removexattr`, security/commoncap.c).
fn check_security(inode: &dyn Inode, name: &[u8]) -> Result<()> {
    let credentials = super::credentials();
    if name == CAPABILITIES {
        // Also for an empty value, which Linux lets every user set, and so take away the
        // capabilities of any file.
        let Attributes { uid, gid, .. } = inode.attributes();
        let may = credentials.has_over(uid, gid, Capability::Setfcap);
        return if may { Ok(()) } else { Err(Errno::EPERM) };
    }
    if name.starts_with(SECURITY) { credentials.require(Capability::SysAdmin) } else { Ok(()) }
}

/// Checks the form of file capabilities (`cap_convert_nscap`, security/commoncap.c): `EINVAL`.
fn check_capabilities(value: &[u8]) -> Result<()> {
    const REVISION: u32 = 0xff00_0000;
    let Some(first) = value.first_chunk() else {
        return if value.is_empty() { Ok(()) } else { Err(Errno::EINVAL) };
    };
    match (u32::from_le_bytes(*first) & REVISION, value.len()) {
        (0x0200_0000, 20) | (0x0300_0000, 24) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// The value that is kept of file capabilities which a caller gives from inside a user namespace:
/// they count there alone, for the root that it names or its own (`cap_convert_nscap`). `None`: the
/// value as it is. `EINVAL` if that root has no number.
fn kept_capabilities(value: &[u8]) -> Result<Option<[u8; 24]>> {
    let credentials = super::credentials();
    let Some(given) = FileCapabilities::read(value).filter(|_| !credentials.is_outermost()) else {
        return Ok(None);
    };
    let root = credentials.user.user(given.root).ok_or(Errno::EINVAL)?;
    Ok(Some(given.value_for(root)))
}

/// The value of file capabilities as a caller inside a user namespace sees it
/// (`cap_inode_getsecurity`). `EOVERFLOW` if they are those of a root that it does not know.
fn shown_capabilities(kept: Vec<u8>) -> Result<Vec<u8>> {
    let credentials = super::credentials();
    let Some(found) = FileCapabilities::read(&kept).filter(|_| !credentials.is_outermost()) else {
        return Ok(kept);
    };
    match credentials.user.user_number(found.root) {
        Some(root) if root != 0 => growth::copy(&found.value_for(root)),
        _ if credentials.has_root_around(found.root) => growth::copy(&found.value()),
        _ => Err(Errno::EOVERFLOW),
    }
}

/// Returns a value or list to the program; only its length if the buffer has size zero.
fn answer(bytes: &[u8], buffer: usize, size: usize) -> Result<usize> {
    if size == 0 {
        return Ok(bytes.len());
    }
    if bytes.len() > size {
        return Err(Errno::ERANGE);
    }
    user::copy_out(buffer, bytes)?;
    Ok(bytes.len())
}

fn get(place: &Location, name_address: usize, value: usize, size: usize) -> Result<usize> {
    let name = name(name_address)?;
    let inode = place.inode()?;
    // The attribute shows a part of the content.
    if name == view::ATTRIBUTE {
        permitted(&super::credentials(), &inode.attributes(), access::READ)?;
    }
    permission(&*inode, &name, false)?;
    let mut found = inode.get_xattr(&name)?;
    if name == CAPABILITIES {
        found = shown_capabilities(found)?;
    }
    answer(&found, value, size)
}

/// Lists the names, without those that the caller could not read (`simple_xattr_list`, fs/xattr.c).
fn list(place: &Location, buffer: usize, size: usize) -> Result<usize> {
    let mut all = place.inode()?.list_xattr()?;
    if !super::credentials().has(Capability::SysAdmin) {
        let mut kept = 0;
        let mut at = 0;
        while let Some(name) =
            all.get(at..).and_then(|rest| rest.split_inclusive(|&b| b == 0).next())
        {
            let length = name.len();
            if !name.starts_with(TRUSTED) {
                all.copy_within(at..at + length, kept);
                kept += length;
            }
            at += length;
        }
        all.truncate(kept);
    }
    answer(&all, buffer, size)
}

/// `setxattr(2)`
pub fn setxattr(path: usize, name: usize, value: usize, size: usize, flags: u32) -> Result<()> {
    set(&place_of(path, true)?, name, value, size, flags)
}

/// `lsetxattr(2)`
pub fn lsetxattr(path: usize, name: usize, value: usize, size: usize, flags: u32) -> Result<()> {
    set(&place_of(path, false)?, name, value, size, flags)
}

/// `fsetxattr(2)`
pub fn fsetxattr(fd: i32, name: usize, value: usize, size: usize, flags: u32) -> Result<()> {
    set(open_file(fd)?.location(), name, value, size, flags)
}

/// `getxattr(2)`
pub fn getxattr(path: usize, name: usize, value: usize, size: usize) -> Result<usize> {
    get(&place_of(path, true)?, name, value, size)
}

/// `lgetxattr(2)`
pub fn lgetxattr(path: usize, name: usize, value: usize, size: usize) -> Result<usize> {
    get(&place_of(path, false)?, name, value, size)
}

/// `fgetxattr(2)`
pub fn fgetxattr(fd: i32, name: usize, value: usize, size: usize) -> Result<usize> {
    get(open_file(fd)?.location(), name, value, size)
}

/// `listxattr(2)`
pub fn listxattr(path: usize, buffer: usize, size: usize) -> Result<usize> {
    list(&place_of(path, true)?, buffer, size)
}

/// `llistxattr(2)`
pub fn llistxattr(path: usize, buffer: usize, size: usize) -> Result<usize> {
    list(&place_of(path, false)?, buffer, size)
}

/// `flistxattr(2)`
pub fn flistxattr(fd: i32, buffer: usize, size: usize) -> Result<usize> {
    list(open_file(fd)?.location(), buffer, size)
}

/// `removexattr(2)`
pub fn removexattr(path: usize, name_address: usize) -> Result<()> {
    change(&place_of(path, true)?, &name(name_address)?, None, 0)
}

/// `lremovexattr(2)`
pub fn lremovexattr(path: usize, name_address: usize) -> Result<()> {
    change(&place_of(path, false)?, &name(name_address)?, None, 0)
}

/// `fremovexattr(2)`
pub fn fremovexattr(fd: i32, name_address: usize) -> Result<()> {
    change(open_file(fd)?.location(), &name(name_address)?, None, 0)
}
