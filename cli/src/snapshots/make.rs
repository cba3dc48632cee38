//! `./hayate snapshot make`: boots a machine, warms it up, and saves it.
//!
//! The session's thread owns QEMU; another one converses with the guest and then with QEMU's
//! monitor, and ends the session. The memory is a file of the host's memory until then: nothing is
//! written to the disk by a machine that runs, and a full disk is an error of this process.

use super::directory::{Making, Snapshots};
use super::manifest::{
    Identity, Manifest, checksum, checksum_of, checksum_of_job, processor, version_of,
};
use super::{options, words};
use crate::arguments::Run;
use crate::arguments::snapshots::Make;
use crate::compile;
use crate::failure::{FAULT, Failure, USAGE};
use crate::guest::initramfs;
use crate::guest::log::Sink;
use crate::guest::qemu::{Qemu, host_memory};
use crate::guest::qmp::{self, QmpMessage};
use crate::guest::session::{End, Event, Monitor, Session, Streams};
use crate::machines::directory::now;
use crate::run::{self, Prepared};
use anyhow::{Context, Result, bail};
use hayate_channel::command::Command;
use hayate_channel::frame::{Decoder, Frame, Message, Side, Stream};
use hayate_channel::window::Receipts;
use hayate_channel::{FIRST, VERSION};
use hayate_job::Job;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long what the warm-ups left running may take to end, before it is killed, in seconds.
const GRACE: u32 = 10;
/// How long QEMU may take to save its devices.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a machine that hung up may take to end.
const GRACE_END: Duration = Duration::from_secs(2);

/// Makes a snapshot.
pub fn make(options: &Make) -> Result<u8> {
    options::check_make(&options.run)?;
    run::check(&options.run)?;
    let warm = warm_ups(options)?;
    let words = own_words()?;
    let making = Snapshots::open()?.begin(&options.name)?;
    let (run, name) = (&options.run, options.name.as_str());
    save(
        &making,
        &Plan {
            run,
            name,
            words,
            texts: options.warm.clone(),
            warm,
            rehearses: false,
            gives_back: false,
            limit: run.timeout,
        },
    )?;
    Ok(0)
}

/// The parts of a snapshot that is to be made.
pub struct Plan<'a> {
    /// The options of its machine.
    pub run: &'a Run,
    /// The machine's name.
    pub name: &'a str,
    /// The words that the manifest has of the command line.
    pub words: Vec<String>,
    /// The warm-ups, as they were written.
    pub texts: Vec<String>,
    /// The words of the warm-ups, each as often as wanted.
    pub warm: Vec<Vec<String>>,
    /// Whether the start of the program that the options name is rehearsed.
    pub rehearses: bool,
    /// Whether its clones give unused memory back while they run.
    pub gives_back: bool,
    /// The time limit, in seconds.
    pub limit: Option<u64>,
}

/// Boots the machine, warms it up and saves it.
///
/// # Errors
/// The machine, a warm-up or the disk fails. A snapshot of this name stays as it was.
pub fn save(making: &Making, plan: &Plan<'_>) -> Result<()> {
    let Prepared { mut job, archive, mut qemu, container } = run::prepare(plan.run, false)?;
    // A machine that could be started again with TCG would not be the one that is described.
    qemu.settle();
    let program = std::mem::take(&mut job.arguments);
    let rehearsal = plan.rehearses.then_some(program);
    job.streams = hayate_job::Streams::Channel;
    job.hostname = plan.name.into();
    // QEMU saves no machine that has mounted one; each clone mounts its own.
    job.volumes = Vec::new();
    let mut chosen = plan.run.clone();
    chosen.machine.accel = qemu.accel();
    let defining = options::defining(&chosen).into_iter();
    let about = About {
        words: plan.words.clone(),
        texts: plan.texts.clone(),
        options: defining.map(|(field, (_, value))| (field.to_string(), value)).collect(),
        image: container.map(|container| container.text()).transpose()?,
    };
    let further = [compile::copy()?];
    let initramfs = initramfs::make(&job, archive.as_deref(), None, &further, &[])?;
    let machine = Machine { name: plan.name, qemu, job: &job, initramfs: &initramfs };
    let limit = plan.limit.map(Duration::from_secs);
    let warming = Warming { rehearsal, warm: &plan.warm, limit };
    save_machine(making, machine, about, warming, plan.gives_back)
}

/// A machine that is to be saved: it carries programs out by its channel, and its job names none.
pub struct Machine<'a> {
    /// The snapshot's name.
    pub name: &'a str,
    /// The machine.
    pub qemu: Qemu,
    /// Its job.
    pub job: &'a Job,
    /// Its initramfs, with that job.
    pub initramfs: &'a File,
}

/// The parts of a snapshot's manifest that only tell how it was made.
#[derive(Default)]
pub struct About {
    /// The words of the command line.
    pub words: Vec<String>,
    /// The warm-ups, as they were written.
    pub texts: Vec<String>,
    /// The options that define the machine, by their fields' names.
    pub options: BTreeMap<String, String>,
    /// What the image of its root file system says, if there is one.
    pub image: Option<String>,
}

/// What a machine does before it is saved.
#[derive(Default)]
pub struct Warming<'a> {
    /// The program whose start is rehearsed, if any.
    pub rehearsal: Option<Vec<Vec<u8>>>,
    /// The words of the warm-ups, in their order.
    pub warm: &'a [Vec<String>],
    /// The longest that boot and warm-ups may take.
    pub limit: Option<Duration>,
}

/// Boots a machine, warms it up and saves it.
///
/// # Errors
/// The machine, a warm-up or the disk fails. A snapshot of this name stays as it was.
pub fn save_machine(
    making: &Making,
    machine: Machine<'_>,
    about: About,
    warming: Warming<'_>,
    gives_back: bool,
) -> Result<()> {
    let Machine { name, mut qemu, job, initramfs } = machine;
    let (size, cpus) = qemu.size();
    let memory = host_memory("memory")?;
    memory.set_len(size << 20).context("cannot make the machine's memory")?;
    qemu.share_memory(memory.try_clone().context("cannot duplicate a descriptor")?, gives_back);
    let devices = host_memory("devices")?;
    let mut manifest = Manifest {
        made: now(),
        words: about.words,
        warm: about.texts,
        options: about.options,
        memory: size,
        cpus,
        kvm: qemu.has_kvm(),
        network: qemu.has_network(),
        gives_back,
        qemu: Identity::with(&qemu.program, version_of)?,
        kernel: Identity::with(&qemu.boot.kernel, checksum_of)?,
        disks: qemu.disks().map(Identity::of).collect::<Result<_>>()?,
        processor: processor(),
        token: token()?,
        image: about.image,
        devices: (0, String::new()),
        job: checksum_of_job(job),
    };
    boot(name, warming, qemu, initramfs, &devices)?;
    let mut state = vec![0; usize::try_from(devices.metadata()?.len())?];
    devices.read_exact_at(&mut state, 0).context("cannot read the state of the devices")?;
    manifest.devices = (state.len() as u64, checksum(&state));
    making.finish(&memory, &state, &manifest)
}

/// The words of the warm-ups, each as often as wanted.
fn warm_ups(options: &Make) -> Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for text in &options.warm {
        let split = words::split(text);
        let words = split.map_err(|why| {
            Failure::error(USAGE, format!("--warm {text:?} cannot be read as words: {why}"))
        })?;
        all.extend(std::iter::repeat_n(words, options.times as usize));
    }
    Ok(all)
}

/// The words of this process's command line behind `snapshot make`.
fn own_words() -> Result<Vec<String>> {
    let words = std::env::args_os().skip(3).map(std::ffi::OsString::into_string);
    words.collect::<Result<_, _>>().map_err(|word| {
        Failure::error(USAGE, format!("a snapshot's options are kept as text: {word:?} is none"))
    })
}

fn token() -> Result<String> {
    let mut bytes = [0; 16];
    let mut random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    random.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs the machine until its devices are saved.
fn boot(
    name: &str,
    warming: Warming<'_>,
    qemu: Qemu,
    initramfs: &File,
    devices: &File,
) -> Result<()> {
    let (guests, guest) = channel();
    let (monitors, monitor) = channel();
    let Warming { rehearsal, warm, limit } = warming;
    let warm = warm.to_vec();
    let mut session = Session::new(qemu, Streams::Channel(guests), Sink::None, limit);
    session.share_monitor(monitors);
    run::pass_signals_on(session.events())?;
    let (events, devices) = (session.events(), devices.try_clone()?);
    let worker = std::thread::spawn(move || {
        let done = converse(&guest, &monitor, rehearsal, &warm, &devices);
        if done.as_ref().is_err_and(|error| error.downcast_ref::<HungUp>().is_some()) {
            // The session's thread will know that QEMU has ended, and say why.
            std::thread::sleep(GRACE_END);
        }
        let _ = events.send(Event::Over(if done.is_ok() { 0 } else { FAULT.into() }));
        done
    });
    let outcome = session.run(Some(initramfs))?;
    let done = worker.join().unwrap_or_else(|_| bail!("the making was given up"));
    match (&outcome.end, done) {
        (End::Program(0), Ok(())) => Ok(()),
        // The machine has not failed, or nothing more is known of it.
        (End::Program(_), Err(error)) if outcome.errors.is_empty() => Err(error),
        _ => {
            run::conclude(&outcome, false)?;
            Err(Failure::error(FAULT, format!("the snapshot {name} was not made")))
        }
    }
}

/// Warms the machine up, ends its programs, and saves its devices.
fn converse(
    guest: &Receiver<UnixStream>,
    monitor: &Receiver<Monitor>,
    rehearsal: Option<Vec<Vec<u8>>>,
    warm: &[Vec<String>],
    devices: &File,
) -> Result<()> {
    let guest = guest.recv().context("the machine was not started")?;
    let monitor = monitor.recv().context("the machine was not started")?;
    let mut guest = Guest { socket: guest, decoder: Decoder::new(Side::Guest) };
    match guest.hear()?.message {
        Message::Hello(VERSION) => {}
        _ => bail!("the machine does not say that it is ready"),
    }
    let mut numbers = FIRST + 1..;
    if let (Some(arguments), Some(number)) = (rehearsal, numbers.next()) {
        // Whatever comes of it, a later start is right: this one only makes it faster.
        let command = Command { arguments, rehearses: true, ..Command::default() };
        let _ = guest.follow(number, command, |_| ())?;
    }
    for (number, words) in numbers.zip(warm) {
        guest.run(number, words)?;
    }
    guest.say(FIRST, Message::Settle(GRACE))?;
    while guest.hear()?.message != Message::Settled {}
    qmp::save(&monitor.socket, devices).context("cannot write to QEMU's monitor")?;
    loop {
        let message = monitor.messages.recv_timeout(PATIENCE);
        match message.context("QEMU does not say that its devices are saved")? {
            QmpMessage::Migration(state) if state == "completed" => return Ok(()),
            QmpMessage::Migration(state) if state == "failed" => {
                bail!("QEMU cannot save this machine's devices");
            }
            QmpMessage::Refused(why) => bail!("QEMU does not save the machine: {why}"),
            _ => {}
        }
    }
}

/// The machine is gone.
#[derive(Debug)]
struct HungUp;

impl std::fmt::Display for HungUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the machine ended")
    }
}

impl std::error::Error for HungUp {}

/// The guest's init, as the maker speaks with it.
struct Guest {
    socket: UnixStream,
    decoder: Decoder,
}

impl Guest {
    fn say(&mut self, session: u32, message: Message) -> Result<()> {
        let bytes = Frame::new(session, message).encode();
        Ok(self.socket.write_all(&bytes).map_err(|_| HungUp)?)
    }

    fn hear(&mut self) -> Result<Frame> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(frame) =
                self.decoder.frame().map_err(|error| anyhow::anyhow!("the machine sent {error}"))?
            {
                return Ok(frame);
            }
            match self.socket.read(&mut buffer) {
                Ok(0) | Err(_) => return Err(HungUp.into()),
                Ok(count) => self.decoder.push(&buffer[..count]),
            }
        }
    }

    /// Runs a warm-up; what it prints goes to standard error.
    fn run(&mut self, number: u32, words: &[String]) -> Result<()> {
        let arguments = words.iter().map(|word| word.clone().into_bytes()).collect();
        let command = Command { arguments, ..Command::default() };
        // Nobody may read it.
        let show = |bytes: &[u8]| drop(std::io::stderr().write_all(bytes));
        let how = match self.follow(number, command, show)? {
            Ok(0) => return Ok(()),
            Ok(status) => format!("ended with status {status}"),
            Err(why) => format!("was not started ({why})"),
        };
        let text = format!("the warm-up {:?} {how}: no snapshot is made", words.join(" "));
        Err(Failure::error(FAULT, text))
    }

    /// Starts a program and follows it to its end: its status, or why it was not started.
    fn follow(
        &mut self,
        number: u32,
        command: Command,
        mut show: impl FnMut(&[u8]),
    ) -> Result<std::result::Result<u8, String>> {
        self.say(number, Message::Open(Box::new(command)))?;
        self.say(number, Message::Close(Stream::Input))?;
        let mut receipts = [Receipts::default(), Receipts::default()];
        loop {
            let Frame { session, message } = self.hear()?;
            if session != number {
                continue;
            }
            match message {
                Message::Data(stream, bytes) => {
                    show(&bytes);
                    let receipts = &mut receipts[usize::from(stream == Stream::Error)];
                    if let Some(credit) = receipts.passed_on(bytes.len()) {
                        self.say(number, Message::Credit(stream, credit))?;
                    }
                }
                Message::Exit(status) => return Ok(Ok(status)),
                Message::Failed(_, text) => return Ok(Err(text)),
                _ => {}
            }
        }
    }
}
