//! When a connection must be woken. One number per purpose; [`NEVER`] is none.

use crate::Nanos;

/// A timer that is not set.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// The purpose of the retransmission timer (Linux: `icsk_pending`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerPurpose {
    /// The timeout of RFC 6298.
    Timeout,
    /// The end of the window for reordering (RFC 8985, 6.3).
    Reorder,
    /// A tail loss probe (RFC 8985, 7).
    Tail,
    /// Data wait, nothing is in flight (RFC 9293, 3.8.6.1).
    Persist,
}

#[derive(Debug)]
pub(crate) struct Timers {
    /// The retransmission timer, and its purpose.
    pub send: Nanos,
    pub purpose: TimerPurpose,
    /// A delayed acknowledgement.
    pub acknowledge: Nanos,
    /// The next look at a silent connection.
    pub keepalive: Nanos,
    /// The end of FIN-WAIT-2.
    pub linger: Nanos,
}

impl Timers {
    pub(crate) const fn new() -> Timers {
        Timers {
            send: NEVER,
            purpose: TimerPurpose::Timeout,
            acknowledge: NEVER,
            keepalive: NEVER,
            linger: NEVER,
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        let next = self.send.min(self.acknowledge).min(self.keepalive).min(self.linger);
        (next != NEVER).then_some(next)
    }
}
