//! Recognition and planning, and that nothing panics.

use hayate_abi::Errno;
use hayate_program_image::{HEAD, Header, Image, PAGE, Plan, Position, Script, flags};
use proptest::prelude::*;

fn script(text: &[u8]) -> Result<Script<'_>, Errno> {
    Script::parse(text)
}

fn parts(text: &str) -> (String, Option<String>) {
    let script = script(text.as_bytes()).unwrap();
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (string(script.interpreter), script.argument.map(string))
}

#[test]
fn scripts_name_an_interpreter_and_at_most_one_argument() {
    let cases = [
        ("#!/bin/sh\n", "/bin/sh", None),
        ("#!/bin/sh", "/bin/sh", None),
        ("#! \t/bin/sh  \n", "/bin/sh", None),
        ("#!/usr/bin/env python3\nprint()", "/usr/bin/env", Some("python3")),
        ("#!/usr/bin/awk -f  -v  x \n", "/usr/bin/awk", Some("-f  -v  x")),
        ("#!a\tb\0c\n", "a", Some("b")),
    ];
    for (text, interpreter, argument) in cases {
        assert_eq!(
            parts(text),
            (interpreter.to_string(), argument.map(str::to_string)),
            "{text:?}"
        );
    }
}

#[test]
fn a_script_without_a_whole_path_is_refused() {
    for text in ["#!", "#!\n", "#!   \n/bin/sh\n", "#!\0/bin/sh\n"] {
        assert_eq!(script(text.as_bytes()), Err(Errno::ENOEXEC), "{text:?}");
    }
    let long = format!("#!/{}", "x".repeat(2 * HEAD));
    assert_eq!(script(long.as_bytes()), Err(Errno::ENOEXEC));
    let cut = format!("#!/bin/sh {}", "y".repeat(2 * HEAD));
    assert_eq!(script(cut.as_bytes()).unwrap().argument.unwrap().len(), HEAD - 10);
}

/// Builds an ELF head: file header and program headers (type, flags, offset, vaddr, filesz,
/// memsz, align) behind it.
fn elf(kind: u16, entries: &[[u64; 7]]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(62u16.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(0x40_1000u64.to_le_bytes());
    bytes.extend(64u64.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    for half in [64u16, 56, entries.len() as u16, 0, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    for [p_type, p_flags, offset, vaddr, filesz, memsz, align] in entries {
        bytes.extend((*p_type as u32).to_le_bytes());
        bytes.extend((*p_flags as u32).to_le_bytes());
        for word in [*offset, *vaddr, *vaddr, *filesz, *memsz, *align] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

fn plan(bytes: &[u8]) -> Result<Plan, Errno> {
    let header = Header::parse(bytes)?;
    let table = header.table();
    let size = bytes.len() as u64;
    Plan::new(&header, &bytes[table.start.min(size) as usize..table.end.min(size) as usize])
}

const TEXT: [u64; 7] = [1, 5, 0, 0x40_0000, 0x1800, 0x1800, 0x1000];
const DATA: [u64; 7] = [1, 6, 0x1800, 0x40_2800, 0x100, 0x2000, 0x1000];

#[test]
fn a_static_program_is_planned() {
    let plan = plan(&elf(2, &[TEXT, DATA, [0x6474_e551, 6, 0, 0, 0, 0, 16]])).unwrap();
    assert_eq!(plan.position, Position::Fixed);
    assert_eq!(plan.entry, 0x40_1000);
    assert_eq!(plan.span, 0x40_0000..0x40_5000);
    assert_eq!(plan.headers, 0x40_0040);
    assert_eq!(plan.end(), 0x40_4800);
    assert_eq!(plan.segments.len(), 2);
    assert_eq!(plan.segments[1].flags, flags::R | flags::W);
    assert_eq!(plan.segments[1].file_end(), 0x40_2900);
    assert!(!plan.executable_stack);
    assert_eq!(plan.interpreter, None);
}

#[test]
fn a_dynamic_program_names_its_interpreter() {
    let interp = [3, 4, 0x200, 0x200, 28, 28, 1];
    let text = [1, 5, 0, 0, 0x1000, 0x1000, 0x20_0000];
    let plan = plan(&elf(3, &[interp, text])).unwrap();
    assert_eq!(plan.position, Position::Independent);
    assert_eq!(plan.interpreter, Some(0x200..0x21c));
    assert_eq!(plan.alignment, 0x20_0000);
    assert!(plan.executable_stack, "a file that does not say gets an executable stack");
}

#[test]
fn bad_headers_are_refused() {
    let good = elf(2, &[TEXT]);
    assert!(plan(&good).is_ok());
    // Byte, value: class, byte order, type, machine, entry size, count.
    for (at, value) in [(4, 1), (5, 2), (16, 1), (18, 3), (54, 55), (56, 0)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(plan(&bad), Err(Errno::ENOEXEC), "byte {at} = {value}");
    }
    assert_eq!(plan(&good[..63]), Err(Errno::ENOEXEC));
    assert_eq!(plan(&good[..64 + 55]), Err(Errno::ENOEXEC));
    assert_eq!(Image::recognise(b""), Err(Errno::ENOEXEC));
    assert_eq!(Image::recognise(b"echo hi\n"), Err(Errno::ENOEXEC));
}

#[test]
fn bad_segments_are_refused() {
    let with = |at: usize, value: u64| {
        let mut segment = TEXT;
        segment[at] = value;
        plan(&elf(2, &[segment]))
    };
    assert_eq!(with(2, 0x10), Err(Errno::EINVAL), "offset and address not congruent");
    assert_eq!(with(3, 0x7fff_ffff_f000), Err(Errno::EINVAL), "above the user half");
    assert_eq!(with(3, u64::MAX - 0xfff), Err(Errno::EINVAL), "address overflows");
    assert_eq!(with(4, 0x1801), Err(Errno::EINVAL), "more in the file than in memory");
    assert_eq!(with(5, u64::MAX), Err(Errno::EINVAL), "size overflows");
    assert_eq!(with(0, 7), Err(Errno::EINVAL), "nothing to load");
    assert_eq!(plan(&elf(2, &[TEXT, [3, 4, 0, 0, 1, 1, 1]])), Err(Errno::ENOEXEC));
    assert_eq!(plan(&elf(2, &[TEXT, [3, 4, 0, 0, 4097, 4097, 1]])), Err(Errno::ENOEXEC));
    assert_eq!(plan(&elf(2, &[TEXT, [3, 4, u64::MAX, 0, 20, 20, 1]])), Err(Errno::ENOEXEC));
}

fn check(bytes: &[u8]) {
    let Ok(image) = Image::recognise(bytes) else { return };
    let Image::Elf(header) = image else { return };
    let table = header.table();
    let size = bytes.len() as u64;
    let slice = &bytes[table.start.min(size) as usize..table.end.min(size) as usize];
    let Ok(plan) = Plan::new(&header, slice) else { return };
    assert!(!plan.segments.is_empty());
    assert!(plan.alignment.is_power_of_two() && plan.alignment >= PAGE);
    for segment in &plan.segments {
        assert!(segment.file_size <= segment.memory_size);
        assert!(plan.span.start <= segment.address && segment.end() <= plan.span.end);
        assert_eq!(segment.address % PAGE, segment.file_offset % PAGE);
    }
    assert!(plan.span.end <= 0x7fff_ffff_f000);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
        let mut with_magic = b"\x7fELF\x02\x01".to_vec();
        with_magic.extend(&bytes);
        check(&with_magic);
        let mut text = b"#!".to_vec();
        text.extend(&bytes);
        if let Ok(script) = Script::parse(&text) {
            prop_assert!(!script.interpreter.is_empty());
            prop_assert!(!script.interpreter.contains(&0));
        }
    }

    #[test]
    fn mutated_programs_are_survived(
        mutations in prop::collection::vec((0usize..288, any::<u8>()), 1..12),
    ) {
        let mut bytes = elf(3, &[TEXT, DATA, [3, 4, 0x200, 0x200, 28, 28, 1], DATA]);
        for (at, value) in mutations {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        check(&bytes);
    }
}
