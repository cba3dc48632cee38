//! Requests of any content are read within their bounds, and answers never leave their buffer.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_netlink::diag;
use hayate_netlink::filter::{Filter, Subject};
use hayate_netlink::message::{Header, Requests, Writer};
use hayate_netlink::route::{Link, address, link, neighbour, route};
use proptest::prelude::*;

fn read_all(bytes: &[u8]) -> usize {
    let mut count = 0;
    for request in Requests::new(bytes) {
        count += 1;
        assert!(request.bytes.len() >= 16);
        let _ = link::Asked::read(&request);
        let _ = address::Asked::read(&request);
        let _ = route::Asked::read(&request);
        let _ = neighbour::Asked::read(&request);
        if let Some(asked) = diag::InetAsked::read(&request) {
            let _ = asked.wants(2, request.header.kind as u8, 80, 80);
            run(asked.program.unwrap_or_default());
        }
        let _ = diag::UnixAsked::read(&request);
    }
    assert!(count <= bytes.len() / 16);
    count
}

/// Checks a program, and runs it if it is one. Returns whether it is.
fn run(program: &[u8]) -> bool {
    let Ok(filter) = Filter::check(program, true) else { return false };
    for (family, address) in [(2, "10.0.0.1"), (10, "10.0.0.1"), (10, "fe80::1")] {
        let end = (address.parse().unwrap(), 80);
        let (local, remote) = (end, end);
        let subject = Subject { family, local, remote, interface: 1, mark: 2, is_automatic: false };
        let _ = filter.selects(&subject);
    }
    true
}

#[test]
fn random_programs_are_refused_or_come_to_their_end() {
    let mut random = Random::new(seed());
    let mut good = 0;
    for _ in 0..rounds(50_000) {
        let mut program = Vec::new();
        for _ in 0..random.below(12) {
            let lead = |random: &mut Random| (4 + 4 * random.below(6)) as u8;
            let (yes, no) = (lead(&mut random), lead(&mut random));
            program.extend([random.below(15) as u8, yes, no, 0]);
        }
        if random.one_in(4) && !program.is_empty() {
            let at = random.below(program.len());
            program[at] = random.word() as u8;
        }
        if random.one_in(4) {
            program.truncate(program.len().saturating_sub(random.below(4)));
        }
        good += usize::from(run(&program));
    }
    assert!(good > 100, "the fuzzer makes no programs: {good}");
}

#[test]
fn random_requests_are_read_to_their_end() {
    let mut random = Random::new(seed());
    let mut seen = 0;
    for _ in 0..rounds(20_000) {
        // Words of a small number below and a smaller one above: lengths and types that make sense.
        let mut bytes = Vec::new();
        for _ in 0..random.below(50) {
            let above = if random.one_in(2) { 0 } else { random.below(60) };
            let word = if random.one_in(8) {
                random.word() as usize
            } else {
                above << 16 | random.below(80)
            };
            bytes.extend((word as u32).to_ne_bytes());
        }
        bytes.truncate(bytes.len().saturating_sub(random.below(4)));
        seen += read_all(&bytes);
    }
    assert!(seen > 100, "the fuzzer makes no requests");
}

#[test]
fn a_request_ends_the_list_if_it_is_not_whole() {
    for length in [0u32, 1, 15, 21, 1000, u32::MAX] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(read_all(&bytes), 0, "{length}");
    }
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&17u32.to_ne_bytes());
    assert_eq!(read_all(&bytes), 1);
}

proptest! {
    #[test]
    fn an_answer_without_room_leaves_no_trace(room in 0..2000usize) {
        let link = Link { queue: "noqueue", ..Link::default() };
        let mut whole = [0; 4096];
        let mut writer = Writer::new(&mut whole);
        link.write(&mut writer, Header::default(), 0).unwrap();
        let needed = writer.length();
        let mut buffer = vec![0; room];
        let mut writer = Writer::new(&mut buffer);
        let mut count = 0;
        while link.write(&mut writer, Header::default(), 0).is_ok() {
            count += 1;
        }
        prop_assert_eq!(writer.length(), count * needed);
        prop_assert_eq!(count, room / needed);
        for at in 0..count {
            prop_assert_eq!(&buffer[at * needed..][..needed], &whole[..needed]);
        }
    }
}
