//! fork and exec by the size of text, data and bss: the sweeps of the founding papers, in which one
//! part grows and the others stay at 20 KB of text, 4 KB of data and 4 KB of bss.

use super::processes::{K, M, USUAL, forking_program, program, reap};
use crate::experiment::Experiment;
use crate::programs::Sizes;
use crate::sampler::{Sampler, Skip};
use crate::sys::PAGE;
use crate::sys::process::{Program, Split};
use measure_data::units::size;
use std::ffi::{CStr, OsStr};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// Sizes of the growing part: those of the papers, and one more.
const SWEPT: [usize; 5] = [4 * K, 16 * K, 64 * K, 256 * K, M];
const BEYOND: usize = 16 * M;

/// A part of a program, and the estimated cost of one of its pages in an exec and in a fork.
struct Part {
    name: &'static str,
    sizes: fn(usize) -> Sizes,
    exec_per_page: f64,
    fork_per_page: f64,
}

const PARTS: [Part; 3] = [
    Part {
        name: "text",
        sizes: |bytes| Sizes { text: bytes, ..USUAL },
        // Its faults are a primitive.
        exec_per_page: 0.0,
        fork_per_page: 20.0,
    },
    Part {
        name: "data",
        sizes: |bytes| Sizes { data: bytes, ..USUAL },
        exec_per_page: 2500.0,
        fork_per_page: 400.0,
    },
    Part {
        name: "bss",
        sizes: |bytes| Sizes { bss: bytes, ..USUAL },
        exec_per_page: 2300.0,
        fork_per_page: 400.0,
    },
];

/// The experiments of this file.
pub fn experiments() -> Vec<Experiment> {
    let exec = PARTS.iter().flat_map(|part| {
        SWEPT.into_iter().chain([BEYOND]).map(move |bytes| exec_by_size(part, bytes))
    });
    let fork = PARTS.iter().flat_map(|part| SWEPT.map(|bytes| fork_by_size(part, bytes)));
    exec.chain(fork).collect()
}

fn short(bytes: usize) -> String {
    if bytes < M { format!("{}K", bytes / K) } else { format!("{}M", bytes / M) }
}

fn exec_by_size(part: &Part, bytes: usize) -> Experiment {
    let (name, sizes) = (part.name, (part.sizes)(bytes));
    let pages = (bytes / PAGE) as f64;
    let cleared = if name == "text" { 0.0 } else { bytes as f64 };
    Experiment::time(
        format!("cpu/process/exec-{name}/{}", short(bytes)),
        format!("vfork, exec, exit, wait with {} of {name}", size(bytes as f64)),
        move |s, m| {
            let path = program(s, sizes)?;
            let program = Program::new(&path, &[&path]);
            m.try_batch(1, || reap(program.start(Split::Vfork), "executing a program"))
        },
    )
    .method("as vfork-exec-static; text 20 KB, data 4 KB, bss 4 KB but for the part named; every page touched")
    .at(format!("exec by {name} size"), bytes as f64, "bytes")
    .rounds_at_most(if bytes >= M { 5 } else { 8 })
    .hardware(if name == "text" { 0.0 } else { pages }, "trap", "page faults")
    .software(if name == "text" { pages / 16.0 } else { 0.0 }, "file-fault", "page faults on cached text")
    .hardware(cleared, "copy-byte-memory", "pages cleared or copied")
    .software(135_000.0, "instruction", "as vfork-exec-static")
    .software(
        pages * part.exec_per_page,
        "instruction",
        "fault, page-table entry and teardown of each page",
    )
}

fn fork_by_size(part: &Part, bytes: usize) -> Experiment {
    let (name, sizes) = (part.name, (part.sizes)(bytes));
    let pages = (bytes / PAGE) as f64;
    Experiment::time(
        format!("cpu/process/fork-{name}/{}", short(bytes)),
        format!("fork, exit, wait of a program with {} of {name}", size(bytes as f64)),
        move |s, m| {
            let path = forking_program(s, sizes)?;
            fork_samples(m, &path)
        },
    )
    .method("a program of 20 KB text, 4 KB data, 4 KB bss but for the part named touches every page and forks; the child exits in its next instruction; wait4(2)")
    .at(format!("fork by {name} size"), bytes as f64, "bytes")
    .rounds_at_most(8)
    .hardware(3.0, "trap", "fork, exit, wait")
    .software(90_000.0, "instruction", "as fork-exit, of a smaller parent")
    .software(pages * part.fork_per_page, "instruction", "page-table entries and reference counts")
}

/// Starts the program and repeatedly asks it for a fork, which it times itself.
fn fork_samples(m: &mut Sampler, path: &CStr) -> Result<(), Skip> {
    if !m.clock().is_counter() {
        return Err(Skip("the program that forks can time only by the time-stamp counter".into()));
    }
    let program = OsStr::from_bytes(path.to_bytes());
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Skip::because("starting the program that forks"))?;
    let (ask, answer) = (child.stdin.take(), child.stdout.take());
    let (Some(mut ask), Some(mut answer)) = (ask, answer) else {
        return Err(Skip("no pipe to the program that forks".into()));
    };
    let result = m.collect(|| {
        let mut ticks = [0; 8];
        ask.write_all(&[1]).map_err(Skip::because("asking for a fork"))?;
        answer.read_exact(&mut ticks).map_err(Skip::because("fork in the program"))?;
        Ok(u64::from_le_bytes(ticks))
    });
    // The end of its input ends the program.
    drop(ask);
    let ended = child.wait().map_err(Skip::because("waiting for the program that forks"))?;
    result?;
    if ended.success() { Ok(()) } else { Err(Skip(format!("the program that forks: {ended}"))) }
}
