//! The network: round trips, bandwidth, and connections, on loopback and to another host.

use crate::experiment::{Experiment, Setting};
use crate::sampler::{Sampler, Skip};
use crate::serve::{self, MESSAGE};
use crate::sys::process::Child;
use std::io::{self, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// Bytes in a sample of the bandwidth experiments.
const BULK: u64 = 16 << 20;
const CHUNK: usize = 128 << 10;
/// Longer than any answer takes that still arrives.
const PATIENCE: Duration = Duration::from_secs(3);

/// A server process of our own on loopback; it ends when the value is dropped.
fn local_server(s: &Setting, spread: bool) -> Result<(SocketAddr, Child), Skip> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let tcp = TcpListener::bind(address).map_err(Skip::because("listening on loopback"))?;
    let address = tcp.local_addr()?;
    let udp = UdpSocket::bind(address).map_err(Skip::because("a UDP socket on loopback"))?;
    let child = Child::start(|| {
        if spread {
            let _ = crate::sys::pin(&s.cpus);
        }
        serve::serve(tcp, udp)
    })
    .map_err(Skip::because("fork"))?;
    Ok((address, child))
}

fn connect(address: SocketAddr) -> Result<TcpStream, Skip> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)
        .map_err(Skip::because(&format!("connecting to {address}")))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ping_pong(m: &mut Sampler, mut stream: impl Read + Write) -> Result<(), Skip> {
    let mut message = [7; MESSAGE];
    m.try_batch(1, || {
        stream.write_all(&message).map_err(Skip::because("sending"))?;
        stream.read_exact(&mut message).map_err(Skip::because("receiving"))
    })
}

fn tcp_round_trip(m: &mut Sampler, address: SocketAddr) -> Result<(), Skip> {
    let mut stream = connect(address)?;
    stream.write_all(&[serve::ECHO]).map_err(Skip::because("sending"))?;
    ping_pong(m, stream)
}

fn udp_round_trip(m: &mut Sampler, address: SocketAddr) -> Result<(), Skip> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).map_err(Skip::because("a UDP socket"))?;
    socket.connect(address).map_err(Skip::because("connecting a UDP socket"))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut message = [7; MESSAGE];
    m.try_batch(1, || {
        socket.send(&message).map_err(Skip::because("sending"))?;
        socket.recv(&mut message).map_err(Skip::because("receiving"))?;
        Ok(())
    })
}

fn tcp_bulk(m: &mut Sampler, address: SocketAddr) -> Result<(), Skip> {
    let mut stream = connect(address)?;
    stream.write_all(&[serve::SINK]).map_err(Skip::because("sending"))?;
    bulk(m, stream)
}

/// Sends [`BULK`] bytes and waits for the receiver's confirmation.
fn bulk(m: &mut Sampler, mut stream: impl Read + Write) -> Result<(), Skip> {
    let chunk = vec![7; CHUNK];
    let clock = m.clock();
    m.collect(|| {
        let start = clock.start();
        stream.write_all(&BULK.to_le_bytes()).map_err(Skip::because("sending"))?;
        for _ in 0..BULK / CHUNK as u64 {
            stream.write_all(&chunk).map_err(Skip::because("sending"))?;
        }
        stream.read_exact(&mut [0]).map_err(Skip::because("receiving"))?;
        Ok(clock.stop().saturating_sub(start))
    })
}

/// Asks for [`BULK`] bytes and takes them.
fn tcp_download(m: &mut Sampler, address: SocketAddr) -> Result<(), Skip> {
    let mut stream = connect(address)?;
    stream.write_all(&[serve::SOURCE]).map_err(Skip::because("sending"))?;
    let mut chunk = vec![0; CHUNK];
    let clock = m.clock();
    m.collect(|| {
        let start = clock.start();
        stream.write_all(&BULK.to_le_bytes()).map_err(Skip::because("sending"))?;
        let mut left = BULK as usize;
        while left > 0 {
            let most = left.min(CHUNK);
            match stream.read(&mut chunk[..most]).map_err(Skip::because("receiving"))? {
                0 => return Err(Skip("the other host closed the connection".into())),
                count => left -= count,
            }
        }
        Ok(clock.stop().saturating_sub(start))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    SetUp,
    TearDown,
}

fn connection(m: &mut Sampler, address: SocketAddr, half: Half) -> Result<(), Skip> {
    let clock = m.clock();
    m.collect(|| {
        let start = clock.start();
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .map_err(Skip::because(&format!("connecting to {address}")))?;
        let connected = clock.stop();
        drop(stream);
        let closed = clock.stop();
        Ok(match half {
            Half::SetUp => connected.saturating_sub(start),
            Half::TearDown => closed.saturating_sub(connected),
        })
    })
}

/// Both ends of a connection are closed, this one first. Waiting for the other makes the work the
/// same whichever process a system lets run first.
fn both_ends_closed(m: &mut Sampler, address: SocketAddr) -> Result<(), Skip> {
    let clock = m.clock();
    m.collect(|| {
        let mut stream = connect(address)?;
        let start = clock.start();
        stream.shutdown(Shutdown::Write).map_err(Skip::because("shutdown"))?;
        match stream.read(&mut [0]).map_err(Skip::because("receiving"))? {
            0 => drop(stream),
            _ => return Err(Skip("the other host sent data without being asked".into())),
        }
        Ok(clock.stop().saturating_sub(start))
    })
}

fn unix_pair(m: &mut Sampler, s: &Setting, large: bool) -> Result<(), Skip> {
    let (ours, theirs) = UnixStream::pair().map_err(Skip::because("a pair of Unix sockets"))?;
    let _child = Child::start(|| {
        if large {
            let _ = crate::sys::pin(&s.cpus);
            serve::sink(theirs)
        } else {
            serve::echo(theirs)
        }
    })
    .map_err(Skip::because("fork"))?;
    if large { bulk(m, ours) } else { ping_pong(m, ours) }
}

fn unix_connection(m: &mut Sampler, s: &Setting) -> Result<(), Skip> {
    let path = s.directory.join("socket");
    // The socket of an earlier round, if that round was stopped.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(Skip::because("a Unix socket"))?;
    let _child = Child::start(|| {
        for stream in listener.incoming() {
            drop(stream);
        }
        0
    })
    .map_err(Skip::because("fork"))?;
    m.try_batch(1, || {
        UnixStream::connect(&path).map_err(Skip::because("connecting a Unix socket")).map(drop)
    })
}

/// ICMP echo by the unprivileged datagram socket (icmp(7)), or a raw one.
fn icmp(m: &mut Sampler, mut address: SocketAddr) -> Result<(), Skip> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let (family, protocol, echo) = match address {
        SocketAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_ICMP, ECHO),
        SocketAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_ICMPV6, ECHO_V6),
    };
    // Raw sockets have no ports.
    address.set_port(0);
    let open = |kind: i32| -> io::Result<UdpSocket> {
        // SAFETY: socket(2) takes numbers and returns a new descriptor or -1.
        let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    };
    let (socket, raw) = match open(libc::SOCK_DGRAM) {
        Ok(socket) => (socket, false),
        Err(_) => match open(libc::SOCK_RAW) {
            Ok(socket) => (socket, true),
            Err(error) => {
                return Err(Skip(format!(
                    "ICMP is not allowed: {error} (net.ipv4.ping_group_range, or be root)"
                )));
            }
        },
    };
    socket.connect(address).map_err(Skip::because("ICMP"))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let identity = (std::process::id() as u16).to_be_bytes();
    let mut sequence = 0u16;
    m.try_batch(1, || {
        sequence = sequence.wrapping_add(1);
        let request = echo_request(echo.0, identity, sequence);
        socket.send(&request).map_err(Skip::because("sending ICMP"))?;
        loop {
            let mut answer = [0; 128];
            let len = socket.recv(&mut answer).map_err(Skip::because("receiving ICMP"))?;
            // A raw socket receives the header of IPv4, and also messages for other processes.
            let header = if raw && address.is_ipv4() { usize::from(answer[0] & 15) * 4 } else { 0 };
            let Some(reply) = answer[..len].get(header..header + 8) else { continue };
            if reply[0] == echo.1 && reply[6..8] == sequence.to_be_bytes() {
                return Ok(());
            }
        }
    })
}

/// The types of an echo request and its answer, in ICMP (RFC 792) and in ICMPv6 (RFC 4443).
const ECHO: (u8, u8) = (8, 0);
const ECHO_V6: (u8, u8) = (128, 129);

/// An echo request of 8 + 32 bytes with its checksum (RFC 792, RFC 1071). That of ICMPv6, which
/// covers addresses too, the kernel writes in place of this one (ipv6(7)).
fn echo_request(kind: u8, identity: [u8; 2], sequence: u16) -> [u8; 8 + MESSAGE] {
    let mut packet = [0; 8 + MESSAGE];
    packet[0] = kind;
    packet[4..6].copy_from_slice(&identity);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn local(
    name: &str,
    title: &str,
    body: impl Fn(&Setting, &mut Sampler) -> Result<(), Skip> + 'static,
) -> Experiment {
    Experiment::time(format!("net/{name}"), title, body).rounds_at_most(8)
}

/// The experiments of this file.
pub fn experiments(setting: &Setting) -> Vec<Experiment> {
    let mut all = round_trips();
    all.extend(connections());
    all.extend(bandwidths());
    all.extend(remote(setting.remote));
    all
}

fn round_trips() -> Vec<Experiment> {
    vec![
        local("tcp/round-trip", "TCP round trip on loopback", |s, m| {
            let (address, _server) = local_server(s, false)?;
            tcp_round_trip(m, address)
        })
        .method("32 bytes to an echoing process on the same processor and back, TCP_NODELAY")
        .hardware(4.0, "trap", "two sends, two receives")
        .software(45_000.0, "instruction", "TCP and IP four times, two switches"),
        local("udp/round-trip", "UDP round trip on loopback", |s, m| {
            let (address, _server) = local_server(s, false)?;
            udp_round_trip(m, address)
        })
        .method("32 bytes to an echoing process on the same processor and back")
        .hardware(4.0, "trap", "two sends, two receives")
        .software(26_000.0, "instruction", "UDP and IP four times, two switches"),
        local("unix/round-trip", "Unix socket round trip", |s, m| unix_pair(m, s, false))
            .method("32 bytes to an echoing process on the same processor and back")
            .hardware(4.0, "trap", "two sends, two receives")
            .software(14_000.0, "instruction", "socket buffers, two switches"),
        local("icmp/round-trip", "ICMP echo on loopback", |_, m| {
            icmp(m, (Ipv4Addr::LOCALHOST, 0).into())
        })
        .method("echo request with 32 bytes; the kernel answers")
        .hardware(2.0, "trap", "send and receive")
        .software(13_000.0, "instruction", "IP and ICMP twice"),
    ]
}

fn connections() -> Vec<Experiment> {
    vec![
        local("tcp/connect", "TCP connection set up on loopback", |s, m| {
            let (address, _server) = local_server(s, false)?;
            connection(m, address, Half::SetUp)
        })
        .method("socket(2) and connect(2) to a listening process")
        .hardware(4.0, "trap", "socket, flags, connect, poll")
        .software(
            45_000.0,
            "instruction",
            "socket made, three segments through TCP and IP",
        ),
        local("tcp/close", "TCP connection torn down on loopback", |s, m| {
            let (address, _server) = local_server(s, false)?;
            connection(m, address, Half::TearDown)
        })
        .method("close(2) of a connection just made")
        .hardware(1.0, "trap", "close")
        .software(18_000.0, "instruction", "FIN through TCP and IP, socket freed"),
        local("unix/connect", "Unix socket connected and closed", |s, m| unix_connection(m, s))
            .method("socket(2), connect(2) to a listening process and close(2)")
            .hardware(3.0, "trap", "socket, connect, close")
            .software(14_000.0, "instruction", "two sockets made, one freed, path walk"),
    ]
}

fn bandwidths() -> Vec<Experiment> {
    vec![
        Experiment::bandwidth("net/tcp/bandwidth", "TCP bandwidth on loopback", BULK, |s, m| {
            let (address, _server) = local_server(s, true)?;
            tcp_bulk(m, address)
        })
        .method("16 MB in writes of 128 KB to a process that reads them and confirms the last byte")
        .rounds_at_most(8)
        .hardware(2.0, "copy-byte-memory", "into the kernel and out of it")
        .software(0.15, "instruction", "per byte: segments of 64 KB, copies in pages"),
        Experiment::bandwidth("net/unix/bandwidth", "Unix socket bandwidth", BULK, |s, m| {
            unix_pair(m, s, true)
        })
        .method("16 MB in writes of 128 KB to a process that reads them and confirms the last byte")
        .rounds_at_most(8)
        .hardware(2.0, "copy-byte-memory", "into the kernel and out of it")
        .software(0.2, "instruction", "per byte: buffers of 32 KB"),
    ]
}

/// The experiments with another host.
fn remote(address: Option<SocketAddr>) -> Vec<Experiment> {
    let there = move || {
        address.ok_or_else(|| {
            Skip("no other host: start `measure serve` there and give --remote HOST:PORT".into())
        })
    };
    let wire = |e: Experiment| {
        e.rounds_at_most(8).hardware(1.0, "wire", "there and back, as a connection request takes")
    };
    vec![
        wire(local("remote/tcp-round-trip", "TCP round trip to the other host", move |_, m| {
            tcp_round_trip(m, there()?)
        }))
        .method("32 bytes to `measure serve` and back, TCP_NODELAY")
        .software(25_000.0, "instruction", "TCP and IP on each side, two switches"),
        wire(local("remote/udp-round-trip", "UDP round trip to the other host", move |_, m| {
            udp_round_trip(m, there()?)
        }))
        .method("32 bytes to `measure serve` and back")
        .software(15_000.0, "instruction", "UDP and IP on each side, two switches"),
        wire(local("remote/icmp-round-trip", "ICMP echo to the other host", move |_, m| {
            icmp(m, there()?)
        }))
        .method("echo request with 32 bytes; the other kernel answers"),
        wire(local(
            "remote/tcp-connect",
            "TCP connection set up to the other host",
            move |_, m| connection(m, there()?, Half::SetUp),
        ))
        .method("socket(2) and connect(2) to `measure serve`"),
        local("remote/tcp-close", "TCP connection to the other host torn down", move |_, m| {
            both_ends_closed(m, there()?)
        })
        .method("shutdown(2) of a connection just made, the other side's end of it, close(2)")
        .hardware(1.0, "wire", "there and back, as a connection request takes")
        .hardware(3.0, "trap", "shutdown, read, close")
        .software(
            30_000.0,
            "instruction",
            "FIN through TCP and IP on each side, two switches",
        ),
        Experiment::bandwidth(
            "net/remote/tcp-bandwidth",
            "TCP bandwidth to the other host",
            BULK,
            move |_, m| tcp_bulk(m, there()?),
        )
        .method("16 MB in writes of 128 KB to `measure serve`, which confirms the last byte")
        .rounds_at_most(8)
        .hardware(1.0, "copy-byte-memory", "into the kernel; the wire's speed is not known before")
        .software(0.3, "instruction", "per byte: segments, driver"),
        Experiment::bandwidth(
            "net/remote/tcp-download",
            "TCP bandwidth from the other host",
            BULK,
            move |_, m| tcp_download(m, there()?),
        )
        .method("16 MB from `measure serve`, in reads of up to 128 KB")
        .rounds_at_most(8)
        .hardware(
            1.0,
            "copy-byte-memory",
            "out of the kernel; the wire's speed is not known before",
        )
        .software(0.3, "instruction", "per byte: segments, driver"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_an_echo_request() {
        // The one's complement sum over a packet with its checksum is all ones (RFC 1071).
        let packet = echo_request(ECHO.0, [0x12, 0x34], 0xfffe);
        let mut sum: u32 =
            packet.chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff);
    }
}
