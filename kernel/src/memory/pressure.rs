//! What is done when frames run out.
//!
//! First what ended processes have yet to give back is given back (`paging::teardown`; the allocator
//! itself does so before it refuses). Then what is kept of them goes, the oldest first
//! ([`crate::resource::pools`]). Then what is cached: pages of plates that can be read again and that
//! nobody maps, then objects that the heap keeps for this processor. If that frees nothing, the one who
//! asked gets `ENOMEM`, or, at a fault, is killed: no other process pays for it, unless it is the first
//! process that asks (`process::victim`).

use hayate_abi::{Errno, Result};
use machine::paging::teardown;
use machine::{frames, heap};

use super::PAGE;
use crate::file::reclaim;
use crate::resource::pools;
use crate::schedule;

/// How many pages of plates are given up at a time, and as many bytes of what is kept.
const BATCH: usize = 64;

/// Frees some memory; false if there is nothing more to be had. Call it without locks.
pub fn relieve() -> bool {
    #[cfg(debug_assertions)]
    if crate::resource::refusal::is_refusing() {
        return false;
    }
    if teardown::pay_now() {
        return true;
    }
    if pools::relieve(BATCH * PAGE) > 0 {
        return true;
    }
    let free = || frames::counts().free;
    let before = free();
    if reclaim::pages(BATCH) > 0 {
        return true;
    }
    heap::trim();
    free() > before
}

/// Gives back all that ended processes have yet to give back. Others run meanwhile: call it without spin
/// locks.
pub fn settle() {
    teardown::settle(|| {
        schedule::breathe();
    });
}

/// How the frames of memory are used when ended processes owe nothing any more. As [`settle`].
pub fn settled_counts() -> frames::Counts {
    settle();
    frames::counts()
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
