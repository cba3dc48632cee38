//! Conversion and back, refusals, and mutations of both kinds of file.
//!
//! `FUZZ_ROUNDS` sets how many mutations are tried and `FUZZ_SEED` the first one; a failure prints
//! both.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayate_fuzzing::{Random, rounds, seed};
use hayate_off2f::{
    Converted, Fault, Header, Identity, LARGE_PAGES, Options, PAGE, Refusal, START, StorePlace,
    checksum, convert,
};

/// A segment of a made-up executable.
#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    size: u64,
}

const R: u32 = 4;
const RX: u32 = 5;
const RW: u32 = 6;

fn load(flags: u32, offset: u64, address: u64, size: u64) -> Segment {
    Segment { kind: 1, flags, offset, address, size }
}

/// An ELF file of `size` bytes of noise with these segments.
fn elf(kind: u16, size: usize, segments: &[Segment]) -> Vec<u8> {
    let mut random = Random::new(size as u64);
    let mut file: Vec<u8> =
        (0..size.div_ceil(8)).flat_map(|_| random.word().to_le_bytes()).collect();
    file.truncate(size);
    file[..64].fill(0);
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&kind.to_le_bytes());
    file[18..20].copy_from_slice(&62u16.to_le_bytes());
    file[32..40].copy_from_slice(&64u64.to_le_bytes());
    file[54..56].copy_from_slice(&56u16.to_le_bytes());
    file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for (index, segment) in segments.iter().enumerate() {
        let at = 64 + index * 56;
        file[at..at + 4].copy_from_slice(&segment.kind.to_le_bytes());
        file[at + 4..at + 8].copy_from_slice(&segment.flags.to_le_bytes());
        let words =
            [segment.offset, segment.address, segment.address, segment.size, segment.size, 4096];
        for (word, at) in words.iter().zip((at + 8..).step_by(8)) {
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    file
}

/// Returns a program laid out like those of current linkers: headers, text, constants, data.
fn modern() -> Vec<u8> {
    elf(
        3,
        0x9123,
        &[
            load(R, 0, 0, 0x800),
            load(RX, 0x1000, 0x1000, 0x2345),
            load(R, 0x4000, 0x4000, 0x1800),
            load(RW, 0x5de0, 0x6de0, 0x300),
        ],
    )
}

/// Returns a program laid out like those of older linkers: headers in the text, the text's last
/// page shared with data.
fn old() -> Vec<u8> {
    elf(2, 0x5000, &[load(RX, 0, 0x40_0000, 0x2345), load(RW, 0x2345, 0x60_2345, 0x1000)])
}

fn check(original: &[u8], options: Options) -> Converted {
    let converted = convert(original, options).unwrap();
    let header = Header::parse(&converted.file).unwrap();
    assert_eq!(header, converted.header);
    let start = Header::parse_start(&converted.file[..START]).unwrap();
    assert_eq!(start, Header { build_id: Vec::new(), headers: Vec::new(), ..header.clone() });
    assert_eq!(converted.file.len(), header.file_pages() as usize * PAGE);
    assert_eq!(converted.text.len(), header.text_pages as usize * PAGE);
    assert_eq!(header.restore(&converted.file, Some(&converted.text)).unwrap(), original);
    converted
}

#[test]
fn there_and_back_is_the_same() {
    for original in [modern(), old()] {
        let plain = check(&original, Options::default());
        assert_eq!(plain.header.restore(&plain.file, None), Err(Fault::OtherText));
        let keeping = check(&original, Options { keep_text: true });
        assert_eq!(keeping.header.restore(&keeping.file, None).unwrap(), original);
    }
}

#[test]
fn programs_of_this_machine_come_back() {
    let own = std::env::current_exe().unwrap();
    let mut seen = 0;
    let candidates = ["/bin/sh", "/bin/bash", "/lib64/ld-linux-x86-64.so.2"];
    let libraries = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6"];
    for path in candidates.iter().chain(&libraries).map(std::path::Path::new).chain([&*own]) {
        let Ok(original) = std::fs::read(path) else { continue };
        check(&original, Options::default());
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn text_and_constants_leave_and_headers_and_data_stay() {
    let converted = check(&modern(), Options::default());
    let header = &converted.header;
    // Pages 1 to 3 are text, 4 and 5 constants (5 holds the first data, too).
    assert_eq!(header.text_pages, 5);
    assert_eq!(header.runs.len(), 3);
    assert_eq!(header.runs[1].first, 1);
    assert!(header.runs[1].text && !header.runs[0].text && !header.runs[2].text);
    assert!(!header.large);
    // Written data outside of the text's pages is in the header file.
    let old = check(&old(), Options::default());
    assert_eq!(old.header.text_pages, 3);
}

#[test]
fn a_large_text_is_placed_for_large_pages() {
    let size = 0x40_0000;
    let original = elf(
        2,
        size + 0x2000,
        &[load(R, 0, 0x40_0000, 0x400), load(RX, 0x1000, 0x40_1000, size as u64)],
    );
    let converted = check(&original, Options::default());
    assert!(converted.header.large);
    assert_eq!(converted.header.phase, 1);
    assert!(converted.header.text_pages >= LARGE_PAGES);
}

#[test]
fn what_cannot_be_converted_is_refused_with_the_reason() {
    let refused = |file: &[u8]| convert(file, Options::default()).map(|_| ()).unwrap_err();
    let converted = convert(&modern(), Options::default()).unwrap();
    assert_eq!(refused(&converted.file), Refusal::AlreadyConverted);
    assert_eq!(refused(b"#!/bin/sh\n"), Refusal::NotElf);
    assert_eq!(refused(b""), Refusal::NotElf);
    let mut other = modern();
    other[18] = 183;
    assert_eq!(refused(&other), Refusal::OtherArchitecture(183));
    let mut object = modern();
    object[16] = 1;
    assert_eq!(refused(&object), Refusal::NotExecutable(1));
    let writable = elf(2, 0x3000, &[load(7, 0x1000, 0x1000, 0x1000)]);
    assert_eq!(refused(&writable), Refusal::WritableText);
    let unknown = Segment { kind: 0x6fff_fffa, ..load(R, 0, 0, 16) };
    let unknown = elf(2, 0x3000, &[load(RX, 0x1000, 0x1000, 0x1000), unknown]);
    assert_eq!(refused(&unknown), Refusal::UnknownSegment(0x6fff_fffa));
    assert_eq!(refused(&elf(2, 0x3000, &[load(R, 0, 0, 0x1000)])), Refusal::NoText);
    assert_eq!(refused(&elf(2, 0x3000, &[load(RX, 0x1000, 0x1000, 0x9000)])), Refusal::Truncated);
    assert_eq!(refused(&elf(2, 0x3000, &[load(RX, 0x1000, 0x1800, 0x10)])), Refusal::Misaligned);
    // DT_TEXTREL in the dynamic section.
    let dynamic = Segment { kind: 2, ..load(RW, 0x2000, 0x2000, 32) };
    let mut relocated =
        elf(3, 0x3000, &[load(RX, 0x1000, 0x1000, 0x1000), load(RW, 0x2000, 0x2000, 32), dynamic]);
    relocated[0x2000..0x2020].fill(0);
    relocated[0x2000] = 22;
    assert_eq!(refused(&relocated), Refusal::WritableText);
}

#[test]
fn what_was_changed_is_noticed() {
    let converted = convert(&modern(), Options { keep_text: true }).unwrap();
    let header = &converted.header;
    let mut file = converted.file.clone();
    file[200] ^= 1;
    assert_eq!(Header::parse(&file), Err(Fault::Checksum));
    assert_eq!(Header::parse(&converted.file[..100]), Err(Fault::Truncated));
    for at in (0..PAGE).filter(|at| !(8..12).contains(at)) {
        let mut file = converted.file.clone();
        file[at] ^= 1;
        let found = if at < 8 { Fault::NotConverted } else { Fault::Checksum };
        assert_eq!(Header::parse(&file), Err(found), "byte {at}");
        let start = Header::parse_start(&file[..START]);
        assert_eq!(start.is_err(), at < START, "byte {at}");
    }
    let mut text = converted.text.clone();
    text[5000] ^= 1;
    assert_eq!(header.restore(&converted.file, Some(&text)), Err(Fault::OtherText));
    let mut file = converted.file.clone();
    file[PAGE + 3000] ^= 1;
    assert_eq!(header.restore(&file, Some(&converted.text)), Err(Fault::OtherOriginal));
    let short = &converted.file[..PAGE];
    assert_eq!(header.restore(short, Some(&converted.text)), Err(Fault::Truncated));
}

#[test]
fn a_place_is_told() {
    let mut converted = convert(&modern(), Options::default()).unwrap();
    let place = StorePlace { store: *b"0123456789abcdef", page: 77 };
    converted.set_place(place);
    assert_eq!(Header::parse(&converted.file).unwrap().place, Some(place));
}

#[test]
fn identities_are_written_and_read() {
    let identity = Identity::of(b"text");
    assert_eq!(identity.to_string().parse(), Ok(identity));
    assert_eq!(format!("{identity:.12}"), identity.to_string()[..12]);
    assert!("12".parse::<Identity>().is_err());
    assert!("zz".repeat(32).parse::<Identity>().is_err());
}

const INTERESTING: [u64; 9] = [0, 1, 0x7f, 0xfff, 0x1000, 0xffff, 0x7fff_ffff, 1 << 63, u64::MAX];

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, often: usize) {
    for _ in 0..=random.below(5) {
        let limit = if random.below(4) == 0 { bytes.len() } else { bytes.len().min(often) };
        let at = random.below(limit);
        match random.below(4) {
            0 => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << random.below(8)),
            1 => {
                let value = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)];
                for (to, from) in bytes.iter_mut().skip(at & !(width - 1)).zip(&value[..width]) {
                    *to = *from;
                }
            }
            2 if random.below(8) == 0 => bytes.truncate(at),
            2 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = random.word() as u8),
            _ => {
                let from = random.below(bytes.len());
                let piece: Vec<u8> = bytes.iter().skip(from).take(56).copied().collect();
                for (to, from) in bytes.iter_mut().skip(at).zip(piece) {
                    *to = from;
                }
            }
        }
    }
}

/// Corrects the checksums, so that the checks behind them are tested as well.
fn seal(file: &mut [u8]) {
    if file.len() >= PAGE {
        let sum = checksum(&file[START..PAGE]);
        file[208..216].copy_from_slice(&sum.to_le_bytes());
        file[16..24].fill(0);
        let sum = checksum(&file[..START]);
        file[16..24].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn mutated_files_are_survived() {
    let rounds = rounds(20_000);
    let seed = seed();
    let mut random = Random::new(seed);
    let originals = [modern(), old()];
    let headers: Vec<_> = originals
        .iter()
        .map(|original| convert(original, Options { keep_text: true }).unwrap())
        .collect();
    let (mut parsed, mut split) = (0, 0);
    for round in 0..rounds {
        let case = random.below(originals.len());
        let mut original = originals[case].clone();
        mutate(&mut random, &mut original, 64 + 56 * 4);
        let mut file = headers[case].file.clone();
        mutate(&mut random, &mut file, 1024);
        seal(&mut file);
        let survived = catch_unwind(AssertUnwindSafe(|| {
            let split = convert(&original, Options::default()).is_ok_and(|converted| {
                let header = Header::parse(&converted.file).unwrap();
                let again = header.restore(&converted.file, Some(&converted.text)).unwrap();
                assert_eq!(again, original);
                true
            });
            let parsed = Header::parse(&file).is_ok_and(|header| {
                let _ = header.restore(&file, Some(&headers[case].text));
                let _ = header.restore(&file, None);
                assert_eq!(Header::parse(&header.encode()).as_ref(), Ok(&header));
                true
            });
            (split, parsed)
        }));
        match survived {
            Ok(done) => {
                split += u64::from(done.0);
                parsed += u64::from(done.1);
            }
            Err(_) => panic!("FUZZ_SEED={seed}, round {round}"),
        }
    }
    assert!(split > rounds / 20, "only {split} mutated executables were converted");
    assert!(parsed > rounds / 20, "only {parsed} mutated headers were read");
}
