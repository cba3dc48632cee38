//! Replies that were mutated, cut and made up: reading them must end with a reply that the request
//! can have, or with an error, and without a panic.
//!
//! `FUZZ_ROUNDS` sets how many are tried and `FUZZ_SEED` the first one; a failure prints both.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_ninep::directory::{entries, is_name};
use hayate_ninep::reply::Reply;
use hayate_ninep::request::{BASIC, Change, Request};

fn requests() -> Vec<Request<'static>> {
    vec![
        Request::Version { most: 8192, version: b"9P2000.L" },
        Request::Flush { tag: 1 },
        Request::Attach { fid: 1, uid: 0, name: b"" },
        Request::Walk { fid: 1, new_fid: 2, name: Some(b"a") },
        Request::Walk { fid: 1, new_fid: 2, name: None },
        Request::Open { fid: 1, flags: 0 },
        Request::Create { fid: 1, name: b"a", flags: 0, mode: 0, gid: 0 },
        Request::Read { fid: 1, offset: 0, count: 64 },
        Request::Write { fid: 1, offset: 0, count: 64 },
        Request::ReadDirectory { fid: 1, offset: 0, count: 64 },
        Request::Clunk { fid: 1 },
        Request::GetAttributes { fid: 1, mask: BASIC },
        Request::SetAttributes { fid: 1, change: Change::default() },
        Request::ReadLink { fid: 1 },
        Request::StatFs { fid: 1 },
        Request::Sync { fid: 1, data_only: false },
    ]
}

/// A reply that may be a good one: its header is, mostly.
fn made_up(random: &mut Random, request: &Request<'_>, tag: u16) -> Vec<u8> {
    let length = if random.one_in(4) { random.below(40) } else { Reply::room(request) };
    let mut bytes: Vec<u8> = (0..length.max(11)).map(|_| random.word() as u8).collect();
    if random.one_in(2) {
        bytes[7..].fill(0);
        let at = 7 + random.below(bytes.len() - 7);
        bytes[at] = random.word() as u8;
    }
    let size = if random.one_in(4) { random.word() as u32 } else { bytes.len() as u32 };
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes[4] = if random.one_in(8) { random.word() as u8 } else { request.kind() + 1 };
    bytes[5..7].copy_from_slice(&tag.to_le_bytes());
    bytes.truncate(if random.one_in(8) { random.below(bytes.len()) } else { bytes.len() });
    bytes
}

#[test]
fn made_up_replies() {
    let (mut good, requests) = (0, requests());
    for round in 0..rounds(50_000) {
        let mut random = Random::new(seed() << 32 ^ round);
        let request = &requests[random.below(requests.len())];
        let bytes = made_up(&mut random, request, 9);
        let written = bytes.len() + random.below(100);
        let Ok(reply) = Reply::read(request, 9, &bytes, written) else { continue };
        good += 1;
        match reply {
            Reply::Data(count) | Reply::Written(count) => {
                assert!(count <= 64, "{count} of 64 bytes (round {round})");
            }
            Reply::Link(text) => assert!(!text.is_empty() && !text.contains(&0)),
            Reply::Attributes(found) => assert!(found.modified.1 < 1_000_000_000),
            _ => {}
        }
    }
    assert!(good > 0, "no reply was good: the fuzzer tests nothing");
}

#[test]
fn made_up_directories() {
    for round in 0..rounds(50_000) {
        let mut random = Random::new(seed() << 32 ^ round);
        let mut data = Vec::new();
        for _ in 0..random.below(6) {
            data.extend((0..22).map(|_| random.word() as u8));
            let length = random.below(8);
            let told = if random.one_in(6) { random.below(70_000) } else { length };
            data.extend_from_slice(&(told as u16).to_le_bytes());
            data.extend((0..length).map(|_| b"abc/\0de."[random.below(8)]));
        }
        data.truncate(if random.one_in(3) { random.below(data.len() + 1) } else { data.len() });
        let all: Vec<_> = entries(&data).collect();
        assert!(all.len() <= data.len() / 24 + 1, "round {round}");
        for (at, entry) in all.iter().enumerate() {
            match entry {
                Ok(entry) => assert!(is_name(entry.name), "round {round}"),
                Err(_) => assert_eq!(at + 1, all.len(), "round {round}"),
            }
        }
    }
}
