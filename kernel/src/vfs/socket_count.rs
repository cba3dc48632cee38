//! How many sockets there are of each protocol (`/proc/net/protocols`, `/proc/net/sockstat`).
//!
//! Each processor counts those that it makes and those that it drops, so a single count may be
//! negative; the sum is right. No lock.

use core::sync::atomic::{AtomicI64, Ordering};

use hayate_machine::cpu::{MAX_CPUS, PerCpu};
use hayate_machine::per_cpu;

/// The protocols of sockets as Linux names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of /proc/net/protocols")]
pub enum Kind {
    Tcp,
    TcpV6,
    Udp,
    UdpV6,
    Raw,
    RawV6,
    Ping,
    PingV6,
    Unix,
    Netlink,
    Packet,
}

/// All of them, in the order of their numbers.
pub const ALL: [Kind; 11] = [
    Kind::Tcp,
    Kind::TcpV6,
    Kind::Udp,
    Kind::UdpV6,
    Kind::Raw,
    Kind::RawV6,
    Kind::Ping,
    Kind::PingV6,
    Kind::Unix,
    Kind::Netlink,
    Kind::Packet,
];

per_cpu! {
    static COUNTS: PerCpu<[AtomicI64; ALL.len()]> =
        PerCpu::new([const { AtomicI64::new(0) }; ALL.len()]);
}

/// Returns the number of sockets of a protocol, those without an open file included.
pub fn alive(kind: Kind) -> usize {
    let counts = (0..MAX_CPUS).filter_map(|cpu| COUNTS.of(cpu));
    let sum: i64 = counts.map(|counts| counts[kind as usize].load(Ordering::Relaxed)).sum();
    usize::try_from(sum).unwrap_or(0)
}

/// Counts the socket that it is a part of, as long as there is that socket.
pub struct Counted(Kind);

impl Counted {
    /// Counts a socket.
    pub fn new(kind: Kind) -> Counted {
        COUNTS.here()[kind as usize].fetch_add(1, Ordering::Relaxed);
        Counted(kind)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNTS.here()[self.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
