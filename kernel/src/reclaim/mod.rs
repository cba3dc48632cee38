//! The answer when frames run out: one procedure for all callers that need frames.
//!
//! First, the deferred free of ended processes is done (`paging::teardown`; the allocator itself
//! does so before it refuses). Then kept resources are dropped, the oldest first
//! ([`register_kept`]). Then caches shrink, in the order of registration ([`Cache`]): pages of
//! files that can be read again and are not mapped, names. Then the objects that the heap caches
//! for this processor are freed, and at last comes back what the host has ([`register_last`]). If
//! all that frees nothing, the caller gets `ENOMEM` or, at a
//! fault, its process is killed. No other process is killed for it, unless the caller is the first
//! process (`process::victim`).
//!
//! Every frame on behalf of a program is requested in one of three ways. A caller that may sleep
//! uses [`obtain`], which frees memory until the request succeeds. A caller with a lock that must
//! not be held across a sleep tries, releases the lock, calls [`relieve`] and tries again; or it
//! makes sure of free frames beforehand with [`make_room`]. So kept or cached memory never makes a
//! call fail or a process end.
//!
//! This module is below all modules that hold memory: caches register here, as pools do.
//!
//! A control group with a limit on its memory is served in the same place: see [`charge`].
//!
//! Locks: [`relieve`] may close files and drop spaces. The caller holds no spin lock. Sleeping
//! locks of files are allowed: kept resources refer to programs that no process executes, and
//! dropping those takes spin locks only.

mod caches;
pub mod charge;
pub mod growth;
pub mod numbered;
#[cfg(debug_assertions)]
pub mod refusal;

use hayate_abi::{Errno, Result};
use machine::frames::{self, Frame};
use machine::heap;
use machine::paging::teardown;
use machine::sync::Once;

pub use caches::{Cache, register};

/// How many pages of a cache, or of kept resources, are freed at a time.
const BATCH: usize = 64;

/// The resources of ended processes, given up before any cache.
static KEPT: Once<&'static dyn Cache> = Once::new();

/// Registers what is kept of ended processes; later calls change nothing.
pub fn register_kept(kept: &'static dyn Cache) {
    KEPT.call_once(|| kept);
}

/// What the host has of the machine's memory, given up after all caches.
static LAST: Once<&'static dyn Cache> = Once::new();

/// Registers what gets memory back from the host; later calls change nothing.
pub fn register_last(last: &'static dyn Cache) {
    LAST.call_once(|| last);
}

/// Frees what is cached and was not used since the last call ([`Cache::age`]). Returns whether
/// something was used, so that a later call may free it. Call it without locks.
pub fn age(is_idle: bool) -> bool {
    let mut may_grow_old = false;
    for cache in caches::all() {
        may_grow_old |= cache.age(is_idle);
    }
    heap::trim();
    may_grow_old
}

/// Frees some memory; returns false if nothing is left to free. If a limit of the caller's control
/// group has refused memory, room is made there ([`charge`]). Call it without spin locks.
#[cold]
pub fn relieve() -> bool {
    #[cfg(debug_assertions)]
    if self::refusal::is_refusing() {
        return false;
    }
    if let Some(room) = charge::limit::answer() {
        return room;
    }
    give_up() || LAST.get().is_some_and(|last| last.shrink(BATCH) > 0)
}

/// Like [`relieve`], without what the host has.
pub fn give_up() -> bool {
    // Counted first: what the search itself takes from the heap and gives back is no progress. It
    // was taken for progress once, and a call for room never ended.
    let before = frames::counts().free;
    if teardown::free_now() {
        return true;
    }
    if KEPT.get().is_some_and(|kept| kept.shrink(BATCH) > 0) {
        return true;
    }
    if caches::all().iter().any(|cache| cache.shrink(BATCH) > 0) {
        return true;
    }
    heap::trim();
    frames::counts().free > before
}

/// Returns the result of `take`. While that is `None`, because frames are exhausted, frees some
/// memory and tries again. Call it without spin locks.
///
/// # Errors `ENOMEM`: nothing is left to free.
#[inline]
pub fn obtain<T>(mut take: impl FnMut() -> Option<T>) -> Result<T> {
    loop {
        if let Some(taken) = take() {
            return Ok(taken);
        }
        if !relieve() {
            return Err(Errno::ENOMEM);
        }
    }
}

/// Frees memory until more is free than programs may take, as far as possible: before a lock is
/// taken under which a few frames may be needed and no second try is possible. Call it without spin
/// locks.
#[inline]
pub fn make_room() {
    while frames::is_scarce() && relieve() {}
}

/// Allocates a frame; its content is undefined. Call it without spin locks.
///
/// # Errors
/// `ENOMEM`.
pub fn frame() -> Result<Frame> {
    obtain(Frame::allocate)
}

/// Allocates a zeroed frame. Call it without spin locks.
///
/// # Errors
/// `ENOMEM`.
pub fn zeroed_frame() -> Result<Frame> {
    obtain(Frame::allocate_zeroed)
}

/// Checks, before a new process, thread or program begins, that the running ones will still find
/// memory.
///
/// # Errors
/// `ENOMEM`.
#[inline]
pub fn leave_room() -> Result<()> {
    while frames::is_scarce() {
        if !relieve() {
            return if frames::is_scarce_in_all() { Err(Errno::ENOMEM) } else { Ok(()) };
        }
    }
    Ok(())
}
