//! Sockets: the calls of socket(2) and related ones, for the Unix domain.
//!
//! Other families fail with EAFNOSUPPORT until there is a network device.

mod descriptor;
mod options;

pub use options::{getsockopt, setsockopt};

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::socket::{Mmsghdr, Msghdr, Ucred};
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserBytes, UserPtr};

use self::descriptor::{lookup, socket_of};
use super::control;
use super::control::Control;
use super::file::View;
use super::file::io::{PIECES_MAX, vector};
use crate::credentials::access;
use crate::ipc::unix::address::{Address, Name};
use crate::ipc::unix::endpoint::{Endpoint, Kind};
use crate::ipc::unix::socket::{Outgoing, Socket, flags};
use crate::ipc::unix::{address, names, socket};
use crate::process;
use crate::vfs::directory;
use crate::vfs::inode::{DeviceNumber, FileKind, Inode};
use crate::vfs::open_file::{OpenFile, flags as open};
use crate::vfs::path::{WalkFlags, permitted};
use crate::vfs::transfer::{Input, Output};

const SOCK_TYPE_MASK: i32 = 0xf;
const SOCK_NONBLOCK: i32 = 0o4000;
const SOCK_CLOEXEC: i32 = 0o2000000;

/// Makes the open file of a socket and gives it a descriptor.
fn install(socket: Arc<Socket>, how: i32) -> Result<i32> {
    let status = open::O_RDWR | if how & SOCK_NONBLOCK != 0 { open::O_NONBLOCK } else { 0 };
    let file = socket::open(socket, status)?;
    process::current().install(file, how & SOCK_CLOEXEC != 0)
}

fn kind_of(family: i32, kind: i32, protocol: i32) -> Result<Kind> {
    if kind & !(SOCK_TYPE_MASK | SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    if family != i32::from(address::FAMILY) {
        return Err(Errno::EAFNOSUPPORT);
    }
    if protocol != 0 && protocol != family {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind & SOCK_TYPE_MASK {
        1 => Ok(Kind::Stream),
        // SOCK_RAW is a datagram socket in the Unix domain (unix_create).
        2 | 3 => Ok(Kind::Datagram),
        5 => Ok(Kind::Packet),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// socket(2).
pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<i32> {
    let which = kind_of(family, kind, protocol)?;
    install(Socket::new(Endpoint::new(which, process::current().identity())), kind)
}

/// socketpair(2).
pub fn socketpair(family: i32, kind: i32, protocol: i32, fds: usize) -> Result<()> {
    let which = kind_of(family, kind, protocol)?;
    let (one, other) = Endpoint::pair(which, process::current().identity());
    let first = install(Socket::new(one), kind)?;
    let second = match install(Socket::new(other), kind) {
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

fn read_address(at: usize, length: u32) -> Result<Address> {
    // sizeof(struct sockaddr_storage) bounds every family.
    if length as usize > 128 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; 128];
    let bytes = &mut bytes[..length as usize];
    user::copy_in(bytes, at)?;
    Address::parse(bytes)
}

/// The size of the program's buffer for an address.
fn room(length: usize) -> Result<usize> {
    usize::try_from(UserPtr::<i32>::new(length).read()?).map_err(|_| Errno::EINVAL)
}

/// Writes an address and its full length, cut to the size of the program's buffer.
fn write_address(name: Option<&Name>, at: usize, length: usize) -> Result<()> {
    if at == 0 {
        return Ok(());
    }
    let room = room(length)?;
    let bytes = address::to_bytes(name);
    user::copy_out(at, &bytes[..bytes.len().min(room)])?;
    UserPtr::<i32>::new(length).write(&(bytes.len() as i32))
}

/// Finds the endpoint bound to an address: ECONNREFUSED, or the errors of the path walk.
fn find(address: Address) -> Result<Arc<Endpoint>> {
    match address {
        Address::Unnamed => Err(Errno::EINVAL),
        Address::Named(Name::Abstract(name)) => names::find_abstract(&name),
        Address::Named(Name::Path(path)) => {
            let view = View::current()?;
            let inode = view.resolve(AT_FDCWD, &path, WalkFlags::empty())?.inode()?;
            permitted(view.credentials(), &inode.attributes(), access::WRITE)?;
            if inode.attributes().kind != FileKind::Socket {
                return Err(Errno::ECONNREFUSED);
            }
            names::find_inode(&inode)
        }
    }
}

/// bind(2).
pub fn bind(fd: i32, at: usize, length: u32) -> Result<()> {
    let file = lookup(fd)?;
    let endpoint = socket_of(&file)?.endpoint();
    match read_address(at, length)? {
        Address::Unnamed => {
            if endpoint.name().is_some() {
                return Err(Errno::EINVAL);
            }
            let name = names::bind_automatic(endpoint)?;
            endpoint.set_name(name, None)
        }
        Address::Named(Name::Abstract(name)) => {
            if endpoint.name().is_some() {
                return Err(Errno::EINVAL);
            }
            names::bind_abstract(&name, endpoint)?;
            endpoint.set_name(Name::Abstract(name), None)
        }
        Address::Named(Name::Path(path)) => {
            if endpoint.name().is_some() {
                return Err(Errno::EINVAL);
            }
            let inode = make_node(&path)?;
            endpoint.set_name(Name::Path(path), Some(inode.clone()))?;
            names::bind_inode(inode, endpoint);
            Ok(())
        }
    }
}

/// Makes the node of a named socket; EADDRINUSE if the name exists.
fn make_node(path: &[u8]) -> Result<Arc<dyn Inode>> {
    let view = View::current()?;
    let resolver = view.resolver(AT_FDCWD, path)?;
    let made = directory::mknod(&resolver, path, FileKind::Socket, 0o777, DeviceNumber::NONE);
    match made {
        Ok(location) => location.inode(),
        Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
        Err(error) => Err(error),
    }
}

/// listen(2).
pub fn listen(fd: i32, backlog: i32) -> Result<()> {
    let file = lookup(fd)?;
    // A negative backlog is a very large one (__sys_listen).
    let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
    socket_of(&file)?.endpoint().listen(backlog, process::current().identity())
}

/// connect(2).
pub fn connect(fd: i32, at: usize, length: u32) -> Result<()> {
    let file = lookup(fd)?;
    let socket = socket_of(&file)?;
    let endpoint = socket.endpoint();
    if endpoint.kind == Kind::Datagram {
        // AF_UNSPEC dissolves the association.
        if length >= 2 && UserPtr::<u16>::new(at).read()? == 0 {
            return endpoint.set_destination(None);
        }
        let destination = find(read_address(at, length)?)?;
        return endpoint.set_destination(Some(&destination));
    }
    let who = process::current().identity();
    let target = find(read_address(at, length)?)?;
    socket.until(false, file.nonblocking(), || endpoint.connect(&target, who))
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
    let socket = socket_of(&file)?;
    if !socket.endpoint().kind.connects() {
        return Err(Errno::EOPNOTSUPP);
    }
    let accepted = socket.until(true, file.nonblocking(), || socket.endpoint().accept())?;
    let peer = accepted.peer().ok().flatten().and_then(|peer| peer.name());
    write_address(peer.as_ref(), at, length)?;
    let socket = Socket::new(accepted);
    install(socket, how)
}

/// getsockname(2).
pub fn getsockname(fd: i32, at: usize, length: usize) -> Result<()> {
    let file = lookup(fd)?;
    let name = socket_of(&file)?.endpoint().name();
    write_required(name.as_ref(), at, length)
}

/// getpeername(2).
pub fn getpeername(fd: i32, at: usize, length: usize) -> Result<()> {
    let file = lookup(fd)?;
    let peer = socket_of(&file)?.endpoint().peer()?.ok_or(Errno::ENOTCONN)?;
    write_required(peer.name().as_ref(), at, length)
}

fn write_required(name: Option<&Name>, at: usize, length: usize) -> Result<()> {
    if at == 0 { Err(Errno::EFAULT) } else { write_address(name, at, length) }
}

/// Raises SIGPIPE for EPIPE unless MSG_NOSIGNAL was given.
fn piped<T>(result: Result<T>, how: u32, stream: bool) -> Result<T> {
    if matches!(result, Err(Errno::EPIPE)) && how & flags::NOSIGNAL == 0 && stream {
        process::current().signal_self(hayate_abi::signal::SIGPIPE);
    }
    result
}

/// sendto(2).
pub fn sendto(
    fd: i32,
    buffer: usize,
    count: usize,
    how: u32,
    at: usize,
    length: u32,
) -> Result<usize> {
    let file = lookup(fd)?;
    let mut input = Input::user(buffer, count);
    let address = if at == 0 { None } else { Some(read_address(at, length)?) };
    send(&file, &mut input, address, how, Vec::new(), None)
}

fn send(
    file: &OpenFile,
    input: &mut Input<'_>,
    address: Option<Address>,
    how: u32,
    descriptors: Vec<Arc<OpenFile>>,
    claimed: Option<Ucred>,
) -> Result<usize> {
    let socket = socket_of(file)?;
    let urgent = how & flags::OOB != 0;
    if urgent {
        socket.check_urgent(input.remaining())?;
    }
    let connects = socket.endpoint().kind.connects();
    let to = match address {
        None => None,
        Some(_) if connects => {
            return Err(match socket.endpoint().peer() {
                Ok(_) => Errno::EISCONN,
                Err(_) => Errno::EOPNOTSUPP,
            });
        }
        Some(address) => Some(find(address)?),
    };
    let outgoing = Outgoing {
        to,
        descriptors,
        sender: claimed.unwrap_or_else(|| process::current().identity()),
        nonblocking: file.nonblocking() || how & flags::DONTWAIT != 0,
        urgent,
    };
    piped(socket.send(input, outgoing), how, connects)
}

/// Fails with EINVAL for headers of 32-bit programs: only the kernel may set this flag.
fn check_headers(how: u32) -> Result<()> {
    if how & flags::CMSG_COMPAT != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// sendmsg(2).
pub fn sendmsg(fd: i32, message: usize, how: u32) -> Result<usize> {
    check_headers(how)?;
    let file = lookup(fd)?;
    let header: Msghdr = UserPtr::new(message).read()?;
    send_header(&file, &header, how)
}

fn send_header(file: &OpenFile, header: &Msghdr, how: u32) -> Result<usize> {
    let pieces = message_vector(header)?;
    let address = match (header.msg_name, header.msg_namelen) {
        (0, _) | (_, 0) => None,
        (at, length) => {
            Some(read_address(at as usize, u32::try_from(length).map_err(|_| Errno::EINVAL)?)?)
        }
    };
    let Control { descriptors, sender } = control::parse(header)?;
    send(file, &mut Input::vector(&pieces), address, how, descriptors, sender)
}

fn message_vector(header: &Msghdr) -> Result<Vec<UserBytes>> {
    let count = usize::try_from(header.msg_iovlen).unwrap_or(usize::MAX);
    if count > PIECES_MAX {
        return Err(Errno::EMSGSIZE);
    }
    vector(header.msg_iov as usize, count)
}

/// sendmmsg(2).
pub fn sendmmsg(fd: i32, messages: usize, count: u32, how: u32) -> Result<usize> {
    check_headers(how)?;
    let file = lookup(fd)?;
    let mut sent = 0;
    for index in 0..(count as usize).min(PIECES_MAX) {
        let at = messages + index * size_of::<Mmsghdr>();
        let result = UserPtr::<Mmsghdr>::new(at).read().and_then(|mut message| {
            let count = send_header(&file, &message.msg_hdr, how)?;
            message.msg_len = count as u32;
            UserPtr::<Mmsghdr>::new(at).write(&message)
        });
        match result {
            Ok(()) => sent += 1,
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// recvfrom(2).
pub fn recvfrom(
    fd: i32,
    buffer: usize,
    count: usize,
    how: u32,
    at: usize,
    length: usize,
) -> Result<usize> {
    let file = lookup(fd)?;
    let nonblocking = file.nonblocking() || how & flags::DONTWAIT != 0;
    let mut out = Output::user(buffer, count);
    let incoming = socket_of(&file)?.receive(&mut out, how, nonblocking)?;
    if at != 0 {
        match &incoming.from {
            Some(name) => write_address(name.as_ref(), at, length)?,
            None => {
                room(length)?;
                UserPtr::<i32>::new(length).write(&0)?;
            }
        }
    }
    Ok(if how & flags::TRUNC != 0 { incoming.full } else { incoming.count })
}

/// recvmsg(2).
pub fn recvmsg(fd: i32, message: usize, how: u32) -> Result<usize> {
    check_headers(how)?;
    let file = lookup(fd)?;
    let mut header: Msghdr = UserPtr::new(message).read()?;
    let count = receive_header(&file, &mut header, how, false)?;
    UserPtr::new(message).write(&header)?;
    Ok(count)
}

fn receive_header(
    file: &OpenFile,
    header: &mut Msghdr,
    how: u32,
    dont_wait: bool,
) -> Result<usize> {
    let socket = socket_of(file)?;
    let pieces = message_vector(header)?;
    let nonblocking = file.nonblocking() || dont_wait || how & flags::DONTWAIT != 0;
    let mut incoming = socket.receive(&mut Output::vector(&pieces), how, nonblocking)?;
    header.msg_flags = how & flags::CMSG_CLOEXEC;
    if incoming.truncated {
        header.msg_flags |= flags::TRUNC;
    }
    if incoming.urgent {
        header.msg_flags |= flags::OOB;
    }
    if header.msg_name != 0 {
        let bytes = match &incoming.from {
            Some(Some(name)) => address::to_bytes(Some(name)),
            _ => Vec::new(),
        };
        let room = usize::try_from(header.msg_namelen).map_err(|_| Errno::EINVAL)?;
        user::copy_out(header.msg_name as usize, &bytes[..bytes.len().min(room)])?;
        header.msg_namelen = bytes.len() as i32;
    }
    let sender = incoming.sender.filter(|_| socket.passes_credentials());
    let files = core::mem::take(&mut incoming.descriptors);
    control::write(header, sender, files, how & flags::CMSG_CLOEXEC != 0)?;
    Ok(if how & flags::TRUNC != 0 { incoming.full } else { incoming.count })
}

/// recvmmsg(2).
pub fn recvmmsg(fd: i32, messages: usize, count: u32, how: u32, timeout: usize) -> Result<usize> {
    const MSG_WAITFORONE: u32 = 0x10000;
    check_headers(how)?;
    let file = lookup(fd)?;
    let deadline = match UserPtr::<Timespec>::new(timeout).optional() {
        None => None,
        Some(pointer) => {
            let span = pointer.read()?.to_nanos()?;
            Some(crate::schedule::time::monotonic_ns().saturating_add(span))
        }
    };
    let mut received = 0;
    for index in 0..(count as usize).min(PIECES_MAX) {
        let at = messages + index * size_of::<Mmsghdr>();
        let later = received > 0 && how & MSG_WAITFORONE != 0;
        let result = UserPtr::<Mmsghdr>::new(at).read().and_then(|mut message| {
            let count = receive_header(&file, &mut message.msg_hdr, how & !MSG_WAITFORONE, later)?;
            message.msg_len = count as u32;
            UserPtr::<Mmsghdr>::new(at).write(&message)
        });
        match result {
            Ok(()) => received += 1,
            Err(_) if received > 0 => break,
            Err(error) => return Err(error),
        }
        // As on Linux, the time is checked only between messages (recvmmsg(2), BUGS).
        if deadline.is_some_and(|deadline| crate::schedule::time::monotonic_ns() >= deadline) {
            break;
        }
    }
    Ok(received)
}

/// shutdown(2).
pub fn shutdown(fd: i32, how: i32) -> Result<()> {
    let file = lookup(fd)?;
    let endpoint = socket_of(&file)?.endpoint();
    let (receiving, sending) = match how {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    endpoint.shut_down(receiving, sending);
    Ok(())
}
