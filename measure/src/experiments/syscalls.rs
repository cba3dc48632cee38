//! System calls, each issued by the `syscall` instruction with no library in between.

use super::files::temporary_file;
use crate::experiment::{Experiment, Setting};
use crate::sampler::{Sampler, Skip};
use crate::sys::raw::{self, checked};
use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BATCH: u32 = 50;
const BLOCK: usize = 256;

/// A path as the kernel wants it.
pub fn c_path(path: &Path) -> Result<CString, Skip> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Skip(format!("{}: a zero byte in the path", path.display())))
}

fn call(
    name: &str,
    title: &str,
    instructions: f64,
    why: &'static str,
    body: impl Fn(&Setting, &mut Sampler) -> Result<(), Skip> + 'static,
) -> Experiment {
    Experiment::time(format!("cpu/syscall/{name}"), title, body)
        .per(BATCH)
        .method("50 calls by the syscall instruction, no library in between")
        .hardware(1.0, "trap", "into the kernel and back")
        .software(instructions, "instruction", why)
}

fn open(path: &CStr, flags: i32) -> Result<i32, Skip> {
    let fd = checked(raw::open(path, flags)).map_err(Skip::because(&path.to_string_lossy()))?;
    Ok(fd as i32)
}

/// Calls once and skips if the kernel refuses, then measures.
fn steady(m: &mut Sampler, mut one: impl FnMut() -> isize) -> Result<(), Skip> {
    checked(one())?;
    m.batch(BATCH, || {
        black_box(one());
    })
}

/// The experiments of this file.
pub fn experiments() -> Vec<Experiment> {
    let mut all = of_the_process();
    all.extend(of_open_files());
    all.extend(of_paths_and_descriptors());
    all.push(call(
        "sched-yield",
        "sched_yield with nobody to yield to",
        650.0,
        "scheduler",
        |_, m| steady(m, raw::sched_yield),
    ));
    all
}

/// Calls that need no file.
fn of_the_process() -> Vec<Experiment> {
    vec![
        Experiment::time("cpu/syscall/none", "a call number that no kernel has", |_, m| {
            m.batch(BATCH, || {
                black_box(raw::nothing());
            })
        })
        .per(BATCH)
        .method("50 calls that end in ENOSYS: entry and return, nothing else")
        .hardware(1.0, "trap", "into the kernel and back"),
        call("getppid", "getppid", 15.0, "find the parent", |_, m| steady(m, raw::getppid)),
        call("getpid", "getpid", 10.0, "find the process", |_, m| steady(m, raw::getpid)),
        call("clock-gettime", "clock_gettime past the vDSO", 120.0, "read and scale", |_, m| {
            let mut time = [0; 2];
            steady(m, || raw::clock_gettime_by_call(libc::CLOCK_MONOTONIC, &mut time))
        }),
    ]
}

/// Calls on a file that is open.
fn of_open_files() -> Vec<Experiment> {
    vec![
        call(
            "read-zero",
            "read of 256 bytes from /dev/zero",
            350.0,
            "file, clear, checks",
            |_, m| {
                let fd = open(c"/dev/zero", libc::O_RDONLY)?;
                let mut block = [0; BLOCK];
                let result = steady(m, || raw::read(fd, &mut block));
                raw::close(fd as usize);
                result
            },
        ),
        call("write-null", "write of 256 bytes to /dev/null", 250.0, "file and checks", |_, m| {
            let fd = open(c"/dev/null", libc::O_WRONLY)?;
            let block = [0; BLOCK];
            let result = steady(m, || raw::write(fd, &block));
            raw::close(fd as usize);
            result
        }),
        call(
            "pread",
            "pread of 256 bytes of a cached file",
            1000.0,
            "file cache look-up",
            |s, m| {
                let (file, _path) = temporary_file(s, "pread", 4096)?;
                let mut block = [0; BLOCK];
                steady(m, || raw::pread(file.as_raw_fd(), &mut block, 0))
            },
        )
        .hardware(256.0, "copy-byte", "the data, cache to cache"),
        call(
            "pwrite",
            "pwrite of 256 bytes of a cached file",
            1400.0,
            "file cache, times",
            |s, m| {
                let (file, _path) = temporary_file(s, "pwrite", 4096)?;
                let block = [0; BLOCK];
                steady(m, || raw::pwrite(file.as_raw_fd(), &block, 0))
            },
        )
        .hardware(256.0, "copy-byte", "the data, cache to cache"),
        call("lseek", "lseek", 60.0, "file, position", |s, m| {
            let (file, _path) = temporary_file(s, "lseek", 4096)?;
            let fd = file.as_raw_fd() as usize;
            steady(m, || raw::lseek(fd, 0, 0))
        }),
        call("fstat", "fstat", 350.0, "file, attributes", |s, m| {
            let (file, _path) = temporary_file(s, "fstat", 4096)?;
            let mut stat = [0; 18];
            steady(m, || raw::fstat(file.as_raw_fd(), &mut stat))
        }),
    ]
}

/// Calls that walk a path, or make a descriptor.
fn of_paths_and_descriptors() -> Vec<Experiment> {
    vec![
        call("stat", "stat of a path", 2400.0, "path walk, attributes", |s, m| {
            let (_file, path) = temporary_file(s, "stat", 4096)?;
            let path = c_path(path.as_ref())?;
            let mut stat = [0; 18];
            steady(m, || raw::stat(&path, &mut stat))
        }),
        call(
            "open-close",
            "open and close of a path",
            4300.0,
            "path walk, a file object",
            |s, m| {
                let (_file, path) = temporary_file(s, "open", 4096)?;
                let path = c_path(path.as_ref())?;
                steady(m, || {
                    let fd = raw::open(&path, libc::O_RDONLY);
                    if fd >= 0 { raw::close(fd as usize) } else { fd }
                })
            },
        )
        .hardware(1.0, "trap", "the second call"),
        call("dup-close", "dup and close", 300.0, "a descriptor made and freed", |_, m| {
            let fd = open(c"/dev/null", libc::O_WRONLY)? as usize;
            let result = steady(m, || {
                let copy = raw::dup(fd);
                if copy >= 0 { raw::close(copy as usize) } else { copy }
            });
            raw::close(fd);
            result
        })
        .hardware(1.0, "trap", "the second call"),
    ]
}
