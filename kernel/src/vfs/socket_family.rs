//! The families of sockets, which register at boot, and the open files of sockets.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Lazy, Once};

use super::anonymous;
use super::anonymous::AnonymousInode;
use super::file_count::Counted;
use super::inode::{FileKind, Inode};
use super::mount::Mount;
use super::open_file::{FileOps, OpenFile};
use super::registered::Registered;
use crate::net::config::Network;

static SOCKFS: Lazy<Arc<Mount>> = Lazy::new(|| anonymous::pseudo("sockfs", 0x534f_434b));

/// Makes the open file of a socket, shown as `socket:[NUMBER]`. It was counted before the socket
/// was made or taken from a queue: nothing has to be undone when too many files are open.
pub fn open(ops: Arc<dyn FileOps>, flags: u32, counted: Counted) -> Result<Arc<OpenFile>> {
    let inode = AnonymousInode::new(SOCKFS.filesystem().device(), FileKind::Socket, 0o777);
    let number = inode.metadata()?.number;
    if let Some(socket) = ops.as_socket() {
        socket.opened(number);
    }
    let shown = alloc::format!("socket:[{number}]");
    let place = anonymous::location(&SOCKFS, shown.as_bytes(), inode);
    OpenFile::counted(ops, place, flags, None, counted)
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
