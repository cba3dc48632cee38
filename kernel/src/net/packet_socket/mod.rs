//! Packet sockets: frames as they pass an interface (packet(7); net/packet/af_packet.c of Linux).
//!
//! # Design
//!
//! A packet between two sockets of this machine becomes bytes for a packet socket, and only then:
//! while there is none, each packet costs one relaxed load ([`tap`]). The payload's bytes are
//! shared with their sender also then; a receive ring copies them.
//!
//! | file | contents |
//! |---|---|
//! | [`seen`] | a packet as it passes an interface |
//! | [`shared`] | the memory of a ring |
//! | [`endpoint`] | what a socket has received and not read: a queue or a ring |
//! | [`tap`] | which sockets see a packet |
//! | `membership` | promiscuous interfaces |
//! | `send` | frames that programs write |
//! | `options`, `socket` | options and operations of the open file |
//!
//! Not there: SOCK_PACKET, transmit rings, fanout, PACKET_COPY_THRESH, PACKET_VNET_HDR and
//! timestamps of hardware. Options for them are refused.
//!
//! # Locks
//!
//! `setup` of a socket may sleep and comes first. The list of all sockets is a leaf, held while a
//! reference to it is taken. The lock of an endpoint is a leaf too; nothing is sent under it.

pub mod endpoint;
mod membership;
mod options;
pub mod seen;
mod send;
pub mod shared;
mod socket;
pub mod tap;

pub use socket::register;
