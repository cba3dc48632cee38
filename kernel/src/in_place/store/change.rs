//! Changes of the stores, on request of a privileged program.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_nvm_store::{Identity, PAGE, Region, Store};
use hayate_off2f::Digest;

use super::bank::{Bank, banks, errno};
use super::memory::Memory;
use crate::reclaim::growth::Grow;

/// Runs `change` on each store until one returns something else than the error `next`.
fn first_of<T>(
    next: Errno,
    mut change: impl FnMut(&'static Bank, &mut Store<Memory>) -> Result<T>,
) -> Result<T> {
    let mut last = Errno::ENOMEDIUM;
    for bank in banks() {
        if let Some(store) = bank.store.lock().as_mut() {
            match change(bank, store) {
                Err(error) if error == next => last = error,
                done => return done,
            }
        }
    }
    Err(last)
}

/// Stores `pages` pages as a text, which `read` provides by their index; returns its identity. A
/// text that is already there is not stored again. `phase`: the page of a large page at which it
/// has to begin, or `hayate_nvm_store::Text::ANYWHERE`.
///
/// * `EINVAL`: there are no pages.
/// * `ENOSPC`: no store has room.
/// * `ENOMEDIUM`: there is no store.
pub fn put(
    pages: u32,
    phase: u32,
    name: &[u8],
    mut read: impl FnMut(u64, &mut [u8; PAGE as usize]) -> Result<()>,
) -> Result<Identity> {
    if pages == 0 {
        return Err(Errno::EINVAL);
    }
    first_of(Errno::ENOSPC, |_, store| {
        let grant = store.reserve(pages, phase).map_err(errno)?;
        let mut digest = Digest::new();
        // Not on the stack, which the digest needs.
        let mut bytes = Vec::new();
        bytes.make_room_exact(PAGE as usize)?;
        bytes.resize(PAGE as usize, 0);
        let (page, _) = bytes.as_chunks_mut::<{ PAGE as usize }>();
        let [page] = page else { return Err(Errno::ENOMEM) };
        for index in 0..u64::from(pages) {
            read(index, page)?;
            let at = (grant.first + index) * PAGE;
            store.region_mut().write(at, page).map_err(errno)?;
            digest.update(page);
        }
        let identity = digest.finish();
        match store.publish(grant, identity, name).map_err(errno) {
            Ok(_) | Err(Errno::EEXIST) => Ok(identity),
            Err(error) => Err(error),
        }
    })
}

/// Removes a text. `ENOENT`: there is none; `EBUSY`: it is in use.
pub fn remove(identity: &Identity) -> Result<()> {
    first_of(Errno::ENOENT, |bank, store| {
        if bank.users(identity) != 0 {
            return Err(Errno::EBUSY);
        }
        store.remove(identity).map_err(errno)
    })
}

/// Reads a text and compares it with its identity. `ENOENT`; `EBADMSG`: it does not match.
pub fn verify(identity: &Identity) -> Result<()> {
    first_of(Errno::ENOENT, |_, store| {
        let text = *store.find(identity).ok_or(Errno::ENOENT)?;
        store.verify(&text).map_err(errno)
    })
}

/// Joins free space by moving texts that are not in use; returns how many were moved.
pub fn compact() -> Result<usize> {
    let mut moved = 0;
    for bank in banks() {
        if let Some(store) = bank.store.lock().as_mut() {
            moved += store.compact(|text| bank.users(&text.identity) == 0).map_err(errno)?;
        }
    }
    Ok(moved)
}

/// Makes a store on each area that has none.
pub fn format() -> Result<()> {
    if banks().is_empty() {
        return Err(Errno::ENOMEDIUM);
    }
    for bank in banks() {
        let mut store = bank.store.lock();
        if store.is_none() {
            *store = Some(Bank::format(bank.memory).ok_or(Errno::EIO)?);
        }
    }
    Ok(())
}
