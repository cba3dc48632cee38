//! The control port: lines of text between init and `./hayate`.
//!
//! To the host: `timing NAME NANOSECONDS`, `error TEXT`, `explained LINE`, and last
//! `exit STATUS OUT ERR` with the number of bytes that went to standard output and standard error.
//! The host answers `done` once it has written them all. Only then does the machine end, so no
//! output is lost in a queue.
//!
//! From the host: `winsize ROWS COLUMNS`, `signal NUMBER`, `close stdout`, `close stderr` (its
//! reader has closed it), `done`.

use crate::port::{self, Mode};
use crate::{Failure, pump::ProgramEnd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// How long init waits for the host's `done`. The host is slow only if the reader of the program's
/// output is slow, which may take any time; this bounds the wait for a host that is gone.
const PATIENCE_SECONDS: i64 = 600;

/// A line from the host.
#[derive(Debug, PartialEq, Eq)]
pub enum HostMessage {
    /// The terminal has this many rows and columns now.
    WindowSize(u16, u16),
    /// Send this signal to the program's process group.
    Signal(i32),
    /// The reader of the program's standard output has closed it.
    CloseOutput,
    /// The reader of the program's standard error has closed it.
    CloseError,
    /// Everything the program wrote has arrived.
    Done,
}

/// The open control port.
pub struct Control {
    port: File,
    unfinished: Vec<u8>,
}

impl Control {
    /// Opens the port.
    pub fn open() -> Result<Control, Failure> {
        let port = port::open(hayate_job::port::CONTROL, Mode::Both)?;
        Ok(Control { port, unfinished: Vec::new() })
    }

    /// Sends one line. An error is not reported: there is no other channel to the host.
    pub fn send(&mut self, line: &str) {
        let line = format!("{}\n", line.replace('\n', " "));
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.port.write(rest) {
                Ok(0) => return,
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.port, PollFlags::OUT)], None);
                }
                Err(_) => return,
            }
        }
    }

    /// Reports how many nanoseconds of guest time have passed since boot.
    pub fn tell_time(&mut self, name: &str) {
        // The C library has looked for this function already; rustix would look for it itself.
        // SAFETY: all zeroes are a valid value of this structure, which outlives the call.
        let now = unsafe {
            let mut now: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
            now
        };
        self.send(&format!("timing {name} {}", now.tv_sec * 1_000_000_000 + now.tv_nsec));
    }

    /// Reads what has arrived. `None`: the host hung up.
    pub fn messages(&mut self) -> Option<Vec<HostMessage>> {
        let mut buffer = [0; 512];
        match self.port.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => self.unfinished.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        let mut messages = Vec::new();
        while let Some(end) = self.unfinished.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            messages.extend(parse(&String::from_utf8_lossy(&line)));
        }
        Some(messages)
    }

    /// Sends the exit status and waits until the host has everything.
    pub fn finish(&mut self, end: &ProgramEnd) {
        self.send(&format!("exit {} {} {}", end.status, end.output, end.error));
        loop {
            let patience = Timespec { tv_sec: PATIENCE_SECONDS, tv_nsec: 0 };
            let mut polled = [PollFd::new(&self.port, PollFlags::IN)];
            match poll(&mut polled, Some(&patience)) {
                Ok(0) => return,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            match self.messages() {
                Some(messages) if !messages.contains(&HostMessage::Done) => {}
                _ => return,
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

/// Parses a line; an unknown one is ignored.
fn parse(line: &str) -> Option<HostMessage> {
    let mut words = line.split_ascii_whitespace();
    let message = match words.next()? {
        "winsize" => {
            HostMessage::WindowSize(words.next()?.parse().ok()?, words.next()?.parse().ok()?)
        }
        "signal" => HostMessage::Signal(words.next()?.parse().ok()?),
        "close" => match words.next()? {
            "stdout" => HostMessage::CloseOutput,
            "stderr" => HostMessage::CloseError,
            _ => return None,
        },
        "done" => HostMessage::Done,
        _ => return None,
    };
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood() {
        assert_eq!(parse("winsize 24 80\n"), Some(HostMessage::WindowSize(24, 80)));
        assert_eq!(parse("signal 2\n"), Some(HostMessage::Signal(2)));
        assert_eq!(parse("close stderr\n"), Some(HostMessage::CloseError));
        assert_eq!(parse("done"), Some(HostMessage::Done));
        assert_eq!(parse("winsize 24\n"), None);
        assert_eq!(parse("signal many\n"), None);
        assert_eq!(parse("\n"), None);
    }
}
