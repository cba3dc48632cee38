//! The numbers of TCP_INFO and `/proc/net/tcp`.

use crate::connection::Connection;
use crate::timers::TimerPurpose;
use crate::{Bytes, Nanos, State};

/// Counts since the connection began.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub segments_in: u64,
    pub segments_out: u64,
    pub data_segments_in: u64,
    pub data_segments_out: u64,
    pub bytes_acknowledged: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_retransmitted: u64,
    pub retransmitted: u64,
    pub retransmitted_syns: u64,
    pub duplicates_reported: u64,
    pub out_of_order: u64,
    pub dropped: u64,
    pub timeouts: u64,
    pub recoveries: u64,
    pub undone: u64,
    pub probes: u64,
    pub window_probes: u64,
    pub challenges: u64,
}

/// The state of a connection, for `struct tcp_info` (`include/uapi/linux/tcp.h`). Times are in
/// nanoseconds, windows in bytes unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The state.
    pub state: State,
    /// Where recovery is: 0 open, 3 fast recovery, 4 loss (TCP_CA_*).
    pub recovery: u8,
    /// Timeouts without progress, window probes without an answer, doublings of the timeout.
    pub retransmits: u32,
    /// See `retransmits`.
    pub probes: u32,
    /// See `retransmits`.
    pub backoff: u32,
    /// Timestamps, SACK and window scaling are in use.
    pub timestamps: bool,
    /// See `timestamps`.
    pub sack: bool,
    /// See `timestamps`.
    pub window_scaling: bool,
    /// The peer's shift and ours.
    pub send_shift: u8,
    /// See `send_shift`.
    pub receive_shift: u8,
    /// The retransmission timeout with its backoff.
    pub timeout: Nanos,
    /// How long an acknowledgement may wait.
    pub ack_delay: Nanos,
    /// Payload of a full segment, of the largest that came, and of the largest that was announced.
    pub send_mss: u32,
    /// See `send_mss`.
    pub receive_mss: u32,
    /// See `send_mss`.
    pub announced_mss: u32,
    /// Full segments (rounded up) not acknowledged, selectively acknowledged, lost, sent again and
    /// in flight.
    pub unacknowledged: u32,
    /// See `unacknowledged`.
    pub sacked: u32,
    /// See `unacknowledged`.
    pub lost: u32,
    /// See `unacknowledged`.
    pub retransmitted_out: u32,
    /// When data were sent, data came, and anything came last.
    pub last_sent: Nanos,
    /// See `last_sent`.
    pub last_data: Nanos,
    /// See `last_sent`.
    pub last_heard: Nanos,
    /// Path MTU less headers without options.
    pub path_mss: u32,
    /// Smoothed round-trip time, its variation, the least.
    pub rtt: Nanos,
    /// See `rtt`.
    pub rtt_variation: Nanos,
    /// See `rtt`.
    pub rtt_least: Nanos,
    /// Congestion window and slow-start threshold in full segments.
    pub window: u32,
    /// See `window`; `0x7fff_ffff` for none.
    pub threshold: u32,
    /// The network was seen to reorder.
    pub reordering: bool,
    /// The receive buffer's limit, and the part of it that is offered.
    pub receive_space: u32,
    /// See `receive_space`.
    pub receive_window: u32,
    /// The peer's window.
    pub send_window: u32,
    /// Bytes in the queues.
    pub queued_in: u32,
    /// See `queued_in`.
    pub queued_out: u32,
    /// Bytes that were never sent.
    pub unsent: u32,
    /// Counts since the beginning.
    pub segments_in: u64,
    /// See `segments_in`.
    pub segments_out: u64,
    /// See `segments_in`.
    pub data_segments_in: u64,
    /// See `segments_in`.
    pub data_segments_out: u64,
    /// See `segments_in`.
    pub bytes_acknowledged: u64,
    /// See `segments_in`.
    pub bytes_received: u64,
    /// See `segments_in`.
    pub bytes_sent: u64,
    /// See `segments_in`.
    pub bytes_retransmitted: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Duplicates that the peer reported.
    pub duplicates_reported: u64,
    /// Segments that came out of order.
    pub out_of_order: u64,
    /// Segments that were dropped for want of room.
    pub dropped: u64,
    /// Timeouts; fast recoveries; recoveries that were undone; tail loss probes.
    pub timeouts: u64,
    /// See `timeouts`.
    pub recoveries: u64,
    /// See `timeouts`.
    pub undone: u64,
    /// See `timeouts`.
    pub tail_probes: u64,
    /// Answers to suspicious segments (RFC 5961).
    pub challenges: u64,
    /// The timer of `/proc/net/tcp`: 0 none, 1 retransmission, 2 keepalive or FIN-WAIT-2, 4 window
    /// probe; and when it is due.
    pub timer: u8,
    /// See `timer`.
    pub timer_at: Nanos,
}

impl<B: Bytes> Connection<B> {
    /// Numbers for TCP_INFO.
    pub fn info(&self) -> Info {
        let (send, receive) = (&self.send, &self.receive);
        let (sent, recovery, counters) = (&send.sent, &self.recovery, &self.counters);
        let mss = self.congestion.mss.max(1);
        let segments = |bytes: u64| bytes.div_ceil(mss).min(u64::from(u32::MAX)) as u32;
        let clip = |bytes: u64| bytes.min(u64::from(u32::MAX)) as u32;
        let (timer, timer_at) = self.timer();
        Info {
            state: self.state,
            recovery: recovery.phase as u8,
            retransmits: recovery.timeouts,
            probes: recovery.probes.max(recovery.keepalives),
            backoff: recovery.backoff,
            timestamps: self.stamps.enabled,
            sack: self.sack,
            window_scaling: self.window_scaling && self.peer_scales,
            send_shift: send.shift,
            receive_shift: receive.shift,
            timeout: self.rtt.backed_off(recovery.backoff),
            ack_delay: receive.delay(),
            send_mss: self.mss(),
            receive_mss: receive.segment,
            announced_mss: self.announced_mss.into(),
            unacknowledged: segments(send.flight()).max(sent.len() as u32),
            sacked: segments(sent.sacked),
            lost: segments(sent.lost),
            retransmitted_out: segments(sent.out),
            last_sent: send.last_at,
            last_data: receive.data_at,
            last_heard: receive.heard_at,
            path_mss: self.path_mss,
            rtt: self.rtt.smoothed,
            rtt_variation: self.rtt.variation,
            rtt_least: self.rtt.least,
            window: segments(self.congestion.window),
            threshold: if self.congestion.threshold >= crate::congestion::INFINITE {
                0x7fff_ffff
            } else {
                segments(self.congestion.threshold)
            },
            reordering: sent.rack.reordering,
            receive_space: clip(receive.limit as u64),
            receive_window: clip(receive.edge.saturating_sub(receive.next)),
            send_window: clip(send.edge.saturating_sub(send.una)),
            queued_in: clip(receive.queue.len() as u64),
            queued_out: clip(send.queue.len() as u64),
            unsent: clip(self.unsent() as u64),
            segments_in: counters.segments_in,
            segments_out: counters.segments_out,
            data_segments_in: counters.data_segments_in,
            data_segments_out: counters.data_segments_out,
            bytes_acknowledged: counters.bytes_acknowledged,
            bytes_received: counters.bytes_received,
            bytes_sent: counters.bytes_sent,
            bytes_retransmitted: counters.bytes_retransmitted,
            retransmitted: counters.retransmitted,
            duplicates_reported: counters.duplicates_reported,
            out_of_order: counters.out_of_order,
            dropped: counters.dropped,
            timeouts: counters.timeouts,
            recoveries: counters.recoveries,
            undone: counters.undone,
            tail_probes: counters.probes,
            challenges: counters.challenges,
            timer,
            timer_at,
        }
    }

    fn timer(&self) -> (u8, Nanos) {
        let timers = &self.timers;
        let other = timers.keepalive.min(timers.linger);
        if timers.send == crate::timers::NEVER {
            return if other == crate::timers::NEVER { (0, 0) } else { (2, other) };
        }
        (if timers.purpose == TimerPurpose::Persist { 4 } else { 1 }, timers.send)
    }
}
