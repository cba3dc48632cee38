//! The command line.

use crate::clock::Source;
use crate::exit::{Failure, USAGE};
use crate::experiment::Named;
use clap::{Args, Parser, Subcommand};
use measure_data::units::parse_size;
use std::path::PathBuf;

/// Measures a machine and its operating system, predicts each result, and compares runs.
#[derive(Debug, Parser)]
#[command(name = "measure", version, about, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit status:
  0    done
  1    compare: B is worse in something; selftest: it sees differences that are not there;
       oracle: the two ways differ
  2    wrong arguments
  3    compare: nothing is worse, but something is too noisy to tell
  4    nothing could be measured here; the reasons are printed
  5    a file is not a run that this version can read
  6    a result could not be written where it was asked for
  130  stopped by Ctrl-C; the measurements until then are saved";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists the experiments, with their methods.
    List {
        /// Only those whose name matches; * matches anything, also slashes.
        globs: Vec<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measures.
    Run(RunArguments),
    /// Prints the fingerprint of this machine.
    Machine {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// The directory whose disk to describe.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Compares two runs; several files of one side are given as A1.json,A2.json.
    Compare {
        /// The run to compare with.
        a: String,
        /// The run to judge.
        b: String,
        /// Smallest difference that matters, in per cent.
        #[arg(long, default_value_t = 5.0, value_parser = percent)]
        threshold: f64,
        /// Print every result, not only the differences.
        #[arg(long)]
        all: bool,
    },
    /// Makes one HTML file of one or several runs, side by side.
    Report {
        /// The runs.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// The file to write.
        #[arg(short, long, default_value = "report.html")]
        output: PathBuf,
    },
    /// Answers network experiments of another host (`measure run --remote`) until stopped.
    Serve {
        /// Address and port to listen on, TCP and UDP.
        #[arg(long, default_value = "0.0.0.0:7171")]
        listen: String,
    },
    /// Measures everything twice in turn and compares: no difference should be found.
    Selftest(RunArguments),
    /// Holds the suite against the naive method, rdtsc around a loop: medians must agree within a
    /// tenth.
    Oracle(OracleArguments),
    /// Measures how many more processes two processes start at once than one does alone.
    Scaling(ScalingArguments),
}

/// The switches of `scaling`.
#[derive(Clone, Debug, Args)]
pub struct ScalingArguments {
    /// How often one and two are measured in turn.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long each process works in each round.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub milliseconds: u32,
    /// Where the program to execute is created [default: /var/tmp, else /tmp].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// As JSON, with every round.
    #[arg(long)]
    pub json: bool,
}

impl ScalingArguments {
    /// The switches of a run that measures in the same place.
    pub fn run_arguments(&self) -> RunArguments {
        RunArguments { dir: self.dir.clone(), ..RunArguments::usual() }
    }
}

/// The switches of `oracle`.
#[derive(Clone, Debug, Args)]
pub struct OracleArguments {
    /// Only these experiments, by their whole names.
    pub names: Vec<String>,
    /// How often each way measures, in turn.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Where files are created [default: /var/tmp, else /tmp].
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

impl OracleArguments {
    /// The switches of a run that measures in the same place.
    pub fn run_arguments(&self) -> RunArguments {
        RunArguments { dir: self.dir.clone(), ..RunArguments::usual() }
    }
}

/// The switches of a run.
#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// Only the experiments whose name matches; * matches anything, also slashes.
    pub globs: Vec<String>,
    /// Under a minute, with wider intervals.
    #[arg(long)]
    pub quick: bool,
    /// Time for each experiment, in seconds [default: 1, with --quick 0.2].
    #[arg(long, value_parser = positive)]
    pub seconds: Option<f64>,
    /// Passes over the experiments, each in fresh processes [default: 10, with --quick 8].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub passes: Option<u32>,
    /// Exactly so many samples in each pass, whatever the time: two runs in an emulator that
    /// counts instructions are then the same to the digit.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub iterations: Option<u32>,
    /// Save the run with all samples; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Save the table as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Save the table as Markdown.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Save the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// A name for the run [default: kernel and processor].
    #[arg(long)]
    pub label: Option<String>,
    /// The processor to measure on [default: the last one].
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Do not pin the measuring process to a processor.
    #[arg(long, conflicts_with = "cpu")]
    pub no_pin: bool,
    /// Leave the priority as it is [default: raise it where that is allowed, as for root, unless
    /// --iterations is given].
    #[arg(long)]
    pub no_priority: bool,
    /// Where files are created and read [default: /var/tmp, else /tmp].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Largest array in memory [default: a quarter of memory, at most 256M].
    #[arg(long, value_parser = size)]
    pub memory_limit: Option<u64>,
    /// Largest file.
    #[arg(long, value_parser = size, default_value = "128M")]
    pub file_limit: u64,
    /// HOST:PORT of `measure serve` on another host.
    #[arg(long)]
    pub remote: Option<String>,
    /// Start this program as well, as the experiment program/NAME: fork, exec, exit, wait. The
    /// command is parted at spaces (can be repeated).
    #[arg(long, value_name = "NAME=COMMAND")]
    pub program: Vec<String>,
    /// Start /bin/sh with this script in the same way, as the experiment program/NAME (can be
    /// repeated).
    #[arg(long, value_name = "NAME=SCRIPT")]
    pub script: Vec<String>,
    /// Run this by /bin/sh before each start of these programs, untimed.
    #[arg(long, value_name = "COMMAND")]
    pub before: Option<String>,
    /// Throw no start of these programs away: the first ones count too.
    #[arg(long)]
    pub cold: bool,
    /// Neither --before nor --cold concerns the program of this name (can be repeated).
    #[arg(long, value_name = "NAME")]
    pub warm: Vec<String>,
    /// Of starts of these programs, and of work with files past the cache, take off the time in
    /// which the only processor had nothing to do, as Linux tells it in /proc/timer_list and Hayate
    /// in /proc/hayate/idle. An emulator that counts instructions lets its clock go on then.
    #[arg(long)]
    pub without_idle: bool,
    /// Measure only if this path is there, or end with status 4 (can be repeated).
    #[arg(long, value_name = "PATH")]
    pub needs: Vec<PathBuf>,
    /// The clock to measure with [default: the time-stamp counter if it is steady].
    #[arg(long)]
    pub clock: Option<Source>,
    /// No progress on standard error.
    #[arg(long)]
    pub no_progress: bool,
}

impl RunArguments {
    /// Those of `measure run` without any.
    pub fn usual() -> Self {
        let Command::Run(usual) = Arguments::parse_from(["measure", "run"]).command else {
            unreachable!("the line above says run")
        };
        usual
    }

    /// The programs of `--program` and `--script`.
    pub fn programs(&self) -> Result<Vec<Named>, Failure> {
        let named = |(script, text): (bool, &String)| {
            let (name, command) = text.split_once('=').unwrap_or_default();
            let words: Vec<&str> = command.split_whitespace().collect();
            if name.is_empty() || name.contains(['*', ' ', '/']) || words.is_empty() {
                let text = if script {
                    format!("--script {text}: give NAME=SCRIPT, as in listed=ls | wc -l")
                } else {
                    format!("--program {text}: give NAME=COMMAND, as in date=/bin/date -u")
                };
                return Err(Failure::new(USAGE, text));
            }
            let words = if script { vec!["/bin/sh", "-c", command] } else { words };
            let warm = self.warm.iter().any(|warm| warm == name);
            Ok(Named {
                name: name.into(),
                command: words.into_iter().map(String::from).collect(),
                before: self.before.clone().filter(|_| !warm),
                warm_up: warm || !self.cold,
            })
        };
        let programs = self.program.iter().map(|text| (false, text));
        let scripts = self.script.iter().map(|text| (true, text));
        let all: Vec<Named> = programs.chain(scripts).map(named).collect::<Result<_, _>>()?;
        match self.warm.iter().find(|warm| all.iter().all(|named| named.name != **warm)) {
            Some(warm) => {
                let text = format!("--warm {warm}: no --program or --script {warm}=...");
                Err(Failure::new(USAGE, text))
            }
            None => Ok(all),
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 86_400.0 => Ok(v),
        _ => Err("give a number of seconds above 0".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.0..=1000.0).contains(&v) => Ok(v),
        _ => Err("give a number of per cent from 0 to 1000".into()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text)
        .filter(|s| *s >= 1 << 20)
        .ok_or_else(|| "give a size of 1M or more, as in 64M or 2G".into())
}
