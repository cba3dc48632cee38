//! Checks that `docs/compatibility.md` agrees with the kernel's table of system calls, which the
//! page is generated from. `UPDATE=1 cargo test -p hayate-abi --test compatibility` writes the page
//! anew.
//!
//! The table is one macro call, so the file that gives the kernel its dispatch table gives this
//! test its rows.

use std::fmt::Write;
use std::path::Path;

/// How complete a call is.
enum Support {
    Complete,
    Partial(&'static str),
    None(&'static str),
}

struct Row {
    number: u32,
    name: &'static str,
    support: Support,
}

macro_rules! support {
    ([none]) => {
        Support::None("")
    };
    ([none $note:literal]) => {
        Support::None($note)
    };
    ([complete $($path:tt)*]) => {
        Support::Complete
    };
    ([partial registers $($path:ident)::+ $note:literal]) => {
        Support::Partial($note)
    };
    ([partial $($path:ident)::+ $note:literal]) => {
        Support::Partial($note)
    };
}

macro_rules! syscalls {
    ($($family:literal {
        $($number:literal $name:ident ($($argument:ident : $kind:ident),*) $support:tt;)*
    })*) => {
        fn families() -> Vec<(&'static str, Vec<Row>)> {
            vec![$(($family, vec![$(Row {
                number: $number,
                name: stringify!($name),
                support: support!($support),
            }),*])),*]
        }
    };
}

include!("../../../kernel/src/syscall/table.rs");

const HEAD: &str = "\
# System calls

Hayate's interface is that of Linux 6.1 on x86-64. This page is generated from the kernel's own
table (`kernel/src/syscall/table.rs`), from which its dispatcher is made as well; a test fails when
the two differ. The missing part of a partial call answers an error, never an unearned success;
a call that is not there answers ENOSYS.

Numbers from 1000 on are Hayate's own calls, which Linux answers with ENOSYS;
[resources.md](resources.md) tells of process transformation.

Programs read the clocks and their processor's number by the functions of vdso(7) as well. Other
than in Linux the object lies in the kernel's half of the address space, at one address for all
programs of a boot. It cannot be moved or unmapped, and system calls do not read from it (EFAULT).

Core files are written into files alone: `kernel.core_pattern` takes every specifier of core(5), but
a pattern that begins with `|`, to pipe into a program, is refused with EINVAL.

";

/// The first number of Hayate's own calls.
const OWN: u32 = 1000;

fn page() -> String {
    let families = families();
    let rows = || families.iter().flat_map(|(_, rows)| rows);
    let complete = rows().filter(|row| matches!(row.support, Support::Complete)).count();
    let partial = rows().filter(|row| matches!(row.support, Support::Partial(_))).count();
    let none = rows().count() - complete - partial;
    let mut page = String::from(HEAD);
    writeln!(page, "{complete} calls are complete, {partial} partial, {none} not there.").unwrap();
    for (family, rows) in &families {
        writeln!(page, "\n## {family}\n\n| number | call | support |\n|--:|---|---|").unwrap();
        for row in rows {
            let (number, name) = (row.number, row.name);
            let page_of = match number {
                OWN.. => format!("`{name}`"),
                _ => format!("[{name}](https://man7.org/linux/man-pages/man2/{name}.2.html)"),
            };
            let support = match row.support {
                Support::Complete => "complete".to_owned(),
                Support::Partial(note) => format!("partial: {note}"),
                Support::None("") => "no".to_owned(),
                Support::None(note) => format!("no: {note}"),
            };
            writeln!(page, "| {number} | {page_of} | {support} |").unwrap();
        }
    }
    page
}

#[test]
fn the_page_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let wanted = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/compatibility.md is not what the table says; run\n    \
         UPDATE=1 cargo test -p hayate-abi --test compatibility"
    );
}

#[test]
fn no_number_stands_twice() {
    let mut numbers: Vec<u32> =
        families().iter().flat_map(|(_, rows)| rows.iter().map(|row| row.number)).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}
