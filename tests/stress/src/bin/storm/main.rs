//! Storms of process starts: as many as memory allows, killed at any moment, of programs that are
//! being replaced, while the policy of kept resources changes.
//!
//! Each storm runs a few times, and after each run the kernel must hold the same as before: frames,
//! its own objects, resources of every kind ([`hayate_stress::balance`]). The processes of a storm
//! share a [`Board`] of counters.

mod board;
mod bomb;
mod hoard;
mod policy;
mod replace;
mod starter;
mod strike;

use std::path::PathBuf;
use std::process::exit;
use std::time::{Duration, Instant};

use hayate_stress::Options;

const USAGE: &str = "storm [--seed N] [--seconds S] [--runs N] [--limit N] WHAT
  WHAT is one of
    bomb      every process starts others, until there is no memory or, with --limit, until the
              limit of processes is reached
    strike    starters of all kinds, and a killer that strikes at any moment
    replace   programs start while their files are renamed over, rewritten, truncated, under every
              policy: each start is of one whole version, and never of one that was gone
    policy    starters of all kinds while the policy changes and what is kept is dropped
    hoard     one process holds all memory when the first process of the machine needs some: the
              holder goes, not the first (once)
  --seed N      the seed of all that is random (1)
  --seconds S   how long one run takes (3); a leak shows after a few seconds
  --runs N      the least number of runs (2); it ends when two runs in a row leave as much memory
  --limit N     bomb: as the user nobody under this limit of processes
Example: storm --seconds 10 --runs 6 strike";

/// The parameters of a storm.
struct Orders {
    seed: u64,
    length: Duration,
    runs: u64,
    limit: u64,
    /// The folder of the programs that are started: that of this program.
    programs: PathBuf,
}

impl Orders {
    /// Returns the path of a program that is started.
    fn program(&self, name: &str) -> String {
        self.programs.join(name).to_string_lossy().into_owned()
    }
}

/// Whether a storm that began at `begun` continues: for the given time, and on a slow machine,
/// within reason, until it has done enough.
fn goes_on(begun: Instant, length: Duration, enough: bool) -> bool {
    let passed = begun.elapsed();
    passed < length || !enough && passed < length + Duration::from_secs(60)
}

fn main() {
    // `storm bomb` runs itself as a program, so that the watcher shares no memory with the bomb.
    if std::env::args().nth(1).as_deref() == Some("--bomber") {
        bomb::bomber();
    }
    let options = Options::parse(USAGE, &["seed", "seconds", "runs", "limit"], &[]);
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("./storm"));
    let orders = Orders {
        seed: options.get("seed", 1),
        length: Duration::from_secs(options.get("seconds", 3)),
        runs: options.get("runs", 2),
        limit: options.get("limit", 0),
        programs: own.parent().map(PathBuf::from).unwrap_or_default(),
    };
    hayate_stress::adopt_orphans();
    let what = options.plain.clone().unwrap_or_default();
    let result = match what.as_str() {
        "bomb" => bomb::storm(&orders),
        "strike" => strike::storm(&orders),
        "replace" => replace::storm(&orders),
        "policy" => policy::storm(&orders),
        "hoard" => hoard::storm(),
        _ => options.wrong("which storm?"),
    };
    if let Err(why) = result {
        println!("storm {what}: FAILED: {why} (seed {})", orders.seed);
        exit(1);
    }
    println!("storm {what}: ok");
}
