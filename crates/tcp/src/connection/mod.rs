//! One end of a connection.
//!
//! `open` begins it, `input` takes segments, `fast` the usual ones, `acknowledge` does what an
//! acknowledgement asks for, `recovery` decides what is lost, `output` makes segments, `burst` says
//! how large those are that a device cuts, `timer` acts when time has passed, `data` takes and
//! gives a program's bytes, `close` ends it.

mod acknowledge;
mod burst;
mod close;
mod data;
mod fast;
mod input;
mod open;
mod output;
mod recovery;
mod timer;

pub use close::Closing;

use crate::arrivals::Arrivals;
use crate::congestion::Congestion;
use crate::info::Counters;
use crate::receive::Receive;
use crate::rtt::Rtt;
use crate::send::Send;
use crate::seq::Position;
use crate::timers::Timers;
use crate::{Algorithm, Bytes, Error, Keepalive, MILLISECOND, Nanos, Seq, State};

/// The least time between two answers to segments that an attacker may have sent (Linux:
/// `tcp_invalid_ratelimit`; RFC 5961, 7).
pub(crate) const CHALLENGE_INTERVAL: Nanos = 500 * MILLISECOND;

/// Timestamps (RFC 7323).
#[derive(Debug)]
pub(crate) struct Stamps {
    /// Both sides use them.
    pub enabled: bool,
    /// Added to our clock.
    pub offset: u32,
    /// The peer's newest value (TS.Recent), and when it came.
    pub recent: u32,
    pub recent_at: Nanos,
}

impl Stamps {
    /// Our value at `now`: milliseconds.
    #[inline]
    pub(crate) fn value(&self, now: Nanos) -> u32 {
        ((now / MILLISECOND) as u32).wrapping_add(self.offset)
    }
}

/// Where loss recovery is (Linux: `icsk_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is lost.
    Open = 0,
    /// Fast recovery.
    Fast = 3,
    /// After a timeout.
    Loss = 4,
}

/// Loss recovery, and the windows and counts that it needs.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub phase: Phase,
    /// The recovery ends when this is acknowledged.
    pub point: Position,
    /// Windows before it, to return to if nothing was lost.
    pub prior_window: u64,
    pub prior_threshold: u64,
    /// Our timestamp when the first segment was sent again (RFC 3522).
    pub undo: Option<u32>,
    /// Proportional rate reduction (RFC 6937): delivered, sent, in flight at the beginning.
    pub delivered: u64,
    pub sent: u64,
    pub flight: u64,
    /// Without SACK: duplicate acknowledgements, and the bytes that they stand for.
    pub duplicates: u32,
    pub emulated: u64,
    /// Timeouts in a row that doubled the timer, and those since the last progress.
    pub backoff: u32,
    pub timeouts: u32,
    /// When the segment was sent that waits for an acknowledgement, at the first timeout.
    pub stalled_at: Nanos,
    /// When the retransmission timer's time began.
    pub base: Nanos,
    /// When reordering is no excuse any more; `NEVER` if nothing is suspected.
    pub reorder_at: Nanos,
    /// The end of a tail loss probe in flight, and whether it carried old data.
    pub probe: Option<(Position, bool)>,
    /// Window probes without an answer, and their backoff.
    pub probes: u32,
    pub probe_backoff: u32,
    /// Keepalive probes without an answer.
    pub keepalives: u32,
}

/// One end of a TCP connection. See the crate's text.
#[derive(Debug)]
pub struct Connection<B> {
    pub(crate) state: State,
    pub(crate) last_state: State,
    pub(crate) send: Send<B>,
    pub(crate) receive: Receive<B>,
    pub(crate) stamps: Stamps,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
    pub(crate) recovery: Recovery,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    /// When the data in the receive queue came, as far as that is wanted.
    pub(crate) arrivals: Arrivals,
    /// Both sides use selective acknowledgements.
    pub(crate) sack: bool,
    /// No program has it any more.
    pub(crate) orphan: bool,
    pub(crate) error: Option<Error>,
    /// The error that a router reported, told to the program if the connection times out.
    pub(crate) soft_error: Option<Error>,
    pub(crate) challenged_at: Nanos,
    /// The path's MSS; `send.mss` is the smaller of it and the peer's.
    pub(crate) path_mss: u32,
    pub(crate) announced_mss: u16,
    pub(crate) window_scaling: bool,
    pub(crate) peer_scales: bool,
    pub(crate) keepalive: Option<Keepalive>,
    pub(crate) user_timeout: Option<Nanos>,
    pub(crate) limits: Limits,
}

/// The counts of [`crate::Config`] that are used when something fails.
#[derive(Debug)]
pub(crate) struct Limits {
    pub syn_retries: u32,
    pub synack_retries: u32,
    pub retries: u32,
    pub orphan_retries: u32,
    pub fin_timeout: Nanos,
}

impl<B: Bytes> Connection<B> {
    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// When [`Connection::on_timer`] must be called. It moves with most calls, mostly to later; a
    /// timer that fires early does no harm, so a caller sets its own timer only when this is
    /// earlier.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Takes the error of a connection that failed (SO_ERROR).
    pub fn error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// True if it has failed and nobody has taken the error.
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// TCP_NODELAY. Call [`Connection::transmit`] after switching it on.
    pub fn set_nodelay(&mut self, on: bool) {
        self.send.nodelay = on;
    }

    /// TCP_CORK: only full segments are sent, the rest after 200 ms or when it is switched off and
    /// [`Connection::transmit`] called.
    pub fn set_cork(&mut self, on: bool) {
        self.send.cork = on;
    }

    /// MSG_MORE: the last piece that was sent is not the end of a message. Set before
    /// [`Connection::transmit`], and cleared by a later send without it.
    pub fn set_more(&mut self, more: bool) {
        self.send.more = more;
    }

    /// TCP_QUICKACK. Call [`Connection::acknowledge`] after switching it on.
    pub fn set_quick_acknowledgement(&mut self, on: bool) {
        self.receive.set_quick(on);
    }

    /// SO_OOBINLINE.
    pub fn set_urgent_inline(&mut self, on: bool) {
        self.receive.inline = on;
    }

    /// SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT.
    pub fn set_keepalive(&mut self, now: Nanos, keepalive: Option<Keepalive>) {
        self.keepalive = keepalive;
        self.recovery.keepalives = 0;
        self.start_keepalive(now);
    }

    /// TCP_USER_TIMEOUT.
    pub fn set_user_timeout(&mut self, timeout: Option<Nanos>) {
        self.user_timeout = timeout;
    }

    /// TCP_SYNCNT.
    pub fn set_syn_retries(&mut self, count: u32) {
        self.limits.syn_retries = count;
    }

    /// TCP_LINGER2: how long FIN-WAIT-2 lasts without a program.
    pub fn set_fin_timeout(&mut self, timeout: Nanos) {
        self.limits.fin_timeout = timeout;
    }

    /// TCP_CONGESTION.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.congestion.set_algorithm(algorithm);
    }

    /// TCP_CONGESTION.
    pub fn algorithm(&self) -> Algorithm {
        self.congestion.algorithm()
    }

    /// SO_SNDBUF: a fixed limit for the bytes that wait or are in flight.
    pub fn set_send_limit(&mut self, limit: usize) {
        (self.send.limit, self.send.limit_max) = (limit, limit);
    }

    /// The send buffer's limit.
    pub fn send_limit(&self) -> usize {
        self.send.limit
    }

    /// SO_RCVBUF: a fixed limit for bytes that wait for the program. The window that was offered
    /// stays.
    pub fn set_receive_limit(&mut self, limit: usize) {
        let limit = limit.max(256);
        (self.receive.limit, self.receive.limit_max) = (limit, limit);
    }

    /// The receive buffer's limit.
    pub fn receive_limit(&self) -> usize {
        self.receive.limit
    }

    /// The largest payload of a segment on the wire (TCP_MAXSEG).
    pub fn mss(&self) -> u32 {
        self.send.payload(self.stamp_len()) as u32
    }

    /// True when `seq` was sent and is not acknowledged. An ICMP error must quote such a number to
    /// be believed (RFC 5927, 4.1).
    pub fn in_flight(&self, seq: Seq) -> bool {
        let send = &self.send;
        !seq.before(send.wire(send.una)) && seq.before(send.wire(send.next))
    }

    fn stamp_len(&self) -> usize {
        if self.stamps.enabled { crate::options::TIMESTAMP } else { 0 }
    }
}
