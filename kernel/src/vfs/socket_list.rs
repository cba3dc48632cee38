//! All sockets of a family, for the lists that programs read (`/proc/net/unix`).
//!
//! A socket is in the list from its making to its end, whether it has a name or not. The list holds
//! no socket alive, and a socket leaves it when it is dropped. One for whose place there was no
//! memory is not listed.
//!
//! Locks: one for each of [`PARTS`] parts, a leaf.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashMap;
use hayate_abi::Result;
use hayate_machine::sync::SpinLock;

use crate::hash::IndexHasher;
use crate::reclaim::growth::Grow;

const PARTS: usize = 64;

type Part<T> = HashMap<usize, Weak<T>, BuildHasherDefault<IndexHasher>>;

/// The sockets of a family, by their addresses in memory.
pub struct SocketList<T> {
    parts: [SpinLock<Part<T>>; PARTS],
}

impl<T> SocketList<T> {
    /// A list without sockets.
    #[allow(clippy::new_without_default, reason = "a static is made of it")]
    pub const fn new() -> Self {
        Self {
            parts: [const { SpinLock::new(HashMap::with_hasher(BuildHasherDefault::new())) };
                PARTS],
        }
    }

    fn part(&self, address: usize) -> &SpinLock<Part<T>> {
        let hash = BuildHasherDefault::<IndexHasher>::default().hash_one(address);
        &self.parts[(hash >> 40) as usize % PARTS]
    }

    /// Adds a socket that was made, if there is memory.
    pub fn add(&self, socket: &Arc<T>) {
        let address = Arc::as_ptr(socket).addr();
        let mut part = self.part(address).lock();
        if part.make_room(1).is_ok() {
            part.insert(address, Arc::downgrade(socket));
        }
    }

    /// Removes a socket that is being dropped.
    pub fn remove(&self, socket: &T) {
        let address = core::ptr::from_ref(socket).addr();
        let old = {
            let mut part = self.part(address).lock();
            let old = part.remove(&address);
            // Programs decide how long a part once was.
            let table = part.is_empty().then(|| core::mem::take(&mut *part));
            (old, table)
        };
        drop(old);
    }

    /// Calls `visit` with each socket; without a lock.
    ///
    /// # Errors
    /// `ENOMEM`, those of `visit`.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<T>) -> Result<()>) -> Result<()> {
        let mut found = Vec::new();
        for part in &self.parts {
            {
                let part = part.lock();
                found.make_room(part.len())?;
                found.extend(part.values().filter_map(Weak::upgrade));
            }
            for socket in found.drain(..) {
                visit(&socket)?;
            }
        }
        Ok(())
    }
}
