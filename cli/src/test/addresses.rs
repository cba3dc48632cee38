//! When the addresses of programs are drawn: `./hayate run --aslr`.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};

const CHECKS: [(&str, Check); 4] = [
    ("drawn_at_each_start", at_each_start),
    ("drawn_once_per_boot", once_per_boot),
    ("never_drawn", never),
    ("linux_does_not_draw_once_per_boot", refused_for_linux),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("addresses", &CHECKS, options)
}

/// Shows the mappings of grep twice, and those of cat.
const SCRIPT: &str =
    "grep '' /proc/self/maps; echo; grep '' /proc/self/maps; echo; cat /proc/self/maps";

/// Where the parts of a program lie.
#[derive(PartialEq, Debug)]
struct Places {
    library: String,
    program: String,
    heap: String,
    stack: String,
}

impl Places {
    /// Finds them in the text of `/proc/PID/maps`.
    fn of(maps: &str) -> Option<Places> {
        let begin = |matches: &dyn Fn(&str) -> bool| {
            let line =
                maps.lines().find(|line| line.split_whitespace().nth(5).is_some_and(matches))?;
            line.split('-').next().map(String::from)
        };
        Some(Places {
            library: begin(&|name| name.contains("/libc.so"))?,
            program: begin(&|name| name.contains("/bin/"))?,
            heap: begin(&|name| name == "[heap]")?,
            stack: begin(&|name| name == "[stack]")?,
        })
    }
}

/// Returns the places of two starts of grep and of one of cat, in one machine.
fn seen(hayate: &Hayate, when: &str) -> Result<[Places; 3]> {
    let output = hayate.run(&["--aslr", when], &["/bin/sh", "-c", SCRIPT])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Option<Vec<Places>> = text.split("\n\n").map(Places::of).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    found
        .and_then(|found| <[Places; 3]>::try_from(found).ok())
        .with_context(|| format!("the guest printed {text} and said {said}"))
}

fn at_each_start(hayate: &Hayate) -> Result<()> {
    let [first, second, _] = seen(hayate, "start")?;
    let differ =
        first.library != second.library && first.heap != second.heap && first.stack != second.stack;
    ensure!(differ, "{first:?} and {second:?}: libraries, heaps and stacks should differ");
    Ok(())
}

fn once_per_boot(hayate: &Hayate) -> Result<()> {
    let [first, second, other] = seen(hayate, "boot")?;
    let same = first.library == second.library && first.program == second.program;
    ensure!(same, "{first:?} and {second:?}: programs and libraries should lie alike");
    ensure!(first.library == other.library, "{first:?} and {other:?}: one C library");
    ensure!(first.program != other.program, "{first:?} and {other:?}: two programs");
    let differ = first.heap != second.heap && first.stack != second.stack;
    ensure!(differ, "{first:?} and {second:?}: heaps and stacks should differ");
    let [later, ..] = seen(hayate, "boot")?;
    let drawn = first.library != later.library && first.program != later.program;
    ensure!(drawn, "{first:?} and {later:?}: another boot should draw other places");
    Ok(())
}

fn never(hayate: &Hayate) -> Result<()> {
    let [first, second, _] = seen(hayate, "off")?;
    ensure!(first == second, "{first:?} and {second:?} should be the same");
    // Where Linux puts it: ELF_ET_DYN_BASE, arch/x86/include/asm/elf.h.
    ensure!(first.program.starts_with("55555555"), "the program lies at {}", first.program);
    Ok(())
}

fn refused_for_linux(hayate: &Hayate) -> Result<()> {
    let output = hayate.run(&["--linux", "--aslr", "boot"], &["true"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "{}: {said}", output.status);
    ensure!(said.contains("--aslr start"), "it says {said:?}");
    Ok(())
}
