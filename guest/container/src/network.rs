//! The machine's interface gets what the pod's has, and answers for that one from then on.
//!
//! The kernel is told by rtnetlink(7): other than the requests of netdevice(7), it knows routes to
//! neighbours that are in no network of an address, by which some networks of containers find their
//! router.

use crate::{During, Failure};
use hayate_container_plan::interface::{Interface, Route};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::route::{RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use std::io::Error;
use std::net::IpAddr;

/// The machine's interface.
const DEVICE: &str = "eth0";

/// Gives the machine's interface the hardware address, the addresses and the routes of the pod's.
pub fn take(wanted: &Interface) -> Result<(), Failure> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let family = rustix::net::AddressFamily::NETLINK;
    // The protocol without a number is NETLINK_ROUTE, 0.
    let socket = rustix::net::socket_with(family, kind, flags, None)
        .during("cannot speak to the kernel about the network")?;
    let index = rustix::net::netdevice::name_to_index(&socket, DEVICE)
        .during("the machine has no interface")?;
    // Nobody else answers for these addresses: their use need not wait for the question whether
    // somebody does (RFC 4862, 5.4).
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{DEVICE}/accept_dad"), "0");
    for change in [hardware(index, wanted), up(index, wanted)] {
        ask(&socket, RouteNetlinkMessage::SetLink(change)).during("cannot set up the interface")?;
    }
    for &(own, length) in &wanted.addresses {
        ask(&socket, RouteNetlinkMessage::NewAddress(address(index, own, length)))
            .during(format!("cannot set the address {own}/{length}"))?;
    }
    for way in &wanted.routes {
        let (to, length) = way.to;
        ask(&socket, RouteNetlinkMessage::NewRoute(route(index, way)))
            .during(format!("cannot set the route to {to}/{length}"))?;
    }
    Ok(())
}

fn hardware(index: u32, wanted: &Interface) -> LinkMessage {
    let mut change = LinkMessage::default();
    change.header.index = index;
    change.attributes = vec![LinkAttribute::Address(wanted.hardware.to_vec())];
    change
}

fn up(index: u32, wanted: &Interface) -> LinkMessage {
    let mut change = LinkMessage::default();
    change.header.index = index;
    (change.header.flags, change.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    change.attributes = vec![LinkAttribute::Mtu(wanted.mtu)];
    change
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn address(index: u32, own: IpAddr, length: u8) -> AddressMessage {
    let mut added = AddressMessage::default();
    (added.header.index, added.header.family) = (index, family(own));
    added.header.prefix_len = length;
    added.attributes = vec![AddressAttribute::Local(own), AddressAttribute::Address(own)];
    added
}

fn route(index: u32, way: &Route) -> RouteMessage {
    let mut added = RouteMessage::default();
    let (to, length) = way.to;
    added.header = RouteHeader {
        address_family: family(to),
        destination_prefix_length: length,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: if way.by.is_some() { RouteScope::Universe } else { RouteScope::Link },
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    if length > 0 {
        added.attributes.push(RouteAttribute::Destination(to.into()));
    }
    added.attributes.push(RouteAttribute::Oif(index));
    if let Some(by) = way.by {
        added.attributes.push(RouteAttribute::Gateway(by.into()));
    }
    added
}

/// Sends a request, and waits for its answer. What is there already is no error: the interface of a
/// pod is taken once, but two addresses may bring the same route.
fn ask(socket: &OwnedFd, request: RouteNetlinkMessage) -> Result<(), Error> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(socket, &bytes, SendFlags::empty())?;
    let mut answer = [0_u8; 4096];
    let (_, length) = recv(socket, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    let answer =
        NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer).map_err(Error::other)?;
    let NetlinkPayload::Error(answer) = answer.payload else {
        return Err(Error::other("the kernel gives no answer"));
    };
    match answer.code.map(|code| Error::from_raw_os_error(-code.get())) {
        Some(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
