//! File locks: record locks (`F_SETLK`), open file description locks (`F_OFD_SETLK`) and whole
//! file locks (`flock(2)`).
//!
//! Locks belong to the file, found by device and inode number in one table under one spin lock:
//! they are rare, short and never on a path that must be fast. Record locks are owned by a
//! descriptor table (that is Linux' notion of "process" here), the others by an open file.
//!
//! A thread that waits for a lock is listed in the file's `waiters`, with a wait queue of its own.
//! The thread that frees a range gives the lock to the waiters that can now have it, and wakes only
//! those. For that, a waiter for a record lock is noted with one holder that blocks it; the waiter
//! is looked at again only when that holder gives up something within the wanted range. A thread
//! that asks for the lock at that moment may still overtake the waiters, as on Linux.
//!
//! `edges` notes which holder each owner waits for, so that a cycle is found and refused
//! (`EDEADLK`) before a thread sleeps in it, or when a waiter that still waits is noted with
//! another holder. Linux follows the chain for ten steps (`MAX_DEADLK_ITERATIONS`, fs/locks.c);
//! this code follows it to its end.
//!
//! Memory for a lock is allocated before anything is changed (`ENOLCK`). Lock order: the table's
//! lock, a waiter's queue.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering};

use hayate_abi::file::Flock;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::descriptor;
use super::descriptor::FdTable;
use super::lock_owner::{Edges, LockOwner, would_deadlock};
use super::open_file;
use super::open_file::{Marks, OpenFile};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
/// The lock type that releases a range.
pub const F_UNLCK: i16 = 2;

/// A locked range, both ends included.
#[derive(Clone, Copy)]
struct Record {
    owner: LockOwner,
    pid: i32,
    first: u64,
    last: u64,
    exclusive: bool,
}

/// A thread that waits for a lock.
struct Waiter {
    sleep: WaitQueue,
    /// The outcome: [`WAITING`], 0 if the lock was given, or an error number.
    outcome: AtomicI32,
}

const WAITING: i32 = -1;

impl Waiter {
    fn new() -> Arc<Waiter> {
        Arc::new(Waiter { sleep: WaitQueue::new(), outcome: AtomicI32::new(WAITING) })
    }

    fn outcome(&self) -> Option<Result<()>> {
        match self.outcome.load(Ordering::SeqCst) {
            WAITING => None,
            0 => Some(Ok(())),
            number => Some(Err(Errno::from_number(number).unwrap_or(Errno::ENOLCK))),
        }
    }

    fn end(&self, outcome: Result<()>) {
        let number = outcome.map_or_else(|error| error.number(), |()| 0);
        self.outcome.store(number, Ordering::SeqCst);
        self.sleep.wake_all();
    }
}

/// An entry in a file's list of waiters.
struct Queued {
    waiter: Arc<Waiter>,
    /// The wanted lock; for a whole-file lock only owner and kind count.
    wanted: Record,
    whole: bool,
    /// An owner that holds a conflicting lock.
    blocker: LockOwner,
}

impl Queued {
    /// Returns the key of its edge. The owner alone is not enough: it may wait with several
    /// threads.
    fn edge(&self) -> (LockOwner, usize) {
        (self.wanted.owner, Arc::as_ptr(&self.waiter).addr())
    }
}

/// A range that an owner gave up.
#[derive(Clone, Copy)]
struct Freed {
    owner: LockOwner,
    first: u64,
    last: u64,
}

impl Freed {
    fn all_of(owner: LockOwner) -> Freed {
        Freed { owner, first: 0, last: u64::MAX }
    }

    /// Whether freeing this range may let the waiter go on.
    fn concerns(&self, queued: &Queued) -> bool {
        queued.whole
            || (queued.blocker == self.owner
                && self.first <= queued.wanted.last
                && queued.wanted.first <= self.last)
    }
}

#[derive(Default)]
struct FileLocks {
    records: Vec<Record>,
    /// One exclusive lock, or any number of shared ones.
    whole: Vec<(LockOwner, bool)>,
    /// In order of arrival.
    waiters: Vec<Queued>,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<(u64, u64), FileLocks>,
    edges: Edges,
}

static TABLE: SpinLock<Table> =
    SpinLock::new(Table { files: BTreeMap::new(), edges: BTreeMap::new() });

impl FileLocks {
    /// Returns a lock of another owner that conflicts with `wanted`.
    fn conflict(&self, wanted: &Record) -> Option<Record> {
        self.records
            .iter()
            .find(|held| {
                held.owner != wanted.owner
                    && held.first <= wanted.last
                    && wanted.first <= held.last
                    && (held.exclusive || wanted.exclusive)
            })
            .copied()
    }

    /// Returns an owner whose whole-file lock conflicts with the wanted kind.
    fn whole_conflict(&self, exclusive: bool) -> Option<LockOwner> {
        self.whole.first().filter(|held| held.1 || exclusive).map(|held| held.0)
    }

    /// Reserves memory for `more` records. `ENOLCK`.
    fn reserve(&mut self, more: usize) -> Result<()> {
        self.records.make_room(more).map_err(|_| Errno::ENOLCK)
    }

    /// Removes the owner's locks from a range; a lock that reaches beyond the range on both sides
    /// is split. `ENOLCK` without memory for the split; then nothing has changed.
    fn clear(&mut self, owner: LockOwner, first: u64, last: u64) -> Result<()> {
        self.reserve(1)?;
        let mut rest = None;
        self.records.retain_mut(|held| {
            if held.owner != owner || held.last < first || last < held.first {
                return true;
            }
            let (before, behind) = (held.first < first, last < held.last);
            if before && behind {
                rest = Some(Record { first: last + 1, ..*held });
            }
            if before {
                held.last = first - 1;
            } else if behind {
                held.first = last + 1;
            }
            before || behind
        });
        if let Some(rest) = rest {
            self.insert(rest);
        }
        Ok(())
    }

    /// Inserts a record, for which the caller has reserved memory.
    fn insert(&mut self, new: Record) {
        let at = self.records.iter().position(|held| held.first > new.first);
        self.records.insert(at.unwrap_or(self.records.len()), new);
    }

    /// Adds a lock, joining it with neighbours of the same kind. `ENOLCK`.
    fn add(&mut self, mut new: Record) -> Result<()> {
        self.reserve(2)?;
        self.clear(new.owner, new.first, new.last)?;
        self.records.retain(|held| {
            let joins = held.owner == new.owner
                && held.exclusive == new.exclusive
                && (held.last.checked_add(1) == Some(new.first)
                    || new.last.checked_add(1) == Some(held.first));
            if joins {
                new.first = new.first.min(held.first);
                new.last = new.last.max(held.last);
            }
            !joins
        });
        self.insert(new);
        Ok(())
    }

    /// Adds a whole-file lock. `ENOLCK`.
    fn add_whole(&mut self, owner: LockOwner, exclusive: bool) -> Result<()> {
        self.whole.make_room(1).map_err(|_| Errno::ENOLCK)?;
        self.whole.push((owner, exclusive));
        Ok(())
    }

    /// Tries again to give a waiter its lock. Returns the outcome that ends its wait; otherwise
    /// notes the owner that blocks it now.
    fn try_grant(&mut self, at: usize, edges: &mut Edges) -> Option<Result<()>> {
        let queued = self.waiters.get(at)?;
        let (wanted, edge) = (queued.wanted, queued.edge());
        if queued.whole {
            if self.whole_conflict(wanted.exclusive).is_some() {
                return None;
            }
            return Some(self.add_whole(wanted.owner, wanted.exclusive));
        }
        let Some(held) = self.conflict(&wanted) else { return Some(self.add(wanted)) };
        // The waiter's own edge must not count as a step of the cycle.
        if edges.remove(&edge).is_some() {
            if would_deadlock(edges, wanted.owner, held.owner) {
                return Some(Err(Errno::EDEADLK));
            }
            edges.insert(edge, held.owner);
        }
        if let Some(queued) = self.waiters.get_mut(at) {
            queued.blocker = held.owner;
        }
        None
    }

    /// Gives the freed range to the waiters for it, in order of arrival.
    fn grant(&mut self, freed: Freed, edges: &mut Edges) {
        let mut freed = Some(freed);
        loop {
            let mut more = false;
            let mut at = 0;
            while let Some(queued) = self.waiters.get(at) {
                let outcome = match &freed {
                    Some(freed) if !freed.concerns(queued) => None,
                    _ => self.try_grant(at, edges),
                };
                let Some(outcome) = outcome else {
                    at += 1;
                    continue;
                };
                let queued = self.waiters.remove(at);
                edges.remove(&queued.edge());
                // A shared lock may have replaced an exclusive one of the same owner, which lets
                // others in.
                more |= !queued.whole && !queued.wanted.exclusive;
                queued.waiter.end(outcome);
            }
            if !more {
                return;
            }
            freed = None;
        }
    }

    fn is_idle(&self) -> bool {
        self.records.is_empty() && self.whole.is_empty() && self.waiters.is_empty()
    }
}

impl Table {
    /// Runs `change`, which gives up the range `freed`, on a file's locks, and wakes the waiters
    /// that can go on because of it.
    fn free(
        &mut self,
        file: (u64, u64),
        freed: Freed,
        change: impl FnOnce(&mut FileLocks) -> Result<()>,
    ) -> Result<()> {
        let Some(locks) = self.files.get_mut(&file) else { return Ok(()) };
        let changed = change(locks);
        if changed.is_ok() && !locks.waiters.is_empty() {
            locks.grant(freed, &mut self.edges);
        }
        if locks.is_idle() {
            self.files.remove(&file);
        }
        changed
    }

    /// Takes a lock, or adds `waiter` to the list. `EAGAIN`: the lock is held, and either there is
    /// no waiter or the waiter waits now. `EDEADLK`, `ENOLCK`.
    fn take(
        &mut self,
        file: (u64, u64),
        wanted: Record,
        whole: bool,
        waiter: Option<&Arc<Waiter>>,
    ) -> Result<()> {
        let locks = self.files.entry(file).or_default();
        let blocker = if whole {
            locks.whole_conflict(wanted.exclusive)
        } else {
            locks.conflict(&wanted).map(|held| held.owner)
        };
        let outcome = match (blocker, waiter) {
            (None, _) if whole => locks.add_whole(wanted.owner, wanted.exclusive),
            (None, _) => locks.add(wanted).inspect(|()| {
                // A lock turned from exclusive to shared lets others in.
                if !wanted.exclusive && !locks.waiters.is_empty() {
                    let Record { owner, first, last, .. } = wanted;
                    locks.grant(Freed { owner, first, last }, &mut self.edges);
                }
            }),
            (Some(_), None) => Err(Errno::EAGAIN),
            (Some(blocker), Some(waiter)) => {
                let waits = !whole && matches!(wanted.owner, LockOwner::Table(_));
                if waits && would_deadlock(&self.edges, wanted.owner, blocker) {
                    Err(Errno::EDEADLK)
                } else if locks.waiters.make_room(1).is_err() {
                    Err(Errno::ENOLCK)
                } else {
                    let queued = Queued { waiter: waiter.clone(), wanted, whole, blocker };
                    if waits {
                        self.edges.insert(queued.edge(), blocker);
                    }
                    locks.waiters.push(queued);
                    Err(Errno::EAGAIN)
                }
            }
        };
        if locks.is_idle() {
            self.files.remove(&file);
        }
        outcome
    }

    /// Removes a waiter that gives up from the list.
    fn leave(&mut self, file: (u64, u64), waiter: &Arc<Waiter>) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        let at = locks.waiters.iter().position(|queued| Arc::ptr_eq(&queued.waiter, waiter));
        if let Some(at) = at {
            let queued = locks.waiters.remove(at);
            self.edges.remove(&queued.edge());
        }
        if locks.is_idle() {
            self.files.remove(&file);
        }
    }
}

/// Takes a lock; if it is held and `wait` is set, sleeps until the lock is given.
///
/// `EAGAIN`, `EDEADLK`, `ENOLCK`; `ERESTARTSYS` for a signal.
fn take(file: (u64, u64), wanted: Record, whole: bool, wait: bool) -> Result<()> {
    match TABLE.lock().take(file, wanted, whole, None) {
        Err(Errno::EAGAIN) if wait => {}
        other => return other,
    }
    let waiter = Waiter::new();
    match TABLE.lock().take(file, wanted, whole, Some(&waiter)) {
        Err(Errno::EAGAIN) => {}
        other => return other,
    }
    match waiter.sleep.wait_interruptible(None, || waiter.outcome()) {
        Ok(outcome) => outcome,
        Err(_) => {
            let mut table = TABLE.lock();
            // Locks are given under the table's lock, which is held here: the outcome is final now.
            waiter.outcome().unwrap_or_else(|| {
                table.leave(file, &waiter);
                Err(Errno::ERESTARTSYS)
            })
        }
    }
}

/// Computes the range that a `struct flock` means.
fn range(file: &OpenFile, lock: &Flock) -> Result<(u64, u64)> {
    let base = match lock.l_whence {
        0 => 0,
        1 => *file.lock_position() as i64,
        2 => file.metadata()?.size as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(lock.l_start).ok_or(Errno::EOVERFLOW)?;
    let (first, last) = if lock.l_len > 0 {
        let end = start.checked_add(lock.l_len - 1).ok_or(Errno::EOVERFLOW)?;
        (start, end)
    } else if lock.l_len < 0 {
        (start.checked_add(lock.l_len).ok_or(Errno::EINVAL)?, start - 1)
    } else {
        (start, i64::MAX)
    };
    if start < 0 || first < 0 {
        return Err(Errno::EINVAL);
    }
    Ok((first as u64, last as u64))
}

fn record(file: &OpenFile, owner: LockOwner, pid: i32, lock: &Flock) -> Result<Record> {
    let (first, last) = range(file, lock)?;
    let exclusive = match lock.l_type {
        F_RDLCK | F_UNLCK => false,
        F_WRLCK => true,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Record { owner, pid, first, last, exclusive })
}

/// `F_GETLK` and `F_OFD_GETLK`: puts a conflicting lock into `lock`, or `F_UNLCK`.
pub fn query(file: &OpenFile, owner: LockOwner, lock: &mut Flock) -> Result<()> {
    let unlock_asked = lock.l_type == F_UNLCK && matches!(owner, LockOwner::Table(_));
    if unlock_asked {
        return Err(Errno::EINVAL);
    }
    let wanted = record(file, owner, 0, lock)?;
    let identity = file.inode().identity()?;
    let table = TABLE.lock();
    match table.files.get(&identity).and_then(|locks| locks.conflict(&wanted)) {
        None => lock.l_type = F_UNLCK,
        Some(held) => {
            lock.l_type = if held.exclusive { F_WRLCK } else { F_RDLCK };
            lock.l_whence = 0;
            lock.l_start = held.first as i64;
            let open_ended = held.last == i64::MAX as u64;
            lock.l_len = if open_ended { 0 } else { (held.last - held.first + 1) as i64 };
            lock.l_pid = held.pid;
        }
    }
    Ok(())
}

/// `F_SETLK`, `F_SETLKW` (`wait`) and their `F_OFD_` forms. `pid` is what other processes see.
pub fn set(file: &OpenFile, owner: LockOwner, pid: i32, lock: &Flock, wait: bool) -> Result<()> {
    let wanted = record(file, owner, pid, lock)?;
    let identity = file.inode().identity()?;
    match lock.l_type {
        F_RDLCK if !file.readable() => return Err(Errno::EBADF),
        F_WRLCK if !file.writable() => return Err(Errno::EBADF),
        F_UNLCK => {
            let (first, last) = (wanted.first, wanted.last);
            let freed = Freed { owner, first, last };
            return TABLE.lock().free(identity, freed, |locks| locks.clear(owner, first, last));
        }
        _ => {}
    }
    if matches!(owner, LockOwner::Description(_)) {
        file.note_locks();
    }
    take(identity, wanted, false, wait)
}

/// `flock(2)`
pub fn flock(file: &OpenFile, operation: i32) -> Result<()> {
    const LOCK_SH: i32 = 1;
    const LOCK_EX: i32 = 2;
    const LOCK_NB: i32 = 4;
    const LOCK_UN: i32 = 8;
    let owner = LockOwner::of_description(file);
    let identity = file.inode().identity()?;
    let exclusive = match operation & !LOCK_NB {
        LOCK_SH => false,
        LOCK_EX => true,
        LOCK_UN => return give_up_whole(identity, owner),
        _ => return Err(Errno::EINVAL),
    };
    file.note_locks();
    // A change of kind first gives up the old lock (`flock(2)`, NOTES).
    let held = {
        let table = TABLE.lock();
        let whole = table.files.get(&identity).map(|locks| locks.whole.iter());
        whole.and_then(|mut whole| whole.find(|held| held.0 == owner).map(|held| held.1))
    };
    if held == Some(exclusive) {
        return Ok(());
    }
    if held.is_some() {
        give_up_whole(identity, owner)?;
    }
    let wanted = Record { owner, pid: -1, first: 0, last: u64::MAX, exclusive };
    take(identity, wanted, true, operation & LOCK_NB == 0)
}

fn give_up_whole(file: (u64, u64), owner: LockOwner) -> Result<()> {
    TABLE.lock().free(file, Freed::all_of(owner), |locks| {
        locks.whole.retain(|held| held.0 != owner);
        Ok(())
    })
}

/// Registers what ends locks; boot calls it once.
pub fn init() {
    open_file::at_end(Marks::LOCKS, release_open_file);
    descriptor::at_close(release_record_locks);
}

/// The last reference to an open file is going away: its `flock` and description locks end.
fn release_open_file(file: &OpenFile) {
    let Ok(identity) = file.inode().identity() else { return };
    let owner = LockOwner::of_description(file);
    let _ = TABLE.lock().free(identity, Freed::all_of(owner), |locks| {
        locks.records.retain(|held| held.owner != owner);
        locks.whole.retain(|held| held.0 != owner);
        Ok(())
    });
}

/// A descriptor of `file` is closed in `table`: the record locks of its process on the file end.
pub fn release_record_locks(table: &FdTable, file: &OpenFile) {
    let Ok(identity) = file.inode().identity() else { return };
    let owner = LockOwner::of_table(table);
    let _ = TABLE.lock().free(identity, Freed::all_of(owner), |locks| {
        locks.records.retain(|held| held.owner != owner);
        Ok(())
    });
}

/// One line of `/proc/locks`: kind, mode, pid, identity and range.
pub struct ShownLock {
    /// `POSIX`, `OFDLCK` or `FLOCK`.
    pub kind: &'static str,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The process, -1 for none.
    pub pid: i32,
    /// Device and inode number.
    pub file: (u64, u64),
    /// The range, both ends included.
    pub range: (u64, u64),
}

/// Returns all locks that are held. `ENOMEM`.
pub fn all() -> Result<Vec<ShownLock>> {
    let table = TABLE.lock();
    let mut shown = Vec::new();
    for (&file, locks) in &table.files {
        for held in &locks.records {
            let kind = if matches!(held.owner, LockOwner::Table(_)) { "POSIX" } else { "OFDLCK" };
            let (exclusive, range) = (held.exclusive, (held.first, held.last));
            growth::push(&mut shown, ShownLock { kind, exclusive, pid: held.pid, file, range })?;
        }
        for &(_, exclusive) in &locks.whole {
            let range = (0, i64::MAX as u64);
            let kind = "FLOCK";
            growth::push(&mut shown, ShownLock { kind, exclusive, pid: -1, file, range })?;
        }
    }
    Ok(shown)
}
