//! Options of stream sockets (tcp(7)).

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_netlink::diag::INFORMATION;
use hayate_tcp::{Algorithm, Config, Connection, Events, Info, Keepalive, MILLISECOND, SECOND};

use super::route::Route;
use super::{Outbox, Phase, Socket};
use crate::net::slice::Slice;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

/// `SOL_TCP`.
pub(super) const SOL_TCP: i32 = 6;

const TCP_NODELAY: i32 = 1;
const TCP_MAXSEG: i32 = 2;
const TCP_CORK: i32 = 3;
const TCP_KEEPIDLE: i32 = 4;
const TCP_KEEPINTVL: i32 = 5;
const TCP_KEEPCNT: i32 = 6;
const TCP_SYNCNT: i32 = 7;
const TCP_LINGER2: i32 = 8;
const TCP_DEFER_ACCEPT: i32 = 9;
const TCP_WINDOW_CLAMP: i32 = 10;
const TCP_INFO: i32 = 11;
const TCP_QUICKACK: i32 = 12;
const TCP_CONGESTION: i32 = 13;
const TCP_USER_TIMEOUT: i32 = 18;
const TCP_NOTSENT_LOWAT: i32 = 25;

/// SO_RCVBUF and SO_SNDBUF of a socket that has no connection yet
/// (`net.ipv4.tcp_rmem` and `tcp_wmem`).
pub(super) const RECEIVE_DEFAULT: usize = 131_072;
/// See [`RECEIVE_DEFAULT`].
pub const SEND_DEFAULT: usize = 16_384;

impl Socket {
    /// TCP_DEFER_ACCEPT in nanoseconds, 0 if it is off.
    pub(super) fn deferral(&self) -> u64 {
        seconds(self.choices.lock().defer_accept as u32)
    }

    /// Returns the settings for a connection on a way.
    pub(super) fn config(&self, route: &Route) -> Config {
        let choices = *self.choices.lock();
        let (send, receive) = self.sizes();
        let mut config = Config {
            algorithm: choices.algorithm,
            nodelay: choices.nodelay,
            cork: choices.cork,
            urgent_inline: self.reads_urgent_inline(),
            keepalive: self.keeps_alive().then_some(choices.keepalive),
            user_timeout: user_timeout(choices.user_timeout),
            syn_retries: choices.syn_retries,
            fin_timeout: fin_timeout(choices.fin_timeout),
            ..Config::default()
        };
        route.configure(&mut config);
        if choices.max_segment != 0 {
            config.mss = config.mss.min(choices.max_segment);
            if route.path.interface.is_loopback() {
                config.segment_limit = config.mss;
            }
        }
        if send != 0 {
            (config.send_limit, config.send_limit_max) = (send, send);
        }
        if receive != 0 {
            (config.receive_limit, config.receive_limit_max) = (receive / 2, receive / 2);
        }
        config
    }

    /// Copies the options to a connection that begins at this listener.
    pub(super) fn inherit(&self, listener: &Socket) {
        *self.choices.lock() = *listener.choices.lock();
        *self.options.lock() = *listener.options.lock();
        self.level.inherit(&listener.level);
        self.common.inherit(&listener.common);
        self.filter.inherit(&listener.filter);
        let (send, receive) = listener.sizes();
        self.send_size.store(send, Ordering::Relaxed);
        self.receive_size.store(receive, Ordering::Relaxed);
        let bound = listener.not_sent.load(Ordering::Relaxed);
        self.not_sent.store(bound, Ordering::Relaxed);
    }

    /// Lets the connection, if there is one, take a change.
    pub(super) fn apply(&self, change: impl FnOnce(&mut Connection<Slice>, u64, &mut Outbox)) {
        self.act(|connection, now, out| {
            change(connection, now, out);
            ((), Events::empty())
        });
    }

    /// Sets an option of the level `SOL_TCP` (`do_tcp_setsockopt`).
    pub(super) fn set_tcp(&self, option: i32, value: OptionValue) -> Result<()> {
        if option == TCP_CONGESTION {
            return self.set_congestion(value);
        }
        let number = value.number()?;
        let on = number != 0;
        match option {
            TCP_NODELAY => {
                self.choices.lock().nodelay = on;
                self.apply(|connection, now, out| {
                    connection.set_nodelay(on);
                    connection.transmit(now, out);
                });
            }
            TCP_CORK => {
                self.choices.lock().cork = on;
                self.apply(|connection, now, out| {
                    connection.set_cork(on);
                    connection.transmit(now, out);
                });
            }
            TCP_MAXSEG => {
                // 0 takes the limit away; MAX_TCP_WINDOW bounds it.
                let size = if number == 0 { 0 } else { within(number, 88, 32767)? };
                self.choices.lock().max_segment = size;
            }
            TCP_DEFER_ACCEPT => self.choices.lock().defer_accept = deferral(number),
            TCP_NOTSENT_LOWAT => {
                self.not_sent.store(number as u32 as usize, Ordering::Relaxed);
                self.wake(Events::WRITABLE);
            }
            TCP_QUICKACK => {
                self.choices.lock().quick = on;
                self.apply(|connection, now, out| {
                    connection.set_quick_acknowledgement(on);
                    connection.acknowledge(now, out);
                });
            }
            _ => return self.set_timing(option, number),
        }
        Ok(())
    }

    /// Sets TCP_CONGESTION.
    fn set_congestion(&self, value: OptionValue) -> Result<()> {
        if value.length == 0 {
            return Err(Errno::EINVAL);
        }
        let mut name = [0; 16];
        let name = value.bytes(&mut name)?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let algorithm = Algorithm::from_name(name).ok_or(Errno::ENOENT)?;
        self.choices.lock().algorithm = algorithm;
        self.apply(|connection, _, _| connection.set_algorithm(algorithm));
        Ok(())
    }

    /// Sets an option that says how long, or how often, a silent peer is asked.
    fn set_timing(&self, option: i32, number: i32) -> Result<()> {
        match option {
            TCP_KEEPIDLE => {
                let idle = seconds(within(number, 1, 32767)?);
                self.keepalive(|keep| keep.idle = idle);
            }
            TCP_KEEPINTVL => {
                let interval = seconds(within(number, 1, 32767)?);
                self.keepalive(|keep| keep.interval = interval);
            }
            TCP_KEEPCNT => {
                let count = within(number, 1, 127)?;
                self.keepalive(|keep| keep.count = count);
            }
            TCP_SYNCNT => {
                let count = within(number, 1, 127)?;
                self.choices.lock().syn_retries = count;
                self.apply(|connection, _, _| connection.set_syn_retries(count));
            }
            TCP_LINGER2 => {
                // More than two minutes are two minutes (`TCP_FIN_TIMEOUT_MAX`).
                let time = if number < 0 { -1 } else { number.min(120) };
                self.choices.lock().fin_timeout = time;
                self.apply(|connection, _, _| connection.set_fin_timeout(fin_timeout(time)));
            }
            TCP_USER_TIMEOUT => {
                let millis = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
                self.choices.lock().user_timeout = millis;
                self.apply(|connection, _, _| connection.set_user_timeout(user_timeout(millis)));
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    fn keepalive(&self, change: impl FnOnce(&mut Keepalive)) {
        let keepalive = {
            let mut choices = self.choices.lock();
            change(&mut choices.keepalive);
            choices.keepalive
        };
        let wanted = self.keeps_alive().then_some(keepalive);
        self.apply(|connection, now, _| connection.set_keepalive(now, wanted));
    }

    /// Tells the connection that SO_KEEPALIVE or SO_OOBINLINE was switched.
    pub(super) fn switched(&self) {
        let wanted = self.keeps_alive().then_some(self.choices.lock().keepalive);
        let inline = self.reads_urgent_inline();
        self.apply(|connection, now, _| {
            connection.set_keepalive(now, wanted);
            connection.set_urgent_inline(inline);
        });
    }

    /// Returns an option of the level `SOL_TCP`.
    pub(super) fn get_tcp(&self, option: i32, out: OptionOutput) -> Result<()> {
        let choices = *self.choices.lock();
        let number = match option {
            TCP_NODELAY => i32::from(choices.nodelay),
            TCP_CORK => i32::from(choices.cork),
            TCP_MAXSEG => match &self.state.lock().phase {
                Phase::Connected(flow) => flow.connection.mss() as i32,
                _ if choices.max_segment != 0 => choices.max_segment as i32,
                _ => hayate_tcp::config::DEFAULT_MSS as i32,
            },
            TCP_KEEPIDLE => (choices.keepalive.idle / SECOND) as i32,
            TCP_KEEPINTVL => (choices.keepalive.interval / SECOND) as i32,
            TCP_KEEPCNT => choices.keepalive.count as i32,
            TCP_SYNCNT => choices.syn_retries as i32,
            TCP_LINGER2 if choices.fin_timeout == 0 => FIN_TIMEOUT,
            TCP_LINGER2 => choices.fin_timeout,
            TCP_DEFER_ACCEPT => choices.defer_accept,
            // It cannot be set: no window is clamped.
            TCP_WINDOW_CLAMP => 0,
            TCP_NOTSENT_LOWAT => self.not_sent.load(Ordering::Relaxed) as i32,
            TCP_QUICKACK => i32::from(choices.quick),
            TCP_USER_TIMEOUT => choices.user_timeout as i32,
            TCP_CONGESTION => {
                let mut name = [0; 16];
                let text = choices.algorithm.name().as_bytes();
                name[..text.len()].copy_from_slice(text);
                return out.put(&name);
            }
            TCP_INFO => return out.put(&self.information()),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        out.put_number(number)
    }

    /// Returns `struct tcp_info`.
    pub(super) fn information(&self) -> [u8; TCP_INFO_LENGTH] {
        let now = crate::schedule::time::monotonic_ns();
        match &self.state.lock().phase {
            Phase::Connected(flow) => tcp_info(&flow.connection.info(), now),
            Phase::Listening(listener) => listening(listener.ready(), listener.backlog),
            Phase::Idle => with_state(hayate_tcp::State::Closed as u8),
        }
    }
}

/// Rounds the time of TCP_DEFER_ACCEPT up to one after which a SYN-ACK is sent again, in seconds
/// (`secs_to_retrans` and `retrans_to_secs`): 1, 3, 7, 15, ...
fn deferral(wanted: i32) -> i32 {
    /// `TCP_RTO_MAX` in seconds.
    const MOST: i32 = 120;
    let (mut timeout, mut period) = (1, 1);
    if wanted <= 0 {
        return 0;
    }
    for _ in 1..255 {
        if wanted <= period {
            break;
        }
        timeout = (timeout * 2).min(MOST);
        period += timeout;
    }
    period
}

/// Returns an option's number if it is one from `least` to `most`.
fn within(number: i32, least: i32, most: i32) -> Result<u32> {
    if (least..=most).contains(&number) { Ok(number as u32) } else { Err(Errno::EINVAL) }
}

fn seconds(count: u32) -> u64 {
    u64::from(count) * SECOND
}

fn user_timeout(millis: u32) -> Option<u64> {
    (millis != 0).then_some(u64::from(millis) * MILLISECOND)
}

/// How long FIN-WAIT-2 lasts without a program, in seconds (`net.ipv4.tcp_fin_timeout`).
const FIN_TIMEOUT: i32 = 60;

fn fin_timeout(seconds: i32) -> u64 {
    let seconds = if seconds == 0 { FIN_TIMEOUT } else { seconds };
    u64::try_from(seconds).unwrap_or(0) * SECOND
}

/// The length of `struct tcp_info` of Linux 6.1.
const TCP_INFO_LENGTH: usize = INFORMATION;

/// The numbers of a listener: two fields stand for connections that wait and for the backlog.
fn listening(ready: usize, backlog: usize) -> [u8; TCP_INFO_LENGTH] {
    /// `TCP_INIT_CWND`, and the default of `net.ipv4.tcp_reordering`.
    const WINDOW: u32 = 10;
    const REORDERING: u32 = 3;
    let mut bytes = with_state(super::LISTEN);
    put_words(&mut bytes, 24, &[ready as u32, backlog as u32]);
    put_words(&mut bytes, 80, &[WINDOW]);
    put_words(&mut bytes, 88, &[REORDERING]);
    bytes
}

fn with_state(state: u8) -> [u8; TCP_INFO_LENGTH] {
    let mut bytes = [0; TCP_INFO_LENGTH];
    bytes[0] = state;
    bytes
}

/// Writes `struct tcp_info` (include/uapi/linux/tcp.h of Linux 6.1); `now` is the time.
fn tcp_info(info: &Info, now: u64) -> [u8; TCP_INFO_LENGTH] {
    let mut bytes = with_state(info.state as u8);
    bytes[1] = info.recovery;
    bytes[2] = info.retransmits.min(255) as u8;
    bytes[3] = info.probes.min(255) as u8;
    bytes[4] = info.backoff.min(255) as u8;
    bytes[5] =
        u8::from(info.timestamps) | u8::from(info.sack) << 1 | u8::from(info.window_scaling) << 2;
    bytes[6] = info.send_shift & 15 | info.receive_shift << 4;
    let micros = |nanos: u64| (nanos / 1000).min(u64::from(u32::MAX)) as u32;
    let since = |time: u64| (now.saturating_sub(time) / MILLISECOND) as u32;
    let out = &mut bytes;
    let timeouts = [micros(info.timeout), micros(info.ack_delay), info.send_mss, info.receive_mss];
    put_words(out, 8, &timeouts);
    put_words(
        out,
        24,
        &[
            info.unacknowledged,
            info.sacked,
            info.lost,
            info.retransmitted_out,
            0,
            since(info.last_sent),
            0,
            since(info.last_data),
            since(info.last_heard),
            info.path_mss + 40,
            info.receive_window,
            micros(info.rtt),
            micros(info.rtt_variation),
            info.threshold,
            info.window,
            info.announced_mss,
            3,
            0,
            info.receive_space,
            info.retransmitted as u32,
        ],
    );
    let (segments_out, segments_in) = (info.segments_out as u32, info.segments_in as u32);
    put_words(out, 136, &[segments_out, segments_in, info.unsent, micros(info.rtt_least)]);
    put_words(out, 152, &[info.data_segments_in as u32, info.data_segments_out as u32]);
    let (duplicates, reordering) = (info.duplicates_reported as u32, u32::from(info.reordering));
    put_words(out, 216, &[duplicates, reordering, info.out_of_order as u32, info.send_window]);
    for (start, count) in [
        (120, info.bytes_acknowledged),
        (128, info.bytes_received),
        (200, info.bytes_sent),
        (208, info.bytes_retransmitted),
    ] {
        bytes[start..start + 8].copy_from_slice(&count.to_ne_bytes());
    }
    bytes
}

/// Writes words of 32 bits from `start` on.
fn put_words(bytes: &mut [u8; TCP_INFO_LENGTH], start: usize, words: &[u32]) {
    for (index, word) in words.iter().enumerate() {
        bytes[start + 4 * index..][..4].copy_from_slice(&word.to_ne_bytes());
    }
}
