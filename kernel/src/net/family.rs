//! socket(2) for AF_INET and AF_INET6 (`inet_create`, net/ipv4/af_inet.c of Linux 6.1).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_ip::header::{ICMP, ICMP_V6, TCP, UDP};
use hayate_ip::socket_address::{INET, INET6};

use super::datagram::{self, Protocol};
use super::tcp;
use crate::credentials::Capability;
use crate::vfs::caller;
use crate::vfs::open_file::FileOps;
use crate::vfs::socket::kinds;
use crate::vfs::socket_family::{self, Family, no_pair};

/// `IPPROTO_MAX` of Linux 6.1.
const PROTOCOLS: i32 = 263;
/// `SOCK_PACKET`: a packet socket, as Linux 2.0 had them (`__sock_create`, net/socket.c).
const OLD_PACKET: i32 = 10;
/// The number of types of sockets that have a name (`SOCK_MAX`).
const TYPES: i32 = 11;

/// Registers both families; at boot.
pub(super) fn register() {
    socket_family::register_interfaces(super::ioctl::interface);
    socket_family::register(Family { number: INET, create: create_v4, pair: no_pair });
    socket_family::register(Family { number: INET6, create: create_v6, pair: no_pair });
}

fn create_v4(kind: i32, protocol: i32) -> Result<Arc<dyn FileOps>> {
    create(kind, protocol, false)
}

fn create_v6(kind: i32, protocol: i32) -> Result<Arc<dyn FileOps>> {
    create(kind, protocol, true)
}

fn create(kind: i32, protocol: i32, v6: bool) -> Result<Arc<dyn FileOps>> {
    if !(0..TYPES).contains(&kind) || !(0..PROTOCOLS).contains(&protocol) {
        return Err(Errno::EINVAL);
    }
    let echo = i32::from(if v6 { ICMP_V6 } else { ICMP });
    match kind {
        kinds::STREAM if protocol == 0 || protocol == i32::from(TCP) => Ok(tcp::Socket::new(v6)?),
        kinds::DATAGRAM if protocol == 0 || protocol == i32::from(UDP) => {
            Ok(datagram::Socket::new(Protocol::Udp, v6))
        }
        kinds::DATAGRAM if protocol == echo => {
            let (first, last) = caller::network().settings.ping_groups();
            if !caller::is_in_groups(first, last) {
                return Err(Errno::EACCES);
            }
            Ok(datagram::Socket::new(Protocol::Echo, v6))
        }
        kinds::RAW if protocol != 0 => {
            caller::require_in(&caller::network().owner, Capability::NetRaw)?;
            // IPPROTO_MPTCP is the only number above 255, and has no raw sockets.
            let number = u8::try_from(protocol).map_err(|_| Errno::EPROTONOSUPPORT)?;
            Ok(datagram::Socket::new_raw(number, v6)?)
        }
        OLD_PACKET if !v6 => {
            caller::require_in(&caller::network().owner, Capability::NetRaw)?;
            Err(Errno::ESOCKTNOSUPPORT)
        }
        kinds::STREAM | kinds::DATAGRAM | kinds::RAW => Err(Errno::EPROTONOSUPPORT),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}
