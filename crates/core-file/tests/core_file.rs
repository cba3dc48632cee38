//! Compares names with `core(5)` and fs/coredump.c, and headers and notes with their layouts.

use hayate_core_file::name::{CoreTarget, Facts, place};
use hayate_core_file::{image, notes};

const FACTS: Facts<'static> = Facts {
    process: 10,
    thread: 11,
    first_process: 20,
    first_thread: 21,
    user: 12,
    group: 13,
    dumpable: 1,
    signal: 6,
    time: 15,
    host: b"host",
    name: b"name",
    path: b"/bin/dir/program",
    limit: 16,
    processor: 3,
};

fn file(pattern: &str, uses_pid: bool, facts: &Facts<'_>) -> String {
    match place(pattern.as_bytes(), uses_pid, facts) {
        Ok(CoreTarget::File(name)) => String::from_utf8(name).unwrap(),
        other => panic!("{pattern}: {other:?}"),
    }
}

#[test]
fn letters_are_replaced() {
    let all = "%p %P %i %I %u %g %d %s %t %h %e %f %c %C %%";
    assert_eq!(file(all, false, &FACTS), "10 20 11 21 12 13 1 6 15 host name program 16 3 %");
    assert_eq!(file("x%E", false, &FACTS), "x!bin!dir!program");
    assert_eq!(file("a%", false, &FACTS), "a");
    assert_eq!(file("a%zb", false, &FACTS), "ab");
    assert_eq!(file("", false, &FACTS), "");
}

#[test]
fn the_number_is_appended_where_the_pattern_has_none() {
    assert_eq!(file("core", true, &FACTS), "core.10");
    assert_eq!(file("core%P", true, &FACTS), "core20.10");
    assert_eq!(file("core%p", true, &FACTS), "core10");
    assert_eq!(file("core", false, &FACTS), "core");
}

#[test]
fn what_a_program_chose_leads_nowhere() {
    for (name, shown) in [(".", "!"), ("..", "!."), ("...", "..."), ("", "!"), ("../x", "..!x")] {
        let facts = Facts { name: name.as_bytes(), ..FACTS };
        assert_eq!(file("d/%e", false, &facts), format!("d/{shown}"));
    }
    let facts = Facts { path: b"", ..FACTS };
    assert_eq!(file("%E", false, &facts), "name (path unknown)");
    assert_eq!(file("%f", false, &facts), "name (path unknown)");
}

#[test]
fn a_program_gets_words() {
    let facts = Facts { name: b"two words", ..FACTS };
    let got = place(b"|/bin/x  %e\t-p%p ", true, &facts).unwrap();
    let want = ["/bin/x", "two words", "-p10"].map(|word| word.as_bytes().to_vec());
    assert_eq!(got, CoreTarget::Program(want.to_vec()));
    assert_eq!(place(b"|", true, &facts).unwrap(), CoreTarget::Program(Vec::new()));
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn headers_have_their_fields_in_place() {
    let few = image::header(3, 77);
    assert_eq!((few[16], few[18], word(&few, 20)), (4, 62, 1));
    assert_eq!((long(&few, 32), long(&few, 40)), (64, 0));
    assert_eq!(&few[52..64], &[64, 0, 56, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let many = image::header(70_000, 77);
    assert_eq!(long(&many, 40), 77);
    assert_eq!(&many[52..64], &[64, 0, 56, 0, 255, 255, 64, 0, 1, 0, 0, 0]);
    let section = image::section_header(70_000);
    assert_eq!((long(&section, 32), word(&section, 44)), (1, 70_000));
    let memory = image::memory_header(1, 2, 3, 4, image::READ);
    assert_eq!((word(&memory, 0), word(&memory, 4)), (1, 4));
    assert_eq!([8, 16, 24, 32, 40, 48].map(|at| long(&memory, at)), [1, 2, 0, 3, 4, 4096]);
    let note = image::notes_header(5, 6);
    assert_eq!((word(&note, 0), long(&note, 8), long(&note, 32)), (4, 5, 6));
}

#[test]
fn notes_have_the_sizes_of_linux() {
    let mut list = Vec::new();
    notes::Status { signal: 6, registers: [9; 27], ..Default::default() }.put(&mut list).unwrap();
    // A header of 12 bytes, the owner's name in 8.
    assert_eq!((word(&list, 0), word(&list, 4), word(&list, 8)), (5, 336, notes::STATUS));
    assert_eq!((&list[12..17], list.len()), (&b"CORE\0"[..], 20 + 336));
    assert_eq!((word(&list, 20), word(&list, 32)), (6, 6));
    assert_eq!((long(&list, 20 + 112), long(&list, 20 + 328)), (9, 1));

    list.clear();
    let process = notes::Process { name: b"name", arguments: b"a\0b\0", ..Default::default() };
    process.put(&mut list).unwrap();
    assert_eq!((word(&list, 4), list.len()), (136, 20 + 136));
    assert_eq!(&list[60..65], b"name\0");
    assert_eq!(&list[76..81], b"a b \0");

    list.clear();
    let mut xsave = [7; 832];
    notes::extended(&mut list, &mut xsave, 5).unwrap();
    assert_eq!((word(&list, 4), word(&list, 8)), (512, notes::FLOATING_POINT));
    let second = 20 + 512;
    assert_eq!((word(&list, second), word(&list, second + 4)), (6, 832));
    assert_eq!(long(&list, second + 20 + 464), 5);

    list.clear();
    let mut files = notes::Files::default();
    files.add(4096, 8192, 4096, b"/x").unwrap();
    files.put(&mut list).unwrap();
    assert_eq!([20, 28, 36, 44, 52].map(|at| long(&list, at)), [1, 4096, 4096, 8192, 1]);
    assert_eq!(&list[60..63], b"/x\0");
    assert_eq!(list.len(), 64);
}
