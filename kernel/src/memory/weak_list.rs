//! A list of all objects of a type, by weak references.
//!
//! The list has one part for each processor, each under its own spin lock, so that processors do
//! not contend when they make and drop objects. An object reserves its entry before it is made,
//! because only that can fail, and frees the entry when it is dropped.
//!
//! Lock order: a part's lock is a leaf, except for the heap's that growing takes.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::Result;
use machine::cpu::{self, MAX_CPUS};
use machine::sync::SpinLock;

use crate::reclaim::growth::Grow;

/// One processor's part of a list.
struct ListPart<T> {
    objects: Vec<Option<Weak<T>>>,
    /// The free entries. The capacity is that of `objects`, so freeing an entry needs no memory.
    empty: Vec<u32>,
}

/// The list.
pub(super) struct WeakList<T>([SpinLock<ListPart<T>>; MAX_CPUS]);

/// An object's entry on a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListPlace {
    part: u16,
    index: u32,
}

impl<T> WeakList<T> {
    /// An empty list.
    pub(super) const fn new() -> Self {
        WeakList(
            [const { SpinLock::new(ListPart { objects: Vec::new(), empty: Vec::new() }) };
                MAX_CPUS],
        )
    }

    /// Reserves an entry on this processor's part for an object that is about to be made.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn reserve(&self) -> Result<ListPlace> {
        let number = cpu::id();
        let part = &mut *self.0[number].lock();
        let index = match part.empty.pop() {
            Some(index) => index,
            None => {
                let needed = part.objects.len() + 1;
                part.objects.make_room(1)?;
                part.empty.make_room(needed)?;
                part.objects.push(None);
                part.objects.len() as u32 - 1
            }
        };
        Ok(ListPlace { part: number as u16, index })
    }

    /// Puts an object into its entry.
    pub(super) fn enter(&self, place: ListPlace, object: &Arc<T>) {
        let mut part = self.0[place.part as usize].lock();
        if let Some(slot) = part.objects.get_mut(place.index as usize) {
            *slot = Some(Arc::downgrade(object));
        }
    }

    /// Frees an entry.
    pub(super) fn leave(&self, place: ListPlace) {
        let part = &mut *self.0[place.part as usize].lock();
        if let Some(slot) = part.objects.get_mut(place.index as usize) {
            *slot = None;
            part.empty.push(place.index);
        }
    }

    /// Calls `visit` with every object. Objects made meanwhile may be missed; no lock is held
    /// during a call.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&Arc<T>)) {
        for part in &self.0 {
            let mut index = 0;
            loop {
                let object = {
                    let part = part.lock();
                    match part.objects.get(index) {
                        None => break,
                        Some(slot) => slot.as_ref().and_then(Weak::upgrade),
                    }
                };
                if let Some(object) = object {
                    visit(&object);
                }
                index += 1;
            }
        }
    }
}
