//! The command line: the commands, and which crate has the options of each.

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use hayate_cli::arguments::containerd::{CONTAINERD_HELP, Containerd};
use hayate_cli::arguments::disks::{DISK_HELP, Disks};
use hayate_cli::arguments::machines::{
    COPY_HELP, Copy, EXEC_HELP, Exec, LOGS_HELP, Logs, PS_HELP, Ps, REMOVE_HELP, Remove,
    START_HELP, STOP_HELP, Start, Stop,
};
use hayate_cli::arguments::snapshots::{SNAPSHOT_HELP, Snapshot};
use hayate_cli::arguments::{
    BUILD_HELP, Build, IMAGE_HELP, Image, OFF2F_HELP, Off2f, RUN_HELP, Run, TEST_HELP, Test,
};
use hayate_measure_tools::arguments::{
    COMPARE_HELP, Compare, EXPERIMENT_HELP, EXPLAIN_HELP, Experiment, Explain,
};

const EXAMPLES: &str = "\
Examples:
  ./hayate run                                a shell in Hayate
  ./hayate run -- python3 -c 'print(6*7)'     one program; its exit status is the command's
  echo hi | ./hayate run -- cat               streams pass through, each by itself
  ./hayate start --name work                  a machine that stays
  ./hayate exec work -- ls -l /               and a program in it
  ./hayate snapshot make warm                 a machine, saved
  ./hayate run --from warm -- ls -l /         a program in a copy of it, at once
  ./hayate test                               all tests
  ./hayate image build                        make the default image anew

./hayate COMMAND --help explains one command.";

/// Runs unmodified Linux programs in Hayate, a guest operating system that starts programs fast
#[derive(Parser)]
#[command(name = "hayate", bin_name = "./hayate", version, after_help = EXAMPLES)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Request,
}

/// The commands.
#[derive(Subcommand)]
pub enum Request {
    /// Boot a machine and run a program or a shell in it
    #[command(after_help = RUN_HELP)]
    Run(Box<Run>),
    /// Start a machine that stays, to be given programs by `exec`
    #[command(after_help = START_HELP)]
    Start(Box<Start>),
    /// Own a machine that stays; `start` starts this.
    #[command(hide = true)]
    Keep(Box<Start>),
    /// Run a program or a shell in a machine that stays
    #[command(after_help = EXEC_HELP)]
    Exec(Box<Exec>),
    /// List machines that stay
    #[command(after_help = PS_HELP)]
    Ps(Ps),
    /// Show what a machine that stays printed
    #[command(after_help = LOGS_HELP)]
    Logs(Logs),
    /// Copy files and folders into a machine that stays, or out of it
    #[command(after_help = COPY_HELP)]
    Cp(Copy),
    /// Stop machines
    #[command(after_help = STOP_HELP)]
    Stop(Stop),
    /// Remove machines that ended, with their logs
    #[command(after_help = REMOVE_HELP)]
    Rm(Remove),
    /// Save machines, and start any number of copies of them
    #[command(after_help = SNAPSHOT_HELP)]
    Snapshot(Snapshot),
    /// Make, check and resize disks, which keep what machines write
    #[command(after_help = DISK_HELP)]
    Disk(Disks),
    /// Install the runtime by which containerd, nerdctl and Kubernetes start containers in machines
    #[command(after_help = CONTAINERD_HELP)]
    Containerd(Containerd),
    /// Test Hayate: first on this machine, then in machines
    #[command(after_help = TEST_HELP)]
    Test(Test),
    /// Measure Hayate and Linux side by side in the same machine
    #[command(after_help = COMPARE_HELP)]
    Compare(Compare),
    /// Show how much each step of a program's start costs, for a first and a second start
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Box<Explain>),
    /// Run an experiment described in experiments/ and write table, picture and data
    #[command(after_help = EXPERIMENT_HELP)]
    Experiment(Experiment),
    /// Make, find and list root file systems
    #[command(after_help = IMAGE_HELP)]
    Image(Image),
    /// Convert executables into two files each, to run their text on non-volatile memory
    #[command(after_help = OFF2F_HELP)]
    Off2f(Off2f),
    /// Build the kernel and the guest's programs, and print their paths
    #[command(after_help = BUILD_HELP)]
    Build(Build),
    /// Install what this machine lacks (every command does this first)
    Setup,
}

impl Arguments {
    /// Reads the command line of this process.
    pub fn of_process() -> Result<Arguments, clap::Error> {
        let matches = Arguments::command().try_get_matches()?;
        Arguments::of(&matches)
    }

    fn of(matches: &ArgMatches) -> Result<Arguments, clap::Error> {
        let mut arguments = Arguments::from_arg_matches(matches)?;
        let run = match &mut arguments.command {
            Request::Run(run) => Some(&mut **run),
            Request::Start(start) | Request::Keep(start) => Some(&mut start.run),
            _ => None,
        };
        if let (Some(run), Some((_, matches))) = (run, matches.subcommand()) {
            let is_given = |name: &&clap::Id| {
                matches.value_source(name.as_str()) == Some(ValueSource::CommandLine)
            };
            run.given = matches.ids().filter(is_given).map(ToString::to_string).collect();
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_known_from_what_is_usual() {
        let words = ["hayate", "run", "--from=s", "--memory=1G", "--cpus", "2", "--", "ls"];
        let matches = Arguments::command().try_get_matches_from(words).unwrap();
        let Ok(Arguments { command: Request::Run(run) }) = Arguments::of(&matches) else {
            panic!("not understood")
        };
        for given in ["from", "memory", "cpus", "command"] {
            assert!(run.given.contains(given), "{given}");
        }
        assert!(!run.given.contains("accel") && !run.given.contains("machine"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn values_that_cannot_be_meant_are_refused() {
        let parse = |option: &str, value: &str| {
            Arguments::try_parse_from(["hayate", "run", &format!("{option}={value}")])
        };
        let wrong = [
            ("--env", ""),
            ("--env", "=x"),
            ("--directory", ""),
            ("--rootfs", ""),
            ("--off2f", ""),
            ("--append", "a\nb"),
            ("--cpu", ""),
            ("--cpu", "-xsave"),
            ("--cpu", "max -xsave"),
            ("--timeout", "0"),
            ("--memory", "31M"),
            ("--memory", "1025G"),
            ("--memory", ""),
            ("--cpus", "0"),
        ];
        for (option, value) in wrong {
            let refused = parse(option, value).err().map(|error| error.exit_code());
            assert_eq!(refused, Some(2), "{option} {value:?}");
        }
        let right =
            [("--env", "A="), ("--env", "A"), ("--cpu", "max,-xsave,+avx"), ("--append", "")];
        for (option, value) in right {
            assert!(parse(option, value).is_ok(), "{option} {value:?}");
        }
    }

    #[test]
    fn a_command_follows_two_dashes() {
        let parsed = Arguments::try_parse_from(["hayate", "run", "--cpus=2", "--", "ls", "-l"]);
        let Ok(Arguments { command: Request::Run(run) }) = parsed else { panic!("not understood") };
        assert_eq!(run.command, ["ls", "-l"]);
        assert_eq!(run.machine.cpus, 2);
        assert!(Arguments::try_parse_from(["hayate", "run", "--cpus=17"]).is_err());
    }
}
