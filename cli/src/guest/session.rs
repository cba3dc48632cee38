//! One run of a machine, from its start to its end.
//!
//! A thread for each stream copies bytes; the thread that called [`Session::run`] owns the child
//! and decides, from one queue of events: lines of the control port, signals that came to
//! `./hayate`, the end of QEMU, time running out. The machine's end is taken for what it is only
//! after the control port and the log have been read to their ends, so that nothing said before
//! a crash is missed.

use super::log::{self, Log, Sink};
use super::qemu::Qemu;
use super::terminal;
use anyhow::{Context, Result};
use hayate_job::port;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a machine may take to end after its program has, or after it was told to.
const GRACE_END: Duration = Duration::from_secs(10);
/// How long a kernel that panicked may take to print and end.
const GRACE_PANIC: Duration = Duration::from_secs(5);
/// The exit status of QEMU when the kernel panicked: the exit device, told 0x7f.
const QEMU_PANIC: i32 = 0xff;

/// How the guest's program is tied to the host.
pub enum Streams {
    /// The host's terminal, already raw.
    Terminal,
    /// Each stream by itself.
    Separate {
        /// What the program reads; `None` if it came along in the initramfs.
        input: Option<Box<dyn Read + Send>>,
        /// Where its standard output goes.
        output: Box<dyn Write + Send>,
        /// Where its standard error goes.
        error: Box<dyn Write + Send>,
    },
    /// No program: the kernel does something by itself and ends the machine.
    None,
}

/// Something that happened.
pub enum Event {
    /// A signal came to `./hayate`.
    Signal(i32),
    /// The terminal has another size.
    Resized,
    /// A line came from the guest's init.
    Line(String),
    /// The control port has ended.
    ControlEnded,
    /// The kernel log has ended.
    LogEnded,
    /// Nobody reads this stream of the program any more.
    Unread(&'static str),
    /// The kernel said that it panicked.
    Panicked,
    /// QEMU ended.
    Ended,
}

/// Why the machine ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The program ended with this status.
    Program(i32),
    /// The kernel panicked.
    Panic,
    /// The time limit passed.
    TimedOut,
    /// This signal, come twice, ended it.
    Killed(i32),
    /// QEMU ended without a word from the guest: its exit status, or -1 on a signal.
    Machine(i32),
}

/// What came of a run.
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// What init could not do.
    pub errors: Vec<String>,
    /// Times that init told, in nanoseconds since the guest's boot, and on the host since the
    /// start of QEMU.
    pub timings: Vec<(String, u64, Duration)>,
    /// What the kernel wrote down of starts that are explained, lines of text.
    pub explained: String,
    /// What could not be written on the host: streams of the program, the log.
    pub unwritten: Vec<String>,
    /// The kernel's messages.
    pub log: Log,
    /// From the start of QEMU to the first byte of the log.
    pub first_word: Option<Duration>,
    /// From the start of QEMU to its end.
    pub total: Duration,
    /// What QEMU said on its standard error.
    pub complaint: String,
    /// The kernel's file.
    pub kernel: PathBuf,
}

/// A machine about to run.
pub struct Session {
    qemu: Qemu,
    streams: Streams,
    timeout: Option<Duration>,
    sink: Sink,
    events: (Sender<Event>, Receiver<Event>),
    held: Vec<UnixStream>,
}

/// Bytes that have gone out to the host's side of the two output streams, and why some did not.
#[derive(Default)]
struct Counts {
    output: AtomicU64,
    error: AtomicU64,
    unwritten: Mutex<Vec<String>>,
}

impl Session {
    /// A session on this machine.
    pub fn new(qemu: Qemu, streams: Streams, sink: Sink, timeout: Option<Duration>) -> Session {
        Session { qemu, streams, timeout, sink, events: channel(), held: Vec::new() }
    }

    /// Where to send signals and changes of size.
    pub fn events(&self) -> Sender<Event> {
        self.events.0.clone()
    }

    /// Starts the machine and stays with it to its end.
    pub fn run(mut self, initramfs: Option<&File>) -> Result<Outcome> {
        let kernel = self.qemu.kernel.clone();
        let counts = Arc::new(Counts::default());
        let (pumps, control) = self.connect(&counts)?;
        let (mut command, log_pipe) = self.qemu.command(initramfs)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().context("cannot start QEMU")?;
        // The command holds our copies of the guest's ends of the sockets.
        drop(command);
        let events = self.events.0.clone();
        let log = Arc::new(Mutex::new(Log::default()));
        let readers = [
            read_log(log_pipe, self.sink, log.clone(), events.clone()),
            read_complaint(child.stderr.take()),
        ];
        await_end(&child, events);
        let pumps: Vec<JoinHandle<()>> = pumps.into_iter().map(|start| start()).collect();
        let mut course = Course {
            control,
            counts: counts.clone(),
            began,
            // Beyond what the clock can hold there is no limit.
            limit: self.timeout.and_then(|limit| began.checked_add(limit)),
            end: None,
            expected: None,
            done: false,
            errors: Vec::new(),
            timings: Vec::new(),
            explained: String::new(),
            interrupted: None,
        };
        let status = course.follow(&self.events.1, &mut child)?;
        let total = began.elapsed();
        for pump in pumps {
            let _ = pump.join();
        }
        let [unlogged, complaint] = readers.map(|reader| reader.join().unwrap_or_default());
        let mut unwritten =
            counts.unwritten.lock().map(|mut list| std::mem::take(&mut *list)).unwrap_or_default();
        unwritten.extend(Some(unlogged).filter(|text| !text.is_empty()));
        let log = Arc::try_unwrap(log).ok().and_then(|log| log.into_inner().ok());
        let log = log.unwrap_or_default();
        let end = course.end.unwrap_or_else(|| {
            let panicked = log.panicked || status.code() == Some(QEMU_PANIC);
            if panicked { End::Panic } else { End::Machine(status.code().unwrap_or(-1)) }
        });
        Ok(Outcome {
            end,
            errors: course.errors,
            timings: course.timings,
            explained: course.explained,
            unwritten,
            first_word: log.first.map(|first| first.duration_since(began)),
            log,
            total,
            complaint,
            kernel,
        })
    }

    /// Makes the ports. The pumps are returned unstarted: none may hold a socket of ours before
    /// QEMU has its own.
    #[expect(clippy::type_complexity, reason = "a list of things to start, used once")]
    fn connect(
        &mut self,
        counts: &Arc<Counts>,
    ) -> Result<(Vec<Box<dyn FnOnce() -> JoinHandle<()>>>, Option<UnixStream>)> {
        let mut pumps: Vec<Box<dyn FnOnce() -> JoinHandle<()>>> = Vec::new();
        let events = self.events.0.clone();
        match std::mem::replace(&mut self.streams, Streams::None) {
            Streams::None => return Ok((pumps, None)),
            Streams::Terminal => {
                let screen = self.qemu.port(port::TTY)?;
                let keys = screen.try_clone()?;
                let counts = counts.clone();
                pumps.push(Box::new(move || {
                    // Never joined: it waits for a key that may not come.
                    std::thread::spawn(|| feed(std::io::stdin(), keys));
                    let output = std::io::stdout();
                    std::thread::spawn(move || {
                        drain(screen, output, &counts, "stdout", &events);
                    })
                }));
            }
            Streams::Separate { input, output, error } => {
                if let Some(input) = input {
                    let feeder = self.qemu.port(port::STDIN)?;
                    // Kept open to the end of the session: see `feed`.
                    self.held.push(feeder.try_clone()?);
                    std::thread::spawn(|| feed(input, feeder));
                }
                let out = self.qemu.port(port::STDOUT)?;
                let err = self.qemu.port(port::STDERR)?;
                let (events2, counts2) = (events.clone(), counts.clone());
                pumps.push(Box::new(move || {
                    std::thread::spawn(move || {
                        drain(out, output, &counts2, "stdout", &events2);
                    })
                }));
                let counts = counts.clone();
                pumps.push(Box::new(move || {
                    std::thread::spawn(move || {
                        drain(err, error, &counts, "stderr", &events);
                    })
                }));
            }
        }
        let control = self.qemu.port(port::CONTROL)?;
        let lines = control.try_clone()?;
        let events = self.events.0.clone();
        pumps.push(Box::new(move || std::thread::spawn(move || read_control(lines, &events))));
        Ok((pumps, Some(control)))
    }
}

/// What is known while the machine runs.
struct Course {
    control: Option<UnixStream>,
    counts: Arc<Counts>,
    began: Instant,
    limit: Option<Instant>,
    end: Option<End>,
    expected: Option<(u64, u64)>,
    done: bool,
    errors: Vec<String>,
    timings: Vec<(String, u64, Duration)>,
    explained: String,
    interrupted: Option<i32>,
}

impl Course {
    /// Handles events until QEMU has ended and everything it said has been read.
    fn follow(&mut self, events: &Receiver<Event>, child: &mut Child) -> Result<ExitStatus> {
        let (mut ended, mut log_open, mut control_open) = (false, true, self.control.is_some());
        while !ended || log_open || control_open {
            self.acknowledge();
            let event = match self.patience() {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => events.recv_timeout(wait),
            };
            match event {
                Ok(Event::Ended) => ended = true,
                Ok(Event::LogEnded) => log_open = false,
                Ok(Event::ControlEnded) => control_open = false,
                Ok(Event::Line(line)) => self.understand(&line),
                Ok(Event::Unread(stream)) => self.tell(&format!("close {stream}")),
                Ok(Event::Resized) => {
                    let (rows, columns) = terminal::size();
                    self.tell(&format!("winsize {rows} {columns}"));
                }
                Ok(Event::Panicked) => {
                    self.end.get_or_insert(End::Panic);
                    self.limit = Some(Instant::now() + GRACE_PANIC);
                }
                Ok(Event::Signal(number)) => self.interrupt(number, child)?,
                Err(RecvTimeoutError::Timeout) => {
                    if self.limit.is_some_and(|limit| Instant::now() >= limit) {
                        let why = self.interrupted.map_or(End::TimedOut, End::Killed);
                        self.end.get_or_insert(why);
                        self.limit = None;
                        child.kill()?;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        child.wait().context("QEMU is lost")
    }

    /// The first signal is the program's. The second one, and any while there is no program yet,
    /// ends the machine; so does the time after a signal that asks to end rather than to stop
    /// what one does.
    fn interrupt(&mut self, number: i32, child: &mut Child) -> Result<()> {
        if self.interrupted.is_some() || self.timings.is_empty() {
            self.end.get_or_insert(End::Killed(number));
            child.kill()?;
            return Ok(());
        }
        self.interrupted = Some(number);
        self.tell(&format!("signal {number}"));
        if number != signal_hook::consts::SIGINT {
            let limit = Instant::now() + GRACE_END;
            self.limit = Some(self.limit.map_or(limit, |known| known.min(limit)));
        }
        Ok(())
    }

    /// How long the next event may take: till the limit, and only a moment while the last bytes
    /// of the program are on their way.
    fn patience(&self) -> Option<Duration> {
        if self.expected.is_some() && !self.done {
            return Some(Duration::from_millis(1));
        }
        self.limit.map(|limit| limit.saturating_duration_since(Instant::now()))
    }

    /// Tells init that everything arrived, once it has.
    fn acknowledge(&mut self) {
        let Some((output, error)) = self.expected else { return };
        let arrived = self.counts.output.load(Ordering::Acquire) >= output
            && self.counts.error.load(Ordering::Acquire) >= error;
        if arrived && !self.done {
            self.done = true;
            self.tell("done");
            self.limit = Some(Instant::now() + GRACE_END);
        }
    }

    fn tell(&mut self, line: &str) {
        if let Some(control) = &mut self.control {
            // A guest that is gone hears nothing; its end is an event of its own.
            let _ = writeln!(control, "{line}");
        }
    }

    fn understand(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut numbers = rest.split(' ').map(str::parse::<u64>);
        match word {
            "exit" => {
                let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
                self.end.get_or_insert(End::Program(next() as i32));
                self.expected = Some((next(), next()));
            }
            "explained" => {
                self.explained.push_str(rest);
                self.explained.push('\n');
            }
            "error" => self.errors.push(rest.to_string()),
            "timing" => {
                if let Some((name, time)) = rest.split_once(' ')
                    && let Ok(time) = time.parse()
                {
                    self.timings.push((name.to_string(), time, self.began.elapsed()));
                }
            }
            _ => {}
        }
    }
}

/// Copies the host's input to the guest, and its end with it.
fn feed(mut input: impl Read, mut guest: UnixStream) {
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
            Err(_) => break,
        }
    }
    // Only this direction, and another handle keeps the socket from closing altogether: then QEMU
    // would drop what it has not passed on yet.
    let _ = guest.shutdown(Shutdown::Write);
}

/// Copies what the guest writes to the host until the machine ends. When the host's reader goes
/// away or the host's disk is full, the guest is told, and what still comes is counted and dropped.
/// The program sees either as a reader that went away; a full disk is told at the end.
fn drain(
    mut guest: UnixStream,
    mut output: impl Write,
    counts: &Counts,
    name: &'static str,
    events: &Sender<Event>,
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
                    let _ = events.send(Event::Unread(name));
                }
                count.fetch_add(length as u64, Ordering::Release);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn read_control(guest: UnixStream, events: &Sender<Event>) {
    use std::io::BufRead;
    for line in std::io::BufReader::new(guest).split(b'\n') {
        let Ok(line) = line else { break };
        let _ = events.send(Event::Line(String::from_utf8_lossy(&line).into_owned()));
    }
    let _ = events.send(Event::ControlEnded);
}

fn read_log(
    pipe: PipeReader,
    sink: Sink,
    log: Arc<Mutex<Log>>,
    events: Sender<Event>,
) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut told = false;
        let written = log::read(pipe, sink, |change| {
            let Ok(mut log) = log.lock() else { return };
            change(&mut log);
            if log.panicked && !told {
                told = true;
                let _ = events.send(Event::Panicked);
            }
        });
        drop(log);
        let _ = events.send(Event::LogEnded);
        written.map_or_else(|error| format!("cannot write the log: {error}"), |()| String::new())
    })
}

fn read_complaint(stderr: Option<std::process::ChildStderr>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).trim_end().to_string()
    })
}

/// Waits for the child's end without reaping it: whoever owns it may still kill it safely.
fn await_end(child: &Child, events: Sender<Event>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        if let Some(pid) = pid {
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        }
        let _ = events.send(Event::Ended);
    });
}
