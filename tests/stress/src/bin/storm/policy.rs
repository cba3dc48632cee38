//! The policy of kept resources changes while programs start, and kept resources are dropped.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hayate_stress::balance::balanced;
use hayate_stress::{Random, pause, wait};

use super::board::Board;
use super::starter::{self, Programs};
use super::{Orders, goes_on};

/// The file to read and set the policy.
const POLICY: &str = "/proc/hayate/policy";
/// The file to drop and limit kept resources.
const POOLS: &str = "/proc/hayate/pools";
/// How many starters there are.
const STARTERS: usize = 4;

/// All values that have a name, and some combinations.
pub const POLICIES: [&str; 15] = [
    "none",
    "program",
    "space",
    "region",
    "all",
    "all+text",
    "full",
    "full-attachment",
    "full-text",
    "attachment",
    "space+text",
    "region+text",
    "program+region+text",
    "full-debt",
    "region+debt",
];

/// The previous policy, restored when this is dropped.
pub struct Policy(String);

impl Policy {
    /// Remembers the policy; `None` where there is none.
    pub fn remember() -> Option<Policy> {
        fs::read_to_string(POLICY).ok().map(Policy)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        let _ = fs::write(POLICY, &self.0);
    }
}

/// Sets the policy.
///
/// # Errors
/// The kernel's error.
pub fn set(policy: &str) -> Result<(), String> {
    fs::write(POLICY, policy).map_err(|e| format!("policy {policy}: {e}"))
}

/// Starts programs and changes the policy meanwhile, and checks what is left after each run.
pub fn storm(orders: &Orders) -> Result<(), String> {
    let Some(_before) = Policy::remember() else {
        println!("storm policy: skipped: {POLICY} is Hayate's own");
        return Ok(());
    };
    let limits = limits()?;
    let (board, _) = Board::new()?;
    let programs = Programs::new(orders);
    balanced(orders.runs, 10, |run| {
        board.stop.store(0, Relaxed);
        board.starts.store(0, Relaxed);
        let mut random = Random::new(orders.seed << 8 | run);
        let mut starters = Vec::new();
        for slot in 0..STARTERS {
            starters.push(starter::launch(board, &programs, slot, random.bits(), false)?);
        }
        let begun = Instant::now();
        let enough = || board.starts.load(Relaxed) > 0;
        let mut changes = 0u64;
        while goes_on(begun, orders.length, enough()) && board.verdict().is_ok() {
            changes += 1;
            match random.below(8) {
                0 => command("drop")?,
                1 => command(random.pick(&[
                    "drop attachment",
                    "drop program",
                    "drop space",
                    "drop region",
                ]))?,
                2 => {
                    // A limit of zero, little, or much.
                    let bytes = random.pick(&[0, 4096, 300_000, 64 << 20]);
                    command(&format!(
                        "limit {} {bytes}",
                        random.pick(&["attachment", "program", "region", "space"])
                    ))?;
                }
                _ => set(random.pick(&POLICIES))?,
            }
            pause(random.below(3000));
        }
        board.stop.store(1, Relaxed);
        // Orphans of the starters as well.
        while wait(-1).is_some() {}
        for (kind, bytes) in &limits {
            command(&format!("limit {kind} {bytes}"))?;
        }
        set("full")?;
        let starts = board.starts.load(Relaxed);
        println!("storm policy: {changes} changes during {starts} starts");
        board.verdict()?;
        if starts == 0 {
            return Err("nothing was started".into());
        }
        Ok(starts)
    })
}

fn command(text: &str) -> Result<(), String> {
    fs::write(POOLS, text).map_err(|e| format!("{text}: {e}"))
}

/// Returns the limit of each kind that has one.
fn limits() -> Result<Vec<(String, String)>, String> {
    let text = fs::read_to_string(POOLS).map_err(|e| format!("{POOLS}: {e}"))?;
    let limit = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (kind, limit) = (words.first()?, words.last()?);
        (*limit != "0").then(|| (kind.to_string(), limit.to_string()))
    };
    Ok(text.lines().skip(1).filter_map(limit).collect())
}
