//! The root file system, and the file systems that a Linux program expects in it.
//!
//! With a disk: the disk read-only at `/lower`, a writable layer at `/rw`, in memory or on a disk
//! that keeps it (`--persist`), their union at `/newroot`, which then becomes `/`. No write of the
//! guest reaches the root's own disk. Without a disk the initramfs remains the root.

use crate::Failure;
use hayate_job::{Disk, Job, Root, Volume};
use rustix::fs::{Mode, mkdir, symlink};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};
use std::ffi::{CString, OsStr};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mounts `/dev` and `/sys`, which give access to the ports and the disk before the root is
/// mounted. A failure shows later, as a port or a disk that is not there.
pub fn early() {
    folder("/dev", 0o755);
    folder("/sys", 0o755);
    let _ = attach("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID, "mode=0755");
    let _ = attach("sysfs", "/sys", "sysfs", SAFE, "");
}

/// Makes the root of the job `/`, with `/proc`, `/dev`, `/tmp` and similar mounts in it, and the
/// control groups at `/sys/fs/cgroup`.
pub fn root(job: &Job) -> Result<(), Failure> {
    // Opened while its path is still reachable.
    let own = ["bin", "lib"].map(|name| (name, std::fs::File::open(format!("/hayate/{name}"))));
    if let Root::Disk { device, kind, options } = &job.root {
        folder("/newroot", 0o755);
        layered(&Lower { device, kind, options }, job.persist.as_deref(), "", "/newroot")?;
        need(rustix::process::chdir("/newroot"), "cannot enter /newroot")?;
        need(mount_move("/newroot", "/"), "cannot move the new root to /")?;
        need(rustix::process::chroot("."), "cannot make the new root the root directory")?;
        need(rustix::process::chdir("/"), "cannot enter /")?;
        folder("/dev", 0o755);
        need(
            attach("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID, "mode=0755"),
            "cannot mount devices on /dev",
        )?;
        folder("/sys", 0o755);
        let _ = attach("sysfs", "/sys", "sysfs", SAFE, "");
    }
    // As systemd mounts it; programs that run containers expect it there.
    let _ = attach("cgroup2", "/sys/fs/cgroup", "cgroup2", SAFE, "nsdelegate,memory_recursiveprot");
    folder("/proc", 0o755);
    need(attach("proc", "/proc", "proc", SAFE, ""), "cannot mount /proc")?;
    folder("/dev/pts", 0o755);
    folder("/dev/shm", 0o1777);
    let pts = "gid=5,mode=0620,ptmxmode=0666";
    need(attach("devpts", "/dev/pts", "devpts", NOEXEC, pts), "cannot mount /dev/pts")?;
    folder("/dev/mqueue", 0o1777);
    need(attach("mqueue", "/dev/mqueue", "mqueue", SAFE, ""), "cannot mount /dev/mqueue")?;
    let private = MountFlags::NOSUID | MountFlags::NODEV;
    for (path, mode, flags) in [
        ("/dev/shm", "mode=1777", private),
        // As on a plain Debian: programs create set-user-ID files and devices below /tmp.
        ("/tmp", "mode=1777", MountFlags::empty()),
        ("/run", "mode=0755", private),
    ] {
        folder(path, 0o755);
        need(attach("tmpfs", path, "tmpfs", flags, mode), &format!("cannot mount {path}"))?;
    }
    folder("/run/lock", 0o1777);
    for (name, folder) in own {
        if let Ok(folder) = folder {
            show_own(name, &folder);
        }
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        // The kernel may have created it already.
        let _ = symlink(target, link);
    }
    for (index, mount) in job.mounts.iter().enumerate() {
        let path = String::from_utf8_lossy(&mount.path);
        let made = std::fs::create_dir_all(&*path);
        made.map_err(|error| Failure::new(format!("cannot make the mount point {path}: {error}")))?;
        let base = format!("/run/hayate/{index}");
        let made = std::fs::create_dir_all(&base);
        made.map_err(|error| Failure::new(format!("cannot make {base}: {error}")))?;
        let lower = Lower { device: &mount.device, kind: &mount.kind, options: "" };
        layered(&lower, None, &base, &path)?;
    }
    Ok(())
}

/// Mounts the user's disks. Their mount points are made if they are missing.
pub fn disks(disks: &[Disk]) -> Result<(), Failure> {
    for Disk { device, read_only, path } in disks {
        let (path, shown) = mount_point(path)?;
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, *read_only);
        let hint = if *read_only { "" } else { " for reading and writing" };
        need(
            mount(&**device, path, "ext4", flags, None),
            &format!("cannot mount the disk {device} on {shown}{hint}"),
        )?;
    }
    Ok(())
}

/// Makes a mount point if it is missing, as Docker does; returns it, and how it is shown.
fn mount_point(path: &[u8]) -> Result<(&Path, std::path::Display<'_>), Failure> {
    let path = Path::new(OsStr::from_bytes(path));
    let shown = path.display();
    let made = std::fs::create_dir_all(path);
    made.map_err(|error| Failure::new(format!("cannot make the mount point {shown}: {error}")))?;
    Ok((path, shown))
}

/// Mounts the folders that the host shares. Devices in them are the host's business.
pub fn volumes(volumes: &[Volume]) -> Result<(), Failure> {
    for Volume { tag, read_only, path } in volumes {
        let (path, shown) = mount_point(path)?;
        let mut flags = MountFlags::NODEV;
        flags.set(MountFlags::RDONLY, *read_only);
        let options = c"trans=virtio,version=9p2000.L,cache=none";
        need(
            mount(tag, path, "9p", flags, Some(options)),
            &format!("cannot mount the shared folder on {shown}"),
        )?;
    }
    Ok(())
}

/// Mounts a folder of Hayate's own below `/run/hayate`, and its programs (`bin`) in
/// `/usr/local/bin`, except where a file has the same name. It is in the initramfs, which is hidden
/// otherwise. If mounting is impossible in a root, it is missing there.
fn show_own(name: &str, folder: &std::fs::File) {
    let place = format!("/run/hayate/{name}");
    if std::fs::create_dir_all(&place).is_err() {
        return;
    }
    let source = format!("/proc/self/fd/{}", folder.as_raw_fd());
    if rustix::mount::mount_bind(&source, &place).is_err() || name != "bin" {
        return;
    }
    let _ = std::fs::create_dir_all(hayate_job::PROGRAMS);
    for program in std::fs::read_dir(&place).into_iter().flatten().flatten() {
        let _ = symlink(program.path(), Path::new(hayate_job::PROGRAMS).join(program.file_name()));
    }
}

/// A disk that is mounted below a writable layer.
struct Lower<'a> {
    device: &'a str,
    kind: &'a str,
    options: &'a str,
}

/// Mounts a disk below a writable layer, in memory or on the disk `persist`. Both parts are mounted
/// at `base`; the root's parts are in the initramfs, which is hidden afterwards.
fn layered(disk: &Lower<'_>, persist: Option<&str>, base: &str, path: &str) -> Result<(), Failure> {
    let Lower { device, kind, options } = disk;
    let (lower, memory) = (format!("{base}/lower"), format!("{base}/rw"));
    folder(&lower, 0o755);
    folder(&memory, 0o755);
    need(
        attach(device, &lower, kind, MountFlags::RDONLY, options),
        &format!("cannot mount the disk {device} as {kind}"),
    )?;
    let (layer, what) = match persist {
        Some(device) => (attach(device, &memory, "ext4", MountFlags::empty(), ""), "that is kept"),
        None => (attach("tmpfs", &memory, "tmpfs", MountFlags::empty(), "mode=0755"), "in memory"),
    };
    need(layer, &format!("cannot mount the writable layer {what}"))?;
    let (upper, work) = (format!("{memory}/upper"), format!("{memory}/work"));
    folder(&upper, 0o755);
    folder(&work, 0o755);
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    need(
        attach("overlay", path, "overlay", MountFlags::empty(), &options),
        &format!("cannot put the writable layer over the disk {device}"),
    )
}

const NOEXEC: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC);
const SAFE: MountFlags = NOEXEC.union(MountFlags::NODEV);

fn attach(
    source: &str,
    target: &str,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> rustix::io::Result<()> {
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    match mount(source, target, kind, flags, Some(options.as_c_str())) {
        // Linux may mount devtmpfs itself before it starts init.
        Err(Errno::BUSY) => Ok(()),
        other => other,
    }
}

fn folder(path: &str, mode: u32) {
    // If it cannot be created, the mount on it reports that.
    let _ = mkdir(path, Mode::from_raw_mode(mode));
}

fn need<T>(result: rustix::io::Result<T>, what: &str) -> Result<T, Failure> {
    result.map_err(|error| Failure::new(format!("{what}: {error}")))
}
