//! The reader's results for good, chained and damaged archives.

use hayate_cpio::{Entry, Fault, Item, Reader, components};
use proptest::prelude::*;

/// Appends one newc entry, as GNU cpio writes it.
fn push(archive: &mut Vec<u8>, name: &str, mode: u32, inode: u32, links: u32, content: &[u8]) {
    archive.extend(
        format!(
            "070701{inode:08x}{mode:08X}{:08x}{:08x}{links:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
            1000,
            1001,
            1_700_000_000u32,
            content.len(),
            8,
            1,
            5,
            6,
            name.len() + 1,
            0
        )
        .bytes(),
    );
    archive.extend(name.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

fn end(archive: &mut Vec<u8>) {
    push(archive, "TRAILER!!!", 0, 0, 1, b"");
}

fn entries(archive: &[u8]) -> Vec<Entry<'_>> {
    Reader::new(archive)
        .filter_map(|item| match item.expect("a good archive") {
            Item::Entry(entry) => Some(entry),
            Item::End => None,
        })
        .collect()
}

#[test]
fn every_field_is_read() {
    let mut archive = Vec::new();
    push(&mut archive, "etc/motd", 0o100_644, 7, 2, b"hello");
    end(&mut archive);
    assert_eq!(
        entries(&archive),
        [Entry {
            inode: 7,
            mode: 0o100_644,
            uid: 1000,
            gid: 1001,
            links: 2,
            modified: 1_700_000_000,
            device: (8, 1),
            node: (5, 6),
            name: b"etc/motd",
            content: b"hello",
        }]
    );
}

#[test]
fn chained_archives_are_all_read() {
    let mut archive = Vec::new();
    push(&mut archive, "a", 0o100_644, 1, 1, b"1");
    end(&mut archive);
    archive.resize(archive.len().next_multiple_of(512), 0);
    push(&mut archive, "b", 0o100_644, 1, 1, b"22");
    end(&mut archive);
    archive.extend([0; 7]);
    let names: Vec<_> = entries(&archive).iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b"a", b"b"]);
    let ends = Reader::new(&archive).filter(|item| matches!(item, Ok(Item::End))).count();
    assert_eq!(ends, 2);
}

#[test]
fn an_archive_without_trailer_is_read_to_its_end() {
    let mut archive = Vec::new();
    push(&mut archive, "abc", 0o100_644, 1, 1, b"12345");
    archive.truncate(archive.len() - 3);
    assert_eq!(entries(&archive)[0].content, b"12345");
}

#[test]
fn nothing_but_padding_is_an_empty_archive() {
    assert_eq!(Reader::new(&[]).count(), 0);
    assert_eq!(Reader::new(&[0; 1024]).count(), 0);
}

#[test]
fn damage_is_named_and_ends_the_walk() {
    let mut good = Vec::new();
    push(&mut good, "a", 0o100_644, 1, 1, b"content");
    let fault = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        let error = reader.next().expect("an item").expect_err("a fault");
        assert_eq!(reader.next(), None);
        assert_eq!(error.offset, 0);
        error.fault
    };
    let change = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(fault(&change(5, b'7')), Fault::Magic);
    assert_eq!(fault(&change(10, b'x')), Fault::Field);
    assert_eq!(fault(&change(111, b'x')), Fault::Name);
    assert_eq!(fault(&change(101, b'0')), Fault::Name);
    assert_eq!(fault(&good[..20]), Fault::Truncated);
    assert_eq!(fault(&good[..112]), Fault::Truncated);
    assert_eq!(fault(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]), Fault::Compressed);
    // A sum of zero over "content" is wrong, and checked only under the second magic.
    assert_eq!(fault(&change(5, b'2')), Fault::Checksum);
}

#[test]
fn a_size_beyond_the_input_is_no_overflow() {
    let mut archive = Vec::new();
    push(&mut archive, "a", 0o100_644, 1, 1, b"");
    archive[6 + 6 * 8..6 + 7 * 8].copy_from_slice(b"ffffffff");
    assert!(
        matches!(Reader::new(&archive).next(), Some(Err(error)) if error.fault == Fault::Truncated)
    );
}

#[test]
fn names_stay_below_the_root() {
    let parts = |name: &'static [u8]| components(name).map(|parts| parts.collect::<Vec<_>>());
    assert_eq!(parts(b"./etc//passwd/"), Some(vec![&b"etc"[..], b"passwd"]));
    assert_eq!(parts(b"/"), Some(vec![]));
    assert_eq!(parts(b"."), Some(vec![]));
    assert_eq!(parts(b"a/../../b"), None);
    assert_eq!(parts(b"a\0b"), None);
    assert_eq!(parts(b"..a/b.."), Some(vec![&b"..a"[..], b"b.."]));
}

proptest! {
    #[test]
    fn what_is_written_is_read(files in proptest::collection::vec(("[a-z/]{1,40}", proptest::collection::vec(any::<u8>(), 0..200)), 0..20)) {
        let mut archive = Vec::new();
        for (index, (name, content)) in files.iter().enumerate() {
            push(&mut archive, name, 0o100_600, index as u32, 1, content);
        }
        end(&mut archive);
        let read: Vec<_> = entries(&archive).iter().map(|entry| (entry.name.to_vec(), entry.content.to_vec())).collect();
        let written: Vec<_> = files.iter().map(|(name, content)| (name.as_bytes().to_vec(), content.clone())).collect();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn damaged_archives_end_without_a_panic(
        content in proptest::collection::vec(any::<u8>(), 0..64),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut archive = Vec::new();
        push(&mut archive, "dir", 0o040_755, 1, 2, b"");
        push(&mut archive, "dir/file", 0o100_644, 2, 1, &content);
        end(&mut archive);
        push(&mut archive, "second", 0o100_644, 2, 1, &content);
        end(&mut archive);
        for (index, byte) in damage {
            let at = index.index(archive.len());
            archive[at] = byte;
        }
        archive.truncate(cut.index(archive.len() + 1));
        let items: Vec<_> = Reader::new(&archive).collect();
        let faults = items.iter().filter(|item| item.is_err()).count();
        prop_assert!(faults <= 1);
        prop_assert!(items.iter().rev().skip(1).all(|item| item.is_ok()));
    }

    #[test]
    fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Reader::new(&bytes).count();
    }
}
