//! Random and mutated packets: no parser panics, what it accepts lies within the packet, and what
//! it has read is written and read again as the same.
//!
//! `FUZZ_ROUNDS` sets how many packets are tried and `FUZZ_SEED` the first.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_ip::checksum::Checksum;
use hayate_ip::header::{self, Extent, Header, Icmp, Tcp, Udp};
use hayate_ip::neighbour::{ADVERTISEMENT, Arp, Discovery, SOLICITATION};
use hayate_ip::reassembly::{Added, Reassembly};
use hayate_ip::{Address, SocketAddress, icmp};

fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.word() as u8).collect()
}

fn address(random: &mut Random, v6: bool) -> Address {
    if !v6 {
        return Address::v4(random.word() as u32);
    }
    // The upper half is not zero, so it is no mapped address.
    Address::v6(u128::from(random.word() | 1) << 64 | u128::from(random.word()))
}

/// A packet that is right, with extension headers if it is one of IPv6.
fn packet(random: &mut Random) -> Vec<u8> {
    let v6 = random.one_in(2);
    let fragment = header::Fragment {
        identification: random.word() as u32 & if v6 { u32::MAX } else { 0xffff },
        offset: random.below(0x1fff) * 8,
        more: random.one_in(2),
    };
    let is_fragment = random.one_in(4) && (fragment.more || fragment.offset > 0);
    let protocols = [1, 2, 6, 17, 58, 255];
    let header = Header {
        source: address(random, v6),
        destination: address(random, v6),
        protocol: protocols[random.below(protocols.len())],
        hop_limit: random.word() as u8,
        traffic_class: random.word() as u8,
        dont_fragment: v6 || random.one_in(2),
        fragment: is_fragment.then_some(fragment),
    };
    let length = random.below(200);
    let payload = bytes(random, length);
    let mut packet = vec![0; header::length(&header)];
    header::emit(&header, payload.len(), &mut packet).unwrap();
    let (read, extent) = header::parse(&packet, packet.len() + payload.len()).unwrap();
    assert_eq!((read, extent.length), (header, payload.len()));
    packet.extend(payload);
    while v6 && random.one_in(3) {
        let kinds = [0, 43, 44, 60];
        let words = random.below(4);
        let mut extension = bytes(random, 8 + 8 * words);
        (extension[0], extension[1]) = (packet[6], words as u8);
        packet[6] = kinds[random.below(kinds.len())];
        packet.splice(header::LENGTH_V6..header::LENGTH_V6, extension);
        let length = (packet.len() - header::LENGTH_V6) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
    }
    packet
}

fn mutate(random: &mut Random, packet: &mut Vec<u8>) {
    for _ in 0..random.below(5) {
        let at = random.below(packet.len().min(80));
        match random.below(6) {
            _ if packet.is_empty() => packet.push(0),
            0 => packet[at] ^= 1 << random.below(8),
            1 => packet[at] = random.word() as u8,
            2 => packet[at] = 0xff,
            3 => packet.truncate(at),
            4 => drop(packet.remove(at)),
            _ => packet.insert(at, random.word() as u8),
        }
    }
    // A checksum that is right lets the rest be looked at.
    let length = usize::from(packet.first().copied().unwrap_or(0) & 15) * 4;
    if packet.first().is_some_and(|first| first >> 4 == 4) && (12..=packet.len()).contains(&length)
    {
        packet[10..12].fill(0);
        let mut sum = Checksum::new();
        sum.add(&packet[..length]);
        packet[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// Reads a packet as the kernel does. Returns its header, and the place of its payload.
fn read(packet: &[u8]) -> Option<(Header, Extent)> {
    let head = &packet[..packet.len().min(header::MOST)];
    let returned = header::parse_returned(head).map(|(header, _)| header);
    let (header, extent) = header::parse(head, packet.len())?;
    assert_eq!(returned, Some(header));
    let payload = &packet[extent.offset..extent.offset + extent.length];
    let head = &payload[..payload.len().min(header::MOST)];
    if let Some(udp) = Udp::parse(head, payload.len()) {
        assert!((header::LENGTH_UDP..=payload.len()).contains(&usize::from(udp.length)));
        assert_eq!(udp.to_bytes()[..6], head[..6]);
    }
    if let Some(tcp) = Tcp::parse(head, payload.len()) {
        assert!(header::LENGTH_TCP + tcp.options <= payload.len() && tcp.options <= 40);
        let again = Tcp::parse(&tcp.to_bytes(), header::LENGTH_TCP + tcp.options).unwrap();
        assert_eq!(again, tcp);
    }
    if let Some(message) = Icmp::parse(head) {
        let is_v4 = header.destination.is_v4();
        let failure = if is_v4 { icmp::failure_v4 } else { icmp::failure_v6 };
        let is_told = failure(message.kind, message.code, message.rest).is_some();
        assert!(!is_told || icmp::is_error(is_v4, message.kind));
        assert_eq!(message.to_bytes(0)[4..], head[4..header::LENGTH_ICMP]);
    }
    Some((header, extent))
}

#[test]
fn headers() {
    let mut random = Random::new(seed());
    let (count, mut accepted) = (rounds(200_000), 0);
    for _ in 0..count {
        let mut packet = packet(&mut random);
        mutate(&mut random, &mut packet);
        let Some((header, extent)) = read(&packet) else { continue };
        accepted += 1;
        // A header that was accepted is one that can be sent.
        let mut again = vec![0; header::length(&header)];
        if header::emit(&header, extent.length, &mut again).is_some() {
            let length = again.len() + extent.length;
            assert_eq!(header::parse(&again, length).map(|(header, _)| header), Some(header));
        }
    }
    assert!(accepted * 4 > count, "only {accepted} of {count} packets were accepted");
}

#[test]
fn random_bytes() {
    let mut random = Random::new(seed());
    for _ in 0..rounds(100_000) {
        let count = random.below(300);
        let mut packet = bytes(&mut random, count);
        if let Some(first) = packet.first_mut().filter(|_| random.one_in(2)) {
            *first = [0x45, 0x60][random.below(2)];
        }
        read(&packet);
        for v6 in [false, true] {
            if let Ok(address) = SocketAddress::parse(&packet, v6) {
                let again = SocketAddress::parse(&address.to_bytes(v6), v6);
                assert_eq!(again.map(|again| again.address), Ok(address.address));
            }
        }
    }
}

/// Fragments of packets of which they are any parts: a packet that becomes whole is one of those.
#[test]
fn fragments() {
    let mut random = Random::new(seed());
    let mut wholes = 0;
    for _ in 0..rounds(20_000) {
        let length = 1 + random.below(400);
        let packet = bytes(&mut random, length);
        let mut all = Reassembly::default();
        for _ in 0..random.below(60) {
            let from = random.below(length.div_ceil(8)) * 8;
            let most = (length - from).min(8 * (1 + random.below(16)));
            let more = from + most < length;
            let size = if more { most & !7 } else { most };
            // Some tell of more than there is, or of another end.
            let lies = random.one_in(200);
            let offset = if lies { random.below(0x2000) * 8 } else { from };
            match all.add(offset, size, more != (lies && random.one_in(2)), &packet[from..][..size])
            {
                Ok(Added::Whole) => {
                    let bytes: Vec<u8> = all.into_pieces().flatten().copied().collect();
                    if bytes.len() == length && !lies {
                        wholes += 1;
                    }
                    assert!(bytes.len() <= usize::from(u16::MAX));
                    break;
                }
                Ok(Added::Kept | Added::Repeated) => {}
                Err(_) => break,
            }
        }
    }
    assert!(wholes > 0);
}

/// Messages about hardware addresses, mutated: what is read is written and read as the same.
#[test]
fn hardware_addresses() {
    let mut random = Random::new(seed());
    let (count, mut accepted) = (rounds(100_000), 0);
    for _ in 0..count {
        let hardware = random.word().to_le_bytes()[..6].try_into().unwrap();
        let ends = [address(&mut random, false), address(&mut random, false)];
        let asks = random.one_in(2);
        let arp = Arp { asks, source: (hardware, ends[0]), target: ([0; 6], ends[1]) };
        let kind = [SOLICITATION, ADVERTISEMENT][random.below(2)];
        let target = address(&mut random, true);
        let mut discovery = Discovery::bytes(kind, target, hardware).to_vec();
        if random.one_in(2) {
            let words = 1 + random.below(3);
            let mut option = bytes(&mut random, 8 * words);
            option[1] = words as u8;
            discovery.splice(16..16, option);
        }
        let mut arp = arp.to_bytes().unwrap().to_vec();
        for message in [&mut arp, &mut discovery] {
            for _ in 0..random.below(4) {
                let at = random.below(message.len());
                match random.below(4) {
                    _ if message.is_empty() => {}
                    0 => message[at] ^= 1 << random.below(8),
                    1 => message[at] = random.word() as u8,
                    2 => message.truncate(at),
                    _ => message.insert(at, random.word() as u8),
                }
            }
        }
        if let Some(read) = Arp::parse(&arp) {
            accepted += 1;
            assert_eq!(Arp::parse(&read.to_bytes().unwrap()), Some(read));
        }
        if let Some(read) = Discovery::parse(kind, &discovery) {
            accepted += 1;
            assert!(read.target.is_unicast());
            if let Some(hardware) = read.hardware {
                let again = Discovery::bytes(kind, read.target, hardware);
                assert_eq!(Discovery::parse(kind, &again), Some(read));
            }
        }
        let other = random.word() as u8;
        Discovery::parse(other, &arp);
    }
    assert!(accepted > count / 2, "only {accepted} of {count} messages were accepted");
}
