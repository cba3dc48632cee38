//! One boot of one system with the suite in it, from the start of the machine to the measured run.

use anyhow::{Context, Result, anyhow, bail, ensure};
use hayate_cli::arguments::disks::MakeDisk;
use hayate_cli::arguments::network::{Net, Network, Published};
use hayate_cli::arguments::{Accel, Board, Machine, Monitor, Profile};
use hayate_cli::failure::{self, Failure};
use hayate_cli::guest::disk::UserDisk;
use hayate_cli::guest::linux::{self, Flavour};
use hayate_cli::guest::log::Sink;
use hayate_cli::guest::qemu::Qemu;
use hayate_cli::guest::session::{End, Outcome, Session, Streams};
use hayate_cli::guest::volumes::{self, Volume};
use hayate_cli::guest::{backtrace, initramfs};
use hayate_cli::{compile, disks};
use hayate_job::{Job, Mount, Root};
use measure_data::{Run, read_run};
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// The words that make Debian's Linux fastest here: no mitigations, no clearing of memory in
/// advance, no randomised addresses (which are the most expensive in software translation), no
/// audit.
const BEST: &str = "mitigations=off init_on_alloc=0 norandmaps randomize_kstack_offset=off audit=0";

/// The file system of disks.
const EXT4: &str = "ext4";
/// The host as a guest of QEMU's own network sees it.
const HOST: &str = "10.0.2.2";
/// What a server in a machine writes when it listens.
pub const READY: &str = "ready";
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// The status of `measure` for wrong arguments.
const WRONG_ARGUMENTS: i32 = 2;
/// The status of `measure` if something that it needs is missing.
const NOT_THERE: i32 = 4;

/// A system to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Its name in files.
    pub key: String,
    /// Its name for people.
    pub title: String,
    /// Whether it is Debian's Linux.
    pub linux: bool,
    /// Words added to its command line.
    pub words: String,
    /// A path that must exist in the guest; otherwise the result is [`Missing`].
    pub needs: Option<String>,
    /// A program and arguments that start the suite.
    pub launcher: Vec<String>,
    /// Arguments passed on to QEMU.
    pub qemu: Vec<String>,
    /// The disk with the root file system; without it the root is [`Setup::image`].
    pub disk: Option<Disk>,
}

/// A disk with a root file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The image.
    pub image: PathBuf,
    /// A smaller image with the suite, mounted at [`TOOLS`]. With `dax` it is the suite itself,
    /// which then comes with the job in memory: a machine that waits for no disk counts the same in
    /// every run.
    pub tools: PathBuf,
    /// QEMU's options that throttle it.
    pub throttle: String,
    /// The texts of its programs, if those are in two files.
    pub texts: Option<PathBuf>,
    /// Whether the image is an NVDIMM's content, and mounted with `-o dax`.
    pub dax: bool,
}

/// Where the suite is mounted if the root file system is an image without it.
pub const TOOLS: &str = "/opt/measure";

/// A system lacks a required feature; not a failure of the comparison.
#[derive(Debug)]
pub struct Missing(pub String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

impl System {
    /// Hayate.
    pub fn hayate() -> System {
        System::new("hayate", "Hayate", false, "")
    }

    /// Returns Linux without all optional features that cost time.
    pub fn best() -> System {
        System::new("linux-best", "Linux at its best", true, BEST)
    }

    /// Returns Linux in Debian's default configuration.
    pub fn shipped() -> System {
        System::new("linux-shipped", "Linux as shipped", true, "")
    }

    /// Returns the same system with an unthrottled disk.
    pub fn without_throttle(&self) -> System {
        let mut other = self.clone();
        if let Some(disk) = &mut other.disk {
            disk.throttle.clear();
        }
        other
    }

    fn new(key: &str, title: &str, linux: bool, words: &str) -> System {
        System {
            key: key.into(),
            title: title.into(),
            linux,
            words: words.into(),
            needs: None,
            launcher: Vec::new(),
            qemu: Vec::new(),
            disk: None,
        }
    }
}

/// The end of a program in a machine, and its output.
pub struct Ended {
    /// Its exit status.
    pub status: i32,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub error: String,
}

/// The machine that every system boots in, and the experiments in it.
pub struct Setup {
    /// Count instructions instead of time.
    pub counting: bool,
    /// How QEMU runs the processor.
    pub accel: Accel,
    /// Processors.
    pub cpus: u8,
    /// Memory in MiB.
    pub memory: u64,
    /// Hayate's kernel, if it must not be built.
    pub kernel: Option<PathBuf>,
    /// Profile to build it with.
    pub profile: Profile,
    /// The initramfs with the suite.
    pub image: PathBuf,
    /// Names of experiments.
    pub globs: Vec<String>,
    /// Programs to start: name and command.
    pub programs: Vec<(String, String)>,
    /// Scripts to start: name and text.
    pub scripts: Vec<(String, String)>,
    /// A shell command before each start of these programs.
    pub before: Option<String>,
    /// Whether the first starts of these programs count too.
    pub cold: bool,
    /// Names of those programs that `before` and `cold` do not apply to.
    pub warm: Vec<String>,
    /// Passes of the suite in one boot.
    pub passes: u32,
    /// Samples of a pass.
    pub iterations: u32,
    /// Largest array, in the suite's syntax.
    pub memory_limit: String,
    /// How long the machine may run.
    pub timeout: Duration,
    /// The other end of the experiments with another host.
    pub other_end: OtherEnd,
    /// Whether each boot has a new disk, on which the experiments have their files.
    pub disk: bool,
    /// Whether each boot has a new folder of the host, the network file system of the experiments.
    pub share: bool,
}

/// QEMU's options for counting where a machine waits for the host: while nothing runs in it, the
/// clock goes on as the host's does. By default it jumps to the next timer at once, and each wait
/// for a device would have all that is due later in it.
const WAITING: [&str; 2] = ["-icount", "shift=0,sleep=on"];

/// The place of [`Setup::disk`] in the guest, and its size: room for the largest files, and for
/// the file system not to be nearly full.
const WORK: (&str, u64) = ("/disk", 2 << 30);

/// The place of [`Setup::share`] in the guest.
const SHARE: &str = "/share";

/// Where `measure serve` runs, the other end of the experiments with another host.
pub enum OtherEnd {
    /// Nowhere.
    None,
    /// On the host, where this is the suite: through QEMU's own network.
    Host(PathBuf),
    /// In the machine itself, which has two network devices that are joined. Nothing outside of the
    /// machine passes a packet on, so that instructions can be counted.
    Pair,
}

/// The other end's address in a machine with two joined devices, one of the link: it names the
/// device that packets leave by, so that the machine does not keep what is for itself.
const BEHIND: &str = "[fe80::2%2]:7171";
/// Gives both devices their addresses, starts the other end behind the second, and then the
/// arguments. Nobody else is on the link: no address has to be looked for, or to be tried first.
const PAIR: &str = r#"
for at in 0 1; do
    for setting in addr_gen_mode=1 accept_dad=0 accept_ra=0; do
        file=/proc/sys/net/ipv6/conf/eth$at/${setting%=*}
        [ ! -e "$file" ] || echo "${setting#*=}" >"$file"
    done
    busybox ip link set "eth$at" up && busybox ip -6 address add "fe80::$((at + 1))/64" dev "eth$at" ||
        exit
done
/usr/bin/measure serve --listen '[fe80::2%3]:7171' >/dev/null &
until busybox grep -q ':1C03 ' /proc/net/tcp6; do busybox usleep 1000; done
exec "$@"
"#;

/// `measure serve` on the host; it ends when this is dropped.
struct Server {
    child: Child,
    port: u16,
    /// Kept open: the server writes to it.
    _said: BufReader<ChildStdout>,
}

impl Server {
    fn start(measure: &Path) -> Result<Server> {
        let mut command = Command::new(measure);
        let command = command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start measure serve on the host")?;
        let mut said = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut line = String::new();
        let read = said.read_line(&mut line);
        let place =
            line.split_whitespace().find_map(|word| word.trim_end_matches(',').parse().ok());
        match (read, place) {
            (Ok(_), Some(SocketAddr::V4(place))) => {
                Ok(Server { child, port: place.port(), _said: said })
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("measure serve on the host does not say where it listens: {line}")
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Setup {
    /// Builds and fetches everything that the systems boot with, so that no boot waits for it.
    pub fn prepare(&self, systems: &[System]) -> Result<()> {
        if systems.iter().any(|system| !system.linux) && self.kernel.is_none() {
            compile::kernel(self.profile)?;
        }
        if systems.iter().any(|system| system.linux) {
            linux::kernel(if self.share { Flavour::Generic } else { Flavour::Cloud })?;
        }
        compile::init()?;
        compile::programs()?;
        Ok(())
    }

    /// Boots `system`, measures, and returns the run.
    pub fn boot(&self, system: &System) -> Result<Run> {
        let mut arguments = self.arguments(system);
        let _server = match &self.other_end {
            OtherEnd::None => None,
            OtherEnd::Host(measure) => {
                let server = Server::start(measure)?;
                arguments.extend(["--remote".into(), format!("{HOST}:{}", server.port)]);
                Some(server)
            }
            OtherEnd::Pair => {
                let shell = ["/bin/sh", "-c", PAIR, "pair"].map(String::from);
                arguments.splice(0..0, shell);
                arguments.extend(["--remote", BEHIND].map(String::from));
                None
            }
        };
        let Ended { status, output, error } = self.run(system, arguments)?;
        match read_run(&output) {
            Ok(run) => Ok(if self.counting { counted(run) } else { run }),
            Err(_) if status == WRONG_ARGUMENTS => {
                Err(Failure::error(failure::USAGE, error.trim_end()))
            }
            Err(_) if status == NOT_THERE => {
                Err(Missing(error.trim().trim_start_matches("measure: ").into()).into())
            }
            Err(problem) => bail!(
                "measure ended in {} with status {status} and left no result ({problem}). {}",
                system.title,
                error.trim_end()
            ),
        }
    }

    /// Boots `system` and runs one program in it.
    pub fn run(&self, system: &System, arguments: Vec<String>) -> Result<Ended> {
        let (qemu, initramfs, _disk) = self.assemble(&self.machine(system), system, arguments)?;
        let (output, error) = (Kept::default(), Kept::default());
        // The host decides when the end of the input reaches the guest, so the input stays open.
        let (silence, held) = std::io::pipe().context("no pipe")?;
        let session = self.session(qemu, silence, (&output, &error));
        let outcome = session.run(Some(&initramfs));
        drop(held);
        let status = status(&outcome?, system)?;
        Ok(Ended { status, output: output.text(), error: error.text() })
    }

    /// Boots `system` and runs a program in it that writes [`READY`] when it listens at a port, and
    /// ends with its input. Meanwhile `ask` gets the port of the host that leads there, and what
    /// the program has written until then.
    pub fn serve<T: Send>(
        &self,
        system: &System,
        arguments: Vec<String>,
        guest: u16,
        ask: impl FnOnce(u16, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let host = free_port()?;
        let mut machine = self.machine(system);
        machine.network.choose(Net::User);
        let address = Some(Ipv4Addr::LOCALHOST);
        machine.network.publish.push(Published { address, host, guest, udp: false });
        let (qemu, initramfs, _disk) = self.assemble(&machine, system, arguments)?;
        let (output, error) = (Kept::default(), Kept::default());
        let (input, held) = std::io::pipe().context("no pipe")?;
        let session = self.session(qemu, input, (&output, &error));
        let (runs, over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let asker = scope.spawn(move || {
                // When it is dropped the program's input ends.
                let _held = held;
                while !output.text().contains(READY) {
                    if over.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
                        bail!("the server ended before it listened");
                    }
                }
                ask(host, &output.text())
            });
            let outcome = session.run(Some(&initramfs));
            drop(runs);
            let answer = asker.join().map_err(|_| anyhow!("asking ended in a panic"))?;
            let status = status(&outcome?, system)?;
            let (title, error) = (&system.title, error.text());
            ensure!(status == 0, "{title}: the server's status is {status}. {}", error.trim_end());
            answer
        })
    }

    /// A session on a machine whose program reads and writes here.
    fn session(&self, qemu: Qemu, input: PipeReader, (output, error): (&Kept, &Kept)) -> Session {
        let streams = Streams::Separate {
            input: Some(Box::new(input)),
            output: Box::new(output.clone()),
            error: Box::new(error.clone()),
        };
        Session::new(qemu, streams, Sink::None, Some(self.timeout))
    }

    /// Makes the machine with its disks, and what it boots from. The folder has the disk that
    /// the machine writes, and must live as long as the machine.
    fn assemble(
        &self,
        machine: &Machine,
        system: &System,
        arguments: Vec<String>,
    ) -> Result<(Qemu, File, Option<TempDir>)> {
        let mut qemu = Qemu::new(machine)?;
        let (mut root, mut mounts, mut programs) = (Root::Memory, Vec::new(), Vec::new());
        if let Some(disk) = &system.disk {
            root = if disk.dax {
                let (device, options) = (qemu.disk_in_place(&disk.image)?, "dax".into());
                Root::Disk { device, kind: EXT4.into(), options }
            } else {
                Root::disk(qemu.slow_disk(&disk.image, &disk.throttle)?)
            };
            if let Some(texts) = &disk.texts {
                qemu.texts(texts)?;
            }
            if disk.dax {
                programs.push(disk.tools.clone());
            } else {
                let device = qemu.disk(&disk.tools)?;
                mounts.push(Mount { device, kind: EXT4.into(), path: TOOLS.into() });
            }
        }
        let folder = (self.disk || self.share).then(tempfile::tempdir).transpose();
        let folder = folder.context("no folder for what the machine writes")?;
        let (mut disks, mut volumes) = (Vec::new(), Vec::new());
        if let Some(folder) = &folder {
            if self.disk {
                disks.extend(work_disk(&mut qemu, folder.path())?);
            }
            if self.share {
                volumes.push(shared_folder(&mut qemu, folder.path())?);
            }
        }
        let job = Job {
            arguments: arguments.into_iter().map(String::into_bytes).collect(),
            environment: vec![b"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_vec(), b"LANG=C".to_vec()],
            directory: None,
            user: (0, 0),
            account: None,
            stop_signal: None,
            hostname: "measured".into(),
            root,
            persist: None,
            mounts,
            disks,
            volumes,
            streams: hayate_job::Streams::Separate,
            input_along: false,
            network: qemu.network(),
            explain: None,
        };
        let archive = system.disk.is_none().then_some(self.image.as_path());
        let initramfs = initramfs::make(&job, archive, None, &programs, &qemu.boot.modules)?;
        Ok((qemu, initramfs, folder))
    }

    /// QEMU's options if the machine waits for the host and instructions are counted.
    fn waiting(&self) -> Vec<String> {
        let waits = self.counting && (self.disk || self.share);
        WAITING.map(String::from).into_iter().filter(|_| waits).collect()
    }

    fn machine(&self, system: &System) -> Machine {
        let mut network = Network::default();
        match self.other_end {
            OtherEnd::None => {}
            OtherEnd::Host(_) => network.choose(Net::User),
            OtherEnd::Pair => network.choose(Net::Pair),
        }
        Machine {
            cpus: self.cpus,
            processor: None,
            memory: self.memory,
            accel: self.accel,
            board: Board::Q35,
            aslr: None,
            deterministic: self.counting,
            nvm: None,
            network,
            append: Some(system.words.clone())
                .filter(|words| !words.is_empty())
                .into_iter()
                .collect(),
            qemu: self.waiting().iter().chain(&system.qemu).map(Into::into).collect(),
            kernel: self.kernel.clone().filter(|_| !system.linux),
            background: false,
            vmm: Monitor::Qemu,
            linux: system.linux,
            profile: self.profile,
        }
    }

    fn arguments(&self, system: &System) -> Vec<String> {
        let mut words = system.launcher.clone();
        let place = match &system.disk {
            Some(disk) if disk.dax => hayate_job::PROGRAMS,
            Some(_) => TOOLS,
            None => "/usr/bin",
        };
        words.extend([format!("{place}/measure"), "run".into()]);
        words.extend(self.globs.iter().cloned());
        let programs = self.programs.iter().map(|program| ("--program", program));
        let scripts = self.scripts.iter().map(|script| ("--script", script));
        for (word, (name, text)) in programs.chain(scripts) {
            words.extend([word.into(), format!("{name}={text}"), format!("program/{name}")]);
        }
        // With a fixed number of samples, the time after which a round is given up as hung.
        if !self.scripts.is_empty() {
            words.extend(["--seconds".into(), self.timeout.as_secs().to_string()]);
        }
        // Programs may use all that the machine has.
        words.extend((self.cpus > 1).then(|| "--no-pin".into()));
        if let Some(before) = &self.before {
            words.extend(["--before".into(), before.clone()]);
        }
        if self.cold {
            words.push("--cold".into());
        }
        for name in &self.warm {
            words.extend(["--warm".into(), name.clone()]);
        }
        // When instructions are counted, Hayate has its root's disks in memory and never waits for
        // them; Linux uses virtio-blk.
        if self.counting && (system.linux && system.disk.is_some() || self.disk || self.share) {
            words.push("--without-idle".into());
        }
        if let Some(path) = &system.needs {
            words.extend(["--needs".into(), path.clone()]);
        }
        let passes = self.passes.to_string();
        let iterations = self.iterations.to_string();
        let place = if self.disk { WORK.0 } else { "/tmp" };
        for word in ["--json", "-", "--no-progress", "--dir", place, "--label", &system.title] {
            words.push(word.into());
        }
        words.extend(["--memory-limit".into(), self.memory_limit.clone()]);
        words.extend(["--passes".into(), passes, "--iterations".into(), iterations]);
        words
    }
}

/// Adds a new disk with an empty file system, mounted at [`WORK`]; its file lies in `folder`.
fn work_disk(qemu: &mut Qemu, folder: &Path) -> Result<Option<hayate_job::Disk>> {
    let file = folder.join("work.img");
    let (path, size) = WORK;
    disks::make(&MakeDisk { size, from: None, label: None, force: false, file: file.clone() })?;
    let path = Some(path.into());
    let disk = UserDisk { file, path, read_only: false, serial: "work".into() };
    Ok(qemu.user_disk(disk))
}

/// Adds a new folder of the host, mounted at [`SHARE`]; it lies in `folder`.
fn shared_folder(qemu: &mut Qemu, folder: &Path) -> Result<hayate_job::Volume> {
    let shared = folder.join("shared");
    std::fs::create_dir(&shared).with_context(|| format!("cannot make {}", shared.display()))?;
    let mut option = shared.into_os_string();
    option.push(format!(":{SHARE}"));
    volumes::check_qemu()?;
    qemu.volume(Volume::of(&option)?)
}

/// A port of this host that nobody has.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr().context("no free port")?.port())
}

/// The output of a guest's program.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One tick is one instruction: with `-icount shift=0` QEMU's time-stamp counter counts nanoseconds
/// of virtual time, and each instruction takes one. The guest's own calibration of its clock is
/// close to that, but not exact.
fn counted(mut run: Run) -> Run {
    run.clock.ticks_per_second = 1e9;
    run
}

/// Returns the status of `measure`, or why there is none.
fn status(outcome: &Outcome, system: &System) -> Result<i32> {
    let title = &system.title;
    let log = || outcome.log.text();
    match &outcome.end {
        &End::Program(status) if outcome.errors.is_empty() => Ok(status),
        End::Program(_) => bail!("{title}: {}", outcome.errors.join("; ")),
        End::Panic => {
            eprint!("{}", backtrace::symbolise(&log(), &outcome.kernel));
            let text = format!("the kernel of {title} panicked; its messages are above");
            Err(Failure::error(failure::PANIC, text))
        }
        End::TimedOut => {
            eprint!("{}", log());
            let text = format!("{title} did not end in time; --timeout gives it more");
            Err(Failure::error(failure::TIMEOUT, text))
        }
        End::Killed(signal) => bail!("{title} was ended by signal {signal}"),
        End::Failed(fault) => {
            eprint!("{}", log());
            bail!("{title}: {fault}")
        }
        End::Machine(status) => {
            eprint!("{}", log());
            bail!("the machine with {title} ended (QEMU: {status}). {}", outcome.complaint)
        }
    }
}
