//! Creation of processes and threads. `sweeps` does the same by size, `totals` over a long run, and
//! `named` for programs that the user names.
//!
//! The child of the bare experiments exits in the next instruction, and the parent waits: there is
//! no C library in the path, so the numbers are the kernel's.

use super::syscalls::c_path;
use super::{named, sweeps, totals};
use crate::experiment::{Experiment, Setting};
use crate::programs::{Sizes, executable, forking_executable, sparse_executable};
use crate::sampler::{Sampler, Skip};
use crate::sys::PAGE;
use crate::sys::memory::{Mapping, Pages};
use crate::sys::process::{Program, Split, fork_exit, vfork_exit, wait_for};
use crate::sys::raw::checked;
use crate::sys::thread::create_and_join;
use measure_data::units::size;
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;

pub const K: usize = 1 << 10;
pub const M: usize = 1 << 20;
/// The program of the founding papers: 20 KB text, 4 KB data, 4 KB bss.
pub const USUAL: Sizes = Sizes { text: 20 * K, data: 4 * K, bss: 4 * K };

/// Waits for a child; any end but exit(0) becomes a reason to skip.
pub fn reap(pid: isize, what: &str) -> Result<(), Skip> {
    let pid = checked(pid).map_err(Skip::because(what))?;
    match wait_for(pid as i32) {
        0 => Ok(()),
        // The child's exit status when execve(2) fails.
        0x7f00 => Err(Skip(format!("{what}: it cannot be executed"))),
        status if status & 0x7f == 0 => {
            Err(Skip(format!("{what}: it ended with status {}", status >> 8 & 0xff)))
        }
        status => Err(Skip(format!("{what}: it was ended by signal {}", status & 0x7f))),
    }
}

/// The path of a generated program, written on first use.
pub fn program(setting: &Setting, sizes: Sizes) -> Result<CString, Skip> {
    generated(setting, "program", sizes, executable)
}

/// The path of a generated program that forks when asked.
pub fn forking_program(setting: &Setting, sizes: Sizes) -> Result<CString, Skip> {
    generated(setting, "forks", sizes, forking_executable)
}

fn generated(
    setting: &Setting,
    kind: &str,
    sizes: Sizes,
    content: impl Fn(Sizes) -> Vec<u8>,
) -> Result<CString, Skip> {
    let name = format!("{kind}-{}-{}-{}", sizes.text, sizes.data, sizes.bss);
    let path = setting.directory.join(name);
    if !path.exists() {
        // Under another name first: a run that is stopped in the middle leaves no partial program.
        let half = path.with_extension("half");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o755)
            .open(&half)
            .map_err(Skip::because("creating a program to execute"))?;
        file.write_all(&content(sizes)).map_err(Skip::because("writing a program"))?;
        drop(file);
        std::fs::rename(&half, &path).map_err(Skip::because("renaming a program"))?;
    }
    c_path(&path)
}

fn exec_samples(m: &mut Sampler, path: &CStr, arguments: &[&CStr], how: Split) -> Result<(), Skip> {
    let program = Program::new(path, arguments);
    let what = format!("executing {}", path.to_string_lossy());
    m.try_batch(1, || reap(program.start(how), &what))
}

/// A dynamically linked program of the system that does nothing.
pub fn dynamic_program() -> Result<&'static CStr, Skip> {
    for path in [c"/bin/true", c"/usr/bin/true"] {
        let mut head = Vec::new();
        let Ok(file) = std::fs::File::open(path.to_string_lossy().as_ref()) else { continue };
        if file.take(4096).read_to_end(&mut head).is_ok() && is_dynamic(&head) {
            return Ok(path);
        }
    }
    Err(Skip("no dynamically linked /bin/true or /usr/bin/true on this system".into()))
}

/// Returns a shell's command: start a program, in a process of its own.
pub fn shell_command(s: &Setting) -> Result<CString, Skip> {
    if !std::path::Path::new("/bin/sh").exists() {
        return Err(Skip("this system has no /bin/sh".into()));
    }
    // With a second command the shell cannot replace itself: it forks, as in scripts.
    let mut command = program(s, USUAL)?.into_bytes();
    command.extend(b"; :");
    CString::new(command).map_err(|_| Skip("zero byte in path".into()))
}

/// Returns a shell and its command, both of one busybox: links to it named `sh` and `true`, so that
/// the shell, which has a built-in `true`, must fork and execute.
pub fn busybox_command(s: &Setting) -> Result<(CString, CString), Skip> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .ok_or_else(|| Skip("this system has no /bin/busybox".into()))?;
    let link = |name: &str| {
        let path = s.directory.join(name);
        match std::os::unix::fs::symlink(busybox, &path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Skip::because("linking to busybox")(error))
            }
            _ => c_path(&path),
        }
    };
    let (shell, program) = (link("sh")?, link("true")?);
    let mut command = program.into_bytes();
    command.extend(b"; :");
    let command = CString::new(command).map_err(|_| Skip("zero byte in path".into()))?;
    Ok((shell, command))
}

/// Returns the path of a large program whose start touches few pages.
pub fn sparse_program(setting: &Setting) -> Result<CString, Skip> {
    let content = |sizes| sparse_executable(sizes, 400);
    generated(setting, "sparse", Sizes { text: 40 * M, ..USUAL }, content)
}

/// Returns the experiment for a large program whose start touches few pages.
fn exec_sparse() -> Experiment {
    Experiment::time(
        "cpu/process/exec-sparse",
        "vfork, exec, exit, wait with 40 MiB of text, 400 pages touched",
        |s, m| {
            let path = sparse_program(s)?;
            let program = Program::new(&path, &[&path]);
            m.try_batch(1, || reap(program.start(Split::Vfork), "executing a large program"))
        },
    )
    .method("as vfork-exec-static; 40 MiB of text, 400 pages of it read, evenly spread")
    .rounds_at_most(5)
    .software(135_000.0, "instruction", "as vfork-exec-static")
    .software(400.0, "file-fault", "page faults on cached text, far apart")
}

/// Whether the start of an ELF file has a program header for an interpreter.
fn is_dynamic(head: &[u8]) -> bool {
    let half = |at: usize| head.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let (Some(start), Some(count)) = (half(32), half(56)) else { return false };
    head.starts_with(b"\x7fELF\x02")
        && (0..usize::from(count)).any(|i| half(usize::from(start) + i * 56) == Some(3))
}

/// The experiments of this file.
pub fn experiments(setting: &Setting) -> Vec<Experiment> {
    let mut all = bare();
    all.extend(programs());
    all.extend(shells());
    all.push(exec_sparse());
    all.push(thread());
    for megabytes in [1, 4, 16, 64, 256] {
        let bytes = megabytes * M;
        if bytes as u64 <= setting.memory_limit {
            all.push(parent_size(bytes));
        }
    }
    totals::beside(&mut all);
    all.extend(sweeps::experiments());
    all.extend(named::experiments(setting));
    all
}

/// Processes that execute nothing.
fn bare() -> Vec<Experiment> {
    vec![
        Experiment::time("cpu/process/fork-exit", "fork, exit, wait", |_, m| {
            m.try_batch(1, || reap(fork_exit(), "fork"))
        })
        .method("fork(2), the child exits in its next instruction, wait4(2)")
        .hardware(3.0, "trap", "fork, exit, wait")
        .hardware(2.0 * PAGE as f64, "copy-byte", "two pages copied on write")
        .software(
            110_000.0,
            "instruction",
            "process record, address space, teardown, switches",
        ),
        Experiment::time("cpu/process/vfork-exit", "vfork, exit, wait", |_, m| {
            m.try_batch(1, || reap(vfork_exit(), "vfork"))
        })
        .method("vfork(2), the child exits in its next instruction, wait4(2)")
        .hardware(3.0, "trap", "vfork, exit, wait")
        .software(35_000.0, "instruction", "process record, two switches"),
    ]
}

/// Processes that execute a program.
fn programs() -> Vec<Experiment> {
    vec![
        exec("fork-exec-static", "fork, exec of a static program, exit, wait", Split::Fork)
            .software(215_000.0, "instruction", "fork, address space twice, faults, teardown"),
        exec("vfork-exec-static", "vfork, exec of a static program, exit, wait", Split::Vfork)
            .software(135_000.0, "instruction", "address space, faults, teardown"),
        Experiment::time(
            "cpu/process/posix-spawn",
            "posix_spawn of a static program, wait",
            |s, m| {
                let path = program(s, USUAL)?;
                let program = Program::new(&path, &[&path]);
                m.try_batch(1, || {
                    let pid = program.spawn().map_err(Skip::because("posix_spawn"))?;
                    reap(pid as isize, "posix_spawn")
                })
            },
        )
        .method("posix_spawn(3) of a program with 20 KB text, 4 KB data and bss, all touched")
        .hardware(12.0, "trap", "the library's signal calls, clone, exec, faults, wait")
        .software(145_000.0, "instruction", "as vfork and exec, and the library's work"),
        Experiment::time(
            "cpu/process/fork-exec-dynamic",
            "fork, exec of a dynamic program",
            |_, m| {
                let path = dynamic_program()?;
                exec_samples(m, path, &[path], Split::Fork)
            },
        )
        .method("fork(2), execve(2) of the system's dynamically linked /bin/true, wait4(2)")
        .hardware(120.0, "trap", "calls and page faults of the dynamic loader")
        .software(930_000.0, "instruction", "exec, loader, relocation, teardown"),
        Experiment::time(
            "cpu/process/vfork-exec-dynamic",
            "vfork, exec of a dynamic program",
            |_, m| {
                let path = dynamic_program()?;
                exec_samples(m, path, &[path], Split::Vfork)
            },
        )
        .method("vfork(2), execve(2) of the system's dynamically linked /bin/true, wait4(2)")
        .hardware(120.0, "trap", "calls and page faults of the dynamic loader")
        .software(850_000.0, "instruction", "exec, loader, relocation, teardown"),
    ]
}

/// Shells that start a program.
fn shells() -> Vec<Experiment> {
    vec![
        Experiment::time("cpu/process/sh-c", "a shell that starts a program", |s, m| {
            let command = shell_command(s)?;
            exec_samples(m, c"/bin/sh", &[c"sh", c"-c", &command], Split::Fork)
        })
        .method("fork(2), execve(2) of /bin/sh -c 'PROGRAM; :' with a static PROGRAM, wait4(2)")
        .hardware(200.0, "trap", "calls and page faults of shell, loader and program")
        .software(1_500_000.0, "instruction", "two execs, a fork, the shell"),
        Experiment::time("cpu/process/sh-c-busybox", "busybox sh that starts busybox true", |s, m| {
            let (shell, command) = busybox_command(s)?;
            exec_samples(m, &shell, &[c"sh", c"-c", &command], Split::Fork)
        })
        .method("fork(2), execve(2) of busybox as sh -c 'TRUE; :', TRUE being a link to the same busybox, wait4(2)")
        .hardware(200.0, "trap", "calls and page faults of shell and program")
        .software(1_500_000.0, "instruction", "two execs, a fork, the shell"),
    ]
}

fn thread() -> Experiment {
    Experiment::time("cpu/thread/create", "a thread created and joined", |_, m| {
        m.try_batch(1, || create_and_join().map_err(Skip::because("pthread_create")))
    })
    .method("pthread_create(3) of a thread that returns at once, pthread_join(3)")
    .hardware(8.0, "trap", "stack mapped and protected, clone, exit, futex, unmapped")
    .software(55_000.0, "instruction", "thread record, stack, switches")
}

fn exec(name: &str, title: &str, how: Split) -> Experiment {
    Experiment::time(format!("cpu/process/{name}"), title, move |s, m| {
        let path = program(s, USUAL)?;
        exec_samples(m, &path, &[&path], how)
    })
    .method("execve(2) of a program with 20 KB text, 4 KB data and bss, all touched; wait4(2)")
    .hardware(10.0, "trap", "fork, exec, wait and six page faults")
    .hardware(4.0 * PAGE as f64, "copy-byte", "pages cleared or copied")
}

fn parent_size(bytes: usize) -> Experiment {
    let pages = (bytes / PAGE) as f64;
    Experiment::time(
        format!("cpu/process/fork-parent/{}M", bytes / M),
        format!("fork, exit, wait with {} touched in the parent", size(bytes as f64)),
        move |_, m| {
            let memory = Mapping::anonymous(bytes, Pages::Small).map_err(Skip::because("mmap"))?;
            memory.populate();
            m.try_batch(1, || reap(fork_exit(), "fork"))
        },
    )
    .method("as fork-exit; the parent has written that much memory in 4 KB pages")
    .at("fork by parent size", bytes as f64, "bytes")
    .rounds_at_most(if bytes > 16 * M { 5 } else { 10 })
    .hardware(3.0, "trap", "fork, exit, wait")
    .hardware(pages * 16.0, "copy-byte-memory", "page-table entries read, written, freed")
    .software(110_000.0, "instruction", "as fork-exit")
    .software(pages * 400.0, "instruction", "page-table entries and reference counts")
}
