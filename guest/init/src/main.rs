//! The first program of a Hayate guest: process 1.
//!
//! It reads the job that `./hayate run` wrote into the initramfs, mounts the root file system, runs
//! the job's program, carries the program's streams to the host and back, and ends the machine with
//! the program's exit status. In a machine that stays ([`agent`]) it starts any number of programs,
//! and ends the machine when the host says so. It is an ordinary static Linux program and does the
//! same under Debian's kernel; that is how the host side is tested, and it is Hayate's comparison.
//!
//! Every failure is reported to the host as one line on the control port; a guest never waits for a
//! person at its console.
//!
//! Road not taken: one way for both. `run` would then share its streams with no one, and still pay
//! for frames and windows, and its deterministic runs for the loop that serves them.

mod agent;
mod children;
mod control;
mod dhcp;
mod fresh;
mod launch;
mod modules;
mod mounts;
mod network;
mod nvdimm;
mod port;
mod program;
mod pump;
mod rehearsal;
mod starter;

use agent::{Agent, Channel};
use children::Children;
use control::Control;
use hayate_job::{Job, Streams};
use rustix::system::{RebootCommand, reboot};

/// A failure, as one line for the user at the host, and the exit status that `./hayate` documents
/// for it.
pub struct Failure {
    /// One line: what is wrong, and what to do about it.
    pub text: String,
    /// 125 for a fault of Hayate or its image, 126 and 127 as a shell uses them.
    pub status: i32,
}

impl Failure {
    /// A fault of the image or of Hayate itself: status 125.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), status: 125 }
    }
}

fn main() {
    let mut control = None;
    let end = start(&mut control).unwrap_or_else(|failure| {
        match &mut control {
            Some(control) => control.send(&format!("error {}", failure.text)),
            None => eprintln!("init: {}", failure.text),
        }
        pump::ProgramEnd { status: failure.status, ..pump::ProgramEnd::default() }
    });
    if let Some(control) = &mut control {
        control.finish(&end);
    }
    rustix::fs::sync();
    // Only a kernel that lacks this call returns, and then nothing else can be done.
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("init: cannot power the machine off: {error}");
    }
    loop {
        std::thread::park();
    }
}

/// Does everything from reading the job to the end of the program. The control port is passed out
/// as soon as it is open, so that a later failure can be reported to the host.
fn start(control: &mut Option<Control>) -> Result<pump::ProgramEnd, Failure> {
    mounts::early();
    let linux = modules::load()?;
    let control = control.insert(Control::open()?);
    let mut job = read_job()?;
    // Before any thread is started.
    let children = Children::watch()?;
    // Ports are opened while the devices of the initramfs are still reachable.
    let mut channel = None;
    let lines = match job.streams {
        Streams::Terminal { .. } => None,
        Streams::Separate => Some(pump::Lines::open(job.input_along, linux)?),
        Streams::Channel => {
            channel = Some(Channel::open()?);
            None
        }
    };
    nvdimm::prepare(&job.root)?;
    mounts::root(&job)?;
    mounts::disks(&job.disks)?;
    mounts::volumes(&job.volumes)?;
    let _ = rustix::system::sethostname(job.hostname.as_bytes());
    let network = network::configure(job.network.clone())?;
    network::write_files(network.as_ref(), &job.hostname);
    if let Some(channel) = channel {
        return Agent::serve(job, channel, control, &children);
    }
    let identity = agent::users::settle(&mut job)?;
    let end = match (job.streams, lines) {
        (Streams::Separate, Some(lines)) => {
            program::with_pipes(&job, identity, control, &children, lines)
        }
        (Streams::Terminal { rows, columns }, _) => {
            program::on_terminal(&job, identity, control, &children, (rows, columns))
        }
        (Streams::Separate | Streams::Channel, _) => Err(Failure::new("the ports were not opened")),
    }?;
    if job.explain.is_some() {
        starter::send_record(control);
    }
    Ok(end)
}

fn read_job() -> Result<Job, Failure> {
    let bytes = std::fs::read(hayate_job::PATH).map_err(|error| {
        Failure::new(format!(
            "cannot read {} in the initramfs: {error}; only ./hayate starts this init",
            hayate_job::PATH
        ))
    })?;
    Job::decode(&bytes).map_err(|error| Failure::new(format!("{}: {error}", hayate_job::PATH)))
}
