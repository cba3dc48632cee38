//! Counts of what the protocols have done since the beginning of a network namespace, for
//! `/proc/net/snmp`, `snmp6` and `netstat` (RFC 4293, RFC 4022, RFC 4113;
//! `include/uapi/linux/snmp.h` of Linux 6.1).
//!
//! Those of the first namespace each processor has for itself, so counting is one addition without
//! a lock; another one has a single set. `Network::count` and its relatives choose. Only what is
//! counted at its place is told; names that are not here are left out of the files.

use core::sync::atomic::{AtomicU64, Ordering};

use hayate_machine::cpu::{MAX_CPUS, PerCpu};
use hayate_machine::per_cpu;
use hayate_tcp::Noted;

/// A counter of one version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Packets received (InReceives).
    Received,
    /// Those for other hosts (InAddrErrors).
    Strangers,
    /// Those of a protocol that is not known (InUnknownProtos).
    UnknownProtocols,
    /// Those that were given to a protocol (InDelivers).
    Delivered,
    /// Packets that protocols sent (OutRequests).
    Sent,
    /// Messages of ICMP received (InMsgs).
    IcmpReceived,
    /// Messages of ICMP sent (OutMsgs).
    IcmpSent,
    /// Destinations that were reported as unreachable (OutDestUnreachs).
    UnreachableSent,
    /// Datagrams that programs have read (InDatagrams).
    DatagramsRead,
    /// Datagrams to ports that nobody has (NoPorts).
    NoPorts,
    /// Datagrams for which a socket had no room (InErrors, RcvbufErrors).
    DatagramsDropped,
    /// Datagrams sent (OutDatagrams).
    DatagramsSent,
}

/// A counter of TCP, over both versions of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpCounter {
    /// Connections that programs began (ActiveOpens).
    Called,
    /// Connections that listeners got (PassiveOpens).
    Taken,
    /// Attempts to connect, or to be connected, that came to nothing (AttemptFails).
    Failed,
    /// Established connections that were reset or given up (EstabResets).
    Broken,
    /// Segments received (InSegs).
    Received,
    /// Segments sent (OutSegs).
    Sent,
    /// Segments received with a bad header or checksum (InErrs).
    Bad,
    /// Those with a bad checksum (InCsumErrors).
    BadSums,
    /// Resets sent (OutRsts).
    Resets,
    /// SYN cookies sent, taken and found wrong (SyncookiesSent, SyncookiesRecv, SyncookiesFailed).
    CookiesSent,
    /// See `CookiesSent`.
    CookiesTaken,
    /// See `CookiesSent`.
    CookiesWrong,
    /// Connections for which a listener's queue had no room (ListenOverflows).
    Overflows,
    /// Connections that a listener did not get, for that or another reason (ListenDrops).
    NotTaken,
    /// Remnants of connections whose time was over (TW).
    Remnants,
    /// [`Noted::SentAgain`] (TCPFastRetrans), and so on for the others.
    SentAgain,
    /// TCPSlowStartRetrans.
    SentAgainSlowly,
    /// TCPSynRetrans.
    SynsSentAgain,
    /// TCPTimeouts.
    Timeouts,
    /// TCPLossProbes.
    TailProbes,
    /// TCPWinProbe.
    WindowProbes,
    /// TCPKeepAlive.
    KeepAlives,
    /// DelayedACKs.
    DelayedAcknowledgements,
    /// TCPChallengeACK.
    Challenges,
}

impl From<Noted> for TcpCounter {
    fn from(event: Noted) -> TcpCounter {
        match event {
            Noted::SentAgain => TcpCounter::SentAgain,
            Noted::SentAgainSlowly => TcpCounter::SentAgainSlowly,
            Noted::SynSentAgain => TcpCounter::SynsSentAgain,
            Noted::Timeout => TcpCounter::Timeouts,
            Noted::TailProbe => TcpCounter::TailProbes,
            Noted::WindowProbe => TcpCounter::WindowProbes,
            Noted::KeepAlive => TcpCounter::KeepAlives,
            Noted::DelayedAcknowledgement => TcpCounter::DelayedAcknowledgements,
            Noted::Challenge => TcpCounter::Challenges,
        }
    }
}

const COUNTERS: usize = Counter::DatagramsSent as usize + 1;
const TCP_COUNTERS: usize = TcpCounter::Challenges as usize + 1;

/// A set of counts.
pub struct Counts {
    /// Of IPv4, and of IPv6.
    ip: [[AtomicU64; COUNTERS]; 2],
    tcp: [AtomicU64; TCP_COUNTERS],
}

impl Counts {
    /// Counts of nothing.
    #[allow(clippy::new_without_default, reason = "a static is made of it")]
    pub const fn new() -> Counts {
        Counts {
            ip: [const { [const { AtomicU64::new(0) }; COUNTERS] }; 2],
            tcp: [const { AtomicU64::new(0) }; TCP_COUNTERS],
        }
    }

    /// The counter of an event of IPv4 or of IPv6.
    pub fn of(&self, counter: Counter, is_v4: bool) -> &AtomicU64 {
        &self.ip[usize::from(!is_v4)][counter as usize]
    }

    /// The counter of an event of TCP.
    pub fn of_tcp(&self, counter: TcpCounter) -> &AtomicU64 {
        &self.tcp[counter as usize]
    }
}

per_cpu! {
    static COUNTS: PerCpu<Counts> = PerCpu::new(Counts::new());
}

/// Adds to a counter. The kernel is not preempted, so a load and a store are enough.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Counts an event of IPv4 or of IPv6 in the first namespace.
#[inline]
pub fn count(counter: Counter, is_v4: bool) {
    add(COUNTS.here().of(counter, is_v4), 1);
}

/// Counts events of TCP in the first namespace.
#[inline]
pub fn count_tcp(counter: TcpCounter, events: u64) {
    add(COUNTS.here().of_tcp(counter), events);
}

fn sum(of: impl Fn(&'static Counts) -> &'static AtomicU64) -> u64 {
    let each = (0..MAX_CPUS).filter_map(|cpu| COUNTS.of(cpu));
    each.map(|counts| of(counts).load(Ordering::Relaxed)).sum()
}

/// Returns how often an event of IPv4 or of IPv6 was counted in the first namespace.
pub fn total(counter: Counter, is_v4: bool) -> u64 {
    sum(|counts| counts.of(counter, is_v4))
}

/// Returns how often an event of TCP was counted in the first namespace.
pub fn total_tcp(counter: TcpCounter) -> u64 {
    sum(|counts| counts.of_tcp(counter))
}
