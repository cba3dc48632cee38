//! Heads that are written and read again, and heads that somebody has damaged.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_template_file::{
    Action, Facts, Fault, Files, Head, Known, NO_FILE, PAGE, Region, State, Word, sizes,
};
use proptest::prelude::*;
use zerocopy::little_endian::{I64, U32, U64};

const END: u64 = 1 << 47;

/// What a head is made of.
#[derive(Clone, Debug)]
struct Parts {
    texts: Vec<Vec<u8>>,
    groups: Vec<U32>,
    actions: Vec<Action>,
    regions: Vec<Region>,
    pages: Vec<Word>,
    paths: Vec<(Vec<u8>, u32, u64)>,
    facts: Facts,
}

fn with_head<R>(parts: &Parts, look: impl FnOnce(Head<'_>) -> R) -> R {
    let mut files = Files::default();
    for (path, uses, size) in &parts.paths {
        let state = State {
            size: U64::new(*size),
            modified: I64::new(-1),
            nanoseconds: U32::new(7),
            digest: [*uses as u8; 32],
        };
        files.add(path, *uses, state).unwrap();
    }
    let text = |number: usize| &parts.texts[number][..];
    look(Head {
        facts: parts.facts,
        name: text(0),
        comm: text(1),
        fpu: text(2),
        groups: &parts.groups,
        actions: &parts.actions,
        rules: text(3),
        files: text(4),
        environment: text(5),
        bound: text(6),
        regions: &parts.regions,
        pages: &parts.pages,
        known: &files.known,
        paths: &files.paths,
    })
}

fn word(number: u64) -> Word {
    Word::new(number)
}

/// Regions in order: a gap, pages, and which of their pages are there, each.
fn regions(shapes: &[(u64, u64, u64)], files: usize) -> (Vec<Region>, Vec<Word>) {
    let (mut regions, mut pages) = (Vec::new(), Vec::new());
    let mut at = 16 * PAGE as u64;
    for (number, &(gap, count, present)) in shapes.iter().enumerate() {
        let start = at + gap * PAGE as u64;
        at = start + count * PAGE as u64;
        let file = if number < files { number as u32 } else { NO_FILE };
        let (protection, flags) = (U32::new(3), U32::new(number as u32));
        let (offset, file) = (word(gap * PAGE as u64), U32::new(file));
        regions.push(Region { start: word(start), end: word(at), offset, protection, flags, file });
        let there = (0..count).filter(|page| present >> (page % 64) & 1 != 0);
        pages.extend(there.map(|page| word(start + page * PAGE as u64)));
    }
    (regions, pages)
}

fn parts() -> impl Strategy<Value = Parts> {
    let text = proptest::collection::vec(any::<u8>(), 0..200);
    let texts = proptest::collection::vec(text.clone(), 7..8);
    let shapes = proptest::collection::vec((0..4u64, 1..80u64, any::<u64>()), 0..20);
    let paths = proptest::collection::vec((text, 0..4u32, any::<u64>()), 0..9);
    let numbers = proptest::collection::vec(any::<u64>(), 60);
    (texts, shapes, paths, numbers).prop_map(|(texts, shapes, paths, numbers)| {
        let (regions, pages) = regions(&shapes, paths.len());
        let mut facts = Facts { made: word(numbers[0]), ..Facts::default() };
        facts.registers.iter_mut().zip(&numbers[1..]).for_each(|(to, from)| *to = word(*from));
        let actions = numbers[30..34]
            .iter()
            .map(|&number| Action { signal: U32::new(number as u32), words: [word(number); 4] });
        let groups = numbers[40..44].iter().map(|&number| U32::new(number as u32)).collect();
        Parts { texts, groups, actions: actions.collect(), regions, pages, paths, facts }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(parts in parts()) {
        with_head(&parts, |head| {
            let bytes = head.to_bytes().unwrap();
            let (pages, memory) = sizes(&bytes).unwrap();
            assert_eq!(bytes.len(), pages as usize * PAGE);
            assert_eq!(memory as usize, parts.pages.len());
            let read = Head::read(&bytes, END).unwrap();
            assert_eq!(read, head);
            for (known, (path, uses, size)) in read.known.iter().zip(&parts.paths) {
                assert_eq!(read.path(known), &path[..]);
                assert_eq!((known.uses.get(), known.state.size.get()), (*uses, *size));
            }
        });
    }

    #[test]
    fn a_changed_bit_is_seen(parts in parts(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        with_head(&parts, |head| {
            let mut bytes = head.to_bytes().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            let is_seen = Head::read(&bytes, END).is_err();
            prop_assert!(is_seen, "byte {}", at);
            Ok(())
        })?;
    }
}

fn some() -> Parts {
    let (regions, pages) = regions(&[(1, 3, 7), (0, 2, 2), (5, 9, 0)], 1);
    let texts = ["py", "python3", "fpu", "script\n", "/a\n/b\n", "LANG=C\0", "/usr/bin/python3\0"];
    Parts {
        texts: texts.map(|text| text.as_bytes().to_vec()).to_vec(),
        groups: vec![U32::new(4)],
        actions: vec![Action::default()],
        regions,
        pages,
        paths: vec![(b"/usr/bin/python3".to_vec(), Known::PROGRAM, 9)],
        facts: Facts::default(),
    }
}

/// Returns how the head of `parts` is read.
fn read(parts: &Parts, end: u64) -> Result<(), Fault> {
    with_head(parts, |head| Head::read(&head.to_bytes().unwrap(), end).map(drop))
}

#[test]
fn memory_out_of_order_is_refused() {
    assert_eq!(read(&some(), END), Ok(()));
    let changes: [fn(&mut Parts); 9] = [
        |parts| parts.regions.swap(0, 1),
        |parts| parts.regions[1].start = parts.regions[0].start,
        |parts| parts.regions[2].end = word(parts.regions[2].end.get() + 1),
        |parts| parts.regions[2].end = parts.regions[2].start,
        |parts| parts.regions[0].file = U32::new(1),
        |parts| parts.pages.swap(0, 1),
        |parts| parts.pages[0] = parts.pages[1],
        |parts| parts.pages.push(word(END - PAGE as u64)),
        |parts| parts.regions[0].offset = word(12),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut parts = some();
        change(&mut parts);
        assert_eq!(read(&parts, END), Err(Fault::Damaged), "{number}");
    }
    let end = some().regions[2].end.get();
    assert_eq!(read(&some(), end), Ok(()));
    assert_eq!(read(&some(), end - PAGE as u64), Err(Fault::Damaged));
}

#[test]
fn what_is_no_head_is_told() {
    assert_eq!(sizes(b"short"), Err(Fault::NoHead));
    assert_eq!(sizes(&[0; PAGE]), Err(Fault::NoHead));
    assert_eq!(Head::read(&[0; PAGE], END), Err(Fault::NoHead));
    let bytes = with_head(&some(), |head| head.to_bytes().unwrap());
    assert_eq!(Head::read(&bytes[..PAGE - 1], END), Err(Fault::Damaged));
    let mut parts = some();
    parts.texts[4] = vec![b'x'; 1024 * PAGE];
    assert_eq!(with_head(&parts, |head| head.to_bytes()), Err(Fault::TooLarge));
}

/// Heads with changed bytes, whose checksum was made to match: reading ends, whatever is in them,
/// and what is read keeps its promises.
#[test]
fn damaged_heads_are_read_or_refused() {
    let whole = with_head(&some(), |head| head.to_bytes().unwrap());
    for round in 0..rounds(20_000) {
        let mut random = Random::new(seed() + round);
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(1200);
            bytes[at] = random.word() as u8;
        }
        let sum = hayate_off2f::checksum(&bytes[..8])
            ^ hayate_off2f::checksum(&bytes[16..]).rotate_left(1);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        let Ok(head) = Head::read(&bytes, END) else { continue };
        for known in head.known {
            head.path(known);
        }
        let holds = |page: &Word| {
            let regions = head.regions.iter();
            let inside = |region: &&Region| (region.start..region.end).contains(page);
            regions.filter(inside).count() == 1
        };
        assert!(head.pages.iter().all(holds), "seed {}", seed() + round);
        assert!(head.regions.iter().all(|region| region.end.get() <= END));
    }
}
