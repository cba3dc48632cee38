//! Who goes when memory has run out and the one who needs some is the first process.
//!
//! Otherwise whoever asks for memory that is not there is ended itself ([`super::fault`]): nobody pays
//! for others. With the first process all others would go, so here another one does: the one that holds
//! most memory of its own, which `oom_score_adj` makes seem more or less, as on Linux
//! (mm/oom_kill.c, `oom_badness`). One that is ending anyway is waited for instead.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_machine::frames;

use super::record::Process;
use super::{fault, pids};
use crate::schedule::{self, time};

/// How long a process may take to end before another one goes as well.
const PATIENCE_NS: u64 = 2_000_000_000;
const PAUSE_NS: u64 = 1_000_000;
/// Who has this much `oom_score_adj` taken away is never chosen.
const NEVER: i32 = -1000;

/// Sees to it that a process other than the first ends and gives its memory back. False: there is none
/// that could. Call it without spin locks, from the first process.
#[cold]
pub fn make_room() -> bool {
    if choose(|process| process.is_exiting()).is_some_and(|victim| has_gone(&victim)) {
        return true;
    }
    let Some(victim) = choose(|process| !process.is_exiting()) else { return false };
    fault::end_for_memory(&victim);
    // If it takes long, the next try ends another one: there is an end to that.
    has_gone(&victim);
    true
}

/// Waits until a process has given back its memory; false if it takes too long.
fn has_gone(victim: &Process) -> bool {
    let deadline = time::monotonic_ns() + PATIENCE_NS;
    while held(victim).is_some() {
        if time::monotonic_ns() > deadline {
            return false;
        }
        // No signal ends the pause: its handler would need memory, too.
        let _ = schedule::sleep_until(time::monotonic_ns() + PAUSE_NS, false);
    }
    true
}

/// The process that is to go, of those for which `may` holds.
fn choose(may: impl Fn(&Process) -> bool) -> Option<Arc<Process>> {
    let all = pids::processes().ok()?;
    let others = all.iter().filter(|process| process.id() != 1 && may(process));
    let candidates = others.filter_map(|process| Some((badness(process)?, process)));
    candidates.max_by_key(|(badness, _)| *badness).map(|(_, process)| process.clone())
}

/// How much of memory its end would give, changed by `oom_score_adj`; `None`: it is not to go.
fn badness(process: &Process) -> Option<i64> {
    let adjust = process.oom_score_adjust.load(Ordering::Relaxed);
    if adjust <= NEVER {
        return None;
    }
    let pages = held(process)? as i64;
    Some(pages + i64::from(adjust) * frames::total() as i64 / 1000)
}

/// How many pages it has for itself; `None`: it has given all back.
fn held(process: &Process) -> Option<usize> {
    // Not while its threads are locked: the space could end with our reference.
    let mut space = None;
    process.for_each_thread(|thread| {
        if space.is_none() {
            space = thread.space();
        }
    });
    let space = space?;
    let resident = space.resident();
    Some(resident.anonymous + resident.tables)
}
