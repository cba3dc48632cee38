//! Sockets in the words of sock_diag(7).

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::{SocketAddress, header};
use hayate_netlink::diag::{
    ANY_COOKIE, InetAsked, InetSocket, Memory, Name, UnixAsked, UnixSocket, show,
};
use hayate_netlink::filter::Filter;

use super::super::config::Network;
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
const SYN_RECEIVED: u8 = 3;
const CLOSE: u8 = 7;
/// `IPPROTO_RAW`, which stands for raw sockets of every protocol.
pub(super) const RAW: u8 = 255;
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
pub(super) fn of_internet(
    network: &Network,
    asked: &InetAsked<'_>,
    filter: &Filter<'_>,
) -> Result<Vec<InetSocket>> {
    match asked.protocol {
        header::TCP => streams(network, asked, filter),
        header::UDP => datagrams(network, asked, filter, &datagram::UDP),
        RAW => datagrams(network, asked, filter, &datagram::RAW),
        _ => Err(Errno::ENOENT),
    }
}

fn streams(
    network: &Network,
    asked: &InetAsked<'_>,
    filter: &Filter<'_>,
) -> Result<Vec<InetSocket>> {
    let mut list = Vec::new();
    tcp::for_each_shown(network, |shown, source| {
        let (local, remote) = (shown.ends.local, shown.ends.remote);
        if !asked.wants(family(shown.v6), shown.state, local.port, remote.port) {
            return Ok(());
        }
        let mut socket = stream(shown, source);
        if !filter.selects(&socket.subject()) {
            return Ok(());
        }
        add_numbers(&mut socket, source, asked);
        growth::push(&mut list, socket)
    })?;
    Ok(list)
}

/// Adds the numbers of TCP_INFO, if they are wanted and it has some.
pub(super) fn add_numbers(
    socket: &mut InetSocket,
    source: Option<&tcp::Socket>,
    asked: &InetAsked<'_>,
) {
    if let (true, Some(source), Some(details)) =
        (asked.wants_information(), source, &mut socket.details)
    {
        details.information = Some(source.numbers());
    }
}

/// Describes a stream socket, or without `source` the remnant of one.
pub(super) fn stream(shown: &tcp::Shown, source: Option<&tcp::Socket>) -> InetSocket {
    let due = shown.timer_at.saturating_sub(monotonic_ns()) / MILLISECOND;
    // One that begins is none yet that a program has.
    let source = source.filter(|_| shown.state != SYN_RECEIVED);
    InetSocket {
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
        local: name(shown.ends.local),
        remote: name(shown.ends.remote),
        interface: shown.interface,
        cookie: shown.cookie,
        receiving: clip(shown.receiving),
        sending: clip(shown.sending),
        user: shown.user,
        inode: shown.inode as u32,
        raw: None,
        details: source.map(tcp::Socket::diagnosed),
    }
}

fn datagrams(
    network: &Network,
    asked: &InetAsked<'_>,
    filter: &Filter<'_>,
    table: &Ports<datagram::Socket>,
) -> Result<Vec<InetSocket>> {
    let mut list = Vec::new();
    table.for_each(network.key, |source| {
        let socket = datagram(source, asked.protocol == RAW);
        // One that is being closed has no port any more.
        let (local, remote) = (socket.local.1, socket.remote.1);
        if local == 0
            || !asked.wants(socket.family, socket.state, local, remote)
            || !filter.selects(&socket.subject())
        {
            return Ok(());
        }
        growth::push(&mut list, socket)
    })?;
    Ok(list)
}

/// Describes a datagram socket.
pub(super) fn datagram(source: &datagram::Socket, raw: bool) -> InetSocket {
    let shown = source.shown();
    let Datagrams { v6, local, .. } = shown;
    let remote = shown.remote.unwrap_or(SocketAddress::new(local.address.wildcard(), 0));
    InetSocket {
        family: family(v6),
        state: if shown.remote.is_some() { ESTABLISHED } else { CLOSE },
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
        raw: raw.then_some(local.port as u8),
        details: Some(source.diagnosed()),
    }
}

/// Returns the sockets of the Unix domain that are asked for.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn of_unix_domain(network: &Network, asked: &UnixAsked) -> Result<Vec<UnixSocket>> {
    let mut list = Vec::new();
    endpoint::ALL.for_each(|endpoint| {
        let socket = unix_socket(endpoint, asked.show);
        if endpoint.network.key != network.key || asked.states >> socket.state & 1 == 0 {
            return Ok(());
        }
        growth::push(&mut list, socket)
    })?;
    Ok(list)
}

/// Returns the socket of the Unix domain with the number that is asked for.
///
/// # Errors
/// `ENOENT`; `ESTALE` if its cookie is another; `ENOMEM`.
pub(super) fn one_of_unix_domain(network: &Network, asked: &UnixAsked) -> Result<UnixSocket> {
    let mut found = Err(Errno::ENOENT);
    endpoint::ALL.for_each(|endpoint| {
        let is_it = endpoint.inode.load(Ordering::Relaxed) == u64::from(asked.inode);
        if is_it && endpoint.network.key == network.key {
            found = match asked.cookie {
                ANY_COOKIE => Ok(unix_socket(endpoint, asked.show)),
                cookie if cookie == endpoint.cookie() => Ok(unix_socket(endpoint, asked.show)),
                _ => Err(Errno::ESTALE),
            };
        }
        Ok(())
    })?;
    found
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
        cookie: endpoint.cookie(),
        name: named,
        peer: shown.peer.filter(|_| wants(show::PEER)).map(|inode| inode as u32),
        memory: wants(show::MEMORY).then(|| Memory {
            receiving: clip(shown.receiving),
            receive_limit: clip(endpoint.account.receive_size()),
            leaving: clip(endpoint.account.in_flight()),
            send_limit: clip(endpoint.account.send_size()),
            ..Memory::default()
        }),
        queues: wants(show::QUEUES).then(|| [clip(shown.receiving), clip(shown.sending)]),
        user: wants(show::USER).then_some(endpoint.owner.uid),
        shut_down: shown.shut_down,
    }
}
