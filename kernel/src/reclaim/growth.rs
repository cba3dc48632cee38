//! Growth that can fail, and why allocations that cannot fail do not exhaust memory.
//!
//! Memory whose size a program chooses is allocated with [`Grow`], or with the functions here:
//! a list that cannot grow gives `ENOMEM`, and the call undoes what it began. A list that must not
//! be abandoned half way (pages to drop, processes that map a file) is walked in parts or in place
//! instead.
//!
//! The other allocations are small and of constant size: `Arc::new`, `Box::new`, a node of a tree,
//! a short text. The heap serves these from the kernel's reserve when programs get no more frames
//! ([`machine::heap`]: up to one frame at a time; the reserve is 1/64 of memory, 1 MiB at least).
//! Three rules keep the reserve from running out. Nothing new begins when memory is scarce
//! ([`crate::reclaim::leave_room`]). When half of the reserve is used, a call that made a small
//! object frees kept and cached memory, or its process ends, before it returns to user mode. Of
//! users without privilege, this happens 8 MiB (1/16 of a small memory) earlier: that part is kept
//! for administrators ([`machine::frames::keep_for_administrators`]).
//! And a call makes few such objects: code that makes one for each thing that a program can
//! multiply (each page, name, descriptor, process) uses the functions here and stops at the first
//! failure.
//!
//! A list that may need more than the reserve gives (16 frames at once), and that grows where no
//! spin lock is held, uses [`relieved`]: kept and cached memory is freed before it is refused.
//!
//! In a kernel for tests the judge of refused memory is asked here as well
//! ([`crate::reclaim::refusal`]): the heap cannot tell a small request that may fail from one that
//! may not.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};

use hashbrown::{HashMap, HashSet};
use hayate_abi::{Errno, Result};
use smallvec::{Array, SmallVec};

use crate::reclaim;

/// A list that grows by a request that can fail. Any lock may be held.
pub trait Grow {
    /// Room for `more` items, and some to come. `ENOMEM`.
    fn make_room(&mut self, more: usize) -> Result<()>;
    /// Room for `more` items and no others, where the kind of list can do so. `ENOMEM`.
    #[inline]
    fn make_room_exact(&mut self, more: usize) -> Result<()> {
        self.make_room(more)
    }
}

/// Whether a request that needs memory is refused on purpose; those of a kernel that is built for
/// use are not.
#[inline]
pub fn is_refused() -> bool {
    #[cfg(debug_assertions)]
    return crate::reclaim::refusal::is_refused();
    #[cfg(not(debug_assertions))]
    false
}

/// Asks whether a list with so much room may grow. `ENOMEM`.
#[inline]
fn ask(capacity: usize, length: usize, more: usize) -> Result<()> {
    if cfg!(debug_assertions) && capacity - length < more && is_refused() {
        return Err(Errno::ENOMEM);
    }
    Ok(())
}

impl<T> Grow for Vec<T> {
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }

    #[inline]
    fn make_room_exact(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)
    }
}

impl<T> Grow for VecDeque<T> {
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }
}

impl<A: Array> Grow for SmallVec<A> {
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }

    #[inline]
    fn make_room_exact(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)
    }
}

impl Grow for String {
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Grow for HashMap<K, V, S> {
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }
}

impl<T: Eq + Hash, S: BuildHasher> Grow for HashSet<T, S> {
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<()> {
        ask(self.capacity(), self.len(), more)?;
        self.try_reserve(more).map_err(|_| Errno::ENOMEM)
    }
}

/// Calls `grow`; while that is refused, memory is given back before it is called again
/// ([`crate::reclaim`]). Call it without spin locks.
///
/// # Errors
/// `ENOMEM`: there is nothing more to be given back.
#[inline]
pub fn relieved<T>(mut grow: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match grow() {
            Err(Errno::ENOMEM) if reclaim::relieve() => {}
            outcome => return outcome,
        }
    }
}

/// Appends `item`. Fails with `ENOMEM`.
#[inline]
pub fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.make_room(1)?;
    list.push(item);
    Ok(())
}

/// Appends `bytes`. Fails with `ENOMEM`.
#[inline]
pub fn append(list: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    list.make_room(bytes.len())?;
    list.extend_from_slice(bytes);
    Ok(())
}

/// Returns a copy of `bytes`. Fails with `ENOMEM`.
#[inline]
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    list.make_room_exact(bytes.len())?;
    list.extend_from_slice(bytes);
    Ok(list)
}

/// Returns `bytes` as text; bytes that are no UTF-8 are replaced as `String::from_utf8_lossy` does.
/// Fails with `ENOMEM`.
pub fn text(bytes: &[u8]) -> Result<String> {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let bad = !chunk.invalid().is_empty();
        text.make_room(
            chunk.valid().len() + if bad { char::REPLACEMENT_CHARACTER.len_utf8() } else { 0 },
        )?;
        text.push_str(chunk.valid());
        if bad {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    Ok(text)
}

/// Returns a list of `items`. Fails with `ENOMEM`.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut list = Vec::new();
    list.make_room(items.size_hint().0)?;
    for item in items {
        push(&mut list, item)?;
    }
    Ok(list)
}
