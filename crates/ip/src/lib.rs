//! The parts of IPv4 and IPv6, without I/O, locks or clocks: addresses, socket addresses,
//! checksums, headers, hardware addresses, fragments, the rules of binding, routes, MTUs of paths,
//! memberships in groups.
//!
//! The kernel's `net` keeps the state and moves the packets. Headers are read and written by the
//! wire formats of smoltcp; its sockets and its interface are not used, because they scan every
//! socket for each packet (see ARCHITECTURE.md).
//!
//! Everything that is parsed here is untrusted: parsers return `None` and never panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod address;
pub mod binding;
pub mod checksum;
pub mod header;
pub mod icmp;
pub mod membership;
pub mod neighbour;
pub mod path_mtu;
pub mod reassembly;
pub mod route;
pub mod socket_address;
pub mod source_filter;

pub use address::Address;
pub use socket_address::SocketAddress;
