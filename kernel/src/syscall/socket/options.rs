//! Options of sockets: getsockopt(2), setsockopt(2), socket(7).
//!
//! Those of the level `SOL_SOCKET` that mean the same for every family are set and read here, as
//! `sk_setsockopt` and `sk_getsockopt` of Linux do (net/core/sock.c); all others are the family's.

use core::sync::atomic::Ordering;

use hayate_abi::socket::Ucred;
use hayate_abi::time::Timeval;
use hayate_abi::{Errno, Result};
use zerocopy::IntoBytes;

use super::descriptor::{lookup, socket_of};
use crate::vfs::socket::SocketOps;
use crate::vfs::socket_options::{Buffer, OptionOutput, OptionValue, SOL_SOCKET, Switches};

const SO_REUSEADDR: i32 = 2;
const SO_TYPE: i32 = 3;
const SO_ERROR: i32 = 4;
const SO_BROADCAST: i32 = 6;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const SO_KEEPALIVE: i32 = 9;
const SO_OOBINLINE: i32 = 10;
const SO_PASSCRED: i32 = 16;
const SO_PEERCRED: i32 = 17;
const SO_RCVTIMEO: i32 = 20;
const SO_SNDTIMEO: i32 = 21;
const SO_ACCEPTCONN: i32 = 30;
const SO_PROTOCOL: i32 = 38;
const SO_DOMAIN: i32 = 39;

/// setsockopt(2).
pub fn setsockopt(fd: i32, level: i32, option: i32, value: usize, length: u32) -> Result<()> {
    let file = lookup(fd)?;
    let socket = socket_of(&file)?;
    let value = OptionValue::new(value, length as usize);
    if level == SOL_SOCKET {
        set(socket, option, value)
    } else {
        socket.set_option(level, option, value)
    }
}

/// getsockopt(2).
pub fn getsockopt(fd: i32, level: i32, option: i32, value: usize, length: usize) -> Result<()> {
    let file = lookup(fd)?;
    let socket = socket_of(&file)?;
    let out = OptionOutput::new(value, length);
    if level == SOL_SOCKET {
        get(socket, option, out)
    } else {
        socket.get_option(level, option, out)
    }
}

fn switch_of(option: i32) -> Option<Switches> {
    Some(match option {
        SO_REUSEADDR => Switches::REUSE_ADDRESS,
        SO_KEEPALIVE => Switches::KEEP_ALIVE,
        SO_BROADCAST => Switches::BROADCAST,
        SO_OOBINLINE => Switches::URGENT_INLINE,
        SO_PASSCRED => Switches::PASS_CREDENTIALS,
        _ => return None,
    })
}

fn timeout_of(option: i32) -> Option<Buffer> {
    match option {
        SO_RCVTIMEO => Some(Buffer::Receive),
        SO_SNDTIMEO => Some(Buffer::Send),
        _ => None,
    }
}

fn buffer_of(option: i32) -> Option<Buffer> {
    match option {
        SO_RCVBUF => Some(Buffer::Receive),
        SO_SNDBUF => Some(Buffer::Send),
        _ => None,
    }
}

/// Sets an option of `SOL_SOCKET`.
fn set(socket: &dyn SocketOps, option: i32, value: OptionValue) -> Result<()> {
    if let Some(switch) = switch_of(option) {
        socket.common().switch(switch, value.number()? != 0);
    } else if let Some(which) = timeout_of(option) {
        let span = value.read::<Timeval>()?.to_nanos().map_err(|_| Errno::EDOM)?;
        socket.common().timeout(which).store(span, Ordering::Relaxed);
    } else if let Some(which) = buffer_of(option) {
        socket.set_buffer_size(which, which.granted(value.number()?));
    } else {
        return socket.set_option(SOL_SOCKET, option, value);
    }
    Ok(())
}

/// Gets an option of `SOL_SOCKET`.
fn get(socket: &dyn SocketOps, option: i32, out: OptionOutput) -> Result<()> {
    if let Some(switch) = switch_of(option) {
        return out.put_number(i32::from(socket.common().has(switch)));
    }
    if let Some(which) = timeout_of(option) {
        let span = socket.common().timeout(which).load(Ordering::Relaxed);
        return out.put(Timeval::from_nanos(span).as_bytes());
    }
    if let Some(which) = buffer_of(option) {
        return out.put_number(socket.buffer_size(which) as i32);
    }
    match option {
        SO_TYPE => out.put_number(socket.kind()),
        SO_ERROR => out.put_number(socket.take_error().map_or(0, Errno::number)),
        SO_ACCEPTCONN => out.put_number(i32::from(socket.listens())),
        SO_DOMAIN => out.put_number(i32::from(socket.family())),
        SO_PROTOCOL => out.put_number(socket.protocol()),
        SO_PEERCRED => {
            let nobody = Ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
            out.put(socket.peer_credentials().unwrap_or(nobody).as_bytes())
        }
        _ => socket.get_option(SOL_SOCKET, option, out),
    }
}
