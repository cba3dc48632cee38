//! How a connection begins: actively, from a SYN, from a SYN cookie.

use super::{Connection, Limits, Phase, Recovery, Stamps};
use crate::arrivals::Arrivals;
use crate::config::{Config, DEFAULT_MSS, MIN_MSS};
use crate::congestion::Congestion;
use crate::cookie::Accepted;
use crate::info::Counters;
use crate::receive::Receive;
use crate::rtt::Rtt;
use crate::send::Send;
use crate::seq::{BASE, FIRST};
use crate::timers::{NEVER, Timers};
use crate::{Bytes, Nanos, Options, Segment, Seq, State};

impl<B: Bytes> Connection<B> {
    fn new(now: Nanos, config: &Config, initial: Seq, state: State) -> Connection<B> {
        let mut receive = Receive::new(config, now);
        receive.edge = BASE + receive.free().min(0xffff);
        Connection {
            state,
            last_state: State::Closed,
            send: Send::new(config, initial),
            receive,
            stamps: Stamps {
                enabled: config.timestamps,
                offset: config.timestamp_offset,
                recent: 0,
                recent_at: now,
            },
            rtt: Rtt::new(),
            congestion: Congestion::new(config.algorithm, config.mss.max(MIN_MSS)),
            recovery: Recovery {
                phase: Phase::Open,
                point: BASE,
                prior_window: 0,
                prior_threshold: 0,
                undo: None,
                delivered: 0,
                sent: 0,
                flight: 0,
                duplicates: 0,
                emulated: 0,
                backoff: 0,
                timeouts: 0,
                stalled_at: now,
                base: now,
                reorder_at: NEVER,
                probe: None,
                probes: 0,
                probe_backoff: 0,
                keepalives: 0,
            },
            timers: Timers::new(),
            counters: Counters::default(),
            arrivals: Arrivals::default(),
            sack: config.sack,
            orphan: false,
            error: None,
            soft_error: None,
            challenged_at: 0,
            path_mss: config.mss.max(MIN_MSS),
            announced_mss: config.announced_mss(),
            window_scaling: config.window_scaling,
            peer_scales: false,
            keepalive: config.keepalive,
            user_timeout: config.user_timeout,
            limits: Limits {
                syn_retries: config.syn_retries,
                synack_retries: config.synack_retries,
                retries: config.retries,
                orphan_retries: if config.orphan_retries == 0 { 8 } else { config.orphan_retries },
                fin_timeout: config.fin_timeout,
            },
        }
    }

    /// Begins an active open (connect(2)). `initial` is our first number
    /// ([`crate::cookie::Key::isn`]). [`Connection::transmit`] sends the SYN.
    pub fn connect(now: Nanos, config: &Config, initial: Seq) -> Connection<B> {
        Connection::new(now, config, initial, State::SynSent)
    }

    /// Begins a passive open by a SYN without ACK, RST and FIN that came for a listening socket.
    /// [`Connection::transmit`] sends the SYN-ACK. Data in the SYN are not taken (no fast open, RFC
    /// 7413): the peer sends them again.
    pub fn accept(now: Nanos, config: &Config, initial: Seq, syn: &Segment<B>) -> Connection<B> {
        let mut connection = Connection::new(now, config, initial, State::SynReceived);
        connection.take_syn(now, syn.seq, &syn.options, u64::from(syn.window));
        connection
    }

    /// Makes an established connection from the acknowledgement of a SYN cookie, checked by
    /// [`crate::cookie::check`]. The caller then gives `ack` to [`Connection::on_segment`], for its
    /// data, and wakes the threads that wait for the connection.
    pub fn resume(
        now: Nanos,
        config: &Config,
        accepted: &Accepted,
        ack: &Segment<B>,
    ) -> Connection<B> {
        let initial = accepted.initial;
        let mut connection = Connection::new(now, config, initial, State::SynReceived);
        let options = Options {
            mss: Some(accepted.mss),
            window_scale: accepted.window_scale,
            sack_permitted: accepted.sack,
            timestamp: ack.options.timestamp,
            ..Options::default()
        };
        connection.take_syn(now, ack.seq - 1, &options, 0);
        (connection.send.una, connection.send.next) = (FIRST, FIRST);
        let window = u64::from(ack.window) << connection.send.shift;
        connection.send.edge = FIRST + window;
        connection.send.largest = window;
        connection.send.updated = connection.receive.next;
        connection.establish(now);
        connection
    }

    /// Takes the options and the window of the peer's SYN.
    pub(super) fn take_syn(&mut self, now: Nanos, seq: Seq, options: &Options, window: u64) {
        self.receive.begin(seq);
        self.peer_scales = options.window_scale.is_some();
        match options.window_scale {
            // RFC 7323, 2.3: a shift above 14 is taken as 14.
            Some(shift) if self.window_scaling => {
                self.send.shift = shift.min(14);
            }
            _ => (self.send.shift, self.receive.shift) = (0, 0),
        }
        self.sack &= options.sack_permitted;
        self.stamps.enabled &= options.timestamp.is_some();
        if let Some((value, _)) = options.timestamp
            && self.stamps.enabled
        {
            (self.stamps.recent, self.stamps.recent_at) = (value, now);
        }
        self.send.peer_mss = options.mss.map_or(DEFAULT_MSS, u32::from);
        self.send.limit_mss(self.path_mss);
        // The window of a SYN is never shifted.
        self.send.edge = self.send.una.max(FIRST) + window;
        self.send.largest = window;
        self.send.updated = BASE;
        let payload = self.send.mss - self.stamp_len() as u32;
        self.congestion.set_mss(payload);
    }

    /// The handshake is done.
    pub(super) fn establish(&mut self, now: Nanos) {
        // A program may have closed before the handshake was done.
        self.state = if self.send.fin { State::FinWait1 } else { State::Established };
        if self.counters.retransmitted_syns > 0 && self.rtt.smoothed == 0 {
            // RFC 6298, 5.7: a SYN was lost and nothing was measured.
            self.rtt.timeout = 3 * crate::SECOND;
        }
        if self.recovery.timeouts > 0 {
            // RFC 6928, 2: a lost SYN makes the initial window one segment.
            self.congestion.window = self.congestion.mss;
        }
        (self.recovery.backoff, self.recovery.timeouts) = (0, 0);
        self.recovery.phase = Phase::Open;
        self.recovery.base = now;
        self.receive.heard_at = now;
        self.send.last_at = now;
        self.start_keepalive(now);
    }
}
