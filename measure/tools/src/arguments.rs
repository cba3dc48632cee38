//! The options of `compare`, `explain` and `experiment`, with the help that says what they mean.

use clap::Args;
use hayate_cli::arguments::values::memory;
use hayate_cli::arguments::{Accel, Profile, Run};
use std::path::PathBuf;

/// Printed below the help of `explain`.
pub const EXPLAIN_HELP: &str = "\
Examples:
  ./hayate explain -- /bin/true
  ./hayate explain -- python3 -c pass
  ./hayate explain --svg start.svg --json start.json -- ls -l /usr
  ./hayate explain --recycle none -- bash -c true
  ./hayate explain --time -- perl -e 1

The program is started twice in a fresh machine, and then with images (docs/images.md) until a
start begins at one, at most eight times. What it writes passes through; the table goes to standard
error. Standard input is the first start's, the others find what that left of it. One processor;
numbers are instructions of the guest, the same in every run, unless --time is given.
docs/explain.md says what each line means.

Exit status:
  that of the second start, and as of ./hayate run";

/// Printed below the help of `compare`.
pub const COMPARE_HELP: &str = "\
Examples:
  ./hayate compare 'cpu/syscall*' 'cpu/process*'
  ./hayate compare --wall --boots 5 cpu/process/fork-exit
  ./hayate compare --markdown table.md --json - 'memory/fault*' > numbers.json
  ./hayate compare --wall --disk 'file/*'

Boots Hayate and Debian's linux-image-cloud-amd64 (downloaded, not installed) in the same QEMU
with the same root file system in memory, the same static `measure`, devices and processor.
Linux boots twice: at its best, without mitigations and hardening that cost time, and as shipped.
Without --wall a number is the count of instructions the guest executed; two runs give the same
medians. With --wall it is time. What neither can show is printed with the table.
`./hayate compare --list` shows the names of all experiments.

Exit status:
    0  compared; Hayate is worse in nothing
    1  Hayate is worse in something than Linux at its best
    2  the command line is wrong, or no experiment has such a name
    3  nothing is worse, but something is too noisy to tell
    4  nothing could be measured in both; the reasons are printed
    6  a result could not be written where it was asked for
   70  Hayate's kernel panicked; 124 a system did not end in --timeout; 125 another failure";

/// `compare`.
#[derive(Args)]
pub struct Compare {
    /// Only the experiments whose name matches; * matches anything, also slashes [default: system
    /// calls, processes and page faults]
    pub globs: Vec<String>,

    /// Measure time instead of instructions, with KVM where it works
    #[arg(long)]
    pub wall: bool,

    /// Boots of each system, taking turns [default: 1; with --wall 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub boots: Option<u32>,

    /// Passes over the experiments in each boot
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub passes: u32,

    /// Samples of each experiment in each pass
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub iterations: u32,

    /// Largest array or parent process of an experiment
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub memory_limit: String,

    /// Give each machine a new ext4 disk, and work with files there instead of in memory. The
    /// instructions of what waits for the disk are those without the waiting, and not the same to
    /// the digit in each run
    #[arg(long)]
    pub disk: bool,

    /// Give each machine a new folder of the host, for file/remote-read. Linux is then Debian's
    /// kernel for any machine: the smaller one for virtual machines has no 9P
    #[arg(long)]
    pub share: bool,

    /// Leave out Linux as shipped
    #[arg(long)]
    pub only_best: bool,

    /// Smallest difference that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub threshold: f64,

    /// List the experiments and boot nothing
    #[arg(long)]
    pub list: bool,

    /// Save the comparison with all medians and intervals; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Save the table as Markdown; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Save the run of each system with all samples in this folder, for `measure report`; of
    /// several boots each as soon as it ends
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,

    /// End a machine that takes longer than this, with exit status 124
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,

    /// Memory of the machine: 512M, 2G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    pub memory: u64,

    /// How QEMU runs the processor with --wall
    #[arg(long, value_enum, default_value_t = Accel::Auto, env = "HAYATE_ACCEL")]
    pub accel: Accel,

    /// Boot this kernel instead of building Hayate's
    #[arg(long, value_name = "FILE", help_heading = "Development")]
    pub kernel: Option<PathBuf>,

    /// Profile to build the kernel with
    #[arg(long, value_enum, default_value_t = Profile::Release, env = "HAYATE_PROFILE")]
    #[arg(help_heading = "Development")]
    pub profile: Profile,
}

/// `explain`.
#[derive(Args)]
pub struct Explain {
    /// Measure time instead of instructions, with KVM where it works
    #[arg(long)]
    pub time: bool,

    /// Make the process by fork, as a shell does, instead of vfork, as posix_spawn does
    #[arg(long)]
    pub fork: bool,

    /// Save the numbers; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Save the picture; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// What is run, and where.
    #[command(flatten)]
    pub run: Run,
}

/// Where results are written.
pub const OUTPUT: &str = "docs/results";

/// Printed below the help of `experiment`.
pub const EXPERIMENT_HELP: &str = "\
Examples:
  ./hayate experiment                        the names of all, and their questions
  ./hayate experiment tender                 docs/results/tender.md, .svg and .json
  ./hayate experiment tender-web --only full,none,counter --output /tmp/part
  ./hayate experiment all                    every one, and a report of all

Exit status:
    0  measured, and every aim is reached
    1  an aim is not reached
    2  the command line is wrong, or no experiment has such a name
    3  whether an aim is reached cannot be told
    4  one of several experiments, or a system of one, could not be measured
   70  Hayate's kernel panicked; 124 a system did not end in --timeout; 125 another failure";

/// `experiment`.
#[derive(Args)]
pub struct Experiment {
    /// Experiments by name, or "all" [default: list them]
    pub names: Vec<String>,

    /// Where NAME.md, NAME.svg and NAME.json are written
    #[arg(long, short, value_name = "DIR", default_value = OUTPUT)]
    pub output: PathBuf,

    /// Measure only the systems and works of these names, separated by commas; of systems, or of
    /// works, all if none is named. The names are in experiments/NAME.json; needs --output
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,

    /// End a machine that takes longer than this, with exit status 124
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,

    /// How QEMU runs the processor in experiments that measure time
    #[arg(long, value_enum, default_value_t = Accel::Auto, env = "HAYATE_ACCEL")]
    pub accel: Accel,

    /// Boot this kernel instead of building Hayate's
    #[arg(long, value_name = "FILE", help_heading = "Development")]
    pub kernel: Option<PathBuf>,
}
