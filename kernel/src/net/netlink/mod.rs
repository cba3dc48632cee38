//! Netlink sockets (netlink(7)), of which the kernel answers two protocols: NETLINK_ROUTE
//! (rtnetlink(7)), which tells of links, addresses, routes and neighbours, and NETLINK_SOCK_DIAG
//! (sock_diag(7)), which tells of sockets.
//!
//! | file | contents |
//! |---|---|
//! | [`provider`] | what is told: a trait that the network implements |
//! | [`endpoint`] | a socket's port, groups and queue of messages |
//! | [`letter`] | a message whose place in a queue is taken before it is sent |
//! | [`ports`] | the sockets by their ports; messages to all of a group |
//! | [`dump`] | lists that go to a socket piece by piece |
//! | [`asking`] | the socket that asks, and how it is answered |
//! | [`route`] | requests of NETLINK_ROUTE, and changes that are announced |
//! | [`diag`] | requests of NETLINK_SOCK_DIAG |
//! | [`request`] | the requests in what a program sent, and their acknowledgements |
//! | [`options`] | options of the level `SOL_NETLINK` |
//! | [`socket`] | the open file |
//!
//! # Design
//!
//! A request is carried out while it is sent, on the sender's thread, as in Linux
//! (`netlink_unicast_kernel`); its answers wait in the sender's own queue. A dump takes a copy of
//! the list when it is asked for, and fills the next message whenever a reader has taken one: it is
//! of one moment however slowly it is read, where Linux may have to say NLM_F_DUMP_INTR.
//!
//! # Locks
//!
//! The table of ports, then an endpoint's state; never two endpoints at once. Both are spin locks.
//! Messages are made before a lock is taken.

/// `NETLINK_ROUTE`.
pub const ROUTE: i32 = 0;
/// `NETLINK_SOCK_DIAG`.
pub const SOCK_DIAG: i32 = 4;

pub mod asking;
pub mod diag;
pub mod dump;
pub mod endpoint;
pub mod letter;
pub mod options;
pub mod ports;
pub mod provider;
pub mod request;
pub mod route;
pub mod socket;
