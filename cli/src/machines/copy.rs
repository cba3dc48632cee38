//! `./hayate cp`: files and folders between this machine and one that stays.
//!
//! The guest's side is a program of Hayate's own, `hayate-copy`, which an `exec` starts; both sides
//! share `hayate_tree_copy`, which says how far the stream of a guest is trusted. Between the
//! connection and the file system stands a pipe, with a thread at its other end.

use super::directory::Machines;
use super::exec::{End, converse};
use crate::arguments::machines::Copy;
use crate::arguments::values;
use crate::failure::{FAULT, Failure, USAGE};
use crate::guest::terminal;
use crate::progress::Progress;
use anyhow::{Context, Result};
use hayate_channel::command::Command;
use hayate_tree_copy::{Target, pack, source, unpack};
use std::ffi::OsStr;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The guest's program, in machines that stay.
const PROGRAM: &[u8] = b"/run/hayate/bin/hayate-copy";
/// How much of what it says is kept.
const MOST_SAID: usize = 64 << 10;

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Here(PathBuf),
    In(String, Vec<u8>),
}

impl Place {
    /// Reads `NAME:PATH` or a path of this machine; one with a colon is written `./a:b`.
    fn of(text: &OsStr) -> Place {
        let bytes = text.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b':');
        let name = at.and_then(|at| std::str::from_utf8(&bytes[..at]).ok());
        match (at, name.and_then(|name| values::name(name).ok())) {
            (Some(at), Some(name)) => Place::In(name, bytes[at + 1..].to_vec()),
            _ => Place::Here(text.into()),
        }
    }
}

/// `./hayate cp`.
pub fn copy(options: &Copy) -> Result<u8> {
    let both = (Place::of(&options.from), Place::of(&options.to));
    let _step = Progress::new("Copying");
    match both {
        (Place::Here(from), Place::In(name, to)) => bring(options, &from, &name, &to)?,
        (Place::In(name, from), Place::Here(to)) => fetch(options, &name, &from, &to)?,
        _ => {
            let text = "cp copies into a machine or out of one: write one of both as NAME:PATH";
            return Err(Failure::error(USAGE, text));
        }
    }
    Ok(0)
}

/// Copies into a machine.
fn bring(options: &Copy, from: &Path, name: &str, to: &[u8]) -> Result<()> {
    from.symlink_metadata().with_context(|| format!("cannot copy {}", from.display()))?;
    let (own_name, contents) = source(from)?;
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let (path, follow) = (from.to_path_buf(), options.follow_link);
    let packer = std::thread::spawn(move || {
        pack(&path, follow, BufWriter::with_capacity(64 << 10, writer), say)
    });
    let words: [&[u8]; 5] = [
        b"in",
        to,
        own_name.as_os_str().as_bytes(),
        if contents { b"contents" } else { b"whole" },
        if options.archive { b"owners" } else { b"plain" },
    ];
    let said = Said::default();
    let input: Box<dyn Read + Send> = Box::new(reader);
    let status = exec(name, &words, Some(input), Box::new(std::io::sink()), &said)?;
    // A guest that did not want all of it leaves the packer waiting.
    let packed = (status == 0 || packer.is_finished()).then(|| packer.join());
    match packed {
        Some(Ok(Err(error))) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Failure::error(FAULT, format!("cannot copy {error}")));
        }
        _ => {}
    }
    said.conclude(status, name)
}

/// Copies out of a machine.
fn fetch(options: &Copy, name: &str, from: &[u8], to: &Path) -> Result<()> {
    let (own_name, contents) = source(Path::new(OsStr::from_bytes(from)))?;
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let target = Target {
        path: to.to_path_buf(),
        name: own_name,
        contents,
        keep_set_id: false,
        keep_owners: options.archive,
    };
    let unpacker = std::thread::spawn(move || unpack(BufReader::new(reader), &target, say));
    let said = Said::default();
    let words: [&[u8]; 3] = [b"out", from, if options.follow_link { b"follow" } else { b"link" }];
    let status = exec(name, &words, None, Box::new(writer), &said)?;
    let unpacked = unpacker.join().unwrap_or(Ok(()));
    // The guest knows best why nothing came, unless this side stopped reading.
    let stopped = said.lines().last().is_none_or(|line| line.contains("Broken pipe"));
    if status == 0 || stopped {
        unpacked.map_err(|error| Failure::error(FAULT, format!("cannot copy {error}")))?;
    }
    said.conclude(status, name)
}

/// Runs the guest's side, and returns its status.
fn exec(
    name: &str,
    words: &[&[u8]],
    input: Option<Box<dyn Read + Send>>,
    output: Box<dyn Write>,
    said: &Said,
) -> Result<u8> {
    let machine = Machines::open()?.find(name)?;
    let socket = machine.connect()?;
    let arguments = std::iter::once(PROGRAM).chain(words.iter().copied());
    let command = Command {
        arguments: arguments.map(<[u8]>::to_vec).collect(),
        user: Some(b"0:0".to_vec()),
        directory: Some(b"/".to_vec()),
        ..Command::default()
    };
    let outputs: [Box<dyn Write>; 2] = [output, Box::new(said.clone())];
    match converse(name, &socket, command, input, outputs, &|| ())? {
        End::Status(status) => Ok(status),
        End::Failed(status, text) => Err(Failure::error(status, text)),
    }
}

/// What the guest's side said.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).lines().map(String::from).collect()
    }

    /// Passes on what was said; the last line of one that failed is the error.
    fn conclude(&self, status: u8, name: &str) -> Result<()> {
        let mut lines = self.lines();
        let why = if status == 0 { None } else { lines.pop() };
        lines.iter().for_each(|line| say(line));
        match (status, why) {
            (0, _) => Ok(()),
            (_, Some(why)) => Err(Failure::error(FAULT, format!("cannot copy {}", plain(&why)))),
            (status, None) => {
                let text = format!("the copying in the machine {name} ended with status {status}");
                Err(Failure::error(FAULT, text))
            }
        }
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_SAID.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn say(text: &str) {
    terminal::say(&plain(text));
}

/// A text of the guest on one line, without what a terminal would act upon.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_stands_before_the_colon() {
        let of = |text: &str| Place::of(OsStr::new(text));
        assert_eq!(of("work:/root/a:b"), Place::In("work".into(), b"/root/a:b".to_vec()));
        assert_eq!(of("work:"), Place::In("work".into(), Vec::new()));
        for here in ["work", "./a:b", "/a:b", "", ":x", "a b:c"] {
            assert_eq!(of(here), Place::Here(here.into()));
        }
    }
}
