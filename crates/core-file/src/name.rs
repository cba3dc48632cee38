//! Turns `/proc/sys/kernel/core_pattern` into a place (`core(5)`, "Naming of core dump files";
//! `format_corename`, fs/coredump.c).

use alloc::vec::Vec;
use core::fmt;

use crate::{OutOfMemory, Result, append};

/// The values that a pattern may refer to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The process, in its PID namespace (`%p`).
    pub process: u32,
    /// The thread that caused its end, likewise (`%i`).
    pub thread: u32,
    /// The process, in the first PID namespace (`%P`).
    pub first_process: u32,
    /// The thread, likewise (`%I`).
    pub first_thread: u32,
    /// Its real user (`%u`).
    pub user: u32,
    /// Its real group (`%g`).
    pub group: u32,
    /// `PR_GET_DUMPABLE` (`%d`).
    pub dumpable: u32,
    /// The signal (`%s`).
    pub signal: u32,
    /// Seconds since 1970 (`%t`).
    pub time: u64,
    /// The host's name (`%h`).
    pub host: &'a [u8],
    /// The name of the thread (`%e`).
    pub name: &'a [u8],
    /// The path of the program (`%E`, the last name of it `%f`); empty if it has none.
    pub path: &'a [u8],
    /// `RLIMIT_CORE` (`%c`).
    pub limit: u64,
    /// The processor (`%C`).
    pub processor: usize,
}

/// The destination of a core file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreTarget {
    /// The file of this name.
    File(Vec<u8>),
    /// The standard input of a program, with these arguments; the first one is its path.
    Program(Vec<Vec<u8>>),
}

/// Returns the place that a pattern gives for these facts. `uses_pid`:
/// `/proc/sys/kernel/core_uses_pid`.
///
/// # Errors
/// Memory is exhausted.
pub fn place(pattern: &[u8], uses_pid: bool, facts: &Facts<'_>) -> Result<CoreTarget> {
    let Some(command) = pattern.strip_prefix(b"|") else {
        let mut name = Vec::new();
        let has_number = expand(pattern, facts, &mut name)?;
        if uses_pid && !has_number {
            put(&mut name, format_args!(".{}", facts.process))?;
        }
        return Ok(CoreTarget::File(name));
    };
    // Split into words first: inserted values may contain spaces.
    let words = command.split(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
    let mut arguments = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        let mut argument = Vec::new();
        expand(word, facts, &mut argument)?;
        arguments.try_reserve(1).map_err(|_| OutOfMemory)?;
        arguments.push(argument);
    }
    Ok(CoreTarget::Program(arguments))
}

/// Replaces the sequences that begin with `%`; returns whether `%p` was among them.
fn expand(pattern: &[u8], facts: &Facts<'_>, out: &mut Vec<u8>) -> Result<bool> {
    let mut has_number = false;
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            append(out, &[byte])?;
            continue;
        }
        // A single `%` at the end is dropped, and so is one before any other letter.
        match bytes.next() {
            Some(b'%') => append(out, b"%")?,
            Some(b'p') => {
                has_number = true;
                put(out, format_args!("{}", facts.process))?;
            }
            Some(b'P') => put(out, format_args!("{}", facts.first_process))?,
            Some(b'i') => put(out, format_args!("{}", facts.thread))?,
            Some(b'I') => put(out, format_args!("{}", facts.first_thread))?,
            Some(b'u') => put(out, format_args!("{}", facts.user))?,
            Some(b'g') => put(out, format_args!("{}", facts.group))?,
            Some(b'd') => put(out, format_args!("{}", facts.dumpable))?,
            Some(b's') => put(out, format_args!("{}", facts.signal))?,
            Some(b't') => put(out, format_args!("{}", facts.time))?,
            Some(b'c') => put(out, format_args!("{}", facts.limit))?,
            Some(b'C') => put(out, format_args!("{}", facts.processor))?,
            Some(b'h') => one_name(out, facts.host)?,
            Some(b'e') => one_name(out, facts.name)?,
            Some(b'E') => path(out, facts, facts.path)?,
            Some(b'f') => {
                let last = facts.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
                path(out, facts, last)?;
            }
            _ => {}
        }
    }
    Ok(has_number)
}

fn path(out: &mut Vec<u8>, facts: &Facts<'_>, text: &[u8]) -> Result<()> {
    if !facts.path.is_empty() {
        return one_name(out, text);
    }
    let mut unknown = Vec::new();
    append(&mut unknown, facts.name)?;
    append(&mut unknown, b" (path unknown)")?;
    one_name(out, &unknown)
}

/// Appends a text that the program chose, as a part of one name: it cannot lead to another
/// directory (`cn_esc_printf`).
fn one_name(out: &mut Vec<u8>, text: &[u8]) -> Result<()> {
    let start = out.len();
    append(out, if text.is_empty() { b"!" } else { text })?;
    let Some(new) = out.get_mut(start..) else { return Ok(()) };
    if matches!(new, [b'.'] | [b'.', b'.'])
        && let Some(first) = new.first_mut()
    {
        *first = b'!';
    }
    new.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'!');
    Ok(())
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) -> Result<()> {
    struct Sink<'a>(&'a mut Vec<u8>);
    impl fmt::Write for Sink<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            append(self.0, text.as_bytes()).map_err(|_| fmt::Error)
        }
    }
    fmt::Write::write_fmt(&mut Sink(out), text).map_err(|_| OutOfMemory)
}
