//! Sockets in the words of sock_diag(7).

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::{SocketAddress, header};
use hayate_netlink::diag::{InetAsked, InetSocket, Name, UnixAsked, UnixSocket, show};

use super::super::datagram::Shown as Datagrams;
use super::super::ports::Ports;
use super::super::{datagram, tcp};
use crate::ipc::unix::address;
use crate::ipc::unix::endpoint::{self, Endpoint};
use crate::reclaim::growth;
use crate::schedule::time::monotonic_ns;

const INET: u8 = 2;
const INET6: u8 = 10;
/// Linux' numbers of states.
const ESTABLISHED: u8 = 1;
const CLOSE: u8 = 7;
/// `IPPROTO_RAW`, which stands for raw sockets of every protocol.
const RAW: u8 = 255;
const MILLISECOND: u64 = 1_000_000;

fn family(v6: bool) -> u8 {
    if v6 { INET6 } else { INET }
}

fn name(address: SocketAddress) -> (IpAddr, u16) {
    (address.address.into(), address.port)
}

fn clip(number: usize) -> u32 {
    number.min(u32::MAX as usize) as u32
}

/// Returns the sockets of the Internet that are asked for.
///
/// # Errors
/// `ENOENT` for a protocol that is not known, `ENOMEM`.
pub(super) fn of_internet(asked: &InetAsked) -> Result<Vec<InetSocket>> {
    match asked.protocol {
        header::TCP => streams(asked),
        header::UDP => datagrams(asked, &datagram::UDP, false),
        RAW => datagrams(asked, &datagram::RAW, true),
        _ => Err(Errno::ENOENT),
    }
}

fn streams(asked: &InetAsked) -> Result<Vec<InetSocket>> {
    let (now, mut list) = (monotonic_ns(), Vec::new());
    tcp::for_each_shown(|shown| {
        let (local, remote) = (shown.ends.local, shown.ends.remote);
        if !asked.wants(family(shown.v6), shown.state, local.port, remote.port) {
            return Ok(());
        }
        let due = shown.timer_at.saturating_sub(now) / MILLISECOND;
        let socket = InetSocket {
            family: family(shown.v6),
            state: shown.state,
            timer: shown.timer,
            expires: if shown.timer == 0 { 0 } else { clip(due as usize) },
            // The count of probes where these are what the timer is for (`inet_sk_diag_fill`).
            retransmits: match shown.timer {
                2 | 4 => shown.probes,
                _ => shown.retransmits,
            }
            .min(255) as u8,
            local: name(local),
            remote: name(remote),
            interface: shown.interface,
            cookie: shown.cookie,
            receiving: clip(shown.receiving),
            sending: clip(shown.sending),
            user: shown.user,
            inode: shown.inode as u32,
            shut_down: shown.shut_down,
            only_v6: shown.only_v6,
            raw: None,
        };
        growth::push(&mut list, socket)
    })?;
    Ok(list)
}

fn datagrams(
    asked: &InetAsked,
    table: &Ports<datagram::Socket>,
    raw: bool,
) -> Result<Vec<InetSocket>> {
    let mut list = Vec::new();
    table.for_each(|socket| {
        let shown = socket.shown();
        let Datagrams { v6, local, .. } = shown;
        let remote = shown.remote.unwrap_or(SocketAddress::new(local.address.wildcard(), 0));
        let state = if shown.remote.is_some() { ESTABLISHED } else { CLOSE };
        // One that is being closed has no port any more.
        if local.port == 0 || !asked.wants(family(v6), state, local.port, remote.port) {
            return Ok(());
        }
        let socket = InetSocket {
            family: family(v6),
            state,
            timer: 0,
            expires: 0,
            retransmits: 0,
            local: name(local),
            remote: name(remote),
            interface: shown.interface,
            cookie: shown.cookie,
            receiving: clip(shown.receiving),
            sending: 0,
            user: shown.user,
            inode: shown.inode as u32,
            shut_down: Some(shown.shut_down),
            only_v6: shown.only_v6,
            raw: raw.then_some(local.port as u8),
        };
        growth::push(&mut list, socket)
    })?;
    Ok(list)
}

/// Returns the sockets of the Unix domain that are asked for.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn of_unix_domain(asked: &UnixAsked) -> Result<Vec<UnixSocket>> {
    let mut list = Vec::new();
    endpoint::ALL.for_each(|endpoint| {
        let socket = unix_socket(endpoint, asked.show);
        if asked.states >> socket.state & 1 == 0 {
            return Ok(());
        }
        growth::push(&mut list, socket)
    })?;
    Ok(list)
}

fn unix_socket(endpoint: &Endpoint, wanted: u32) -> UnixSocket {
    let shown = endpoint.shown();
    let wants = |what: u32| wanted & what != 0;
    let named = shown.name.as_ref().filter(|_| wants(show::NAME)).map(|name| {
        // The name without the family before it; a path also without the zero behind it.
        let bytes = address::to_bytes(Some(name));
        let is_path = matches!(name, address::Name::Path(_));
        let end = bytes.len() - usize::from(is_path);
        bytes[2..end].iter().copied().take(Name::new().capacity()).collect()
    });
    UnixSocket {
        kind: endpoint.kind.number() as u8,
        state: match (shown.listens, shown.peer) {
            (true, _) => tcp::LISTEN,
            (false, Some(_)) => ESTABLISHED,
            (false, None) => CLOSE,
        },
        inode: endpoint.inode.load(Ordering::Relaxed) as u32,
        // It has none (INET_DIAG_NOCOOKIE).
        cookie: u64::MAX,
        name: named,
        peer: shown.peer.filter(|_| wants(show::PEER)).map(|inode| inode as u32),
        queues: wants(show::QUEUES).then(|| [clip(shown.receiving), clip(shown.sending)]),
        user: wants(show::USER).then_some(endpoint.owner.uid),
        shut_down: shown.shut_down,
    }
}
