//! Growth that can fail, and why allocations that cannot fail do not exhaust memory.
//!
//! Memory whose size a program chooses is allocated with `try_reserve`, or with the functions here:
//! a list that cannot grow gives `ENOMEM`, and the call undoes what it began. A list that must not
//! be abandoned half way (pages to drop, processes that map a file) is walked in parts or in place
//! instead.
//!
//! The other allocations are small and of constant size: `Arc::new`, `Box::new`, a node of a tree,
//! a short text. The heap serves these from the kernel's reserve when programs get no more frames
//! ([`machine::heap`]: up to one frame at a time; the reserve is 1/64 of memory, 1 MiB at least).
//! Three rules keep the reserve from running out. Nothing new begins when memory is scarce
//! ([`crate::memory::pressure::leave_room`]). When half of the reserve is used, a call that made a
//! small object frees kept and cached memory, or its process ends, before it returns to user mode.
//! And a call makes few such objects: code that makes one for each thing that a program can
//! multiply (each page, name, descriptor, process) uses the functions here and stops at the first
//! failure.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

/// Appends `item`. Fails with `ENOMEM`.
#[inline]
pub fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    list.push(item);
    Ok(())
}

/// Appends `bytes`. Fails with `ENOMEM`.
#[inline]
pub fn append(list: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    list.try_reserve(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    list.extend_from_slice(bytes);
    Ok(())
}

/// Returns a copy of `bytes`. Fails with `ENOMEM`.
#[inline]
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    list.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    list.extend_from_slice(bytes);
    Ok(list)
}

/// Returns a list of `items`. Fails with `ENOMEM`.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut list = Vec::new();
    list.try_reserve(items.size_hint().0).map_err(|_| Errno::ENOMEM)?;
    for item in items {
        push(&mut list, item)?;
    }
    Ok(list)
}
