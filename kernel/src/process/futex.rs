//! Futexes (`futex(2)`, `futex(7)`).
//!
//! A waiter stands in a bucket chosen by the word it waits for. It enters the bucket *before* it
//! looks at the word, and a waker changes the word before it looks into the bucket, so one of the
//! two sees the other; that is why no user memory is touched under a bucket's lock. Whoever takes
//! a waiter out of a bucket marks it woken; a waiter that times out finds by that mark that it was
//! woken after all.
//!
//! The name of a word is its place in the space, or, for words in memory that is shared between
//! spaces, its place in the content. Lock order: buckets in the order of their addresses, then a
//! space's lock (only to look at a word).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{SpinGuard, SpinLock};
use hayate_machine::user::{self, UserPtr};

use super::thread::Thread;
use crate::memory::{self, FutexPlace};
use crate::schedule::{WaitQueue, Woken};

const BUCKETS: usize = 256;

/// The name of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The space or the content.
    object: usize,
    /// Where in it.
    offset: usize,
}

struct Waiter {
    sleep: WaitQueue,
    woken: AtomicBool,
}

impl Waiter {
    /// Lets it go on. The caller has taken its entry out of the bucket.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.sleep.wake_all();
    }
}

struct Entry {
    key: Key,
    bits: u32,
    waiter: Arc<Waiter>,
}

type Bucket = SpinLock<Vec<Entry>>;

static BUCKET: [Bucket; BUCKETS] = [const { SpinLock::new(Vec::new()) }; BUCKETS];

impl Key {
    /// The name of the word at `address` in the current space. `private`: no other space shares
    /// it. `EINVAL` if it is not aligned, `EFAULT` if it is not mapped.
    pub fn new(address: usize, private: bool) -> Result<Key> {
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if address >= memory::USER_END {
            return Err(Errno::EFAULT);
        }
        let space = memory::current();
        let own = Key { object: core::ptr::from_ref(&*space).addr(), offset: address };
        if private {
            return Ok(own);
        }
        match space.futex_place(address)? {
            FutexPlace::Private => Ok(own),
            FutexPlace::Shared { content, offset } => {
                Ok(Key { object: content as usize, offset: offset as usize })
            }
        }
    }

    fn index(self) -> usize {
        let mixed = (self.object ^ self.offset.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed >> (usize::BITS - BUCKETS.trailing_zeros())
    }

    fn bucket(self) -> &'static Bucket {
        &BUCKET[self.index() % BUCKETS]
    }
}

/// Waits until the word is woken, if it holds `value`.
///
/// * `deadline` - on the monotonic clock.
/// * `bits` - which wakes count.
///
/// `EAGAIN` if it holds something else, `ETIMEDOUT`, `EFAULT`, `ERESTARTSYS` for a signal.
pub fn wait(
    address: usize,
    private: bool,
    value: u32,
    deadline: Option<u64>,
    bits: u32,
) -> Result<()> {
    let key = Key::new(address, private)?;
    let waiter = Arc::new(Waiter { sleep: WaitQueue::new(), woken: AtomicBool::new(false) });
    {
        let mut entries = key.bucket().lock();
        entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        entries.push(Entry { key, bits, waiter: waiter.clone() });
    }
    let found = user::load_u32(address);
    if !matches!(found, Ok(now) if now == value) {
        // Woken all the same: then the wake was meant for the value we were told of.
        if !leave(key, &waiter) {
            return Ok(());
        }
        return found.and(Err(Errno::EAGAIN));
    }
    let woken = || waiter.woken.load(Ordering::SeqCst).then_some(());
    let result = waiter.sleep.wait_interruptible(deadline, woken);
    match result {
        Ok(()) => Ok(()),
        Err(_) if !leave(key, &waiter) => Ok(()),
        Err(Woken::TimedOut) => Err(Errno::ETIMEDOUT),
        Err(Woken::Interrupted) => Err(Errno::ERESTARTSYS),
    }
}

/// Takes a waiter that was not woken out of its bucket, which a requeue may have changed since.
/// False if it was woken.
fn leave(key: Key, waiter: &Arc<Waiter>) -> bool {
    if remove(key.bucket(), waiter) {
        return true;
    }
    // Not where it entered: woken, or requeued elsewhere. The mark is set after the entry is
    // taken out, so looking everywhere and then at the mark until one says so is enough.
    loop {
        if waiter.woken.load(Ordering::SeqCst) {
            return false;
        }
        if BUCKET.iter().any(|bucket| remove(bucket, waiter)) {
            return true;
        }
        hayate_machine::sync::relax();
    }
}

fn remove(bucket: &Bucket, waiter: &Arc<Waiter>) -> bool {
    let mut entries = bucket.lock();
    let place = entries.iter().position(|entry| Arc::ptr_eq(&entry.waiter, waiter));
    let entry = place.map(|place| entries.remove(place));
    drop(entries);
    entry.is_some()
}

/// Takes up to `most` waiters of a key, the longest waiting first, out of a locked bucket.
fn take(entries: &mut Vec<Entry>, key: Key, bits: u32, most: usize, to: &mut Vec<Arc<Waiter>>) {
    let mut taken = 0;
    entries.retain(|entry| {
        let wanted = taken < most && entry.key == key && entry.bits & bits != 0;
        if wanted && to.try_reserve(1).is_ok() {
            to.push(entry.waiter.clone());
            taken += 1;
            return false;
        }
        true
    });
}

fn wake_key(key: Key, most: usize, bits: u32) -> usize {
    let mut woken = Vec::new();
    let bucket = key.bucket();
    // The waker's change of the word comes before the look into the bucket.
    core::sync::atomic::fence(Ordering::SeqCst);
    let mut entries = bucket.lock();
    if entries.is_empty() {
        return 0;
    }
    take(&mut entries, key, bits, most, &mut woken);
    drop(entries);
    woken.iter().for_each(|waiter| waiter.wake());
    woken.len()
}

/// Wakes up to `most` waiters of the word at `address`; gives how many.
pub fn wake(address: usize, private: bool, most: usize, bits: u32) -> Result<usize> {
    Ok(wake_key(Key::new(address, private)?, most, bits))
}

/// Wakes waiters of a word however they named it: the kernel itself is the waker.
pub fn wake_address(address: usize, most: usize) -> Result<usize> {
    let shared = Key::new(address, false)?;
    let private = Key::new(address, true)?;
    let woken = wake_key(private, most, u32::MAX);
    if shared == private || woken >= most {
        return Ok(woken);
    }
    Ok(woken + wake_key(shared, most - woken, u32::MAX))
}

/// Locks the buckets of two keys, in the order of their addresses.
fn lock_two(
    first: Key,
    second: Key,
) -> (SpinGuard<'static, Vec<Entry>>, Option<SpinGuard<'static, Vec<Entry>>>) {
    let (a, b) = (first.index() % BUCKETS, second.index() % BUCKETS);
    if a == b {
        (first.bucket().lock(), None)
    } else if a < b {
        let one = first.bucket().lock();
        (one, Some(second.bucket().lock()))
    } else {
        let two = second.bucket().lock();
        (first.bucket().lock(), Some(two))
    }
}

/// Wakes up to `wakes` waiters of one word and moves up to `moves` others to another word.
///
/// * `expected` - what the first word must hold, or `EAGAIN`.
///
/// Gives how many were woken and moved.
pub fn requeue(
    from: usize,
    to: usize,
    private: bool,
    wakes: usize,
    moves: usize,
    expected: Option<u32>,
) -> Result<(usize, usize)> {
    let first = Key::new(from, private)?;
    let second = Key::new(to, private)?;
    let mut woken = Vec::new();
    let mut moved = 0;
    let (mut entries, mut others) = loop {
        let buckets = lock_two(first, second);
        // Compared with the buckets locked, so that no waiter comes or goes in between. The page may
        // have to be brought in first, which cannot be done here.
        match expected.map(|expected| (expected, memory::current().peek_word(from))) {
            None => break buckets,
            Some((expected, Some(found))) if found == expected => break buckets,
            Some((_, Some(_))) => return Err(Errno::EAGAIN),
            Some((_, None)) => {
                drop(buckets);
                user::load_u32(from)?;
            }
        }
    };
    take(&mut entries, first, u32::MAX, wakes, &mut woken);
    while moved < moves {
        let Some(place) = entries.iter().position(|entry| entry.key == first) else { break };
        if first == second {
            moved += 1;
            break;
        }
        match &mut others {
            Some(others) => {
                if others.try_reserve(1).is_err() {
                    break;
                }
                let entry = entries.remove(place);
                others.push(Entry { key: second, ..entry });
            }
            None => {
                let entry = entries.remove(place);
                entries.push(Entry { key: second, ..entry });
            }
        }
        moved += 1;
    }
    drop((entries, others));
    woken.iter().for_each(|waiter| waiter.wake());
    Ok((woken.len(), moved))
}

/// `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first, and waiters of the
/// second if its old value passes a test. `ENOSYS` for an unknown operation.
pub fn wake_op(
    first: usize,
    second: usize,
    private: bool,
    wakes: usize,
    second_wakes: usize,
    encoded: u32,
) -> Result<usize> {
    let first = Key::new(first, private)?;
    let key = Key::new(second, private)?;
    let sign_extend = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let mut argument = sign_extend(encoded >> 12 & 0xfff);
    let comparand = sign_extend(encoded & 0xfff);
    if encoded >> 31 != 0 {
        argument = 1u32.checked_shl(argument & 31).unwrap_or(0);
    }
    let operation = encoded >> 28 & 7;
    let test = encoded >> 24 & 15;
    if operation > 4 || test > 5 {
        return Err(Errno::ENOSYS);
    }
    let old = user::fetch_update_u32(second, |old| match operation {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        _ => old ^ argument,
    })?;
    let (signed, other) = (old as i32, comparand as i32);
    let passes = match test {
        0 => signed == other,
        1 => signed != other,
        2 => signed < other,
        3 => signed <= other,
        4 => signed > other,
        _ => signed >= other,
    };
    let mut woken = wake_key(first, wakes, u32::MAX);
    if passes {
        woken += wake_key(key, second_wakes, u32::MAX);
    }
    Ok(woken)
}

/// Erases the word that tells of the end of the current thread, and wakes who waits for it.
pub fn clear_tid(thread: &Thread) {
    let address = thread.clear_tid.swap(0, Ordering::Relaxed);
    if address != 0 && UserPtr::<u32>::new(address).write(&0).is_ok() {
        let _ = wake_address(address, 1);
    }
}

const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;
const OWNER: u32 = 0x3fff_ffff;
/// A longer list is taken for a circle (`ROBUST_LIST_LIMIT`).
const LIST_MAX: usize = 2048;

/// Releases the robust futexes that the current thread still holds (`get_robust_list(2)`,
/// Documentation/locking/robust-futexes.rst).
pub fn release_robust_list(thread: &Thread) {
    let head = thread.robust_list.swap(0, Ordering::Relaxed);
    if head == 0 {
        return;
    }
    // A list that cannot be read is its owner's problem.
    let _ = walk_robust_list(thread, head);
}

fn walk_robust_list(thread: &Thread, head: usize) -> Result<()> {
    let list: hayate_abi::process::RobustListHead = UserPtr::new(head).read()?;
    let offset = list.futex_offset as usize;
    // The lowest bit of a pointer says that the futex is a PI futex, which there are none of.
    let pending = list.list_op_pending & !1;
    let mut entry = list.list & !1;
    for _ in 0..LIST_MAX {
        if entry as usize == head {
            break;
        }
        let next: u64 = UserPtr::new(entry as usize).read()?;
        if entry != pending {
            release(thread, (entry as usize).wrapping_add(offset), false)?;
        }
        entry = next & !1;
    }
    if pending != 0 {
        release(thread, (pending as usize).wrapping_add(offset), true)?;
    }
    Ok(())
}

/// Marks one futex as orphaned if the thread holds it (`handle_futex_death`).
fn release(thread: &Thread, address: usize, pending: bool) -> Result<()> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    loop {
        let word = user::load_u32(address)?;
        if pending && word & OWNER == 0 {
            // It was unlocked, but the wake may not have happened.
            wake_address(address, 1)?;
            return Ok(());
        }
        if word & OWNER != thread.id() {
            return Ok(());
        }
        let orphaned = word & WAITERS | OWNER_DIED;
        if user::compare_exchange_u32(address, word, orphaned)? == word {
            if word & WAITERS != 0 {
                wake_address(address, 1)?;
            }
            return Ok(());
        }
    }
}
