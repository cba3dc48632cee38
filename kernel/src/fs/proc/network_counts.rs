//! Counts of the network in `/proc/PID/net`: `snmp`, `snmp6`, `netstat`, `sockstat`, `sockstat6`,
//! `protocols`
//! (proc_pid_net(5); net/ipv4/proc.c, net/ipv6/proc.c and net/core/sock.c of Linux 6.1).
//!
//! A line of values stands below a line of names, and programs look for names: names of events that
//! are not counted are left out.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::Result;
use hayate_tcp::{MILLISECOND, RTO_MAX, RTO_MIN};

use super::target::Target;
use super::text::{line, put};
use crate::net::config::Network;
use crate::net::statistics::{Counter, TcpCounter};
use crate::net::{datagram, fragments, tcp};
use crate::vfs::socket_count::{ALL, Kind, alive};

/// Bytes of a page, in which memory is told.
const PAGE: usize = 4096;

/// Writes a line of names and a line of values.
fn pair(out: &mut Vec<u8>, title: &str, values: &[(&str, u64)]) -> Result<()> {
    put(out, format_args!("{title}:"))?;
    values.iter().try_for_each(|(name, _)| put(out, format_args!(" {name}")))?;
    put(out, format_args!("\n{title}:"))?;
    values.iter().try_for_each(|(_, value)| put(out, format_args!(" {value}")))?;
    line(out, format_args!(""))
}

/// `snmp`.
pub fn snmp(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let network = target.network()?;
    let v4 = |counter| network.total(counter, true);
    let tcp = |counter| network.total_tcp(counter);
    pair(
        out,
        "Ip",
        &[
            // This machine is no router: notForwarding (RFC 4293).
            ("Forwarding", 2),
            ("DefaultTTL", network.settings.default_ttl().into()),
            ("InReceives", v4(Counter::Received)),
            ("InAddrErrors", v4(Counter::Strangers)),
            ("InUnknownProtos", v4(Counter::UnknownProtocols)),
            ("InDelivers", v4(Counter::Delivered)),
            ("OutRequests", v4(Counter::Sent)),
        ],
    )?;
    pair(
        out,
        "Icmp",
        &[
            ("InMsgs", v4(Counter::IcmpReceived)),
            ("OutMsgs", v4(Counter::IcmpSent)),
            ("OutDestUnreachs", v4(Counter::UnreachableSent)),
        ],
    )?;
    pair(
        out,
        "Tcp",
        &[
            // Linux says "other" of RFC 4022.
            ("RtoAlgorithm", 1),
            ("RtoMin", RTO_MIN / MILLISECOND),
            ("RtoMax", RTO_MAX / MILLISECOND),
            ("ActiveOpens", tcp(TcpCounter::Called)),
            ("PassiveOpens", tcp(TcpCounter::Taken)),
            ("AttemptFails", tcp(TcpCounter::Failed)),
            ("EstabResets", tcp(TcpCounter::Broken)),
            ("CurrEstab", tcp::counts(&network)?.established as u64),
            ("InSegs", tcp(TcpCounter::Received)),
            ("OutSegs", tcp(TcpCounter::Sent)),
            ("RetransSegs", sent_again(&network)),
            ("InErrs", tcp(TcpCounter::Bad)),
            ("OutRsts", tcp(TcpCounter::Resets)),
            ("InCsumErrors", tcp(TcpCounter::BadSums)),
        ],
    )?;
    pair(
        out,
        "Udp",
        &[
            ("InDatagrams", v4(Counter::DatagramsRead)),
            ("NoPorts", v4(Counter::NoPorts)),
            ("InErrors", v4(Counter::DatagramsDropped)),
            ("OutDatagrams", v4(Counter::DatagramsSent)),
            ("RcvbufErrors", v4(Counter::DatagramsDropped)),
        ],
    )
}

/// Segments that were sent again.
fn sent_again(network: &Network) -> u64 {
    [TcpCounter::SentAgain, TcpCounter::SentAgainSlowly, TcpCounter::SynsSentAgain]
        .map(|counter| network.total_tcp(counter))
        .iter()
        .sum()
}

/// `netstat`. There is no line `IpExt`: of its events none is counted.
pub fn netstat(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let network = target.network()?;
    let names = [
        ("SyncookiesSent", TcpCounter::CookiesSent),
        ("SyncookiesRecv", TcpCounter::CookiesTaken),
        ("SyncookiesFailed", TcpCounter::CookiesWrong),
        ("TW", TcpCounter::Remnants),
        ("DelayedACKs", TcpCounter::DelayedAcknowledgements),
        ("ListenOverflows", TcpCounter::Overflows),
        ("ListenDrops", TcpCounter::NotTaken),
        ("TCPFastRetrans", TcpCounter::SentAgain),
        ("TCPSlowStartRetrans", TcpCounter::SentAgainSlowly),
        ("TCPTimeouts", TcpCounter::Timeouts),
        ("TCPLossProbes", TcpCounter::TailProbes),
        ("TCPChallengeACK", TcpCounter::Challenges),
        ("TCPSynRetrans", TcpCounter::SynsSentAgain),
        ("TCPKeepAlive", TcpCounter::KeepAlives),
        ("TCPWinProbe", TcpCounter::WindowProbes),
    ];
    pair(out, "TcpExt", &names.map(|(name, counter)| (name, network.total_tcp(counter))))
}

/// `snmp6`.
pub fn snmp_v6(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let network = target.network()?;
    let rows = [
        ("Ip6InReceives", Counter::Received),
        ("Ip6InAddrErrors", Counter::Strangers),
        ("Ip6InUnknownProtos", Counter::UnknownProtocols),
        ("Ip6InDelivers", Counter::Delivered),
        ("Ip6OutRequests", Counter::Sent),
        ("Icmp6InMsgs", Counter::IcmpReceived),
        ("Icmp6OutMsgs", Counter::IcmpSent),
        ("Icmp6OutDestUnreachs", Counter::UnreachableSent),
        ("Udp6InDatagrams", Counter::DatagramsRead),
        ("Udp6NoPorts", Counter::NoPorts),
        ("Udp6InErrors", Counter::DatagramsDropped),
        ("Udp6OutDatagrams", Counter::DatagramsSent),
        ("Udp6RcvbufErrors", Counter::DatagramsDropped),
    ];
    rows.into_iter().try_for_each(|(name, counter)| {
        line(out, format_args!("{name:<32}\t{}", network.total(counter, false)))
    })
}

/// How many datagram sockets of a table have a port, of IPv4 and of IPv6, and the memory of what
/// waits in them.
fn bound(
    network: &Network,
    table: &crate::net::ports::Ports<datagram::Socket>,
) -> Result<([usize; 2], usize)> {
    let (mut counts, mut memory) = ([0; 2], 0);
    table.for_each(network.key, |socket| {
        let shown = socket.shown();
        counts[usize::from(shown.v6)] += 1;
        memory += shown.receiving;
        Ok(())
    })?;
    Ok((counts, memory))
}

/// `sockstat`. Sockets that are used in the first namespace are those of all. Memory is that of the
/// bytes in queues, in pages; that of fragments in bytes.
pub fn sockstat(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let network = target.network()?;
    let used = match network.is_first() {
        true => ALL.iter().map(|&kind| alive(kind)).sum(),
        false => network.sockets.load(Ordering::Relaxed),
    };
    line(out, format_args!("sockets: used {used}"))?;
    let streams = tcp::counts(&network)?;
    put(out, format_args!("TCP: inuse {} orphan {} ", streams.in_use[0], streams.orphans))?;
    let made = alive(Kind::Tcp) + alive(Kind::TcpV6);
    let pages = streams.bytes.div_ceil(PAGE);
    line(out, format_args!("tw {} alloc {made} mem {pages}", streams.remnants))?;
    let (counts, memory) = bound(&network, &datagram::UDP)?;
    line(out, format_args!("UDP: inuse {} mem {}", counts[0], memory.div_ceil(PAGE)))?;
    line(out, format_args!("RAW: inuse {}", bound(&network, &datagram::RAW)?.0[0]))?;
    let (incomplete, memory) = fragments::incomplete(&network);
    line(out, format_args!("FRAG: inuse {incomplete} memory {memory}"))
}

/// `sockstat6`.
pub fn sockstat_v6(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let network = target.network()?;
    line(out, format_args!("TCP6: inuse {}", tcp::counts(&network)?.in_use[1]))?;
    line(out, format_args!("UDP6: inuse {}", bound(&network, &datagram::UDP)?.0[1]))?;
    line(out, format_args!("RAW6: inuse {}", bound(&network, &datagram::RAW)?.0[1]))
}

/// `protocols`: size and number of the sockets of each, in all namespaces. Memory is not accounted
/// by protocol, and so never under pressure. Which calls a protocol of Linux has is not told.
pub fn protocols(_: &Target, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("protocol  size sockets  memory press maxhdr  slab module"))?;
    for kind in ALL {
        let (name, size) = match kind {
            Kind::Tcp => ("TCP", size_of::<tcp::Socket>()),
            Kind::TcpV6 => ("TCPv6", size_of::<tcp::Socket>()),
            Kind::Udp => ("UDP", size_of::<datagram::Socket>()),
            Kind::UdpV6 => ("UDPv6", size_of::<datagram::Socket>()),
            Kind::Raw => ("RAW", size_of::<datagram::Socket>()),
            Kind::RawV6 => ("RAWv6", size_of::<datagram::Socket>()),
            Kind::Ping => ("PING", size_of::<datagram::Socket>()),
            Kind::PingV6 => ("PINGv6", size_of::<datagram::Socket>()),
            Kind::Unix => ("UNIX", size_of::<crate::ipc::unix::endpoint::Endpoint>()),
            Kind::Netlink => ("NETLINK", size_of::<crate::net::netlink::endpoint::Endpoint>()),
            Kind::Packet => ("PACKET", size_of::<crate::net::packet_socket::endpoint::Endpoint>()),
        };
        let sockets = alive(kind);
        line(
            out,
            format_args!("{name:<9} {size:4} {sockets:6}  {:6}   NI  {:6}   no   kernel", -1, 0),
        )?;
    }
    Ok(())
}
