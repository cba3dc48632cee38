//! Unix-domain sockets (unix(7)): stream, datagram and sequenced-packet, with descriptor passing.
//!
//! # Design
//!
//! An [`Endpoint`](endpoint::Endpoint) is one end: its queue of received
//! [messages](message::Message), its name, and a weak reference to its peer. A sender puts a
//! message straight into the receiver's queue; there is no buffer in between, and bytes are copied
//! only from the sending and to the receiving program. A [`Socket`](socket::Socket) is the open
//! file that owns an endpoint; when it is closed, the weak references of its peers become empty,
//! which shows them that it is gone.
//!
//! The bytes that a sender has in flight are counted in its [`Account`](account::Account), and the
//! sender is woken when its messages leave a queue. The number of messages in a datagram socket's
//! queue is bounded as well. A sender that finds such a queue or a backlog full adds its endpoint
//! to the receiver's list of blocked endpoints. Both limits work for blocking senders and for
//! pollers.
//!
//! A file uses only what stands before it here:
//!
//! | file | contents |
//! |---|---|
//! | [`account`] | bytes in flight, buffer sizes |
//! | [`address`] | `sockaddr_un` |
//! | [`message`] | what travels |
//! | [`urgent`] | which part of a queue the readers of out-of-band data get |
//! | [`endpoint`] | the state of one end |
//! | [`names`] | the table of names |
//! | [`socket`] | the open file: options, waiting, sending, messages received |
//! | [`flight`] | descriptors in flight: counted, collected, dropped |
//! | [`stream`] | a stream is read |
//! | `endpoint/*` | an end connects, sends and receives, ends |
//!
//! # Lock order
//!
//! Each endpoint has one spin lock, and no two endpoints are locked at once, with one exception: a
//! listening endpoint and those that wait there to be accepted. A thread that needs something from
//! the peer asks before or after it holds its own lock. The table of names is a leaf as well. The
//! sockets in flight ([`flight`]) are locked before any endpoint. Messages that carry descriptors
//! are dropped outside every lock, because closing a file may sleep.
//!
//! The last byte that is sent with `MSG_OOB` on a stream is a message of its own; [`urgent`]
//! decides how readers see it.
//!
//! # Bounds
//!
//! Descriptors in flight count for the user who sent them, against RLIMIT_NOFILE as on Linux and
//! [`flight::MOST_OF_USER`]; cycles of sockets that were sent over each other are collected. The
//! bytes that all sockets of a user have in flight are bounded by a part of memory ([`account`]).

pub mod account;
pub mod address;
pub mod endpoint;
pub mod flight;
pub mod message;
pub mod names;
pub mod socket;
mod stream;
mod urgent;
