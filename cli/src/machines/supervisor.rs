//! The process that owns a machine that stays: `./hayate keep`, which `start` starts.
//!
//! Until the machine is ready its standard error is that of `start`, for progress and errors; then
//! it lets go of everything that it has of `start`. If `start` was killed before, nobody knows of
//! the machine, and it is ended.

use super::directory::{Machine, Machines, Owned, Process, State, now};
use super::hub::{Hub, News};
use super::journal::{self, Journal};
use crate::arguments::machines::Start;
use crate::arguments::{Mode, Run};
use crate::compile;
use crate::failure::{Failure, USAGE};
use crate::guest::initramfs;
use crate::guest::log::Sink;
use crate::guest::qemu::Qemu;
use crate::guest::session::{End, Outcome, Session, Streams};
use crate::run::{self, Prepared};
use crate::snapshots::clone;
use crate::snapshots::directory::Snapshots;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, pidfd_open,
    setrlimit, setsid,
};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the supervisor has learnt about its machine.
struct Known {
    state: State,
    /// Why the first program was not started.
    refused: Option<(u8, String)>,
    /// Why the machine was stopped.
    why: Option<&'static str>,
}

/// Starts a machine, and owns it to its end. Returns the status for `start`, which counts only if
/// the machine did not become ready.
pub fn keep(options: &Start) -> Result<u8> {
    check(options)?;
    // It fails only in a process that leads its group, and then there is no terminal to leave.
    let _ = setsid();
    let owner = options.owner.map(owner).transpose()?;
    let state = state(options)?;
    let owned = Machines::open()?.create(options.name.as_deref(), &state)?;
    let machine = owned.machine.clone();
    let known = Arc::new(Mutex::new(Known { state, refused: None, why: None }));
    watch_start(known.clone())?;
    let ended = run_machine(options, owned, owner, &known);
    let known = std::mem::replace(
        &mut *known.lock().unwrap_or_else(PoisonError::into_inner),
        Known { state: state_of_nobody(), refused: None, why: None },
    );
    if !known.state.ready {
        machine.delete()?;
        let outcome = ended?;
        return match known.refused {
            Some((status, text)) => Err(Failure::error(status, text)),
            None => not_ready(&outcome),
        };
    }
    let why = match ended {
        Ok(outcome) => reason(&outcome, known.why),
        Err(error) => format!("{error:#}"),
    };
    machine.conclude(known.state, &why)?;
    Ok(0)
}

/// Refuses options that mean nothing here.
fn check(options: &Start) -> Result<()> {
    let run = &options.run;
    let text = if run.tty || run.no_tty {
        "start has no terminal: leave --tty and --no-tty out, and give it to exec"
    } else if run.log.is_some() {
        "start keeps the kernel's messages: leave --log out; ./hayate logs --kernel NAME shows them"
    } else if run.timing {
        "--timing is for run: a machine that stays has no end to count to"
    } else if run.mode == Mode::Supervisor && run.command.is_empty() {
        "--mode supervisor needs a program: ./hayate start --mode supervisor -- CMD; later ones \
         start so by ./hayate exec NAME -- mode run -- CMD"
    } else if run.machine.deterministic {
        "--deterministic is for run: a machine that stays is given work at any time"
    } else {
        return run::check(run);
    };
    Err(Failure::error(USAGE, text))
}

fn owner(pid: i32) -> Result<OwnedFd> {
    let number = Pid::from_raw(pid).context("--owner: not a process")?;
    pidfd_open(number, PidfdFlags::empty())
        .with_context(|| format!("--owner: cannot watch the process {pid}"))
}

fn state(options: &Start) -> Result<State> {
    let words = options.run.command.iter().map(|word| word.to_string_lossy());
    let pid = i32::try_from(std::process::id()).context("no process number")?;
    let (cpus, memory) = match &options.run.from {
        Some(name) => {
            let snapshot = Snapshots::there()?.manifest(name)?;
            (snapshot.cpus, snapshot.memory)
        }
        None => (options.run.machine.cpus, options.run.machine.memory),
    };
    Ok(State {
        started: now(),
        command: words.collect::<Vec<_>>().join(" "),
        cpus,
        memory,
        remove: options.rm,
        supervisor: Process::of(pid).context("cannot read /proc/self/stat")?,
        qemu: None,
        ready: false,
        ended: None,
    })
}

fn state_of_nobody() -> State {
    State {
        started: 0,
        command: String::new(),
        cpus: 0,
        memory: 0,
        remove: false,
        supervisor: Process { pid: 0, start: 0 },
        qemu: None,
        ready: false,
        ended: None,
    }
}

/// How a machine begins.
struct Origin {
    qemu: Qemu,
    /// For one that boots.
    initramfs: Option<File>,
    /// For one that is restored.
    greeting: Vec<u8>,
    /// Its first program.
    words: Vec<Vec<u8>>,
}

fn origin(options: &Run, name: &str) -> Result<Origin> {
    if options.from.is_some() {
        let clone = clone::prepare(options, Some(name))?;
        let words = clone.words(options)?;
        let greeting = clone.greeting(words.clone())?;
        return Ok(Origin { qemu: clone.qemu, initramfs: None, greeting, words });
    }
    let Prepared { mut job, archive, qemu, .. } = run::prepare(options, false)?;
    job.streams = hayate_job::Streams::Channel;
    job.hostname = name.to_string();
    let further = [compile::copy()?];
    let initramfs = initramfs::make(&job, archive.as_deref(), None, &further, &qemu.boot.modules)?;
    Ok(Origin { qemu, initramfs: Some(initramfs), greeting: Vec::new(), words: job.arguments })
}

/// Runs the machine to its end.
fn run_machine(
    options: &Start,
    owned: Owned,
    owner: Option<OwnedFd>,
    known: &Arc<Mutex<Known>>,
) -> Result<Outcome> {
    let machine = owned.machine.clone();
    let Origin { qemu, initramfs, greeting, words } = origin(&options.run, &machine.name)?;
    // An image may have named it.
    let shown: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    known.lock().unwrap_or_else(PoisonError::into_inner).state.command = shown.join(" ");
    let (guests, guest) = channel();
    let messages = Journal::create(&machine, journal::KERNEL)?;
    let sink = Sink::Shared(Arc::new(Mutex::new(messages)));
    let limit = options.run.timeout.map(Duration::from_secs);
    let mut session = Session::new(qemu, Streams::Channel(guests), sink, limit);
    let (for_process, place) = (known.clone(), machine.clone());
    session.tell_process(move |pid| {
        let mut known = for_process.lock().unwrap_or_else(PoisonError::into_inner);
        known.state.qemu = i32::try_from(pid).ok().and_then(Process::of);
        let _ = place.write(&known.state);
    });
    run::pass_signals_on(session.events())?;
    let listener = machine.listen()?;
    listener.set_nonblocking(true).context("cannot make the socket non-blocking")?;
    let hub = Hub {
        listener,
        owned: Arc::new(owned),
        output: Journal::create(&machine, journal::OUTPUT)?,
        has_first: !words.is_empty(),
        greeting,
        owner,
        events: session.events(),
        news: {
            let (known, machine) = (known.clone(), machine.clone());
            Box::new(move |news| take(news, &known, &machine))
        },
    };
    // The lock of the folder is held until both have ended.
    let owned = hub.owned.clone();
    // Each client takes a descriptor.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    let serving = std::thread::spawn(move || hub.serve(&guest));
    let outcome = session.run(initramfs.as_ref());
    let _ = serving.join();
    std::mem::forget(owned);
    outcome
}

/// Ends this process as by SIGTERM when `start` ends before the machine is ready: then nobody reads
/// what this process writes.
fn watch_start(known: Arc<Mutex<Known>>) -> Result<()> {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let output = output.context("cannot duplicate standard output")?;
    std::thread::spawn(move || {
        let mut polled = [PollFd::new(&output, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = poll(&mut polled, None) {}
        if !known.lock().unwrap_or_else(PoisonError::into_inner).state.ready {
            let _ = kill_process(getpid(), Signal::TERM);
        }
    });
    Ok(())
}

/// Takes news of the hub. False: nobody waits for the machine.
fn take(news: News, known: &Mutex<Known>, machine: &Machine) -> bool {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    match news {
        News::Ready => {
            known.state.ready = true;
            let _ = machine.write(&known.state);
            drop(known);
            return let_go(&machine.name).is_ok();
        }
        News::Refused(status, text) => known.refused = Some((status, text)),
        News::Stopping(why) => {
            known.why.get_or_insert(why);
        }
    }
    true
}

/// Tells `start` that the machine is ready, and lets go of its streams and its folder.
fn let_go(name: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{name}").and_then(|()| output.flush()).context("nobody waits")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    // So that no file system stays in use for it.
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Shows why a machine did not become ready.
fn not_ready(outcome: &Outcome) -> Result<u8> {
    let status = run::conclude(outcome, false)?;
    Ok(if status == 0 { crate::failure::FAULT } else { status })
}

/// Why a machine ended, for people.
fn reason(outcome: &Outcome, why: Option<&'static str>) -> String {
    let why = why.unwrap_or("it was told to end by a signal");
    match &outcome.end {
        End::Program(0) => why.to_string(),
        End::Program(status) => format!("{why} with status {status}"),
        End::Panic => "its kernel panicked; ./hayate logs --kernel shows why".into(),
        End::TimedOut => "its time limit passed".into(),
        End::Killed(_) => why.to_string(),
        End::Machine(-1) => "QEMU was killed".into(),
        End::Machine(status) => format!("QEMU ended with status {status}"),
        End::Failed(fault) => fault.to_string(),
    }
}
