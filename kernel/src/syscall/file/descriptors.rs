//! Opening, closing, duplicating descriptors; `fcntl`, `flock`, `ioctl`, pipes, memfds.

use alloc::sync::Arc;

use hayate_abi::file::{AT_FDCWD, Flock, OpenHow};
use hayate_abi::signal::NSIG;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};

use super::{
    View, credentials, descriptor_limit, files, install, open_file, path, string, with_path,
};
use crate::fs::tmpfs::memfd;
use crate::ipc::pipe;
use crate::process;
use crate::process::{numbers, visible};
use crate::tty::devpts;
use crate::vfs::descriptor::FdTable;
use crate::vfs::inode::FileKind;
use crate::vfs::lock_owner::LockOwner;
use crate::vfs::mount::Location;
use crate::vfs::open_file::OpenFile;
use crate::vfs::open_file::flags::*;
use crate::vfs::path::WalkFlags;
use crate::vfs::signal_owner::{AddresseeKind, SignalOwner};
use crate::vfs::{dnotify, hint, lease, locks, open};

/// The flags that `openat2` accepts; the older calls ignore others.
const VALID: u64 = (O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_SYNC
    | FASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | O_PATH
    | O_TMPFILE) as u64;

fn open_at(fd: i32, path: &[u8], flags: u32, mode: u32, walk: WalkFlags) -> Result<i32> {
    let table = files();
    let reserved = table.reserve(0, descriptor_limit(), flags & O_CLOEXEC != 0)?;
    let view = View::current()?;
    let resolver = view.resolver(fd, path)?;
    let file = open::open(&resolver, path, flags, mode as u16 & 0o7777, walk)?;
    Ok(reserved.install(file))
}

/// [`openat`] of a path that a walk of `view` has led to `found`, with flags that make nothing and
/// change nothing. The walk was told of `O_NOFOLLOW` and `O_DIRECTORY`.
pub fn open_found(view: &View, found: Result<Location>, flags: u32) -> Result<i32> {
    let table = files();
    let reserved = table.reserve(0, descriptor_limit(), flags & O_CLOEXEC != 0)?;
    let resolver = view.resolver(AT_FDCWD, b"")?;
    let file = open::open_found(&resolver, found, flags & VALID as u32)?;
    Ok(reserved.install(file))
}

/// `open(2)`
pub fn open(path_address: usize, flags: u32, mode: u32) -> Result<i32> {
    openat(AT_FDCWD, path_address, flags, mode)
}

/// `openat(2)`
pub fn openat(fd: i32, path_address: usize, flags: u32, mode: u32) -> Result<i32> {
    with_path(path_address, |path| {
        open_at(fd, path, flags & VALID as u32, mode, WalkFlags::empty())
    })
}

/// `creat(2)`
pub fn creat(path_address: usize, mode: u32) -> Result<i32> {
    openat(AT_FDCWD, path_address, O_CREAT | O_WRONLY | O_TRUNC, mode)
}

/// `openat2(2)`
pub fn openat2(fd: i32, path_address: usize, how: usize, size: usize) -> Result<i32> {
    const SIZE: usize = size_of::<OpenHow>();
    if size < SIZE {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let mut bytes = [0; SIZE];
    user::copy_in_growing(&mut bytes, how, size)?;
    let wanted: OpenHow = zerocopy::transmute!(bytes);
    const RESOLVE_CACHED: u64 = 0x20;
    if wanted.flags & !VALID != 0 || wanted.resolve & !(0x1f | RESOLVE_CACHED) != 0 {
        return Err(Errno::EINVAL);
    }
    if wanted.resolve & RESOLVE_CACHED != 0 {
        // "The operation could not be completed from caches": this error is allowed at any time.
        return Err(Errno::EAGAIN);
    }
    let flags = wanted.flags as u32;
    let makes = flags & O_CREAT != 0 || flags & O_TMPFILE == O_TMPFILE;
    if wanted.mode & !0o7777 != 0 || wanted.mode != 0 && !makes {
        return Err(Errno::EINVAL);
    }
    if flags & O_PATH != 0 && flags & !(O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let walk = WalkFlags::from_bits_truncate(wanted.resolve as u32);
    if walk.contains(WalkFlags::BENEATH | WalkFlags::IN_ROOT) {
        return Err(Errno::EINVAL);
    }
    open_at(fd, &path(path_address)?, flags, wanted.mode as u32, walk)
}

/// `close(2)`
pub fn close(fd: i32) -> Result<()> {
    files().close(fd)
}

/// `close_range(2)`
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    if flags & !(UNSHARE | CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    if flags & UNSHARE != 0 {
        process::current().unshare_files()?;
    }
    files().close_range(first, last, flags & CLOEXEC != 0);
    Ok(())
}

/// `dup(2)`
pub fn dup(fd: i32) -> Result<i32> {
    let table = files();
    let file = table.get(fd)?;
    table.install(file, 0, descriptor_limit(), false)
}

/// `dup2(2)`
pub fn dup2(fd: i32, to: i32) -> Result<i32> {
    let table = files();
    let file = table.get(fd)?;
    if fd == to {
        return Ok(to);
    }
    duplicate(file, to, false)
}

fn duplicate(file: Arc<OpenFile>, to: i32, close_on_exec: bool) -> Result<i32> {
    let table = files();
    if let Some(old) = table.replace(to, file, descriptor_limit(), close_on_exec)? {
        table.closed(old);
    }
    Ok(to)
}

/// `dup3(2)`
pub fn dup3(fd: i32, to: i32, flags: u32) -> Result<i32> {
    if flags & !O_CLOEXEC != 0 || fd == to {
        return Err(Errno::EINVAL);
    }
    let file = files().get(fd)?;
    duplicate(file, to, flags & O_CLOEXEC != 0)
}

/// `fcntl(2)` commands.
mod command {
    pub const F_DUPFD: i32 = 0;
    pub const F_GETFD: i32 = 1;
    pub const F_SETFD: i32 = 2;
    pub const F_GETFL: i32 = 3;
    pub const F_SETFL: i32 = 4;
    pub const F_GETLK: i32 = 5;
    pub const F_SETLK: i32 = 6;
    pub const F_SETLKW: i32 = 7;
    pub const F_SETOWN: i32 = 8;
    pub const F_GETOWN: i32 = 9;
    pub const F_SETSIG: i32 = 10;
    pub const F_GETSIG: i32 = 11;
    pub const F_SETOWN_EX: i32 = 15;
    pub const F_GETOWN_EX: i32 = 16;
    pub const F_GETOWNER_UIDS: i32 = 17;
    pub const F_OFD_GETLK: i32 = 36;
    pub const F_OFD_SETLK: i32 = 37;
    pub const F_OFD_SETLKW: i32 = 38;
    pub const F_SETLEASE: i32 = 1024;
    pub const F_GETLEASE: i32 = 1025;
    pub const F_NOTIFY: i32 = 1026;
    pub const F_DUPFD_CLOEXEC: i32 = 1030;
    pub const F_SETPIPE_SZ: i32 = 1031;
    pub const F_GETPIPE_SZ: i32 = 1032;
    pub const F_ADD_SEALS: i32 = 1033;
    pub const F_GET_SEALS: i32 = 1034;
    pub const F_GET_RW_HINT: i32 = 1035;
    pub const F_SET_RW_HINT: i32 = 1036;
}

/// The owner as `F_GETOWN` returns it: a group's number is negative.
fn owner_number(file: &OpenFile) -> i32 {
    let (kind, number) = file.owner().get();
    let number = visible::shown_signed(number);
    if kind == AddresseeKind::Group { -number } else { number }
}

/// Sets the owner, and notifies the file of it.
fn set_owner(file: &OpenFile, set: impl FnOnce(&SignalOwner) -> Result<()>) -> Result<i64> {
    set(file.owner())?;
    file.ops().owned(file);
    Ok(0)
}

/// `struct f_owner_ex`.
#[derive(
    Clone,
    Copy,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
#[repr(C)]
struct OwnerEx {
    kind: i32,
    pid: i32,
}

/// `F_DUPFD`, `F_DUPFD_CLOEXEC`: under the lowest free number from `from` on.
fn duplicate_from(
    table: &FdTable,
    file: Arc<OpenFile>,
    from: i32,
    close_on_exec: bool,
) -> Result<i64> {
    let limit = descriptor_limit();
    let from = usize::try_from(from).map_err(|_| Errno::EINVAL)?;
    if from as u64 >= limit {
        return Err(Errno::EINVAL);
    }
    table.install(file, from, limit, close_on_exec).map(i64::from)
}

/// `F_SETFL`
fn set_status_flags(file: &OpenFile, fd: i32, new: u32) -> Result<i64> {
    if new & O_NOATIME & !file.flags() != 0 {
        let owner = file.inode().attributes().uid;
        if !credentials().owns(owner) {
            return Err(Errno::EPERM);
        }
    }
    // A file without signals ignores the flag.
    file.switch_signals(fd, new & FASYNC != 0)?;
    file.set_flags(new)?;
    Ok(0)
}

/// `F_GETLK`, `F_OFD_GETLK`
fn query_lock(
    table: &FdTable,
    file: &Arc<OpenFile>,
    description: bool,
    argument: usize,
) -> Result<i64> {
    let pointer = UserPtr::<Flock>::new(argument);
    let mut lock = pointer.read()?;
    let owner = lock_owner(table, file, description, &lock)?;
    locks::query(file, owner, &mut lock)?;
    if lock.l_type != locks::F_UNLCK {
        lock.l_pid = visible::shown_signed(lock.l_pid);
    }
    pointer.write(&lock)?;
    Ok(0)
}

/// `F_SETLK`, `F_SETLKW` and those of open file descriptions.
fn set_lock(
    table: &FdTable,
    file: &Arc<OpenFile>,
    fd: i32,
    command: i32,
    argument: usize,
) -> Result<i64> {
    use command::*;
    let lock = UserPtr::<Flock>::new(argument).read()?;
    let description = matches!(command, F_OFD_SETLK | F_OFD_SETLKW);
    let owner = lock_owner(table, file, description, &lock)?;
    let wait = matches!(command, F_SETLKW | F_OFD_SETLKW);
    let pid = if description { -1 } else { process::current().process().id() as i32 };
    if !description {
        // Do this first: from now on a closed descriptor releases the lock that is taken
        // here.
        table.note_closings();
    }
    locks::set(file, owner, pid, &lock, wait)?;
    // If the descriptor was closed meanwhile, the lock was not released yet (`fcntl_setlk`,
    // fs/locks.c).
    let is_there = || table.get(fd).is_ok_and(|now| Arc::ptr_eq(&now, file));
    if !description && lock.l_type != locks::F_UNLCK && !is_there() {
        let all = Flock { l_type: locks::F_UNLCK, ..lock };
        let _ = locks::set(file, owner, pid, &all, false);
        return Err(Errno::EBADF);
    }
    Ok(0)
}

/// The commands about the signals of an open file.
fn signal_command(file: &OpenFile, command: i32, argument: usize) -> Result<i64> {
    use command::*;
    match command {
        F_SETOWN => set_owner(file, |owner| owner.set_number(argument as i32)),
        F_GETOWN => Ok(i64::from(owner_number(file))),
        F_SETSIG => {
            let signal = u32::try_from(argument).map_err(|_| Errno::EINVAL)?;
            if signal > NSIG {
                return Err(Errno::EINVAL);
            }
            file.owner().set_signal(signal);
            Ok(0)
        }
        F_GETSIG => Ok(i64::from(file.owner().signal())),
        F_SETOWN_EX => {
            let asked = UserPtr::<OwnerEx>::new(argument).read()?;
            let kind = match asked.kind {
                0 => AddresseeKind::Thread,
                1 => AddresseeKind::Process,
                2 => AddresseeKind::Group,
                _ => return Err(Errno::EINVAL),
            };
            set_owner(file, |owner| owner.set(kind, asked.pid))
        }
        F_GETOWN_EX => {
            let (kind, pid) = file.owner().get();
            let pid = visible::shown_signed(pid);
            UserPtr::new(argument).write(&OwnerEx { kind: kind as i32, pid })?;
            Ok(0)
        }
        F_GETOWNER_UIDS => {
            let asker = file.owner().asker();
            UserPtr::new(argument).write(&[asker.uid, asker.euid].map(numbers::shown_user))?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `fcntl(2)`
pub fn fcntl(fd: i32, command: i32, argument: usize) -> Result<i64> {
    use command::*;
    const FD_CLOEXEC: i64 = 1;
    let table = files();
    let file = table.get(fd)?;
    // A descriptor of O_PATH can be duplicated and asked for its flags, nothing else.
    let on_place = matches!(command, F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL);
    if file.path_only() && !on_place {
        return Err(Errno::EBADF);
    }
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            duplicate_from(&table, file, argument as i32, command == F_DUPFD_CLOEXEC)
        }
        F_GETFD => Ok(if table.close_on_exec(fd)? { FD_CLOEXEC } else { 0 }),
        F_SETFD => {
            table.set_close_on_exec(fd, argument as i64 & FD_CLOEXEC != 0)?;
            Ok(0)
        }
        F_GETFL => Ok(i64::from(file.flags())),
        F_SETFL => set_status_flags(&file, fd, argument as u32),
        F_GETLK | F_OFD_GETLK => query_lock(&table, &file, command == F_OFD_GETLK, argument),
        F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => {
            set_lock(&table, &file, fd, command, argument)
        }
        F_SETOWN | F_GETOWN | F_SETSIG | F_GETSIG | F_SETOWN_EX | F_GETOWN_EX | F_GETOWNER_UIDS => {
            signal_command(&file, command, argument)
        }
        F_SETLEASE => {
            let kind = lease::LeaseKind::parse(argument as i32)?;
            lease::set(&file, fd, kind, &credentials())?;
            Ok(0)
        }
        F_GETLEASE => Ok(lease::get(&file)? as i64),
        F_NOTIFY => {
            dnotify::request(&table, &file, fd, argument as u32)?;
            Ok(0)
        }
        F_SETPIPE_SZ => {
            let pipe = pipe::end::of(&file).ok_or(Errno::EBADF)?;
            // The argument is an int; a negative one is too large.
            let bytes = usize::try_from(argument as i32).map_err(|_| Errno::EINVAL)?;
            pipe.set_capacity(bytes, &credentials()).map(|size| size as i64)
        }
        F_GETPIPE_SZ => Ok(pipe::end::of(&file).ok_or(Errno::EBADF)?.capacity() as i64),
        F_ADD_SEALS => {
            if !file.writable() {
                return Err(Errno::EPERM);
            }
            memfd::add_seals(&file, argument as u32)?;
            Ok(0)
        }
        F_GET_SEALS => memfd::seals(&file).map(i64::from),
        F_GET_RW_HINT => {
            UserPtr::new(argument).write(&u64::from(hint::get(&file)))?;
            Ok(0)
        }
        F_SET_RW_HINT => {
            hint::set(&file, UserPtr::new(argument).read()?, &credentials())?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn lock_owner(
    table: &FdTable,
    file: &Arc<OpenFile>,
    description: bool,
    lock: &Flock,
) -> Result<LockOwner> {
    if description {
        if lock.l_pid != 0 {
            return Err(Errno::EINVAL);
        }
        return Ok(LockOwner::of_description(file));
    }
    Ok(LockOwner::of_table(table))
}

/// `flock(2)`
pub fn flock(fd: i32, operation: i32) -> Result<()> {
    let file = open_file(fd)?;
    locks::flock(&file, operation)
}

fn is_socket(file: &OpenFile) -> bool {
    file.ops().as_socket().is_some()
}

/// `ioctl(2)`: commands for any file are handled here, the others by the file.
pub fn ioctl(fd: i32, command: u32, argument: usize) -> Result<i64> {
    const FIONCLEX: u32 = 0x5450;
    const FIOCLEX: u32 = 0x5451;
    const FIONBIO: u32 = 0x5421;
    const FIOASYNC: u32 = 0x5452;
    const FIOSETOWN: u32 = 0x8901;
    const SIOCSPGRP: u32 = 0x8902;
    const FIOGETOWN: u32 = 0x8903;
    const SIOCGPGRP: u32 = 0x8904;
    const FIOQSIZE: u32 = 0x5460;
    const FIGETBSZ: u32 = 2;
    const FIONREAD: u32 = 0x541b;
    const TIOCGPTPEER: u32 = 0x5441;
    let table = files();
    let file = table.get_open(fd)?;
    match command {
        FIOCLEX | FIONCLEX => {
            table.set_close_on_exec(fd, command == FIOCLEX)?;
            Ok(0)
        }
        FIONBIO => {
            let on = UserPtr::<i32>::new(argument).read()? != 0;
            let flags = file.flags();
            file.set_flags(if on { flags | O_NONBLOCK } else { flags & !O_NONBLOCK })?;
            Ok(0)
        }
        FIOASYNC => {
            let on = UserPtr::<i32>::new(argument).read()? != 0;
            if file.switch_signals(fd, on)? { Ok(0) } else { Err(Errno::ENOTTY) }
        }
        FIOSETOWN | SIOCSPGRP if is_socket(&file) => {
            let number = UserPtr::<i32>::new(argument).read()?;
            set_owner(&file, |owner| owner.set_number(number))
        }
        FIOGETOWN | SIOCGPGRP if is_socket(&file) => {
            UserPtr::new(argument).write(&owner_number(&file))?;
            Ok(0)
        }
        FIOQSIZE => {
            let metadata = file.metadata()?;
            if !matches!(metadata.kind, FileKind::Regular | FileKind::Directory) {
                return Err(Errno::ENOTTY);
            }
            UserPtr::<i64>::new(argument).write(&(metadata.size as i64))?;
            Ok(0)
        }
        FIGETBSZ => {
            UserPtr::<i32>::new(argument).write(&(file.metadata()?.block_size as i32))?;
            Ok(0)
        }
        FIONREAD if file.inode().attributes().kind == FileKind::Regular => {
            let left = file.metadata()?.size as i64 - *file.lock_position() as i64;
            UserPtr::<i32>::new(argument).write(&(left as i32))?;
            Ok(0)
        }
        TIOCGPTPEER => match devpts::peer(&file) {
            Some(place) => open_peer(place?, argument as u32).map(i64::from),
            None => file.ops().ioctl(&file, command, argument as u64),
        },
        _ => file.ops().ioctl(&file, command, argument as u64),
    }
}

/// `TIOCGPTPEER` (ioctl_tty(2)): opens the slave of a master, with flags as of `open`.
fn open_peer(place: Location, flags: u32) -> Result<i32> {
    let table = files();
    let reserved = table.reserve(0, descriptor_limit(), flags & O_CLOEXEC != 0)?;
    let view = View::current()?;
    let resolver = view.resolver(AT_FDCWD, b"")?;
    let makes_nothing = VALID as u32 & !(O_CREAT | O_EXCL | O_TRUNC | O_TMPFILE | O_PATH);
    let file = open::open_given(&resolver, place, flags & makes_nothing)?;
    Ok(reserved.install(file))
}

/// `pipe(2)`
pub fn pipe(fds: usize) -> Result<()> {
    pipe2(fds, 0)
}

/// `pipe2(2)`
pub fn pipe2(fds: usize, flags: u32) -> Result<()> {
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let (reader, writer) = pipe::end::pair(flags & (O_NONBLOCK | O_DIRECT), &credentials())?;
    let table = files();
    let close_on_exec = flags & O_CLOEXEC != 0;
    let limit = descriptor_limit();
    let first = table.reserve(0, limit, close_on_exec)?;
    let second = table.reserve(0, limit, close_on_exec)?;
    UserPtr::<[i32; 2]>::new(fds).write(&[first.number(), second.number()])?;
    first.install(reader);
    second.install(writer);
    Ok(())
}

/// `memfd_create(2)`
pub fn memfd_create(name: usize, flags: u32) -> Result<i32> {
    /// The longest name, with its NUL.
    const NAME_MAX: usize = 250;
    let name = string(name, NAME_MAX).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?;
    let (file, close_on_exec) = memfd::create(&name, flags, &credentials())?;
    install(file, close_on_exec)
}
