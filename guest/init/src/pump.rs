//! Carries the program's streams and waits for its end.
//!
//! The program gets pipes, not the ports: a pipe can end, break (`EPIPE`) and be reopened through
//! `/dev/stdin`, as programs expect of their streams. Process 1 copies between pipes and ports in
//! one loop around `poll` ([`Children`]).

use crate::Failure;
use crate::children::Children;
use crate::control::{Control, HostMessage};
use crate::port::{self, Mode};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

const CHUNK: usize = 64 << 10;

/// How the program ended.
#[derive(Default)]
pub struct ProgramEnd {
    /// Its exit status, or 128 and the number of the signal that killed it.
    pub status: i32,
    /// Bytes sent to the host as standard output.
    pub output: u64,
    /// Bytes sent to the host as standard error.
    pub error: u64,
}

/// The three open ports.
pub struct Lines {
    input: File,
    output: File,
    error: File,
}

impl Lines {
    /// Opens the ports, and instead of the input's port the file that came `along` with the job;
    /// `linux` says that the kernel may learn of the host's end a little later.
    pub fn open(along: bool, linux: bool) -> Result<Lines, Failure> {
        let input = if along {
            File::open(hayate_job::INPUT)
                .map_err(|error| Failure::new(format!("{}: {error}", hayate_job::INPUT)))?
        } else {
            port::open(hayate_job::port::STDIN, Mode::Read)?
        };
        let lines = Lines {
            input,
            output: port::open(hayate_job::port::STDOUT, Mode::Write)?,
            error: port::open(hayate_job::port::STDERR, Mode::Write)?,
        };
        if linux && !along {
            port::await_host(&lines.input);
        }
        Ok(lines)
    }

    /// Returns the program's three ends, and the pump that connects the other ends to the ports.
    pub fn pipes(self, owner: Option<(u32, u32)>) -> Result<([OwnedFd; 3], Pump), Failure> {
        let (input, feed) = make_pipe()?;
        let (from_output, output) = make_pipe()?;
        let (from_error, error) = make_pipe()?;
        if let Some((user, group)) = owner {
            for end in [&input, &output, &error] {
                let _ = std::os::unix::fs::fchown(end, Some(user), Some(group));
            }
        }
        unblock(&feed)?;
        unblock(&from_output)?;
        unblock(&from_error)?;
        let pump = Pump {
            input: Stream::new(self.input.into(), feed),
            output: Stream::new(from_output, self.output.into()),
            error: Stream::new(from_error, self.error.into()),
        };
        Ok(([input, output, error], pump))
    }
}

fn make_pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| Failure::new(format!("cannot make a pipe: {error}")))
}

fn unblock(fd: &OwnedFd) -> Result<(), Failure> {
    fcntl_getfl(fd)
        .and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK))
        .map_err(|error| Failure::new(format!("cannot make a pipe non-blocking: {error}")))
}

/// One direction: bytes from `source` to `sink`.
struct Stream {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    buffer: Vec<u8>,
    sent: usize,
    total: u64,
}

impl Stream {
    fn new(source: OwnedFd, sink: OwnedFd) -> Stream {
        Stream { source: Some(source), sink: Some(sink), buffer: Vec::new(), sent: 0, total: 0 }
    }

    fn waiting(&self) -> bool {
        self.sent < self.buffer.len()
    }

    /// Returns what to poll for next: space in the sink while bytes wait, otherwise bytes from the
    /// source. A sink without a reader shows an error condition even when no bytes wait.
    fn interests(&self) -> [libc::pollfd; 2] {
        let entry = |fd: &Option<OwnedFd>, events, wanted| libc::pollfd {
            fd: fd.as_ref().filter(|_| wanted).map_or(-1, |fd| fd.as_raw_fd()),
            events,
            revents: 0,
        };
        [
            entry(&self.source, libc::POLLIN, !self.waiting()),
            entry(&self.sink, libc::POLLOUT, self.waiting()),
        ]
    }

    /// Moves as many bytes as possible without waiting. Returns whether any were moved.
    fn turn(&mut self) -> bool {
        let mut moved = false;
        if !self.waiting()
            && let Some(source) = &self.source
        {
            self.buffer.resize(CHUNK, 0);
            self.sent = 0;
            match rustix::io::read(source, &mut self.buffer[..]) {
                Ok(0) => {
                    self.buffer.clear();
                    self.source = None;
                }
                Ok(count) => {
                    self.buffer.truncate(count);
                    moved = true;
                }
                Err(Errno::AGAIN | Errno::INTR) => self.buffer.clear(),
                Err(_) => {
                    self.buffer.clear();
                    self.source = None;
                }
            }
        }
        if self.waiting()
            && let Some(sink) = &self.sink
        {
            match rustix::io::write(sink, &self.buffer[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.total += count as u64;
                    moved = true;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The reader has closed it.
                Err(_) => self.close(),
            }
        }
        if self.source.is_none() && !self.waiting() {
            self.sink = None;
        }
        moved
    }

    fn close(&mut self) {
        self.source = None;
        self.sink = None;
        self.buffer.clear();
        self.sent = 0;
    }
}

/// The three directions of one program.
pub struct Pump {
    input: Stream,
    output: Stream,
    error: Stream,
}

impl Pump {
    /// Copies until the program has ended and all its output is on its way.
    pub fn run(
        mut self,
        program: Pid,
        control: &mut Control,
        children: &Children,
    ) -> Result<ProgramEnd, Failure> {
        let mut listening = true;
        let status = loop {
            if let Some(status) = reap(program) {
                break status;
            }
            let [in_source, in_sink] = self.input.interests();
            let [out_source, out_sink] = self.output.interests();
            let [err_source, err_sink] = self.error.interests();
            let order = libc::pollfd {
                fd: if listening { as_raw(control) } else { -1 },
                events: libc::POLLIN,
                revents: 0,
            };
            let mut entries =
                [in_source, in_sink, out_source, out_sink, err_source, err_sink, order];
            children.poll(&mut entries);
            let ready = |range: std::ops::Range<usize>| {
                entries[range].iter().any(|entry| entry.revents != 0)
            };
            if ready(0..2) {
                self.input.turn();
            }
            if ready(2..4) {
                self.output.turn();
            }
            if ready(4..6) {
                self.error.turn();
            }
            if ready(6..7) {
                listening = self.obey(program, control);
            }
        };
        self.drain(control, children);
        Ok(ProgramEnd { status, output: self.output.total, error: self.error.total })
    }

    /// Carries out the host's messages. Returns whether the host is still there.
    fn obey(&mut self, program: Pid, control: &mut Control) -> bool {
        let Some(messages) = control.messages() else { return false };
        for message in messages {
            match message {
                HostMessage::Signal(number) => send(program, number),
                HostMessage::CloseOutput => self.output.close(),
                HostMessage::CloseError => self.error.close(),
                HostMessage::WindowSize(..) | HostMessage::Done => {}
            }
        }
        true
    }

    /// Sends the remaining content of the pipes after the program has ended. Does not wait for a
    /// process that the program left behind with the pipe open.
    fn drain(&mut self, control: &mut Control, children: &Children) {
        self.input.close();
        for _ in 0..u32::MAX {
            let moved = self.output.turn() | self.error.turn();
            if moved {
                continue;
            }
            if !self.output.waiting() && !self.error.waiting() {
                return;
            }
            let order = libc::pollfd { fd: as_raw(control), events: libc::POLLIN, revents: 0 };
            let mut entries = [self.output.interests()[1], self.error.interests()[1], order];
            children.poll(&mut entries);
            if entries[2].revents != 0 && !self.obey_end(control) {
                return;
            }
        }
    }

    fn obey_end(&mut self, control: &mut Control) -> bool {
        let Some(messages) = control.messages() else { return false };
        for message in messages {
            match message {
                HostMessage::CloseOutput => self.output.close(),
                HostMessage::CloseError => self.error.close(),
                _ => {}
            }
        }
        true
    }
}

/// Waits for the end of a program whose streams need no copying. `other` gets the messages that are
/// not signals.
pub fn watch(
    program: Pid,
    control: &mut Control,
    children: &Children,
    mut other: impl FnMut(HostMessage),
) -> Result<i32, Failure> {
    let mut listening = true;
    loop {
        if let Some(status) = reap(program) {
            return Ok(status);
        }
        let fd = if listening { as_raw(control) } else { -1 };
        let mut entries = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        children.poll(&mut entries);
        if entries[0].revents != 0 {
            match control.messages() {
                None => listening = false,
                Some(messages) => {
                    for message in messages {
                        match message {
                            HostMessage::Signal(number) => send(program, number),
                            message => other(message),
                        }
                    }
                }
            }
        }
    }
}

fn as_raw(control: &Control) -> i32 {
    std::os::fd::AsFd::as_fd(control).as_raw_fd()
}

fn send(program: Pid, number: i32) {
    if let Some(signal) = Signal::from_named_raw(number) {
        // The program leads its session and therefore its group; it may have just ended.
        let _ = kill_process_group(program, signal);
    }
}

/// Reaps every child that has ended. Returns the status of the program if it is among them.
fn reap(program: Pid) -> Option<i32> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == program {
            let killed = status.terminating_signal().map(|signal| 128 + signal);
            return status.exit_status().or(killed);
        }
    }
    None
}
