//! The expected lifetime of data that is written to a file (`F_SET_RW_HINT`, fcntl(2)).
//!
//! Hints have no effect here, as on Linux unless the device has streams: a hint is kept with the
//! file while that is in memory, and returned on request. A regular file keeps it with its content;
//! other files, which hardly ever have two names, with their dentry.

use core::sync::atomic::{AtomicU8, Ordering};

use hayate_abi::{Errno, Result};

use super::open_file::OpenFile;
use crate::credentials::Credentials;

/// `RWH_WRITE_LIFE_EXTREME`, the last one.
const LAST: u8 = 5;

/// A hint; 0 means none was given.
#[derive(Default)]
pub struct Hint(AtomicU8);

impl Hint {
    /// Makes an empty hint.
    pub const fn new() -> Hint {
        Hint(AtomicU8::new(0))
    }
}

fn of<T>(file: &OpenFile, use_it: impl FnOnce(&AtomicU8) -> T) -> T {
    match file.inode().page_cache() {
        Some(page_cache) => use_it(&page_cache.hint.0),
        None => use_it(&file.location().dentry.hint.0),
    }
}

/// `F_GET_RW_HINT`
pub fn get(file: &OpenFile) -> u8 {
    of(file, |hint| hint.load(Ordering::Relaxed))
}

/// `F_SET_RW_HINT`: `EPERM` if the caller does not own the file (as since Linux 6.9), `EINVAL` for
/// an unknown value.
pub fn set(file: &OpenFile, new: u64, credentials: &Credentials) -> Result<()> {
    if !credentials.owns(file.inode().attributes().uid) {
        return Err(Errno::EPERM);
    }
    let new = u8::try_from(new).ok().filter(|&new| new <= LAST).ok_or(Errno::EINVAL)?;
    of(file, |hint| hint.store(new, Ordering::Relaxed));
    Ok(())
}
