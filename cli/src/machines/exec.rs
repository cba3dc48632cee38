//! `./hayate exec`: one program in a machine that runs, as a client of its hub.
//!
//! A thread reads this command's input, one its signals; the calling thread writes what the program
//! prints. When this process ends in any way, its connection does, and the program is told.

use super::directory::Machines;
use crate::arguments::machines::Exec;
use crate::failure::{FAULT, Failure};
use crate::guest::terminal;
use crate::run::standard;
use anyhow::{Context, Result, bail, ensure};
use hayate_channel::command::Command;
use hayate_channel::frame::{Decoder, Frame, MOST_COMMAND, MOST_DATA, Message, Side, Stream};
use hayate_channel::window::{Allowance, Receipts};
use hayate_channel::{FIRST, VERSION};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The connection to the machine, as its writers share it.
#[derive(Clone)]
pub struct Line(Arc<Mutex<UnixStream>>);

impl Line {
    /// A line by this connection.
    pub fn new(socket: &UnixStream) -> Result<Line> {
        Ok(Line(Arc::new(Mutex::new(socket.try_clone().context("cannot duplicate a socket")?))))
    }

    /// Sends a message. If the machine is gone it is lost; the reader notices.
    pub fn send(&self, message: Message) {
        let bytes = Frame::new(FIRST, message).encode();
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes);
    }
}

/// How much input may be sent, and whether the program wants any.
#[derive(Default)]
pub struct Room {
    state: Mutex<(Allowance, bool)>,
    changed: Condvar,
}

impl Room {
    /// Waits until something may be sent, and takes as much of that as is wanted. `None`: the
    /// program has closed its input.
    fn take(&self, wanted: usize) -> Option<usize> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |state: &mut (Allowance, bool)| state.0.left() == 0 && !state.1;
        let mut state =
            self.changed.wait_while(state, full).unwrap_or_else(PoisonError::into_inner);
        let count = wanted.min(state.0.left());
        (!state.1 && state.0.spend(count).is_ok()).then_some(count)
    }

    fn change(&self, change: impl FnOnce(&mut (Allowance, bool))) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// `./hayate exec`.
pub fn exec(options: &Exec) -> Result<u8> {
    let machine = Machines::open()?.find(&options.name)?;
    let socket = machine.connect()?;
    let on_terminal = !options.no_tty && (options.tty || terminal::present());
    let command = Command {
        arguments: options.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: environment(options, on_terminal),
        directory: options.directory.as_ref().map(|path| path.as_bytes().to_vec()),
        user: options.user.as_ref().map(|user| user.as_bytes().to_vec()),
        terminal: on_terminal.then(terminal::size),
        ..Command::default()
    };
    pass_signals_on(Line::new(&socket)?, None)?;
    if on_terminal {
        terminal::make_raw();
    }
    let input = Box::new(standard(rustix::stdio::stdin())?);
    let outputs = [standard(rustix::stdio::stdout())?, standard(rustix::stdio::stderr())?];
    let end = converse(&machine.name, &socket, command, Some(input), outputs, &|| ());
    terminal::restore();
    match end? {
        End::Status(status) => Ok(status),
        End::Failed(status, text) => Err(Failure::error(status, text)),
    }
}

fn environment(options: &Exec, on_terminal: bool) -> Vec<Vec<u8>> {
    let mut variables = Vec::new();
    if on_terminal {
        let kind = std::env::var_os("TERM").unwrap_or_else(|| "vt100".into());
        variables.push([b"TERM=", kind.as_bytes()].concat());
    }
    for given in &options.env {
        let bytes = given.as_bytes();
        if bytes.contains(&b'=') {
            variables.push(bytes.to_vec());
        } else if let Some(value) = std::env::var_os(given) {
            variables.push([bytes, b"=", value.as_bytes()].concat());
        }
    }
    variables
}

/// How a program of the machine ended.
pub enum End {
    /// With this status.
    Status(u8),
    /// It was not started.
    Failed(u8, String),
}

/// Runs a program by this connection: passes `input` to it, and what it prints to the two outputs.
/// `ready` is called when the machine says that it takes programs.
///
/// # Errors
/// The machine ended meanwhile, or the output could not be written.
pub fn converse<W: Write>(
    name: &str,
    socket: &UnixStream,
    command: Command,
    input: Option<Box<dyn Read + Send>>,
    outputs: [W; 2],
    ready: &dyn Fn(),
) -> Result<End> {
    ensure!(command.encode().len() <= MOST_COMMAND, "the command and its environment are too long");
    let line = Line::new(socket)?;
    line.send(Message::Open(Box::new(command)));
    let room = Arc::new(Room::default());
    let unread = Arc::new(Mutex::new(None));
    match input {
        Some(input) => {
            let (line, room, unread) = (line.clone(), room.clone(), unread.clone());
            std::thread::spawn(move || feed(input, &line, &room, &unread));
        }
        None => line.send(Message::Close(Stream::Input)),
    }
    let mut client =
        Client { line, room, outputs, receipts: Default::default(), unwritten: [None, None] };
    let end = client.listen(name, socket, ready)?;
    for (error, which) in client.unwritten.iter().zip(["output", "error"]) {
        if let Some(error) = error.as_ref().filter(|error| error.kind() != ErrorKind::BrokenPipe) {
            let ended = match &end {
                End::Status(status) => format!("; the program ended with status {status}"),
                End::Failed(..) => String::new(),
            };
            bail!("cannot write standard {which}: {error}{ended}");
        }
    }
    if let Some(error) = unread.lock().unwrap_or_else(PoisonError::into_inner).take() {
        terminal::say(&error);
    }
    Ok(end)
}

/// The side of a client that hears.
struct Client<W> {
    line: Line,
    room: Arc<Room>,
    outputs: [W; 2],
    receipts: [Receipts; 2],
    unwritten: [Option<std::io::Error>; 2],
}

impl<W: Write> Client<W> {
    /// Handles what the machine says, until the program has ended.
    fn listen(&mut self, name: &str, mut socket: &UnixStream, ready: &dyn Fn()) -> Result<End> {
        let mut decoder = Decoder::new(Side::Guest);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match decoder.frame() {
                Ok(Some(Frame { message: Message::Exit(status), .. })) => {
                    return Ok(End::Status(status));
                }
                Ok(Some(Frame { message: Message::Failed(status, text), .. })) => {
                    return Ok(End::Failed(status, text));
                }
                Ok(Some(Frame { message: Message::Hello(version), .. })) => {
                    ensure!(
                        version == VERSION,
                        "the machine {name} was started by another version of Hayate; \
                         ./hayate rm -f {name}, and start it again"
                    );
                    ready();
                }
                Ok(Some(frame)) => self.take(frame.message),
                Ok(None) => match socket.read(&mut buffer) {
                    Ok(count @ 1..) => decoder.push(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => {
                        let text = format!("the machine {name} ended while the program ran");
                        return Err(Failure::error(FAULT, text));
                    }
                },
                Err(error) => bail!("the machine {name} sent {error}"),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Data(stream, bytes) => {
                let index = usize::from(stream == Stream::Error);
                let output = &mut self.outputs[index];
                if self.unwritten[index].is_none()
                    && let Err(error) = output.write_all(&bytes).and_then(|()| output.flush())
                {
                    // The program is told as by a pipe whose reader has gone.
                    self.unwritten[index] = Some(error);
                    self.line.send(Message::Close(stream));
                }
                if let Some(credit) = self.receipts[index].passed_on(bytes.len()) {
                    self.line.send(Message::Credit(stream, credit));
                }
            }
            Message::Credit(_, bytes) => self.room.change(|(allowance, _)| {
                // The hub has checked it.
                let _ = allowance.grant(bytes);
            }),
            Message::Close(Stream::Input) => self.room.change(|(_, closed)| *closed = true),
            _ => {}
        }
    }
}

/// Passes input on, and its end. An input that was opened for writing only, as nohup(1) does it, is
/// treated as empty.
fn feed(mut input: impl Read, line: &Line, room: &Room, unread: &Mutex<Option<String>>) {
    let mut buffer = vec![0; MOST_DATA];
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                if error.raw_os_error() != Some(rustix::io::Errno::BADF.raw_os_error()) {
                    let text = format!("cannot read standard input: {error}");
                    *unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                }
                break;
            }
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let Some(count) = room.take(rest.len()) else { return };
            let (piece, later) = rest.split_at(count);
            line.send(Message::Data(Stream::Input, piece.to_vec()));
            rest = later;
        }
    }
    line.send(Message::Close(Stream::Input));
}

/// Passes signals on to the program. A second one that asks it to end ends this command, and with
/// it the program; with a `grace`, so does the first one (but SIGINT) when the program has not
/// ended in that time.
pub fn pass_signals_on(line: Line, grace: Option<Duration>) -> Result<()> {
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH];
    let mut signals = signal_hook::iterator::Signals::new(all)?;
    let end = |number: i32| {
        terminal::restore();
        std::process::exit(128 + number)
    };
    std::thread::spawn(move || {
        let mut before = false;
        for number in signals.forever() {
            if number == SIGWINCH {
                let (rows, columns) = terminal::size();
                line.send(Message::Resize(rows, columns));
                continue;
            }
            if before {
                end(number);
            }
            before = true;
            line.send(Message::Signal(u8::try_from(number).unwrap_or_default()));
            if let Some(grace) = grace.filter(|_| number != SIGINT) {
                std::thread::spawn(move || {
                    std::thread::sleep(grace);
                    end(number);
                });
            }
        }
    });
    Ok(())
}
