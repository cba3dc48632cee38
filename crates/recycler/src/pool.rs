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

/// A kept value that was taken out.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept<K, V> {
    /// Its key.
    pub key: K,
    /// The value.
    pub value: V,
    /// The memory that it takes, in bytes, as the caller of `keep` said.
    pub bytes: usize,
}

/// The value cannot be kept, and is returned.
#[derive(Debug)]
pub struct NoRoom<V>(pub V);

struct Entry<K, V> {
    kept: Option<Kept<K, V>>,
    older: u32,
    newer: u32,
    /// The next with the same fingerprint, older ones later; in an empty place, the next empty
    /// place.
    next: u32,
}

/// Kept values under keys; several may have the same key.
pub struct Pool<K, V> {
    entries: Vec<Entry<K, V>>,
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

    /// Returns the memory of the values in bytes, as said when they were kept.
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

    /// Keeps a value, which is then the newest. [`excess`](Self::excess) returns the values that
    /// are above the limit now.
    ///
    /// # Errors
    /// [`NoRoom`] if the value alone exceeds the limit or memory for its place is exhausted.
    pub fn keep(&mut self, key: K, value: V, bytes: usize) -> Result<(), NoRoom<V>> {
        if bytes > self.limit {
            return Err(NoRoom(value));
        }
        if self.empty == NONE {
            if self.entries.len() >= NONE as usize || self.entries.try_reserve(1).is_err() {
                return Err(NoRoom(value));
            }
            self.entries.push(Entry { kept: None, older: NONE, newer: NONE, next: NONE });
            self.empty = (self.entries.len() - 1) as u32;
        }
        let at = self.empty;
        let bucket = Self::bucket(&key);
        let (older, next) = (self.newest, self.buckets[bucket]);
        let Some(entry) = self.entries.get_mut(at as usize) else { return Err(NoRoom(value)) };
        self.empty = entry.next;
        *entry = Entry { kept: Some(Kept { key, value, bytes }), older, newer: NONE, next };
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
    pub fn take(&mut self, key: &K) -> Option<Kept<K, V>> {
        self.take_if(key, |_| true)
    }

    /// Takes the newest value with this key that `fits`.
    pub fn take_if(&mut self, key: &K, mut fits: impl FnMut(&V) -> bool) -> Option<Kept<K, V>> {
        let mut at = self.buckets[Self::bucket(key)];
        loop {
            let entry = self.entries.get(at as usize)?;
            let kept = entry.kept.as_ref()?;
            if kept.key == *key && fits(&kept.value) {
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
            let kept = entry.kept.as_ref()?;
            if kept.key == *key {
                return Some(&kept.value);
            }
            at = entry.next;
        }
    }

    /// Takes the oldest value if the pool holds more than its limit. Call it until it returns
    /// `None`.
    pub fn excess(&mut self) -> Option<Kept<K, V>> {
        if self.bytes > self.limit { self.take_oldest() } else { None }
    }

    /// Takes the oldest value.
    pub fn take_oldest(&mut self) -> Option<Kept<K, V>> {
        self.remove(self.oldest)
    }

    /// Takes the oldest value for which `wanted` holds.
    pub fn take_where(&mut self, mut wanted: impl FnMut(&K, &V) -> bool) -> Option<Kept<K, V>> {
        let mut at = self.oldest;
        loop {
            let entry = self.entries.get(at as usize)?;
            let kept = entry.kept.as_ref()?;
            if wanted(&kept.key, &kept.value) {
                return self.remove(at);
            }
            at = entry.newer;
        }
    }

    /// Everything, from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = &Kept<K, V>> {
        let mut at = self.oldest;
        core::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.newer;
            entry.kept.as_ref()
        })
    }

    fn remove(&mut self, at: u32) -> Option<Kept<K, V>> {
        let entry = self.entries.get_mut(at as usize)?;
        let kept = entry.kept.take()?;
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
        let bucket = Self::bucket(&kept.key);
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
        self.bytes -= kept.bytes;
        Some(kept)
    }
}
