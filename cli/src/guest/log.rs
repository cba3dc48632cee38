//! The kernel's messages: the end of them in memory, all of them in a file if requested.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How much of the end is kept: several hundred lines.
const KEPT: usize = 128 << 10;

/// Another destination of the messages, besides memory.
pub enum Sink {
    /// Nowhere.
    None,
    /// To standard error, as they come.
    Screen,
    /// To a file.
    File(File),
    /// To a writer that another start of the machine shares.
    Shared(Arc<Mutex<dyn Write + Send>>),
}

impl Sink {
    /// Opens the destination that `--log` names.
    pub fn open(path: Option<&Path>) -> Result<Sink> {
        match path {
            None => Ok(Sink::None),
            Some(path) if path.as_os_str() == "-" => Ok(Sink::Screen),
            Some(path) => File::create(path)
                .map(Sink::File)
                .with_context(|| format!("cannot write the log to {}", path.display())),
        }
    }

    /// Returns the same destination, for another start of the machine.
    pub fn again(&self) -> Result<Sink> {
        Ok(match self {
            Sink::None => Sink::None,
            Sink::Screen => Sink::Screen,
            Sink::Shared(writer) => Sink::Shared(writer.clone()),
            Sink::File(file) => {
                Sink::File(file.try_clone().context("cannot duplicate the log's descriptor")?)
            }
        })
    }
}

/// The kernel's messages.
#[derive(Default)]
pub struct Log {
    kept: VecDeque<u8>,
    /// When the first byte came.
    pub first: Option<Instant>,
    /// Lines of the form `boot: STAGE NANOSECONDS` and `first-instruction NANOSECONDS`.
    pub stages: Vec<(String, u64)>,
    /// Whether a line said that the kernel panicked.
    pub panicked: bool,
    /// Why the kernel refuses to boot on this machine.
    pub refusal: Option<String>,
    line: Vec<u8>,
}

impl Log {
    /// The end of the messages as text.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.kept.iter().copied().collect();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }

    fn take(&mut self, bytes: &[u8]) {
        self.first.get_or_insert_with(Instant::now);
        self.kept.extend(bytes);
        if self.kept.len() > KEPT {
            self.kept.drain(..self.kept.len() - KEPT);
        }
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.note(&String::from_utf8_lossy(&line));
            } else if self.line.len() < 1024 {
                self.line.push(byte);
            }
        }
    }

    fn note(&mut self, line: &str) {
        let line = line.trim_end();
        // "[    0.012345] text"
        let text = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((_, text)) => text,
            None => line,
        };
        if text.starts_with("panic: ") || text.starts_with("Kernel panic - ") {
            self.panicked = true;
        }
        if let Some(why) = text.strip_prefix("cannot boot: ") {
            self.refusal = Some(why.to_string());
        }
        let stage = text.strip_prefix("boot: ").unwrap_or(text);
        if let Some((name, time)) = stage.rsplit_once(' ')
            && (stage.len() < text.len() || name == "first-instruction")
            && let Ok(time) = time.parse()
        {
            self.stages.push((name.to_string(), time));
        }
    }
}

/// Reads messages until the machine ends, and passes each piece to `with`. Returns why they could
/// not be written to their destination: a full disk must not stop the guest.
pub fn read(
    mut source: impl Read,
    mut sink: Sink,
    mut with: impl FnMut(&mut dyn FnMut(&mut Log)),
) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    let mut written = Ok(());
    loop {
        let bytes = match source.read(&mut buffer) {
            Ok(0) => return written,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return written,
        };
        with(&mut |log: &mut Log| log.take(bytes));
        if written.is_ok() {
            written = match &mut sink {
                Sink::None => Ok(()),
                Sink::Screen => std::io::stderr().write_all(bytes),
                Sink::File(file) => file.write_all(bytes),
                Sink::Shared(writer) => {
                    writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_panics_are_noticed() {
        let mut log = Log::default();
        log.take(b"[    0.000001] boot: memory 1200\n[    0.1] boot: page tables 13");
        log.take(b"00\r\nfirst-instruction 5000\n[0.2] hello 7\n");
        assert_eq!(
            log.stages,
            [
                ("memory".into(), 1200),
                ("page tables".into(), 1300),
                ("first-instruction".into(), 5000)
            ]
        );
        assert!(!log.panicked);
        log.take(b"panic: no more frames\n");
        assert!(log.panicked);
    }

    #[test]
    fn a_refusal_is_noticed() {
        let mut log = Log::default();
        log.take(b"cannot boot: this processor lacks nx lm\r\n");
        assert_eq!(log.refusal.as_deref(), Some("this processor lacks nx lm"));
    }

    #[test]
    fn what_cannot_be_written_is_told_and_the_rest_is_read() {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let mut log = Log::default();
        let text = b"one\npanic: two\n";
        let end = read(&text[..], Sink::File(full()), |change| change(&mut log));
        assert_eq!(end.map_err(|error| error.kind()), Err(std::io::ErrorKind::StorageFull));
        assert!(log.panicked);
    }

    #[test]
    fn only_the_end_is_kept() {
        let mut log = Log::default();
        for _ in 0..KEPT / 4 {
            log.take(b"12345678");
        }
        assert_eq!(log.text().len(), KEPT);
    }
}
