//! The options of each command, with the help that says what they mean.

pub mod containerd;
pub mod disks;
pub mod machines;
pub mod network;
pub mod snapshots;
pub mod values;

use clap::builder::{FalseyValueParser, NonEmptyStringValueParser};
use clap::{Args, Subcommand, ValueEnum};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use values::{checked, memory, not_empty, policy, processor, user, variable, words};

/// Printed below the help of `run`.
pub const RUN_HELP: &str = "\
Examples:
  ./hayate run
  ./hayate run -- /bin/sh -c 'ls -l / | wc -l; exit 7'
  ./hayate run --rootfs ./my-tree -- /usr/bin/my-program
  docker export my-container > my.tar; ./hayate run --rootfs my.tar -- /bin/sh
  ./hayate run --image alpine:3 -- cat /etc/alpine-release
  docker save my-image > my-image.tar; ./hayate run --image my-image.tar
  ./hayate run --image oci:./layout:1.2 -e DEBUG=1 -- --verbose
  ./hayate run --with ./job:/job -- /job/start
  ./hayate disk make data.img --size 1G; ./hayate run --disk data.img:/data -- ls -l /data
  ./hayate run --persist dev -- sh -c 'date >>/root/log; cat /root/log'
  ./hayate run --volume .:/work -w /work -- tar -cf docs.tar docs
  ./hayate run -p 8080:80 -- nginx -g 'daemon off;'
  ./hayate run --deterministic --timing -- /bin/true
  ./hayate run --log - --append trace=syscalls -- /bin/true
  ./hayate run --recycle all+text -- resource pools
  ./hayate run --mode supervisor -- mode list
  ./hayate snapshot make s; ./hayate run --from s -- true

Streams:
  When standard input and output are both terminals, the guest has one terminal: line editing,
  Ctrl-C, Ctrl-Z and the window size work as in a local shell. Otherwise standard input, output
  and error pass through separately, unmixed with kernel messages; an interrupt is passed on to
  the program, and a second one ends the machine.

Exit status:
  the program's own; 128 + N if signal N killed it
   70  the kernel panicked; its messages and a backtrace are on standard error
  124  the time limit of --timeout passed
  125  Hayate itself failed: a tool is missing, a root file system is unusable, the program's
       output or the log cannot be written, ...
  126  the program was found, but cannot be run
  127  the program was not found
    2  the command line is wrong";

/// Printed below the help of `off2f`.
pub const OFF2F_HELP: &str = "\
Examples:
  ./hayate run --off2f -- python3 -c 'print(6*7)'   a whole image, made and kept
  ./hayate off2f convert --keep-text my-program     one file; its text goes to my-program.text
  truncate -s 256M texts; ./hayate off2f convert --nvm texts my-tree/bin/*
  ./hayate run --rootfs my-tree --nvm texts -- /bin/my-program
  ./hayate off2f restore --nvm texts my-tree/bin/*

The sticky bit (chmod +t) marks a converted file for the kernel. In a guest the file has the content
and the size of the original. docs/off2f.md explains the format.";

/// Printed below the help of `test`.
pub const TEST_HELP: &str = "\
Examples:
  ./hayate test                               everything, in about half an hour
  ./hayate test --list                        the names of all tests
  ./hayate test hayate/2-cpu/static/pipe      one program, in a machine with two processors
  ./hayate test linux/static/pipe             the same program on this machine's Linux
  ./hayate test --long stress/                all stress programs, also the long ones

Exit status: 0 all passed; 1 a test failed; 2 the command line is wrong. docs/testing.md lists
the groups of tests.";

/// Printed below the help of `image`.
pub const IMAGE_HELP: &str = "\
Examples:
  ./hayate image build                        the default image, from the newest packages
  ./hayate image build ./my-tree              an image of a folder
  ./hayate image build --off2f='/usr/bin/*'   the default image with converted programs
  ./hayate image build --recipe servers       nginx, Apache, redis, curl and the like
  ./hayate image list
  ./hayate image pull alpine:3 ghcr.io/me/app
  ./hayate image rm alpine:3; ./hayate image prune";

/// Printed below the help of `build`.
pub const BUILD_HELP: &str = "\
Examples:
  ./hayate build
  ./hayate build --profile dev                quicker to build, with overflow checks";

/// `run`.
#[derive(Args, Clone)]
pub struct Run {
    /// Start from this snapshot instead of booting (`./hayate snapshot make`). The machine is the
    /// snapshot's: only options about the program, its streams and the network go with it
    #[arg(long, value_name = "SNAPSHOT", value_parser = values::name)]
    pub from: Option<String>,

    /// Boot the machine, also if the start of one like it was kept by an earlier run, and keep none
    /// (docs/snapshots.md)
    #[arg(long, env = "HAYATE_BOOT", value_parser = FalseyValueParser::new())]
    pub boot: bool,

    /// The options that the user gave, by their names here. Filled in by the program that reads the
    /// command line: with `from`, an option that was given is not the same as its default.
    #[arg(skip)]
    pub given: BTreeSet<String>,

    /// The root file system: a folder, a tar archive (as `docker export` writes), or an ext4
    /// image [default: the image of Debian programs that `image build` makes]
    #[arg(long, value_name = "DIR|TAR|IMAGE")]
    pub rootfs: Option<PathBuf>,

    /// Run a container image: its files are the root file system, and its configuration gives
    /// program, environment, user, working directory and stop signal, as with `docker run`: CMD
    /// replaces its arguments, and other options what they name. A reference is one of a registry
    /// by Docker's rules; FILE is an archive of `docker save`, `docker export` or an OCI layout
    /// (docs/containers.md)
    #[arg(long, value_name = "REFERENCE|FILE[:NAME]|oci:DIR[:NAME]|oci-archive:FILE[:NAME]")]
    #[arg(conflicts_with_all = ["rootfs", "from"], value_parser = NonEmptyStringValueParser::new())]
    pub image: Option<String>,

    /// Start WORD instead of the image's entrypoint, without the image's arguments; "" is none
    #[arg(long, value_name = "WORD")]
    pub entrypoint: Option<OsString>,

    /// Unpack the root file system into the guest's memory; the machine has no disk
    #[arg(long)]
    pub in_memory: bool,

    /// Convert the programs and libraries whose path matches GLOB (all, without it) into two files
    /// each, and run their texts in place, on non-volatile memory
    #[arg(long, value_name = "GLOB", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "*", value_parser = NonEmptyStringValueParser::new())]
    pub off2f: Option<String>,

    /// Have a template in the machine from its boot on, so that the first start of the program
    /// begins behind its start-up: python[=MODULE,...], perl[=MODULE,...] or perl-script=FILE. The
    /// first use makes it in a machine of its own and keeps it (can be repeated; docs/templates.md)
    #[arg(long, value_name = "WHAT", value_parser = values::template)]
    pub template: Vec<String>,

    /// Show a copy of the folder DIR at PATH in the guest; changes that the guest makes there are
    /// not written back (can be repeated)
    #[arg(long, value_name = "DIR:PATH")]
    pub with: Vec<OsString>,

    /// Give the machine the disk FILE, an image or a block device, which keeps what the guest
    /// writes to it, and mount its ext4 file system at PATH (`./hayate disk make` makes one).
    /// Without PATH, or beside it, the disk is /dev/disk/by-id/virtio-NAME in the guest, NAME being
    /// the file's name without its extension. With :ro it cannot be written (can be repeated;
    /// docs/storage.md)
    #[arg(long, value_name = "FILE[:PATH][:ro]", value_parser = checked(not_empty))]
    pub disk: Vec<OsString>,

    /// Keep what is changed in the root file system under NAME, on a disk of this project's: the
    /// next machine with that NAME begins with it (`./hayate disk list`; docs/storage.md)
    #[arg(long, value_name = "NAME", value_parser = values::name, conflicts_with = "in_memory")]
    pub persist: Option<String>,

    /// Share the folder DIR with the guest, at PATH: what either side writes the other reads. With
    /// `:ro` the guest only reads (can be repeated; docs/volumes.md)
    #[arg(long, short = 'v', value_name = "DIR:PATH[:ro]")]
    pub volume: Vec<OsString>,

    /// Set an environment variable; NAME alone passes on the host's value (can be repeated)
    #[arg(long, short, value_name = "NAME[=VALUE]", value_parser = checked(variable))]
    pub env: Vec<OsString>,

    /// The working directory of the program [default: / for a program, /root for a shell]
    #[arg(long, short = 'w', value_name = "PATH", value_parser = checked(not_empty))]
    pub directory: Option<OsString>,

    /// Run as this user and group of the guest, each by name or number [default: root, or the
    /// image's]
    #[arg(long, short, value_name = "USER[:GROUP]", value_parser = user)]
    pub user: Option<values::User>,

    /// Give the program a terminal even if standard input or output is not one
    #[arg(long, overrides_with = "no_tty")]
    pub tty: bool,

    /// Give the program separate streams even on a terminal
    #[arg(long)]
    pub no_tty: bool,

    /// Write the kernel's messages to FILE ("-" is standard error) [default: kept, and shown if
    /// the kernel fails]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Print how long each part of the start took
    #[arg(long)]
    pub timing: bool,

    /// What the kernel keeps of processes that ended, for the next ones: none, program, space,
    /// region, all, all+text, full, or attachment, text, work-area, process, execution, debt, image
    /// joined to these by + or taken away by -. With full+image, the fourth start of a command
    /// begins where it was ready (docs/images.md) [default: full]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub recycle: Option<String>,

    /// The processor mode of the program and of all that it starts. In supervisor mode its system
    /// calls are function calls, and it can do whatever the kernel can (docs/dmsm.md)
    #[arg(long, value_enum, default_value_t = Mode::User)]
    pub mode: Mode,

    /// End the machine after this many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,

    /// The machine.
    #[command(flatten)]
    pub machine: Machine,

    /// The program and its arguments [default: a login shell]
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The virtual machine, for every command that boots one.
#[derive(Args, Clone)]
#[command(next_help_heading = "Machine")]
pub struct Machine {
    /// Number of processors, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    pub cpus: u8,

    /// The processor model, by QEMU's name, and features that it has or lacks: Haswell, EPYC,
    /// max,-xsave. Features that KVM or TCG cannot offer stay out [default: max, all features]
    #[arg(long = "cpu", value_name = "MODEL[,+-FEATURE]", value_parser = processor)]
    pub processor: Option<String>,

    /// Size of the memory: 512M, 2G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    pub memory: u64,

    /// How QEMU runs the processor: kvm is fast, tcg works everywhere, auto uses kvm if it works
    #[arg(long, value_enum, default_value_t = Accel::Auto, env = "HAYATE_ACCEL")]
    pub accel: Accel,

    /// The virtual machine monitor. For firecracker and cloud-hypervisor the machine is described
    /// in a file, and what is missing to start it is said
    #[arg(long, value_enum, default_value_t = Monitor::Qemu)]
    pub vmm: Monitor,

    /// The board that QEMU models
    #[arg(long = "machine", value_enum, default_value_t = Board::Q35)]
    pub board: Board,

    /// When the addresses of programs are drawn at random: at each start, once per boot for each
    /// program and library, or never (off). QEMU translates code anew that lies at another address,
    /// which makes starts slow [default: start with KVM and with --deterministic, boot otherwise]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub aslr: Option<Aslr>,

    /// Give the machine non-volatile memory: FILE keeps what the guest writes there, SIZE is blank
    /// at each run, pseudo:SIZE is a part of its ordinary memory that survives a reset of the
    /// guest. FILE and SIZE are an NVDIMM; virtio:FILE and virtio:SIZE are virtio-pmem, and virtio
    /// alone puts the texts of --off2f there
    #[arg(long, value_name = "[virtio:]FILE|[virtio:]SIZE|pseudo:SIZE|virtio")]
    pub nvm: Option<OsString>,

    /// The network.
    #[command(flatten)]
    pub network: network::Network,

    /// Make guest time the number of instructions executed, the same in every run: instruction
    /// counting, fixed seed and clock, one processor, tcg
    #[arg(long)]
    pub deterministic: bool,

    /// Add words to the kernel's command line (can be repeated)
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, value_parser = words)]
    pub append: Vec<String>,

    /// Pass an argument on to QEMU (can be repeated)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub qemu: Vec<OsString>,

    /// Let the host's other work go first: for machines that run beside others.
    #[arg(skip)]
    pub background: bool,

    /// Boot this kernel instead of building Hayate's
    #[arg(long, value_name = "FILE", help_heading = "Development")]
    pub kernel: Option<PathBuf>,

    /// Boot Debian's Linux kernel instead of Hayate, in the same machine with the same init
    #[arg(long, help_heading = "Development", conflicts_with = "kernel")]
    pub linux: bool,

    /// Cargo profile to build the kernel with
    #[arg(long, value_enum, default_value_t = Profile::Release, env = "HAYATE_PROFILE")]
    #[arg(help_heading = "Development")]
    pub profile: Profile,
}

/// The mode of the processor that programs run in.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// As everywhere: ring 3.
    User,
    /// Ring 0.
    Supervisor,
}

/// How QEMU runs the guest's processor.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// KVM if it works here, else TCG.
    Auto,
    /// The processor's own virtualisation.
    Kvm,
    /// Translation in software.
    Tcg,
}

/// The board that QEMU models.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Board {
    /// A PC with PCI Express.
    Q35,
    /// A minimal machine without PCI.
    Microvm,
}

/// What runs the machine.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Monitor {
    /// QEMU.
    Qemu,
    /// Firecracker: the machine is described, and not started yet.
    Firecracker,
    /// Cloud Hypervisor: the machine is described, and not started yet.
    CloudHypervisor,
}

/// When the addresses of programs are drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Aslr {
    /// At each start of a program.
    Start,
    /// Once per boot, for each program and library.
    Boot,
    /// Never.
    Off,
}

/// Cargo's profile for the kernel.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Quick to build, with overflow checks.
    Dev,
    /// Optimised.
    Release,
}

/// `test`.
#[derive(Args)]
pub struct Test {
    /// Run only the tests whose names contain one of these words
    pub filter: Vec<String>,

    /// Numbers of processors that the guest tests run with
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    pub cpus: Vec<u8>,

    /// Run the guest programs on this machine's Linux only
    #[arg(long)]
    pub linux_only: bool,

    /// List the tests and run none
    #[arg(long)]
    pub list: bool,

    /// Show the output of tests that pass, too
    #[arg(long)]
    pub nocapture: bool,

    /// Run a failed test program again, alone, up to N times; if it passes then, it is reported as
    /// flaky and the tests pass
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10))]
    pub retry: u32,

    /// Also run the long tests (random system calls, mutated programs, storms); with =PART only
    /// those that have PART in their names; several parts are separated by commas
    #[arg(long, value_name = "PART[,PART]", num_args = 0..=1)]
    #[arg(require_equals = true, default_missing_value = "")]
    pub long: Option<String>,

    /// How QEMU runs the processor
    #[arg(long, value_enum, default_value_t = Accel::Auto, env = "HAYATE_ACCEL")]
    pub accel: Accel,

    /// Boot Debian's Linux instead of Hayate, to test the tests
    #[arg(long, help_heading = "Development")]
    pub guest_linux: bool,

    /// Cargo profile to build the kernel with
    #[arg(long, value_enum, default_value_t = Profile::Release, env = "HAYATE_PROFILE")]
    #[arg(help_heading = "Development")]
    pub profile: Profile,
}

impl Test {
    /// Whether the long test of this name is included.
    pub fn includes_long(&self, name: &str) -> bool {
        self.long.as_ref().is_some_and(|parts| parts.split(',').any(|part| name.contains(part)))
    }
}

/// `off2f`.
#[derive(Args)]
pub struct Off2f {
    /// What to do with files.
    #[command(subcommand)]
    pub request: Off2fRequest,
}

/// The commands of `off2f`.
#[derive(Subcommand)]
pub enum Off2fRequest {
    /// Convert executables and shared libraries: their header files replace them
    Convert {
        /// Keep a copy of the text in the header file, for machines that lack the text
        #[arg(long)]
        keep_text: bool,
        /// Store the texts in this file, the non-volatile memory of a machine [default: FILE.text]
        #[arg(long, value_name = "FILE")]
        nvm: Option<PathBuf>,
        /// The executables
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Make the originals again: they replace the header files
    Restore {
        /// The file with the texts [default: FILE.text]
        #[arg(long, value_name = "FILE")]
        nvm: Option<PathBuf>,
        /// The header files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print what header files contain
    Info {
        /// The header files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Check that header files and texts give the originals, byte for byte
    Verify {
        /// The file with the texts [default: FILE.text]
        #[arg(long, value_name = "FILE")]
        nvm: Option<PathBuf>,
        /// The header files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Convert a whole folder, as `image build --off2f` does before it packs
    #[command(hide = true)]
    Tree {
        /// The folder
        root: PathBuf,
        /// The file for the texts
        nvm: PathBuf,
        /// Only paths that match
        #[arg(long)]
        glob: Option<String>,
    },
}

/// `image`.
#[derive(Args)]
pub struct Image {
    /// What to do with images.
    #[command(subcommand)]
    pub request: ImageRequest,
}

/// The commands of `image`.
#[derive(Subcommand)]
pub enum ImageRequest {
    /// Make the default image from the newest Debian packages, or an image from a folder or tar
    Build {
        /// A folder or a tar archive to make an image of [default: the Debian programs]
        #[arg(value_name = "DIR|TAR")]
        rootfs: Option<PathBuf>,

        /// Make another image of Debian packages instead, one that tests and experiments use:
        /// compilers, databases, debuggers, sandboxes, servers with their clients, or strace's own
        /// tests
        #[arg(long, value_name = "NAME", conflicts_with = "rootfs")]
        #[arg(value_parser = [
            "default", "compilers", "databases", "debuggers", "sandboxes", "servers", "strace",
        ])]
        recipe: Option<String>,

        /// Convert the programs and libraries whose path matches GLOB (all, without it) into two
        /// files each; print the paths of the image and of the memory with their texts
        #[arg(long, value_name = "GLOB", num_args = 0..=1, require_equals = true)]
        #[arg(default_missing_value = "*", value_parser = NonEmptyStringValueParser::new())]
        off2f: Option<String>,
    },
    /// Print the path of the default image; make the image if there is none
    Path,
    /// List the images that are kept
    List,
    /// Fetch container images, also those that are here, and make their disks; print their IDs
    Pull {
        /// References of registries, or what else `run --image` takes
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
    },
    /// Forget container images, and remove their disks and layers as far as no other needs them
    Rm {
        /// Names, or IDs (six digits or more)
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
    },
    /// Remove what no container image needs, and what is of files that have changed or are gone
    Prune {
        /// Forget all container images
        #[arg(long, short)]
        all: bool,
    },
}

/// `build`.
#[derive(Args)]
pub struct Build {
    /// Cargo profile to build the kernel with
    #[arg(long, value_enum, default_value_t = Profile::Release, env = "HAYATE_PROFILE")]
    pub profile: Profile,
}
