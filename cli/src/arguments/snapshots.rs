//! The options of `snapshot`.

use super::Run;
use super::values::name;
use clap::{Args, Subcommand};

/// Printed below the help of `snapshot`.
pub const SNAPSHOT_HELP: &str = "\
Examples:
  ./hayate snapshot make py --warm \"python3 -c 'print(42)'\"
  ./hayate run --from py -- python3 -c 'print(6*7)'
  ./hayate start --from py --name work        a machine that stays
  ./hayate snapshot list
  ./hayate snapshot rm py

docs/snapshots.md tells more.";

/// Printed below the help of `snapshot make`.
pub const MAKE_HELP: &str = "\
Examples:
  ./hayate snapshot make plain
  ./hayate snapshot make py --memory 512M --warm \"python3 -c 'import json'\"
  ./hayate snapshot make fast --recycle full+image --times 3 --warm \"python3 -c 'print(42)'\"
  ./hayate snapshot make app --rootfs app.tar --warm '/bin/sh -c \"app --version >/dev/null\"'

A machine boots with the options of `run`, runs the warm-up commands one after the other, ends
whatever they left running, and is saved; then it is gone. What the commands print goes to standard
error. One that fails ends the making. A snapshot of the same name is replaced when the new one is
complete.";

/// `snapshot`.
#[derive(Args)]
pub struct Snapshot {
    /// What to do with snapshots.
    #[command(subcommand)]
    pub request: SnapshotRequest,
}

/// The commands of `snapshot`.
#[derive(Subcommand)]
pub enum SnapshotRequest {
    /// Boot a machine, warm it up and save it
    #[command(after_help = MAKE_HELP)]
    Make(Box<Make>),
    /// List snapshots
    List {
        /// Print names only
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show what a snapshot was made with, and whether this host can start it
    Show {
        /// The snapshot
        #[arg(value_name = "NAME", value_parser = name)]
        name: String,
    },
    /// Remove snapshots; machines that were started from them go on
    Rm {
        /// The snapshots
        #[arg(value_name = "NAME", value_parser = name, required = true)]
        names: Vec<String>,
    },
}

/// `snapshot make`.
#[derive(Args, Clone)]
pub struct Make {
    /// The name of the snapshot: letters, digits, '.', '_', '-'
    #[arg(value_name = "NAME", value_parser = name)]
    pub name: String,

    /// Run CMD before the machine is saved, as `run` would: no shell, words as a shell separates
    /// them (can be repeated)
    #[arg(long, value_name = "CMD")]
    pub warm: Vec<String>,

    /// How often to run each warm-up; with `--recycle full+image` a command that ran three times
    /// begins at its image
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub times: u32,

    /// What `run` has.
    #[command(flatten)]
    pub run: Run,
}
