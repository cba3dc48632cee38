//! Checks a path given as a root file system: its kind, its state, and whether it can be copied.

use super::key;
use anyhow::{Context, Result, bail};
use rustix::fs::{Access, access, statfs};
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The kind of a path given as `--rootfs`.
#[derive(Debug, PartialEq, Eq)]
pub enum RootKind {
    /// A folder.
    Folder,
    /// A tar archive, perhaps compressed.
    Tar,
    /// An ext4 image.
    Disk,
    /// A cpio archive.
    Initramfs,
}

/// File systems whose files the kernel generates when they are read: most have no size, some never
/// end, some have side effects when they are opened. The numbers are those of statfs(2) and Linux'
/// include/uapi/linux/magic.h.
const MADE_BY_THE_KERNEL: [(u64, &str); 14] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x6265_6570, "configfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x6573_5543, "fusectl"),
];

/// Determines the kind by content, not by name.
pub fn kind(path: &Path) -> Result<RootKind> {
    let found = path
        .metadata()
        .with_context(|| format!("cannot find the root file system {}", path.display()))?;
    if found.is_dir() {
        return Ok(RootKind::Folder);
    }
    let none = || {
        let shown = path.display();
        bail!(
            "{shown} is not a root file system: it is neither a folder, a tar archive, an ext4 image \
             nor a cpio archive"
        )
    };
    // Opening a pipe waits for its other end, and reading other devices may have any effect.
    if !found.is_file() && !found.file_type().is_block_device() {
        return none();
    }
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut start = Vec::new();
    (&mut file).take(512).read_to_end(&mut start)?;
    if start.starts_with(b"070701") {
        return Ok(RootKind::Initramfs);
    }
    // Compressed archives, which tar(1) recognises by itself.
    let compressed: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"];
    let tar = start.get(257..262) == Some(b"ustar");
    if tar || compressed.iter().any(|magic| start.starts_with(magic)) {
        return Ok(RootKind::Tar);
    }
    // The superblock of ext2, 3 and 4: the magic number at 56 in the block at 1024.
    let mut magic = [0; 2];
    file.seek(SeekFrom::Start(1024 + 56))?;
    if file.read_exact(&mut magic).is_ok() && magic == [0x53, 0xef] {
        return Ok(RootKind::Disk);
    }
    none()
}

/// Checks that an ext4 image contains its whole file system: a truncated copy would only be noticed
/// in the guest, which does not know the file.
pub fn whole(path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Fields of the superblock (Linux' Documentation/filesystems/ext4/super.rst): blocks, the size
    // of one, and whether their number has a second half.
    let mut block = [0; 1024];
    file.seek(SeekFrom::Start(1024))?;
    file.read_exact(&mut block).with_context(|| format!("cannot read {}", path.display()))?;
    let field = |at: usize| {
        u64::from(u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]))
    };
    let high = if field(0x60) & 0x80 != 0 { field(0x150) } else { 0 };
    let size = 1024_u64.checked_shl(field(0x18) as u32).unwrap_or(u64::MAX);
    let wanted = (high << 32 | field(4)).saturating_mul(size);
    // The end of a device is its length.
    let found = file.seek(SeekFrom::End(0))?;
    if found < wanted {
        bail!(
            "{} is cut short: the file has {} KiB, its file system {} KiB; copy it again",
            path.display(),
            found >> 10,
            wanted >> 10
        );
    }
    Ok(())
}

/// Returns a name for the state of a file.
pub fn file_key(path: &Path) -> Result<String> {
    let real = path.canonicalize()?;
    let found = real.metadata()?;
    let state = [found.len() as i64, found.mtime(), found.mtime_nsec(), found.ino() as i64];
    Ok(key([real.as_os_str().as_bytes(), &state.map(i64::to_le_bytes).concat()]))
}

/// Returns a name for the state of a whole folder: every path with its kind, size and times. A file
/// that cannot be copied into an image is reported here, before an image is begun.
pub fn folder_key(folder: &Path) -> Result<String> {
    let root = folder.canonicalize()?;
    let mut pending = vec![(root.clone(), None)];
    let mut parts = vec![root.as_os_str().as_bytes().to_vec()];
    while let Some((path, above)) = pending.pop() {
        let found = path
            .symlink_metadata()
            .with_context(|| format!("cannot examine {}", path.display()))?;
        copyable(&path, &found, above)?;
        let state = [
            i64::from(found.mode()),
            found.len() as i64,
            found.mtime(),
            found.mtime_nsec(),
            i64::from(found.uid()),
            i64::from(found.gid()),
            // Owners and permissions can change without the content.
            found.ctime(),
            found.ctime_nsec(),
        ];
        parts.push(path.as_os_str().as_bytes().to_vec());
        parts.push(state.map(i64::to_le_bytes).concat());
        if found.is_dir() {
            let entries =
                path.read_dir().with_context(|| format!("cannot read {}", path.display()))?;
            let mut entries = entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<std::io::Result<Vec<PathBuf>>>()?;
            entries.sort();
            pending.extend(entries.into_iter().map(|entry| (entry, Some(found.dev()))));
        }
    }
    Ok(key(parts.iter().map(Vec::as_slice)))
}

/// Checks that a file or folder can be copied; `above` is the file system of its parent folder.
fn copyable(path: &Path, found: &Metadata, above: Option<u64>) -> Result<()> {
    let shown = path.display();
    if found.is_dir() && above != Some(found.dev()) {
        let kind = statfs(path).with_context(|| format!("cannot examine {shown}"))?.f_type as u64;
        if let Some((_, name)) = MADE_BY_THE_KERNEL.iter().find(|(magic, _)| *magic == kind) {
            bail!(
                "cannot copy {shown}: it is on the file system {name}, whose files this machine's \
                 kernel makes when they are read"
            );
        }
    }
    if found.is_file() {
        access(path, Access::READ_OK).with_context(|| format!("cannot copy {shown}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut tar = vec![0; 1024];
        tar[257..262].copy_from_slice(b"ustar");
        std::fs::write(path("a"), &tar).unwrap();
        let mut disk = vec![0; 4096];
        disk[1080..1082].copy_from_slice(&[0x53, 0xef]);
        std::fs::write(path("b"), &disk).unwrap();
        std::fs::write(path("c"), "070701").unwrap();
        std::fs::write(path("d"), "text").unwrap();
        std::fs::write(path("e"), "").unwrap();
        assert_eq!(kind(folder.path()).unwrap(), RootKind::Folder);
        assert_eq!(kind(&path("a")).unwrap(), RootKind::Tar);
        assert_eq!(kind(&path("b")).unwrap(), RootKind::Disk);
        assert_eq!(kind(&path("c")).unwrap(), RootKind::Initramfs);
        assert!(kind(&path("d")).is_err());
        assert!(kind(&path("e")).is_err());
        assert!(kind(&path("none")).is_err());
    }

    #[test]
    fn devices_pipes_and_sockets_are_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for path in [path("pipe"), path("socket"), "/dev/zero".into(), "/dev/null".into()] {
            let told = kind(&path).unwrap_err().to_string();
            assert!(told.contains(" is not a root file system: "), "{told}");
        }
    }

    #[test]
    fn an_image_that_is_cut_short_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut image = vec![0; 64 << 10];
        image[1080..1082].copy_from_slice(&[0x53, 0xef]);
        image[1024 + 4] = 16;
        image[1024 + 0x18] = 2;
        std::fs::write(file.path(), &image).unwrap();
        assert!(whole(file.path()).is_ok());
        std::fs::write(file.path(), &image[..60 << 10]).unwrap();
        let told = whole(file.path()).unwrap_err().to_string();
        assert!(
            told.ends_with("cut short: the file has 60 KiB, its file system 64 KiB; copy it again"),
            "{told}"
        );
        // An impossible size.
        image[1024 + 0x18] = 255;
        std::fs::write(file.path(), &image).unwrap();
        assert!(whole(file.path()).is_err());
    }

    #[test]
    fn a_changed_folder_has_another_key() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "1").unwrap();
        let before = folder_key(folder.path()).unwrap();
        assert_eq!(before, folder_key(folder.path()).unwrap());
        std::fs::write(folder.path().join("a"), "22").unwrap();
        assert_ne!(before, folder_key(folder.path()).unwrap());
    }

    #[test]
    fn what_the_kernel_makes_is_not_copied() {
        let told = folder_key(Path::new("/proc")).unwrap_err().to_string();
        assert!(told.starts_with("cannot copy /proc: it is on the file system proc"), "{told}");
        // Also below another folder's name.
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc/self", folder.path().join("link")).unwrap();
        assert!(folder_key(folder.path()).is_ok(), "a symbolic link is copied as one");
        assert!(folder_key(&folder.path().join("link")).is_err());
    }
}
