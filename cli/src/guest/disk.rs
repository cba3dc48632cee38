//! Disks of the user (`--disk FILE[:PATH][:ro]`): files of the host that keep what the guest
//! writes. With a path the guest mounts the ext4 file system of the disk there.
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
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Component, Path, PathBuf};

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
    /// Where the guest mounts its file system, if it does.
    pub path: Option<Vec<u8>>,
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
        if let Some(path) = &disk.path {
            let text = check_path(path).err().map(String::from);
            let twice = disks.iter().any(|other| other.path.as_ref() == Some(path));
            let twice = twice.then(|| "two disks cannot both be mounted there".to_string());
            if let Some(text) = text.or(twice) {
                let path = String::from_utf8_lossy(path);
                return Err(Failure::error(USAGE, format!("--disk {shown}:{path}: {text}")));
            }
        }
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

/// Takes the words of an option apart. A path begins with the last colon that a slash follows.
fn parse(option: &OsStr, others: &[UserDisk]) -> UserDisk {
    let bytes = option.as_bytes();
    let (bytes, read_only) = match bytes.strip_suffix(b":ro") {
        Some(rest) if !rest.is_empty() => (rest, true),
        _ => (bytes, false),
    };
    let at = bytes.windows(2).rposition(|pair| pair == b":/").filter(|&at| at > 0);
    let (file, path) = match at {
        Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
        None => (bytes, None),
    };
    let file = PathBuf::from(OsStr::from_bytes(file));
    let serial = serial(&file, others);
    UserDisk { file, path, read_only, serial }
}

/// Checks where a disk is to be mounted.
fn check_path(path: &[u8]) -> Result<(), &'static str> {
    let mut parts = Path::new(OsStr::from_bytes(path)).components();
    if parts.clone().any(|part| part == Component::ParentDir) {
        return Err("the path in the guest has a .. in it");
    }
    if !parts.any(|part| matches!(part, Component::Normal(_))) {
        return Err("name a path below /; --rootfs gives another root");
    }
    Ok(())
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

/// Returns the text behind the last colon of `named`, if the text before it names a file: the user
/// forgot the slash of the path in the guest.
fn relative_path(named: &Path) -> Option<String> {
    let bytes = named.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|&byte| byte == b':')?;
    let is_file = Path::new(OsStr::from_bytes(&bytes[..at])).exists();
    is_file.then(|| String::from_utf8_lossy(&bytes[at + 1..]).into_owned())
}

/// Checks that QEMU can use the file.
fn check(disk: &UserDisk) -> Result<()> {
    let file = File::options().read(true).write(!disk.read_only).open(&disk.file);
    let mut file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(path) = relative_path(&disk.file) {
                bail!("the path in the guest begins with a slash: FILE:/{path}");
            }
            bail!("there is no such file; make a disk with: ./hayate disk make FILE --size 1G");
        }
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() && !found.file_type().is_block_device() {
        bail!("is neither a file nor a block device");
    }
    let size = file.seek(SeekFrom::End(0))?;
    if size == 0 {
        bail!("is empty; make a disk with: ./hayate disk make FILE --size 1G --force");
    }
    if !size.is_multiple_of(SECTOR) {
        bail!("has {size} bytes, which are not whole sectors of {SECTOR}");
    }
    // As in the superblock of ext2 and those that came after it.
    let mut magic = [0; 2];
    if disk.path.is_some()
        && (file.read_exact_at(&mut magic, 1024 + 56).is_err() || magic != [0x53, 0xef])
    {
        bail!("has no ext4 file system to mount; ./hayate disk make FILE --size 1G makes one");
    }
    if is_locked(&file, disk.read_only) {
        let use_of = if disk.read_only { "writes to it" } else { "uses it" };
        bail!("another machine {use_of}");
    }
    Ok(())
}

/// Opens a disk for a change or, if `read_only`, a look by this command. As long as the file is
/// open, and this process opens it nowhere else, no machine starts with it.
pub fn claim(file: &Path, read_only: bool) -> Result<File> {
    let claimed = File::options().read(true).write(!read_only).open(file)?;
    let found = claimed.metadata()?;
    if !found.is_file() && !found.file_type().is_block_device() {
        bail!("is neither a file nor a block device");
    }
    let operation = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let refused = match fcntl_lock(&claimed, operation) {
        Err(Errno::AGAIN | Errno::ACCESS) => true,
        // Others than these: the file system has no locks.
        _ => is_locked(&claimed, read_only),
    };
    if refused {
        bail!("a machine uses it, or another command; end that first");
    }
    Ok(claimed)
}

/// Whether another process has locks with which a QEMU could not use the disk.
fn is_locked(file: &File, read_only: bool) -> bool {
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
    fcntl_getlk(file, &wanted).ok().flatten().is_some()
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
    fn paths() {
        let of = |option| {
            let disk = parsed(option);
            (disk.file, disk.path, disk.read_only, disk.serial)
        };
        let expected = ("a:b.img".into(), Some(b"/c:d".to_vec()), true, "a_b".to_string());
        assert_eq!(of("a:b.img:/c:d:ro"), expected);
        let expected = ("/a.img".into(), Some(b"/c".to_vec()), false, "a".to_string());
        assert_eq!(of("/a.img:/c"), expected);
        for wrong in ["x:/", "x:/a/../b"] {
            assert!(check_path(&parsed(wrong).path.unwrap()).is_err(), "{wrong}");
        }
        assert!(check_path(b"/a/b").is_ok());
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
        let mut mounted = path.clone().into_os_string();
        mounted.push(":/data");
        let said = format!("{:#}", given(&[mounted]).unwrap_err());
        assert!(said.contains("no ext4 file system"), "{said}");
        let mut relative = path.clone().into_os_string();
        relative.push(":data");
        let said = format!("{:#}", given(&[relative]).unwrap_err());
        assert!(said.contains("FILE:/data"), "{said}");
        let twice = given(&[path.clone().into(), path.into()]).unwrap_err();
        assert!(twice.to_string().contains("has a disk once"));
    }
}
