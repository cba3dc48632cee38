//! The format of netlink messages (netlink(7), rtnetlink(7); RFC 3549): requests of programs are
//! read, answers of the kernel are written.
//!
//! | file | contents |
//! |---|---|
//! | [`diag`] | what NETLINK_SOCK_DIAG says of sockets |
//! | [`filter`] | programs that select sockets |
//! | [`message`] | headers; the requests in a buffer; answers one after the other in a buffer |
//! | [`attribute`] | attributes after a message's fixed part |
//! | [`route`] | what NETLINK_ROUTE says of links, addresses, routes and neighbours |
//!
//! Requests are untrusted: whatever their lengths say, reading ends inside the buffer. Answers are
//! written into a buffer that the caller provides; one that does not fit leaves no trace.
//!
//! Road not taken: netlink-packet-core and netlink-packet-route, which need the standard library.
//! They read what is written here, in the tests.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod attribute;
pub mod diag;
pub mod filter;
pub mod message;
pub mod route;

/// The answer does not fit into what is left of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Rounds a length up to the alignment of messages and attributes (`NLMSG_ALIGN`, `NLA_ALIGN`).
pub(crate) const fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}
