//! Taking work from another CPU's run queue.
//!
//! Only one queue's lock is held at a time. The other queue's lock is only tried, so that this CPU
//! never makes the owner wait.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_machine::cpu;

use super::execution::Execution;
use super::run_queue::{QUEUE, SLICE_NS};

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
        let taken = inner.waiting.take_allowed(me, 0)?;
        queue.length.store(inner.waiting.length(), Ordering::SeqCst);
        (taken, inner.floor)
    };
    // Its virtual time is relative to the floor of the queue it comes from.
    let ahead = taken.virtual_time.load(Ordering::Relaxed).saturating_sub(floor);
    let here = QUEUE.here().inner.lock().floor;
    taken.virtual_time.store(here + ahead.min(SLICE_NS), Ordering::Relaxed);
    Some(taken)
}

/// Whether an execution waits on another CPU that this CPU might take.
pub(super) fn others_wait() -> bool {
    let me = cpu::id();
    (0..cpu::count()).any(|other| {
        other != me
            && QUEUE.of(other).is_some_and(|queue| {
                queue.length.load(Ordering::Relaxed) != 0
                    && queue.inner.try_lock().is_none_or(|inner| inner.waiting.has_allowed(me, 0))
            })
    })
}
