//! Machines that begin at a snapshot: `run --from`, and what `start --from` needs.

use super::directory::{Snapshot, Snapshots};
use super::manifest::{checksum_of_job, unusable};
use super::options;
use crate::arguments::snapshots::Make;
use crate::arguments::{Accel, Machine, Run};
use crate::containers;
use crate::failure::{FAULT, Failure, USAGE};
use crate::guest::log::Sink;
use crate::guest::qemu::Qemu;
use crate::guest::session::{End, Event, Outcome, Session, Streams};
use crate::guest::{network, terminal, volumes};
use crate::machines::exec::{self, Line, converse, pass_signals_on};
use crate::run::{self, standard};
use anyhow::{Context, Result};
use clap::Parser;
use hayate_channel::FIRST;
use hayate_channel::command::Command;
use hayate_channel::frame::{Frame, Message};
use hayate_job::{Fresh, Job, SEED};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a program may take to end after a signal that asks it to.
const GRACE: Duration = Duration::from_secs(10);
/// How long a machine that hung up may take to end.
const GRACE_END: Duration = Duration::from_secs(2);
/// The longest part of a snapshot's name in a clone's host name: a name has 64 bytes at most.
const MOST_NAME: usize = 48;

/// The words of a manifest.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    make: Make,
}

/// A machine that begins at a snapshot.
pub struct Clone {
    /// The machine.
    pub qemu: Qemu,
    /// Its job, without a program.
    job: Job,
    /// Whether the job is that of the snapshot, and no network is to be set up.
    is_same: bool,
    hardware: Option<[u8; 6]>,
    /// The program that the options and the image of its root file system name.
    arguments: Vec<Vec<u8>>,
    /// Whether it was made of an image.
    is_of_image: bool,
}

/// Makes a machine from the snapshot that the options name; `hostname`: its name.
///
/// # Errors
/// There is no such snapshot, it cannot be used, or options are not its own.
pub fn prepare(options: &Run, hostname: Option<&str>) -> Result<Clone> {
    let name = options.from.as_deref().context("no snapshot")?;
    let snapshot = Snapshots::there()?.find(name)?;
    options::check_clone(options, name, &snapshot.manifest.options)?;
    if let Some(why) = snapshot.manifest.obstacle() {
        return Err(unusable(name, &why));
    }
    let words = Words::try_parse_from(&snapshot.manifest.words);
    let made = words.map_err(|_| unusable(name, "its options are of another version"))?.make.run;
    of(snapshot, &made, options, hostname)
}

/// Makes a machine from a snapshot that was found usable.
///
/// * `made` - the options with which the snapshot was made.
/// * `hostname` - the machine's name; without it one is made of the snapshot's.
///
/// # Errors
/// The network that the options name is none for this snapshot.
pub fn of(snapshot: Snapshot, made: &Run, options: &Run, hostname: Option<&str>) -> Result<Clone> {
    let (name, manifest) = (snapshot.name.clone(), snapshot.manifest.clone());
    let name = name.as_str();
    let mut machine = Machine { network: options.machine.network.clone(), ..made.machine.clone() };
    machine.accel = if manifest.kvm { Accel::Kvm } else { Accel::Tcg };
    let image = manifest.image.as_deref().map(containers::configuration).transpose()?;
    if let Some(image) = &image {
        containers::publish(&mut machine.network, image)?;
    }
    options::choose_network(&mut machine, name, manifest.network)?;
    let random = random()?;
    let hardware = match (manifest.network, machine.network.mac) {
        (false, _) => None,
        (true, Some(mac)) => Some(mac.0),
        (true, None) => Some(network::any_mac()?.0),
    };
    let volumes = volumes::requested(&options.volume)?;
    let mut qemu = Qemu::restored(&machine, manifest.kernel.path.clone(), snapshot.restored()?)?;
    for disk in &manifest.disks {
        qemu.disk(&disk.path)?;
    }
    let volumes = volumes.into_iter().map(|volume| qemu.volume(volume)).collect::<Result<_>>()?;
    let own = random.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>();
    let hostname = hostname
        .map_or_else(|| format!("{}-{own}", &name[..name.len().min(MOST_NAME)]), String::from);
    let network = qemu.network();
    let job = run::job(&both(made, options), image.as_ref(), false);
    let job = Job { hostname, network, volumes, ..job };
    let arguments = job.arguments.clone();
    let job = Job { arguments: Vec::new(), streams: hayate_job::Streams::Channel, ..job };
    let asks = job.network.as_ref().is_some_and(|network| network.dhcp || network.speaks_first);
    let is_same = !asks && checksum_of_job(&job) == manifest.job;
    Ok(Clone { qemu, job, is_same, hardware, arguments, is_of_image: image.is_some() })
}

/// The options about programs: those of the snapshot, unless a clone has others.
fn both(made: &Run, options: &Run) -> Run {
    let mut env = made.env.clone();
    env.extend(options.env.iter().cloned());
    let user = options.user.clone().or_else(|| made.user.clone());
    let entrypoint = options.entrypoint.clone().or_else(|| made.entrypoint.clone());
    let directory = options.directory.clone().or_else(|| made.directory.clone());
    Run { env, user, directory, entrypoint, ..options.clone() }
}

fn random() -> Result<[u8; SEED]> {
    let mut bytes = [0; SEED];
    let mut random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    random.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes)
}

impl Clone {
    /// The program that the options and the image name.
    ///
    /// # Errors
    /// The options replace something of an image, and there is none.
    pub fn words(&self, options: &Run) -> Result<Vec<Vec<u8>>> {
        if options.entrypoint.is_some() && !self.is_of_image {
            let text = "--entrypoint replaces that of an image, and the snapshot was made of none";
            return Err(Failure::error(USAGE, text));
        }
        Ok(self.arguments.clone())
    }

    /// The first message to the machine, with random bytes that nobody else has. `program`: what it
    /// starts by itself, if anything.
    pub fn greeting(&self, program: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        let is_same = self.is_same && program.is_empty();
        let job = (!is_same).then(|| Job { arguments: program, ..self.job.clone() });
        greeting(self.hardware, &self.job.hostname, job)
    }
}

/// The first message to a machine that was restored.
///
/// * `hardware` - the Ethernet address of its network device, if it has one.
/// * `job` - its job, unless that is the snapshot's.
///
/// # Errors
/// The host gives no random bytes.
pub fn greeting(hardware: Option<[u8; 6]>, hostname: &str, job: Option<Job>) -> Result<Vec<u8>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let fresh = Fresh { seed: random()?, time, hardware, hostname: hostname.into(), job };
    Ok(Frame::new(FIRST, Message::Fresh(fresh.encode())).encode())
}

/// `./hayate run --from`.
pub fn run(options: &Run) -> Result<u8> {
    let began = Instant::now();
    let sink = Sink::open(options.log.as_deref())?;
    go(options, prepare(options, None)?, sink, began)
}

/// Runs the program that the options name in a clone. `began`: when this command did.
pub fn go(options: &Run, clone: Clone, sink: Sink, began: Instant) -> Result<u8> {
    let on_terminal = !options.no_tty && (options.tty || terminal::present());
    let greeting = clone.greeting(Vec::new())?;
    let name = clone.job.hostname.clone();
    let environment = if on_terminal { vec![run::terminal_variable()] } else { Vec::new() };
    let command = Command {
        arguments: clone.words(options)?,
        environment,
        terminal: on_terminal.then(terminal::size),
        ..Command::default()
    };
    let shown = matches!(sink, Sink::Screen);
    let (guests, guest) = channel();
    let limit = options.timeout.map(Duration::from_secs);
    let session = Session::new(clone.qemu, Streams::Channel(guests), sink, limit);
    let events = session.events();
    if on_terminal {
        terminal::make_raw();
    }
    let client = std::thread::spawn(move || {
        let ready = || drop(events.send(Event::Ready));
        let ended = talk(&guest, &name, &greeting, command, &ready);
        if ended.as_ref().is_err_and(|error| error.downcast_ref::<Failure>().is_some()) {
            // The machine has ended: the session's thread will know it, and say why.
            std::thread::sleep(GRACE_END);
        }
        let status = match &ended {
            Ok(exec::End::Status(status)) => (*status).into(),
            _ => FAULT.into(),
        };
        let _ = events.send(Event::Over(status));
        ended
    });
    let outcome = session.run(None);
    terminal::restore();
    let outcome = outcome?;
    if options.timing {
        run::print_timing(&outcome, outcome.began.saturating_duration_since(began));
    }
    conclude(&outcome, shown, client)
}

fn conclude(
    outcome: &Outcome,
    shown: bool,
    client: std::thread::JoinHandle<Result<exec::End>>,
) -> Result<u8> {
    // It may wait for a machine that hangs.
    let is_over = matches!(outcome.end, End::Program(_)) && outcome.errors.is_empty();
    if is_over && client.is_finished() {
        let ended = client.join().ok().transpose()?;
        if let Some(exec::End::Failed(status, text)) = ended {
            return Err(Failure::error(status, text));
        }
    }
    run::conclude(outcome, shown)
}

/// Greets the machine and runs the program, both without waiting for an answer between.
fn talk(
    guest: &Receiver<UnixStream>,
    name: &str,
    greeting: &[u8],
    command: Command,
    ready: &dyn Fn(),
) -> Result<exec::End> {
    let mut guest = guest.recv().context("the machine was not started")?;
    guest.write_all(greeting).context("the machine ended")?;
    // QEMU ends with this command.
    pass_signals_on(Line::new(&guest)?, Some(GRACE))?;
    let input = Box::new(standard(rustix::stdio::stdin())?);
    let outputs = [standard(rustix::stdio::stdout())?, standard(rustix::stdio::stderr())?];
    converse(name, &guest, command, Some(input), outputs, ready)
}
