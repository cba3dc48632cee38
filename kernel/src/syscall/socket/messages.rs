//! Sending and receiving: sendto(2), sendmsg(2), recvfrom(2), recvmsg(2) and their relatives.

use alloc::vec::Vec;

use hayate_abi::socket::{Mmsghdr, Msghdr};
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserBytes, UserPtr};

use super::super::control;
use super::super::control::{Control, Received};
use super::super::file::io::{PIECES_MAX, vector};
use super::super::file::raise_broken_pipe;
use super::address;
use super::descriptor::{lookup, socket_of};
use crate::process::numbers;
use crate::vfs::open_file::OpenFile;
use crate::vfs::socket::{ADDRESS_LENGTH, AddressBytes, OutgoingMessage, flags};
use crate::vfs::socket_options::Switches;
use crate::vfs::transfer::{Input, Output};

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
    let address = if at == 0 { None } else { Some(address::read(at, length)?) };
    send(&file, &mut input, address, how, Control::default())
}

fn send(
    file: &OpenFile,
    input: &mut Input<'_>,
    address: Option<AddressBytes>,
    how: u32,
    control: Control,
) -> Result<usize> {
    let socket = socket_of(file)?;
    let message = OutgoingMessage {
        to: address.as_deref(),
        flags: how,
        nonblocking: file.nonblocking() || how & flags::DONTWAIT != 0,
        descriptors: control.descriptors,
        claimed: control.claimed,
        control: control.others,
    };
    let outcome = socket.send(input, message);
    if outcome == Err(Errno::EPIPE) && how & flags::NOSIGNAL == 0 {
        raise_broken_pipe(file);
    }
    outcome
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
    let address = match (header.msg_name, name_room(header)?) {
        (0, _) | (_, 0) => None,
        (at, length) => Some(address::read(at as usize, length as u32)?),
    };
    let control = control::parse(header, socket_of(file)?.ancillary())?;
    send(file, &mut Input::vector(&pieces), address, how, control)
}

/// Returns the size of the memory for an address, cut to that of the longest (`__copy_msghdr`).
fn name_room(header: &Msghdr) -> Result<usize> {
    let room = usize::try_from(header.msg_namelen).map_err(|_| Errno::EINVAL)?;
    Ok(room.min(ADDRESS_LENGTH))
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
    address::write(&incoming.from, at, length)?;
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
    header.msg_flags = how & flags::CMSG_CLOEXEC | incoming.flags;
    if header.msg_name != 0 {
        let room = name_room(header)?;
        let from = &incoming.from;
        user::copy_out(header.msg_name as usize, &from[..from.len().min(room)])?;
        header.msg_namelen = from.len() as i32;
    }
    if !socket.common().has(Switches::PASS_CREDENTIALS) {
        incoming.credentials = None;
    }
    let received = Received {
        credentials: incoming.credentials.map(numbers::shown_identity),
        files: core::mem::take(&mut incoming.descriptors),
        others: core::mem::take(&mut incoming.control),
    };
    control::write(header, received, how & flags::CMSG_CLOEXEC != 0)?;
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
