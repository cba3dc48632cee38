//! The rehearsal of a start: what it reads is read before, and nothing of the program runs.
//!
//! The dynamic linker of the program is started in its place with `--list`, as ldd(1) does: it
//! finds, maps and relocates the libraries, prints their names and ends. Those of glibc and of musl
//! know the option. So files and libraries are in memory, and the kernel has parts to reuse, when
//! the program itself is started. A program without a dynamic linker is read.
//!
//! Road not taken: `LD_TRACE_LOADED_OBJECTS` in the environment of the program. A static program
//! does not know it, and would run.

use hayate_program_image::{HEAD, Image, Plan};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, copy, sink};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// The most interpreters of interpreters, as for execve(2).
const MOST_SCRIPTS: usize = 5;
/// The longest path of a dynamic linker (PATH_MAX).
const LONGEST: u64 = 4096;

/// Returns the dynamic linker that starts a program, and the program: that one, or the interpreter
/// of a script.
///
/// # Errors
/// It cannot be read, is no program, or has no dynamic linker.
pub fn linker(program: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut program = program.to_vec();
    for _ in 0..MOST_SCRIPTS {
        let mut file = File::open(OsStr::from_bytes(&program))?;
        let mut head = Vec::new();
        file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        match Image::recognise(&head).map_err(|_| no_program())? {
            Image::Script(script) => program = script.interpreter.to_vec(),
            Image::Elf(header) => {
                let plan = Plan::new(&header, &part(&file, header.table())?);
                let Some(path) = plan.map_err(|_| no_program())?.interpreter else {
                    copy(&mut file, &mut sink())?;
                    return Err(Error::new(ErrorKind::Unsupported, "it has no dynamic linker"));
                };
                let mut linker = part(&file, path)?;
                linker.retain(|&byte| byte != 0);
                return Ok((linker, program));
            }
        }
    }
    Err(no_program())
}

fn part(file: &File, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
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

    /// A file with these bytes, which can be opened by its name until it is dropped.
    fn file(bytes: &[u8]) -> (File, Vec<u8>) {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let flags = rustix::fs::MemfdFlags::empty();
        let mut file: File = rustix::fs::memfd_create("program", flags).unwrap().into();
        file.write_all(bytes).unwrap();
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, name.into_bytes())
    }

    #[test]
    fn a_program_has_one() {
        let (linker, program) = linker(b"/bin/true").unwrap();
        assert!(linker.starts_with(b"/lib"), "{}", String::from_utf8_lossy(&linker));
        assert_eq!(program, b"/bin/true");
    }

    #[test]
    fn a_script_has_that_of_its_interpreter() {
        let (_keep, name) = file(b"#!/bin/true -x\n");
        assert_eq!(linker(&name).unwrap().1, b"/bin/true");
    }

    #[test]
    fn other_files_have_none() {
        assert!(linker(b"/nowhere").is_err());
        assert!(linker(b"/etc/passwd").is_err());
        let (_keep, name) = file(b"");
        assert!(linker(&name).is_err());
        let (_keep, name) = file(b"\x7fELF");
        assert!(linker(&name).is_err());
        let own = std::fs::read("/bin/true").unwrap();
        for length in [100, 200, 600] {
            let (_keep, name) = file(&own[..length]);
            assert!(linker(&name).is_err(), "{length}");
        }
    }

    #[test]
    fn scripts_of_themselves_have_none() {
        let (mut script, name) = file(b"");
        use std::io::Write;
        script.write_all(&[b"#!", &name[..], b"\n"].concat()).unwrap();
        assert!(linker(&name).is_err());
    }
}
