//! Options of sockets: getsockopt(2), setsockopt(2), socket(7).
//!
//! Those of the level `SOL_SOCKET` that mean the same for every family are set and read here, as
//! `sk_setsockopt` and `sk_getsockopt` of Linux do (net/core/sock.c); all others are the family's.
//! A family is asked before the options whose effect is its own (from `set_late` on): one that
//! reaches these has no effect in that family on Linux either, beyond that of [`Common`].

use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::socket::{Linger, Ucred};
use hayate_abi::time::Timeval;
use hayate_abi::{Errno, Result};
use zerocopy::IntoBytes;

use super::descriptor::{lookup, socket_of};
use crate::credentials::Capability;
use crate::process::numbers;
use crate::vfs::caller;
use crate::vfs::socket::{
    SO_TIMESTAMP, SO_TIMESTAMP_NEW, SO_TIMESTAMPING, SO_TIMESTAMPING_NEW, SO_TIMESTAMPNS,
    SO_TIMESTAMPNS_NEW, SocketOps, timestamping,
};
use crate::vfs::socket_options::{Buffer, Common, OptionOutput, OptionValue, SOL_SOCKET, Switches};

const SO_DEBUG: i32 = 1;
const SO_REUSEADDR: i32 = 2;
const SO_TYPE: i32 = 3;
const SO_ERROR: i32 = 4;
const SO_DONTROUTE: i32 = 5;
const SO_BROADCAST: i32 = 6;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const SO_KEEPALIVE: i32 = 9;
const SO_OOBINLINE: i32 = 10;
const SO_NO_CHECK: i32 = 11;
const SO_PRIORITY: i32 = 12;
const SO_LINGER: i32 = 13;
const SO_BSDCOMPAT: i32 = 14;
const SO_REUSEPORT: i32 = 15;
const SO_PASSCRED: i32 = 16;
const SO_PEERCRED: i32 = 17;
const SO_RCVLOWAT: i32 = 18;
const SO_SNDLOWAT: i32 = 19;
const SO_RCVTIMEO: i32 = 20;
const SO_SNDTIMEO: i32 = 21;
const SO_PEERNAME: i32 = 28;
const SO_ACCEPTCONN: i32 = 30;
const SO_SNDBUFFORCE: i32 = 32;
const SO_RCVBUFFORCE: i32 = 33;
const SO_PASSSEC: i32 = 34;
const SO_MARK: i32 = 36;
const SO_PROTOCOL: i32 = 38;
const SO_DOMAIN: i32 = 39;
const SO_RXQ_OVFL: i32 = 40;
const SO_PEEK_OFF: i32 = 42;
const SO_INCOMING_CPU: i32 = 49;
const SO_COOKIE: i32 = 57;
/// The timeouts with 64 bits for seconds wherever a program runs: on this machine the same bytes.
const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;

/// setsockopt(2).
pub fn setsockopt(fd: i32, level: i32, option: i32, value: usize, length: u32) -> Result<()> {
    let file = lookup(fd)?;
    let socket = socket_of(&file)?;
    if i32::try_from(length).is_err() {
        return Err(Errno::EINVAL);
    }
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
        SO_PASSSEC => Switches::PASS_SECURITY,
        _ => return None,
    })
}

/// Switches that a family may treat in its own way.
fn late_switch_of(option: i32) -> Option<Switches> {
    Some(match option {
        SO_DEBUG => Switches::DEBUG,
        SO_DONTROUTE => Switches::ON_LINK,
        SO_NO_CHECK => Switches::NO_CHECKSUM,
        SO_RXQ_OVFL => Switches::LOST,
        _ => return None,
    })
}

/// Options that report the time of each message: the switch, and whether the option is a `*_NEW`.
fn times_of(option: i32) -> Option<(Switches, bool)> {
    Some(match option {
        SO_TIMESTAMP => (Switches::TIMESTAMP, false),
        SO_TIMESTAMPNS => (Switches::TIMESTAMP_NS, false),
        SO_TIMESTAMP_NEW => (Switches::TIMESTAMP, true),
        SO_TIMESTAMPNS_NEW => (Switches::TIMESTAMP_NS, true),
        _ => return None,
    })
}

/// Options that are one number.
fn number_of(common: &Common, option: i32) -> Option<&AtomicU32> {
    Some(match option {
        SO_PRIORITY => &common.priority,
        SO_MARK => &common.mark,
        SO_RCVLOWAT => &common.low_water,
        SO_INCOMING_CPU => &common.processor,
        _ => return None,
    })
}

fn timeout_of(option: i32) -> Option<Buffer> {
    match option {
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => Some(Buffer::Receive),
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => Some(Buffer::Send),
        _ => None,
    }
}

fn buffer_of(option: i32) -> Option<Buffer> {
    match option {
        SO_RCVBUF | SO_RCVBUFFORCE => Some(Buffer::Receive),
        SO_SNDBUF | SO_SNDBUFFORCE => Some(Buffer::Send),
        _ => None,
    }
}

/// Sets an option of `SOL_SOCKET`.
fn set(socket: &dyn SocketOps, option: i32, value: OptionValue) -> Result<()> {
    if let Some(switch) = switch_of(option) {
        let on = value.number()? != 0;
        let before = socket.common().has(switch);
        socket.common().switch(switch, on);
        socket.switched(switch).inspect_err(|_| socket.common().switch(switch, before))?;
    } else if let Some(which) = timeout_of(option) {
        let span = value.read::<Timeval>()?.to_nanos().map_err(|_| Errno::EDOM)?;
        socket.common().timeout(which).store(span, Ordering::Relaxed);
    } else if let Some(which) = buffer_of(option) {
        let asked = value.number()?;
        let size = if matches!(option, SO_SNDBUFFORCE | SO_RCVBUFFORCE) {
            caller::require(Capability::NetAdmin)?;
            which.forced(asked)
        } else {
            which.granted(asked)
        };
        socket.set_buffer_size(which, size);
    } else {
        match socket.set_option(SOL_SOCKET, option, value) {
            Err(Errno::ENOPROTOOPT) => return set_late(socket, option, value),
            outcome => return outcome,
        }
    }
    Ok(())
}

/// Sets an option that the family does not treat in its own way.
fn set_late(socket: &dyn SocketOps, option: i32, value: OptionValue) -> Result<()> {
    let common = socket.common();
    // As in `sk_setsockopt`, the number is read before the option is looked at.
    let number = value.number()?;
    let on = number != 0;
    let is_administrator = || caller::has(Capability::NetAdmin);
    let owner = &common.network().owner;
    let may = |capability| caller::require_in(owner, capability).is_ok();
    let may_mark = || may(Capability::NetRaw) || may(Capability::NetAdmin);
    match option {
        SO_DEBUG if on && !is_administrator() => return Err(Errno::EACCES),
        SO_PRIORITY if !(0..=6).contains(&number) && !may_mark() => return Err(Errno::EPERM),
        SO_MARK if !may_mark() => return Err(Errno::EPERM),
        // Only families of the Internet have ports.
        SO_REUSEPORT if on => return Err(Errno::EOPNOTSUPP),
        SO_REUSEPORT | SO_BSDCOMPAT => return Ok(()),
        SO_LINGER => return set_linger(common, value),
        SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
            set_timestamping(common, value, number as u32)?;
            common.switch(Switches::NEW_TIMES, option == SO_TIMESTAMPING_NEW);
            return Ok(());
        }
        SO_PEEK_OFF => {
            check_peek_offset(socket)?;
            common.set_peek_off(number);
            return Ok(());
        }
        _ => {}
    }
    if let Some((switch, is_new)) = times_of(option) {
        common.switch_timestamps(switch, on);
        if on {
            common.switch(Switches::NEW_TIMES, is_new);
        }
    } else if let Some(switch) = late_switch_of(option) {
        common.switch(switch, on);
    } else if let Some(place) = number_of(common, option) {
        let number = match (option, number) {
            // A negative one is a very large one, 0 means 1 (`sk_setsockopt`).
            (SO_RCVLOWAT, ..=-1) => i32::MAX,
            (SO_RCVLOWAT, 0) => 1,
            _ => number,
        };
        place.store(number as u32, Ordering::Relaxed);
    } else {
        return Err(Errno::ENOPROTOOPT);
    }
    Ok(())
}

/// SO_PEEK_OFF is an option of some families only.
fn check_peek_offset(socket: &dyn SocketOps) -> Result<()> {
    if socket.has_peek_offset() { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

fn set_linger(common: &Common, value: OptionValue) -> Result<()> {
    let linger: Linger = value.read()?;
    if linger.l_onoff != 0 {
        common.linger.store(linger.l_linger as u32, Ordering::Relaxed);
    }
    common.switch(Switches::LINGER, linger.l_onoff != 0);
    Ok(())
}

/// SO_TIMESTAMPING: flags alone, or `struct so_timestamping` (`sock_set_timestamping`). Times of
/// sent packets are not reported, so their flags are refused, and with them the number of a
/// device's clock; flags about the times of devices are heeded, but none has a clock.
fn set_timestamping(common: &Common, value: OptionValue, flags: u32) -> Result<()> {
    /// SOF_TIMESTAMPING_MASK of Linux 6.1.
    const ALL: u32 = 0xffff;
    /// TX_SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_STATS and BIND_PHC.
    const NOT_THERE: u32 = 2 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 12 | 1 << 15;
    let flags = match value.length {
        TIMESTAMPING => value.read::<[u32; 2]>()?[0],
        _ => flags,
    };
    if flags & !ALL != 0 || flags & NOT_THERE != 0 {
        return Err(Errno::EINVAL);
    }
    common.timestamping.store(flags, Ordering::Relaxed);
    common.switch(Switches::TIMES, flags & timestamping::RX_SOFTWARE != 0);
    Ok(())
}

/// `sizeof(struct so_timestamping)`: the flags, and the number of a device's clock.
const TIMESTAMPING: usize = 8;

/// Gets an option of `SOL_SOCKET`.
fn get(socket: &dyn SocketOps, option: i32, out: OptionOutput) -> Result<()> {
    // As in `sk_getsockopt`, before anything else: a pending error must not be lost.
    out.room()?;
    if let Some(switch) = switch_of(option) {
        return out.put_number(i32::from(socket.common().has(switch)));
    }
    if let Some(which) = timeout_of(option) {
        let span = socket.common().timeout(which).load(Ordering::Relaxed);
        return out.put(Timeval::from_nanos(span).as_bytes());
    }
    if let (SO_SNDBUF | SO_RCVBUF, Some(which)) = (option, buffer_of(option)) {
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
            let peer = socket.peer_credentials().map_or(nobody, numbers::shown_identity);
            out.put(peer.as_bytes())
        }
        SO_PEERNAME => get_peer_name(socket, out),
        SO_COOKIE if out.room()? < size_of::<u64>() => Err(Errno::EINVAL),
        SO_COOKIE => out.put(&socket.cookie().to_ne_bytes()),
        _ => match socket.get_option(SOL_SOCKET, option, out) {
            Err(Errno::ENOPROTOOPT) => get_late(socket, option, out),
            outcome => outcome,
        },
    }
}

/// Gets an option that the family does not treat in its own way.
fn get_late(socket: &dyn SocketOps, option: i32, out: OptionOutput) -> Result<()> {
    let common = socket.common();
    if let Some(switch) = late_switch_of(option) {
        return out.put_number(i32::from(common.has(switch)));
    }
    if let Some((switch, is_new)) = times_of(option) {
        // The form of another number reads as switched off.
        let either = Switches::TIMESTAMP.union(Switches::TIMESTAMP_NS);
        let on = match option {
            // Linux does not ask here in which unit (`sk_getsockopt`).
            SO_TIMESTAMP_NEW => common.has(either),
            _ => common.has(switch),
        };
        let on = on && common.has(Switches::NEW_TIMES) == is_new;
        return out.put_number(i32::from(on));
    }
    if let Some(place) = number_of(common, option) {
        return out.put_number(place.load(Ordering::Relaxed) as i32);
    }
    match option {
        SO_LINGER => {
            let l_onoff = i32::from(common.has(Switches::LINGER));
            let l_linger = common.linger.load(Ordering::Relaxed) as i32;
            out.put(Linger { l_onoff, l_linger }.as_bytes())
        }
        // SO_TIMESTAMPING_NEW cannot be read (`sk_getsockopt` of Linux 6.1).
        SO_TIMESTAMPING => {
            let flags = common.timestamping.load(Ordering::Relaxed);
            out.put([flags, 0].as_bytes())
        }
        SO_REUSEPORT | SO_BSDCOMPAT => out.put_number(0),
        SO_PEEK_OFF => {
            check_peek_offset(socket)?;
            out.put_number(common.peek_off())
        }
        SO_SNDLOWAT => out.put_number(1),
        _ => Err(Errno::ENOPROTOOPT),
    }
}

/// SO_PEERNAME: as getpeername(2), but the program may not have room for more than there is.
fn get_peer_name(socket: &dyn SocketOps, out: OptionOutput) -> Result<()> {
    let name = socket.peer_name().map_err(|_| Errno::ENOTCONN)?;
    if name.len() < out.room()? {
        return Err(Errno::EINVAL);
    }
    out.put(&name)
}
