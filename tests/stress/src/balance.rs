//! What the kernel holds, to be compared before and after a strain: memory and resources.
//!
//! Hayate tells both exactly (`/proc/hayate`), so there nothing at all may be missing; another Linux
//! tells roughly how much memory is free.

use std::fs;

/// Memory in use: Hayate tells it exactly, Linux' `/proc/meminfo` roughly what is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What `/proc/hayate/frames` says.
    Frames {
        /// Frames that are free, and those of the kernel's slabs and stacks, which come and go as the
        /// objects in them lie: the rest is in use.
        free: u64,
        /// Frames of larger kernel objects.
        large: u64,
        /// Bytes of small ones.
        objects: u64,
        /// How many those are.
        count: u64,
        /// The whole text.
        text: String,
        /// How many objects of which size (`/proc/hayate/objects`).
        kinds: String,
    },
    /// KiB, as `MemFree` says.
    KiB(u64),
}

/// Whether `rounds` rounds between the two readings lost memory: to the frame and, for the kernel's
/// own objects, to the byte where the kernel tells it, and half a page per round on a Linux where
/// others are at work.
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

/// Reads how memory is used; with `drop_caches` once the kernel has dropped what it can drop.
pub fn memory(drop_caches: bool) -> Option<Memory> {
    let number = |text: &str, key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let mut last = None;
    // What processes leave behind may still be on its way on another processor: wait for two
    // readings alike.
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
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    last
}

/// The resources of each kind that there are, and what is kept of ended processes: a line each. Empty
/// where the kernel has no `/proc/hayate`. Call it when what is kept has been dropped.
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

/// Readings of what the kernel holds, one after each run of a strain.
///
/// What the first runs allocate for good (a table that grew to what it needs at most) is no leak,
/// which grows with every run: it never leaves two readings in a row the same. Of the kernel's small
/// objects their number counts, not their bytes: a storm finds a table that can grow in every run.
#[derive(Default)]
pub struct Ledger {
    last: Option<(Option<Memory>, Vec<String>)>,
    why: String,
}

impl Ledger {
    /// Reads after a run of so many rounds; whether everything is as at the reading before.
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

    /// What was not as before at the last reading.
    pub fn complaint(&self) -> String {
        format!("not everything came back:{}", self.why)
    }
}

/// Repeats a strain, `least` times (two at least), until two readings in a row are the same. `strain`
/// gets the number of the run and gives its number of rounds.
///
/// # Errors
/// The strain's own, or what is not the same after `more` further runs.
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

/// As [`lost`], with the number of small objects instead of their bytes.
fn has_lost(before: &Option<Memory>, after: &Option<Memory>, rounds: u64) -> bool {
    match (before, after) {
        (
            Some(Memory::Frames { free, large, count, .. }),
            Some(Memory::Frames { free: f, large: l, count: c, .. }),
        ) => (f, l, c) != (free, large, count),
        _ => lost(before, after, rounds),
    }
}

/// What differs between two readings, besides the frames.
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
