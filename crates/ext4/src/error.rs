//! Errors of reading.

use alloc::vec::Vec;
use core::fmt;

/// The result of reading.
pub type Result<T> = core::result::Result<T, Error>;

/// Why reading failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The source could not read the bytes.
    Io,
    /// The first 2 KiB hold no ext4 superblock.
    NotExt4,
    /// The volume uses an unsupported feature; the text names it.
    Unsupported(&'static str),
    /// The volume contradicts itself; the text says where.
    Corrupt(&'static str),
    /// A structure does not match its checksum; the text says which.
    Checksum(&'static str),
    /// Memory for the result is exhausted.
    Memory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io => write!(f, "the device could not be read"),
            Self::NotExt4 => write!(f, "there is no ext4 superblock"),
            Self::Unsupported(what) => write!(f, "{what}: not supported"),
            Self::Corrupt(what) => write!(f, "{what} is corrupt; run e2fsck on the image"),
            Self::Checksum(what) => {
                write!(f, "{what} does not match its checksum; run e2fsck on the image")
            }
            Self::Memory => write!(f, "out of memory"),
        }
    }
}

impl core::error::Error for Error {}

/// Returns `size` bytes of zero on the heap: a kernel's stack has no space for a block.
pub(crate) fn buffer(size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Error::Memory)?;
    bytes.resize(size, 0);
    Ok(bytes)
}
