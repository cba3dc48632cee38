//! Futexes (`futex(2)`, `futex_waitv(2)`, `futex(7)`).
//!
//! `hayate-protocols` decides which waiter is woken, moved, or leaves by itself; this module has
//! the keys of words, the checks of their values, and the sleep. A waiter enters a bucket *before*
//! it looks at the word, and a waker changes the word before it looks into the bucket, so no user
//! memory is touched under a bucket's lock.
//!
//! The key of a word is its address in the space or, for words in memory shared between spaces, its
//! place in the content. Lock order: buckets in the order of their addresses, or a processor's
//! watches ([`clock::Watch`]); then a space's lock (only to look at a word) or a waiter's wait
//! queue.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{SpinLock, relax};
use hayate_machine::user::{self, UserPtr};
use hayate_protocols::futex::{Bucket, Queue, Table, Waiter, Wake, Which};

use super::restart::Until;
use super::thread::Thread;
use crate::clock;
use crate::clock::Watch;
use crate::memory;
use crate::memory::FutexPlace;
use crate::reclaim::growth::Grow;
use crate::schedule::{Listener, WaitQueue, Woken, time};

const BUCKETS: usize = 256;

/// The key of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The address of the space's record, or the number of the content.
    object: usize,
    /// The address or the offset there.
    offset: usize,
}

/// The queue that a waiting thread sleeps on.
struct Sleep(WaitQueue);

impl Wake for Sleep {
    fn wake(&self) {
        self.0.wake_all();
    }
}

/// A wait for a time of the real-time clock looks again when that clock is set.
impl Listener for Waiter<Sleep> {
    fn notify(&self, _: u32) {
        self.sleep.wake();
    }
}

struct Locked(SpinLock<Queue<Key, Sleep>>);

impl Bucket for Locked {
    type Key = Key;
    type Sleep = Sleep;

    fn with<R>(&self, look: impl FnOnce(&mut Queue<Key, Sleep>) -> R) -> R {
        look(&mut self.0.lock())
    }
}

static LOCKED: [Locked; BUCKETS] = [const { Locked(SpinLock::new(Queue::new())) }; BUCKETS];
static TABLE: Table<Locked> = Table(&LOCKED);

impl Key {
    /// Makes the key of the word at `address` in the current space. `private`: no other space
    /// shares it. Fails with `EINVAL` if it is not aligned, `EFAULT` if it is not mapped.
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

    fn with(self, bits: u32) -> Which<Key> {
        Which { key: self, bucket: self.index() % BUCKETS, bits }
    }
}

/// Waits until the word is woken, if it holds `value`.
///
/// * `bits` - which wakes count.
///
/// Fails with `EAGAIN` if it holds another value, `ETIMEDOUT`, `EFAULT`, `ERESTARTSYS` for a
/// signal.
pub fn wait(
    address: usize,
    private: bool,
    value: u32,
    until: Option<Until>,
    bits: u32,
) -> Result<()> {
    let place = Key::new(address, private)?.with(bits);
    let waiter = Arc::new(Waiter::new(Sleep(WaitQueue::new())));
    TABLE.enter(place, &waiter, 0).map_err(|_| Errno::ENOMEM)?;
    let leave = || TABLE.leave(place.bucket, &waiter, 0, relax);
    let found = user::load_u32(address);
    if !matches!(found, Ok(now) if now == value) {
        // If it was woken nevertheless, the wake was meant for the value that the caller knew.
        if !leave() {
            return Ok(());
        }
        return found.and(Err(Errno::EAGAIN));
    }
    match sleep(&waiter, until) {
        // If something else ended the wait, a wake is not lost.
        Err(_) if !leave() => Ok(()),
        result => result,
    }
}

/// One word of a wait for several.
#[derive(Clone, Copy)]
pub struct Awaited {
    /// Its address.
    pub address: usize,
    /// Whether no other space shares it.
    pub private: bool,
    /// What it must hold.
    pub value: u32,
}

/// The most words of one wait.
pub const WORDS: usize = hayate_protocols::futex::WORDS;

/// Waits until one of the words is woken, if each holds its value (`futex_wait_multiple`,
/// kernel/futex/waitwake.c). Returns the number of a word that was woken: the last of them.
///
/// All words are entered before the thread sleeps, and each before it is looked at. So a wake of
/// any is either seen as another value, or marks the waiter.
///
/// Fails with `EAGAIN` if one holds another value, `ETIMEDOUT`, `EFAULT`, `EINVAL`, `ENOMEM`,
/// `ERESTARTSYS` for a signal.
pub fn wait_any(words: &[Awaited], until: Option<Until>) -> Result<usize> {
    let mut places = Vec::new();
    places.make_room_exact(words.len())?;
    for word in words {
        places.push(Key::new(word.address, word.private)?.with(u32::MAX));
    }
    let waiter = Arc::new(Waiter::new(Sleep(WaitQueue::new())));
    let (entered, result) = enter_all(&waiter, words, &places);
    let result = result.and_then(|()| sleep(&waiter, until));
    let mut woken = None;
    for (word, place) in places.iter().enumerate().take(entered) {
        if !TABLE.leave(place.bucket, &waiter, word as u8, relax) {
            woken = Some(word);
        }
    }
    match woken {
        // If something else ended the wait, a wake is not lost.
        Some(word) => Ok(word),
        None => Err(result.err().unwrap_or(Errno::EAGAIN)),
    }
}

/// Enters a waiter for each word, as long as they hold their values. Returns how many it entered.
fn enter_all(
    waiter: &Arc<Waiter<Sleep>>,
    words: &[Awaited],
    places: &[Which<Key>],
) -> (usize, Result<()>) {
    for (number, (word, place)) in words.iter().zip(places).enumerate() {
        if TABLE.enter(*place, waiter, number as u8).is_err() {
            return (number, Err(Errno::ENOMEM));
        }
        match user::load_u32(word.address) {
            Ok(found) if found == word.value => {}
            found => return (number + 1, found.and(Err(Errno::EAGAIN))),
        }
    }
    (words.len(), Ok(()))
}

/// Sleeps until a waiter is woken at any of its words.
#[inline]
fn sleep(waiter: &Arc<Waiter<Sleep>>, until: Option<Until>) -> Result<()> {
    let woken = || waiter.is_woken().then_some(());
    // One call, so that it becomes a part of the caller.
    let deadline = match until {
        None => Ok(None),
        Some(Until::Monotonic(deadline)) => Ok(Some(deadline)),
        Some(Until::Realtime(goal)) => Err(goal),
    };
    let slept = match deadline {
        Ok(deadline) => waiter.sleep.0.wait_interruptible(deadline, woken),
        Err(goal) => sleep_until_realtime(waiter, goal),
    };
    slept.map_err(|why| match why {
        Woken::TimedOut => Errno::ETIMEDOUT,
        Woken::Interrupted => Errno::ERESTARTSYS,
    })
}

/// Sleeps until a waiter is woken, or the real-time clock shows `goal`, by running or by being set.
#[cold]
fn sleep_until_realtime(waiter: &Arc<Waiter<Sleep>>, goal: u64) -> core::result::Result<(), Woken> {
    let _watch = Watch::begin(waiter.clone());
    loop {
        let seen = clock::settings();
        let left = goal.saturating_sub(time::realtime_ns());
        let deadline = time::monotonic_ns().saturating_add(left);
        let ends = || (waiter.is_woken() || clock::settings() != seen).then_some(());
        let slept = waiter.sleep.0.wait_interruptible(Some(deadline), ends);
        if waiter.is_woken() {
            return Ok(());
        }
        match slept {
            // It was set while the time passed: it may show an earlier one.
            Err(Woken::TimedOut) if clock::settings() != seen => {}
            ended => ended?,
        }
    }
}

/// Wakes up to `most` waiters of the word at `address`; returns how many.
pub fn wake(address: usize, private: bool, most: usize, bits: u32) -> Result<usize> {
    Ok(TABLE.wake(Key::new(address, private)?.with(bits), most))
}

/// Wakes waiters of a word for the kernel itself, whether they use its private or its shared key.
pub fn wake_address(address: usize, most: usize) -> Result<usize> {
    let shared = Key::new(address, false)?;
    let private = Key::new(address, true)?;
    let woken = TABLE.wake(private.with(u32::MAX), most);
    if shared == private || woken >= most {
        return Ok(woken);
    }
    Ok(woken + TABLE.wake(shared.with(u32::MAX), most - woken))
}

/// Wakes up to `wakes` waiters of one word and moves up to `moves` others to another word.
///
/// * `expected` - the value that the first word must hold; otherwise fails with `EAGAIN`.
///
/// Returns how many were woken and moved.
pub fn requeue(
    from: usize,
    to: usize,
    private: bool,
    wakes: usize,
    moves: usize,
    expected: Option<u32>,
) -> Result<(usize, usize)> {
    let first = Key::new(from, private)?.with(u32::MAX);
    let second = Key::new(to, private)?.with(u32::MAX);
    loop {
        // Compare with the buckets locked, so that no waiter comes or goes in between. The page may
        // have to be brought in first, which cannot be done under the locks.
        let check = || match expected.map(|expected| (expected, memory::current().peek_word(from)))
        {
            None => Ok(()),
            Some((expected, Some(found))) if found == expected => Ok(()),
            Some((_, Some(_))) => Err(Some(Errno::EAGAIN)),
            Some((_, None)) => Err(None),
        };
        match TABLE.requeue(first, second, wakes, moves, check) {
            Ok(counts) => return Ok(counts),
            Err(Some(error)) => return Err(error),
            Err(None) => user::load_u32(from)?,
        };
    }
}

/// Implements `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first, and waiters of
/// the second if its old value passes a test. Fails with `ENOSYS` for an unknown operation.
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
    let mut woken = TABLE.wake(first.with(u32::MAX), wakes);
    if passes {
        woken += TABLE.wake(key.with(u32::MAX), second_wakes);
    }
    Ok(woken)
}

/// Clears the word that shows the end of the current thread, and wakes its waiters.
pub fn clear_tid(thread: &Thread) {
    let address = thread.clear_tid.swap(0, Ordering::Relaxed);
    if address != 0 && UserPtr::<u32>::new(address).write(&0).is_ok() {
        let _ = wake_address(address, 1);
    }
}

const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;
const OWNER: u32 = 0x3fff_ffff;
/// A longer list is treated as a circle (`ROBUST_LIST_LIMIT`).
const LIST_MAX: usize = 2048;

/// Releases the robust futexes that the current thread still holds (`get_robust_list(2)`,
/// Documentation/locking/robust-futexes.rst).
pub fn release_robust_list(thread: &Thread) {
    let head = thread.robust_list.swap(0, Ordering::Relaxed);
    if head == 0 {
        return;
    }
    // If the list cannot be read, the fault is the program's.
    let _ = walk_robust_list(thread, head);
}

fn walk_robust_list(thread: &Thread, head: usize) -> Result<()> {
    let list: hayate_abi::process::RobustListHead = UserPtr::new(head).read()?;
    let offset = list.futex_offset as usize;
    // The lowest bit of a pointer marks a PI futex, which this kernel does not have.
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
        if word & OWNER != thread.own_id() {
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
