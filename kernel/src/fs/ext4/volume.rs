//! A volume on its disk: reads its metadata, and logs what is wrong with it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Crc32c, Error, Inode, Map, ROOT, Source, Volume, crc32c_by_table};
use hayate_machine::{cpu, warn};

use crate::fs::disk::{Claim, Disk};

/// `EXT4_SUPER_MAGIC`.
pub const MAGIC: u64 = 0xef53;

/// A number that stands for the volume, of its UUID.
pub fn identity(format: &Volume) -> u64 {
    format.uuid().iter().fold(0u64, |id, &byte| id.rotate_left(8) ^ u64::from(byte))
}

/// A volume and the disk that it lies on.
pub struct DiskVolume {
    /// The type name that it was mounted with: `ext2`, `ext3` or `ext4`.
    pub type_name: &'static str,
    pub disk: Arc<Disk>,
    pub format: Volume,
    _claim: Claim,
}

impl DiskVolume {
    /// Opens the volume on `disk`. `EINVAL` when there is none or it uses an unsupported feature,
    /// `EUCLEAN` when it is corrupt, `EBADMSG` for a wrong checksum; the log has the details.
    /// `EBUSY` when a program has the disk for itself.
    pub fn open(disk: Arc<Disk>, type_name: &'static str) -> Result<Self> {
        let claim = Claim::mount(&disk)?;
        // Content of files is read from the disk itself.
        disk.settle()?;
        let format = Volume::open(&Metadata(&disk), disk.size())
            .map_err(|error| complain(&disk, type_name, error))?;
        let volume = Self { type_name, disk, format, _claim: claim };
        // The root must be a directory before the volume is mounted.
        if !volume.inode(ROOT)?.is(0o040_000) {
            return Err(volume.complain(Error::Corrupt("the root directory")));
        }
        Ok(volume)
    }

    /// Reads inode `number`.
    pub fn inode(&self, number: u32) -> Result<Inode> {
        self.checked(self.format.inode(&Metadata(&self.disk), number))
    }

    /// Reads inode `number`, which may not be one: no error is logged.
    pub fn find_inode(&self, number: u32) -> hayate_ext4::Result<Inode> {
        self.format.inode(&Metadata(&self.disk), number)
    }

    /// Reads the map of an inode's blocks.
    pub fn map(&self, inode: &Inode) -> Result<Map> {
        self.checked(self.format.map(&Metadata(&self.disk), inode))
    }

    /// Reads the target of a symbolic link.
    pub fn link_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        self.checked(self.format.link_target(&Metadata(&self.disk), inode))
    }

    /// Reads the names of an inode's extended attributes, each ended by a zero byte.
    pub fn attributes(&self, inode: &Inode) -> Result<Vec<u8>> {
        self.checked(self.format.attributes(&Metadata(&self.disk), inode))
    }

    /// Reads the value of an extended attribute, if the inode has it.
    pub fn attribute(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if !inode.has_attributes() {
            return Ok(None);
        }
        self.checked(self.format.attribute(&Metadata(&self.disk), inode, name))
    }

    /// Fills `into` with the content that `map` leads to, from byte `offset` on.
    pub fn read(&self, map: &Map, offset: u64, into: &mut [u8]) -> Result<()> {
        self.checked(map.read(&self.format, &Metadata(&self.disk), offset, into))
    }

    /// Turns what is wrong with the volume into an error number, and logs it.
    pub fn checked<T>(&self, result: hayate_ext4::Result<T>) -> Result<T> {
        result.map_err(|error| self.complain(error))
    }

    /// Logs what is wrong with the volume, in more detail than the error number it returns.
    pub fn complain(&self, error: Error) -> Errno {
        complain(&self.disk, self.type_name, error)
    }
}

/// Logs what is wrong with a volume, and returns the error number.
pub fn complain(disk: &Disk, type_name: &str, error: Error) -> Errno {
    warn!("{type_name}: {}: {error}", disk.name());
    number(error)
}

/// Returns the error number of an error of the crate.
pub fn number(error: Error) -> Errno {
    match error {
        Error::Io => Errno::EIO,
        Error::NotExt4 | Error::Unsupported(_) => Errno::EINVAL,
        Error::Corrupt(_) => Errno::EUCLEAN,
        Error::Checksum(_) => Errno::EBADMSG,
        Error::Memory => Errno::ENOMEM,
        Error::NoSpace | Error::CommitFirst => Errno::ENOSPC,
        Error::Exists => Errno::EEXIST,
        Error::NotFound => Errno::ENOENT,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NotDirectory => Errno::ENOTDIR,
        Error::IsDirectory => Errno::EISDIR,
        Error::TooManyLinks => Errno::EMLINK,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::TooLarge => Errno::EFBIG,
        Error::Invalid => Errno::EINVAL,
        Error::ReadOnly => Errno::EROFS,
    }
}

/// The disk as a source of metadata, through its page cache.
struct Metadata<'a>(&'a Disk);

impl Source for Metadata<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) -> hayate_ext4::Result<()> {
        self.0.read(offset, into).map_err(|error| match error {
            Errno::ENOMEM => Error::Memory,
            _ => Error::Io,
        })
    }

    fn crc32c(&self) -> Crc32c {
        crc32c()
    }
}

/// The function that continues a CRC-32C: by the processor's instruction, if it has one.
pub fn crc32c() -> Crc32c {
    cpu::crc32c().unwrap_or(crc32c_by_table)
}
