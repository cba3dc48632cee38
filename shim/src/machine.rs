//! The machine of a pod: started with the pod, ended with it.
//!
//! A thread of its own runs the session (`hayate_cli::guest::session`), which starts QEMU and
//! decides when it is over; QEMU dies with that thread, and so with this process. The thread enters
//! the network namespace of the pod before: QEMU's interface lies there ([`crate::network`]).

use crate::library::Library;
use crate::link::{Link, link};
use crate::network::TAP;
use crate::size::Size;
use crate::spec::Network;
use crate::starts::{self, Kind};
use anyhow::{Context, Result, anyhow};
use hayate_cli::arguments::network::{Net, Network as Device};
use hayate_cli::arguments::{Accel, Board, Machine as Options, Monitor as Vmm, Profile};
use hayate_cli::guest::log::Sink;
use hayate_cli::guest::network::any_mac;
use hayate_cli::guest::qemu::Qemu;
use hayate_cli::guest::session::{Event, Outcome, Session, Streams};
use hayate_cli::guest::{initramfs, volumes::Volume};
use hayate_cli::snapshots::clone;
use hayate_container_plan::POD;
use hayate_job::{Job, Root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// How the kernel's message about a process begins that is ended because the machine lacks memory
/// (`kernel/src/process/victim.rs`).
const LACKS: &str = "out of memory: process ";
/// The same where its control group does (`kernel/src/process/cgroup/memory.rs`).
const LACKS_IN_GROUP: &str = "Memory cgroup out of memory: ";
/// ld.so(8). containerd sets it to a folder of its own and an empty one, which is the working
/// directory: a dozen places to look for each of QEMU's libraries, where they are not, and where
/// nothing of a pod should count as one.
pub const LIBRARIES: &str = "LD_LIBRARY_PATH";
/// The longest line of the kernel's that is looked at.
const MOST_LINE: usize = 1024;

/// A process was ended because memory lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack;

/// A machine that runs.
pub struct Machine {
    /// The channel to its guest.
    pub link: Link,
    /// QEMU's number on the host.
    pub pid: u32,
    /// Its size.
    pub size: Size,
    /// Whether it has an interface in the namespace of its pod.
    pub has_tap: bool,
    events: Sender<Event>,
    over: watch::Receiver<bool>,
}

/// A machine that is to be started.
pub struct Wanted<'a> {
    /// Memory and processors.
    pub size: Size,
    /// The folder that it shares.
    pub folder: &'a Path,
    /// Its host name.
    pub name: &'a str,
    /// Its network.
    pub network: &'a Network,
}

impl Machine {
    /// Starts a machine; programs that are started meanwhile wait for its guest. The receiver has
    /// what the kernel says of processes that are ended because memory lacks.
    ///
    /// # Errors
    /// Files of the installation are missing, or QEMU does not start.
    pub async fn start(wanted: Wanted<'_>) -> Result<(Machine, UnboundedReceiver<Lack>)> {
        let library = Library::find()?;
        let kind = Kind { size: wanted.size, has_tap: has_tap(wanted.network) };
        let Origin { qemu, initramfs, greeting } = origin(&wanted, kind, &library)?;
        if initramfs.is_some() {
            starts::remember(kind);
        }
        let (lacking, victims) = unbounded_channel();
        let sink = Sink::Shared(Arc::new(Mutex::new(Watch { line: Vec::new(), lacking })));
        let (guests, guest) = channel();
        let (numbers, number) = tokio::sync::oneshot::channel();
        let events = run(Thread {
            qemu,
            guests,
            sink,
            numbers,
            initramfs,
            network: Namespace::of(wanted.network)?,
        })?;
        let (link, waiting) = link();
        let (ended, over) = watch::channel(false);
        let ready = events.events.clone();
        tokio::spawn(async move {
            let guest = tokio::task::spawn_blocking(move || guest.recv()).await;
            if let Ok(Ok(guest)) = guest
                && guest.set_nonblocking(true).is_ok()
                && let Ok(guest) = tokio::net::UnixStream::from_std(guest)
            {
                waiting.serve(guest, greeting, move || drop(ready.send(Event::Ready))).await;
            }
        });
        let outcome = events.outcome;
        tokio::spawn(async move {
            match outcome.await {
                Ok(Ok(outcome)) => log::info!("the machine has ended: {:?}", outcome.end),
                Ok(Err(error)) => log::error!("the machine has ended: {error:#}"),
                Err(_) => log::error!("the thread of the machine has ended"),
            }
            let _ = ended.send(true);
        });
        let pid =
            number.await.map_err(|_| anyhow!("QEMU was not started; the shim's log says why"))?;
        let Kind { size, has_tap } = kind;
        let machine = Machine { link, pid, size, has_tap, events: events.events, over };
        Ok((machine, victims))
    }

    /// Kills QEMU.
    pub fn end(&self) {
        let _ = self.events.send(Event::Over(0));
    }

    /// Waits until QEMU has ended.
    pub async fn ended(&self) {
        let mut over = self.over.clone();
        let _ = over.wait_for(|over| *over).await;
    }

    /// Whether QEMU has ended.
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }
}

/// Whether a machine has an interface in the namespace of its pod. In the host's own it speaks as
/// an ordinary program, as it does where the host's kernel has no such interfaces.
pub fn has_tap(network: &Network) -> bool {
    *network != Network::Host && Path::new("/dev/net/tun").exists()
}

/// How a machine begins.
struct Origin {
    qemu: Qemu,
    /// For one that boots.
    initramfs: Option<File>,
    /// The first message to one that is restored; else empty.
    greeting: Vec<u8>,
}

/// Makes a machine: it begins at a start that was kept, or boots.
fn origin(wanted: &Wanted, kind: Kind, library: &Library) -> Result<Origin> {
    let options = options(kind);
    let mut qemu = Qemu::installed(&options, library.kernel())?;
    qemu.accelerate(library.has_kvm());
    let start = starts::find(kind, library, &qemu);
    let is_restored = start.is_some();
    if let Some(start) = start {
        let chosen = Options { accel: qemu.accel(), ..options };
        qemu = Qemu::restored(&chosen, library.kernel(), start.restored()?)?;
    }
    qemu.hide_variable(LIBRARIES);
    let mut shared = OsString::from(wanted.folder);
    shared.push(format!(":{POD}"));
    let volume = qemu.volume(Volume::of(&shared)?)?;
    let told = if kind.has_tap { None } else { qemu.network() };
    let job = job(wanted.name, vec![volume], told);
    if is_restored {
        let hardware = any_mac()?.0;
        let greeting = clone::greeting(Some(hardware), wanted.name, Some(job))?;
        return Ok(Origin { qemu, initramfs: None, greeting });
    }
    let programs = [library.container()];
    let temporary = std::env::temp_dir();
    let initramfs = initramfs::pack(&temporary, &job, None, None, &library.init(), &programs, &[])?;
    Ok(Origin { qemu, initramfs: Some(initramfs), greeting: Vec::new() })
}

/// The options of a machine.
pub fn options(kind: Kind) -> Options {
    Options {
        cpus: kind.size.cpus,
        memory: kind.size.memory,
        accel: Accel::Auto,
        board: Board::Q35,
        aslr: None,
        deterministic: false,
        nvm: None,
        network: Device::of(match kind.has_tap {
            true => Net::OwnTap(TAP.into()),
            false => Net::User,
        }),
        append: Vec::new(),
        qemu: Vec::new(),
        kernel: None,
        background: false,
        vmm: Vmm::Qemu,
        linux: false,
        processor: None,
        profile: Profile::Release,
    }
}

/// The job of a machine with this host name.
pub fn job(
    name: &str,
    volumes: Vec<hayate_job::Volume>,
    network: Option<hayate_job::Network>,
) -> Job {
    Job {
        arguments: Vec::new(),
        environment: Vec::new(),
        directory: None,
        user: (0, 0),
        account: None,
        stop_signal: None,
        hostname: name.to_string(),
        root: Root::Memory,
        persist: None,
        mounts: Vec::new(),
        disks: Vec::new(),
        volumes,
        streams: hayate_job::Streams::Channel,
        input_along: false,
        network,
        explain: None,
    }
}

/// The network namespace of a thread.
enum Namespace {
    Host,
    New,
    Of(File),
}

impl Namespace {
    fn of(network: &Network) -> Result<Namespace> {
        Ok(match network {
            Network::Host => Namespace::Host,
            Network::New => Namespace::New,
            Network::Namespace(path) => {
                let tried = || format!("cannot open the network namespace {}", path.display());
                Namespace::Of(File::open(path).with_context(tried)?)
            }
        })
    }

    /// Moves the calling thread there, and so what it starts.
    fn enter(&self) -> Result<()> {
        match self {
            Namespace::Host => Ok(()),
            Namespace::New => nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .context("cannot make a network namespace"),
            Namespace::Of(file) => {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .context("cannot enter the network namespace")
            }
        }
    }
}

/// The parts that a machine's thread works with.
struct Thread {
    qemu: Qemu,
    guests: Sender<std::os::unix::net::UnixStream>,
    sink: Sink,
    numbers: tokio::sync::oneshot::Sender<u32>,
    initramfs: Option<File>,
    network: Namespace,
}

/// The ends of a session that was started.
struct Started {
    events: Sender<Event>,
    outcome: tokio::sync::oneshot::Receiver<Result<Outcome>>,
}

/// Runs the session in a thread of its own.
fn run(thread: Thread) -> Result<Started> {
    let (sender, outcome) = tokio::sync::oneshot::channel();
    let (told, events) = channel();
    let Thread { qemu, guests, sink, numbers, initramfs, network } = thread;
    let body = move || {
        if let Err(error) = network.enter() {
            let _ = sender.send(Err(error));
            return;
        }
        let mut session = Session::new(qemu, Streams::Channel(guests), sink, None);
        let numbers = Mutex::new(Some(numbers));
        session.tell_process(move |pid| {
            let number = numbers.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(number) = number {
                let _ = number.send(pid);
            }
        });
        let _ = told.send(session.events());
        let _ = sender.send(session.run(initramfs.as_ref()));
    };
    let named = std::thread::Builder::new().name("machine".into());
    named.spawn(body).context("cannot start a thread")?;
    let events = events.recv().context("the machine's thread has ended")?;
    Ok(Started { events, outcome })
}

/// Reads the kernel's messages.
struct Watch {
    line: Vec<u8>,
    lacking: UnboundedSender<Lack>,
}

impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() < MOST_LINE {
                    self.line.push(byte);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end().to_string();
            log::debug!("kernel: {line}");
            if let Some(lack) = lack(&line) {
                let _ = self.lacking.send(lack);
            }
            self.line.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether a message of the kernel's tells that a process is ended because memory lacks: that of a
/// control group, or the machine's.
fn lack(line: &str) -> Option<Lack> {
    [LACKS_IN_GROUP, LACKS].iter().any(|text| line.contains(text)).then_some(Lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_victim_is_known_by_its_message() {
        for line in [
            "[    1.5] warning: out of memory: process 37 (tail) is ended",
            "[ 1.5] warning: Memory cgroup out of memory: Killed process 9 (tail)",
        ] {
            assert_eq!(lack(line), Some(Lack));
        }
        assert_eq!(lack("process 37 is ended"), None);
    }
}
