//! The streams of a guest's program, and the threads that copy their bytes.
//!
//! The host's side outlives a start of the machine, the sockets do not. If a machine is started a
//! second time, the second start gets all input: the host's input is not read before the first byte
//! from the guest.

use super::event::{MachineEvent, Reporter};
use super::qemu::Qemu;
use anyhow::Result;
use hayate_job::port;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How the guest's program is connected to the host.
pub enum Streams {
    /// The host's terminal, already raw.
    Terminal,
    /// Each stream by itself.
    Separate {
        /// The program's input; `None` if it came with the initramfs.
        input: Option<Box<dyn Read + Send>>,
        /// The destination of its standard output.
        output: Box<dyn Write + Send>,
        /// The destination of its standard error.
        error: Box<dyn Write + Send>,
    },
    /// Any number of programs: the host's end of the channel of each start goes to this receiver.
    Channel(Sender<UnixStream>),
    /// No program: the kernel works by itself and ends the machine.
    None,
}

/// A stream from the host; taken when the first byte came from the guest.
type Input = Arc<Mutex<Option<Box<dyn Read + Send>>>>;
/// A stream to the host.
type Output = Arc<Mutex<Box<dyn Write + Send>>>;
/// A thread that has not been started yet.
type Pump = Box<dyn FnOnce() -> JoinHandle<()>>;

/// The host's side of the streams, for every start of the machine.
pub enum HostStreams {
    /// [`Streams::Terminal`].
    Terminal,
    /// [`Streams::Separate`].
    Separate {
        /// The program's input.
        input: Option<Input>,
        /// Standard output.
        output: Output,
        /// Standard error.
        error: Output,
    },
    /// [`Streams::Channel`].
    Channel(Sender<UnixStream>),
    /// [`Streams::None`].
    None,
}

/// Bytes written to the host's side of the two output streams, and errors.
#[derive(Default)]
pub struct Counts {
    /// Of standard output.
    pub output: AtomicU64,
    /// Of standard error.
    pub error: AtomicU64,
    /// Errors of writing these streams and the log.
    pub unwritten: Mutex<Vec<String>>,
    /// Why the input could not be read.
    pub unread: Mutex<Option<String>>,
}

/// The host's ends of the sockets of one start.
#[derive(Default)]
pub struct Wires {
    /// Threads, not started yet: none may hold a socket of this side before QEMU has its own.
    pub pumps: Vec<Pump>,
    /// Threads that wait for input of the host, which may never arrive: never joined.
    feeders: Vec<Pump>,
    /// The connection to init.
    pub control: Option<UnixStream>,
    /// All sockets of this side: kept open to the end ([`feed`]), and then shut.
    ours: Vec<UnixStream>,
}

impl HostStreams {
    /// Returns the host's side of these streams.
    pub fn new(streams: Streams) -> HostStreams {
        match streams {
            Streams::Terminal => HostStreams::Terminal,
            Streams::Channel(receiver) => HostStreams::Channel(receiver),
            Streams::None => HostStreams::None,
            Streams::Separate { input, output, error } => HostStreams::Separate {
                input: input.map(|input| Arc::new(Mutex::new(Some(input)))),
                output: Arc::new(Mutex::new(output)),
                error: Arc::new(Mutex::new(error)),
            },
        }
    }

    /// Adds the machine's ports, and connects them to the host.
    pub fn connect(
        &self,
        qemu: &mut Qemu,
        reporter: &Reporter,
        counts: &Arc<Counts>,
    ) -> Result<Wires> {
        let mut wires = Wires::default();
        match self {
            HostStreams::None => return Ok(wires),
            HostStreams::Terminal => {
                let screen = wires.port(qemu, port::TTY)?;
                let keyboard: Box<dyn Read + Send> = Box::new(std::io::stdin());
                let keyboard = Arc::new(Mutex::new(Some(keyboard)));
                wires.input(keyboard, screen.try_clone()?, counts, reporter);
                let output = Arc::new(Mutex::new(Box::new(std::io::stdout()) as _));
                wires.output(screen, output, "stdout", counts, reporter);
            }
            HostStreams::Channel(receiver) => {
                let (guest, receiver) = (wires.port(qemu, port::CHANNEL)?, receiver.clone());
                wires
                    .pumps
                    .push(Box::new(move || std::thread::spawn(move || drop(receiver.send(guest)))));
            }
            HostStreams::Separate { input, output, error } => {
                if let Some(input) = input {
                    let feeder = wires.port(qemu, port::STDIN)?;
                    wires.input(input.clone(), feeder, counts, reporter);
                }
                let (out, err) = (wires.port(qemu, port::STDOUT)?, wires.port(qemu, port::STDERR)?);
                let (output, error) = (output.clone(), error.clone());
                wires.output(out, output, "stdout", counts, reporter);
                wires.output(err, error, "stderr", counts, reporter);
            }
        }
        let control = wires.port(qemu, port::CONTROL)?;
        let (lines, reporter) = (control.try_clone()?, reporter.clone());
        wires
            .pumps
            .push(Box::new(move || std::thread::spawn(move || read_control(lines, &reporter))));
        wires.control = Some(control);
        Ok(wires)
    }
}

impl Wires {
    fn port(&mut self, qemu: &mut Qemu, name: &'static str) -> Result<UnixStream> {
        let ours = qemu.port(name)?;
        self.ours.push(ours.try_clone()?);
        Ok(ours)
    }

    fn input(
        &mut self,
        input: Input,
        guest: UnixStream,
        counts: &Arc<Counts>,
        reporter: &Reporter,
    ) {
        let (counts, reporter) = (counts.clone(), reporter.clone());
        self.feeders.push(Box::new(move || {
            std::thread::spawn(move || {
                // A silent machine gets no input: the next start may need it.
                if !reporter.first_output().wait() {
                    return;
                }
                let input = input.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(input) = input {
                    feed(input, guest, &counts);
                }
            })
        }));
    }

    fn output(
        &mut self,
        guest: UnixStream,
        output: Output,
        name: &'static str,
        counts: &Arc<Counts>,
        reporter: &Reporter,
    ) {
        let (counts, reporter) = (counts.clone(), reporter.clone());
        self.pumps.push(Box::new(move || {
            std::thread::spawn(move || drain(guest, &output, &counts, name, &reporter))
        }));
    }

    /// Starts the threads, and returns those that end with the machine.
    pub fn start(&mut self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.feeders).into_iter().for_each(|start| drop(start()));
        std::mem::take(&mut self.pumps).into_iter().map(|start| start()).collect()
    }

    /// Ends the threads of a machine that may still be running.
    pub fn shut(&self) {
        for socket in &self.ours {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Copies the host's input, and its end, to the guest. An unreadable input ends, and the error is
/// reported; but an input that was opened for writing only, as nohup(1) does it, is treated as
/// empty.
fn feed(mut input: impl Read, mut guest: UnixStream, counts: &Counts) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                if guest.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                if error.raw_os_error() != Some(rustix::io::Errno::BADF.raw_os_error())
                    && let Ok(mut unread) = counts.unread.lock()
                {
                    *unread = Some(format!("cannot read standard input: {error}"));
                }
                break;
            }
        }
    }
    // Only this direction, and another handle keeps the socket from closing altogether: otherwise
    // QEMU would drop data that it has not passed on yet.
    let _ = guest.shutdown(Shutdown::Write);
}

/// Copies the guest's output to the host until the machine ends. When the host's reader closes the
/// stream or the host's disk is full, the guest is told, and later output is counted and dropped.
/// The program sees both as a closed reader; a full disk is reported at the end.
fn drain(
    mut guest: UnixStream,
    output: &Mutex<Box<dyn Write + Send>>,
    counts: &Counts,
    name: &'static str,
    reporter: &Reporter,
) {
    let (count, shown) = match name {
        "stderr" => (&counts.error, "standard error"),
        _ => (&counts.output, "standard output"),
    };
    let mut buffer = vec![0; 64 << 10];
    let mut read = true;
    loop {
        match guest.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                reporter.heard();
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                if read
                    && let Err(error) =
                        output.write_all(&buffer[..length]).and_then(|()| output.flush())
                {
                    read = false;
                    if error.kind() != ErrorKind::BrokenPipe
                        && let Ok(mut unwritten) = counts.unwritten.lock()
                    {
                        unwritten.push(format!("cannot write {shown}: {error}"));
                    }
                    reporter.send(MachineEvent::ReaderClosed(name));
                }
                count.fetch_add(length as u64, Ordering::Release);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Passes on the lines of the guest's init.
fn read_control(guest: UnixStream, reporter: &Reporter) {
    for line in BufReader::new(guest).split(b'\n') {
        let Ok(line) = line else { break };
        reporter.heard();
        reporter.send(MachineEvent::Line(String::from_utf8_lossy(&line).into_owned()));
    }
    reporter.send(MachineEvent::ControlEnded);
}
