//! The sending half: the queue, and the limits that the peer sets.

use crate::config::{Config, DEFAULT_MSS, MIN_MSS};
use crate::queue::Queue;
use crate::scoreboard::Scoreboard;
use crate::seq::{self, BASE, FIRST, Position};
use crate::{Bytes, Nanos, Pressure, Seq};

/// Bytes that the queue may hold when the memory of all connections is scarce (`tcp_wmem`).
const SCARCE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Send<B> {
    /// The number of our SYN (ISS).
    pub initial: Seq,
    /// The first position that is not acknowledged (SND.UNA).
    pub una: Position,
    /// The first position that was never sent (SND.NXT).
    pub next: Position,
    /// The right edge of the peer's window.
    pub edge: Position,
    /// The receiver's position of the segment that set `edge` (SND.WL1).
    pub updated: Position,
    /// The largest window that the peer has offered.
    pub largest: u64,
    /// The peer's window shift.
    pub shift: u8,
    /// Largest segment on the path and for the peer, without options; see [`Config::mss`].
    pub mss: u32,
    /// The largest segment that the peer announced.
    pub peer_mss: u32,
    /// See [`Config::segment_limit`].
    pub segment_limit: u32,
    /// Bytes that the device below was given and has not sent; see
    /// [`crate::Connection::set_below`]. `None`: there is no such device.
    pub below: Option<u64>,
    /// Something was held back for that: the bound of `below`.
    pub waits: Option<u64>,
    /// Data from `una` on.
    pub queue: Queue<B>,
    /// The program sends no more: a FIN stands at the queue's end.
    pub fin: bool,
    /// The end of the last segment that was not full (Minshall's Nagle).
    pub small: Position,
    /// The position behind the last urgent byte (SND.UP).
    pub urgent: Option<Position>,
    pub sent: Scoreboard,
    /// Bytes of the queue, and how far the limit may grow.
    pub limit: usize,
    pub limit_max: usize,
    /// See [`crate::Connection::set_pressure`].
    pub pressure: Pressure,
    pub nodelay: bool,
    pub cork: bool,
    /// MSG_MORE: the last write is not complete.
    pub more: bool,
    /// When something was sent last.
    pub last_at: Nanos,
}

impl<B: Bytes> Send<B> {
    pub(crate) fn new(config: &Config, initial: Seq) -> Send<B> {
        Send {
            initial,
            una: BASE,
            next: BASE,
            edge: FIRST,
            updated: 0,
            largest: 0,
            shift: 0,
            mss: config.mss.clamp(MIN_MSS, 0xffff),
            peer_mss: DEFAULT_MSS,
            segment_limit: config.segment_limit,
            below: None,
            waits: None,
            queue: Queue::new(FIRST),
            fin: false,
            small: 0,
            urgent: None,
            sent: Scoreboard::new(),
            limit: config.send_limit,
            limit_max: config.send_limit_max.max(config.send_limit),
            pressure: Pressure::None,
            nodelay: config.nodelay,
            cork: config.cork,
            more: false,
            last_at: 0,
        }
    }

    /// The number on the wire.
    #[inline]
    pub(crate) fn wire(&self, at: Position) -> Seq {
        seq::wire(self.initial, at)
    }

    /// The position behind everything that is to be sent.
    #[inline]
    pub(crate) fn goal(&self) -> Position {
        self.queue.end() + u64::from(self.fin)
    }

    /// Something was never sent.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.next < self.goal()
    }

    /// Everything, the FIN included, is acknowledged.
    pub(crate) fn drained(&self) -> bool {
        self.una == self.goal()
    }

    /// The FIN was sent and acknowledged.
    pub(crate) fn fin_acknowledged(&self) -> bool {
        self.fin && self.una > self.queue.end()
    }

    #[inline]
    pub(crate) fn flight(&self) -> u64 {
        self.next - self.una
    }

    /// The data of a segment with `options` bytes of options. At most half of the largest window
    /// (Linux: `tcp_bound_to_half_wnd`), so that a sender with large segments never waits for a
    /// window that a small buffer cannot offer.
    #[inline]
    pub(crate) fn payload(&self, options: usize) -> u64 {
        let mss = u64::from(self.mss.max(MIN_MSS) - options as u32);
        let half =
            if self.largest > u64::from(DEFAULT_MSS) { self.largest / 2 } else { self.largest };
        if half > 0 && mss > half { half.max(28) } else { mss }
    }

    /// The peer's and the path's limits together.
    pub(crate) fn limit_mss(&mut self, path: u32) {
        self.mss = path.min(self.peer_mss).max(MIN_MSS);
    }

    /// Bytes that may be queued, all in all: also those that are in flight.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        let used = self.queue.len().max(self.queue.cost() / 4);
        self.bound().saturating_sub(used)
    }

    /// The limit that holds now.
    #[inline]
    pub(crate) fn bound(&self) -> usize {
        if self.pressure == Pressure::None { self.limit } else { self.limit.min(SCARCE) }
    }
}
