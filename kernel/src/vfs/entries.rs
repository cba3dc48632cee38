//! The table of names of a directory that is only in memory.
//!
//! A position in the directory is a *cookie*: each entry gets the next number when it is made, so a
//! position stays valid whatever is added or removed between two reads.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::hash::BuildHasherDefault;

use hashbrown::HashMap;
use hayate_abi::Result;

use super::dentry::Name;
use crate::hash::NameHasher;
use crate::reclaim::growth::Grow;

/// Smaller cookies are `.` and `..`.
const FIRST_COOKIE: u64 = 2;

/// Names, each of a `T`.
pub struct Entries<T> {
    by_name: HashMap<Name, Entry<T>, BuildHasherDefault<NameHasher>>,
    order: BTreeMap<u64, Name>,
    /// The last cookie given.
    last: u64,
}

struct Entry<T> {
    item: T,
    cookie: u64,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Entries { by_name: HashMap::default(), order: BTreeMap::new(), last: 0 }
    }
}

impl<T> Entries<T> {
    /// The number of names.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Makes room for `more` names. `ENOMEM`.
    pub fn make_room(&mut self, more: usize) -> Result<()> {
        self.by_name.make_room(more)
    }

    /// Adds a name. `ENOMEM`.
    pub fn insert(&mut self, name: &[u8], item: T) -> Result<()> {
        self.by_name.make_room(1)?;
        self.last = self.last.max(FIRST_COOKIE - 1) + 1;
        let name = Name::from(name);
        self.order.insert(self.last, Arc::clone(&name));
        self.by_name.insert(name, Entry { item, cookie: self.last });
        Ok(())
    }

    /// Removes a name.
    pub fn remove(&mut self, name: &[u8]) -> Option<T> {
        let entry = self.by_name.remove(name)?;
        self.order.remove(&entry.cookie);
        Some(entry.item)
    }

    /// What has this name.
    pub fn get(&self, name: &[u8]) -> Option<&T> {
        self.by_name.get(name).map(|entry| &entry.item)
    }

    /// What has this name, to be replaced.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        self.by_name.get_mut(name).map(|entry| &mut entry.item)
    }

    /// Removes those that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let order = &mut self.order;
        self.by_name.retain(|_, entry| {
            let stays = keep(&entry.item);
            if !stays {
                order.remove(&entry.cookie);
            }
            stays
        });
    }

    /// One of all, to be replaced.
    pub fn any_mut(&mut self) -> Option<&mut T> {
        self.by_name.values_mut().next().map(|entry| &mut entry.item)
    }

    /// Removes the one that [`any_mut`](Self::any_mut) returns.
    pub fn remove_any(&mut self) -> Option<T> {
        let name = self.by_name.keys().next()?.clone();
        self.remove(&name)
    }

    /// Takes all out.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.by_name.into_values().map(|entry| entry.item)
    }

    /// The entries from a cookie on, each with its cookie, in the order in which they were made.
    pub fn from(&self, position: u64) -> impl Iterator<Item = (u64, &Name, &T)> {
        self.order
            .range(position..)
            .filter_map(|(&cookie, name)| Some((cookie, name, self.get(name)?)))
    }
}
