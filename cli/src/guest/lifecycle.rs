//! The state of a running machine, and the decisions about it: the messages to the guest, and the
//! time limits of the machine.
//!
//! Every wait is bounded: also for a machine that QEMU stopped, for one whose kernel is silent, and
//! for one that does not end when it is killed.

use super::event::{Event, MachineEvent, Reporter};
use super::machine_fault::MachineFault;
use super::qmp::QmpMessage;
use super::session::End;
use super::streams::Counts;
use super::terminal;
use crate::failure::FAULT;
use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a machine may take to end after its program, or after it was told to end.
const GRACE_END: Duration = Duration::from_secs(10);
/// How long a kernel that panicked may take to print and end.
const GRACE_PANIC: Duration = Duration::from_secs(5);
/// How long QEMU may take to report the state in which it stopped.
const GRACE_STATE: Duration = Duration::from_secs(2);
/// How long a killed QEMU may take to end. If one of its threads hangs in the host's kernel it does
/// not end; it holds nothing that is needed, and ends when that kernel releases it.
const GRACE_KILLED: Duration = Duration::from_secs(5);

/// States in which a machine will not run again, even if a user examines it.
const FATAL: [&str; 4] = ["internal-error", "io-error", "guest-panicked", "watchdog"];
/// The state of a machine that was paused by a command.
const PAUSED: &str = "paused";

/// The state of a machine that runs.
pub struct Lifecycle {
    control: Option<UnixStream>,
    counts: Arc<Counts>,
    began: Instant,
    limit: Option<Instant>,
    /// The deadline of the kernel's first output.
    silence: Option<Instant>,
    /// Whether a user examines the machine.
    examined: bool,
    /// Whether the machine may be killed once its program's output has arrived.
    swift: bool,
    /// The deadline for QEMU to report why it stopped.
    stopped: Option<Instant>,
    /// The deadline for the end of QEMU.
    killed: Option<Instant>,
    /// Why the machine ends, as far as known.
    pub end: Option<End>,
    /// Whether QEMU made the machine.
    pub up: bool,
    /// Whether the guest has a program, or takes them.
    ready: bool,
    /// How long QEMU took until it read its options, and until the machine was made.
    pub steps: Vec<(&'static str, Duration)>,
    /// QEMU's version.
    pub version: Option<(u64, u64)>,
    /// Why the machine shut down.
    pub reason: Option<String>,
    expected: Option<(u64, u64)>,
    done: bool,
    /// Failures that init reported.
    pub errors: Vec<String>,
    /// Times that init reported.
    pub timings: Vec<(String, u64, Duration)>,
    /// Lines of the record of traced starts.
    pub explained: String,
    interrupted: Option<i32>,
}

impl Lifecycle {
    /// Returns the state of a machine that was just started.
    pub fn new(
        control: Option<UnixStream>,
        counts: Arc<Counts>,
        began: Instant,
        limit: Option<Instant>,
    ) -> Lifecycle {
        Lifecycle {
            control,
            counts,
            began,
            limit,
            silence: None,
            examined: true,
            swift: false,
            stopped: None,
            killed: None,
            end: None,
            up: false,
            ready: false,
            steps: Vec::new(),
            version: None,
            reason: None,
            expected: None,
            done: false,
            errors: Vec::new(),
            timings: Vec::new(),
            explained: String::new(),
            interrupted: None,
        }
    }

    /// Sets the time limit for the kernel's first output. `None`: no limit, and the machine may be
    /// paused.
    pub fn expect_first_output(&mut self, within: Option<Duration>) {
        self.examined = within.is_none();
        self.silence = within.map(|within| self.began + within);
    }

    /// Ends the machine when its program has ended and all output has arrived, instead of waiting
    /// until the guest has switched it off.
    pub fn end_at_once(&mut self) {
        self.swift = true;
    }

    /// Handles events until QEMU has ended and all its output has been read. `None`: it was killed
    /// and does not end.
    pub fn run(
        &mut self,
        events: &Receiver<Event>,
        reporter: &Reporter,
        child: &mut Child,
    ) -> Result<Option<ExitStatus>> {
        let (mut ended, mut log_open, mut monitor_open) = (false, true, true);
        let mut control_open = self.control.is_some();
        while !ended || log_open || monitor_open || control_open {
            self.acknowledge(child);
            let event = match self.next_timeout() {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => events.recv_timeout(wait),
            };
            let news = match event {
                Ok(Event::Machine(start, news)) if reporter.is(start) => news,
                Ok(Event::Machine(..)) => continue,
                Ok(Event::Resized) => {
                    let (rows, columns) = terminal::size();
                    self.send(&format!("winsize {rows} {columns}"));
                    continue;
                }
                Ok(Event::Ready) => {
                    self.ready = true;
                    self.steps.push(("the guest takes programs", self.began.elapsed()));
                    continue;
                }
                Ok(Event::Over(status)) => {
                    self.steps.push(("the program has ended", self.began.elapsed()));
                    self.end.get_or_insert(End::Program(status));
                    self.kill(child);
                    continue;
                }
                Ok(Event::Signal(number)) => {
                    self.interrupt(number, child);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.check_deadlines(child) {
                        return Ok(None);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match news {
                MachineEvent::FirstOutput => self.silence = None,
                MachineEvent::QemuEnded => ended = true,
                MachineEvent::LogEnded => log_open = false,
                MachineEvent::MonitorEnded => monitor_open = false,
                MachineEvent::ControlEnded => control_open = false,
                MachineEvent::Line(line) => self.handle_line(&line),
                MachineEvent::ReaderClosed(stream) => self.send(&format!("close {stream}")),
                MachineEvent::Panicked => self.panicked(),
                MachineEvent::Monitor(word) => self.handle_monitor(word, child),
            }
        }
        child.wait().context("cannot wait for QEMU").map(Some)
    }

    fn panicked(&mut self) {
        self.end.get_or_insert(End::Panic);
        self.limit = Some(Instant::now() + GRACE_PANIC);
    }

    /// Handles a message of QEMU about the machine.
    fn handle_monitor(&mut self, word: QmpMessage, child: &mut Child) {
        match word {
            QmpMessage::Version(major, minor) => {
                self.version = Some((major, minor));
                self.steps.push(("QEMU reads its options", self.began.elapsed()));
            }
            QmpMessage::Up => {
                self.up = true;
                self.steps.push(("QEMU has made the machine", self.began.elapsed()));
            }
            QmpMessage::Shutdown(reason) => self.reason = Some(reason),
            QmpMessage::Panicked => self.panicked(),
            QmpMessage::Refused(why) => {
                self.errors.push(format!("QEMU refuses a snapshot: {why}"));
                self.end.get_or_insert(End::Program(FAULT.into()));
                self.kill(child);
            }
            QmpMessage::Migration(state) if state == "completed" => {
                self.steps.push(("the machine is restored", self.began.elapsed()));
            }
            QmpMessage::Migration(_) => {}
            QmpMessage::Resumed => self.stopped = None,
            // Every machine stops at its end.
            QmpMessage::Stopped if self.reason.is_none() && !self.examined => {
                self.stopped = Some(Instant::now() + GRACE_STATE);
            }
            QmpMessage::Stopped => {}
            QmpMessage::State(state) => {
                self.stopped = None;
                let fatal = FATAL.contains(&state.as_str());
                if !self.examined && (fatal || state == PAUSED) {
                    self.fail(
                        MachineFault::Stopped { state: Some(state), said: String::new() },
                        child,
                    );
                } else if fatal {
                    terminal::say(&format!(
                        "QEMU stopped the machine ({state}); it stays to be examined"
                    ));
                }
            }
        }
    }

    fn fail(&mut self, fault: MachineFault, child: &mut Child) {
        self.end.get_or_insert(End::Failed(fault));
        self.kill(child);
    }

    fn kill(&mut self, child: &mut Child) {
        // It may have ended already.
        let _ = child.kill();
        self.killed.get_or_insert(Instant::now() + GRACE_KILLED);
        (self.limit, self.silence, self.stopped) = (None, None, None);
    }

    /// Handles each expired deadline. True: a killed QEMU has not ended either.
    fn check_deadlines(&mut self, child: &mut Child) -> bool {
        let now = Instant::now();
        let passed = |time: Option<Instant>| time.is_some_and(|time| now >= time);
        if passed(self.killed) {
            return true;
        }
        if passed(self.limit) {
            let why = self.interrupted.map_or(End::TimedOut, End::Killed);
            self.end.get_or_insert(why);
            self.kill(child);
        } else if passed(self.stopped) {
            self.fail(MachineFault::Stopped { state: None, said: String::new() }, child);
        } else if let Some(silence) = self.silence
            && now >= silence
        {
            let waited = silence - self.began;
            self.fail(MachineFault::Silent { waited, up: self.up }, child);
        }
        false
    }

    /// Handles a signal. The first one is passed to the program. A second one, and any while there
    /// is no program yet, ends the machine. If the first signal asks the program to end (not only
    /// to stop its current work), the machine is ended after a time limit.
    fn interrupt(&mut self, number: i32, child: &mut Child) {
        if self.interrupted.is_some() || !self.ready {
            self.end.get_or_insert(End::Killed(number));
            self.kill(child);
            return;
        }
        self.interrupted = Some(number);
        self.send(&format!("signal {number}"));
        if number != signal_hook::consts::SIGINT {
            let limit = Instant::now() + GRACE_END;
            self.limit = Some(self.limit.map_or(limit, |known| known.min(limit)));
        }
    }

    /// Returns how long to wait for the next event: until the next deadline, and only for a moment
    /// while the last bytes of the program are on their way.
    fn next_timeout(&self) -> Option<Duration> {
        if self.expected.is_some() && !self.done {
            return Some(Duration::from_millis(1));
        }
        let times = [self.limit, self.silence, self.stopped, self.killed];
        let next = times.into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Tells init that all output has arrived, once it has, or ends the machine.
    fn acknowledge(&mut self, child: &mut Child) {
        let Some((output, error)) = self.expected else { return };
        let arrived = self.counts.output.load(Ordering::Acquire) >= output
            && self.counts.error.load(Ordering::Acquire) >= error;
        if arrived && !self.done {
            self.done = true;
            if self.swift {
                return self.kill(child);
            }
            self.send("done");
            self.limit = Some(Instant::now() + GRACE_END);
        }
    }

    fn send(&mut self, line: &str) {
        if let Some(control) = &mut self.control {
            // If the guest is gone, the line is lost; its end is an event of its own.
            let _ = writeln!(control, "{line}");
        }
    }

    fn handle_line(&mut self, line: &str) {
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
                    self.ready = true;
                    self.timings.push((name.to_string(), time, self.began.elapsed()));
                }
            }
            _ => {}
        }
    }
}
