//! Attacks that send packets and look for no answer.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use hayate_stress::served::Server;
use hayate_stress::{Options, Random, pause};

use crate::wire::{LOCAL, SILENT, SYN, Segment, Way, datagram, packet};
use crate::{Attacker, Outcome, Watch};

/// A host of the network that does not answer, and a port of it.
fn somebody(random: &mut Random) -> (u32, u16) {
    (SILENT + 1 + random.below(254) as u32, 1024 + random.below(60_000) as u16)
}

fn open() -> Outcome<Way> {
    Way::open().map_err(|error| format!("a raw socket: {error}"))
}

/// How many connections of a port have begun and are not established.
fn begun(port: u16) -> usize {
    let text = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let name = format!("0100007F:{port:04X}");
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.len() > 3 && words[1] == name && words[3] == "03").count()
}

/// Floods a listener with SYNs. It serves all the same, as another does. When the listener is
/// closed, nothing is left of the connections that began.
pub fn syn_flood(
    options: &Options,
    seconds: u64,
    other: &Server,
    watch: &mut Watch,
) -> Outcome<u64> {
    let backlog = options.get("backlog", 64);
    let flooded = Server::start(backlog)?;
    let port = flooded.port();
    let way = open()?;
    let mut random = Random::new(1);
    let attacker = Attacker::start(move || {
        let source = somebody(&mut random);
        let sequence = random.bits() as u32;
        let destination = (LOCAL, port);
        let syn = Segment {
            source,
            destination,
            sequence,
            flags: SYN,
            window: 65535,
            ..Segment::default()
        };
        way.send(&syn.packet(1460, &[]));
    })?;
    watch.look_for(seconds, &[other, &flooded])?;
    drop(attacker);
    let waiting = begun(port);
    println!("siege: {waiting} connections have begun with a backlog of {backlog}");
    if waiting == 0 || waiting > backlog as usize + 8 {
        return Err("so many are none, or more than the backlog".into());
    }
    watch.look(&[other, &flooded])?;
    drop(flooded);
    // They go with their next timer: a SYN is answered after 1, 3, 7 and 15 seconds again.
    let end = Instant::now() + Duration::from_secs(20);
    while begun(port) > 0 {
        if Instant::now() > end {
            return Err("connections are left of a listener that is closed".into());
        }
        watch.look(&[other])?;
        pause(200_000);
    }
    Ok(24 << 20)
}

/// Sends fragments of datagrams that never become whole: the first ones overlap and contradict each
/// other, the last is never sent. Afterwards a datagram in fragments arrives.
pub fn fragments(seconds: u64, server: &Server, watch: &mut Watch) -> Outcome<u64> {
    const MORE: u16 = 0x2000;
    let protocol = libc::IPPROTO_UDP as u8;
    // Half done packets are given up sooner (ip(7)).
    let _ = fs::write("/proc/sys/net/ipv4/ipfrag_time", "3\n");
    let told = |error: std::io::Error| format!("a UDP socket: {error}");
    let receiver = UdpSocket::bind(("127.0.0.1", 0)).map_err(told)?;
    receiver.set_read_timeout(Some(Duration::from_millis(500))).map_err(told)?;
    let port = receiver.local_addr().map_err(told)?.port();
    let way = open()?;
    let mut random = Random::new(2);
    let attacker = Attacker::start(move || {
        let from = somebody(&mut random);
        let whole = datagram(from, (LOCAL, port), &vec![0xaa; 4000]);
        let other = datagram(from, (LOCAL, port), &vec![0x55; 4000]);
        let identification = random.bits() as u16;
        let send = |at: usize, end: usize, bytes: &[u8]| {
            let place = (identification, (at as u16 / 8) | MORE);
            way.send(&packet(from.0, LOCAL, protocol, place, &bytes[at..end]));
        };
        send(0, 1400, &whole);
        match random.below(3) {
            0 => send(1400, 2800, &whole),
            1 => send(696, 2096, &other),
            _ => (0..40).for_each(|piece| send(2000 + 16 * piece, 2008 + 16 * piece, &other)),
        }
    })?;
    watch.look_for(seconds, &[server])?;
    drop(attacker);
    let whole = datagram((LOCAL, 9), (LOCAL, port), &[7; 3000]);
    let way = open()?;
    let end = Instant::now() + Duration::from_secs(60);
    let mut identification = 0;
    loop {
        identification += 1;
        for at in [1400, 0, 2800] {
            let end = (at + 1400).min(whole.len());
            let more = if end < whole.len() { MORE } else { 0 };
            let place = (identification, (at as u16 / 8) | more);
            way.send(&packet(LOCAL, LOCAL, protocol, place, &whole[at..end]));
        }
        let mut bytes = [0; 4096];
        match receiver.recv(&mut bytes) {
            Ok(3000) if bytes[..3000] == [7; 3000] => break,
            Ok(_) => return Err("a datagram arrived that nobody sent whole".into()),
            Err(_) if Instant::now() > end => return Err("no datagram becomes whole".into()),
            Err(_) => pause(100_000),
        }
    }
    Ok(16 << 20)
}
