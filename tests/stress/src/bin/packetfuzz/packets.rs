//! Packets that are nearly right: made from nothing, or from packets that were seen.
//!
//! A packet is the bytes from its IP header on. What a receiver checks first is right most of the
//! time (lengths, checksums), so that the rest is reached.

use hayate_stress::Random;

pub const ICMP: u8 = 1;
pub const IGMP: u8 = 2;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP_V6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const HEADER_V4: usize = 20;
const HEADER_V6: usize = 40;

/// The ports that packets may be about.
pub struct Ports {
    /// Those whose connections may break.
    pub victims: Vec<u16>,
    /// Those of the server that has to go on. Nothing claims to come from them.
    pub served: Vec<u16>,
}

/// Random bytes, `length` of them.
pub fn bytes(random: &mut Random, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.bits() as u8).collect()
}

/// A number below one of these.
fn below(random: &mut Random, limits: &[u64]) -> u64 {
    let limit = random.pick(limits);
    random.below(limit)
}

/// Fewer than `limit` random bytes.
pub fn some_bytes(random: &mut Random, limit: u64) -> Vec<u8> {
    let length = random.below(limit);
    bytes(random, length)
}

/// A number as fields of headers have it: small, large, at an edge, or any.
fn odd(random: &mut Random) -> u16 {
    match random.below(4) {
        0 => random.below(64) as u16,
        1 => u16::MAX - random.below(64) as u16,
        2 => 1 << random.below(16),
        _ => random.bits() as u16,
    }
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

fn put(packet: &mut [u8], at: usize, value: u16) {
    if let Some(field) = packet.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Whether a packet is one of IPv6.
pub fn is_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// The protocol of a packet without extension headers, and where its payload begins. `None`: it is
/// a fragment, or no packet.
pub fn payload(packet: &[u8]) -> Option<(u8, usize)> {
    if is_v6(packet) {
        return Some((*packet.get(6)?, HEADER_V6)).filter(|_| packet.len() >= HEADER_V6);
    }
    let start = usize::from(packet.first()? & 15) * 4;
    let is_whole = packet.get(6)? & 0x3f == 0 && *packet.get(7)? == 0;
    let fits = (HEADER_V4..=packet.len()).contains(&start);
    (is_whole && fits).then(|| (packet[9], start))
}

/// The ports of a packet of TCP or UDP: its sender's and its receiver's.
pub fn ports(packet: &[u8]) -> Option<(u16, u16)> {
    let (protocol, start) = payload(packet)?;
    let port = |at| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    matches!(protocol, TCP | UDP).then_some((port(start)?, port(start + 2)?))
}

/// Writes the lengths and checksums that belong to a packet.
pub fn mend(packet: &mut [u8]) {
    let length = packet.len();
    if is_v6(packet) && length >= HEADER_V6 {
        put(packet, 4, (length - HEADER_V6) as u16);
    } else if length >= HEADER_V4 {
        put(packet, 2, length as u16);
        let end = (usize::from(packet[0] & 15) * 4).min(length);
        put(packet, 10, 0);
        let header = sum(&[&packet[..end]]);
        put(packet, 10, header);
    }
    let Some((protocol, start)) = payload(packet) else { return };
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMP_V6 | IGMP => 2,
        _ => return,
    };
    put(packet, start + at, 0);
    let body = &packet[start..];
    let pseudo = [0, 0, (body.len() >> 8) as u8, body.len() as u8, 0, 0, 0, protocol];
    let addresses = if is_v6(packet) { &packet[8..HEADER_V6] } else { &packet[12..HEADER_V4] };
    let value = match protocol {
        ICMP | IGMP => sum(&[body]),
        _ => sum(&[addresses, &pseudo, body]),
    };
    put(packet, start + at, value);
}

/// An IPv4 or IPv6 packet from and to addresses that this machine takes, most of the time.
fn wrap(random: &mut Random, v6: bool, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut packet;
    if v6 {
        let mut local = [0; 16];
        local[15] = 1;
        let mut group = [0; 16];
        (group[0], group[1], group[15]) = (0xff, random.pick(&[1, 2, 5]), random.pick(&[1, 2, 16]));
        let mut document = [0; 16];
        document[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        document[15] = random.bits() as u8;
        packet = vec![0x60, 0, 0, 0, 0, 0, protocol, random.pick(&[64, 64, 255, 1])];
        packet.extend(random.pick(&[local, local, local, document, group, [0; 16]]));
        packet.extend(random.pick(&[local, local, local, local, group, [0; 16]]));
    } else {
        let near = [127, 0, random.below(2) as u8, random.bits() as u8];
        let local = [127, 0, 0, 1];
        let document = [198, 51, 100, random.bits() as u8];
        let group = [224, 0, 0, random.pick(&[1, 2, 22, 251])];
        packet = vec![0x45, random.bits() as u8 & 3, 0, 0, 0, 0, 0, 0];
        put(&mut packet, 4, random.below(16) as u16);
        packet.extend([random.pick(&[64, 64, 255, 1]), protocol, 0, 0]);
        packet.extend(random.pick(&[local, local, near, document, group, [0; 4], [255; 4]]));
        packet.extend(random.pick(&[
            local,
            local,
            local,
            near,
            group,
            [255; 4],
            [127, 255, 255, 255],
        ]));
    }
    packet.extend(body);
    mend(&mut packet);
    packet
}

/// A pair of ports: something that listens, a connection, or nothing.
fn some_ports(random: &mut Random, ports: &Ports) -> (u16, u16) {
    // Nobody is connected from a low port.
    let low = 1 + random.below(1000) as u16;
    match random.below(4) {
        0 => (low, random.pick(&ports.served)),
        1 => (low, odd(random)),
        2 => (low, random.pick(&ports.victims)),
        _ => (random.pick(&ports.victims), random.pick(&ports.victims)),
    }
}

fn tcp_options(random: &mut Random) -> Vec<u8> {
    let mut options = Vec::new();
    while options.len() < 36 && !random.one_in(4) {
        let kind = random.pick(&[1, 2, 3, 4, 5, 8, 19, 34, 0, 254]);
        let usual = match kind {
            0 | 1 => 0,
            2 => 2,
            3 => 1,
            5 => 8 * (1 + random.below(3)),
            8 => 8,
            19 => 16,
            _ => random.below(5),
        };
        options.push(kind);
        if kind > 1 {
            let length = if random.one_in(8) { random.bits() as u8 } else { usual as u8 + 2 };
            options.push(length);
        }
        options.extend(bytes(random, usual));
    }
    options.truncate(40);
    options.resize(options.len().next_multiple_of(4), 1);
    options
}

fn tcp(random: &mut Random, ports: &Ports) -> Vec<u8> {
    let (source, destination) = some_ports(random, ports);
    let options = tcp_options(random);
    let mut body = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    body.extend(bytes(random, 8));
    let words = if random.one_in(16) { random.bits() as u8 } else { 5 + options.len() as u8 / 4 };
    let flags = random.pick(&[2, 2, 2, 16, 18, 4, 20, 17, 1, 24, 41, 0, 63, 255]);
    body.extend([words << 4, flags]);
    body.extend(odd(random).to_be_bytes());
    body.extend([0, 0]);
    body.extend(odd(random).to_be_bytes());
    body.extend(options);
    let length = random.pick(&[0, 0, 1, 100, 1400, 5000]);
    body.extend(bytes(random, length));
    body
}

fn udp(random: &mut Random, ports: &Ports) -> Vec<u8> {
    let (source, destination) = some_ports(random, ports);
    let length = below(random, &[1, 16, 1500, 9000]);
    let stated = if random.one_in(8) { odd(random) } else { 8 + length as u16 };
    let mut body = [source, destination, stated, 0].map(u16::to_be_bytes).concat();
    body.extend(bytes(random, length));
    body
}

/// A message of ICMP; errors carry a packet that was seen.
fn icmp(random: &mut Random, v6: bool, seen: &[Vec<u8>]) -> Vec<u8> {
    let kinds: &[u8] = if v6 {
        &[1, 2, 3, 4, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 143]
    } else {
        &[0, 3, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17]
    };
    let kind = if random.one_in(8) { random.bits() as u8 } else { random.pick(kinds) };
    let mut body = vec![kind, random.below(16) as u8, 0, 0];
    body.extend([odd(random), odd(random)].map(u16::to_be_bytes).concat());
    let fitting: Vec<&Vec<u8>> = seen.iter().filter(|packet| is_v6(packet) == v6).collect();
    if fitting.is_empty() || random.one_in(3) {
        let length = below(random, &[4, 40, 4000]);
        body.extend(bytes(random, length));
    } else {
        let inner = random.pick(&fitting);
        let most = random.pick(&[28, 48, 64, 600]);
        body.extend(&inner[..inner.len().min(most)]);
    }
    body
}

/// Puts extension headers before the payload of an IPv6 packet.
fn extend(random: &mut Random, packet: &mut Vec<u8>) {
    for _ in 0..=below(random, &[2, 4, 40]) {
        let kind = random.pick(&[HOP_BY_HOP, ROUTING, DESTINATION, DESTINATION, FRAGMENT]);
        let words = if random.one_in(6) { random.below(40) } else { 0 };
        let mut header = bytes(random, 8 + 8 * words);
        header[0] = packet[6];
        header[1] = if random.one_in(8) { random.bits() as u8 } else { words as u8 };
        if kind == ROUTING && !random.one_in(4) {
            header[3] = 0;
        }
        packet[6] = kind;
        packet.splice(HEADER_V6..HEADER_V6, header);
    }
}

/// Makes a packet, or changes one that was seen.
pub fn packet(random: &mut Random, ports: &Ports, seen: &[Vec<u8>]) -> Vec<u8> {
    if !seen.is_empty() && random.one_in(3) {
        return seen[random.below(seen.len() as u64) as usize].clone();
    }
    let v6 = random.one_in(2);
    let (protocol, body) = match random.below(10) {
        0..=3 => (TCP, tcp(random, ports)),
        4 | 5 => (UDP, udp(random, ports)),
        6 | 7 => (if v6 { ICMP_V6 } else { ICMP }, icmp(random, v6, seen)),
        8 => (IGMP, some_bytes(random, 40)),
        _ => (random.bits() as u8, some_bytes(random, 200)),
    };
    let mut packet = wrap(random, v6, protocol, &body);
    if v6 && random.one_in(5) {
        extend(random, &mut packet);
    }
    packet
}

/// Changes some bytes, the length, or nothing.
pub fn mutate(random: &mut Random, packet: &mut Vec<u8>) {
    for _ in 0..random.below(6) {
        let length = packet.len() as u64;
        // Headers are more interesting than data.
        let most = random.pick(&[40, 80, 9000]).min(length);
        let at = random.below(most) as usize;
        match random.below(8) {
            _ if packet.is_empty() => packet.push(random.bits() as u8),
            0 => packet[at] ^= 1 << random.below(8),
            1 => packet[at] = random.bits() as u8,
            2 => packet[at] = packet[at].wrapping_add(1),
            3 => put(packet, at, odd(random)),
            4 => packet.truncate(at.max(1)),
            5 => packet.extend(some_bytes(random, 64)),
            6 => drop(packet.remove(at)),
            _ => packet.insert(at, random.bits() as u8),
        }
    }
    packet.truncate(16_000);
}

/// Cuts a packet into fragments that overlap, repeat, lack, or reach too far.
pub fn fragments(random: &mut Random, packet: &[u8]) -> Vec<Vec<u8>> {
    let v6 = is_v6(packet);
    let start = if v6 { HEADER_V6 } else { HEADER_V4 };
    let Some((head, body)) = packet.split_at_checked(start) else { return Vec::new() };
    let identification = random.below(64) as u32;
    let size = 8 * (1 + below(random, &[2, 20, 180]) as usize);
    let mut all = Vec::new();
    let mut at = 0;
    while at < body.len() && all.len() < 60 {
        let end = (at + size).min(body.len());
        let mut offset = at & !7;
        if random.one_in(12) {
            offset = usize::from(odd(random)) & !7;
        }
        let more = (end < body.len()) != random.one_in(20);
        let mut fragment = head.to_vec();
        if v6 {
            let place = offset as u16 | u16::from(more);
            fragment.extend([packet[6], 0]);
            fragment.extend(place.to_be_bytes());
            fragment.extend(identification.to_be_bytes());
            fragment[6] = FRAGMENT;
        } else {
            put(&mut fragment, 4, identification as u16);
            put(&mut fragment, 6, (offset >> 3) as u16 | u16::from(more) << 13);
        }
        fragment.extend(&body[at..end]);
        mend(&mut fragment);
        if !random.one_in(15) {
            all.push(fragment.clone());
        }
        if random.one_in(15) {
            all.push(fragment);
        }
        // Some begin before the end of the last one.
        at = if random.one_in(10) { at + 8 } else { end };
    }
    if random.one_in(2) {
        for from in (1..all.len()).rev() {
            all.swap(from, random.below(from as u64 + 1) as usize);
        }
    }
    all
}
