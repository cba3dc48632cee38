//! Objects by identifier and by key.
//!
//! An identifier is an index in a table with a sequence number above it, so that an identifier of
//! an object that is gone is not that of its successor in the same place. Indices go up and begin
//! again at 0 behind the 64th, or behind half as many more as there are objects; the sequence
//! number counts how often they began again (`ipc_idr_alloc`, ipc/util.c of Linux 6.1).
//!
//! Invariants: the last place of the table is in use; each object with a key other than 0
//! (`IPC_PRIVATE`) has one entry in the list of keys, which is sorted.
//!
//! Road not taken: a hash table of keys. A search in a sorted list of at most 32,768 keys takes
//! fifteen steps, and such lists are short.

use alloc::vec::Vec;

use crate::NoMemory;

/// The bits of an identifier that are the index.
const INDEX_BITS: u32 = 15;
/// The most objects of a kind.
pub const MOST: usize = 1 << INDEX_BITS;
/// Sequence numbers are below this one (`ipcid_seq_max`).
const SEQUENCES: u32 = (i32::MAX >> INDEX_BITS) as u32;
/// So many indices are given out before the first is again (`ipc_min_cycle`).
const SHORTEST_CYCLE: usize = 64;

/// The key of objects that are not found by a key.
pub const PRIVATE: i32 = 0;

/// The limit of objects is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug)]
struct Place<T> {
    id: i32,
    key: i32,
    value: T,
}

/// A table of objects. See the [module](self).
#[derive(Debug)]
pub struct IdTable<T> {
    places: Vec<Option<Place<T>>>,
    /// Keys with the indices of their objects, sorted.
    keys: Vec<(i32, u16)>,
    used: usize,
    /// Where the search for a free index begins.
    next: usize,
    /// The index that was given out last.
    last: Option<usize>,
    sequence: u32,
    /// The identifier that the next object is to get (`/proc/sys/kernel/*_next_id`).
    wanted: Option<u32>,
}

impl<T> Default for IdTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn index_of(id: i32) -> Option<usize> {
    usize::try_from(id).ok().map(|id| id & (MOST - 1))
}

impl<T> IdTable<T> {
    /// An empty table.
    pub const fn new() -> Self {
        IdTable {
            places: Vec::new(),
            keys: Vec::new(),
            used: 0,
            next: 0,
            last: None,
            sequence: 0,
            wanted: None,
        }
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The largest index in use.
    pub fn highest(&self) -> Option<usize> {
        self.places.len().checked_sub(1)
    }

    /// The object with an identifier.
    pub fn get(&self, id: i32) -> Option<&T> {
        let place = self.places.get(index_of(id)?)?.as_ref()?;
        (place.id == id).then_some(&place.value)
    }

    /// The object at the index of an identifier, whatever its sequence number (`SHM_STAT` and its
    /// like take indices).
    pub fn at(&self, id: i32) -> Option<&T> {
        self.places.get(index_of(id)?)?.as_ref().map(|place| &place.value)
    }

    /// The object with a key.
    pub fn find(&self, key: i32) -> Option<&T> {
        if key == PRIVATE {
            return None;
        }
        let found = self.keys.binary_search_by_key(&key, |entry| entry.0).ok()?;
        let index = usize::from(self.keys.get(found)?.1);
        self.places.get(index)?.as_ref().map(|place| &place.value)
    }

    /// All objects, by index.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().map(|place| &place.value)
    }

    /// The identifier that the next object is to get; `None`: the usual one.
    pub fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// Sets [`wanted`](Self::wanted).
    pub fn set_wanted(&mut self, id: Option<u32>) {
        self.wanted = id;
    }

    /// Makes room for one more object.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(&mut self) -> Result<(), NoMemory> {
        // The table may have to become longer than it has objects: up to the next index.
        let length = (self.used * 3 / 2).clamp(SHORTEST_CYCLE, MOST);
        let length = match self.wanted {
            Some(id) => length.max((id as usize & (MOST - 1)) + self.used + 1).min(MOST),
            None => length,
        };
        let more = (length + 1).saturating_sub(self.places.len());
        self.places.try_reserve(more).map_err(|_| NoMemory)?;
        self.keys.try_reserve(1).map_err(|_| NoMemory)
    }

    /// Adds an object that `make` makes of its identifier, for which [`reserve`](Self::reserve)
    /// made room. No object may have the key.
    ///
    /// # Errors
    /// [`Full`]: there are `limit` objects.
    pub fn insert<R>(
        &mut self,
        key: i32,
        limit: usize,
        make: impl FnOnce(i32) -> (T, R),
    ) -> Result<R, Full> {
        if self.used >= limit.min(MOST) {
            return Err(Full);
        }
        let (index, sequence) = self.draw().ok_or(Full)?;
        let id = (sequence << INDEX_BITS | index as u32) as i32;
        let (value, result) = make(id);
        while self.places.len() <= index {
            self.places.push(None);
        }
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(Place { id, key, value });
        }
        self.used += 1;
        if key != PRIVATE {
            let at = self.keys.partition_point(|entry| entry.0 < key);
            self.keys.insert(at, (key, index as u16));
        }
        Ok(result)
    }

    /// The index and the sequence number of the next object.
    fn draw(&mut self) -> Option<(usize, u32)> {
        if let Some(id) = self.wanted.take() {
            let sequence = id >> INDEX_BITS & 0xffff;
            return Some((self.free_from(id as usize & (MOST - 1), MOST)?, sequence));
        }
        let end = (self.used * 3 / 2).clamp(SHORTEST_CYCLE, MOST);
        let index = self.free_from(self.next, end).or_else(|| self.free_from(0, end))?;
        self.next = index + 1;
        if self.last.is_some_and(|last| index <= last) {
            self.sequence = if self.sequence + 1 >= SEQUENCES { 0 } else { self.sequence + 1 };
        }
        self.last = Some(index);
        Some((index, self.sequence))
    }

    fn free_from(&self, start: usize, end: usize) -> Option<usize> {
        (start..end).find(|&index| self.places.get(index).is_none_or(Option::is_none))
    }

    /// Takes an object out.
    pub fn remove(&mut self, id: i32) -> Option<T> {
        self.get(id)?;
        self.forget_key(id);
        let place = self.places.get_mut(index_of(id)?)?.take()?;
        self.used -= 1;
        while let Some(None) = self.places.last() {
            self.places.pop();
        }
        Some(place.value)
    }

    /// Makes an object private: its key no longer finds it, and another may have the key.
    pub fn forget_key(&mut self, id: i32) {
        let Some(place) = index_of(id).and_then(|index| self.places.get_mut(index)) else { return };
        let Some(place) = place.as_mut().filter(|place| place.id == id) else { return };
        let key = core::mem::replace(&mut place.key, PRIVATE);
        if key != PRIVATE
            && let Ok(at) = self.keys.binary_search_by_key(&key, |entry| entry.0)
        {
            self.keys.remove(at);
        }
    }
}
