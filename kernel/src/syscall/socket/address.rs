//! Addresses in the memory of programs.

use hayate_abi::{Errno, Result};
use hayate_machine::user;
use hayate_machine::user::UserPtr;

use crate::vfs::socket::{ADDRESS_LENGTH, AddressBytes};

/// Reads an address: EINVAL if it is longer than those of every family.
pub(super) fn read(at: usize, length: u32) -> Result<AddressBytes> {
    let mut bytes = AddressBytes::from([0; ADDRESS_LENGTH]);
    if length as usize > bytes.len() {
        return Err(Errno::EINVAL);
    }
    bytes.truncate(length as usize);
    user::copy_in(&mut bytes, at)?;
    Ok(bytes)
}

/// Writes an address and its full length, cut to the size of the program's buffer. Does nothing
/// without a buffer.
pub(super) fn write(bytes: &[u8], at: usize, length: usize) -> Result<()> {
    if at == 0 {
        return Ok(());
    }
    let room = UserPtr::<i32>::new(length).read()?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    user::copy_out(at, &bytes[..bytes.len().min(room)])?;
    UserPtr::<i32>::new(length).write(&(bytes.len() as i32))
}

/// Like [`write()`]; EFAULT without a buffer.
pub(super) fn write_required(bytes: &[u8], at: usize, length: usize) -> Result<()> {
    if at == 0 { Err(Errno::EFAULT) } else { write(bytes, at, length) }
}
