//! One program of a machine that stays: its pipes or its terminal, and the bytes between them and
//! the channel.

use super::outbox::Outbox;
use crate::Failure;
use crate::program::{self, Program, Surroundings, Task};
use hayate_channel::frame::{MOST_DATA, Message, Stream};
use hayate_channel::window::{Allowance, Receipts};
use rustix::fs::{Mode, OFlags, fchown, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Pid, Signal, Uid, kill_process_group};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a program may go on after its user left, before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// The key that ends a terminal's input, unless a program has set another (VEOF).
const END_OF_INPUT: u8 = 4;

/// A program with its streams.
pub struct Session {
    number: u32,
    program: Pid,
    status: Option<u8>,
    input: Option<Input>,
    outputs: Vec<Output>,
    /// The terminal's other end.
    screen: Option<OwnedFd>,
    /// Whether the host still has a client for it.
    wanted: bool,
    /// When it is killed.
    deadline: Option<Instant>,
}

struct Input {
    fd: OwnedFd,
    waiting: Vec<u8>,
    sent: usize,
    /// Whether the host said that nothing follows.
    ended: bool,
    receipts: Receipts,
}

struct Output {
    stream: Stream,
    fd: OwnedFd,
    allowance: Allowance,
}

/// The ends of a program's streams.
struct Ends {
    program: [OwnedFd; 3],
    input: Option<OwnedFd>,
    outputs: Vec<(Stream, OwnedFd)>,
    screen: Option<OwnedFd>,
    /// The terminal, kept open until the program has it.
    terminal: Option<OwnedFd>,
}

impl Session {
    /// Starts the program.
    ///
    /// # Errors
    /// Why it was not started, with the status of a shell.
    pub fn start(
        number: u32,
        task: &Task,
        size: Option<(u16, u16)>,
        surroundings: &Surroundings,
        with_input: bool,
    ) -> Result<Session, Failure> {
        let found = Program::of(task)?;
        let owner = surroundings.identity.as_ref().map_or(task.user, |who| (who.user, who.group));
        let ends = match size {
            Some(size) => terminal(size, owner)?,
            None => pipes(with_input, owner)?,
        };
        let terminal = ends.terminal.as_ref().map(AsRawFd::as_raw_fd);
        let program = program::launch(found, task, ends.program, terminal, surroundings)?;
        let input = ends.input.map(|fd| Input {
            fd,
            waiting: Vec::new(),
            sent: 0,
            ended: false,
            receipts: Receipts::default(),
        });
        let outputs = ends.outputs.into_iter().map(|(stream, fd)| Output {
            stream,
            fd,
            allowance: Allowance::default(),
        });
        Ok(Session {
            number,
            program,
            status: None,
            input,
            outputs: outputs.collect(),
            screen: ends.screen,
            wanted: true,
            deadline: None,
        })
    }

    /// The process that leads it.
    pub fn program(&self) -> Pid {
        self.program
    }

    /// Whether its program has ended; others may still write where it did.
    pub fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// Whether it has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.screen.is_some()
    }

    /// When something is to be done about it at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The program has ended.
    pub fn ended(&mut self, status: u8) {
        self.status = Some(status);
        self.input = None;
        self.deadline = None;
    }

    /// Carries out a message of the host.
    pub fn obey(&mut self, message: Message, out: &mut Outbox) {
        match message {
            Message::Data(_, bytes) => {
                if let Some(input) = &mut self.input {
                    input.waiting.extend_from_slice(&bytes);
                    self.feed(out);
                }
            }
            Message::Close(Stream::Input) => {
                let terminal = self.has_terminal();
                if let Some(input) = &mut self.input {
                    if terminal {
                        input.waiting.push(END_OF_INPUT);
                    }
                    input.ended = !terminal;
                    self.feed(out);
                }
            }
            Message::Close(stream) => self.outputs.retain(|output| output.stream != stream),
            Message::Credit(stream, bytes) => {
                for output in self.outputs.iter_mut().filter(|output| output.stream == stream) {
                    // The host checked it; more than a window would only be its own loss.
                    let _ = output.allowance.grant(bytes);
                }
            }
            Message::Signal(number) => self.signal(i32::from(number)),
            Message::Resize(rows, columns) => {
                if let Some(screen) = &self.screen {
                    resize(screen, (rows, columns));
                }
            }
            Message::Hangup => self.hang_up(),
            _ => {}
        }
    }

    /// Sends a signal to the program's process group.
    fn signal(&self, number: i32) {
        // Once it is reaped its number may be another's.
        if self.status.is_none()
            && let Some(signal) = Signal::from_named_raw(number)
        {
            let _ = kill_process_group(self.program, signal);
        }
    }

    /// Its user is gone: it is told so, as by a terminal that is hung up, and killed if it stays.
    pub fn hang_up(&mut self) {
        self.wanted = false;
        self.input = None;
        self.outputs.clear();
        // The terminal's own processes are told by the kernel, when its other end is closed.
        self.screen = None;
        self.signal(libc::SIGHUP);
        self.signal(libc::SIGCONT);
        self.deadline = Some(Instant::now() + GRACE);
    }

    /// Does what is due.
    pub fn check_deadline(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.signal(libc::SIGKILL);
        }
    }

    /// Adds what to wait for.
    pub fn interests(&self, room: bool, entries: &mut Vec<libc::pollfd>) {
        // Without bytes to write a closed reader is nothing to act upon, as with any pipe.
        if let Some(input) = self.input.as_ref().filter(|input| input.sent < input.waiting.len()) {
            let events = libc::POLLOUT;
            entries.push(libc::pollfd { fd: input.fd.as_raw_fd(), events, revents: 0 });
        }
        for output in self.outputs.iter().filter(|output| room && output.allowance.left() > 0) {
            entries.push(libc::pollfd {
                fd: output.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            });
        }
    }

    /// Moves what can be moved without waiting. True: the session is over, and its last message is
    /// on its way.
    pub fn turn(&mut self, buffer: &mut [u8], out: &mut Outbox) -> bool {
        self.feed(out);
        let mut index = 0;
        while index < self.outputs.len() {
            if self.drain(index, buffer, out) {
                self.outputs.remove(index);
            } else {
                index += 1;
            }
        }
        match self.status {
            Some(status) if self.outputs.is_empty() => {
                if self.wanted {
                    out.send(self.number, Message::Exit(status));
                }
                true
            }
            _ => false,
        }
    }

    /// Writes input to the program.
    fn feed(&mut self, out: &mut Outbox) {
        let Some(input) = &mut self.input else { return };
        while input.sent < input.waiting.len() {
            match rustix::io::write(&input.fd, &input.waiting[input.sent..]) {
                Ok(count) => {
                    input.sent += count;
                    if let Some(credit) = input.receipts.passed_on(count) {
                        out.send(self.number, Message::Credit(Stream::Input, credit));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The program has closed it.
                Err(_) => {
                    out.send(self.number, Message::Close(Stream::Input));
                    self.input = None;
                    return;
                }
            }
        }
        input.waiting.clear();
        input.sent = 0;
        if input.ended {
            self.input = None;
        }
    }

    /// Passes output on, as much as the host and the channel take. True: there is no more. Once the
    /// program has ended that is when nothing is left: processes that it left behind with the
    /// stream are not waited for.
    fn drain(&mut self, index: usize, buffer: &mut [u8], out: &mut Outbox) -> bool {
        let over = self.status.is_some();
        let output = &mut self.outputs[index];
        loop {
            let most = output.allowance.left().min(MOST_DATA);
            if most == 0 || !out.has_room() {
                return false;
            }
            match rustix::io::read(&output.fd, &mut buffer[..most]) {
                Ok(count @ 1..) => {
                    let _ = output.allowance.spend(count);
                    let bytes = buffer[..count].to_vec();
                    out.send(self.number, Message::Data(output.stream, bytes));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return over,
                // The end of a pipe, or (EIO) of all that have the terminal open.
                Ok(_) | Err(_) => {
                    if !over {
                        out.send(self.number, Message::Close(output.stream));
                    }
                    return true;
                }
            }
        }
    }
}

fn pipes(with_input: bool, owner: (u32, u32)) -> Result<Ends, Failure> {
    let (from_output, output) = make_pipe(owner)?;
    let (from_error, error) = make_pipe(owner)?;
    unblock(&from_output)?;
    unblock(&from_error)?;
    let (input, feed) = if with_input {
        let (input, feed) = make_pipe(owner)?;
        unblock(&feed)?;
        (input, Some(feed))
    } else {
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        (null.map_err(|error| Failure::new(format!("cannot open /dev/null: {error}")))?, None)
    };
    Ok(Ends {
        program: [input, output, error],
        input: feed,
        outputs: vec![(Stream::Output, from_output), (Stream::Error, from_error)],
        screen: None,
        terminal: None,
    })
}

fn terminal(size: (u16, u16), owner: (u32, u32)) -> Result<Ends, Failure> {
    let lost = |error: &dyn std::fmt::Display| {
        Failure::new(format!("cannot make a terminal in the guest: {error}"))
    };
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let screen = openpt(flags).map_err(|error| lost(&error))?;
    unlockpt(&screen).map_err(|error| lost(&error))?;
    let name = ptsname(&screen, Vec::new()).map_err(|error| lost(&error))?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = open(&name, flags, Mode::empty()).map_err(|error| lost(&error))?;
    give(&terminal, owner);
    resize(&screen, size);
    unblock(&screen)?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(|error| lost(&error));
    Ok(Ends {
        program: [copy(&terminal)?, copy(&terminal)?, copy(&terminal)?],
        input: Some(copy(&screen)?),
        outputs: vec![(Stream::Output, copy(&screen)?)],
        screen: Some(screen),
        terminal: Some(terminal),
    })
}

/// Gives a stream to the program's user, who may open it again by `/dev/stdout`.
fn give(fd: &OwnedFd, (user, group): (u32, u32)) {
    if user != 0 {
        let _ = fchown(fd, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    }
}

fn resize(screen: &OwnedFd, (rows, columns): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // A terminal without a size is inconvenient, but no reason to stop.
    let _ = tcsetwinsize(screen, size);
}

fn make_pipe(owner: (u32, u32)) -> Result<(OwnedFd, OwnedFd), Failure> {
    let ends = pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| Failure::new(format!("cannot make a pipe: {error}")))?;
    give(&ends.0, owner);
    Ok(ends)
}

fn unblock(fd: &OwnedFd) -> Result<(), Failure> {
    // Neither a pipe nor a terminal has another flag that could be changed.
    fcntl_setfl(fd, OFlags::NONBLOCK)
        .map_err(|error| Failure::new(format!("cannot make a stream non-blocking: {error}")))
}
