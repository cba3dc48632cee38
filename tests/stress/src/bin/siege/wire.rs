//! Packets that are made by hand, and the ways into the kernel and out of it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Flags of TCP.
pub const SYN: u8 = 2;
/// See [`SYN`].
pub const RST: u8 = 4;
/// See [`SYN`].
pub const PUSH: u8 = 8;
/// See [`SYN`].
pub const ACK: u8 = 16;

/// The loopback address.
pub const LOCAL: u32 = 0x7f00_0001;
/// A network that no machine has (RFC 5737). What is sent there by the loopback interface, nobody
/// answers.
pub const SILENT: u32 = 0xc633_6400;

const HEADER: usize = 20;
const IPV4: u16 = 0x0800;
/// `PACKET_OUTGOING`.
const OUTGOING: u8 = 4;

/// A segment of TCP, as much of it as matters here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    pub source: (u32, u16),
    pub destination: (u32, u16),
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub window: u16,
    /// The bytes after the header.
    pub length: usize,
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Makes a packet of IPv4. `place`: identification, and the word with flags and offset.
pub fn packet(from: u32, to: u32, protocol: u8, place: (u16, u16), body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(((HEADER + body.len()) as u16).to_be_bytes());
    packet.extend(place.0.to_be_bytes());
    packet.extend(place.1.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from.to_be_bytes());
    packet.extend(to.to_be_bytes());
    let check = sum(&[&packet]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend(body);
    packet
}

fn checked(from: u32, to: u32, protocol: u8, at: usize, mut body: Vec<u8>) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    let pseudo = [0, protocol, length[0], length[1]];
    let check = sum(&[&from.to_be_bytes(), &to.to_be_bytes(), &pseudo, &body]);
    body[at..at + 2].copy_from_slice(&check.to_be_bytes());
    body
}

/// Makes a datagram of UDP, header and all.
pub fn datagram(from: (u32, u16), to: (u32, u16), bytes: &[u8]) -> Vec<u8> {
    let words = [from.1, to.1, (8 + bytes.len()) as u16, 0];
    let mut body = words.map(u16::to_be_bytes).concat();
    body.extend(bytes);
    checked(from.0, to.0, libc::IPPROTO_UDP as u8, 6, body)
}

impl Segment {
    /// Makes the packet of a segment with these bytes. A SYN says the MSS.
    pub fn packet(&self, mss: u16, bytes: &[u8]) -> Vec<u8> {
        let options = if self.flags & SYN != 0 {
            vec![2, 4, (mss >> 8) as u8, mss as u8]
        } else {
            Vec::new()
        };
        let mut body = [self.source.1, self.destination.1].map(u16::to_be_bytes).concat();
        body.extend(self.sequence.to_be_bytes());
        body.extend(self.acknowledged.to_be_bytes());
        body.extend([((HEADER + options.len()) as u8 / 4) << 4, self.flags]);
        body.extend(self.window.to_be_bytes());
        body.extend([0; 4]);
        body.extend(options);
        body.extend(bytes);
        let (from, to) = (self.source.0, self.destination.0);
        let body = checked(from, to, libc::IPPROTO_TCP as u8, 16, body);
        packet(from, to, libc::IPPROTO_TCP as u8, (0, 0), &body)
    }

    /// Reads a segment of TCP in a packet of IPv4.
    pub fn parse(packet: &[u8]) -> Option<Segment> {
        let start = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || *packet.get(9)? != libc::IPPROTO_TCP as u8 {
            return None;
        }
        let word = |at: usize| Some(u32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let header = start + usize::from(packet.get(start + 12)? >> 4) * 4;
        Some(Segment {
            source: (word(12)?, half(start)?),
            destination: (word(16)?, half(start + 2)?),
            sequence: word(start + 4)?,
            acknowledged: word(start + 8)?,
            flags: *packet.get(start + 13)?,
            window: half(start + 14)?,
            length: usize::from(half(2)?).saturating_sub(header),
        })
    }
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

/// The way into the kernel: packets of IPv4 with headers of one's own.
pub struct Way(OwnedFd);

impl Way {
    pub fn open() -> io::Result<Way> {
        open(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::IPPROTO_RAW).map(Way)
    }

    /// Sends a packet. Returns whether the kernel took it.
    pub fn send(&self, packet: &[u8]) -> bool {
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
        unsafe { libc::sendto(self.0.as_raw_fd(), bytes, count, 0, at, length) >= 0 }
    }
}

/// The packets that pass the loopback interface.
pub struct Sight(OwnedFd);

impl Sight {
    pub fn open() -> io::Result<Sight> {
        let fd = open(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from(IPV4.to_be()))?;
        // SAFETY: an address of zeroes is valid.
        let mut place: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        place.sll_family = libc::AF_PACKET as u16;
        place.sll_protocol = IPV4.to_be();
        place.sll_ifindex = loopback();
        let (at, length) = ((&raw const place).cast(), size_of_val(&place) as u32);
        // SAFETY: a live address of this length.
        if unsafe { libc::bind(fd.as_raw_fd(), at, length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Sight(fd))
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: a live structure.
        unsafe { libc::poll(&raw mut poll, 1, 0) <= 0 }
    }

    /// Takes the next segment of TCP that arrives, if one comes within so many milliseconds.
    pub fn next(&self, milliseconds: i32, buffer: &mut [u8]) -> Option<Segment> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: a live structure.
        if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } <= 0 {
            return None;
        }
        // SAFETY: an address of zeroes is valid.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&from) as u32;
        let (at, most) = (buffer.as_mut_ptr().cast(), buffer.len());
        let (place, room) = ((&raw mut from).cast(), &raw mut length);
        // SAFETY: live memory of these lengths.
        let count = unsafe {
            libc::recvfrom(self.0.as_raw_fd(), at, most, libc::MSG_DONTWAIT, place, room)
        };
        let packet = buffer.get(..usize::try_from(count).ok()?)?;
        // Each passes twice, out and in.
        if from.sll_pkttype == OUTGOING { None } else { Segment::parse(packet) }
    }
}

fn loopback() -> i32 {
    // SAFETY: a string that ends with zero.
    unsafe { libc::if_nametoindex(c"lo".as_ptr()) as i32 }
}

/// Adds a route by the loopback interface to [`SILENT`], once (rtnetlink(7)).
pub fn silence() -> io::Result<()> {
    let fd = open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut request = 44_u32.to_ne_bytes().to_vec();
    request.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    request.extend((flags as u16).to_ne_bytes());
    request.extend([0; 8]);
    // struct rtmsg: family, prefix, source's prefix, TOS; table main, protocol boot, scope link,
    // type unicast.
    request.extend([libc::AF_INET as u8, 24, 0, 0, 254, 3, 253, 1, 0, 0, 0, 0]);
    request.extend([8, 0, libc::RTA_DST as u8, 0]);
    request.extend(SILENT.to_be_bytes());
    request.extend([8, 0, libc::RTA_OIF as u8, 0]);
    request.extend(loopback().to_ne_bytes());
    let mut answer = [0; 64];
    // SAFETY: live bytes of these lengths.
    let count = unsafe {
        libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0);
        libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    if count < 20 {
        return Err(io::Error::last_os_error());
    }
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}
