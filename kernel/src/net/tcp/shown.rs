//! The sockets as `/proc/net/tcp` and sock_diag(7) show them.
//!
//! Listeners come first, then connections and what is left of closed ones (TIME-WAIT). A socket
//! that is neither connected nor listening is not shown, as on Linux. One after the other is looked
//! at: a list is no picture of one moment.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::Result;
use hayate_ip::SocketAddress;
use hayate_netlink::diag::{INFORMATION, InetDetails, Memory, option};
use hayate_tcp::State as TcpState;

use super::route::Ends;
use super::table::{self, ConnectionEntry, Remnant};
use super::{LISTEN, PIECE_LEAST, PORTS, Phase, Socket};
use crate::net::config::Network;
use crate::net::ip_options::Wishes;
use crate::vfs::socket::SocketOps;
use crate::vfs::socket_options::Buffer;

/// What is shown of a socket.
pub struct Shown {
    /// It is a socket of IPv6.
    pub v6: bool,
    /// Its names.
    pub ends: Ends,
    /// Linux' number of its state.
    pub state: u8,
    /// Bytes that are not acknowledged; the backlog of a listener.
    pub sending: usize,
    /// Bytes that wait to be read, or connections to be accepted.
    pub receiving: usize,
    /// The timer: 0 none, 1 retransmission, 2 keepalive, 3 TIME-WAIT, 4 window probe.
    pub timer: u8,
    /// When it is due, in nanoseconds of the monotonic clock.
    pub timer_at: u64,
    /// Timeouts without progress.
    pub retransmits: u32,
    /// Window probes without an answer.
    pub probes: u32,
    /// The user who made it; 0 without an open file.
    pub user: u32,
    /// The number of its inode; 0 without an open file.
    pub inode: u64,
    /// SO_BINDTODEVICE.
    pub interface: u32,
    /// SO_COOKIE; all ones for none.
    pub cookie: u64,
    /// How many references there are to it.
    pub references: usize,
    /// More, of a socket that is not in SYN-RECEIVED or TIME-WAIT.
    pub details: Option<Details>,
}

/// What is shown of a socket that has a congestion window.
pub struct Details {
    /// The retransmission timeout, in nanoseconds.
    pub timeout: u64,
    /// How long an acknowledgement may wait, in nanoseconds.
    pub ack_delay: u64,
    /// TCP_QUICKACK is off.
    pub is_interactive: bool,
    /// The congestion window in segments.
    pub window: u32,
    /// The slow-start threshold in segments; `None` in the first slow start.
    pub threshold: Option<u32>,
}

/// Calls `visit` with what is shown of each socket of a namespace, and with the socket; without a
/// lock. A remnant is none.
///
/// # Errors
/// `ENOMEM`, those of `visit`.
pub fn for_each_shown(
    network: &Network,
    mut visit: impl FnMut(&Shown, Option<&Socket>) -> Result<()>,
) -> Result<()> {
    let mut show = |socket: &Arc<Socket>| {
        socket.shown().map_or(Ok(()), |shown| visit(&shown, Some(&**socket)))
    };
    PORTS.for_each(network.key, &mut show)?;
    table::for_each(|entry| match entry {
        ConnectionEntry::Socket(socket) if socket.network().key == network.key => {
            socket.shown().map_or(Ok(()), |shown| visit(&shown, Some(&**socket)))
        }
        ConnectionEntry::Remnant(remnant) if remnant.ends.network == network.key => {
            visit(&remnant.shown(), None)
        }
        _ => Ok(()),
    })
}

/// Finds a connection, its remnant, or the listener that would get it on this interface, as a
/// segment does (`inet_diag_find_one_icsk` of Linux).
pub fn find_shown(ends: Ends, interface: u32) -> Option<(Shown, Option<Arc<Socket>>)> {
    let socket = match table::find(&ends) {
        Some(ConnectionEntry::Remnant(remnant)) => return Some((remnant.shown(), None)),
        Some(ConnectionEntry::Socket(socket)) => socket,
        None => {
            let Ends { local, .. } = ends;
            PORTS.find(ends.network, local.port, local.address, interface, 0, |_| Some(0))?
        }
    };
    socket.shown().map(|shown| (shown, Some(socket)))
}

impl Socket {
    fn shown(self: &Arc<Socket>) -> Option<Shown> {
        let quick = self.choices.lock().quick;
        let state = self.state.lock();
        let is_open = self.common.inode() != 0 && !state.released;
        let any = state.local.address.wildcard();
        let mut shown = Shown {
            v6: self.v6,
            ends: Ends {
                network: self.network().key,
                local: state.local,
                remote: SocketAddress::new(any, 0),
            },
            state: LISTEN,
            sending: 0,
            receiving: 0,
            timer: 0,
            timer_at: 0,
            retransmits: 0,
            probes: 0,
            user: if is_open { self.user } else { 0 },
            inode: if is_open { self.common.inode() } else { 0 },
            interface: self.level.interface(),
            cookie: self.common.cookie(),
            references: Arc::strong_count(self).saturating_sub(1),
            details: None,
        };
        match &state.phase {
            Phase::Idle => return None,
            Phase::Listening(listener) => {
                shown.receiving = listener.ready();
                shown.sending = listener.backlog;
            }
            Phase::Connected(flow) => {
                let info = flow.connection.info();
                shown.ends = flow.route.ends;
                shown.state = info.state as u8;
                (shown.timer, shown.timer_at) = (info.timer, info.timer_at);
                (shown.retransmits, shown.probes) = (info.retransmits, info.probes);
                if info.state == TcpState::SynReceived {
                    shown.user = self.user;
                    return Some(shown);
                }
                shown.sending = flow.connection.unacknowledged();
                shown.receiving = flow.connection.available();
                shown.details = Some(Details {
                    timeout: info.timeout,
                    ack_delay: info.ack_delay,
                    is_interactive: !quick,
                    window: info.window,
                    threshold: (info.threshold < 0x7fff_ffff).then_some(info.threshold),
                });
            }
        }
        Some(shown)
    }

    /// Returns what sock_diag(7) tells of it besides.
    pub fn diagnosed(&self) -> InetDetails {
        let (choices, options) = (*self.choices.lock(), *self.options.lock());
        let limit = |which| self.buffer_size(which).min(u32::MAX as usize) as u32;
        let mut memory = Memory {
            receive_limit: limit(Buffer::Receive),
            send_limit: limit(Buffer::Send),
            ..Memory::default()
        };
        let state = self.state.lock();
        if let Phase::Connected(flow) = &state.phase {
            let (came, goes) = flow.connection.memory_parts(PIECE_LEAST);
            memory.receiving = came as u32;
            memory.sending = goes as u32;
            memory.spare = flow.held.bytes().saturating_sub(came + goes) as u32;
        }
        InetDetails {
            shut_down: u8::from(state.no_receive) | u8::from(state.no_send) << 1,
            only_v6: options.wishes.contains(Wishes::ONLY_V6),
            memory,
            tos: options.tos,
            traffic_class: options.traffic_class,
            mark: self.common.mark.load(Ordering::Relaxed),
            priority: self.common.priority.load(Ordering::Relaxed),
            options: options.diagnosed() | option::IS_ICSK,
            is_automatic: !state.port_given,
            algorithm: Some(choices.algorithm.name()),
            information: None,
        }
    }

    /// Returns the numbers of TCP_INFO.
    pub fn numbers(&self) -> Box<[u8; INFORMATION]> {
        Box::new(self.information())
    }

    /// Whether its open file is gone and its connection is not.
    pub(super) fn is_orphan(&self) -> bool {
        self.state.lock().released
    }
}

impl Remnant {
    fn shown(self: &Arc<Remnant>) -> Shown {
        Shown {
            v6: self.v6,
            ends: self.ends,
            state: TcpState::TimeWait as u8,
            sending: 0,
            receiving: 0,
            timer: 3,
            timer_at: self.state.lock().deadline(),
            retransmits: 0,
            probes: 0,
            user: 0,
            inode: 0,
            interface: 0,
            cookie: u64::MAX,
            references: Arc::strong_count(self).saturating_sub(1),
            details: None,
        }
    }
}

/// How many sockets of TCP there are in which state.
#[derive(Default)]
pub struct Counts {
    /// Those of IPv4 that listen or are connected, and of IPv6.
    pub in_use: [usize; 2],
    /// Established connections, or such as the peer has closed (`tcpCurrEstab`).
    pub established: usize,
    /// Connections whose open file is gone.
    pub orphans: usize,
    /// Remnants of closed connections.
    pub remnants: usize,
    /// Bytes in their queues.
    pub bytes: usize,
}

/// Counts the sockets of a namespace.
///
/// # Errors
/// `ENOMEM`.
pub fn counts(network: &Network) -> Result<Counts> {
    let mut counts = Counts::default();
    PORTS.for_each(network.key, |socket| {
        counts.in_use[usize::from(socket.v6)] += 1;
        Ok(())
    })?;
    table::for_each(|entry| {
        let socket = match entry {
            ConnectionEntry::Socket(socket) => socket,
            ConnectionEntry::Remnant(remnant) => {
                counts.remnants += usize::from(remnant.ends.network == network.key);
                return Ok(());
            }
        };
        if socket.network().key != network.key {
            return Ok(());
        }
        counts.in_use[usize::from(socket.v6)] += 1;
        counts.orphans += usize::from(socket.is_orphan());
        if let Some(shown) = socket.shown() {
            let established = [TcpState::Established as u8, TcpState::CloseWait as u8];
            counts.established += usize::from(established.contains(&shown.state));
            counts.bytes += shown.sending + shown.receiving;
        }
        Ok(())
    })?;
    Ok(counts)
}
