//! The choice of a process to end when memory is exhausted and the first process needs some.
//!
//! Otherwise the process that asks for memory is ended itself ([`super::fault`]), so that none
//! suffers for others. If the first process ended, all would end, so here another one is ended: the
//! one with the most memory of its own, adjusted by `oom_score_adj`, as on Linux (mm/oom_kill.c,
//! `oom_badness`). If a process is ending anyway, the caller waits for that one instead.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_machine::frames;

use super::record::Process;
use super::signal::send;
use super::{cgroup, pids};
use crate::schedule;
use crate::schedule::time;

/// How long a process may take to end before another one is ended as well.
const PATIENCE_NS: u64 = 2_000_000_000;
const PAUSE_NS: u64 = 1_000_000;
/// A process with this `oom_score_adj` is never chosen.
const NEVER: i32 = -1000;

/// Ends a process other than the first and waits until its memory is free. Returns false if no
/// process can be ended. Call it without spin locks, from the first process.
#[cold]
pub fn make_room() -> bool {
    if let Some(victim) = choose(|process| process.is_exiting()) {
        // A core file would only take more.
        victim.cut_dump();
        if has_gone(&victim) {
            return true;
        }
    }
    let Some(victim) = choose(|process| !process.is_exiting()) else { return false };
    end_for_memory(&victim);
    // If that takes too long, the next call ends another process, so this comes to an end.
    has_gone(&victim);
    true
}

/// Waits until a process has freed its memory; returns false if that takes too long.
fn has_gone(victim: &Process) -> bool {
    let deadline = time::monotonic_ns() + PATIENCE_NS;
    while held(victim).is_some() {
        if time::monotonic_ns() > deadline {
            return false;
        }
        // No signal ends the pause, since its handler would need memory, too.
        let _ = schedule::sleep_until(time::monotonic_ns() + PAUSE_NS, false);
    }
    true
}

/// The process to end, among those for which `may` holds.
fn choose(may: impl Fn(&Process) -> bool) -> Option<Arc<Process>> {
    let all = pids::processes().ok()?;
    let others = all.iter().filter(|process| process.id() != 1 && may(process));
    let candidates = others.filter_map(|process| Some((badness(process)?, process)));
    candidates.max_by_key(|(badness, _)| *badness).map(|(_, process)| process.clone())
}

/// How many pages its end would free, adjusted by `oom_score_adj`; `None` if it must not be chosen.
fn badness(process: &Process) -> Option<i64> {
    let adjust = process.oom_score_adjust.load(Ordering::Relaxed);
    if adjust <= NEVER {
        return None;
    }
    let pages = held(process)? as i64;
    Some(pages + i64::from(adjust) * frames::total() as i64 / 1000)
}

/// How many pages only this process has; `None` if it has freed its memory.
fn held(process: &Process) -> Option<usize> {
    // Not while the list of threads is locked: this may be the last reference to the space.
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

/// Ends a process because memory is exhausted. Its control group counts that.
pub(super) fn end_for_memory(process: &Process) {
    let name = process.first_thread().map(|thread| thread.shown_name()).unwrap_or_default();
    let name = name.escape_ascii();
    hayate_machine::warn!("out of memory: process {} ({name}) is ended", process.id());
    if !process.is_exiting() {
        cgroup::memory::note_kill(process);
    }
    send::kill(process);
}
