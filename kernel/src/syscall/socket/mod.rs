//! Sockets: the calls of socket(2) and related ones, for every family that is registered
//! ([`crate::vfs::socket_family`]); others fail with EAFNOSUPPORT.
//!
//! The layers, lowest first: `descriptor` and `address` (what the calls take from a program);
//! `options`; `messages` (sending and receiving); this file, the other calls; `unix`, the family
//! that needs the caller's view of the file system.

mod address;
mod descriptor;
mod messages;
mod options;
mod unix;

pub use messages::{recvfrom, recvmmsg, recvmsg, sendmmsg, sendmsg, sendto};
pub use options::{getsockopt, setsockopt};

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use self::descriptor::{lookup, socket_of};
use super::file::{descriptor_limit, files};
use crate::process;
use crate::reclaim;
use crate::vfs::file_count::Counted;
use crate::vfs::open_file::{FileOps, OpenFile, flags as open};
use crate::vfs::socket::Directions;
use crate::vfs::socket_family;
use crate::vfs::socket_family::Family;

const SOCK_TYPE_MASK: i32 = 0xf;
const SOCK_NONBLOCK: i32 = 0o4000;
const SOCK_CLOEXEC: i32 = 0o2000000;

/// Registers the families that this layer provides; at boot.
pub fn init() {
    unix::init();
}

/// Makes the open file of a socket, which is counted; nothing of it can fail today.
fn open_file(ops: Arc<dyn FileOps>, how: i32, counted: Counted) -> Result<Arc<OpenFile>> {
    let status = open::O_RDWR | if how & SOCK_NONBLOCK != 0 { open::O_NONBLOCK } else { 0 };
    socket_family::open(ops, status, counted)
}

/// Makes the open file of a socket and gives it a descriptor.
fn install(ops: Arc<dyn FileOps>, how: i32, counted: Counted) -> Result<i32> {
    process::current().install(open_file(ops, how, counted)?, how & SOCK_CLOEXEC != 0)
}

/// Checks the flags in the type of a socket, and finds the family.
fn family_of(family: i32, kind: i32) -> Result<&'static Family> {
    if kind & !(SOCK_TYPE_MASK | SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    socket_family::family(family)
}

/// socket(2).
pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<i32> {
    let family = family_of(family, kind)?;
    reclaim::leave_room()?;
    let counted = Counted::new()?;
    install((family.create)(kind & SOCK_TYPE_MASK, protocol)?, kind, counted)
}

/// socketpair(2).
pub fn socketpair(family: i32, kind: i32, protocol: i32, fds: usize) -> Result<()> {
    let family = family_of(family, kind)?;
    reclaim::leave_room()?;
    let counted = [Counted::new()?, Counted::new()?];
    let [one, other] = (family.pair)(kind & SOCK_TYPE_MASK, protocol)?;
    let [counted_one, counted_other] = counted;
    let first = install(one, kind, counted_one)?;
    let second = match install(other, kind, counted_other) {
        Ok(second) => second,
        Err(error) => {
            let _ = process::current().files().close(first);
            return Err(error);
        }
    };
    UserPtr::<[i32; 2]>::new(fds).write(&[first, second]).inspect_err(|_| {
        let _ = process::current().files().close(first);
        let _ = process::current().files().close(second);
    })
}

/// bind(2).
pub fn bind(fd: i32, at: usize, length: u32) -> Result<()> {
    let file = lookup(fd)?;
    socket_of(&file)?.bind(&address::read(at, length)?)
}

/// listen(2).
pub fn listen(fd: i32, backlog: i32) -> Result<()> {
    let file = lookup(fd)?;
    // A negative backlog is a very large one (__sys_listen).
    let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
    let socket = socket_of(&file)?;
    socket.listen(backlog.min(socket.common().network().settings.most_backlog()))
}

/// connect(2).
pub fn connect(fd: i32, at: usize, length: u32) -> Result<()> {
    let file = lookup(fd)?;
    socket_of(&file)?.connect(&address::read(at, length)?, file.nonblocking())
}

/// accept(2).
pub fn accept(fd: i32, at: usize, length: usize) -> Result<i32> {
    accept4(fd, at, length, 0)
}

/// accept4(2).
pub fn accept4(fd: i32, at: usize, length: usize, how: u32) -> Result<i32> {
    let how = how as i32;
    if how & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = lookup(fd)?;
    // First of all, so that no connection is lost for the lack of a descriptor or a file
    // (`__sys_accept4_file`, `do_accept`).
    let (table, limit) = (files(), descriptor_limit());
    let reserved = table.reserve(0, limit, how & SOCK_CLOEXEC != 0)?;
    let counted = Counted::new()?;
    let accepted = socket_of(&file)?.accept(file.nonblocking())?;
    // From here on the connection has an owner: if the address cannot be written, the file is
    // closed, and the peer learns it (`do_accept`).
    let connection = open_file(accepted.ops, how, counted)?;
    address::write(&accepted.peer, at, length)?;
    Ok(reserved.install(connection))
}

/// getsockname(2).
pub fn getsockname(fd: i32, at: usize, length: usize) -> Result<()> {
    let file = lookup(fd)?;
    address::write_required(&socket_of(&file)?.name()?, at, length)
}

/// getpeername(2).
pub fn getpeername(fd: i32, at: usize, length: usize) -> Result<()> {
    let file = lookup(fd)?;
    address::write_required(&socket_of(&file)?.peer_name()?, at, length)
}

/// shutdown(2).
pub fn shutdown(fd: i32, how: i32) -> Result<()> {
    let file = lookup(fd)?;
    let (receiving, sending) = match how {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    socket_of(&file)?.shut_down(Directions { receiving, sending })
}
