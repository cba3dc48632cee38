//! The first line of a script.

use hayate_abi::{Errno, Result};

use crate::HEAD;

/// The interpreter that a `#!` line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The interpreter's path.
    pub interpreter: &'a [u8],
    /// The one argument it may be given: everything after the path, inner blanks included.
    pub argument: Option<&'a [u8]>,
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

impl<'a> Script<'a> {
    /// Parses the line. A line that does not end within [`HEAD`] bytes is cut there, as in Linux,
    /// but never within the path: half a path could name another program.
    ///
    /// `ENOEXEC` without a path.
    pub fn parse(head: &'a [u8]) -> Result<Script<'a>> {
        let head = head.get(..HEAD).unwrap_or(head);
        let text = head.strip_prefix(b"#!").ok_or(Errno::ENOEXEC)?;
        let ending = text.iter().position(|&byte| byte == b'\n');
        let line = match ending {
            Some(end) => &text[..end],
            None => text,
        };
        // The end of a file that is shorter than the head ends the line.
        let complete = ending.is_some() || head.len() < HEAD;
        // Linux works on C strings: a NUL ends the line too.
        let (line, complete) = match line.iter().position(|&byte| byte == 0) {
            Some(end) => (&line[..end], true),
            None => (line, complete),
        };
        let line = line.trim_ascii_start_blank();
        let (interpreter, rest) = match line.iter().position(|&byte| is_blank(byte)) {
            Some(end) => (&line[..end], &line[end..]),
            None if complete => (line, &line[line.len()..]),
            None => return Err(Errno::ENOEXEC),
        };
        if interpreter.is_empty() {
            return Err(Errno::ENOEXEC);
        }
        let argument = rest.trim_ascii_start_blank().trim_ascii_end_blank();
        Ok(Script { interpreter, argument: (!argument.is_empty()).then_some(argument) })
    }
}

trait TrimBlanks {
    fn trim_ascii_start_blank(&self) -> &Self;
    fn trim_ascii_end_blank(&self) -> &Self;
}

impl TrimBlanks for [u8] {
    fn trim_ascii_start_blank(&self) -> &[u8] {
        match self.iter().position(|&byte| !is_blank(byte)) {
            Some(start) => &self[start..],
            None => &[],
        }
    }

    fn trim_ascii_end_blank(&self) -> &[u8] {
        match self.iter().rposition(|&byte| !is_blank(byte)) {
            Some(last) => &self[..=last],
            None => &[],
        }
    }
}
