//! Metadata: `stat` and related calls, `access`, permissions, owners, times, sizes.

use alloc::sync::Arc;

use hayate_abi::file::{AT_FDCWD, Stat, Statfs, Statx, StatxTimestamp, Ustat};
use hayate_abi::signal::SIGXFSZ;
use hayate_abi::time::{Timespec, Timeval};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::{View, at, credentials, locate, open_file, path, raise};
use crate::credentials::{Capability, Credentials, access as wants};
use crate::process::{self, numbers};
use crate::vfs::content::mode::FALLOC_FL_KEEP_SIZE;
use crate::vfs::device;
use crate::vfs::directory::check_writable;
use crate::vfs::inode::{Change, FileKind, Inode, Metadata, Timestamp};
use crate::vfs::lease;
use crate::vfs::mount;
use crate::vfs::mount::{Location, flags as mount_flags};
use crate::vfs::notify;
use crate::vfs::open_file::flags::O_WRONLY;
use crate::vfs::path::{WalkFlags, permitted};
use crate::vfs::set_id;
use crate::vfs::watch::Mask;

fn encode(metadata: &Metadata) -> Stat {
    let (uid, gid) = numbers::shown_owner(metadata.uid, metadata.gid);
    Stat {
        st_dev: metadata.device,
        st_ino: metadata.number,
        st_nlink: u64::from(metadata.links),
        st_mode: metadata.full_mode(),
        st_uid: uid,
        st_gid: gid,
        hole: 0,
        st_rdev: metadata.represents.encode(),
        st_size: metadata.size as i64,
        st_blksize: i64::from(metadata.block_size),
        st_blocks: metadata.blocks as i64,
        st_atime: metadata.accessed.seconds,
        st_atime_nsec: i64::from(metadata.accessed.nanoseconds),
        st_mtime: metadata.modified.seconds,
        st_mtime_nsec: i64::from(metadata.modified.nanoseconds),
        st_ctime: metadata.changed.seconds,
        st_ctime_nsec: i64::from(metadata.changed.nanoseconds),
        reserved: [0; 3],
    }
}

/// `stat(2)`
pub fn stat(path_address: usize, buffer: usize) -> Result<()> {
    newfstatat(AT_FDCWD, path_address, buffer, 0)
}

/// `lstat(2)`
pub fn lstat(path_address: usize, buffer: usize) -> Result<()> {
    newfstatat(AT_FDCWD, path_address, buffer, at::SYMLINK_NOFOLLOW)
}

/// `fstat(2)`
pub fn fstat(fd: i32, buffer: usize) -> Result<()> {
    let metadata = process::current().file(fd)?.metadata()?;
    UserPtr::new(buffer).write(&encode(&metadata))
}

/// `fstatat(2)`
pub fn newfstatat(fd: i32, path_address: usize, buffer: usize, flags: u32) -> Result<()> {
    if flags & !(at::SYMLINK_NOFOLLOW | at::NO_AUTOMOUNT | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    tell(&locate(&View::current()?, fd, path_address, flags)?, buffer)
}

/// Writes the status of a place to this address (`stat(2)`).
pub fn tell(place: &Location, buffer: usize) -> Result<()> {
    UserPtr::new(buffer).write(&encode(&place.metadata()?))
}

fn statx_time(time: Timestamp) -> StatxTimestamp {
    StatxTimestamp { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 }
}

/// `statx(2)`
pub fn statx(fd: i32, path_address: usize, flags: u32, mask: u32, buffer: usize) -> Result<()> {
    const RESERVED: u32 = 0x8000_0000;
    const BASIC_AND_BIRTH: u32 = 0xfff;
    const MOUNT_ID: u32 = 0x1000;
    const ATTRIBUTE_MOUNT_ROOT: u64 = 0x2000;
    let known = at::SYMLINK_NOFOLLOW | at::NO_AUTOMOUNT | at::EMPTY_PATH | at::STATX_SYNC_TYPE;
    if flags & !known != 0
        || flags & at::STATX_SYNC_TYPE == at::STATX_SYNC_TYPE
        || mask & RESERVED != 0
    {
        return Err(Errno::EINVAL);
    }
    let place = locate(&View::current()?, fd, path_address, flags)?;
    let metadata = place.metadata()?;
    let device = crate::vfs::inode::DeviceNumber::decode(metadata.device);
    let is_root = Arc::ptr_eq(&place.dentry, place.mount.root());
    let answer = Statx {
        stx_mask: BASIC_AND_BIRTH | MOUNT_ID,
        stx_blksize: metadata.block_size,
        stx_attributes: if is_root { ATTRIBUTE_MOUNT_ROOT } else { 0 },
        stx_nlink: metadata.links,
        stx_uid: numbers::shown_user(metadata.uid),
        stx_gid: numbers::shown_group(metadata.gid),
        stx_mode: metadata.full_mode() as u16,
        stx_ino: metadata.number,
        stx_size: metadata.size,
        stx_blocks: metadata.blocks,
        stx_attributes_mask: ATTRIBUTE_MOUNT_ROOT,
        stx_atime: statx_time(metadata.accessed),
        stx_btime: statx_time(metadata.created),
        stx_ctime: statx_time(metadata.changed),
        stx_mtime: statx_time(metadata.modified),
        stx_rdev_major: metadata.represents.major,
        stx_rdev_minor: metadata.represents.minor,
        stx_dev_major: device.major,
        stx_dev_minor: device.minor,
        stx_mnt_id: u64::from(place.mount.id()),
        ..Statx::default()
    };
    UserPtr::new(buffer).write(&answer)
}

fn encode_usage(place: &Location) -> Statfs {
    const ST_VALID: i64 = 0x20;
    let usage = place.mount.filesystem().usage();
    let kept = place.mount.flags();
    let mut flags = ST_VALID | (kept & 0xf) as i64;
    if place.mount.read_only() {
        flags |= 1;
    }
    for (bit, shown) in [
        (mount_flags::MS_NOATIME, 0x400),
        (mount_flags::MS_NODIRATIME, 0x800),
        (mount_flags::MS_RELATIME, 0x1000),
        (mount_flags::MS_NOSYMFOLLOW, 0x2000),
    ] {
        if kept & bit != 0 {
            flags |= shown;
        }
    }
    Statfs {
        f_type: usage.magic as i64,
        f_bsize: usage.block_size as i64,
        f_blocks: usage.blocks,
        f_bfree: usage.free,
        f_bavail: usage.available,
        f_files: usage.files,
        f_ffree: usage.files_free,
        f_fsid: [usage.id as i32, (usage.id >> 32) as i32],
        f_namelen: usage.name_length as i64,
        f_frsize: usage.block_size as i64,
        f_flags: flags,
        f_spare: [0; 4],
    }
}

/// `statfs(2)`
pub fn statfs(path_address: usize, buffer: usize) -> Result<()> {
    let place = locate(&View::current()?, AT_FDCWD, path_address, 0)?;
    UserPtr::new(buffer).write(&encode_usage(&place))
}

/// `fstatfs(2)`
pub fn fstatfs(fd: i32, buffer: usize) -> Result<()> {
    let file = super::files().get(fd)?;
    UserPtr::new(buffer).write(&encode_usage(file.location()))
}

/// `ustat(2)`: of the file system with this device.
pub fn ustat(device: u32, buffer: usize) -> Result<()> {
    let before = u64::from(device).checked_sub(1).ok_or(Errno::EINVAL)?;
    let (_, mount) = mount::filesystem_after(before).ok_or(Errno::EINVAL)?;
    let filesystem = mount.filesystem();
    if filesystem.device() != u64::from(device) {
        return Err(Errno::EINVAL);
    }
    let usage = filesystem.usage();
    UserPtr::new(buffer).write(&Ustat {
        f_tfree: usage.free as i32,
        f_tinode: usage.files_free,
        ..Ustat::default()
    })
}

/// `access(2)`
pub fn access(path_address: usize, mode: i32) -> Result<()> {
    faccessat2(AT_FDCWD, path_address, mode, 0)
}

/// `faccessat(2)` in the form of the system call, without flags.
pub fn faccessat(fd: i32, path_address: usize, mode: i32) -> Result<()> {
    faccessat2(fd, path_address, mode, 0)
}

/// `faccessat2(2)`
pub fn faccessat2(fd: i32, path_address: usize, mode: i32, flags: u32) -> Result<()> {
    let mode = mode as u32;
    if mode & !7 != 0 || flags & !(at::EACCESS | at::SYMLINK_NOFOLLOW | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let view = if flags & at::EACCESS != 0 { View::current()? } else { View::with_real_ids()? };
    check_access(view.credentials(), &locate(&view, fd, path_address, flags)?, mode)
}

/// Whether somebody with these credentials may access a place so; the error of `access(2)` if not.
pub fn check_access(credentials: &Credentials, place: &Location, mode: u32) -> Result<()> {
    let attributes = place.inode()?.attributes();
    if mode & wants::EXECUTE != 0
        && attributes.kind == FileKind::Regular
        && place.mount.flags() & mount_flags::MS_NOEXEC != 0
    {
        return Err(Errno::EACCES);
    }
    permitted(credentials, &attributes, mode)?;
    if matches!(attributes.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        let number = || Ok(place.inode()?.metadata()?.represents);
        device::require_allowed(attributes.kind, number, mode)?;
    }
    let device = matches!(
        attributes.kind,
        FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket
    );
    if mode & wants::WRITE != 0 && !device {
        check_writable(place)?;
    }
    Ok(())
}

fn change_mode(credentials: &Credentials, place: &Location, mode: u32) -> Result<()> {
    check_writable(place)?;
    let inode = place.inode()?;
    let attributes = inode.attributes();
    if !credentials.owns(attributes.uid) {
        return Err(Errno::EPERM);
    }
    if attributes.kind == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut mode = mode as u16 & 0o7777;
    if !set_id::may_set_group(credentials, &attributes) {
        mode &= !0o2000;
    }
    inode.set_metadata(&Change { mode: Some(mode), ..Change::default() })?;
    notify::place(place, Mask::ATTRIB);
    Ok(())
}

/// `chmod(2)`
pub fn chmod(path_address: usize, mode: u32) -> Result<()> {
    fchmodat(AT_FDCWD, path_address, mode)
}

/// `fchmod(2)`
pub fn fchmod(fd: i32, mode: u32) -> Result<()> {
    change_mode(&credentials(), open_file(fd)?.location(), mode)
}

/// `fchmodat(2)` in the form of the system call, without flags.
pub fn fchmodat(fd: i32, path_address: usize, mode: u32) -> Result<()> {
    let view = View::current()?;
    let place = locate(&view, fd, path_address, 0)?;
    change_mode(view.credentials(), &place, mode)
}

/// Changes owner and group; `u32::MAX` leaves one unchanged (`chown_common`, fs/open.c and
/// `setattr_prepare`, fs/attr.c).
fn change_owner(credentials: &Credentials, place: &Location, user: u32, group: u32) -> Result<()> {
    let (user, group) = (numbers::user_or_keep(user)?, numbers::group_or_keep(group)?);
    check_writable(place)?;
    let inode = place.inode()?;
    let attributes = inode.attributes();
    let privileged = credentials.has_over(attributes.uid, attributes.gid, Capability::Chown);
    let uid = (user != u32::MAX).then_some(user);
    let gid = (group != u32::MAX).then_some(group);
    let owns = credentials.fsuid == attributes.uid;
    if uid.is_some_and(|uid| !(owns && uid == attributes.uid)) && !privileged {
        return Err(Errno::EPERM);
    }
    if gid.is_some_and(|gid| !(owns && (gid == attributes.gid || credentials.in_group(gid))))
        && !privileged
    {
        return Err(Errno::EPERM);
    }
    let mut mode = None;
    if attributes.kind != FileKind::Directory {
        set_id::drop_capabilities(&inode, &attributes)?;
        let cleared = set_id::after_change(&attributes, credentials);
        mode = (cleared != attributes.mode).then_some(cleared);
    }
    inode.set_metadata(&Change { mode, uid, gid, ..Change::default() })?;
    if mode.is_some() || uid.is_some() || gid.is_some() {
        notify::place(place, Mask::ATTRIB);
    }
    Ok(())
}

/// `chown(2)`
pub fn chown(path_address: usize, user: u32, group: u32) -> Result<()> {
    fchownat(AT_FDCWD, path_address, user, group, 0)
}

/// `lchown(2)`
pub fn lchown(path_address: usize, user: u32, group: u32) -> Result<()> {
    fchownat(AT_FDCWD, path_address, user, group, at::SYMLINK_NOFOLLOW)
}

/// `fchown(2)`
pub fn fchown(fd: i32, user: u32, group: u32) -> Result<()> {
    change_owner(&credentials(), open_file(fd)?.location(), user, group)
}

/// `fchownat(2)`
pub fn fchownat(fd: i32, path_address: usize, user: u32, group: u32, flags: u32) -> Result<()> {
    if flags & !(at::SYMLINK_NOFOLLOW | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let view = View::current()?;
    let place = locate(&view, fd, path_address, flags)?;
    change_owner(view.credentials(), &place, user, group)
}

/// Fails with `EFBIG`, and raises SIGXFSZ, if a file may not become so large (`inode_newsize_ok`,
/// fs/attr.c).
fn check_new_size(inode: &Arc<dyn Inode>, size: u64) -> Result<()> {
    if size > super::size_limit() && size > inode.metadata()?.size {
        raise(SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// Truncates or extends a file; the caller has checked that writing is allowed.
fn change_size(place: &Location, length: i64) -> Result<()> {
    let size = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
    let inode = place.inode()?;
    check_new_size(&inode, size)?;
    super::io::remove_privileges(&inode)?;
    inode.set_metadata(&Change { size: Some(size), ..Change::default() })?;
    notify::place(place, Mask::MODIFY);
    Ok(())
}

/// `truncate(2)`
pub fn truncate(path_address: usize, length: i64) -> Result<()> {
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    let view = View::current()?;
    let place = locate(&view, AT_FDCWD, path_address, 0)?;
    let inode = place.inode()?;
    let attributes = inode.attributes();
    match attributes.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    check_writable(&place)?;
    permitted(view.credentials(), &attributes, wants::WRITE)?;
    let _access = match inode.page_cache() {
        Some(page_cache) => Some(page_cache.open_for_writing()?),
        None => None,
    };
    lease::break_for(&inode, O_WRONLY)?;
    change_size(&place, length)
}

/// `ftruncate(2)`
pub fn ftruncate(fd: i32, length: i64) -> Result<()> {
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    let file = open_file(fd)?;
    if file.inode().attributes().kind != FileKind::Regular || !file.writable() {
        return Err(Errno::EINVAL);
    }
    change_size(file.location(), length)
}

/// `fallocate(2)`
pub fn fallocate(fd: i32, mode: i32, offset: i64, length: i64) -> Result<()> {
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    let file = open_file(fd)?;
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    match file.inode().attributes().kind {
        FileKind::Regular | FileKind::BlockDevice => {}
        FileKind::Fifo => return Err(Errno::ESPIPE),
        FileKind::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::ENODEV),
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    if file.inode().attributes().kind == FileKind::Regular {
        // Also if the size stays the same, as tmpfs does (`shmem_fallocate`, mm/shmem.c): the part
        // after the end takes space.
        if mode as u32 & !FALLOC_FL_KEEP_SIZE == 0 {
            check_new_size(file.inode(), end as u64)?;
        }
        super::io::remove_privileges(file.inode())?;
    }
    file.ops().allocate(&file, mode as u32, offset as u64, length as u64)?;
    notify::file(&file, Mask::MODIFY);
    Ok(())
}

/// A change of a time.
#[derive(Clone, Copy)]
enum NewTime {
    Now,
    Keep,
    Set(Timestamp),
}

impl NewTime {
    fn from_timespec(time: Timespec) -> Result<NewTime> {
        const UTIME_NOW: i64 = 0x3fff_ffff;
        const UTIME_OMIT: i64 = 0x3fff_fffe;
        match time.tv_nsec {
            UTIME_NOW => Ok(NewTime::Now),
            UTIME_OMIT => Ok(NewTime::Keep),
            nanoseconds @ 0..1_000_000_000 => Ok(NewTime::Set(Timestamp {
                seconds: time.tv_sec,
                nanoseconds: nanoseconds as u32,
            })),
            _ => Err(Errno::EINVAL),
        }
    }

    fn resolve(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            NewTime::Now => Some(now),
            NewTime::Keep => None,
            NewTime::Set(time) => Some(time),
        }
    }
}

/// Sets times (`vfs_utimes`, fs/utimes.c): "now" for both needs write access or ownership, any
/// other change needs ownership.
fn change_times(
    credentials: &Credentials,
    place: &Location,
    accessed: NewTime,
    modified: NewTime,
) -> Result<()> {
    if matches!((accessed, modified), (NewTime::Keep, NewTime::Keep)) {
        return Ok(());
    }
    check_writable(place)?;
    let inode = place.inode()?;
    let attributes = inode.attributes();
    if !credentials.owns(attributes.uid) {
        if matches!((accessed, modified), (NewTime::Now, NewTime::Now)) {
            permitted(credentials, &attributes, wants::WRITE)?;
        } else {
            return Err(Errno::EPERM);
        }
    }
    let now = Timestamp::now();
    let change = Change {
        accessed: accessed.resolve(now),
        modified: modified.resolve(now),
        ..Change::default()
    };
    inode.set_metadata(&change)?;
    // A change of one time alone is reported as a read or a write (`fsnotify_change`).
    let told = match (change.accessed, change.modified) {
        (Some(_), None) => Mask::ACCESS,
        (None, Some(_)) => Mask::MODIFY,
        _ => Mask::ATTRIB,
    };
    notify::place(place, told);
    Ok(())
}

fn set_times(
    fd: i32,
    path_address: usize,
    flags: u32,
    accessed: NewTime,
    modified: NewTime,
) -> Result<()> {
    let view = View::current()?;
    let place = locate(&view, fd, path_address, flags)?;
    change_times(view.credentials(), &place, accessed, modified)
}

/// `utimensat(2)`; without a path it is `futimens`.
pub fn utimensat(fd: i32, path_address: usize, times: usize, flags: u32) -> Result<()> {
    if flags & !(at::SYMLINK_NOFOLLOW | at::EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (accessed, modified) = if times == 0 {
        (NewTime::Now, NewTime::Now)
    } else {
        let pointer = UserPtr::<Timespec>::new(times);
        (NewTime::from_timespec(pointer.read()?)?, NewTime::from_timespec(pointer.at(1).read()?)?)
    };
    if path_address == 0 {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        if fd == AT_FDCWD {
            return Err(Errno::EFAULT);
        }
        return change_times(&credentials(), open_file(fd)?.location(), accessed, modified);
    }
    set_times(fd, path_address, flags, accessed, modified)
}

/// `utimes(2)`
pub fn utimes(path_address: usize, times: usize) -> Result<()> {
    futimesat(AT_FDCWD, path_address, times)
}

/// `futimesat(2)`
pub fn futimesat(fd: i32, path_address: usize, times: usize) -> Result<()> {
    let (accessed, modified) = if times == 0 {
        (NewTime::Now, NewTime::Now)
    } else {
        let pointer = UserPtr::<Timeval>::new(times);
        (from_timeval(pointer.read()?)?, from_timeval(pointer.at(1).read()?)?)
    };
    set_times(fd, path_address, 0, accessed, modified)
}

fn from_timeval(time: Timeval) -> Result<NewTime> {
    if !(0..1_000_000).contains(&time.tv_usec) {
        return Err(Errno::EINVAL);
    }
    let nanoseconds = time.tv_usec as u32 * 1000;
    Ok(NewTime::Set(Timestamp { seconds: time.tv_sec, nanoseconds }))
}

/// `utime(2)`
pub fn utime(path_address: usize, times: usize) -> Result<()> {
    let (accessed, modified) = if times == 0 {
        (NewTime::Now, NewTime::Now)
    } else {
        let [accessed, modified] = UserPtr::<[i64; 2]>::new(times).read()?;
        let at = |seconds| NewTime::Set(Timestamp { seconds, nanoseconds: 0 });
        (at(accessed), at(modified))
    };
    set_times(AT_FDCWD, path_address, 0, accessed, modified)
}

/// The location of a path, for calls of other families.
pub fn place_of(path_address: usize, follow: bool) -> Result<Location> {
    let flags = if follow { WalkFlags::empty() } else { WalkFlags::NOFOLLOW };
    View::current()?.resolve(AT_FDCWD, &path(path_address)?, flags)
}
