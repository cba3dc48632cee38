//! Extended attributes (`xattr(7)`): decoded here, answered by the file system, most of which
//! have none.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::user;

use super::metadata::place_of;
use super::{open_file, string};
use crate::credentials::access;
use crate::file::directory::check_writable;
use crate::file::mount::Location;
use crate::file::off2f;
use crate::file::path::permitted;

/// The longest name with its zero (`XATTR_NAME_MAX` + 1).
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
    bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(size, 0);
    user::copy_in(&mut bytes, value)?;
    change(place, &name, Some(&bytes), flags)
}

fn change(place: &Location, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
    check_writable(place)?;
    let inode = place.inode()?;
    if name.starts_with(b"user.") {
        permitted(&super::credentials(), &inode.attributes(), access::WRITE)?;
    }
    inode.set_xattr(name, value, flags)
}

/// Gives a value or list to the program: its length only if there is no room asked for.
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
    // What it shows is a part of the content.
    if name == off2f::ATTRIBUTE {
        permitted(&super::credentials(), &inode.attributes(), access::READ)?;
    }
    answer(&inode.get_xattr(&name)?, value, size)
}

fn list(place: &Location, buffer: usize, size: usize) -> Result<usize> {
    answer(&place.inode()?.list_xattr()?, buffer, size)
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
