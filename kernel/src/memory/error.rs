//! The errors of operations that need memory for the map or the page table, and what is done about
//! them.
//!
//! The map of a space grows under the space's lock, where no memory can be given back. So an
//! operation is an attempt: it takes the lock, makes sure of all the memory that it needs, and only
//! then changes anything. If memory lacks, it ends as [`Failure::NoMemory`]; without the lock,
//! [`relieved`] has kept and cached memory given back and attempts it again. The caller gets
//! `ENOMEM` only when nothing more can be freed. A limit that is reached is an [`Errno`] at once,
//! although it may be `ENOMEM` too: memory that is given back does not change it.

use hayate_abi::{Errno, Result};
use hayate_space_map::NoMemory;
use machine::paging::OutOfMemory;

use crate::reclaim;

/// Memory for the map or the page table is exhausted.
pub struct NoMemoryError;

impl From<NoMemoryError> for Errno {
    fn from(_: NoMemoryError) -> Errno {
        Errno::ENOMEM
    }
}

impl From<NoMemory> for NoMemoryError {
    fn from(_: NoMemory) -> Self {
        NoMemoryError
    }
}

impl From<OutOfMemory> for NoMemoryError {
    fn from(_: OutOfMemory) -> Self {
        NoMemoryError
    }
}

/// Why an attempt failed.
pub enum Failure {
    /// Memory for the map or the page table is exhausted. Nothing has changed.
    NoMemory,
    /// Another reason.
    Errno(Errno),
}

impl<E: Into<NoMemoryError>> From<E> for Failure {
    fn from(_: E) -> Failure {
        Failure::NoMemory
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::Errno(error)
    }
}

/// Calls `attempt`; while that lacks memory, kept and cached memory is given back before it is
/// called again. Call it without spin locks.
///
/// # Errors
/// Those of `attempt`; `ENOMEM`: there is nothing more to be given back.
#[inline]
pub fn relieved<T>(mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T> {
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(Failure::Errno(error)) => return Err(error),
            Err(Failure::NoMemory) if reclaim::relieve() => {}
            Err(Failure::NoMemory) => return Err(Errno::ENOMEM),
        }
    }
}
