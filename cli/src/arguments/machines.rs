//! The options of the commands for machines that stay.

use super::Run;
use super::values::{checked, name, not_empty, variable};
use clap::Args;
use std::ffi::OsString;

/// Printed below the help of `start`.
pub const START_HELP: &str = "\
Examples:
  ./hayate start --name work                  a machine that stays
  ./hayate exec work -- python3 -c 'print(6*7)'
  ./hayate stop work; ./hayate rm work
  ./hayate start --name web -p 8080:80 -- nginx -g 'daemon off;'
  ./hayate logs -f web
  ./hayate start --name job --owner $$ --rm   ends with this shell, and leaves nothing
  ./hayate start --from py --name more        from a snapshot (./hayate snapshot make py)

The name of the machine is printed when programs can be started in it. The machine stays until it
is stopped, also when you log out; with CMD until CMD ends, whose output `logs` shows.
docs/machines.md tells more.";

/// Printed below the help of `exec`.
pub const EXEC_HELP: &str = "\
Examples:
  ./hayate exec work                          a shell
  ./hayate exec work -- ls -l /
  ./hayate exec work -u nobody -w /tmp -e A=1 -- sh -c 'id; pwd; echo $A'
  tar c src | ./hayate exec work -- tar x -C /root

Streams, signals and the exit status are as with `run`: 128 + N if signal N killed the program; 125
if the machine is not there or ends meanwhile, 126 and 127 if the program cannot be run or is not
found. When this command is killed, the program gets SIGHUP, and SIGKILL two seconds later.";

/// Printed below the help of `ps`.
pub const PS_HELP: &str = "\
Examples:
  ./hayate ps                                 the machines that run
  ./hayate ps -a                              also those that ended and were not removed
  ./hayate stop $(./hayate ps -q)             stop them all";

/// Printed below the help of `logs`.
pub const LOGS_HELP: &str = "\
Examples:
  ./hayate logs web                           the output of the machine's first program
  ./hayate logs -f --tail 20 web              its last 20 lines, and more as it comes
  ./hayate logs --kernel web                  the kernel's messages

The last 8 to 16 MiB of each are kept, until the machine is removed.";

/// Printed below the help of `cp`.
pub const COPY_HELP: &str = "\
Examples:
  ./hayate cp ./src work:/root                a folder, to /root/src
  ./hayate cp ./src/. work:/root/src          only what is in it
  ./hayate cp work:/var/log/app.log .         a file, here
  ./hayate cp ./a:b work:/tmp                 a file with a colon in its name

As with docker cp, a folder that exists takes the source under its own name, and anything else is
the name of the copy. Copies belong to root in the machine, and to you here. Sockets, devices and
FIFOs are not copied.";

/// Printed below the help of `stop`.
pub const STOP_HELP: &str = "\
Examples:
  ./hayate stop work
  ./hayate stop -t 60 database                it may take a minute to end

All processes get SIGTERM, and those that are left after the time SIGKILL; then the machine is
switched off.";

/// Printed below the help of `rm`.
pub const REMOVE_HELP: &str = "\
Examples:
  ./hayate rm work                            a machine that was stopped
  ./hayate rm -f work                         kill it first, at once";

/// `start`.
#[derive(Args, Clone)]
pub struct Start {
    /// The name of the machine: letters, digits, '.', '_', '-' [default: m1, m2, ...]
    #[arg(long, value_parser = name)]
    pub name: Option<String>,

    /// End the machine when the process PID ends
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub owner: Option<i32>,

    /// Remove the machine with its logs when it ends
    #[arg(long)]
    pub rm: bool,

    /// What `run` has.
    #[command(flatten)]
    pub run: Run,
}

/// `exec`.
#[derive(Args)]
pub struct Exec {
    /// The machine
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,

    /// Set an environment variable; NAME alone passes on the host's value (can be repeated)
    #[arg(long, short, value_name = "NAME[=VALUE]", value_parser = checked(variable))]
    pub env: Vec<OsString>,

    /// The working directory of the program [default: that of the machine]
    #[arg(long, short = 'w', value_name = "PATH", value_parser = checked(not_empty))]
    pub directory: Option<OsString>,

    /// Run as this user and group of the guest, each by name or number [default: that of the
    /// machine]
    #[arg(long, short, value_name = "USER[:GROUP]", value_parser = checked(not_empty))]
    pub user: Option<OsString>,

    /// Give the program a terminal even if standard input or output is not one
    #[arg(long, short, overrides_with = "no_tty")]
    pub tty: bool,

    /// Give the program separate streams even on a terminal
    #[arg(long)]
    pub no_tty: bool,

    /// The program and its arguments [default: a login shell]
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `ps`.
#[derive(Args)]
pub struct Ps {
    /// Show machines that ended, too
    #[arg(long, short)]
    pub all: bool,

    /// Print names only
    #[arg(long, short)]
    pub quiet: bool,
}

/// `logs`.
#[derive(Args)]
pub struct Logs {
    /// The machine
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,

    /// Go on with what comes, until the machine ends
    #[arg(long, short)]
    pub follow: bool,

    /// Show the kernel's messages instead of the output of the first program
    #[arg(long)]
    pub kernel: bool,

    /// Begin with the last N lines
    #[arg(long, short = 'n', value_name = "N")]
    pub tail: Option<usize>,
}

/// `cp`.
#[derive(Args)]
pub struct Copy {
    /// The file or folder, in a machine or here
    #[arg(value_name = "[NAME:]SOURCE", value_parser = checked(not_empty))]
    pub from: OsString,

    /// Where the copy goes: into a machine if the source is here, and here otherwise
    #[arg(value_name = "[NAME:]TARGET", value_parser = checked(not_empty))]
    pub to: OsString,

    /// Keep owners, by their numbers
    #[arg(long, short)]
    pub archive: bool,

    /// If the source is a symbolic link, copy what it points to
    #[arg(long, short = 'L')]
    pub follow_link: bool,
}

/// `stop`.
#[derive(Args)]
pub struct Stop {
    /// The machines
    #[arg(value_name = "NAME", value_parser = name, required = true)]
    pub names: Vec<String>,

    /// How long processes may take to end, before they are killed
    #[arg(long, short = 't', value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub time: u32,
}

/// `rm`.
#[derive(Args)]
pub struct Remove {
    /// The machines
    #[arg(value_name = "NAME", value_parser = name, required = true)]
    pub names: Vec<String>,

    /// Kill a machine that runs
    #[arg(long, short)]
    pub force: bool,
}
