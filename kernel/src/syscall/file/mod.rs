//! The system calls on files: decoding and encoding; [`crate::vfs`] does the work.
//!
//! This module has what the families share: the calling process's tables, paths from the program's
//! memory, and the start of path walks.

pub mod aio;
pub mod copy;
pub mod descriptors;
pub mod events;
pub mod handles;
pub mod io;
pub mod metadata;
pub mod mount_trees;
pub mod mounts;
pub mod names;
pub mod transfer;
pub mod xattr;

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::process::RLIMIT_NOFILE;
use hayate_abi::signal::{SI_USER, SIGPIPE, Siginfo};
use hayate_abi::{Errno, Result};
use hayate_machine::user;

use crate::credentials::Credentials;
use crate::process;
use crate::reclaim::growth::Grow;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;
use crate::vfs::mount::Location;
use crate::vfs::open_file::OpenFile;
use crate::vfs::path::{PATH_MAX, Resolver, WalkFlags};
use crate::vfs::socket::kinds;

/// Flags of the *at calls (`include/uapi/linux/fcntl.h`).
#[allow(missing_docs, reason = "named as in openat(2) and its kin")]
pub mod at {
    pub const SYMLINK_NOFOLLOW: u32 = 0x100;
    pub const EACCESS: u32 = 0x200;
    pub const REMOVEDIR: u32 = 0x200;
    pub const SYMLINK_FOLLOW: u32 = 0x400;
    pub const NO_AUTOMOUNT: u32 = 0x800;
    pub const EMPTY_PATH: u32 = 0x1000;
    pub const STATX_SYNC_TYPE: u32 = 0x6000;
}

/// The calling process's descriptors.
pub fn files() -> Arc<FdTable> {
    process::current().files()
}

/// Its root, working directory and umask.
pub fn context() -> Result<Arc<FsContext>> {
    process::current().directories()
}

/// The calling thread's credentials.
pub fn credentials() -> Arc<Credentials> {
    process::current().credentials()
}

/// The open file of a descriptor; fails with EBADF for a descriptor of `O_PATH`.
#[inline(always)]
pub fn open_file(fd: i32) -> Result<Arc<OpenFile>> {
    let file = process::current().file(fd)?;
    if file.path_only() { Err(Errno::EBADF) } else { Ok(file) }
}

/// `RLIMIT_NOFILE`.
pub fn descriptor_limit() -> u64 {
    process::current().process().limit(RLIMIT_NOFILE)
}

/// `RLIMIT_FSIZE`.
pub fn size_limit() -> u64 {
    process::current().process().size_limit()
}

/// Gives a new open file the lowest free descriptor.
pub fn install(file: Arc<OpenFile>, close_on_exec: bool) -> Result<i32> {
    files().install(file, 0, descriptor_limit(), close_on_exec)
}

/// Copies a string of the program of up to `most` bytes, including its NUL; `ENAMETOOLONG` for a
/// longer one.
pub fn string(address: usize, most: usize) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    text.make_room_exact(most)?;
    text.resize(most, 0);
    let length = user::read_cstr(&mut text, address)?;
    text.truncate(length);
    Ok(text)
}

/// A path of the program. Most are short and need no allocation.
pub enum PathText {
    /// The bytes and their number.
    Short([u8; PathText::SHORT], usize),
    /// A longer one.
    Long(Vec<u8>),
}

impl PathText {
    /// The length of the longest short path, including its NUL.
    const SHORT: usize = 128;
}

impl core::ops::Deref for PathText {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            PathText::Short(bytes, length) => bytes.get(..*length).unwrap_or_default(),
            PathText::Long(bytes) => bytes,
        }
    }
}

/// Copies a path.
#[inline]
pub fn path(address: usize) -> Result<PathText> {
    let mut bytes = [0; PathText::SHORT];
    match user::read_cstr(&mut bytes, address) {
        Ok(length) => Ok(PathText::Short(bytes, length)),
        Err(Errno::ENAMETOOLONG) => string(address, PATH_MAX).map(PathText::Long),
        Err(error) => Err(error),
    }
}

/// Calls `act` with a path of the program, for calls that are made so often that the text is not
/// moved for them.
#[inline(always)]
pub fn with_path<T>(address: usize, act: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    let mut short = [0; PathText::SHORT];
    let long;
    let text = match user::read_cstr(&mut short, address) {
        Ok(length) => short.get(..length).unwrap_or_default(),
        Err(Errno::ENAMETOOLONG) => {
            long = string(address, PATH_MAX)?;
            &long
        }
        Err(error) => return Err(error),
    };
    act(text)
}

/// The caller's view of the tree; owns what a [`Resolver`] borrows.
pub struct View {
    context: Arc<FsContext>,
    credentials: Arc<Credentials>,
}

impl View {
    /// The caller's view.
    pub fn current() -> Result<View> {
        Ok(View { context: context()?, credentials: credentials() })
    }

    /// The caller's view with the credentials of `access(2)`.
    pub fn with_real_ids() -> Result<View> {
        Ok(View { context: context()?, credentials: Arc::new(credentials().with_real_ids()) })
    }

    /// Root, working directory and umask.
    pub fn context(&self) -> &FsContext {
        &self.context
    }

    /// The credentials.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A resolver for `path` relative to the directory `fd`. The descriptor is not checked if the
    /// path is absolute.
    pub fn resolver(&self, fd: i32, path: &[u8]) -> Result<Resolver<'_>> {
        let start = if fd == AT_FDCWD || path.first() == Some(&b'/') {
            None
        } else {
            Some(files().get(fd)?.location().clone())
        };
        Ok(Resolver { context: &self.context, credentials: &self.credentials, start })
    }

    /// The location of `path` relative to the directory `fd`.
    pub fn resolve(&self, fd: i32, path: &[u8], flags: WalkFlags) -> Result<Location> {
        self.resolver(fd, path)?.resolve(path, flags)
    }
}

/// The location that an *at call refers to, with `NOFOLLOW` and `EMPTY_PATH` of `flags`. With
/// `EMPTY_PATH`, an empty path refers to the descriptor's own file.
pub fn locate(view: &View, fd: i32, path_address: usize, flags: u32) -> Result<Location> {
    let mut walk = WalkFlags::empty();
    if flags & at::SYMLINK_NOFOLLOW != 0 {
        walk |= WalkFlags::NOFOLLOW;
    }
    if flags & at::EMPTY_PATH != 0 {
        walk |= WalkFlags::EMPTY;
    }
    with_path(path_address, |path| view.resolve(fd, path, walk))
}

/// Raises SIGPIPE after a write to this file failed with EPIPE: sockets that are no streams have
/// only the error (`unix_dgram_sendmsg`, `udp_sendmsg`).
#[cold]
pub fn raise_broken_pipe(file: &OpenFile) {
    if file.ops().as_socket().is_none_or(|socket| socket.kind() == kinds::STREAM) {
        raise(SIGPIPE);
    }
}

/// Sends the calling thread a signal that one of its own calls raised.
pub fn raise(signal: u32) {
    let thread = process::current();
    let (pid, uid) = (thread.process().id(), thread.credentials().uid);
    let info = Siginfo::from_sender(signal, SI_USER, pid, uid);
    // It can only fail when a queue is full for a realtime signal, which these are not.
    let _ = process::signal::send::to_thread(&thread, info);
}
