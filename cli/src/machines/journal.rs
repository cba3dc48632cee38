//! What a machine prints: kept in files of bounded size, and shown by `logs`.
//!
//! A journal is a file and the one before it (`output` and `output.1`). When the file is full it
//! becomes the one before, so a reader that goes on sees another file under the name, and reads
//! that from its beginning.

use super::directory::{Machine, Machines};
use crate::arguments::machines::Logs;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The output of the first program.
pub const OUTPUT: &str = "output";
/// The kernel's messages.
pub const KERNEL: &str = "kernel";

/// The size at which a file becomes the one before.
const MOST: u64 = 8 << 20;
/// How often a reader that goes on looks for more.
const PAUSE: Duration = Duration::from_millis(50);

/// A journal that is written.
pub struct Journal {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Journal {
    /// Makes a journal of the machine.
    pub fn create(machine: &Machine, name: &str) -> Result<Journal> {
        let path = machine.file(name);
        let file =
            File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Journal { path, file, size: 0 })
    }
}

impl Write for Journal {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.size >= MOST {
            std::fs::rename(&self.path, before(&self.path))?;
            self.file = File::create(&self.path)?;
            self.size = 0;
        }
        let count = self.file.write(bytes)?;
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn before(path: &Path) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(".1");
    name.into()
}

/// `./hayate logs`.
pub fn logs(options: &Logs) -> Result<u8> {
    let machine = Machines::open()?.find(&options.name)?;
    let path = machine.file(if options.kernel { KERNEL } else { OUTPUT });
    let mut runs = machine.runs();
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("the machine {} has printed nothing yet", machine.name)
        }
        Err(error) => bail!("cannot read {}: {error}", path.display()),
    };
    let mut kept = match options.tail {
        Some(most) => Shown::Last { most, bytes: VecDeque::new(), lines: 0 },
        None => Shown::All,
    };
    if let Ok(mut older) = File::open(before(&path)) {
        pass(&mut older, &mut kept)?;
    }
    loop {
        pass(&mut file, &mut kept)?;
        kept.release()?;
        if !options.follow {
            return Ok(0);
        }
        let own = file.metadata().map(|found| found.ino()).ok();
        match File::open(&path) {
            Ok(next) if next.metadata().map(|found| found.ino()).ok() != own => {
                // What came between the last look and the change.
                pass(&mut file, &mut kept)?;
                file = next;
            }
            _ if !runs => return Ok(0),
            _ => {
                // The last output is written before the lock is free.
                runs = machine.runs();
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// What is shown of what was read.
enum Shown {
    All,
    /// The last lines, until all is read that was there.
    Last {
        most: usize,
        bytes: VecDeque<u8>,
        lines: usize,
    },
}

impl Shown {
    fn take(&mut self, piece: &[u8]) -> Result<()> {
        match self {
            Shown::All => return show(piece),
            Shown::Last { most, bytes, lines } => {
                for &byte in piece {
                    // A line that is not finished counts when the next byte comes.
                    if bytes.back().is_none_or(|&last| last == b'\n') {
                        *lines += 1;
                    }
                    bytes.push_back(byte);
                    while *lines > *most && bytes.pop_front().is_some_and(|byte| byte != b'\n') {}
                    *lines = (*lines).min(*most);
                }
            }
        }
        Ok(())
    }

    /// Shows what was kept; from now on everything is shown.
    fn release(&mut self) -> Result<()> {
        if let Shown::Last { bytes, .. } = std::mem::replace(self, Shown::All) {
            show(&Vec::from(bytes))?;
        }
        Ok(())
    }
}

fn pass(file: &mut File, shown: &mut Shown) -> Result<()> {
    let mut buffer = [0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => shown.take(&buffer[..count])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => bail!("cannot read the log: {error}"),
        }
    }
}

fn show(bytes: &[u8]) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        // Its reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            std::process::exit(128 + signal_hook::consts::SIGPIPE)
        }
        result => result.context("cannot write standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_becomes_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        let file = File::create(&path).unwrap();
        let mut journal = Journal { path: path.clone(), file, size: MOST - 1 };
        journal.write_all(b"old\n").unwrap();
        journal.write_all(b"new\n").unwrap();
        assert_eq!(std::fs::read(before(&path)).unwrap(), b"old\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"new\n");
    }

    #[test]
    fn the_last_lines_are_kept() {
        let last = |most, text: &str| {
            let mut shown = Shown::Last { most, bytes: VecDeque::new(), lines: 0 };
            shown.take(text.as_bytes()).unwrap();
            let Shown::Last { bytes, .. } = shown else { panic!() };
            String::from_utf8(bytes.into()).unwrap()
        };
        assert_eq!(last(2, "a\nb\nc\n"), "b\nc\n");
        assert_eq!(last(2, "a\nb\nc"), "b\nc");
        assert_eq!(last(5, "a\nb\n"), "a\nb\n");
        assert_eq!(last(0, "a\nb\nc"), "");
        assert_eq!(last(1, "a\n\n"), "\n");
    }
}
