//! The settings of a connection when it begins: limits, options, numbers of `/proc/sys/net/ipv4`.

use crate::{Algorithm, Nanos, SECOND};

/// Linux' `TCP_MIN_MSS` (`net.ipv4.tcp_min_snd_mss`): no path makes segments smaller.
pub const MIN_MSS: u32 = 48;
/// The meaning of a SYN without an MSS option (RFC 9293, 3.7.1).
pub const DEFAULT_MSS: u32 = 536;

/// SO_KEEPALIVE with its times (tcp(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe: TCP_KEEPIDLE.
    pub idle: Nanos,
    /// Time between probes: TCP_KEEPINTVL.
    pub interval: Nanos,
    /// Probes without an answer before the connection times out: TCP_KEEPCNT.
    pub count: u32,
}

impl Default for Keepalive {
    fn default() -> Keepalive {
        Keepalive { idle: 7200 * SECOND, interval: 75 * SECOND, count: 9 }
    }
}

/// Settings of one connection. The defaults are those of Linux for a path with an MTU of 1500.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload of a segment on the wire without options: path MTU less 40 (IPv6: 60), or
    /// TCP_MAXSEG. It is what the SYN announces.
    pub mss: u32,
    /// Largest payload that one [`crate::Segment`] may have; more than `mss` when the device, or
    /// the caller for it, cuts ([`crate::Segment::cut`]). It is taken as at least one `mss`.
    pub segment_limit: u32,
    /// Bytes of the send buffer at the beginning, and how far it may grow by itself. Equal if the
    /// program has set SO_SNDBUF.
    pub send_limit: usize,
    /// See `send_limit`.
    pub send_limit_max: usize,
    /// Bytes of data that may wait for the program at the beginning (the window; half of SO_RCVBUF
    /// by Linux' count), and how far that may grow by itself.
    pub receive_limit: usize,
    /// See `receive_limit`.
    pub receive_limit_max: usize,
    /// Offers timestamps (`tcp_timestamps`).
    pub timestamps: bool,
    /// Offers selective acknowledgements (`tcp_sack`).
    pub sack: bool,
    /// Offers window scaling (`tcp_window_scaling`).
    pub window_scaling: bool,
    /// Added to the milliseconds of a timestamp: [`crate::cookie::Key::timestamp_offset`].
    pub timestamp_offset: u32,
    /// How the congestion window moves: TCP_CONGESTION.
    pub algorithm: Algorithm,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// SO_OOBINLINE.
    pub urgent_inline: bool,
    /// SO_KEEPALIVE.
    pub keepalive: Option<Keepalive>,
    /// TCP_USER_TIMEOUT (RFC 5482).
    pub user_timeout: Option<Nanos>,
    /// Times a SYN is sent again (`tcp_syn_retries`, TCP_SYNCNT).
    pub syn_retries: u32,
    /// Times a SYN-ACK is sent again (`tcp_synack_retries`).
    pub synack_retries: u32,
    /// When data are given up (`tcp_retries2`): so many timeouts of 200 ms that double.
    pub retries: u32,
    /// The same once no program has the connection (`tcp_orphan_retries`, 8 if 0).
    pub orphan_retries: u32,
    /// How long FIN-WAIT-2 lasts without a program (`tcp_fin_timeout`, TCP_LINGER2).
    pub fin_timeout: Nanos,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            segment_limit: 0,
            send_limit: 87_040,
            send_limit_max: 4 << 20,
            receive_limit: 65_536,
            receive_limit_max: 3 << 20,
            timestamps: true,
            sack: true,
            window_scaling: true,
            timestamp_offset: 0,
            algorithm: Algorithm::Cubic,
            nodelay: false,
            cork: false,
            urgent_inline: false,
            keepalive: None,
            user_timeout: None,
            syn_retries: 6,
            synack_retries: 5,
            retries: 15,
            orphan_retries: 8,
            fin_timeout: 60 * SECOND,
        }
    }
}

impl Config {
    /// The shift of the windows that are offered (Linux: `tcp_select_initial_window`).
    pub(crate) fn window_shift(&self) -> u8 {
        let largest = self.receive_limit_max.max(self.receive_limit) as u64;
        if !self.window_scaling {
            return 0;
        }
        (0..14).find(|shift| largest >> shift <= 0xffff).unwrap_or(14)
    }

    /// The MSS that a SYN announces.
    pub(crate) fn announced_mss(&self) -> u16 {
        self.mss.clamp(MIN_MSS, 0xffff) as u16
    }
}
