//! The kept resources, by key and by age.
//!
//! Entries lie in one vector and are in three chains of indexes: by age, by fingerprint, and the
//! empty places. Only the chain of one fingerprint is ever searched, and only adding an entry needs
//! memory.
//!
//! Invariants: every occupied place is in the chain of age and in that of its fingerprint; `len`
//! and `bytes` count the occupied places.

use alloc::vec::Vec;

use crate::Fingerprint;

const NONE: u32 = u32::MAX;
const BUCKETS: usize = 64;

/// A value in the pool, or taken out of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored<K, V> {
    /// Its key.
    pub key: K,
    /// The value.
    pub value: V,
    /// The memory that it takes, in bytes, as the caller of `store` said.
    pub bytes: usize,
}

/// The value cannot be stored, and is returned.
#[derive(Debug)]
pub struct Refused<V>(pub V);

struct Slot<K, V> {
    stored: Option<Stored<K, V>>,
    older: u32,
    newer: u32,
    /// The next with the same fingerprint, older ones later; in an empty place, the next empty
    /// place.
    next: u32,
}

/// Stored values under keys; several may have the same key.
pub struct Pool<K, V> {
    entries: Vec<Slot<K, V>>,
    empty: u32,
    buckets: [u32; BUCKETS],
    oldest: u32,
    newest: u32,
    len: usize,
    bytes: usize,
    limit: usize,
}

impl<K: Fingerprint + PartialEq, V> Pool<K, V> {
    /// Returns an empty pool that should hold no more than `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Pool {
            entries: Vec::new(),
            empty: NONE,
            buckets: [NONE; BUCKETS],
            oldest: NONE,
            newest: NONE,
            len: 0,
            bytes: 0,
            limit,
        }
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory of the values in bytes, as said when they were stored.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit; [`excess`](Self::excess) then returns the values above it.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    fn bucket(key: &K) -> usize {
        (key.fingerprint() >> 58) as usize % BUCKETS
    }

    /// Stores a value, which is then the newest. [`excess`](Self::excess) returns the values that
    /// are above the limit now.
    ///
    /// # Errors
    /// [`Refused`] if the value alone exceeds the limit or memory for its place is exhausted.
    pub fn store(&mut self, key: K, value: V, bytes: usize) -> Result<(), Refused<V>> {
        if bytes > self.limit {
            return Err(Refused(value));
        }
        if self.empty == NONE {
            if self.entries.len() >= NONE as usize || self.entries.try_reserve(1).is_err() {
                return Err(Refused(value));
            }
            self.entries.push(Slot { stored: None, older: NONE, newer: NONE, next: NONE });
            self.empty = (self.entries.len() - 1) as u32;
        }
        let at = self.empty;
        let bucket = Self::bucket(&key);
        let (older, next) = (self.newest, self.buckets[bucket]);
        let Some(entry) = self.entries.get_mut(at as usize) else { return Err(Refused(value)) };
        self.empty = entry.next;
        *entry = Slot { stored: Some(Stored { key, value, bytes }), older, newer: NONE, next };
        match self.entries.get_mut(older as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        self.buckets[bucket] = at;
        self.len += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes the newest value with this key.
    pub fn take(&mut self, key: &K) -> Option<Stored<K, V>> {
        self.take_if(key, |_| true)
    }

    /// Takes the newest value with this key that `fits`.
    pub fn take_if(&mut self, key: &K, mut fits: impl FnMut(&V) -> bool) -> Option<Stored<K, V>> {
        let mut at = self.buckets[Self::bucket(key)];
        loop {
            let entry = self.entries.get(at as usize)?;
            let stored = entry.stored.as_ref()?;
            if stored.key == *key && fits(&stored.value) {
                return self.remove(at);
            }
            at = entry.next;
        }
    }

    /// Returns the newest value with this key, which stays at its age.
    pub fn get(&self, key: &K) -> Option<&V> {
        let mut at = self.buckets[Self::bucket(key)];
        loop {
            let entry = self.entries.get(at as usize)?;
            let stored = entry.stored.as_ref()?;
            if stored.key == *key {
                return Some(&stored.value);
            }
            at = entry.next;
        }
    }

    /// Takes the oldest value if the pool holds more than its limit. Call it until it returns
    /// `None`.
    pub fn excess(&mut self) -> Option<Stored<K, V>> {
        if self.bytes > self.limit { self.take_oldest() } else { None }
    }

    /// Takes the oldest value.
    pub fn take_oldest(&mut self) -> Option<Stored<K, V>> {
        self.remove(self.oldest)
    }

    /// Takes the oldest value for which `wanted` holds.
    pub fn take_where(&mut self, mut wanted: impl FnMut(&K, &V) -> bool) -> Option<Stored<K, V>> {
        let mut at = self.oldest;
        loop {
            let entry = self.entries.get(at as usize)?;
            let stored = entry.stored.as_ref()?;
            if wanted(&stored.key, &stored.value) {
                return self.remove(at);
            }
            at = entry.newer;
        }
    }

    /// Everything, from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = &Stored<K, V>> {
        let mut at = self.oldest;
        core::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.newer;
            entry.stored.as_ref()
        })
    }

    fn remove(&mut self, at: u32) -> Option<Stored<K, V>> {
        let entry = self.entries.get_mut(at as usize)?;
        let stored = entry.stored.take()?;
        let (older, newer, next) = (entry.older, entry.newer, entry.next);
        entry.next = self.empty;
        self.empty = at;
        match self.entries.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
        let bucket = Self::bucket(&stored.key);
        let mut before = self.buckets[bucket];
        if before == at {
            self.buckets[bucket] = next;
        } else {
            while let Some(entry) = self.entries.get_mut(before as usize) {
                if entry.next == at {
                    entry.next = next;
                    break;
                }
                before = entry.next;
            }
        }
        self.len -= 1;
        self.bytes -= stored.bytes;
        Some(stored)
    }
}
