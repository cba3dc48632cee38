//! The memory and resources that the kernel holds, compared before and after a load.
//!
//! Hayate reports both exactly (`/proc/hayate`), so there nothing at all may be missing; another
//! Linux reports only roughly how much memory is free.

use std::fs;
use std::time::{Duration, Instant};

/// Memory in use: exact in Hayate; on Linux `/proc/meminfo` says roughly how much is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The content of `/proc/hayate/frames`.
    Frames {
        /// Frames that are free or used for the kernel's slabs and stacks, whose number varies with
        /// the placement of objects: all other frames are in use.
        free: u64,
        /// Frames of larger kernel objects.
        large: u64,
        /// Bytes of small kernel objects.
        objects: u64,
        /// The number of small objects.
        count: u64,
        /// The whole file.
        text: String,
        /// The number of objects of each size (`/proc/hayate/objects`).
        kinds: String,
    },
    /// KiB, from `MemFree`.
    KiB(u64),
}

/// Whether `rounds` rounds between the two readings lost memory. Where the kernel reports it, this
/// is exact to the frame and, for the kernel's own objects, to the byte; on a Linux with other
/// activity it allows half a page per round.
pub fn lost(before: &Option<Memory>, after: &Option<Memory>, rounds: u64) -> bool {
    match (before, after) {
        (
            Some(Memory::Frames { free, large, objects, .. }),
            Some(Memory::Frames { free: f, large: l, objects: o, .. }),
        ) => (f, l, o) != (free, large, objects),
        (Some(Memory::KiB(before)), Some(Memory::KiB(after))) => {
            before.saturating_sub(*after) > 2 * rounds + 1024
        }
        _ => false,
    }
}

/// Reads the memory usage; with `drop_caches`, after the kernel has dropped everything that it can.
pub fn memory(drop_caches: bool) -> Option<Memory> {
    let number = |text: &str, key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let mut last = None;
    // Another processor may still be freeing what ended processes held: wait for two equal
    // readings.
    for _ in 0..100 {
        if drop_caches {
            // SAFETY: no arguments.
            unsafe { libc::sync() };
            let _ = fs::write("/proc/sys/vm/drop_caches", "3\n");
        }
        let kinds = fs::read_to_string("/proc/hayate/objects").unwrap_or_default();
        let Ok(text) = fs::read_to_string("/proc/hayate/frames") else {
            return number(&fs::read_to_string("/proc/meminfo").ok()?, "MemFree:").map(Memory::KiB);
        };
        let now = Some(Memory::Frames {
            free: number(&text, "free")? + number(&text, "slabs")? + number(&text, "stacks")?,
            large: number(&text, "large")?,
            objects: number(&text, "objects")?,
            text: text.trim().replace('\n', ", "),
            count: kinds
                .lines()
                .filter_map(|line| line.split_once(' ')?.1.trim().parse::<u64>().ok())
                .sum(),
            kinds: kinds.trim().replace(' ', "x").replace('\n', " "),
        });
        if now == last {
            break;
        }
        last = now;
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

/// Returns the existing resources of each kind, and those that are kept of ended processes: a line
/// each. Empty if the kernel has no `/proc/hayate`. Call it after kept resources have been dropped.
pub fn resources() -> Vec<String> {
    let mut lines = Vec::new();
    for kind in ["process", "execution", "space", "attachment", "region", "program", "work-area"] {
        if let Ok(entries) = fs::read_dir(format!("/proc/hayate/resources/{kind}")) {
            lines.push(format!("{kind} {}", entries.count()));
        }
    }
    // kind made reused stored dropped kept bytes limit
    for line in fs::read_to_string("/proc/hayate/pools").unwrap_or_default().lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [kind, _, _, _, _, kept, bytes, _] = words[..] {
            lines.push(format!("{kind}: {kept} kept, {bytes} bytes"));
        }
    }
    lines
}

/// Frames that are free now, without dropping anything; `None` where the kernel does not tell.
pub fn frames_free() -> Option<u64> {
    let text = fs::read_to_string("/proc/hayate/frames").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("free"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Frames that are free once everything was dropped that can be, or are used for small objects;
/// `None` where the kernel does not tell, and then nothing is dropped.
pub fn frames_free_at_rest() -> Option<u64> {
    frames_free()?;
    match memory(true)? {
        Memory::Frames { free, .. } => Some(free),
        Memory::KiB(_) => None,
    }
}

/// Waits until as many frames are [free](frames_free_at_rest) as before, less `tolerance`. Returns
/// how many are, and how long it took.
///
/// # Errors
/// They are not after `patience`.
pub fn settle(
    before: Option<u64>,
    tolerance: u64,
    patience: Duration,
) -> Result<(Option<u64>, Duration), String> {
    let from = Instant::now();
    let Some(before) = before else { return Ok((None, from.elapsed())) };
    loop {
        let free = frames_free_at_rest().unwrap_or(0);
        if free + tolerance >= before {
            return Ok((Some(free), from.elapsed()));
        }
        if from.elapsed() > patience {
            let now = memory(true);
            return Err(format!("only {free} of {before} frames came back: {now:?}"));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Readings of the kernel's memory and resources, one after each run of a load.
///
/// Permanent allocations of the first runs (a table that grew to its final size) are not a leak. A
/// leak grows with every run, so two consecutive readings are never equal. For the kernel's small
/// objects the number is compared, not the bytes: in a storm some table may grow in every run.
#[derive(Default)]
pub struct Ledger {
    last: Option<(Option<Memory>, Vec<String>)>,
    why: String,
}

impl Ledger {
    /// Takes a reading after a run of so many rounds; returns whether it equals the previous one.
    pub fn is_as_before(&mut self, rounds: u64) -> bool {
        let now = (memory(true), resources());
        if let Some(Memory::Frames { text, .. }) = &now.0 {
            println!("    {text}");
        }
        let mut same = false;
        if let Some(last) = &self.last {
            same = !has_lost(&last.0, &now.0, rounds) && last.1 == now.1;
            self.why = difference(last, &now);
            if !same {
                println!("    not as before:{}", self.why);
            }
        }
        self.last = Some(now);
        same
    }

    /// Returns what differed at the last reading.
    pub fn complaint(&self) -> String {
        format!("not everything came back:{}", self.why)
    }
}

/// Repeats a load, `least` times (at least two), until two consecutive readings are equal. `strain`
/// gets the number of the run and returns its number of rounds.
///
/// # Errors
/// The load's own, or what still differs after `more` further runs.
pub fn balanced(
    least: u64,
    more: u64,
    mut strain: impl FnMut(u64) -> Result<u64, String>,
) -> Result<(), String> {
    let mut ledger = Ledger::default();
    for run in 0..least.max(2) + more {
        let rounds = strain(run)?;
        if ledger.is_as_before(rounds) && run + 1 >= least {
            return Ok(());
        }
    }
    Err(ledger.complaint())
}

/// Like [`lost`], with the number of small objects instead of their bytes.
fn has_lost(before: &Option<Memory>, after: &Option<Memory>, rounds: u64) -> bool {
    match (before, after) {
        (
            Some(Memory::Frames { free, large, count, .. }),
            Some(Memory::Frames { free: f, large: l, count: c, .. }),
        ) => (f, l, c) != (free, large, count),
        _ => lost(before, after, rounds),
    }
}

/// Returns what differs between two readings, apart from the frames.
fn difference(
    before: &(Option<Memory>, Vec<String>),
    after: &(Option<Memory>, Vec<String>),
) -> String {
    let kinds = |memory: &Option<Memory>| -> Vec<String> {
        match memory {
            Some(Memory::Frames { kinds, .. }) => kinds.split(' ').map(str::to_string).collect(),
            _ => Vec::new(),
        }
    };
    let (old, new) = (kinds(&before.0), kinds(&after.0));
    let pairs = old.iter().zip(&new).chain(before.1.iter().zip(&after.1));
    pairs.filter(|(a, b)| a != b).map(|(a, b)| format!(" [{a} -> {b}]")).collect()
}
