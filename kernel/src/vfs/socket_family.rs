//! The families of sockets, which register at boot, and the open files of sockets.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Lazy, Once};

use super::anonymous;
use super::attributes::Metadata;
use super::file_count::Counted;
use super::inode::{Attributes, Change, FileKind, Inode};
use super::mount::Mount;
use super::open_file::{FileOps, OpenFile};
use super::registered::Registered;
use super::socket::SocketOps;
use crate::net::config::Network;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

static SOCKFS: Lazy<Arc<Mount>> = Lazy::new(|| anonymous::pseudo("sockfs", 0x534f_434b));

/// Makes the open file of a socket, shown as `socket:[NUMBER]`. It was counted before the socket
/// was made or taken from a queue: nothing has to be undone when too many files are open.
pub fn open(ops: Arc<dyn FileOps>, flags: u32, counted: Counted) -> Result<Arc<OpenFile>> {
    let metadata = Metadata::anonymous(SOCKFS.filesystem().device(), FileKind::Socket, 0o777);
    let number = metadata.number;
    let mut protocol = "";
    if let Some(socket) = ops.as_socket() {
        socket.opened(number);
        protocol = protocol_name(socket);
    }
    let inode = Arc::new(SocketInode { metadata, protocol });
    let shown = alloc::format!("socket:[{number}]");
    let place = anonymous::location(&SOCKFS, shown.as_bytes(), inode);
    OpenFile::counted(ops, place, flags, None, counted)
}

/// The inode of a socket: nothing but metadata, and an attribute that tells its protocol
/// (`sockfs_xattr_handlers`, net/socket.c of Linux 6.1).
struct SocketInode {
    metadata: Metadata,
    protocol: &'static str,
}

/// The attribute, with its zero byte.
const PROTOCOL_NAME: &[u8] = b"system.sockprotoname\0";

impl Inode for SocketInode {
    fn attributes(&self) -> Attributes {
        self.metadata.attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata)
    }

    fn set_metadata(&self, _: &Change) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if PROTOCOL_NAME.strip_suffix(b"\0") != Some(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut value = growth::copy(self.protocol.as_bytes())?;
        value.make_room(1)?;
        value.push(0);
        Ok(value)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        growth::copy(PROTOCOL_NAME)
    }
}

/// The name of a socket's protocol, as Linux has it in `struct proto`.
fn protocol_name(socket: &dyn SocketOps) -> &'static str {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    const NETLINK: u16 = 16;
    const PACKET: u16 = 17;
    const STREAM: i32 = 1;
    const DATAGRAM: i32 = 2;
    const RAW: i32 = 3;
    const ICMP: i32 = 1;
    const ICMPV6: i32 = 58;
    match (socket.family(), socket.kind()) {
        (UNIX, STREAM) => "UNIX-STREAM",
        (UNIX, _) => "UNIX",
        (INET, STREAM) => "TCP",
        (INET, DATAGRAM) if socket.protocol() == ICMP => "PING",
        (INET, DATAGRAM) => "UDP",
        (INET, RAW) => "RAW",
        (INET6, STREAM) => "TCPv6",
        (INET6, DATAGRAM) if socket.protocol() == ICMPV6 => "PINGv6",
        (INET6, DATAGRAM) => "UDPv6",
        (INET6, RAW) => "RAWv6",
        (NETLINK, _) => "NETLINK",
        (PACKET, _) => "PACKET",
        _ => "",
    }
}

/// Answers a request about a network interface (netdevice(7)).
type InterfaceRequest = fn(network: &Network, command: u32, at: usize) -> Result<i64>;

static INTERFACES: Once<InterfaceRequest> = Once::new();

/// Registers the function that answers requests about interfaces; at boot.
pub fn register_interfaces(request: InterfaceRequest) {
    INTERFACES.call_once(|| request);
}

/// Answers a request about an interface of a network namespace, as every socket there does,
/// whatever its family: `ENOTTY` if it is none.
pub fn interface_request(network: &Network, command: u32, at: usize) -> Result<i64> {
    INTERFACES.get().map_or(Err(Errno::ENOTTY), |request| request(network, command, at))
}

/// The operations of two sockets that are connected.
pub type Pair = [Arc<dyn FileOps>; 2];

/// A family of sockets.
pub struct Family {
    /// Its number (`AF_*`).
    pub number: u16,
    /// socket(2): makes a socket of a type (`SOCK_*`, without flags) and a protocol.
    pub create: fn(kind: i32, protocol: i32) -> Result<Arc<dyn FileOps>>,
    /// socketpair(2): makes two that are connected.
    pub pair: fn(kind: i32, protocol: i32) -> Result<Pair>,
}

static FAMILIES: Registered<Family, 8> = Registered::new();

/// Registers a family; at boot.
pub fn register(family: Family) {
    FAMILIES.add(family);
}

/// Finds a family by its number: EAFNOSUPPORT.
pub fn family(number: i32) -> Result<&'static Family> {
    let found = FAMILIES.iter().find(|family| i32::from(family.number) == number);
    found.ok_or(Errno::EAFNOSUPPORT)
}

/// The [`Family::pair`] of a family whose sockets come one by one.
pub fn no_pair(_kind: i32, _protocol: i32) -> Result<Pair> {
    Err(Errno::EOPNOTSUPP)
}
