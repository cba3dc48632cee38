//! Messages as bytes, as the sources give them.

use hayate_ninep::directory::{Entry, entries};
use hayate_ninep::reply::Reply;
use hayate_ninep::request::{Change, Request};
use hayate_ninep::{Malformed, Qid, kind};
use proptest::prelude::*;

fn written(request: &Request<'_>, tag: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.write(tag, &mut bytes);
    assert_eq!(bytes.len(), request.length().unwrap());
    let size = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert_eq!(size as usize, bytes.len() + request.data() as usize);
    bytes
}

/// A reply of a type with these fields.
fn message(type_of: u8, tag: u16, fields: &[u8]) -> Vec<u8> {
    let size = (7 + fields.len()) as u32;
    [&size.to_le_bytes()[..], &[type_of], &tag.to_le_bytes(), fields].concat()
}

#[test]
fn requests_are_written_as_linux_does() {
    let version = Request::Version { most: 8192, version: b"9P2000.L" };
    let bytes = written(&version, 0xffff);
    assert_eq!(bytes, b"\x15\0\0\0\x64\xff\xff\0\x20\0\0\x08\x009P2000.L");
    let walk = Request::Walk { fid: 1, new_fid: 2, name: Some(b"ab") };
    assert_eq!(written(&walk, 3), b"\x15\0\0\0\x6e\x03\0\x01\0\0\0\x02\0\0\0\x01\0\x02\0ab");
    let same = Request::Walk { fid: 1, new_fid: 2, name: None };
    assert_eq!(written(&same, 3), b"\x11\0\0\0\x6e\x03\0\x01\0\0\0\x02\0\0\0\0\0");
    let attach = Request::Attach { fid: 7, uid: 0, name: b"/" };
    assert_eq!(
        written(&attach, 1),
        b"\x18\0\0\0\x68\x01\0\x07\0\0\0\xff\xff\xff\xff\0\0\x01\0/\0\0\0\0"
    );
    let write = Request::Write { fid: 1, offset: 4096, count: 5 };
    assert_eq!(written(&write, 0), b"\x1c\0\0\0\x76\0\0\x01\0\0\0\0\x10\0\0\0\0\0\0\x05\0\0\0");
}

#[test]
fn a_change_names_what_it_changes() {
    let change = Change { size: Some(9), modified: Some((3, 4)), ..Change::default() };
    let bytes = written(&Request::SetAttributes { fid: 1, change }, 0);
    // Size, the time of change, that it is given, and the time of change of attributes.
    assert_eq!(bytes[11..15], (8u32 | 32 | 256 | 64).to_le_bytes());
    assert_eq!(bytes[27..35], 9u64.to_le_bytes());
    assert_eq!(bytes[51..59], 3u64.to_le_bytes());
    assert_eq!(bytes[59..67], 4u64.to_le_bytes());
}

#[test]
fn a_text_of_more_than_a_message_holds_is_no_request() {
    let long = vec![b'x'; 65_536];
    assert_eq!(Request::Unlink { fid: 1, name: &long, flags: 0 }.length(), None);
}

#[test]
fn replies_are_read() {
    let walk = Request::Walk { fid: 1, new_fid: 2, name: Some(b"ab") };
    let good = message(111, 5, b"\x01\0\x80\x02\0\0\0\x07\0\0\0\0\0\0\0");
    let found = Qid { kind: 0x80, version: 2, path: 7 };
    assert_eq!(Reply::read(&walk, 5, &good, good.len()), Ok(Reply::File(Some(found))));
    // Another tag, another type, a message that ends early, more names than were asked for.
    assert_eq!(Reply::read(&walk, 6, &good, good.len()), Err(Malformed));
    assert_eq!(Reply::read(&Request::Clunk { fid: 1 }, 5, &good, good.len()), Err(Malformed));
    assert_eq!(Reply::read(&walk, 5, &good, good.len() - 1), Err(Malformed));
    let many = message(111, 5, b"\x02\0\x80\x02\0\0\0\x07\0\0\0\0\0\0\0");
    assert_eq!(Reply::read(&walk, 5, &many, many.len()), Err(Malformed));
    let none = message(111, 5, b"\0\0");
    assert_eq!(Reply::read(&walk, 5, &none, none.len()), Err(Malformed));
    let failed = message(kind::LERROR + 1, 5, &2u32.to_le_bytes());
    assert_eq!(Reply::read(&walk, 5, &failed, failed.len()), Ok(Reply::Error(2)));
}

#[test]
fn no_more_data_is_believed_than_was_asked_for_and_came() {
    let read = Request::Read { fid: 1, offset: 0, count: 100 };
    let head = |size: u32, count: u32| {
        [&size.to_le_bytes()[..], &[117], &1u16.to_le_bytes(), &count.to_le_bytes()].concat()
    };
    assert_eq!(Reply::read(&read, 1, &head(111, 100), 111), Ok(Reply::Data(100)));
    assert_eq!(Reply::read(&read, 1, &head(112, 101), 112), Err(Malformed));
    assert_eq!(Reply::read(&read, 1, &head(111, 100), 110), Err(Malformed));
    assert_eq!(Reply::read(&read, 1, &head(110, 100), 111), Err(Malformed));
    let write = Request::Write { fid: 1, offset: 0, count: 5 };
    let more = message(119, 1, &6u32.to_le_bytes());
    assert_eq!(Reply::read(&write, 1, &more, more.len()), Err(Malformed));
}

#[test]
fn entries_have_names_that_a_directory_can_have() {
    let entry = |name: &[u8]| {
        let mut bytes = b"\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x08".to_vec();
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes
    };
    let qid = Qid { kind: 0, version: 1, path: 2 };
    let good = |name| Ok(Entry { qid, next: 3, kind: 8, name });
    let data = [entry(b"a"), entry(b"bc")].concat();
    assert_eq!(entries(&data).collect::<Vec<_>>(), [good(b"a"), good(b"bc")]);
    for wrong in [&b""[..], b"a/b", b"a\0", &[b'x'; 256]] {
        let data = [entry(b"a"), entry(wrong), entry(b"b")].concat();
        assert_eq!(entries(&data).collect::<Vec<_>>(), [good(b"a"), Err(Malformed)]);
    }
    assert_eq!(entries(&data[..data.len() - 1]).last(), Some(Err(Malformed)));
}

proptest! {
    #[test]
    fn every_request_has_its_length(
        fid: u32, number: u64, tag: u16,
        name in proptest::collection::vec(any::<u8>(), 0..300),
        text in proptest::collection::vec(any::<u8>(), 0..5000),
    ) {
        let (name, target) = (&name[..], &text[..]);
        let low = number as u32;
        for request in [
            Request::Attach { fid, uid: low, name },
            Request::Create { fid, name, flags: low, mode: 1, gid: 2 },
            Request::Symlink { fid, name, target, gid: low },
            Request::MakeNode { fid, name, mode: 1, device: (2, 3), gid: low },
            Request::MakeDirectory { fid, name, mode: low, gid: 1 },
            Request::Link { directory: low, fid, name },
            Request::Rename { from: fid, name, to: low, new_name: target },
            Request::Unlink { fid, name, flags: low },
            Request::Walk { fid, new_fid: low, name: Some(name) },
            Request::Open { fid, flags: low },
            Request::Read { fid, offset: number, count: low },
            Request::ReadDirectory { fid, offset: number, count: low },
            Request::GetAttributes { fid, mask: number },
            Request::ReadLink { fid },
            Request::StatFs { fid },
            Request::Clunk { fid },
            Request::Flush { tag },
            Request::Sync { fid, data_only: true },
        ] {
            written(&request, tag);
        }
    }
}
