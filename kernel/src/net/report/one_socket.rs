//! One socket of the Internet, asked for by its name, and its end from outside (SOCK_DESTROY;
//! `inet_diag_cmd_exact`, `udp_dump_one`, `raw_diag_dump_one` of Linux 6.1).

use alloc::sync::Arc;
use core::net::IpAddr;

use hayate_abi::{Errno, Result};
use hayate_ip::{SocketAddress, header};
use hayate_netlink::diag::{InetAsked, InetSocket};

use super::super::config::Network;
use super::super::{datagram, tcp};
use super::sockets;
use super::sockets::RAW;

const INET: u8 = 2;
const INET6: u8 = 10;

/// A socket that was found.
enum Found {
    /// A stream socket; without one the remnant of a connection.
    Stream(tcp::Shown, Option<Arc<tcp::Socket>>),
    Datagram(Arc<datagram::Socket>),
}

/// Returns the socket that is asked for.
///
/// # Errors
/// `ENOENT`; `ESTALE` for a datagram socket whose cookie is another; `EINVAL` for another family.
pub(super) fn find(network: &Network, asked: &InetAsked<'_>) -> Result<InetSocket> {
    // UDP takes the two names the other way about, "for historical reasons" (`udp_dump_one`).
    let mut names = *asked;
    if asked.protocol == header::UDP {
        (names.local, names.remote) = (asked.remote, asked.local);
    }
    Ok(match look_up(network, &names)? {
        Found::Stream(shown, source) => {
            let mut socket = sockets::stream(&shown, source.as_deref());
            sockets::add_numbers(&mut socket, source.as_deref(), asked);
            socket
        }
        Found::Datagram(source) => sockets::datagram(&source, asked.protocol == RAW),
    })
}

/// Ends the socket that is asked for, if `may` allows it.
///
/// # Errors
/// Those of [`find`] and `may`; `EOPNOTSUPP` for the remnant of a connection; `ENOMEM`.
pub(super) fn destroy(
    network: &Network,
    asked: &InetAsked<'_>,
    may: fn(&Network) -> Result<()>,
) -> Result<()> {
    let found = look_up(network, asked)?;
    may(network)?;
    match found {
        Found::Stream(_, Some(socket)) => socket.destroy(),
        Found::Stream(_, None) => return Err(Errno::EOPNOTSUPP),
        Found::Datagram(socket) => socket.destroy()?,
    }
    Ok(())
}

fn name((address, port): (IpAddr, u16)) -> SocketAddress {
    SocketAddress::new(address.into(), port)
}

fn look_up(network: &Network, asked: &InetAsked<'_>) -> Result<Found> {
    if !matches!(asked.family, INET | INET6) {
        return Err(Errno::EINVAL);
    }
    let (local, remote) = (name(asked.local), name(asked.remote));
    match asked.protocol {
        header::TCP => {
            let ends = tcp::Ends { network: network.key, local, remote };
            tcp::find_shown(ends, asked.interface)
                .filter(|(shown, _)| asked.is_cookie(shown.cookie))
                .map(|(shown, socket)| Found::Stream(shown, socket))
                .ok_or(Errno::ENOENT)
        }
        header::UDP => {
            let (place, to) = ((network.key, local.port), local.address);
            datagram::find(&datagram::UDP, place, to, remote, asked.interface)
                .ok_or(Errno::ENOENT)
                .and_then(|socket| check_cookie(asked, socket))
        }
        RAW => raw(network, asked, local, remote),
        _ => Err(Errno::ENOENT),
    }
}

fn check_cookie(asked: &InetAsked<'_>, socket: Arc<datagram::Socket>) -> Result<Found> {
    let is_it = asked.is_cookie(socket.shown().cookie);
    if is_it { Ok(Found::Datagram(socket)) } else { Err(Errno::ESTALE) }
}

/// Finds the first raw socket that would get a packet of the protocol with these addresses.
fn raw(
    network: &Network,
    asked: &InetAsked<'_>,
    local: SocketAddress,
    remote: SocketAddress,
) -> Result<Found> {
    let mut found = None;
    datagram::RAW.for_each(network.key, |socket| {
        let shown = socket.shown();
        let own = shown.local;
        let is_local = own.address.is_any() || own.address == local.address;
        let is_remote = shown.remote.is_none_or(|peer| peer.address == remote.address);
        let is_near = shown.interface == 0 || shown.interface == asked.interface;
        let is_it = shown.v6 == (asked.family == INET6) && own.port == u16::from(asked.raw);
        if found.is_none() && is_it && is_local && is_remote && is_near {
            found = Some(Arc::clone(socket));
        }
        Ok(())
    })?;
    check_cookie(asked, found.ok_or(Errno::ENOENT)?)
}
