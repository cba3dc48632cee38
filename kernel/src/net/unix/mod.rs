//! Unix-domain sockets (unix(7)): stream, datagram and sequenced-packet, with descriptor passing.
//!
//! # Design
//!
//! An [`Endpoint`](endpoint::Endpoint) is one end: its queue of received
//! [messages](message::Message), its name, and a weak reference to its peer. A sender puts a
//! message straight into the receiver's queue; there is no buffer in between and no copy beyond
//! the two from and to the programs. A [`Socket`](socket::Socket) is the open file that owns an
//! endpoint; when it goes, the weak references of peers stop leading anywhere, and that is how
//! they notice.
//!
//! What a sender has in flight is counted in its [`Account`](account::Account), and it is woken when
//! messages of its leave a queue. A datagram socket's queue is bounded by number as well; a sender
//! that finds it full, or a backlog, leaves its endpoint in the receiver's list of those that wait.
//! Both serve blocking senders and pollers.
//!
//! # Lock order
//!
//! Each endpoint has one spin lock, and no two endpoints are ever locked at once, but for a listening
//! one and those that wait there to be accepted: what has to be known of the peer is asked before or
//! after. The table of names is a leaf as well. The sockets in flight ([`flight`]) are locked before any
//! endpoint. Messages that carry descriptors are dropped outside every lock, because closing a file may
//! sleep.
//!
//! The last byte of what is sent with `MSG_OOB` down a stream is a message of its own, and
//! [`urgent`] says what readers make of it.
//!
//! # Bounds
//!
//! Descriptors in flight count against [`flight::MOST_IN_FLIGHT`], as Linux counts them against
//! RLIMIT_NOFILE; cycles of sockets that were sent over each other are collected.

pub mod account;
pub mod address;
pub mod endpoint;
pub mod flight;
pub mod message;
pub mod socket;
mod stream;
mod urgent;
