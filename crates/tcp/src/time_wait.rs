//! TIME-WAIT (RFC 9293, 3.6.1): the remnant of a connection, kept for a minute in few bytes.
//!
//! It answers the peer's last FIN again, and keeps the same addresses and ports from beginning
//! anew before old segments have died (Linux: `net/ipv4/tcp_minisocks.c`).

use crate::connection::{CHALLENGE_INTERVAL, Connection};
use crate::{Bytes, Flags, MILLISECOND, Nanos, SECOND, Segment, Seq};

/// How long it lasts: `TCP_TIMEWAIT_LEN`.
pub const DURATION: Nanos = 60 * SECOND;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct TimeWait {
    /// Our next number, and the one that is expected.
    send_next: Seq,
    receive_next: Seq,
    window: u16,
    stamps: bool,
    stamp_offset: u32,
    recent: u32,
    /// When `recent` came, and when the state ends.
    recent_at: Nanos,
    deadline: Nanos,
    answered_at: Nanos,
}

/// The caller's next step with a segment that came in TIME-WAIT.
#[derive(Debug)]
pub enum Verdict<B> {
    /// Nothing.
    Ignore,
    /// Sends this.
    Answer(Segment<B>),
    /// Ends the state: a reset came (Linux without `tcp_rfc1337`).
    Ended,
    /// Ends the state and gives the SYN to the listening socket, whose connection begins with this
    /// number (RFC 6191; RFC 9293, 3.10.7.4). Without a listening socket, it refuses the SYN.
    Reopen(Seq),
}

impl TimeWait {
    pub(crate) fn new<B: Bytes>(now: Nanos, connection: &Connection<B>) -> TimeWait {
        let (send, receive) = (&connection.send, &connection.receive);
        let window = receive.edge.saturating_sub(receive.next) >> receive.shift;
        TimeWait {
            send_next: send.wire(send.next),
            receive_next: receive.wire(receive.next),
            window: window.min(0xffff) as u16,
            stamps: connection.stamps.enabled,
            stamp_offset: connection.stamps.offset,
            recent: connection.stamps.recent,
            recent_at: connection.stamps.recent_at,
            deadline: now + DURATION,
            answered_at: 0,
        }
    }

    /// When the state ends. It moves to later with a segment that is answered.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// True if connect(2) may take the same addresses and ports for a new connection: timestamps
    /// keep the old segments out, after a second (Linux: `tcp_twsk_unique` with `tcp_tw_reuse`).
    /// The new connection begins with the number of [`TimeWait::next_isn`].
    pub fn may_reuse(&self, now: Nanos) -> bool {
        self.stamps && now.saturating_sub(self.recent_at) > SECOND
    }

    /// A first number that old segments cannot be taken for (Linux: `tw_snd_nxt + 65535 + 2`).
    pub fn next_isn(&self) -> Seq {
        let isn = self.send_next + (65_535 + 2);
        if isn.0 == 0 { Seq(1) } else { isn }
    }

    /// Takes a segment (Linux: `tcp_timewait_state_process`).
    pub fn on_segment<B: Bytes>(&mut self, now: Nanos, segment: &Segment<B>) -> Verdict<B> {
        let stamp = segment.options.timestamp.filter(|_| self.stamps);
        let old = stamp.is_some_and(|(value, _)| (value.wrapping_sub(self.recent) as i32) < 0);
        let (reset, syn) = (segment.flags.contains(Flags::RST), segment.flags.contains(Flags::SYN));
        if !old && segment.seq == self.receive_next && (segment.sequence_len() == 0 || reset) {
            if reset {
                return Verdict::Ended;
            }
            self.deadline = now + DURATION;
            if let Some((value, _)) = stamp {
                (self.recent, self.recent_at) = (value, now);
            }
            return Verdict::Ignore;
        }
        let newer = stamp.is_some_and(|(value, _)| (self.recent.wrapping_sub(value) as i32) < 0);
        if syn
            && !reset
            && segment.ack.is_none()
            && !old
            && (segment.seq.after(self.receive_next) || newer)
        {
            return Verdict::Reopen(self.next_isn());
        }
        if reset || !(old || segment.ack.is_some()) {
            return Verdict::Ignore;
        }
        self.deadline = now + DURATION;
        if self.answered_at != 0 && now < self.answered_at + CHALLENGE_INTERVAL {
            return Verdict::Ignore;
        }
        self.answered_at = now.max(1);
        Verdict::Answer(self.acknowledgement(now))
    }

    /// The acknowledgement of everything.
    pub fn acknowledgement<B: Bytes>(&self, now: Nanos) -> Segment<B> {
        let mut segment = Segment::new(self.send_next, Some(self.receive_next), Flags::empty());
        segment.window = self.window;
        if self.stamps {
            let value = ((now / MILLISECOND) as u32).wrapping_add(self.stamp_offset);
            segment.options.timestamp = Some((value, self.recent));
        }
        segment
    }
}
