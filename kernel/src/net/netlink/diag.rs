//! NETLINK_SOCK_DIAG (sock_diag(7)): lists of sockets, which `ss` shows (`__sock_diag_cmd` of
//! net/core/sock_diag.c, net/ipv4/inet_diag.c and net/unix/diag.c of Linux 6.1).
//!
//! Not there, and so refused with EOPNOTSUPP: the question for one socket, programs that select
//! sockets (INET_DIAG_REQ_BYTECODE; `ss` selects itself too), ending a connection from outside, and
//! what requests call extensions, such as INET_DIAG_INFO, which answers leave out.

use hayate_abi::{Errno, Result};
use hayate_netlink::diag::{BY_FAMILY, DESTROY, InetAsked, UnixAsked};
use hayate_netlink::message::{Request, flag};

use super::asking::{Asking, Outcome};
use super::dump::{Dump, List};
use super::provider::provider;
use crate::credentials::Capability;
use crate::vfs::caller;

const UNIX: u8 = 1;
const INET: u8 = 2;
const INET6: u8 = 10;

/// Carries out a request.
pub fn handle(asking: &Asking<'_>, request: &Request<'_>) -> Result<Outcome> {
    match request.header.kind {
        BY_FAMILY => {}
        DESTROY => {
            caller::require(Capability::NetAdmin)?;
            return Err(Errno::EOPNOTSUPP);
        }
        _ => return Err(Errno::EINVAL),
    }
    let family = *request.body().first().ok_or(Errno::EINVAL)?;
    let list = match family {
        INET | INET6 => {
            let asked = InetAsked::read(request).ok_or(Errno::EINVAL)?;
            if asked.has_program {
                return Err(Errno::EOPNOTSUPP);
            }
            check_dump(request)?;
            List::Sockets(provider()?.sockets(&asked)?)
        }
        UNIX => {
            let asked = UnixAsked::read(request).ok_or(Errno::EINVAL)?;
            if asked.protocol != 0 {
                return Err(Errno::EINVAL);
            }
            check_dump(request)?;
            List::UnixSockets(provider()?.unix_sockets(&asked)?)
        }
        _ => return Err(Errno::ENOENT),
    };
    let header = asking.header(request, BY_FAMILY, flag::MULTI);
    asking.endpoint.begin(Dump::new(list, header))?;
    Ok(Outcome::Dumping)
}

fn check_dump(request: &Request<'_>) -> Result<()> {
    if request.header.flags & flag::DUMP == 0 { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}
