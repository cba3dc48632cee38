//! Taking work from another CPU's run queue.
//!
//! Only one queue's lock is held at a time, and the other's is only tried: its own CPU comes first.

use alloc::sync::Arc;
use core::cmp::Reverse;
use core::sync::atomic::Ordering;

use hayate_machine::cpu;

use super::execution::Execution;
use super::run_queue::{Entry, Inner, QUEUE, RunQueue, SLICE_NS};

/// Takes the first entry of another CPU's queue that may run on CPU `me`.
fn take_for(inner: &mut Inner, queue: &RunQueue, me: usize) -> Option<Arc<Execution>> {
    let may = |entry: &Reverse<Entry>| entry.0.execution.affinity() >> me & 1 != 0;
    let found = if inner.waiting.peek().is_some_and(may) {
        inner.waiting.pop().map(|entry| entry.0.execution)
    } else {
        // Rare: those before it are bound to other CPUs.
        let allowed = inner.waiting.iter().filter(|entry| may(entry));
        let first = allowed.min_by_key(|entry| entry.0.rank)?.0.execution.clone();
        inner.waiting.retain(|entry| !Arc::ptr_eq(&entry.0.execution, &first));
        Some(first)
    };
    queue.length.store(inner.waiting.len(), Ordering::SeqCst);
    found
}

/// Takes an execution from the longest other queue with more than `least` waiting.
pub(super) fn steal(least: usize) -> Option<Arc<Execution>> {
    if cpu::count() == 1 {
        return None;
    }
    let me = cpu::id();
    let longest = (0..cpu::count())
        .filter(|other| *other != me)
        .filter_map(|other| {
            QUEUE.of(other).map(|queue| (queue.length.load(Ordering::Relaxed), queue))
        })
        .filter(|(length, _)| *length > least)
        .max_by_key(|(length, _)| *length);
    let (_, queue) = longest?;
    let (taken, floor) = {
        let mut inner = queue.inner.try_lock()?;
        (take_for(&mut inner, queue, me)?, inner.floor)
    };
    // Its virtual time is relative to the queue it comes from.
    let ahead = taken.virtual_time.load(Ordering::Relaxed).saturating_sub(floor);
    let here = QUEUE.here().inner.lock().floor;
    taken.virtual_time.store(here + ahead.min(SLICE_NS), Ordering::Relaxed);
    Some(taken)
}

/// Whether another CPU has somebody waiting that this one might take.
pub(super) fn others_wait() -> bool {
    let me = cpu::id();
    (0..cpu::count()).any(|other| {
        other != me
            && QUEUE.of(other).is_some_and(|queue| {
                queue.length.load(Ordering::Relaxed) != 0
                    && queue.inner.try_lock().is_none_or(|inner| {
                        inner
                            .waiting
                            .iter()
                            .any(|entry| entry.0.execution.affinity() >> me & 1 != 0)
                    })
            })
    })
}
