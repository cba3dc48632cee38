//! A process that throws packets at the kernel, and has connections of its own for them to hit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use hayate_stress::Random;

use crate::Shared;
use crate::packets::{self, Ports};

/// The most connections of a thrower, and packets that it remembers.
const MOST: usize = 12;
const REMEMBERED: usize = 64;
const ETHERNET: usize = 14;
const EVERYTHING: u16 = 0x0003;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Connections that packets may break.
struct Victims {
    listeners: [TcpListener; 2],
    datagrams: [UdpSocket; 2],
    streams: Vec<TcpStream>,
}

impl Victims {
    fn new() -> io::Result<Victims> {
        let victims = Victims {
            listeners: [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("[::1]:0")?],
            datagrams: [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("[::1]:0")?],
            streams: Vec::new(),
        };
        victims.listeners.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        victims.datagrams.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok(victims)
    }

    /// Does something with one of them, so that there is one in every state.
    fn stir(&mut self, random: &mut Random) {
        let mut buffer = [0; 3000];
        for listener in &self.listeners {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nonblocking(true).is_ok() {
                    self.streams.push(stream);
                }
            }
        }
        if self.streams.len() < MOST && random.one_in(2) {
            let to = self.listeners[random.below(2) as usize].local_addr();
            self.streams.extend(to.and_then(begin));
        }
        while self.streams.len() > MOST {
            self.streams.swap_remove(random.below(MOST as u64) as usize);
        }
        let _ = self.datagrams[random.below(2) as usize].recv(&mut buffer);
        if self.streams.is_empty() {
            return;
        }
        let at = random.below(self.streams.len() as u64) as usize;
        let mut stream = &self.streams[at];
        let length = random.below(3000) as usize;
        // Any of these may fail: the connection was hit.
        match random.below(16) {
            0 => drop(self.streams.swap_remove(at)),
            1 => drop(stream.shutdown(Shutdown::Write)),
            2..=8 => drop(stream.write(&buffer[..length])),
            _ => drop(stream.read(&mut buffer[..length])),
        }
    }

    fn ports(&self) -> Vec<u16> {
        let listeners = self.listeners.iter().map(TcpListener::local_addr);
        let datagrams = self.datagrams.iter().map(UdpSocket::local_addr);
        let streams = self.streams.iter().map(TcpStream::local_addr);
        let all = listeners.chain(datagrams).chain(streams);
        all.flatten().map(|address| address.port()).collect()
    }
}

/// Begins to connect, and does not wait.
fn begin(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = open(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    let (four, six);
    let (address, length) = match to {
        SocketAddr::V4(to) => {
            four = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
                sin_zero: [0; 8],
            };
            ((&raw const four).cast(), size_of_val(&four))
        }
        SocketAddr::V6(to) => {
            six = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
                sin6_scope_id: 0,
            };
            ((&raw const six).cast(), size_of_val(&six))
        }
    };
    // SAFETY: a live address of this length.
    unsafe { libc::connect(socket.as_raw_fd(), address, length as u32) };
    Ok(TcpStream::from(socket))
}

fn open(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain call with numbers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the new descriptor has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ways for packets into the kernel.
struct Ways {
    /// Frames of the loopback interface.
    frames: OwnedFd,
    /// IPv4 with a header of the program's own.
    raw: OwnedFd,
}

impl Ways {
    fn open() -> io::Result<Ways> {
        let any = i32::from(EVERYTHING.to_be());
        let frames = open(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, any)?;
        // SAFETY: an address of zeroes is valid.
        let mut place: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        place.sll_family = libc::AF_PACKET as u16;
        place.sll_protocol = EVERYTHING.to_be();
        // SAFETY: a string that ends with zero.
        place.sll_ifindex = unsafe { libc::if_nametoindex(c"lo".as_ptr()) } as i32;
        let (at, length) = ((&raw const place).cast(), size_of_val(&place) as u32);
        // SAFETY: a live address of this length.
        if unsafe { libc::bind(frames.as_raw_fd(), at, length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let raw = open(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::IPPROTO_RAW)?;
        Ok(Ways { frames, raw })
    }

    /// Sends a packet as a frame. Returns whether the kernel took it.
    fn frame(&self, random: &mut Random, packet: &[u8]) -> bool {
        let usual = if packets::is_v6(packet) { IPV6 } else { IPV4 };
        let kind = if random.one_in(20) { random.pick(&[0x0806, 0x8100, 4, 0]) } else { usual };
        let mut frame = vec![0; ETHERNET];
        if random.one_in(20) {
            frame = packets::bytes(random, ETHERNET as u64);
        }
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame.extend(packet);
        // SAFETY: live bytes of this length.
        unsafe { libc::send(self.frames.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) >= 0 }
    }

    /// Sends an IPv4 packet as it is. Returns whether the kernel took it.
    fn raw(&self, packet: &[u8]) -> bool {
        let Some(to) = packet.get(16..20).and_then(|to| to.first_chunk()) else { return false };
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(*to) },
            sin_zero: [0; 8],
        };
        let (at, length) = ((&raw const address).cast(), size_of_val(&address) as u32);
        let (bytes, count) = (packet.as_ptr().cast(), packet.len());
        // SAFETY: live bytes and a live address of these lengths.
        unsafe { libc::sendto(self.raw.as_raw_fd(), bytes, count, 0, at, length) >= 0 }
    }

    /// Takes packets that pass the interface.
    fn watch(&self, random: &mut Random, served: &[u16], seen: &mut Vec<Vec<u8>>) {
        let mut buffer = vec![0; 9000];
        for _ in 0..4 {
            let (at, most) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: live memory of this length.
            let count = unsafe { libc::recv(self.frames.as_raw_fd(), at, most, 0) };
            let Some(packet) = usize::try_from(count).ok().and_then(|n| buffer.get(ETHERNET..n))
            else {
                return;
            };
            let is_one = packets::ports(packet)
                .is_some_and(|(from, to)| !served.contains(&from) && !served.contains(&to));
            if is_one && seen.len() < REMEMBERED {
                seen.push(packet.to_vec());
            } else if is_one {
                seen[random.below(REMEMBERED as u64) as usize] = packet.to_vec();
            }
        }
    }
}

/// Throws packets until it is told to stop.
pub fn throw(seed: u64, served: Vec<u16>, shared: &Shared) -> io::Result<()> {
    let mut random = Random::new(seed);
    let (ways, mut victims) = (Ways::open()?, Victims::new()?);
    let mut ports = Ports { victims: victims.ports(), served };
    let mut seen = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        if random.one_in(4) {
            victims.stir(&mut random);
            ports.victims = victims.ports();
            ways.watch(&mut random, &ports.served, &mut seen);
        }
        let mut packet = packets::packet(&mut random, &ports, &seen);
        if random.one_in(3) {
            packets::mutate(&mut random, &mut packet);
        }
        if !random.one_in(8) {
            packets::mend(&mut packet);
        }
        let parts =
            if random.one_in(6) { packets::fragments(&mut random, &packet) } else { vec![packet] };
        for packet in parts {
            // In the name of the server its clients could be told anything.
            if packets::ports(&packet).is_some_and(|(from, _)| ports.served.contains(&from)) {
                continue;
            }
            let is_frame = packets::is_v6(&packet) || random.one_in(4);
            let is_taken =
                if is_frame { ways.frame(&mut random, &packet) } else { ways.raw(&packet) };
            let count = if is_taken { &shared.taken } else { &shared.refused };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
