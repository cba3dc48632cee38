//! Options of sockets: getsockopt(2), setsockopt(2), socket(7).

use core::sync::atomic::Ordering;

use hayate_abi::socket::Ucred;
use hayate_abi::time::Timeval;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};

use super::descriptor::{lookup, socket_of};
use crate::ipc::unix::address;
use crate::ipc::unix::endpoint::Kind;
use crate::ipc::unix::socket::Remembered;

const SOL_SOCKET: i32 = 1;
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
    if level != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    let number = || {
        if length < 4 { Err(Errno::EINVAL) } else { UserPtr::<i32>::new(value).read() }
    };
    match option {
        SO_PASSCRED => socket.set_pass_credentials(number()? != 0),
        SO_RCVTIMEO | SO_SNDTIMEO => {
            if (length as usize) < size_of::<Timeval>() {
                return Err(Errno::EINVAL);
            }
            let time: Timeval = UserPtr::new(value).read()?;
            let span = time.to_nanos().map_err(|_| Errno::EDOM)?;
            socket.timeout(option == SO_RCVTIMEO).store(span, Ordering::Relaxed);
        }
        // A negative size is a very large one (sk_setsockopt).
        SO_SNDBUF => {
            socket.endpoint().account.set_send_size(number()? as u32);
            socket.endpoint().writers.wake_all();
        }
        SO_RCVBUF => socket.endpoint().account.set_receive_size(number()? as u32),
        SO_REUSEADDR => socket.remember(Remembered::ReuseAddress, number()? != 0),
        SO_KEEPALIVE => socket.remember(Remembered::KeepAlive, number()? != 0),
        SO_BROADCAST => socket.remember(Remembered::Broadcast, number()? != 0),
        SO_OOBINLINE => socket.remember(Remembered::UrgentInline, number()? != 0),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// getsockopt(2).
pub fn getsockopt(fd: i32, level: i32, option: i32, value: usize, length: usize) -> Result<()> {
    let file = lookup(fd)?;
    let socket = socket_of(&file)?;
    if level != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    let endpoint = socket.endpoint();
    let number = match option {
        SO_TYPE => match endpoint.kind {
            Kind::Stream => 1,
            Kind::Datagram => 2,
            Kind::Packet => 5,
        },
        SO_ERROR => endpoint.take_error().map_or(0, Errno::number),
        SO_PASSCRED => i32::from(socket.passes_credentials()),
        SO_ACCEPTCONN => i32::from(endpoint.listens()),
        SO_DOMAIN => i32::from(address::FAMILY),
        SO_PROTOCOL => 0,
        SO_REUSEADDR => i32::from(socket.remembers(Remembered::ReuseAddress)),
        SO_KEEPALIVE => i32::from(socket.remembers(Remembered::KeepAlive)),
        SO_BROADCAST => i32::from(socket.remembers(Remembered::Broadcast)),
        SO_OOBINLINE => i32::from(socket.remembers(Remembered::UrgentInline)),
        SO_SNDBUF => endpoint.account.send_size() as i32,
        SO_RCVBUF => endpoint.account.receive_size() as i32,
        SO_PEERCRED => {
            let nobody = Ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
            let credentials = endpoint.peer_credentials().unwrap_or(nobody);
            return put_option(zerocopy::IntoBytes::as_bytes(&credentials), value, length);
        }
        SO_RCVTIMEO | SO_SNDTIMEO => {
            let span = socket.timeout(option == SO_RCVTIMEO).load(Ordering::Relaxed);
            let time = Timeval::from_nanos(span);
            return put_option(zerocopy::IntoBytes::as_bytes(&time), value, length);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    };
    put_option(&number.to_ne_bytes(), value, length)
}

fn put_option(bytes: &[u8], value: usize, length: usize) -> Result<()> {
    let room = UserPtr::<i32>::new(length).read()?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let count = bytes.len().min(room);
    user::copy_out(value, &bytes[..count])?;
    UserPtr::<i32>::new(length).write(&(count as i32))
}
