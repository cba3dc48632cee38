//! Growth that can fail, and why what cannot fail does not run out.
//!
//! Memory that a program sizes is asked for with `try_reserve`, or with the functions here: a list
//! that cannot grow is `ENOMEM`, and the call undoes what it began. A list that must not be given
//! up half way (pages to drop, processes that map a file) is walked in parts or in place instead.
//!
//! What remains is small and of a constant size: `Arc::new`, `Box::new`, a node of a tree, a short
//! text. The heap serves these out of the kernel's reserve when programs get no more frames
//! ([`machine::heap`]: up to one frame at a time; the reserve is 1/64 of memory, 1 MiB at least).
//! Three things keep the reserve from running out. Nothing new is begun when memory is scarce
//! ([`crate::memory::pressure::leave_room`]). Once half of the reserve is gone, a call that made a
//! small object gives back what is kept and cached, or its process ends, before it returns to user
//! mode. And a call makes few such objects: what makes one for each thing that a program counts out
//! to it (for each page, name, descriptor, process) asks by the functions here and stops at the
//! first refusal.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

/// Appends `item`. `ENOMEM`.
#[inline]
pub fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    list.push(item);
    Ok(())
}

/// Appends `bytes`. `ENOMEM`.
#[inline]
pub fn append(list: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    list.try_reserve(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    list.extend_from_slice(bytes);
    Ok(())
}

/// A copy of `bytes`. `ENOMEM`.
#[inline]
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    list.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    list.extend_from_slice(bytes);
    Ok(list)
}

/// A list of `items`. `ENOMEM`.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut list = Vec::new();
    list.try_reserve(items.size_hint().0).map_err(|_| Errno::ENOMEM)?;
    for item in items {
        push(&mut list, item)?;
    }
    Ok(list)
}
