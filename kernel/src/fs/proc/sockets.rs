//! The lists of sockets in `/proc/PID/net` (proc_pid_net(5)), in the forms of Linux 6.1:
//! `get_tcp4_sock` (net/ipv4/tcp_ipv4.c), `get_tcp6_sock`, `udp4_format_sock`,
//! `__ip6_dgram_sock_seq_show`, `raw_sock_seq_show`, `ping_v4_format_sock`, `unix_seq_show`,
//! `packet_seq_show`, `netlink_seq_show`.
//!
//! Addresses in memory are shown as zeros, as by Linux with `kernel.kptr_restrict`. Numbers that
//! follow are those of Linux or 0 where there is nothing to count: a datagram leaves at once, so
//! none waits to be sent.
//!
//! A list is made socket by socket, none of which is locked while another is looked at.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::Result;
use hayate_ip::{Address, SocketAddress};

use super::target::Target;
use super::text::{TICK_NS, bytes, line, put};
use super::tree::Write;
use crate::ipc::unix::address::Name;
use crate::ipc::unix::endpoint;
use crate::net::config::Network;
use crate::net::netlink::ports;
use crate::net::packet_socket::tap;
use crate::net::ports::Ports;
use crate::net::{datagram, tcp};
use crate::schedule::time::monotonic_ns;
use crate::vfs::socket::kinds;

/// The width of a line of `tcp`, and of `udp` (`TMPSZ` less the end, `seq_setwidth`).
const TCP_WIDTH: usize = 149;
const UDP_WIDTH: usize = 127;

/// The titles that all tables of sockets of the Internet have in common.
const TITLES: &str = "st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
/// Two addresses of IPv6 as titles.
const NAMES_V6: &str =
    "local_address                         remote_address                        ";

/// An address and a port as they lie in memory, in hexadecimal.
struct Hex(SocketAddress, bool);

impl core::fmt::Display for Hex {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Hex(SocketAddress { address, port, .. }, v6) = *self;
        match address.to_v4().filter(|_| !v6) {
            Some(bits) => write!(to, "{:08X}", bits.swap_bytes())?,
            None => {
                for word in octets(address).chunks_exact(4) {
                    let word = word.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
                    write!(to, "{word:08X}")?;
                }
            }
        }
        write!(to, ":{port:04X}")
    }
}

/// The bytes of an address as IPv6 writes it; the wildcard address of IPv4 is that of IPv6.
fn octets(address: Address) -> [u8; 16] {
    if address.is_any() { [0; 16] } else { address.octets() }
}

/// Fills the line that begins at `start` up to its width, and ends it.
fn pad(out: &mut Vec<u8>, start: usize, width: usize) -> Result<()> {
    let missing = (start + width).saturating_sub(out.len());
    line(out, format_args!("{:missing$}", ""))
}

/// `tcp`.
pub fn tcp_v4(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    put(out, format_args!("  sl  local_address rem_address   {TITLES}"))?;
    pad(out, start, TCP_WIDTH)?;
    streams(&*target.network()?, out, false)
}

/// `tcp6`.
pub fn tcp_v6(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("  sl  {NAMES_V6}{TITLES}"))?;
    streams(&*target.network()?, out, true)
}

fn streams(network: &Network, out: &mut Vec<u8>, v6: bool) -> Result<()> {
    let (now, mut slot) = (monotonic_ns(), 0);
    tcp::for_each_shown(network, |shown, _| {
        if shown.v6 != v6 {
            return Ok(());
        }
        let start = out.len();
        stream(out, slot, now, shown)?;
        slot += 1;
        pad(out, start, if v6 { 0 } else { TCP_WIDTH })
    })
}

fn stream(out: &mut Vec<u8>, slot: usize, now: u64, shown: &tcp::Shown) -> Result<()> {
    let names = (Hex(shown.ends.local, shown.v6), Hex(shown.ends.remote, shown.v6));
    // A listener shows no bytes that are sent (`get_tcp4_sock`).
    let listens = shown.state == tcp::LISTEN;
    let sending = if listens { 0 } else { shown.sending };
    let (state, receiving) = (shown.state, shown.receiving);
    let due = if shown.timer == 0 { 0 } else { shown.timer_at.saturating_sub(now) / TICK_NS };
    let (timer, retransmits) = (shown.timer, shown.retransmits);
    put(out, format_args!("{slot:4}: {} {} {state:02X} {sending:08X}:", names.0, names.1))?;
    put(out, format_args!("{receiving:08X} {timer:02X}:{due:08X} {retransmits:08X} "))?;
    let (user, probes, inode) = (shown.user, shown.probes, shown.inode);
    put(out, format_args!("{user:5} {probes:8} {inode} {} {:016x}", shown.references, 0))?;
    if let Some(details) = &shown.details {
        let (timeout, delay) = (details.timeout / TICK_NS, details.ack_delay / TICK_NS);
        let (quick, window) = (u8::from(details.is_interactive), details.window);
        let threshold = details.threshold.map_or(-1, i64::from);
        put(out, format_args!(" {timeout} {delay} {quick} {window} {threshold}"))?;
    }
    Ok(())
}

/// Writes a table of datagram sockets of a process's namespace: of which version, its titles, the
/// widths of the slot's number and of a line.
fn datagrams(
    target: &Target,
    out: &mut Vec<u8>,
    table: &Ports<datagram::Socket>,
    v6: bool,
    titles: &str,
    (digits, width): (usize, usize),
) -> Result<()> {
    let start = out.len();
    put(out, format_args!("{titles}{TITLES} ref pointer drops"))?;
    pad(out, start, width)?;
    let mut slot = 0;
    table.for_each(target.network()?.key, |socket| {
        let shown = socket.shown();
        // One that is being closed has no port any more.
        if shown.v6 != v6 || shown.local.port == 0 {
            return Ok(());
        }
        let any = SocketAddress::new(shown.local.address.wildcard(), 0);
        let names = (Hex(shown.local, v6), Hex(shown.remote.unwrap_or(any), v6));
        let state = if shown.remote.is_some() { 1 } else { 7 };
        let (receiving, user, inode) = (shown.receiving, shown.user, shown.inode);
        let references = Arc::strong_count(socket).saturating_sub(1);
        let start = out.len();
        put(out, format_args!("{slot:digits$}: {} {} {state:02X} ", names.0, names.1))?;
        put(out, format_args!("{:08X}:{receiving:08X} 00:{:08X} {:08X} ", 0, 0, 0))?;
        put(out, format_args!("{user:5} {:8} {inode} {references} {:016x} ", 0, 0))?;
        put(out, format_args!("{}", shown.drops))?;
        slot += 1;
        pad(out, start, width)
    })
}

const NAMES_V4: &str = "  sl  local_address rem_address   ";
const TITLES_V6: &str =
    "  sl  local_address                         remote_address                        ";

/// `udp`, `udp6`, `raw`, `raw6`, `icmp` and `icmp6`.
pub const UDP: Write<Target> = |target, out| {
    datagrams(
        target,
        out,
        &datagram::UDP,
        false,
        "   sl  local_address rem_address   ",
        (5, UDP_WIDTH),
    )
};
/// See [`UDP`].
pub const UDP_V6: Write<Target> =
    |target, out| datagrams(target, out, &datagram::UDP, true, TITLES_V6, (5, 0));
/// See [`UDP`].
pub const RAW: Write<Target> =
    |target, out| datagrams(target, out, &datagram::RAW, false, NAMES_V4, (4, 0));
/// See [`UDP`].
pub const RAW_V6: Write<Target> =
    |target, out| datagrams(target, out, &datagram::RAW, true, TITLES_V6, (5, 0));
/// See [`UDP`].
pub const ICMP: Write<Target> =
    |target, out| datagrams(target, out, &datagram::ECHO, false, NAMES_V4, (5, UDP_WIDTH));
/// See [`UDP`].
pub const ICMP_V6: Write<Target> =
    |target, out| datagrams(target, out, &datagram::ECHO, true, TITLES_V6, (5, 0));

/// `unix`.
pub fn unix(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let network = target.network()?;
    line(out, format_args!("Num       RefCount Protocol Flags    Type St Inode Path"))?;
    endpoint::ALL.for_each(|endpoint| {
        if endpoint.network.key != network.key {
            return Ok(());
        }
        let shown = endpoint.shown();
        let inode = endpoint.inode.load(Ordering::Relaxed);
        let references = Arc::strong_count(endpoint).saturating_sub(1);
        // __SO_ACCEPTCON; SS_UNCONNECTED, SS_CONNECTED, and SS_CONNECTING for one that waits to be
        // accepted.
        let flags = if shown.listens { 0x10000 } else { 0 };
        let state = match (shown.is_connected, inode) {
            (true, 0) => 2,
            (true, _) => 3,
            (false, _) => 1,
        };
        let kind = endpoint.kind.number();
        put(out, format_args!("{:016x}: {references:08X} {:08X} {flags:08X} ", 0, 0))?;
        put(out, format_args!("{kind:04X} {state:02X} {inode:5}"))?;
        match &shown.name {
            None => {}
            Some(Name::Path(path)) => {
                put(out, format_args!(" "))?;
                bytes(out, path)?;
            }
            // Zeros in a name of the abstract name space are shown as this sign too.
            Some(Name::Abstract(name)) => {
                put(out, format_args!(" @"))?;
                name.split_inclusive(|&byte| byte == 0).try_for_each(|part| match part {
                    [rest @ .., 0] => {
                        bytes(out, rest)?;
                        bytes(out, b"@")
                    }
                    rest => bytes(out, rest),
                })?;
            }
        }
        bytes(out, b"\n")
    })
}

/// `packet`.
pub fn packet(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{:<17}RefCnt Type Proto  Iface R Rmem   User   Inode", "sk"))?;
    let mut outcome = Ok(());
    tap::for_each(target.network()?.key, |endpoint| {
        let kind = if endpoint.cooked { kinds::DATAGRAM } else { kinds::RAW };
        let (interface, protocol) = endpoint.bound();
        let (running, memory) = (u8::from(protocol != 0), endpoint.charge());
        let (user, inode) = (endpoint.user, endpoint.inode.load(Ordering::Relaxed));
        let references = Arc::strong_count(endpoint);
        if outcome.is_ok() {
            outcome = line(
                out,
                format_args!(
                    "{:016x} {references:<6} {kind:<4} {protocol:04x}   {interface:<5} \
                     {running:1} {memory:<6} {user:<6} {inode:<6}",
                    0,
                ),
            );
        }
    });
    outcome
}

/// `netlink`.
pub fn netlink(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    put(out, format_args!("sk               Eth Pid        Groups   Rmem     Wmem     "))?;
    line(out, format_args!("Dump  Locks    Drops    Inode"))?;
    ports::for_each(&*target.network()?, |endpoint| {
        let (memory, is_dumping) = endpoint.shown();
        let protocol = endpoint.protocol;
        let (port, groups) = (endpoint.port().unwrap_or(0), endpoint.groups() as u32);
        let (dumps, references) = (u8::from(is_dumping), Arc::strong_count(endpoint));
        let inode = endpoint.inode.load(Ordering::Relaxed);
        put(out, format_args!("{:016x} {protocol:<3} {port:<10} {groups:08x} {memory:<8} ", 0))?;
        line(out, format_args!("{:<8} {dumps:<5} {references:<8} {:<8} {inode:<8}", 0, 0))
    })
}
