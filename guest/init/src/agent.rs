//! The guest's side of a machine that stays: starts the programs that the host asks for by the
//! channel, carries their streams, and ends the machine when it is told to.
//!
//! One loop around `poll` serves all sessions, and never waits for one of them: pipes, terminals
//! and the port are non-blocking, and what waits is bounded by the windows of the streams
//! (`hayate-channel`). The ends of children are a descriptor, too ([`Children`]).
//!
//! The end of the machine: all processes get `SIGTERM` (those on a terminal `SIGHUP` too, because
//! shells ignore the other), and `SIGKILL` after the grace that the host gave. If the job names a
//! signal of its own for that, as images do, first the first program alone gets it, and the rest is
//! asked when that has ended: a server takes its own leave of the processes it started.
//!
//! A snapshot is taken between two turns of the loop. [`Message::Settle`] ends all programs in the
//! same way, but not the machine; then nothing is started until [`Message::Fresh`] has made the
//! restored machine another one than its twins ([`crate::fresh`]).
//!
//! Road not taken: `sshd`. It knows all of this, but an image need not have one, and it would need
//! keys and a network, and an exchange of keys for each connection.

mod outbox;
mod session;
pub mod users;

pub use outbox::Channel;
pub use users::Identity;

use crate::children::Children;
use crate::control::{Control, HostMessage};
use crate::program::{Program, Surroundings, Task};
use crate::pump::ProgramEnd;
use crate::rehearsal;
use crate::{Failure, fresh};
use hayate_channel::FIRST;
use hayate_channel::command::Command;
use hayate_channel::frame::{Frame, Message};
use hayate_job::{Fresh, Job};
use outbox::Outbox;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, wait};
use session::Session;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// The most programs at once.
const MOST_SESSIONS: usize = 4096;
/// The grace where the host gives none.
const GRACE: Duration = Duration::from_secs(10);
/// How long killed processes may take to end.
const GRACE_KILLED: Duration = Duration::from_secs(2);
/// How long the host may take to read the last frames.
const GRACE_FLUSH: Duration = Duration::from_secs(5);

/// The state of a machine whose programs are being ended.
struct Stopping {
    /// When the next step is due.
    deadline: Instant,
    killed: bool,
    /// Whether all processes were asked to end.
    all: bool,
    /// Whether it becomes a snapshot, and does not end with them.
    settles: bool,
}

/// The programs of the machine.
pub struct Agent {
    job: Job,
    channel: Channel,
    surroundings: Surroundings,
    sessions: BTreeMap<u32, Session>,
    /// The status of the machine's first program.
    status: i32,
    stopping: Option<Stopping>,
    /// What a clone needs. No program is started, because the machine may be a snapshot.
    settled: Option<fresh::Prepared>,
    listening: bool,
}

impl Agent {
    /// Serves the channel until the machine is to end. Returns the status of the first program, or
    /// 0 if there was none.
    pub fn serve(
        mut job: Job,
        channel: Channel,
        control: &mut Control,
        children: &Children,
    ) -> Result<ProgramEnd, Failure> {
        let limit = getrlimit(Resource::Nofile);
        // Each program takes three descriptors here; the programs get the usual limit.
        let most = Rlimit { current: limit.maximum, ..limit };
        let _ = setrlimit(Resource::Nofile, most);
        let identity = users::settle(&mut job)?;
        let mut agent = Agent {
            job,
            channel,
            surroundings: Surroundings { identity, files: Some(limit), pid_namespace: None },
            sessions: BTreeMap::new(),
            status: 0,
            stopping: None,
            settled: None,
            listening: true,
        };
        if !agent.job.arguments.is_empty() {
            agent.start_first();
        }
        control.tell_time("ready");
        agent.channel.greet();
        let mut buffer = vec![0; 64 << 10];
        let mut commanded = true;
        while !agent.is_over() {
            let hears = agent.turn(&mut buffer);
            let ready = agent.wait(children, commanded.then_some(&*control), hears);
            if ready.children {
                children.clear();
                agent.reap();
            }
            if ready.control {
                commanded = agent.command(control);
            }
            if ready.channel {
                agent.hear(&mut buffer)?;
            }
            agent.settle()?;
        }
        agent.finish();
        Ok(ProgramEnd { status: agent.status, ..ProgramEnd::default() })
    }

    /// Starts the program that the job names, as the machine's first.
    fn start_first(&mut self) {
        let started = Session::start(FIRST, &Task::of(&self.job), None, &self.surroundings, false);
        self.enter(FIRST, started);
    }

    fn enter(&mut self, number: u32, started: Result<Session, Failure>) {
        match started {
            Ok(session) => {
                self.sessions.insert(number, session);
            }
            Err(failure) => {
                let status = u8::try_from(failure.status).unwrap_or(125);
                self.channel.out.send(number, Message::Failed(status, failure.text));
                self.last(number, status);
            }
        }
    }

    /// A program is over; with the first one so is the machine.
    fn last(&mut self, number: u32, status: u8) {
        if number == FIRST {
            self.status = i32::from(status);
            self.stop(GRACE);
        }
    }

    /// Moves bytes and does what is due. Returns whether the host takes output.
    fn turn(&mut self, buffer: &mut [u8]) -> bool {
        let now = Instant::now();
        let mut over = Vec::new();
        for (&number, session) in &mut self.sessions {
            session.check_deadline(now);
            if session.turn(buffer, &mut self.channel.out) {
                over.push(number);
            }
        }
        let first = over.contains(&FIRST);
        for number in over {
            self.sessions.remove(&number);
        }
        if first {
            self.stop(GRACE);
        }
        self.ask_rest();
        if !self.channel.flush() {
            self.lost();
        }
        if let Some(stopping) = &mut self.stopping
            && stopping.deadline <= now
            && !stopping.killed
        {
            *stopping = Stopping { deadline: now + GRACE_KILLED, killed: true, ..*stopping };
            signal_all(libc::SIGKILL);
        }
        self.channel.out.has_room()
    }

    /// The host is gone: nobody can use the machine any more.
    fn lost(&mut self) {
        self.listening = false;
        self.channel.out = Outbox::default();
        self.stop(GRACE);
    }

    fn wait(&self, children: &Children, control: Option<&Control>, room: bool) -> Ready {
        let entry = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let control = control.map_or(-1, |control| control.as_fd().as_raw_fd());
        let mut channel = self.channel.interests();
        if !self.listening {
            channel.fd = -1;
        }
        let mut entries = vec![children.interest(), entry(control), channel];
        for session in self.sessions.values() {
            session.interests(room, &mut entries);
        }
        let stopping = self.stopping.as_ref().map(|stopping| stopping.deadline);
        let deadlines = self.sessions.values().filter_map(Session::deadline).chain(stopping);
        let wait = deadlines.min().map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up: a wait that is too short would be repeated for nothing.
            i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1
        });
        // SAFETY: the entries are valid for their number.
        let count =
            unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, wait) };
        let ready = |at: usize| count > 0 && entries[at].revents != 0;
        let input = |at: usize| count > 0 && entries[at].revents & !libc::POLLOUT != 0;
        Ready { children: ready(0), control: ready(1), channel: input(2) }
    }

    /// Carries out what the host says by the control port. Returns whether it is there.
    fn command(&mut self, control: &mut Control) -> bool {
        let Some(messages) = control.messages() else { return false };
        if messages.iter().any(|message| matches!(message, HostMessage::Signal(_))) {
            self.stop(GRACE);
        }
        true
    }

    /// Carries out what the host says by the channel.
    fn hear(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        let Some(frames) = self.channel.frames(buffer) else {
            self.lost();
            return Ok(());
        };
        for Frame { session: number, message } in frames {
            match message {
                Message::Shutdown(seconds) => self.stop(Duration::from_secs(seconds.into())),
                Message::Settle(seconds) => {
                    self.end_programs(Duration::from_secs(seconds.into()), true);
                }
                Message::Fresh(bytes) => self.renew(&bytes)?,
                Message::Open(command) => self.open(number, *command),
                message => {
                    // It may have ended meanwhile.
                    if let Some(session) = self.sessions.get_mut(&number) {
                        session.obey(message, &mut self.channel.out);
                    }
                }
            }
        }
        Ok(())
    }

    /// Becomes the machine that the host says, if it may be a snapshot's.
    fn renew(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(prepared) = self.settled.take() else { return Ok(()) };
        let fresh = Fresh::decode(bytes);
        let fresh = fresh.map_err(|error| Failure::new(format!("the host's message: {error}")))?;
        fresh::take(fresh, &mut self.job, prepared)?;
        self.surroundings.identity = users::settle(&mut self.job)?;
        self.channel.greet();
        if !self.job.arguments.is_empty() {
            self.start_first();
        }
        Ok(())
    }

    /// Prepares the machine for its clones when all programs have ended for a snapshot, and tells
    /// the host.
    fn settle(&mut self) -> Result<(), Failure> {
        let settles = self.stopping.as_ref().is_some_and(|stopping| stopping.settles);
        if settles && !self.reap() && self.sessions.is_empty() {
            self.stopping = None;
            self.settled = Some(fresh::prepare(&self.job)?);
            self.channel.out.send(FIRST, Message::Settled);
        }
        Ok(())
    }

    fn open(&mut self, number: u32, command: Command) {
        let refusal = if self.stopping.is_some() {
            Some("the machine is being stopped".into())
        } else if self.settled.is_some() {
            Some("the machine is a snapshot, and starts no program".into())
        } else if self.sessions.len() >= MOST_SESSIONS {
            Some(format!("{MOST_SESSIONS} programs run in the machine already"))
        } else {
            None
        };
        match refusal {
            Some(text) => self.enter(number, Err(Failure::new(text))),
            None if command.rehearses => self.rehearse(number, &command),
            None => self.enter(number, self.started(number, command)),
        }
    }

    /// Rehearses the start of a program, and answers when that is over: nothing else goes on in a
    /// machine of which a snapshot is made.
    fn rehearse(&mut self, number: u32, command: &Command) {
        let mut task = Task::of(&self.job);
        task.arguments = &command.arguments;
        let rehearsed = Program::of(&task).and_then(|program| {
            let failed = |error| Failure::new(format!("{}: {error}", program.path().display()));
            rehearsal::rehearse(program.path(), &task.environment).map_err(failed)
        });
        match rehearsed {
            Ok(()) => self.channel.out.send(number, Message::Exit(0)),
            Err(failure) => self.enter(number, Err(failure)),
        }
    }

    fn started(&self, number: u32, command: Command) -> Result<Session, Failure> {
        let mut task = Task::of(&self.job);
        let mut identity = self.surroundings.identity.clone();
        if let Some(wanted) = &command.user {
            let file = |path| std::fs::read(path).unwrap_or_default();
            let who = users::resolve(wanted, &file("/etc/passwd"), &file("/etc/group"))?;
            let name = who.name.clone().unwrap_or_else(|| b"nobody".to_vec());
            let home = who.home.clone().unwrap_or_else(|| b"/".to_vec());
            for (key, value) in [("HOME", &home), ("USER", &name), ("LOGNAME", &name)] {
                set(task.environment.to_mut(), &[key.as_bytes(), value].join(&b'='));
            }
            identity = Some(who);
        }
        for variable in &command.environment {
            set(task.environment.to_mut(), variable);
        }
        task.arguments = &command.arguments;
        task.directory = command.directory.as_deref().or(task.directory);
        let pid_namespace = command.pid_namespace;
        let surroundings = Surroundings { identity, pid_namespace, ..self.surroundings.clone() };
        Session::start(number, &task, command.terminal, &surroundings, true)
    }

    /// Notes which programs have ended. Returns whether there are other processes: all of them are
    /// this one's children, or descend from one.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Ok(None) | Err(Errno::INTR) => return true,
                Err(_) => return false,
            };
            let killed = status.terminating_signal().map(|signal| 128 + signal);
            let Some(status) = status.exit_status().or(killed) else { continue };
            let status = u8::try_from(status).unwrap_or(u8::MAX);
            let own = self.sessions.iter_mut().find(|(_, session)| session.program() == pid);
            if let Some((&number, session)) = own {
                session.ended(status);
                if number == FIRST {
                    self.status = i32::from(status);
                }
            }
        }
    }

    /// Begins the end of the machine; a second call can only bring it forward.
    fn stop(&mut self, grace: Duration) {
        self.end_programs(grace, false);
    }

    /// Begins the end of all programs, and of the machine unless it `settles`.
    fn end_programs(&mut self, grace: Duration, settles: bool) {
        let deadline = Instant::now() + grace;
        match &mut self.stopping {
            Some(stopping) => {
                stopping.deadline = stopping.deadline.min(deadline);
                stopping.settles &= settles;
            }
            None => {
                let own = self.job.stop_signal.filter(|_| !settles);
                let first = own.and_then(|signal| Some((signal, self.sessions.get(&FIRST)?)));
                let all = first.is_none();
                if let Some((signal, first)) = first {
                    send(first.program(), signal.into());
                }
                self.stopping = Some(Stopping { deadline, killed: false, all, settles });
                if all {
                    self.ask_all();
                }
            }
        }
    }

    /// Asks all processes to end.
    fn ask_all(&self) {
        signal_all(libc::SIGTERM);
        for session in self.sessions.values().filter(|session| session.has_terminal()) {
            let _ = rustix::process::kill_process_group(
                session.program(),
                rustix::process::Signal::HUP,
            );
        }
        signal_all(libc::SIGCONT);
    }

    /// Asks the other processes to end, once the first program has ended as it was asked to.
    fn ask_rest(&mut self) {
        if self.sessions.get(&FIRST).is_some_and(|first| !first.has_ended()) {
            return;
        }
        if let Some(stopping) = &mut self.stopping
            && !stopping.all
        {
            stopping.all = true;
            self.ask_all();
        }
    }

    /// Whether all processes have ended, or cannot be ended.
    fn is_over(&mut self) -> bool {
        let Some(Stopping { deadline, killed, settles, .. }) = self.stopping else { return false };
        let late = killed && deadline <= Instant::now();
        late || !settles && !self.reap() && self.sessions.is_empty()
    }

    /// Sends the last frames.
    fn finish(&mut self) {
        let deadline = Instant::now() + GRACE_FLUSH;
        while self.listening
            && self.channel.flush()
            && !self.channel.out.is_empty()
            && Instant::now() < deadline
        {
            let mut entries = [self.channel.interests()];
            entries[0].events = libc::POLLOUT;
            // SAFETY: there is one entry.
            unsafe { libc::poll(entries.as_mut_ptr(), 1, 100) };
        }
    }
}

/// What there is to do.
struct Ready {
    children: bool,
    control: bool,
    channel: bool,
}

/// Sets a variable of an environment.
fn set(environment: &mut Vec<Vec<u8>>, variable: &[u8]) {
    let at = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
    let name = &variable[..at];
    environment.retain(|known| {
        known.strip_prefix(name).is_none_or(|rest| !rest.is_empty() && rest[0] != b'=')
    });
    environment.push(variable.to_vec());
}

/// Sends a signal to one process, and wakes it if it is stopped.
fn send(process: rustix::process::Pid, number: i32) {
    let process = process.as_raw_nonzero().get();
    // SAFETY: the calls have no other effect than their signals.
    unsafe {
        libc::kill(process, number);
        libc::kill(process, libc::SIGCONT);
    }
}

/// Sends a signal to every process except this one.
fn signal_all(number: i32) {
    // SAFETY: the call has no other effect than its signals.
    unsafe { libc::kill(-1, number) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_replaces_its_own_name_only() {
        let mut environment = vec![b"A=1".to_vec(), b"AB=2".to_vec(), b"A".to_vec()];
        set(&mut environment, b"A=3");
        assert_eq!(environment, [b"AB=2".to_vec(), b"A=3".to_vec()]);
    }
}
