//! Segments that a device cuts: how large they are, and when it pays to wait for larger ones.
//!
//! One segment here stands for several on the wire ([`Segment::cut_at`](crate::Segment::cut_at)).
//! It is as long as what the connection sends in about a millisecond, so that a slow path gets no
//! bursts, and never more than half of the congestion window, so that acknowledgements keep coming.
//! Windows, records of what was sent and selective acknowledgements count bytes and cut at
//! multiples of the MSS, whatever the size of what was sent.
//!
//! No more than [`BELOW`] such segments wait for the device at a time (Linux:
//! `tcp_small_queue_check`): its queue has room for all connections, and what waits in it is not
//! old when it leaves. On a way without long segments, to this machine itself, nothing waits.

use super::{Connection, Phase};
use crate::{Bytes, MILLISECOND, Nanos, SECOND, Segment};

/// Segments of the wire that one may stand for at least (Linux: `tcp_min_tso_segs`).
const LEAST: u64 = 2;
/// Segments of full size that may wait for the device.
const BELOW: u64 = 2;
/// A part of the window that is sent without waiting for more (Linux: `tcp_tso_win_divisor`).
const PART: u64 = 3;

impl<B: Bytes> Connection<B> {
    /// The most data of one segment, cut or not. With urgent data nothing is cut: each segment on
    /// the wire has a pointer of its own (Linux: `tcp_urg_mode`).
    #[inline]
    pub(super) fn largest(&self, mss: u64) -> u64 {
        let send = &self.send;
        let may_cut = send.segment_limit > send.mss && send.urgent.is_none();
        if may_cut { u64::from(send.segment_limit).max(mss) } else { mss }
    }

    /// The most data of a segment of new data (Linux: `tcp_tso_autosize`).
    #[inline]
    pub(super) fn burst(&self, mss: u64) -> u64 {
        let most = self.largest(mss);
        if most > mss { self.pace(mss, most) } else { mss }
    }

    #[inline(never)]
    fn pace(&self, mss: u64, most: u64) -> u64 {
        let (congestion, rtt) = (&self.congestion, &self.rtt);
        let whole = most / mss * mss;
        if rtt.smoothed == 0 {
            return whole;
        }
        // Linux: `tcp_update_pacing_rate`, in 1/1024 of a second.
        let percent = if congestion.window < congestion.threshold / 2 { 200 } else { 120 };
        let window = congestion.window.max(self.send.flight()).min(1 << 32);
        let mut bytes = window * percent / 100 * (SECOND >> 10) / rtt.smoothed;
        // The nearer the peer, the larger (`tcp_tso_rtt_log`): a long segment costs it nothing.
        bytes += most.checked_shr(((rtt.least / 1000) >> 9).min(64) as u32).unwrap_or(0);
        (bytes / mss).max(LEAST).saturating_mul(mss).min(whole)
    }

    /// Bounds the `length` of a segment of new data that may stand for several. `None`: it waits,
    /// because an acknowledgement is near that lets a larger one go (Linux:
    /// `tcp_tso_should_defer`). It never waits where that would be less than a third of the window,
    /// so the peer has enough data to answer at once.
    #[inline(never)]
    pub(super) fn bound_burst(
        &mut self,
        now: Nanos,
        length: u64,
        (unsent, window, room): (u64, u64, u64),
        (mss, burst): (u64, u64),
    ) -> Option<u64> {
        let limit = window.min(room);
        let congestion = &mut self.congestion;
        let all = self.send.edge.saturating_sub(self.send.una).min(congestion.window);
        let waits = self.recovery.phase == Phase::Open
            && limit < burst.min(unsent)
            && limit < all / PART
            && now.saturating_sub(self.send.last_at) <= MILLISECOND
            && self
                .send
                .sent
                .first_sent()
                .is_some_and(|first| now.saturating_sub(first) >= self.rtt.smoothed / 2);
        if waits {
            congestion.limited |= room < window;
            return None;
        }
        Some(length.min((congestion.window / 2).max(mss)))
    }

    /// Whether segments may be long, and a device is below that sends them later.
    #[inline]
    pub fn has_bursts(&self) -> bool {
        self.send.segment_limit > self.send.mss
    }

    /// Says how many bytes the device below was given and has not sent. Call it before
    /// [`Connection::transmit`] and before segments and timers, if [`Connection::has_bursts`].
    /// Without it nothing waits for a device.
    #[inline]
    pub fn set_below(&mut self, bytes: usize) {
        self.send.below = Some(bytes as u64);
    }

    /// Returns the bound of what the device may have, if something was held back for that since the
    /// last call. When less than half of it is left, [`Connection::transmit`] goes on.
    #[inline]
    pub fn take_wait(&mut self) -> Option<usize> {
        self.send.waits.take().map(|bound| bound as usize)
    }

    /// Whether a segment of `length` waits because the device has much; counts it if it does not.
    /// If nothing is in flight one goes in any case: no acknowledgement would come that lets others
    /// go. `burst` is the most data of a segment.
    #[inline]
    pub(super) fn waits_for_device(&mut self, length: u64, burst: u64) -> bool {
        let send = &mut self.send;
        let Some(below) = send.below else { return false };
        let (bound, all) = (BELOW * burst, below + length);
        let waits = all > bound && below > 0 && send.next > send.una;
        if waits {
            send.waits = Some(bound);
        } else {
            send.below = Some(all);
        }
        waits
    }

    /// Where a segment with the data of `length` numbers is cut; 0 if it is not.
    #[inline]
    pub(super) fn cut_at(&self, length: u64, segment: &Segment<B>) -> u16 {
        // With all options there may be as few as 8 bytes of data in a segment.
        if self.send.segment_limit <= self.send.mss || length <= 8 {
            return 0;
        }
        let mss = self.payload();
        if segment.payload_len() as u64 > mss { mss as u16 } else { 0 }
    }
}
