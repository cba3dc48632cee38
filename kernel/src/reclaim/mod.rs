//! The answer when frames run out: one procedure for all callers that need frames.
//!
//! First, the deferred free of ended processes is done (`paging::teardown`; the allocator itself
//! does so before it refuses). Then kept resources are dropped, the oldest first
//! ([`register_kept`]). Then caches shrink, in the order of registration ([`Cache`]): pages of
//! files that can be read again and are not mapped, names. Then the objects that the heap caches
//! for this processor are freed. If all that frees nothing, the caller gets `ENOMEM` or, at a
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
//! Locks: [`relieve`] may close files and drop spaces. The caller holds no spin lock. Sleeping
//! locks of files are allowed: kept resources refer to programs that no process executes, and
//! dropping those takes spin locks only.

pub mod growth;
#[cfg(debug_assertions)]
pub mod refusal;

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use machine::frames::{self, Frame};
use machine::heap;
use machine::paging::teardown;
use machine::sync::{Once, SpinLock};

/// How many pages of a cache, or of kept resources, are freed at a time.
const BATCH: usize = 64;

/// A cache that can free memory. Called without spin locks.
pub trait Cache: Send + Sync {
    /// Frees at most about `most` pages. Zero: there is nothing to free.
    fn shrink(&self, most: usize) -> usize;
}

/// The most caches.
const MOST: usize = 4;

static CACHES: SpinLock<ArrayVec<&'static dyn Cache, MOST>> = SpinLock::new(ArrayVec::new_const());

/// Adds a cache; at boot, once each.
///
/// # Panics
/// If there are more caches than the list has places: a mistake in the kernel.
pub fn register(cache: &'static dyn Cache) {
    if CACHES.lock().try_push(cache).is_err() {
        panic!("more caches than the list of them has places");
    }
}

/// The resources of ended processes, given up before any cache.
static KEPT: Once<&'static dyn Cache> = Once::new();

/// Registers what is kept of ended processes; later calls change nothing.
pub fn register_kept(kept: &'static dyn Cache) {
    KEPT.call_once(|| kept);
}

/// Frees some memory; returns false if nothing is left to free. Call it without spin locks.
#[cold]
pub fn relieve() -> bool {
    #[cfg(debug_assertions)]
    if self::refusal::is_refusing() {
        return false;
    }
    // Counted first: what the search itself takes from the heap and gives back is no progress. It
    // was taken for progress once, and a call for room never ended.
    let before = frames::counts().free;
    if teardown::free_now() {
        return true;
    }
    if KEPT.get().is_some_and(|kept| kept.shrink(BATCH) > 0) {
        return true;
    }
    let caches = CACHES.lock().clone();
    if caches.iter().any(|cache| cache.shrink(BATCH) > 0) {
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
            return Err(Errno::ENOMEM);
        }
    }
    Ok(())
}
