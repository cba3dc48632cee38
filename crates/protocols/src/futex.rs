//! Futexes: the waiters of each word (`futex(7)`).
//!
//! A waiter stands in a bucket that its key selects. It enters the bucket *before* it reads the
//! word ([`enter`](Table::enter)), and a waker changes the word before it searches the bucket. Both
//! take the bucket's lock, so at least one of the two sees the other, and no user memory is
//! accessed under the lock.
//!
//! A waiter leaves its bucket in one of two ways. Either a waker takes it out and marks it, under
//! the lock. Or it takes itself out ([`leave`](Table::leave)), because the word had changed, a
//! signal came or the time passed. `leave` returns which of the two happened, so a wake is never
//! lost: a waiter that was marked counts as woken, whatever else ended its sleep.
//!
//! A waiter may wait for several words at once (`futex_waitv(2)`). It enters a bucket for each of
//! them, and has a mark for each. Then it leaves all of them, and counts as woken by those where it
//! was marked.
//!
//! Invariants: for each of its words a waiter is in at most one bucket; it is marked for a word if
//! and only if a waker took it out there.
//!
//! An empty queue has room for a few waiters at most: the room of many is given back. There are
//! hundreds of buckets, and a program could have each of them keep room for all its threads.
//!
//! Lock order: buckets by their index, at most two (`requeue`); then the locks that [`Wake::wake`]
//! takes.
//!
//! Roads not taken: a waiter for each word of a wait for several. One object has a known size, and
//! 128 of them for one call have to be refused when memory is scarce. A list of waiters to be woken
//! after the lock is released (Linux' `wake_q`). It needs memory or a link in each waiter, and a
//! woken waiter does not come back to the bucket here.

use crate::atomic::{AtomicU64, const_new};
use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};

/// The object that a waiter sleeps on.
pub trait Wake {
    /// Ends the sleep. Called under the bucket's lock.
    fn wake(&self);
}

/// A waiter.
#[derive(Debug, Default)]
pub struct Waiter<S> {
    /// The object that it sleeps on.
    pub sleep: S,
    woken: Woken,
}

/// The most words that one waiter waits for (`FUTEX_WAITV_MAX`).
pub const WORDS: usize = 128;

/// A mark for each word of a waiter.
#[derive(Debug)]
struct Woken([AtomicU64; WORDS / 64]);

impl Default for Woken {
    fn default() -> Woken {
        Woken::new()
    }
}

impl Woken {
    const_new! {
        /// Returns "not woken".
        pub fn new() -> Woken { Woken([AtomicU64::new(0), AtomicU64::new(0)]) }
    }
}

/// The place of a word's mark.
fn mark(word: u8) -> (usize, u64) {
    (usize::from(word) / 64 % (WORDS / 64), 1 << (word % 64))
}

impl<S: Wake> Waiter<S> {
    /// Returns a waiter that is in no bucket.
    pub fn new(sleep: S) -> Waiter<S> {
        Waiter { sleep, woken: Woken::new() }
    }

    /// Whether a waker has taken it out of the bucket of any of its words.
    pub fn is_woken(&self) -> bool {
        self.woken.0.iter().any(|marks| marks.load(Acquire) != 0)
    }

    /// Whether a waker has taken it out of the bucket of this word.
    pub fn is_woken_at(&self, word: u8) -> bool {
        let (place, bit) = mark(word);
        self.woken.0[place].load(Acquire) & bit != 0
    }

    fn wake(&self, word: u8) {
        let (place, bit) = mark(word);
        self.woken.0[place].fetch_or(bit, Release);
        self.sleep.wake();
    }
}

/// A waiter's place in a bucket.
#[derive(Debug)]
pub struct QueuedWaiter<K, S> {
    key: K,
    bits: u32,
    /// Which of its words this is.
    word: u8,
    waiter: Arc<Waiter<S>>,
}

/// For how many waiters an empty queue keeps room.
const KEPT: usize = 16;

/// The waiters of a bucket; the one that has waited longest is first.
pub type Queue<K, S> = Vec<QueuedWaiter<K, S>>;

/// A locked queue.
pub trait Bucket {
    /// The key of a word.
    type Key: Copy + PartialEq;
    /// The object that a waiter sleeps on.
    type Sleep: Wake;

    /// Reads or changes the queue, with the lock held.
    fn with<R>(&self, look: impl FnOnce(&mut Queue<Self::Key, Self::Sleep>) -> R) -> R;
}

/// All buckets.
#[derive(Debug)]
pub struct Table<'a, B>(pub &'a [B]);

/// Selects waiters: those of a word whose bits overlap these.
#[derive(Clone, Copy, Debug)]
pub struct Which<K> {
    /// The word.
    pub key: K,
    /// The number of its bucket.
    pub bucket: usize,
    /// The bits.
    pub bits: u32,
}

impl<B: Bucket> Table<'_, B> {
    /// Enters a waiter; the caller reads the word afterwards.
    ///
    /// * `word` - which of the waiter's words this is, below [`WORDS`].
    pub fn enter(
        &self,
        place: Which<B::Key>,
        waiter: &Arc<Waiter<B::Sleep>>,
        word: u8,
    ) -> Result<(), TryReserveError> {
        let Which { key, bits, bucket } = place;
        self.0[bucket].with(|queue| {
            queue.try_reserve(1)?;
            queue.push(QueuedWaiter { key, bits, word, waiter: waiter.clone() });
            Ok(())
        })
    }

    /// Takes a waiter out that entered bucket `bucket` for its word `word`. False: it was woken
    /// there.
    ///
    /// * `relax` - one round of waiting for other processors, while a requeue moves the waiter.
    pub fn leave(
        &self,
        bucket: usize,
        waiter: &Arc<Waiter<B::Sleep>>,
        word: u8,
        mut relax: impl FnMut(),
    ) -> bool {
        let remove = |bucket: &B| {
            bucket.with(|queue| {
                let is_it = |entry: &QueuedWaiter<_, _>| {
                    entry.word == word && Arc::ptr_eq(&entry.waiter, waiter)
                };
                let place = queue.iter().position(is_it);
                let left = place.map(|place| queue.remove(place)).is_some();
                give_back(queue);
                left
            })
        };
        if remove(&self.0[bucket]) {
            return true;
        }
        // It is not where it entered: it was woken, or moved to another bucket. While it is being
        // moved, a search of each bucket in turn may miss it.
        loop {
            if waiter.is_woken_at(word) {
                return false;
            }
            if self.0.iter().any(remove) {
                return true;
            }
            relax();
        }
    }

    /// Wakes up to `most` waiters; returns how many.
    pub fn wake(&self, which: Which<B::Key>, most: usize) -> usize {
        self.0[which.bucket].with(|queue| wake_in(queue, which, most))
    }

    /// Wakes up to `wakes` waiters of one word and moves up to `moves` others to another word,
    /// atomically for all other threads; returns how many of each.
    ///
    /// * `check` - called with the buckets locked, before any change; its error is passed on.
    ///
    /// Fewer waiters are moved if memory for their entries is exhausted.
    pub fn requeue<E>(
        &self,
        from: Which<B::Key>,
        to: Which<B::Key>,
        wakes: usize,
        moves: usize,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<(usize, usize), E> {
        let (first, second) = (&self.0[from.bucket], &self.0[to.bucket]);
        let both = |queue: &mut Queue<_, _>, other: Option<&mut Queue<_, _>>| {
            check()?;
            let woken = wake_in(queue, from, wakes);
            Ok((woken, move_between(queue, other, from, to, moves)))
        };
        if from.bucket == to.bucket {
            first.with(|queue| both(queue, None))
        } else if from.bucket < to.bucket {
            first.with(|queue| second.with(|other| both(queue, Some(other))))
        } else {
            second.with(|other| first.with(|queue| both(queue, Some(other))))
        }
    }
}

fn wake_in<K: PartialEq + Copy, S: Wake>(
    queue: &mut Queue<K, S>,
    which: Which<K>,
    most: usize,
) -> usize {
    let mut woken = 0;
    queue.retain(|entry| {
        if woken < most && entry.key == which.key && entry.bits & which.bits != 0 {
            entry.waiter.wake(entry.word);
            woken += 1;
            return false;
        }
        true
    });
    give_back(queue);
    woken
}

/// Gives the memory of an empty queue back, unless it is little.
fn give_back<K, S>(queue: &mut Queue<K, S>) {
    if queue.is_empty() && queue.capacity() > KEPT {
        *queue = Queue::new();
    }
}

/// Moves waiters to another word: to `other`, or, if that is the same bucket, to the end of
/// `queue`.
fn move_between<K: PartialEq + Copy, S>(
    queue: &mut Queue<K, S>,
    mut other: Option<&mut Queue<K, S>>,
    from: Which<K>,
    to: Which<K>,
    moves: usize,
) -> usize {
    // To the same word: nothing moves, and the result is the number of waiters examined, as in
    // Linux.
    if from.key == to.key {
        return queue.iter().filter(|entry| entry.key == from.key).take(moves).count();
    }
    let mut moved = 0;
    while moved < moves {
        let Some(place) = queue.iter().position(|entry| entry.key == from.key) else { break };
        if other.as_mut().is_some_and(|other| other.try_reserve(1).is_err()) {
            break;
        }
        let entry = QueuedWaiter { key: to.key, ..queue.remove(place) };
        match &mut other {
            Some(other) => other.push(entry),
            None => queue.push(entry),
        }
        moved += 1;
    }
    give_back(queue);
    moved
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::RefCell;

    struct Asleep;

    impl Wake for Asleep {
        fn wake(&self) {}
    }

    #[derive(Default)]
    struct Cell(RefCell<Queue<u32, Asleep>>);

    impl Bucket for Cell {
        type Key = u32;
        type Sleep = Asleep;

        fn with<R>(&self, look: impl FnOnce(&mut Queue<u32, Asleep>) -> R) -> R {
            look(&mut self.0.borrow_mut())
        }
    }

    const FIRST: Which<u32> = Which { key: 1, bucket: 0, bits: 1 };
    const SECOND: Which<u32> = Which { key: 2, bucket: 1, bits: 1 };

    fn crowd(table: &Table<'_, Cell>) -> Vec<Arc<Waiter<Asleep>>> {
        let waiters: Vec<_> = (0..1000).map(|_| Arc::new(Waiter::new(Asleep))).collect();
        waiters.iter().for_each(|waiter| table.enter(FIRST, waiter, 0).unwrap());
        waiters
    }

    fn kept(table: &Table<'_, Cell>) -> usize {
        table.0.iter().map(|bucket| bucket.0.borrow().capacity()).max().unwrap()
    }

    #[test]
    fn what_many_waiters_took_is_given_back() {
        let buckets = [Cell::default(), Cell::default()];
        let table = Table(&buckets);
        crowd(&table);
        assert!(kept(&table) >= 1000);
        assert_eq!(table.wake(FIRST, 1000), 1000);
        assert!(kept(&table) <= KEPT, "woken");
        for waiter in crowd(&table) {
            assert!(table.leave(0, &waiter, 0, || {}));
        }
        assert!(kept(&table) <= KEPT, "left");
        crowd(&table);
        let moved = table.requeue(FIRST, SECOND, 1, 1000, || Ok::<(), ()>(()));
        assert_eq!(moved, Ok((1, 999)));
        assert_eq!(buckets[0].0.borrow().capacity(), 0);
        assert_eq!(table.wake(SECOND, 1000), 999);
        assert!(kept(&table) <= KEPT, "moved and woken");
    }

    #[test]
    fn one_waiter_of_many_words_is_woken_by_those_that_were_woken() {
        let buckets = [Cell::default(), Cell::default()];
        let table = Table(&buckets);
        let words = || 0..WORDS as u8;
        let place =
            |word: u8| Which { key: u32::from(word), bucket: usize::from(word) % 2, bits: 1 };
        let waiter = Arc::new(Waiter::new(Asleep));
        words().for_each(|word| table.enter(place(word), &waiter, word).unwrap());
        // One is woken at its place, one where it was moved to, one is moved only.
        assert_eq!(table.wake(place(64), 9), 1);
        let moved = table.requeue(place(127), place(2), 0, 1, || Ok::<(), ()>(()));
        assert_eq!(moved, Ok((0, 1)));
        assert_eq!(table.wake(place(2), 9), 2);
        let moved = table.requeue(place(0), place(1), 0, 1, || Ok::<(), ()>(()));
        assert_eq!(moved, Ok((0, 1)));
        let woken = |word: &u8| [2, 64, 127].contains(word);
        for word in words() {
            assert_eq!(waiter.is_woken_at(word), woken(&word), "{word}");
            let left = table.leave(usize::from(word) % 2, &waiter, word, || {});
            assert_eq!(left, !woken(&word), "{word}");
        }
        assert!(buckets.iter().all(|bucket| bucket.0.borrow().is_empty()));
    }
}
