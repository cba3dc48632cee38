//! What is done when frames run out: one way for all who ask for some.
//!
//! First what ended processes have yet to give back is given back (`paging::teardown`; the
//! allocator itself does so before it refuses). Then what is kept of them goes, the oldest first
//! ([`pools`]). Then what is cached, in the order of registration ([`Cache`]): pages of files that
//! can be read again and that nobody maps, names. Then objects that the heap keeps for this
//! processor. If that frees nothing, the one who asked gets `ENOMEM`, or, at a fault, is killed: no
//! other process pays for it, unless it is the first process that asks (`process::victim`).
//!
//! Every frame that a program causes to be taken is asked for in one of three ways. Who may wait
//! asks with
//! [`obtain`], which relieves until there is one. Who holds a lock that must not be held across a
//! sleep tries, gives the lock up, calls [`relieve`] and tries again; or has some at hand before,
//! by
//! [`make_room`]. So nothing that is kept or cached ever makes a call fail or a process end.
//!
//! This lies below all that holds memory: caches register here, as pools do.
//!
//! Locks: [`relieve`] may close files and drop spaces. The caller holds no spin lock; sleeping
//! locks of files are allowed: what is kept refers to programs that nobody executes, whose end
//! takes spin locks only.

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use machine::frames::{self, Frame};
use machine::heap;
use machine::layout::PAGE_SIZE;
use machine::paging::teardown;
use machine::sync::SpinLock;

use super::pools;

/// How many pages of a cache are given up at a time, and as many bytes of what is kept.
const BATCH: usize = 64;

/// Something that holds memory and can do without it. Called without spin locks.
pub trait Cache: Send + Sync {
    /// Gives up about `most` pages at most. Zero: it has nothing that can go.
    fn shrink(&self, most: usize) -> usize;
}

/// How many caches there may be.
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

/// Frees some memory; false if there is nothing more to be had. Call it without spin locks.
#[cold]
pub fn relieve() -> bool {
    #[cfg(debug_assertions)]
    if super::refusal::is_refusing() {
        return false;
    }
    if teardown::pay_now() {
        return true;
    }
    if pools::relieve(BATCH * PAGE_SIZE) > 0 {
        return true;
    }
    let caches = CACHES.lock().clone();
    if caches.iter().any(|cache| cache.shrink(BATCH) > 0) {
        return true;
    }
    let before = frames::counts().free;
    heap::trim();
    frames::counts().free > before
}

/// What `take` gives, which is `None` where frames lack: then some are freed before it tries again.
/// Call it without spin locks.
///
/// # Errors
/// `ENOMEM`: there is nothing more to be freed.
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

/// Sees to it that there is more than programs may take, as far as something can be freed: before a
/// lock is taken under which a few frames may be needed, and where no second try is possible. Call
/// it without spin locks.
#[inline]
pub fn make_room() {
    while frames::is_scarce() && relieve() {}
}

/// A frame, content undefined. Call it without spin locks.
///
/// # Errors
/// `ENOMEM`.
pub fn frame() -> Result<Frame> {
    obtain(Frame::allocate)
}

/// A frame full of zeroes. Call it without spin locks.
///
/// # Errors
/// `ENOMEM`.
pub fn zeroed_frame() -> Result<Frame> {
    obtain(Frame::allocate_zeroed)
}

/// Asked before something new is begun, a process, a thread, a program: whether those that run will
/// still find memory.
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
