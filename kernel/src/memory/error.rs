//! The error of operations that need memory for the map or the page table.

use hayate_abi::Errno;
use hayate_space_map::NoMemory;
use machine::paging::OutOfMemory;

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
