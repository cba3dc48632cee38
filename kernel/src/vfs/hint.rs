//! The expected lifetime of data that is written to a file (`F_SET_RW_HINT`, fcntl(2)).
//!
//! Hints have no effect here, as on Linux unless the device has streams: a hint is kept with the
//! file while that is in memory, and returned on request. A regular file keeps it with its content;
//! other files, which hardly ever have two names, with their dentry.

use hayate_abi::{Errno, Result};

use super::open_file::OpenFile;
use crate::credentials::Credentials;
use crate::page_cache::hint::LifetimeHint;

/// `RWH_WRITE_LIFE_EXTREME`, the last one.
const LAST: u8 = 5;

fn of<T>(file: &OpenFile, use_it: impl FnOnce(&LifetimeHint) -> T) -> T {
    match file.inode().page_cache() {
        Some(page_cache) => use_it(&page_cache.hint),
        None => use_it(&file.location().dentry.hint),
    }
}

/// `F_GET_RW_HINT`
pub fn get(file: &OpenFile) -> u8 {
    of(file, LifetimeHint::get)
}

/// `F_SET_RW_HINT`: `EPERM` if the caller does not own the file (as since Linux 6.9), `EINVAL` for
/// an unknown value.
pub fn set(file: &OpenFile, new: u64, credentials: &Credentials) -> Result<()> {
    if !credentials.owns(file.inode().attributes().uid) {
        return Err(Errno::EPERM);
    }
    let new = u8::try_from(new).ok().filter(|&new| new <= LAST).ok_or(Errno::EINVAL)?;
    of(file, |hint| hint.set(new));
    Ok(())
}
