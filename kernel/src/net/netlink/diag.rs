//! NETLINK_SOCK_DIAG (sock_diag(7)): lists of sockets, one socket, and its end from outside; `ss`
//! asks this way (`__sock_diag_cmd` of net/core/sock_diag.c, net/ipv4/inet_diag.c and
//! net/unix/diag.c of Linux 6.1).
//!
//! Not there: packet and netlink sockets (ENOENT, as on a Linux without their modules; `ss` reads
//! `/proc/net` for these), and of sockets of the Unix domain the inode of a path and the
//! connections that wait (UDIAG_SHOW_VFS, UDIAG_SHOW_ICONS), which answers leave out.

use hayate_abi::{Errno, Result};
use hayate_netlink::diag::{BY_FAMILY, DESTROY, Extent, InetAsked, UnixAsked};
use hayate_netlink::filter::{Fault, Filter};
use hayate_netlink::message::{Request, flag};

use super::asking::{Asking, Outcome};
use super::dump::{Dump, List};
use super::provider::provider;
use crate::credentials::Capability;
use crate::net::config::Network;
use crate::vfs::caller;

const UNIX: u8 = 1;
const INET: u8 = 2;
const INET6: u8 = 10;
/// `AF_MAX` of Linux 6.1.
const FAMILIES: u8 = 46;
/// The most bytes of an answer about one socket: its fixed part, and each attribute once.
const ANSWER: usize = 1024;

/// Carries out a request.
pub fn handle(asking: &Asking<'_>, request: &Request<'_>) -> Result<Outcome> {
    if !matches!(request.header.kind, BY_FAMILY | DESTROY) {
        return Err(Errno::EINVAL);
    }
    match *request.body().first().ok_or(Errno::EINVAL)? {
        INET | INET6 => internet(asking, request),
        UNIX => unix_domain(asking, request),
        FAMILIES.. => Err(Errno::EINVAL),
        _ => Err(Errno::ENOENT),
    }
}

fn internet(asking: &Asking<'_>, request: &Request<'_>) -> Result<Outcome> {
    let network = &*asking.endpoint.network;
    let asked = InetAsked::read(request).ok_or(Errno::EINVAL)?;
    if request.header.kind == DESTROY {
        return provider()?.destroy(network, &asked, require_administrator).map(|()| Outcome::Done);
    }
    let is_administrator = require_administrator(network).is_ok();
    let extent = Extent::of(&asked, is_administrator);
    if !is_dump(request) {
        let socket = provider()?.socket(network, &asked)?;
        let header = asking.header(request, BY_FAMILY, 0);
        asking.answer(ANSWER, |writer| socket.write(writer, header, extent))?;
        return Ok(Outcome::Done);
    }
    let filter = match asked.program {
        Some(program) => Filter::check(program, is_administrator).map_err(|fault| match fault {
            Fault::Invalid => Errno::EINVAL,
            Fault::NotAllowed => Errno::EPERM,
            Fault::NoMemory => Errno::ENOMEM,
        })?,
        None => Filter::default(),
    };
    let sockets = provider()?.sockets(network, &asked, &filter)?;
    begin(asking, request, List::Sockets(sockets, extent))
}

/// Checks the right to administer a network namespace (`netlink_net_capable`): EPERM.
fn require_administrator(network: &Network) -> Result<()> {
    caller::require_in(&network.owner, Capability::NetAdmin)
}

fn unix_domain(asking: &Asking<'_>, request: &Request<'_>) -> Result<Outcome> {
    if request.header.kind == DESTROY {
        return Err(Errno::EOPNOTSUPP);
    }
    let asked = UnixAsked::read(request).ok_or(Errno::EINVAL)?;
    if asked.protocol != 0 {
        return Err(Errno::EINVAL);
    }
    let network = &*asking.endpoint.network;
    if is_dump(request) {
        let sockets = provider()?.unix_sockets(network, &asked)?;
        return begin(asking, request, List::UnixSockets(sockets));
    }
    if asked.inode == 0 {
        return Err(Errno::EINVAL);
    }
    let socket = provider()?.unix_socket(network, &asked)?;
    let header = asking.header(request, BY_FAMILY, 0);
    asking.answer(ANSWER, |writer| socket.write(writer, header))?;
    Ok(Outcome::Done)
}

fn begin(asking: &Asking<'_>, request: &Request<'_>, list: List) -> Result<Outcome> {
    let header = asking.header(request, BY_FAMILY, flag::MULTI);
    asking.endpoint.begin(Dump::new(list, header))?;
    Ok(Outcome::Dumping)
}

fn is_dump(request: &Request<'_>) -> bool {
    request.header.flags & flag::DUMP != 0
}
