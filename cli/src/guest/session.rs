//! One run of a machine, from its start to its end.
//!
//! A thread for each stream copies bytes. The thread that called [`Session::run`] owns the child
//! and makes the decisions, from one queue of events: lines of the control port, signals to
//! `./hayate`, the end of QEMU, expired time limits. The reason for the machine's end is determined
//! only after the control port and the log have been read to their ends, so that no message before
//! a crash is missed.
//!
//! A machine that runs with KVM by default, and fails before the first byte from its guest, is
//! started again with TCG. Nothing is lost up to that point: see [`super::streams`].

pub use super::event::Event;
use super::event::{MachineEvent, Reporter};
use super::lifecycle::Lifecycle;
use super::log::{self, Log, Sink};
use super::machine_fault::{MachineFault, QemuEnd};
use super::qemu::Qemu;
use super::qmp::QmpMessage;
pub use super::streams::Streams;
use super::streams::{Counts, HostStreams};
use super::verdict::Verdict;
use super::{qmp, terminal};
use anyhow::{Context, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The exit status of QEMU when the kernel panicked: 0x7f written to the exit device.
const QEMU_PANIC: i32 = 0xff;

/// Why the machine ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The program ended with this status.
    Program(i32),
    /// The kernel panicked.
    Panic,
    /// The time limit passed.
    TimedOut,
    /// This signal, received twice, ended it.
    Killed(i32),
    /// QEMU ended without any output of the guest: its exit status, or -1 after a signal.
    Machine(i32),
    /// The machine stopped, or the guest was silent.
    Failed(MachineFault),
}

/// The result of a run.
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Failures that init reported.
    pub errors: Vec<String>,
    /// Times that init reported, in nanoseconds since the guest's boot, and on the host since the
    /// start of QEMU.
    pub timings: Vec<(String, u64, Duration)>,
    /// The kernel's record of traced starts, lines of text.
    pub explained: String,
    /// Output that could not be written on the host: streams of the program, the log.
    pub unwritten: Vec<String>,
    /// The kernel's messages.
    pub log: Log,
    /// When QEMU was started.
    pub began: Instant,
    /// Steps of QEMU, since its start.
    pub steps: Vec<(&'static str, Duration)>,
    /// From the start of QEMU to the first byte of the log.
    pub first_word: Option<Duration>,
    /// From the start of QEMU to its end.
    pub total: Duration,
    /// QEMU's output on its standard error.
    pub complaint: String,
    /// The kernel's file.
    pub kernel: PathBuf,
}

/// QEMU's monitor, for another thread beside the session's.
pub struct Monitor {
    /// For commands.
    pub socket: UnixStream,
    /// QEMU's messages.
    pub messages: Receiver<QmpMessage>,
}

/// A machine about to run.
pub struct Session {
    qemu: Qemu,
    streams: Streams,
    timeout: Option<Duration>,
    sink: Sink,
    events: (Sender<Event>, Receiver<Event>),
    told: Option<Box<dyn Fn(u32)>>,
    monitors: Option<Sender<Monitor>>,
    orderly: bool,
}

impl Session {
    /// A session on this machine.
    pub fn new(qemu: Qemu, streams: Streams, sink: Sink, timeout: Option<Duration>) -> Session {
        let (events, told, monitors) = (channel(), None, None);
        Session { qemu, streams, timeout, sink, events, told, monitors, orderly: false }
    }

    /// Sends the monitor of each start of the machine there.
    pub fn share_monitor(&mut self, monitors: Sender<Monitor>) {
        self.monitors = Some(monitors);
    }

    /// Has this function called with QEMU's process number at each start of the machine.
    pub fn tell_process(&mut self, told: impl Fn(u32) + 'static) {
        self.told = Some(Box::new(told));
    }

    /// Lets the guest switch the machine off in order in any case: tests want to see it do so.
    pub fn orderly(self) -> Session {
        Session { orderly: true, ..self }
    }

    /// Returns the sender for signals and changes of size.
    pub fn events(&self) -> Sender<Event> {
        self.events.0.clone()
    }

    /// Starts the machine and handles its events to its end.
    pub fn run(mut self, initramfs: Option<&File>) -> Result<Outcome> {
        let host = HostStreams::new(std::mem::replace(&mut self.streams, Streams::None));
        // A limit beyond the clock's range is no limit.
        let limit = self.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let first = Reporter::new(self.events(), 1);
        let outcome = self.start(&host, initramfs, limit, &first)?;
        match &outcome.end {
            End::Failed(fault)
                if self.qemu.is_open()
                    && self.qemu.has_kvm()
                    && fault.may_be_of_kvm()
                    && !first.first_output().heard() =>
            {
                terminal::say(&format!("with KVM {fault}; starting the machine again with tcg"));
            }
            _ => return Ok(outcome),
        }
        // The verdict about KVM is wrong, or not always right: the next command examines KVM again.
        {
            let verdict = Verdict::of_kvm(&self.qemu.program)?;
            let _alone = verdict.alone()?;
            verdict.keep(None)?;
        }
        self.qemu.accelerate(false);
        self.start(&host, initramfs, limit, &Reporter::new(self.events(), 2))
    }

    /// Starts the machine once.
    fn start(
        &mut self,
        host: &HostStreams,
        initramfs: Option<&File>,
        limit: Option<Instant>,
        reporter: &Reporter,
    ) -> Result<Outcome> {
        let counts = Arc::new(Counts::default());
        let mut wires = host.connect(&mut self.qemu, reporter, &counts)?;
        let start = self.qemu.command(initramfs)?;
        let mut command = start.command;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().context("cannot start QEMU")?;
        // The command holds this process's copies of the guest's ends of the sockets.
        drop(command);
        if let Some(told) = &self.told {
            told(child.id());
        }
        let (log, complaint) = (Arc::<Mutex<Log>>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let mut pumps = wires.start();
        let sink = self.sink.again()?;
        pumps.push(read_log(start.log, sink, log.clone(), counts.clone(), reporter.clone()));
        pumps.push(read_complaint(child.stderr.take(), complaint.clone()));
        let shared = self.monitors.as_ref().and_then(|monitors| {
            let (messages, receiver) = channel();
            let socket = start.monitor.try_clone().ok()?;
            monitors.send(Monitor { socket, messages: receiver }).ok().map(|()| messages)
        });
        read_monitor(start.monitor, reporter.clone(), shared);
        await_end(&child, reporter.clone());
        let mut machine = Lifecycle::new(wires.control.take(), counts.clone(), began, limit);
        machine.expect_first_output(start.silence);
        let swift = matches!(self.sink, Sink::None) && !self.orderly;
        if swift && !self.qemu.has_more_to_do() {
            machine.end_at_once();
        }
        let status = machine.run(&self.events.1, reporter, &mut child)?;
        let total = began.elapsed();
        if status.is_some() {
            for pump in pumps {
                let _ = pump.join();
            }
        } else {
            // QEMU cannot be killed, at least not soon, so its streams do not end.
            wires.shut();
        }
        reporter.first_output().close();
        // Only reported, because it is not known whether the program needed its input.
        let unread = counts.unread.lock().ok().and_then(|mut unread| unread.take());
        machine.errors.extend(unread);
        let unwritten = counts.unwritten.lock().map(|mut list| std::mem::take(&mut *list));
        let log = std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
        let complaint = complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let complaint = String::from_utf8_lossy(&complaint).trim_end().to_string();
        let heard = reporter.first_output().heard();
        let end = self.end(&mut machine, status, heard, log.panicked, &complaint);
        Ok(Outcome {
            end,
            errors: machine.errors,
            began,
            steps: machine.steps,
            timings: machine.timings,
            explained: machine.explained,
            unwritten: unwritten.unwrap_or_default(),
            first_word: log.first.map(|first| first.duration_since(began)),
            log,
            total,
            complaint,
            kernel: self.qemu.boot.kernel.clone(),
        })
    }

    /// Returns why the machine ended. `heard`: a byte came from the guest; `complaint`: QEMU's
    /// output on its standard error.
    fn end(
        &self,
        machine: &mut Lifecycle,
        status: Option<ExitStatus>,
        heard: bool,
        panicked: bool,
        complaint: &str,
    ) -> End {
        let code = status.and_then(|status| status.code());
        // By the exit device the guest can end the machine without any output, with a status above
        // QEMU's own 1.
        let spoke = heard || machine.up && code.is_some_and(|code| code > 1);
        match (machine.end.take(), status) {
            (Some(End::Failed(fault)), _) => End::Failed(fault.with(complaint)),
            (Some(end), _) => end,
            _ if panicked || code == Some(QEMU_PANIC) => End::Panic,
            (None, Some(status)) if !spoke => End::Failed(MachineFault::of(&QemuEnd {
                program: &self.qemu.program,
                status,
                version: machine.version,
                up: machine.up,
                reason: machine.reason.as_deref(),
                complaint,
            })),
            _ => End::Machine(code.unwrap_or(-1)),
        }
    }
}

fn read_monitor(monitor: UnixStream, reporter: Reporter, shared: Option<Sender<QmpMessage>>) {
    std::thread::spawn(move || {
        qmp::listen(monitor, |message| {
            if let Some(shared) = &shared {
                let _ = shared.send(message.clone());
            }
            reporter.send(MachineEvent::Monitor(message));
        });
        reporter.send(MachineEvent::MonitorEnded);
    });
}

fn read_log(
    pipe: PipeReader,
    sink: Sink,
    log: Arc<Mutex<Log>>,
    counts: Arc<Counts>,
    reporter: Reporter,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut told = false;
        let written = log::read(pipe, sink, |change| {
            reporter.heard();
            let Ok(mut log) = log.lock() else { return };
            change(&mut log);
            if log.panicked && !told {
                told = true;
                reporter.send(MachineEvent::Panicked);
            }
        });
        if let Err(error) = written
            && let Ok(mut unwritten) = counts.unwritten.lock()
        {
            unwritten.push(format!("cannot write the log: {error}"));
        }
        reporter.send(MachineEvent::LogEnded);
    })
}

fn read_complaint(
    stderr: Option<std::process::ChildStderr>,
    complaint: Arc<Mutex<Vec<u8>>>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Some(mut stderr) = stderr else { return };
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            complaint
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(&buffer[..count]);
        }
    })
}

/// Waits for the child's end without reaping it: its owner may still kill it safely.
fn await_end(child: &Child, reporter: Reporter) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        if let Some(pid) = pid {
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        }
        reporter.send(MachineEvent::QemuEnded);
    });
}

#[cfg(test)]
mod tests;
