//! Errors of reading and writing.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// The result of reading or writing.
pub type Result<T> = core::result::Result<T, Error>;

/// Why reading or writing failed.
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
    /// The volume has no block or inode left for it.
    NoSpace,
    /// The name or attribute exists already.
    Exists,
    /// There is no such name or attribute.
    NotFound,
    /// A directory is not empty.
    NotEmpty,
    /// It is not a directory.
    NotDirectory,
    /// It is a directory.
    IsDirectory,
    /// An inode cannot have more names.
    TooManyLinks,
    /// A name is longer than 255 bytes, or a link's target than a block.
    NameTooLong,
    /// A file or a value cannot be so large.
    TooLarge,
    /// An argument that no caller may give: an empty name, a name with `/`, a wrong type.
    Invalid,
    /// The running transaction must be committed before this operation can be done.
    CommitFirst,
    /// The volume takes no changes, because of an earlier error.
    ReadOnly,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io => write!(f, "the device could not be read or written"),
            Self::NotExt4 => write!(f, "there is no ext4 superblock"),
            Self::Unsupported(what) => write!(f, "{what}: not supported"),
            Self::Corrupt(what) => write!(f, "{what} is corrupt; run e2fsck on the image"),
            Self::Checksum(what) => {
                write!(f, "{what} does not match its checksum; run e2fsck on the image")
            }
            Self::Memory => write!(f, "out of memory"),
            Self::NoSpace => write!(f, "the volume is full"),
            Self::Exists => write!(f, "it exists already"),
            Self::NotFound => write!(f, "there is no such name"),
            Self::NotEmpty => write!(f, "the directory is not empty"),
            Self::NotDirectory => write!(f, "it is not a directory"),
            Self::IsDirectory => write!(f, "it is a directory"),
            Self::TooManyLinks => write!(f, "it has too many names"),
            Self::NameTooLong => write!(f, "the name is too long"),
            Self::TooLarge => write!(f, "it would become too large"),
            Self::Invalid => write!(f, "the request is invalid"),
            Self::CommitFirst => write!(f, "the running transaction must be committed first"),
            Self::ReadOnly => write!(f, "the volume takes no changes after an error"),
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

/// The bytes as their own list, which may be refused memory.
pub(crate) fn owned(bytes: Cow<'_, [u8]>) -> Result<Vec<u8>> {
    match bytes {
        Cow::Owned(bytes) => Ok(bytes),
        Cow::Borrowed(bytes) => {
            let mut copy = buffer(bytes.len())?;
            copy.copy_from_slice(bytes);
            Ok(copy)
        }
    }
}
