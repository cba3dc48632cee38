//! Disks of the user (`--disk FILE[:ro]`): files of the host that keep what the guest writes.
//!
//! QEMU locks the file of a disk for as long as the machine lives: a disk that is written has one
//! machine, one that is only read any number. The locks are looked at before anything starts, so
//! that the user gets one line; QEMU takes them for good.
//!
//! A write that the host cannot do (its file system is full, its medium fails) fails in the guest
//! with EIO. QEMU's usual answer to a full file system, to stop the machine, would look like a
//! program that hangs.

use crate::failure::{Failure, USAGE};
use anyhow::{Context, Result, bail};
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// The most bytes of a serial number (virtio 1.2, 5.2.6).
const SERIAL: usize = 20;

/// The bytes that QEMU locks in a disk's file (block/file-posix.c, `RAW_LOCK_PERM_BASE` and
/// `RAW_LOCK_SHARED_BASE`): one for each permission that a user has, and that it leaves to others.
const LOCKED: (u64, u64) = (100, 200);
/// The byte of the permission to write (`BLK_PERM_WRITE`).
const WRITER: u64 = LOCKED.0 + 1;

/// A disk of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDisk {
    /// The file.
    pub file: PathBuf,
    /// Whether the guest can only read it.
    pub read_only: bool,
    /// Its serial number, which names it in the guest.
    pub serial: String,
}

/// Returns the disks that the user gives, each checked.
pub fn given(options: &[OsString]) -> Result<Vec<UserDisk>> {
    let mut disks: Vec<UserDisk> = Vec::new();
    for option in options {
        let mut disk = parse(option, &disks);
        let shown = disk.file.display().to_string();
        if disks.iter().any(|other| same(&other.file, &disk.file)) {
            let text = format!("--disk {shown}: one machine has a disk once");
            return Err(Failure::error(USAGE, text));
        }
        check(&disk).with_context(|| format!("--disk {shown}"))?;
        // QEMU takes what is before a colon for a protocol, but not in a path from the root on.
        disk.file = disk.file.canonicalize()?;
        disks.push(disk);
    }
    Ok(disks)
}

fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    real(one) == real(other)
}

/// Takes the words of an option apart.
fn parse(option: &OsStr, others: &[UserDisk]) -> UserDisk {
    let bytes = option.as_bytes();
    let (file, read_only) = match bytes.strip_suffix(b":ro") {
        Some(file) if !file.is_empty() => (file, true),
        _ => (bytes, false),
    };
    let file = PathBuf::from(OsStr::from_bytes(file));
    let serial = serial(&file, others);
    UserDisk { file, read_only, serial }
}

/// The name of a disk: that of its file without the extension, of characters that a name in `/dev`
/// has, and with a number if another disk has the same.
fn serial(file: &Path, others: &[UserDisk]) -> String {
    let stem = file.file_stem().unwrap_or_default().as_bytes();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    let plain = stem.iter().map(|&byte| if is_plain(byte) { char::from(byte) } else { '_' });
    let name: String = plain.take(SERIAL).collect();
    let name = if name.is_empty() { "disk".to_string() } else { name };
    let is_free = |name: &str| others.iter().all(|other| other.serial != name);
    let numbered = (2..).map(|number| {
        let number = format!("-{number}");
        format!("{}{number}", &name[..name.len().min(SERIAL - number.len())])
    });
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| is_free(name)).unwrap_or(name)
}

/// Checks that QEMU can use the file.
fn check(disk: &UserDisk) -> Result<()> {
    let file = File::options().read(true).write(!disk.read_only).open(&disk.file);
    let mut file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no such file; make an empty disk with: truncate -s 1G FILE");
        }
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() && !found.file_type().is_block_device() {
        bail!("is neither a file nor a block device");
    }
    let size = file.seek(SeekFrom::End(0))?;
    if size == 0 {
        bail!("is empty; give it a size with: truncate -s 1G FILE");
    }
    if !size.is_multiple_of(SECTOR) {
        bail!("has {size} bytes, which are not whole sectors of {SECTOR}");
    }
    if is_locked(&file, disk.read_only)? {
        let use_of = if disk.read_only { "writes to it" } else { "uses it" };
        bail!("another machine {use_of}");
    }
    Ok(())
}

/// Whether another QEMU has locks with which this one could not use the disk.
fn is_locked(file: &File, read_only: bool) -> Result<bool> {
    let (start, length) =
        if read_only { (WRITER, 1) } else { (LOCKED.0, LOCKED.1 - LOCKED.0 + 64) };
    let wanted = Flock {
        start,
        length,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    // A file system without locks has none, and QEMU goes without.
    Ok(fcntl_getlk(file, &wanted).ok().flatten().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(option: &str) -> UserDisk {
        parse(OsStr::new(option), &[])
    }

    #[test]
    fn words() {
        let disk = parsed("/var/a b.img:ro");
        assert_eq!(disk.file, Path::new("/var/a b.img"));
        assert!(disk.read_only);
        assert_eq!(disk.serial, "a_b");
        let disk = parsed("x:y.raw");
        assert_eq!((disk.file.as_path(), disk.read_only), (Path::new("x:y.raw"), false));
        assert_eq!(disk.serial, "x_y");
        assert_eq!(parsed(":ro").file, Path::new(":ro"));
    }

    #[test]
    fn names_differ() {
        let long = "a-name-that-is-longer-than-a-serial.img";
        let mut disks = vec![parsed(long)];
        assert_eq!(disks[0].serial, "a-name-that-is-longe");
        for serial in ["a-name-that-is-lon-2", "a-name-that-is-lon-3"] {
            disks.push(parse(OsStr::new(&format!("/other/{long}")), &disks));
            assert_eq!(disks.last().unwrap().serial, serial);
        }
    }

    #[test]
    fn files_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let said = |path: &Path| format!("{:#}", given(&[path.into()]).unwrap_err());
        assert!(said(&path).contains("there is no such file"));
        assert!(said(folder.path()).contains("irectory"));
        let file = File::create(&path).unwrap();
        assert!(said(&path).contains("is empty"));
        file.set_len(1000).unwrap();
        assert!(said(&path).contains("1000 bytes"));
        file.set_len(1024).unwrap();
        assert_eq!(given(&[path.clone().into()]).unwrap().len(), 1);
        let twice = given(&[path.clone().into(), path.into()]).unwrap_err();
        assert!(twice.to_string().contains("has a disk once"));
    }
}
