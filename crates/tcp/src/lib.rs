//! TCP (RFC 9293) as a state machine: no input or output, no clock, no lock, no address.
//!
//! # Design
//!
//! A [`Connection`] is one end. It takes segments ([`Connection::on_segment`]), the passing of time
//! ([`Connection::on_timer`], due at [`Connection::next_deadline`]) and a program's wishes, and
//! gives segments to a [`Sink`] and [`Events`] to its caller, which owns sockets, addresses,
//! checksums, listening queues and waiting threads. A [`TimeWait`] is the remnant of a connection,
//! for a minute. [`cookie`] answers a SYN without keeping anything.
//!
//! Data are lists of counted pieces of memory ([`Bytes`]); nothing is copied. A segment holds
//! slices of the pieces that the program sent, and the receiver's queue holds the pieces that
//! arrived.
//!
//! Inside, a sequence number is a [`seq::Position`]: 64 bits that never wrap. Only segments carry
//! the 32 bits of the wire ([`Seq`]).
//!
//! Numbers that RFCs leave open (timeouts, counts, buffer sizes) are those of Linux 6.12
//! (`net/ipv4/tcp*.c`, `include/net/tcp.h`, `Documentation/networking/ip-sysctl.rst`).
//!
//! # Invariants
//!
//! * A segment is an allegation. Nothing in it makes this code panic, and it makes a connection
//!   keep only a bounded amount: by bytes and by the cost of pieces (`receive.rs`), by the number
//!   of records of what was sent (`scoreboard.rs`).
//! * Every list grows by `try_reserve`. When memory is refused, a segment is dropped as if the
//!   network had lost it, or the caller gets [`Error::NoMemory`].
//! * While there is something to send or to acknowledge, [`Connection::next_deadline`] is some
//!   time: a connection never waits for nothing.
//! * The right edge of the window that was offered never moves back.
//!
//! # Road not taken
//!
//! `smoltcp` 0.14 has a TCP socket. Its state and its functions that process and make segments are
//! private, so nothing could be added from outside: recovery by selective acknowledgements and by
//! time (RFC 6675, 8985), TIME-WAIT outside the socket, SYN cookies, a path MTU that changes,
//! urgent data, keepalive counts, `TCP_INFO`, and queues that share pages instead of copying
//! through a ring of bytes. Its formats of the wire are used beside this crate. `xarxa` is a
//! reserved name without code.
//!
//! # Measured
//!
//! `examples/compare.rs` moves 16 MiB over a link of 125 MB/s with 10 ms of round-trip time,
//! between two ends of this crate and between two of smoltcp (CUBIC, 1 MiB of buffers):
//!
//! | loss | this crate | smoltcp | this crate | smoltcp |
//! |---|---|---|---|---|
//! | 0 % | 69.1 MB/s | 47.1 MB/s | 0.70 ns/byte | 2.69 ns/byte |
//! | 1 % | 1.73 MB/s | 0.85 MB/s | 1.15 ns/byte | 1.77 ns/byte |
//! | 5 % | 0.66 MB/s | 0.03 MB/s | 1.35 ns/byte | 2.01 ns/byte |
//!
//! The rates are of simulated time. At a loss the bound of Mathis and others (1997) is 1.8 and 0.8
//! MB/s. The costs are of the processor, both ends together; smoltcp's contain headers, not
//! checksums. A round trip of 32 bytes (`examples/round_trip.rs`) takes 2,014 instructions, two
//! writes and two reads together, with the optimisation that the kernel has; without
//! `connection/fast.rs` it took 4,020.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arrivals;
mod assembly;
pub mod config;
mod congestion;
mod connection;
pub mod cookie;
mod cubic;
mod info;
pub mod options;
mod queue;
mod receive;
mod rtt;
mod scoreboard;
mod segment;
mod send;
pub mod seq;
pub mod time_wait;
mod timers;

pub use config::{Config, Keepalive};
pub use congestion::Algorithm;
pub use connection::{Closing, Connection};
pub use info::Info;
pub use options::Options;
pub use rtt::{RTO_MAX, RTO_MIN};
pub use segment::{Flags, Pieces, Segment};
pub use seq::Seq;
pub use time_wait::{TimeWait, Verdict};

/// Nanoseconds of a clock that never goes back.
pub type Nanos = u64;
/// A millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000_000_000;

/// A piece of counted memory that does not change.
pub trait Bytes: Sized {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// True when there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `from` to before `to`, which share this memory. The caller keeps
    /// `from <= to <= len()`.
    fn slice(&self, from: usize, to: usize) -> Self;

    /// The byte at `at`, which is below `len()`: for urgent data.
    fn byte(&self, at: usize) -> u8;

    /// Bytes of memory that the piece holds, whatever it shows of them (Linux' truesize).
    fn cost(&self) -> usize {
        4096
    }

    /// Takes the bytes of `next` behind its own, if `next` lies behind it in the same memory or if
    /// there is room to copy it there. It is asked of pieces at the end of a queue, some of whose
    /// bytes may be shared with segments; those must not change. False if it took nothing.
    fn extend(&mut self, next: &Self) -> bool {
        let _ = next;
        false
    }
}

/// How scarce the memory is that all connections share, as their owner judges it for one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// The connection's own limits are the only ones.
    #[default]
    None,
    /// It takes a little at a time: so much that it goes on, and others can.
    Shared,
    /// It receives nothing.
    Exhausted,
}

/// Takes the segments that a connection makes, in order.
pub trait Sink<B> {
    /// Takes one. A segment that cannot be sent is dropped: TCP sends it again.
    fn send(&mut self, segment: Segment<B>);

    /// Notes an event for the statistics of all connections. None is on the usual way of segments.
    fn note(&mut self, event: Noted) {
        let _ = event;
    }
}

/// An event that Linux counts over all connections (RFC 4022; `TcpExt` in `/proc/net/netstat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// A segment was sent again after a loss that acknowledgements told of (TCPFastRetrans).
    SentAgain,
    /// The same after a timeout (TCPSlowStartRetrans).
    SentAgainSlowly,
    /// A SYN or a SYN-ACK was sent again (TCPSynRetrans).
    SynSentAgain,
    /// Nothing was acknowledged in time (TCPTimeouts).
    Timeout,
    /// The last segment was sent to learn whether it was lost (TCPLossProbes).
    TailProbe,
    /// A closed window was asked for (TCPWinProbe).
    WindowProbe,
    /// A silent peer was asked whether it is there (TCPKeepAlive).
    KeepAlive,
    /// An acknowledgement went alone because its time was over (DelayedACKs).
    DelayedAcknowledgement,
    /// A suspicious segment was answered (TCPChallengeACK).
    Challenge,
}

impl<B, F: FnMut(Segment<B>)> Sink<B> for F {
    fn send(&mut self, segment: Segment<B>) {
        self(segment);
    }
}

/// Where a connection is (RFC 9293, 3.3.2), numbered as in Linux' `tcp_states.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in RFC 9293")]
pub enum State {
    Established = 1,
    SynSent = 2,
    SynReceived = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Closed = 7,
    CloseWait = 8,
    LastAck = 9,
    Closing = 11,
}

/// Why a connection or a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The peer reset the connection: ECONNRESET.
    Reset,
    /// The peer refused it: ECONNREFUSED.
    Refused,
    /// The peer gave no answer: ETIMEDOUT.
    TimedOut,
    /// A router could not reach the host: EHOSTUNREACH.
    HostUnreachable,
    /// A router could not reach the network: ENETUNREACH.
    NetworkUnreachable,
    /// The host has no TCP: ENOPROTOOPT.
    NoProtocol,
    /// The connection's sending side is closed: EPIPE.
    Pipe,
    /// There is no connection (yet): ENOTCONN.
    NotConnected,
    /// The call does not fit the state or the data: EINVAL.
    Invalid,
    /// There are no data yet: EAGAIN.
    Again,
    /// Memory was refused: ENOMEM, ENOBUFS.
    NoMemory,
}

bitflags::bitflags! {
    /// Changes that a thread may wait for on a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Events: u16 {
        /// There are more data to read.
        const READABLE = 1;
        /// At least a third of the send buffer is free, and before it was not.
        const WRITABLE = 2;
        /// The connection is established.
        const CONNECTED = 4;
        /// The peer sends no more (its FIN came): end of file, POLLRDHUP.
        const PEER_CLOSED = 8;
        /// A new urgent mark: SIGURG, POLLPRI.
        const URGENT = 16;
        /// The connection failed; [`Connection::error`] says why.
        const FAILED = 32;
        /// The connection is over, its state is CLOSED and nothing more will be sent.
        const CLOSED = 64;
        /// The state is TIME-WAIT: [`Connection::time_wait`] replaces the connection.
        const TIME_WAIT = 128;
        /// Everything that was sent, the FIN included, is acknowledged (for SO_LINGER).
        const DRAINED = 256;
    }
}
