//! The rehearsal of a start: what it reads is read before, and nothing of the program runs.
//!
//! The dynamic linker of the program is started in its place with `--list`, as ldd(1) does: it
//! finds, maps and relocates the libraries, prints their paths and ends. Those of glibc and of musl
//! know the option. Then the program and the libraries are read. So they are in memory, and the
//! kernel has parts of a process to reuse, when the program itself is started.
//!
//! Road not taken: `LD_TRACE_LOADED_OBJECTS` in the environment of the program. A static program
//! does not know it, and would run.

use hayate_program_image::{HEAD, Image, Plan};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, copy, sink};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The most interpreters of interpreters, as for execve(2).
const MOST_SCRIPTS: usize = 5;
/// The longest path of a dynamic linker (PATH_MAX).
const LONGEST: u64 = 4096;
/// So much is read of all files together, in bytes: a machine may be small.
const MOST_READ: u64 = 32 << 20;

/// Rehearses the start of a program with these variables (`NAME=VALUE`).
///
/// # Errors
/// A file cannot be read, is no program, or its dynamic linker cannot be started. Nothing follows
/// from that, but that a later start reads more.
pub fn rehearse(program: &Path, environment: &[Vec<u8>]) -> Result<()> {
    let (program, linker) = parts(program.as_os_str().as_bytes())?;
    let mut left = MOST_READ;
    read(&program, &mut left)?;
    let Some(linker) = linker else { return Ok(()) };
    let mut command = Command::new(OsStr::from_bytes(&linker));
    command.arg("--list").arg(OsStr::from_bytes(&program)).current_dir("/").env_clear();
    for variable in environment {
        let mut halves = variable.splitn(2, |&byte| byte == b'=').map(OsStr::from_bytes);
        if let (Some(name), Some(value)) = (halves.next(), halves.next()) {
            command.env(name, value);
        }
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    // One that cannot be read keeps the others from nothing.
    listed(&output.stdout).for_each(|library| drop(read(library, &mut left)));
    Ok(())
}

/// The paths in what a dynamic linker lists: `libc.so.6 => /lib/libc.so.6 (0x7f...)`. One with a
/// blank is cut there, and then not found.
fn listed(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| word.starts_with(b"/"))
}

/// Reads a file, as far as there is something left to read.
fn read(path: &[u8], left: &mut u64) -> Result<()> {
    *left -= copy(&mut File::open(OsStr::from_bytes(path))?.take(*left), &mut sink())?;
    Ok(())
}

/// Returns the file that execve(2) maps, which is the interpreter of a script, and its dynamic
/// linker if it has one.
fn parts(program: &[u8]) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let mut program = program.to_vec();
    for _ in 0..MOST_SCRIPTS {
        let file = File::open(OsStr::from_bytes(&program))?;
        let mut head = Vec::new();
        (&file).take(HEAD as u64).read_to_end(&mut head)?;
        match Image::recognise(&head).map_err(|_| no_program())? {
            Image::Script(script) => program = script.interpreter.to_vec(),
            Image::Elf(header) => {
                let plan = Plan::new(&header, &part(&file, header.table())?);
                let linker = match plan.map_err(|_| no_program())?.interpreter {
                    None => None,
                    Some(range) => {
                        let mut path = part(&file, range)?;
                        path.retain(|&byte| byte != 0);
                        Some(path)
                    }
                };
                return Ok((program, linker));
            }
        }
    }
    Err(no_program())
}

fn part(file: &File, range: Range<u64>) -> Result<Vec<u8>> {
    let length = range.end.saturating_sub(range.start);
    if length > LONGEST {
        return Err(no_program());
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

fn no_program() -> Error {
    Error::new(ErrorKind::InvalidData, "it is no program")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// A file with these bytes, which can be opened by its name until it is dropped.
    fn file(bytes: &[u8]) -> (File, Vec<u8>) {
        let flags = rustix::fs::MemfdFlags::empty();
        let mut file: File = rustix::fs::memfd_create("program", flags).unwrap().into();
        file.write_all(bytes).unwrap();
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, name.into_bytes())
    }

    #[test]
    fn a_program_has_a_linker() {
        let (program, linker) = parts(b"/bin/true").unwrap();
        assert_eq!(program, b"/bin/true");
        assert!(linker.unwrap().starts_with(b"/lib"));
    }

    #[test]
    fn a_script_has_that_of_its_interpreter() {
        let (_keep, name) = file(b"#!/bin/true -x\n");
        assert_eq!(parts(&name).unwrap(), parts(b"/bin/true").unwrap());
    }

    #[test]
    fn other_files_are_no_programs() {
        assert!(parts(b"/nowhere").is_err());
        assert!(parts(b"/etc/passwd").is_err());
        let own = std::fs::read("/bin/true").unwrap();
        for bytes in [&b""[..], b"\x7fELF", b"#!\n", &own[..100], &own[..200], &own[..600]] {
            assert!(parts(&file(bytes).1).is_err(), "{} bytes", bytes.len());
        }
        // A script that is its own interpreter.
        let (mut script, name) = file(b"");
        script.write_all(&[b"#!", &name[..], b"\n"].concat()).unwrap();
        assert!(parts(&name).is_err());
    }

    #[test]
    fn programs_and_scripts_are_rehearsed() {
        let program = Path::new("/bin/false");
        rehearse(program, &[b"PATH=/bin".to_vec(), b"no variable".to_vec()]).unwrap();
        let (_keep, name) = file(b"#!/bin/false\n");
        rehearse(Path::new(OsStr::from_bytes(&name)), &[]).unwrap();
        assert!(rehearse(Path::new("/etc/passwd"), &[]).is_err());
    }

    #[test]
    fn paths_are_found_in_a_list() {
        let text =
            b"\tvdso.so (0x7ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib/ld.so (0x7e)\n";
        assert_eq!(listed(text).collect::<Vec<_>>(), [&b"/lib/libc.so.6"[..], b"/lib/ld.so"]);
        assert_eq!(listed(b"\tstatically linked\n").count(), 0);
    }

    #[test]
    fn no_more_is_read_than_is_left() {
        let (_keep, name) = file(&[1; 1000]);
        let mut left = 1500;
        read(&name, &mut left).unwrap();
        read(&name, &mut left).unwrap();
        assert_eq!(left, 0);
    }
}
