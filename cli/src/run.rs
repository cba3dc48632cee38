//! `./hayate run`: one program in one machine.

use crate::arguments::network::Net;
use crate::arguments::{Accel, Machine, Mode, Monitor, Run};
use crate::containers::{self, Container};
use crate::failure::{self, Failure, USAGE};
use crate::guest::log::Sink;
use crate::guest::nvm::names_only_a_device;
use crate::guest::qemu::Qemu;
use crate::guest::session::{End, Event, Outcome, Session, Streams};
use crate::guest::{accel, backtrace, disk, initramfs, network, processor, terminal, volumes};
use crate::image::{convert, default};
use crate::persist;
use crate::snapshots;
use crate::snapshots::automatic;
use crate::templates;
use crate::vmm::{self, Vmm};
use anyhow::{Context, Result, bail};
use hayate_container_image::Configuration;
use hayate_job::{Explain, Job, Mount, Root};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The search path for programs unless `--env PATH=...` sets another.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The most input that an initramfs can contain, in bytes.
const INPUT_MOST: u64 = 64 << 20;

/// The words that start a program in supervisor mode, in every guest.
pub const IN_SUPERVISOR_MODE: [&str; 3] = ["/run/hayate/bin/mode", "run", "--"];

/// Boots a machine, runs the program, returns the exit status for the host.
pub fn run(options: &Run) -> Result<u8> {
    if options.from.is_some() {
        return snapshots::clone::run(options);
    }
    let began = Instant::now();
    let ready = ready(options)?;
    let kept = automatic::key(options, &ready.prepared.qemu);
    if let Some(clone) = kept.as_deref().and_then(|key| automatic::find(key, options)) {
        return snapshots::clone::go(options, clone, ready.sink, began);
    }
    let (outcome, shown) = start(options, ready, None)?;
    if options.timing {
        print_timing(&outcome, outcome.began.saturating_duration_since(began));
    }
    let status = conclude(&outcome, shown)?;
    if let (Some(key), End::Program(_)) = (kept, &outcome.end) {
        automatic::remember(&key, options);
    }
    Ok(status)
}

/// A machine that is about to be started.
struct Ready {
    sink: Sink,
    prepared: Prepared,
    on_terminal: bool,
}

/// Checks the options, and makes what the machine needs.
fn ready(options: &Run) -> Result<Ready> {
    let on_terminal = !options.no_tty && (options.tty || terminal::present());
    // Checked before anything is built: a wrong option is reported at once.
    check(options)?;
    if let Some(vmm) = vmm::of(options.machine.vmm) {
        return Err(describe(options, vmm)?);
    }
    let sink = Sink::open(options.log.as_deref())?;
    Ok(Ready { sink, prepared: prepare(options, on_terminal)?, on_terminal })
}

/// Boots a machine and runs the program. Returns the outcome, and whether the kernel's messages
/// were shown on the screen.
pub fn boot(options: &Run, explain: Option<Explain>) -> Result<(Outcome, bool)> {
    start(options, ready(options)?, explain)
}

fn start(options: &Run, ready: Ready, explain: Option<Explain>) -> Result<(Outcome, bool)> {
    let Ready { sink, prepared, on_terminal } = ready;
    let Prepared { mut job, archive, qemu, .. } = prepared;
    let deterministic = options.machine.deterministic;
    let input = if deterministic && !on_terminal { known_input()? } else { None };
    (job.input_along, job.explain) = (input.is_some(), explain);
    let initramfs =
        initramfs::make(&job, archive.as_deref(), input.as_deref(), &[], &qemu.boot.modules)?;
    let streams = streams(on_terminal, input.is_some())?;
    let shown = matches!(sink, Sink::Screen);
    let session = Session::new(qemu, streams, sink, options.timeout.map(Duration::from_secs));
    pass_signals_on(session.events())?;
    if on_terminal {
        terminal::make_raw();
    }
    let outcome = session.run(Some(&initramfs));
    terminal::restore();
    Ok((outcome?, shown))
}

/// Describes the machine for another monitor than QEMU; returns why it is not started.
fn describe(options: &Run, vmm: &dyn Vmm) -> Result<anyhow::Error> {
    let mut options = options.clone();
    check_foreign(&options.machine)?;
    if !options.disk.is_empty() {
        let text = "--vmm describes no disks of the user yet: leave --disk or --vmm out";
        return Err(Failure::error(USAGE, text));
    }
    (options.machine.vmm, options.machine.accel) = (Monitor::Qemu, Accel::Tcg);
    if !options.machine.network.is_chosen() {
        options.machine.network.choose(Net::None);
    }
    let Prepared { job, archive, qemu, .. } = prepare(&options, false)?;
    let initramfs = initramfs::make(&job, archive.as_deref(), None, &[], &qemu.boot.modules)?;
    vmm::write(vmm, initramfs, |folder| qemu.describe(folder))
}

/// Refuses options that only QEMU understands.
fn check_foreign(machine: &Machine) -> Result<()> {
    let network = machine.network.net();
    let text = if machine.deterministic {
        "only QEMU counts instructions: leave --deterministic or --vmm out"
    } else if machine.linux {
        "--vmm describes machines for Hayate's kernel: leave --linux out"
    } else if machine.nvm.is_some() {
        "--vmm describes no non-volatile memory yet: leave --nvm out"
    } else if !machine.qemu.is_empty() {
        "--qemu is for QEMU: leave --qemu or --vmm out"
    } else if !matches!(network, Net::None | Net::Tap(_)) {
        "only QEMU has networks of its own: say --net tap:NAME or --net none"
    } else {
        return Ok(());
    };
    Err(Failure::error(USAGE, text))
}

/// A machine whose files are made, and its job.
pub struct Prepared {
    /// The job, with its disks and network.
    pub job: Job,
    /// The archive of its root file system, if it has no disk for that.
    pub archive: Option<PathBuf>,
    /// The machine.
    pub qemu: Qemu,
    /// The container image of its root file system.
    pub container: Option<Container>,
}

/// Makes the images of a machine, and finds its kernel.
pub fn prepare(options: &Run, on_terminal: bool) -> Result<Prepared> {
    let disks = disk::given(&options.disk)?;
    let container = options.image.as_deref().map(containers::find).transpose()?;
    let (root, texts) = root(options, container.as_ref())?;
    let volumes = volumes::requested(&options.volume)?;
    let with: Vec<_> = options.with.iter().map(|with| folder(with)).collect::<Result<_>>()?;
    let mut machine = options.machine.clone();
    if let Some(policy) = &options.recycle {
        machine.append.push(format!("recycle={policy}"));
    }
    if let Some(container) = &container {
        containers::publish(&mut machine.network, &container.configuration)?;
    }
    network::choose(&mut machine)?;
    let mut qemu = accel::machine(&machine)?;
    let volumes = volumes.into_iter().map(|volume| qemu.volume(volume));
    let volumes = volumes.collect::<Result<_>>()?;
    let texts = match options.template.is_empty() {
        true => texts,
        false => {
            let files =
                templates::Files { root: root.file(), texts: texts.as_deref(), with: &with };
            Some(templates::memory(options, &files, &qemu)?)
        }
    };
    if let Some(texts) = &texts {
        qemu.texts(texts)?;
    }
    let layer = match (&options.persist, &root) {
        (Some(name), RootFile::Disk(image)) => Some(persist::layer(name, image)?),
        _ => None,
    };
    let (root, archive) = match root {
        RootFile::Disk(image) => (Root::disk(qemu.disk(&image)?), None),
        RootFile::Archive(archive) => (Root::Memory, Some(archive)),
    };
    let mounts = with
        .into_iter()
        .map(|(image, path)| Ok(Mount { device: qemu.disk(&image)?, kind: "ext4".into(), path }))
        .collect::<Result<_>>()?;
    let disks = disks.into_iter().filter_map(|disk| qemu.user_disk(disk)).collect();
    let persist = layer.map(|disk| qemu.layer(disk));
    let configuration = container.as_ref().map(|container| &container.configuration);
    let job = job(options, configuration, on_terminal);
    let job = Job { root, persist, mounts, disks, volumes, network: qemu.network(), ..job };
    Ok(Prepared { job, archive, qemu, container })
}

/// Refuses options that contradict each other.
pub fn check(options: &Run) -> Result<()> {
    let linux = options.machine.linux;
    let only_a_device = options.machine.nvm.as_deref().map(names_only_a_device);
    let text = match (only_a_device, &options.off2f) {
        (Some(false), Some(_)) => {
            "--off2f makes the non-volatile memory itself: leave --nvm out, or say --nvm virtio for \
             a virtio device"
        }
        (Some(true), None) => {
            "--nvm virtio goes with --off2f; without --off2f say --nvm virtio:FILE or virtio:SIZE"
        }
        _ if templates::obstacle(options).is_some() => {
            templates::obstacle(options).unwrap_or_default()
        }
        _ if linux && options.mode == Mode::Supervisor => {
            "--mode supervisor needs Hayate's kernel: leave --linux out"
        }
        _ if options.entrypoint.is_some() && options.image.is_none() && options.from.is_none() => {
            "--entrypoint replaces that of an image: name one by --image"
        }
        _ if options.machine.network.publish_all
            && options.image.is_none()
            && options.from.is_none() =>
        {
            "--publish-all publishes the ports of an image: name one by --image"
        }
        _ if options.machine.deterministic && !options.disk.is_empty() => {
            "--deterministic has no disk that the host takes time for: leave --disk out"
        }
        _ if options.machine.deterministic && options.persist.is_some() => {
            "--deterministic repeats a run, and what is kept changes it: leave --persist out"
        }
        _ if options.machine.vmm != Monitor::Qemu && options.persist.is_some() => {
            "--vmm describes no disks of the user yet: leave --persist or --vmm out"
        }
        _ if options.machine.deterministic && !options.volume.is_empty() => {
            "--deterministic repeats a run, but the host decides what is in a folder and when it \
             answers: leave --volume out, or show a copy by --with"
        }
        _ if options.machine.vmm != Monitor::Qemu && !options.volume.is_empty() => {
            "--vmm describes no shared folders: leave --volume out, or show a copy by --with"
        }
        _ if linux && options.recycle.is_some() => {
            "--recycle needs Hayate's kernel: leave --linux out"
        }
        _ => return processor::check(options.machine.processor.as_deref()),
    };
    Err(Failure::error(USAGE, text))
}

/// Returns the job of the guest's init, without its disks. What the command line leaves open the
/// image says, if there is one.
pub fn job(options: &Run, image: Option<&Configuration>, on_terminal: bool) -> Job {
    let streams = if on_terminal {
        let (rows, columns) = terminal::size();
        hayate_job::Streams::Terminal { rows, columns }
    } else {
        hayate_job::Streams::Separate
    };
    let numbers = match &options.user {
        Some(user) => user.numbers,
        None => Some((0, 0)),
    };
    let own = image.map(|image| image.user.as_deref().unwrap_or("0"));
    let named = options.user.as_ref().map(|user| &user.text[..]).or(own);
    let named = named.filter(|_| image.is_some() || numbers.is_none());
    let directory = options.directory.as_ref().map(|path| path.as_bytes());
    let own = image.and_then(|image| image.directory.as_ref()).map(|path| path.as_bytes());
    Job {
        arguments: arguments(options, image),
        environment: environment(options, image, on_terminal),
        directory: directory.or(own).map(<[u8]>::to_vec),
        user: numbers.unwrap_or_default(),
        account: named.map(|name| name.as_bytes().to_vec()),
        stop_signal: image.and_then(|image| image.stop_signal),
        hostname: "hayate".into(),
        root: Root::Memory,
        persist: None,
        mounts: Vec::new(),
        disks: Vec::new(),
        volumes: Vec::new(),
        streams,
        input_along: false,
        network: None,
        explain: None,
    }
}

/// Returns this command's own streams as those of the program. `input_along`: the input comes with
/// the job.
fn streams(on_terminal: bool, input_along: bool) -> Result<Streams> {
    if on_terminal {
        return Ok(Streams::Terminal);
    }
    let input = if input_along { None } else { Some(standard(rustix::stdio::stdin())?) };
    Ok(Streams::Separate {
        input: input.map(|input| Box::new(input) as _),
        output: Box::new(standard(rustix::stdio::stdout())?),
        error: Box::new(standard(rustix::stdio::stderr())?),
    })
}

/// The file of a root file system that is ready for a machine.
enum RootFile {
    Disk(PathBuf),
    Archive(PathBuf),
}

impl RootFile {
    fn file(&self) -> &Path {
        match self {
            RootFile::Disk(file) | RootFile::Archive(file) => file,
        }
    }
}

/// Returns the root file system, and the texts of its programs if they are converted.
fn root(options: &Run, container: Option<&Container>) -> Result<(RootFile, Option<PathBuf>)> {
    let own = options.rootfs.is_some() || container.is_some();
    if let (Some(glob), true) = (&options.off2f, own || !options.in_memory) {
        let split = match (container, &options.rootfs) {
            (Some(container), _) => container.split(glob, options.in_memory)?,
            (None, Some(path)) => convert::split(path, glob, options.in_memory)?,
            (None, None) => default::DEFAULT.split(glob)?,
        };
        let source = if options.in_memory {
            RootFile::Archive(split.image)
        } else {
            RootFile::Disk(split.image)
        };
        return Ok((source, Some(split.nvm)));
    }
    let whole = |source| (source, None);
    if let Some(container) = container {
        return if options.in_memory {
            container.initramfs().map(RootFile::Archive).map(whole)
        } else {
            container.disk().map(RootFile::Disk).map(whole)
        };
    }
    match (&options.rootfs, options.in_memory) {
        (Some(path), true) => convert::initramfs(path).map(RootFile::Archive).map(whole),
        (Some(path), false) => convert::disk(path).map(RootFile::Disk).map(whole),
        (None, false) => default::DEFAULT.get().map(RootFile::Disk).map(whole),
        (None, true) => {
            let text = "--in-memory needs --image or --rootfs: a folder, a tar or a cpio archive";
            Err(Failure::error(USAGE, text))
        }
    }
}

/// Handles `--with DIR:PATH`: returns an image of the folder, and the path.
fn folder(with: &OsStr) -> Result<(PathBuf, Vec<u8>)> {
    let bytes = with.as_bytes();
    let at = bytes.windows(2).rposition(|pair| pair == b":/");
    let Some(at) = at.filter(|&at| at > 0) else {
        let shown = with.to_string_lossy();
        return Err(Failure::error(USAGE, format!("--with {shown}: write it as DIR:/PATH")));
    };
    let folder = Path::new(OsStr::from_bytes(&bytes[..at]));
    let shown = folder.display();
    let place = Path::new(OsStr::from_bytes(&bytes[at + 1..]));
    if !place.components().any(|part| matches!(part, std::path::Component::Normal(_))) {
        let text = format!("--with {shown}:/: name a path below /; --rootfs gives another root");
        return Err(Failure::error(USAGE, text));
    }
    match folder.metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => bail!("--with: {shown} is not a folder"),
        Err(error) => bail!("--with: cannot find the folder {shown}: {error}"),
    }
    Ok((convert::disk(folder)?, bytes[at + 1..].to_vec()))
}

/// Returns the words that init starts.
pub fn arguments(options: &Run, image: Option<&Configuration>) -> Vec<Vec<u8>> {
    let words: Vec<_> = options.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let words = match image {
        Some(image) => image.words(options.entrypoint.as_deref().map(OsStr::as_bytes), &words),
        None => words,
    };
    if options.mode == Mode::User || words.is_empty() && image.is_some() {
        return words;
    }
    let before = IN_SUPERVISOR_MODE.iter().map(|word| word.as_bytes().to_vec());
    before.chain(words).collect()
}

/// Returns the program's environment: that of Hayate, or of the image, and what the user sets.
fn environment(options: &Run, image: Option<&Configuration>, on_terminal: bool) -> Vec<Vec<u8>> {
    let mut variables: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut set = |name: &[u8], value: &[u8]| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_vec(), value.to_vec()));
    };
    set(b"PATH", PATH.as_bytes());
    let user = options.user.as_ref();
    let (home, name) = match user.map_or(Some((0, 0)), |user| user.numbers) {
        // The guest knows the user's home, and in an image no more is said.
        _ if image.is_some() => (None, None),
        None => (None, user.and_then(|user| user.text.split(':').next())),
        Some((0, _)) => (Some("/root"), Some("root")),
        Some((1000, _)) => (Some("/home/user"), Some("user")),
        Some(_) => (Some("/"), Some("nobody")),
    };
    for (key, value) in [("HOME", home), ("USER", name), ("LOGNAME", name)] {
        if let Some(value) = value {
            set(key.as_bytes(), value.as_bytes());
        }
    }
    if image.is_none() {
        set(b"LANG", b"C.UTF-8");
    }
    if on_terminal {
        set(b"TERM", &terminal_kind());
    }
    for (name, value) in image
        .into_iter()
        .flat_map(|image| &image.environment)
        .filter_map(|text| text.split_once('='))
    {
        set(name.as_bytes(), value.as_bytes());
    }
    for given in &options.env {
        let bytes = given.as_bytes();
        match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => set(&bytes[..at], &bytes[at + 1..]),
            None => {
                if let Some(value) = std::env::var_os(given) {
                    set(bytes, value.as_bytes());
                }
            }
        }
    }
    variables.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect()
}

fn terminal_kind() -> Vec<u8> {
    std::env::var_os("TERM").map_or_else(|| b"vt100".to_vec(), |kind| kind.as_bytes().to_vec())
}

/// The variable with the kind of this command's terminal.
pub fn terminal_variable() -> Vec<u8> {
    [b"TERM=".as_slice(), &terminal_kind()].concat()
}

/// Returns the program's whole input if it is known before the machine starts: a file of at most
/// [`INPUT_MOST`] bytes, from its current position, or `/dev/null`. `None`: the input arrives
/// later.
fn known_input() -> Result<Option<Vec<u8>>> {
    let input = standard(rustix::stdio::stdin())?;
    let known = input.metadata().context("cannot examine standard input")?;
    let null = std::fs::metadata("/dev/null").map(|null| null.rdev()).unwrap_or_default();
    if known.file_type().is_char_device() && known.rdev() == null {
        return Ok(Some(Vec::new()));
    }
    if !known.is_file() || known.len() > INPUT_MOST {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    (&input).read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(Some(bytes))
}

/// Returns a standard stream as a separate, unbuffered file.
pub fn standard(stream: impl AsFd) -> Result<File> {
    let copy = stream.as_fd().try_clone_to_owned();
    Ok(copy.context("cannot duplicate a standard stream")?.into())
}

/// Turns signals to this process into events of the session.
pub fn pass_signals_on(events: Sender<Event>) -> Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH])?;
    std::thread::spawn(move || {
        for number in signals.forever() {
            let event = if number == SIGWINCH { Event::Resized } else { Event::Signal(number) };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Returns the exit status, and prints messages for the user. `shown`: the log was on the screen
/// already.
pub fn conclude(outcome: &Outcome, shown: bool) -> Result<u8> {
    for error in &outcome.errors {
        eprintln!("hayate: {error}");
    }
    let ended = match outcome.end {
        End::Program(status) if !outcome.unwritten.is_empty() => {
            format!("; the program ended with status {status}")
        }
        _ => String::new(),
    };
    for what in &outcome.unwritten {
        eprintln!("hayate: {what}{ended}");
    }
    let log = || {
        if !shown {
            eprint!("{}", outcome.log.text());
        }
    };
    match &outcome.end {
        // The requested output did not reach its destination.
        End::Program(_) if !outcome.unwritten.is_empty() => Ok(failure::FAULT),
        &End::Program(status) => Ok(u8::try_from(status).unwrap_or(failure::FAULT)),
        End::Panic => {
            eprint!("{}", backtrace::symbolise(&outcome.log.text(), &outcome.kernel));
            eprintln!("hayate: the kernel panicked; its messages and the stack are above");
            Ok(failure::PANIC)
        }
        End::TimedOut => {
            log();
            eprintln!("hayate: the time limit passed; the kernel's messages are above");
            Ok(failure::TIMEOUT)
        }
        &End::Killed(signal) => Ok(u8::try_from(128 + signal).unwrap_or(failure::FAULT)),
        End::Machine(_) if outcome.log.refusal.is_some() => {
            let why = outcome.log.refusal.as_deref().unwrap_or_default();
            eprintln!("hayate: the kernel does not boot on this machine: {why}");
            Ok(failure::FAULT)
        }
        End::Failed(fault) => {
            log();
            eprintln!("hayate: {fault}");
            Ok(failure::FAULT)
        }
        End::Machine(status) => {
            log();
            if !outcome.complaint.is_empty() {
                eprintln!("{}", outcome.complaint);
            }
            eprintln!(
                "hayate: the machine ended (QEMU's exit status: {status}) and the guest gave no reason; \
                 its messages are above"
            );
            Ok(failure::FAULT)
        }
    }
}

/// Prints where the time went: on the host's clock, and by the kernel's own account. `before`: from
/// the start of this program to that of QEMU.
pub fn print_timing(outcome: &Outcome, before: Duration) {
    let host = |name: &str, time: Duration| {
        eprintln!("  {:>10.1} ms  {name}", time.as_secs_f64() * 1e3);
    };
    if !outcome.log.stages.is_empty() {
        eprintln!("hayate: in the kernel, by its own clock:");
        for (name, nanoseconds) in &outcome.log.stages {
            host(name, Duration::from_nanos(*nanoseconds));
        }
    }
    eprintln!("hayate: on the host, before the start of QEMU:");
    host("sources and images are looked at, the initramfs is written", before);
    eprintln!("hayate: on the host, since the start of QEMU:");
    for (name, time) in &outcome.steps {
        host(name, *time);
    }
    if let Some(first) = outcome.first_word {
        host("first message of the kernel; QEMU has loaded it, and its firmware has run", first);
    }
    for (name, guest, time) in &outcome.timings {
        let name = if name == "exec" { "init executes the program" } else { name };
        let guest = Duration::from_nanos(*guest).as_secs_f64() * 1e3;
        host(&format!("{name} (guest clock: {guest:.3} ms)"), *time);
    }
    host("end", outcome.total);
}
