//! The network: IPv4 and IPv6 sockets, and the packets between them.
//!
//! # Design
//!
//! A packet between two sockets of this machine is a structure that shares the sender's memory
//! ([`packet`], [`mod@slice`]); it becomes bytes only for a device ([`wire`]). The state machine of
//! TCP is a crate without I/O (`hayate_tcp`); addresses, headers, rules of binding and routes are
//! another (`hayate_ip`). Here are the sockets, the tables that find them, the clocks, and the ways
//! of packets.
//!
//! | file | contents |
//! |---|---|
//! | [`mod@slice`], [`packet`] | bytes of packets, packets |
//! | [`memory`] | the bounds of what all queues hold |
//! | [`config`], [`settings`] | network namespaces: interfaces, addresses, routes; settings |
//! | [`ports`] | bound ports |
//! | [`statistics`] | what the protocols have done |
//! | [`ip_options`], [`level`], [`configure`], [`ioctl`] | options and requests of all sockets |
//! | [`path_mtu`] | MTUs of paths, as routers told of them |
//! | [`wire`], [`loopback`] | packets as bytes; to this machine |
//! | [`cut`], [`output`] | packets in parts; on their way out |
//! | [`faults`] | packets lost, repeated, damaged and late on purpose |
//! | [`datagram`], [`tcp`] | sockets |
//! | [`neighbour`], [`icmp_message`], [`link`] | hardware addresses; messages; Ethernet |
//! | [`groups`] | groups that sockets have joined, and what routers are told of them |
//! | [`icmp`], [`echo`] | echo and errors |
//! | [`fragments`], [`input`] | parts put together; packets that arrive |
//! | [`family`] | socket(2) |
//! | [`filter`], [`stamp`] | filters of sockets; the time of the last packet |
//! | [`packet_socket`] | packet sockets, which see packets as they pass an interface |
//! | [`netlink`] | netlink sockets, which tell of all this to programs |
//! | `report` | the lists that they tell, and the changes that they ask for |
//!
//! # Locks
//!
//! Every socket has its own, and is found through tables of many parts with a lock each. There is
//! no lock that two packets of different sockets both take, except a part of a table for the time
//! of a look-up. No socket's lock is held while a packet is sent: on the loopback interface sending
//! is receiving. Each module writes its order down.
//!
//! # Road not taken
//!
//! smoltcp's interface: it asks every socket for each packet and for each poll, under one lock.

pub mod config;
mod configure;
mod cut;
pub mod datagram;
mod echo;
pub mod family;
pub mod faults;
pub mod filter;
pub mod fragments;
pub mod groups;
mod icmp;
mod icmp_message;
mod input;
pub mod ioctl;
mod ip_options;
mod level;
mod link;
mod loopback;
pub mod memory;
pub mod neighbour;
pub mod netlink;
mod output;
mod packet;
pub mod packet_socket;
mod path_mtu;
pub mod ports;
pub mod report;
pub mod settings;
mod slice;
mod stamp;
pub mod statistics;
pub mod tcp;
mod wire;

use hayate_abi::Result;

/// Makes the loopback interface and registers the families of sockets; at boot.
///
/// # Errors
/// `ENOMEM`.
pub fn init() -> Result<()> {
    faults::init();
    memory::init();
    loopback::register(input::receive);
    config::at_end(|network| {
        tcp::forget(network);
        fragments::forget(network);
    });
    config::init()?;
    link::init(|packet| input::receive(&config::first(), packet), icmp::report_unreachable)?;
    tcp::init()?;
    family::register();
    packet_socket::register();
    report::init();
    Ok(())
}
