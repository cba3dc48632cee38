//! The command line of QEMU: the machine, its devices, and the sockets they are connected to.
//!
//! Every stream of the guest is one end of a socket pair, inherited by QEMU as a numbered
//! descriptor: no name in a file system, no race, and each side notices when the other is closed.
//! The initramfs is a file without a name: none remains, however the command ends.
//!
//! Only the kernel log goes through a pipe, which can hold all of it. QEMU writes the log byte by
//! byte, and a socket counts hundreds of bytes for each of them: some 280 bytes fill it. When the
//! reader on a busy host falls that far behind, the serial line waits for a time that the host
//! decides, and runs that count instructions would differ.
//!
//! A machine can be started more than once: [`Qemu::command`] takes the ports that were added since
//! the last start, and everything else stays. [`devices`] has the options of its devices.

mod devices;
mod memory;

pub use memory::{Memory, host_memory};

use super::disk::UserDisk;
use super::linux::{self, Flavour};
use super::network::{Helper, Link};
use super::nvm::{self, Nvm, NvmDevice};
use super::volumes::Volume;
use super::{processor, qmp};
use crate::arguments::network::Net;
use crate::arguments::{Accel, Aslr, Board, Machine, Monitor, Profile};
use crate::failure::{Failure, USAGE};
use crate::vmm::Description;
use crate::{compile, off2f, tool};
use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The first descriptor that QEMU inherits; 0 to 2 are its standard streams.
const FIRST_SOCKET: i32 = 3;

/// The monitor's name among QEMU's character devices.
const MONITOR: &str = "hayate";

/// The size of the kernel log's pipe: more than any boot prints, and the most that an ordinary user
/// may request.
const LOG_ROOM: usize = 1 << 20;

/// What Hayate has no use for on a q35: each part takes time when QEMU makes it, and when the
/// kernel looks for devices.
const SMALL_BOARD: &str = ",hpet=off,i8042=off,sata=off,smbus=off,usb=off,vmport=off,graphics=off";

/// How long a kernel may be silent after the start of QEMU, unless [`PATIENCE`] says otherwise.
/// Normally it prints within a second; a busy host translates a hundred times slower.
const SILENCE: Duration = Duration::from_secs(120);
/// The environment variable with this number of seconds.
const PATIENCE: &str = "HAYATE_PATIENCE";
/// The least number of bytes of images that QEMU reads in a second, before the kernel runs.
const READ_A_SECOND: u64 = 16 << 20;

/// Options of QEMU with which a user can pause the machine, or make it wait.
const PAUSING: [&str; 9] =
    ["S", "s", "gdb", "monitor", "qmp", "qmp-pretty", "mon", "preconfig", "incoming"];

/// Where QEMU's package puts its firmware, on Debian and elsewhere.
const FIRMWARE: [&str; 3] = ["/usr/share/qemu", "/usr/share/seabios", "/usr/local/share/qemu"];

/// The kernel to boot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Hayate, or another kernel with its devices.
    Hayate,
    /// Debian's Linux.
    Linux,
}

/// A start of a machine: the command, and the host's ends of those streams that are not the guest's
/// program's.
pub struct Launch {
    /// The command.
    pub command: Command,
    /// The kernel log.
    pub log: PipeReader,
    /// QEMU's monitor.
    pub monitor: UnixStream,
    /// How long the kernel may be silent; `None`: without limit.
    pub silence: Option<Duration>,
}

/// The kernel of a machine, and its needs.
pub struct BootFiles {
    /// Which kernel it is.
    pub system: System,
    /// Its file, also for the backtrace of a panic.
    pub kernel: PathBuf,
    /// Drivers that a Linux kernel needs in its initramfs.
    pub modules: Vec<PathBuf>,
    /// Further drivers that it needs for an NVDIMM.
    nvdimm: Vec<PathBuf>,
}

impl BootFiles {
    /// Builds or finds the kernel that the options ask for.
    fn of(options: &Machine) -> Result<BootFiles> {
        if options.linux {
            return BootFiles::linux(options, Flavour::Cloud);
        }
        let kernel = match &options.kernel {
            Some(file) if file.is_file() => file.clone(),
            Some(file) => bail!("--kernel: there is no file {}", file.display()),
            None => compile::kernel(options.profile)?,
        };
        let (modules, nvdimm) = (Vec::new(), Vec::new());
        Ok(BootFiles { system: System::Hayate, kernel, modules, nvdimm })
    }

    /// Finds Debian's kernel of that flavour.
    fn linux(options: &Machine, flavour: Flavour) -> Result<BootFiles> {
        let found = linux::kernel(flavour)?;
        let linux::Linux { kernel, mut modules, nvdimm, network, shares } = found;
        if *options.network.net() != Net::None {
            modules.extend(network);
        }
        modules.extend(shares);
        Ok(BootFiles { system: System::Linux, kernel, modules, nvdimm })
    }
}

/// A machine, to which initramfs, disks and streams can be added.
pub struct Qemu {
    /// The files that it boots.
    pub boot: BootFiles,
    /// QEMU.
    pub program: PathBuf,
    options: Machine,
    kvm: bool,
    memory: Memory,
    /// Environment variables of this process that are not for QEMU.
    hidden: Vec<&'static str>,
    silence: Duration,
    /// Each with QEMU's options that throttle it, if any.
    disks: Vec<(PathBuf, String)>,
    /// Those of the user, after the others.
    user_disks: Vec<UserDisk>,
    volumes: Vec<Volume>,
    nvm: Option<Nvm>,
    /// The device of non-volatile memory, if there is any.
    nvm_device: NvmDevice,
    ports: Vec<(&'static str, UnixStream)>,
    words: Vec<String>,
    link: Option<Link>,
    /// The program that the network of the last start needs beside QEMU.
    helper: Option<Helper>,
}

impl Qemu {
    /// Checks the options, and builds or finds the kernel. If `--accel auto` leaves the accelerator
    /// open, the machine uses TCG until [`Qemu::accelerate`].
    pub fn new(options: &Machine) -> Result<Qemu> {
        check(options)?;
        Qemu::of(options, BootFiles::of(options)?)
    }

    /// A machine with Hayate's kernel in this file, which was built before.
    pub fn installed(options: &Machine, kernel: PathBuf) -> Result<Qemu> {
        check(options)?;
        let (modules, nvdimm) = (Vec::new(), Vec::new());
        let boot = BootFiles { system: System::Hayate, kernel, modules, nvdimm };
        Qemu::of(options, boot)
    }

    /// A machine that begins at a snapshot, whose kernel is this file.
    pub fn restored(options: &Machine, kernel: PathBuf, memory: Memory) -> Result<Qemu> {
        let (modules, nvdimm) = (Vec::new(), Vec::new());
        let boot = BootFiles { system: System::Hayate, kernel, modules, nvdimm };
        Ok(Qemu { memory, ..Qemu::of(options, boot)? })
    }

    fn of(options: &Machine, boot: BootFiles) -> Result<Qemu> {
        let silence = silence()?;
        let program = program()?;
        let mut words = Vec::new();
        if boot.system == System::Linux {
            // On a busy host a timer's interrupt may come too late for Linux' timer check, which
            // then ends in a panic; under KVM Linux does not check either.
            let usual = ["console=ttyS0", "panic=-1", "tsc=reliable", "no_timer_check"];
            words.extend(usual.map(String::from));
        }
        words.extend(options.append.iter().cloned());
        let (nvm_device, nvm) = nvm::requested(options, &mut words)?;
        let link = Link::requested(options)?;
        Ok(Qemu {
            boot,
            program,
            options: options.clone(),
            kvm: options.accel == Accel::Kvm,
            memory: Memory::New,
            hidden: Vec::new(),
            silence,
            disks: Vec::new(),
            user_disks: Vec::new(),
            volumes: Vec::new(),
            nvm,
            nvm_device,
            ports: Vec::new(),
            words,
            link,
            helper: None,
        })
    }

    /// Returns a machine that this program imitates, for tests of the session.
    #[cfg(test)]
    pub fn stand_in(program: &Path, options: &Machine, silence: Duration) -> Qemu {
        let options = Machine { kernel: Some(program.into()), ..options.clone() };
        Qemu { program: program.into(), silence, ..Qemu::new(&options).unwrap() }
    }

    /// Keeps an environment variable of this process from QEMU.
    pub fn hide_variable(&mut self, name: &'static str) {
        self.hidden.push(name);
    }

    /// Returns the disks' files, in their order.
    pub fn disks(&self) -> impl Iterator<Item = &Path> {
        self.disks.iter().map(|(disk, _)| disk.as_path())
    }

    /// Returns its memory in MiB, and the number of its processors.
    pub fn size(&self) -> (u64, u8) {
        (self.options.memory, self.options.cpus)
    }

    /// Whether it has a network device.
    pub fn has_network(&self) -> bool {
        self.link.is_some()
    }

    /// Adds a read-only disk and returns its name in the guest.
    pub fn disk(&mut self, image: &Path) -> Result<String> {
        self.slow_disk(image, "")
    }

    /// Adds a read-only disk with options of QEMU such as `throttling.bps-read=10000000`.
    pub fn slow_disk(&mut self, image: &Path, throttle: &str) -> Result<String> {
        let size =
            image.metadata().with_context(|| format!("cannot examine {}", image.display()))?.len();
        if self.counts() && size > u64::from(u32::MAX) {
            bail!(
                "{} has {} MiB: with --deterministic QEMU holds the disk in memory, 4 GiB at most",
                image.display(),
                size >> 20
            );
        }
        let letter = (b'a' + self.disks.len() as u8) as char;
        self.disks.push((image.to_path_buf(), throttle.to_string()));
        Ok(format!("/dev/vd{letter}"))
    }

    /// Adds a disk of the user, after all others; returns what the guest is told of it, if it is to
    /// mount it.
    pub fn user_disk(&mut self, disk: UserDisk) -> Option<hayate_job::Disk> {
        let (read_only, path) = (disk.read_only, disk.path.clone());
        let device = self.layer(disk);
        path.map(|path| hayate_job::Disk { device, read_only, path })
    }

    /// Adds a disk of the user that has the writable layer of the root; returns its name in the
    /// guest.
    pub fn layer(&mut self, disk: UserDisk) -> String {
        let letter = (b'a' + (self.disks.len() + self.user_disks.len()) as u8) as char;
        self.user_disks.push(disk);
        format!("/dev/vd{letter}")
    }

    /// Shares a folder; returns what the guest is told of it. A Linux is then the kernel that can
    /// have one.
    pub fn volume(&mut self, volume: Volume) -> Result<hayate_job::Volume> {
        if self.boot.system == System::Linux && self.volumes.is_empty() {
            self.boot = BootFiles::linux(&self.options, Flavour::Generic)?;
        }
        let told = volume.told(self.volumes.len());
        self.volumes.push(volume);
        Ok(told)
    }

    /// Gives the machine the texts of converted programs; the guest's writes there are not kept.
    pub fn texts(&mut self, file: &Path) -> Result<()> {
        if self.options.board == Board::Microvm {
            let text =
                "the microvm board has no non-volatile memory for --off2f and --template; use q35";
            return Err(Failure::error(USAGE, text));
        }
        self.nvm =
            Some(Nvm { file: Some(file.to_path_buf()), size: off2f::blank(file)?, kept: false });
        Ok(())
    }

    /// Gives the machine non-volatile memory; the guest's writes there are kept.
    pub fn keep_texts(&mut self, file: &Path) -> Result<()> {
        self.texts(file)?;
        if let Some(nvm) = &mut self.nvm {
            nvm.kept = true;
        }
        Ok(())
    }

    /// Gives a machine with Linux an NVDIMM whose content is a disk
    /// ([`crate::image::in_place::nvdimm`]), to be mounted with `-o dax`, and returns its name in
    /// the guest. Writes to it are not kept.
    pub fn disk_in_place(&mut self, file: &Path) -> Result<String> {
        self.texts(file)?;
        self.boot.modules.append(&mut self.boot.nvdimm);
        Ok("/dev/pmem0p1".into())
    }

    /// Describes the machine for another monitor, whose files will be in `folder`.
    pub fn describe(&self, folder: &Path) -> Description {
        let network = &self.options.network;
        let tap = match network.net() {
            Net::Tap(name) => Some((name.clone(), network.mac.map(|mac| mac.to_string()))),
            _ => None,
        };
        Description {
            kernel: self.boot.kernel.clone(),
            words: self.words.join(" "),
            initramfs: folder.join("initramfs"),
            cpus: self.options.cpus,
            memory: self.options.memory,
            disks: self.disks.iter().map(|(disk, _)| disk.clone()).collect(),
            tap,
            socket: folder.join("vsock"),
            log: folder.join("log"),
        }
    }

    /// Returns what the guest is told of its network, if it has one.
    pub fn network(&self) -> Option<hayate_job::Network> {
        self.link.as_ref().map(Link::configuration)
    }

    /// Adds a port by name and returns the host's end.
    pub fn port(&mut self, name: &'static str) -> Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
        self.ports.push((name, theirs));
        Ok(ours)
    }

    /// Whether the user left the accelerator open: with KVM, the machine may be started again with
    /// TCG.
    pub fn is_open(&self) -> bool {
        self.options.accel == Accel::Auto && !self.options.deterministic
    }

    /// Whether it runs with KVM.
    pub fn has_kvm(&self) -> bool {
        self.kvm
    }

    /// Keeps the accelerator that was chosen: the machine is not started again with another one.
    pub fn settle(&mut self) {
        self.options.accel = self.accel();
    }

    /// Returns the accelerator that was chosen.
    pub fn accel(&self) -> Accel {
        if self.kvm { Accel::Kvm } else { Accel::Tcg }
    }

    /// Makes the next start of the machine use KVM or TCG.
    pub fn accelerate(&mut self, kvm: bool) {
        self.kvm = kvm;
    }

    /// Whether something happens after the end of the program that matters: the guest writes to
    /// memory or a disk that is kept, a user examines the machine, or a kernel for tests checks
    /// itself.
    pub fn has_more_to_do(&self) -> bool {
        let keeps = self.nvm.as_ref().is_some_and(|nvm| nvm.kept);
        let keeps = keeps || self.user_disks.iter().any(|disk| !disk.read_only);
        keeps || self.is_examined() || self.options.profile == Profile::Dev
    }

    /// Whether the user gave options with which the machine can be paused: then neither a pause nor
    /// silence is a fault.
    pub fn is_examined(&self) -> bool {
        self.options.qemu.iter().any(|option| {
            let option = option.to_string_lossy();
            let name = option.strip_prefix("--").or_else(|| option.strip_prefix('-'));
            name.is_some_and(|name| PAUSING.contains(&name)) || option.starts_with("mon:")
        })
    }

    /// Returns the command that starts the machine, and the host's ends of its log and monitor. The
    /// machine dies with the thread that starts it (`PR_SET_PDEATHSIG`, through setpriv(1)), and
    /// lives in a process group of its own, so that a Ctrl-C meant for its guest does not reach it.
    pub fn command(&mut self, initramfs: Option<&File>) -> Result<Launch> {
        let mut command = tool::command("setpriv")?;
        command.args(["--pdeathsig", "KILL", "--"]);
        if self.options.background {
            command.args(["nice", "-n", "10"]);
        }
        command.arg(&self.program);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        self.board(&mut command);
        self.kernel(&mut command);
        let (log, theirs) = std::io::pipe().context("cannot make a pipe")?;
        // If it may not grow it still holds 64 KiB.
        let _ = rustix::pipe::fcntl_setpipe_size(&theirs, LOG_ROOM);
        let mut sockets = vec![OwnedFd::from(theirs)];
        command.args(["-chardev", &format!("file,id=log,path=/dev/fd/{FIRST_SOCKET}")]);
        command.args(["-serial", "chardev:log"]);
        let (monitor, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
        qmp::negotiate(&monitor).context("cannot write to QEMU's monitor")?;
        self.back_memory(&mut command, &monitor, &mut sockets)?;
        socket(&mut command, MONITOR, FIRST_SOCKET + sockets.len() as i32);
        sockets.push(theirs.into());
        command.args(["-mon", &format!("chardev={MONITOR},mode=control")]);
        let ports = std::mem::take(&mut self.ports);
        self.helper = self.devices(&mut command, ports, &mut sockets)?;
        if let Some(initramfs) = initramfs {
            command.args(["-initrd", &format!("/dev/fd/{}", FIRST_SOCKET + sockets.len() as i32)]);
            sockets.push(initramfs.try_clone().context("cannot duplicate a descriptor")?.into());
        }
        command.args(&self.options.qemu);
        for name in &self.hidden {
            command.env_remove(name);
        }
        let mappings = sockets
            .into_iter()
            .zip(FIRST_SOCKET..)
            .map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd })
            .collect();
        command.fd_mappings(mappings).context("cannot hand descriptors to QEMU")?;
        command.process_group(0);
        let silence = (!self.is_examined()).then(|| self.silence + self.reading(initramfs));
        Ok(Launch { command, log, monitor, silence })
    }

    /// Returns how long QEMU may take to read the guest's initial memory content.
    fn reading(&self, initramfs: Option<&File>) -> Duration {
        let held = self.disks.iter().filter(|_| self.counts()).map(|(disk, _)| disk.metadata());
        let sizes = initramfs.into_iter().map(File::metadata).chain(held);
        let bytes: u64 = sizes.filter_map(|file| Some(file.ok()?.len())).sum();
        Duration::from_secs(bytes / READ_A_SECOND)
    }

    /// Adds the options for memory, processors and non-volatile memory.
    fn memory(&self, command: &mut Command) {
        let mut memory = format!("{}M", self.options.memory);
        if let Some(nvm) = &self.nvm {
            let most =
                self.options.memory + nvm.size.div_ceil(1 << 20).next_multiple_of(1024) + 1024;
            memory.push_str(&format!(",slots=2,maxmem={most}M"));
        }
        let cpus = self.options.cpus.to_string();
        command.args(["-m", &memory, "-smp", &cpus]);
        if let Some(nvm) = &self.nvm {
            let size = nvm.size;
            let mut object = OsString::from(match (&nvm.file, self.nvm_device) {
                (Some(_), _) => format!("memory-backend-file,id=nvm,size={size},"),
                (None, NvmDevice::Nvdimm) => format!("memory-backend-ram,id=nvm,size={size}"),
                // A flush is an fsync(2), which needs a file even if nothing is kept.
                (None, NvmDevice::Virtio) => format!("memory-backend-memfd,id=nvm,size={size}"),
            });
            if let Some(file) = &nvm.file {
                object.push(if nvm.kept { "share=on,mem-path=" } else { "share=off,mem-path=" });
                object.push(escape(file.as_os_str()));
            }
            command.arg("-object").arg(object);
            let device = match self.nvm_device {
                NvmDevice::Nvdimm => "nvdimm",
                NvmDevice::Virtio => "virtio-pmem-pci",
            };
            command.args(["-device", &format!("{device},memdev=nvm,id=nvm1")]);
        }
    }

    /// Adds the options for kernel and command line; a restored machine has both in its memory.
    fn kernel(&self, command: &mut Command) {
        if matches!(self.memory, Memory::Restored { .. }) {
            return;
        }
        command.arg("-kernel").arg(&self.boot.kernel);
        let mut words = self.words.clone();
        if self.counts() && !self.disks.is_empty() {
            words.push("fw_cfg_disks".into());
        }
        if !self.user_disks.is_empty() && self.boot.system == System::Hayate {
            words.push("disk_serials".into());
        }
        words.extend(self.aslr().map(String::from));
        if !words.is_empty() {
            command.arg("-append").arg(words.join(" "));
        }
    }

    /// Adds the options for the board, and for how QEMU runs its processors.
    fn board(&self, command: &mut Command) {
        match self.options.board {
            Board::Q35 => {
                let mut board = String::from("q35");
                if self.boot.system == System::Hayate && self.options.kernel.is_none() {
                    board.push_str(SMALL_BOARD);
                }
                // When QEMU counts instructions, it jumps to the next timer whenever the guest
                // idles. Without the periodic timers only the guest moves the clock. Linux does not
                // boot without them.
                if self.counts() {
                    board.push_str(",pit=off,hpet=off");
                }
                if self.nvm.is_some() && self.nvm_device == NvmDevice::Nvdimm {
                    board.push_str(",nvdimm=on");
                }
                command.args(["-machine", &board]);
                // A small firmware: it takes a third of the time of the full one, which the format
                // of Linux' compressed kernel needs.
                // It runs astray beside a hub of QEMU's (qboot of QEMU 7.2, which ends up executing
                // zeros).
                let small = *self.options.network.net() != Net::Pair;
                if small && self.boot.system == System::Hayate && firmware("qboot.rom") {
                    command.args(["-bios", "qboot.rom"]);
                }
            }
            Board::Microvm => {
                // Otherwise QEMU limits these devices to the interface before version 1.
                command.args(["-machine", "microvm"]);
                command.args(["-global", "virtio-mmio.force-legacy=false"]);
            }
        }
        self.memory(command);
        command.args(["-accel", if self.kvm { "kvm" } else { "tcg" }]);
        let model = self.options.processor.as_deref();
        command.args(["-cpu", &processor::option(model, self.options.deterministic)]);
        if self.options.deterministic {
            command.args(["-icount", "shift=0,sleep=off"]);
            command.args(["-rtc", "base=2024-01-01,clock=vm", "-seed", "1"]);
            // A write to a port is served within the instruction that makes it, and not by another
            // thread of QEMU some instructions later.
            command.args(["-global", "virtio-serial-pci.ioeventfd=off"]);
        }
    }

    /// The word that says when the kernel draws addresses. If no option says it: once per boot
    /// where QEMU translates code in software, unless instructions are counted and not time.
    fn aslr(&self) -> Option<&'static str> {
        let linux = self.boot.system == System::Linux;
        match self.options.aslr {
            Some(Aslr::Off) if linux => Some("norandmaps"),
            Some(Aslr::Off) => Some("aslr=off"),
            Some(Aslr::Boot) => Some("aslr=boot"),
            Some(Aslr::Start) => (!linux).then_some("aslr=start"),
            None if linux || self.kvm || self.options.deterministic => None,
            None => {
                let mut words = self.words.iter().flat_map(|words| words.split_whitespace());
                let is_said = words.any(|word| word == "norandmaps" || word.starts_with("aslr="));
                (!is_said).then_some("aslr=boot")
            }
        }
    }

    /// Whether guest time must be exactly the number of instructions.
    fn counts(&self) -> bool {
        self.options.deterministic && self.boot.system == System::Hayate
    }
}

/// Refuses options that contradict each other.
fn check(options: &Machine) -> Result<()> {
    let text = if options.vmm != Monitor::Qemu {
        "--vmm is for ./hayate run: other commands need a machine that is started, by --vmm qemu"
    } else if options.deterministic && options.cpus != 1 {
        "--deterministic counts the instructions of one processor: leave --cpus out, or say --cpus 1"
    } else if options.deterministic && options.accel == Accel::Kvm {
        "--deterministic needs --accel tcg: KVM cannot count instructions"
    } else if options.linux && options.board == Board::Microvm && options.accel != Accel::Kvm {
        "Linux finds no clock on the microvm board without KVM: use --machine q35 or --accel kvm"
    } else if options.linux && options.aslr == Some(Aslr::Boot) {
        "Linux draws addresses at each start or never: say --aslr start or --aslr off"
    } else {
        return Ok(());
    };
    Err(Failure::error(USAGE, text))
}

/// Returns the path of QEMU.
pub fn program() -> Result<PathBuf> {
    Ok(tool::command("qemu-system-x86_64")?.get_program().into())
}

/// Returns [`SILENCE`], or the value of the environment variable.
fn silence() -> Result<Duration> {
    let Some(given) = std::env::var_os(PATIENCE) else { return Ok(SILENCE) };
    match given.to_str().and_then(|text| text.parse().ok()) {
        Some(seconds @ 1..=86400) => Ok(Duration::from_secs(seconds)),
        _ => {
            let shown = given.to_string_lossy();
            let text = format!("{PATIENCE}={shown}: write a number of seconds, from 1 to 86400");
            Err(Failure::error(USAGE, text))
        }
    }
}

fn socket(command: &mut Command, id: &str, descriptor: i32) {
    command.args(["-chardev", &format!("socket,id={id},fd={descriptor}")]);
}

/// Escapes a path: a comma ends a value in QEMU's options, and two commas stand for one.
pub(super) fn escape(path: &OsStr) -> OsString {
    let mut escaped = Vec::new();
    for &byte in path.as_bytes() {
        escaped.push(byte);
        if byte == b',' {
            escaped.push(byte);
        }
    }
    OsString::from_vec(escaped)
}

fn firmware(name: &str) -> bool {
    FIRMWARE.iter().any(|folder| Path::new(folder).join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_escaped() {
        assert_eq!(escape(OsStr::new("/a,b/c")), "/a,,b/c");
    }
}
