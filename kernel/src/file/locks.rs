//! File locks: record locks (`F_SETLK`), open file description locks (`F_OFD_SETLK`) and whole
//! file locks (`flock(2)`).
//!
//! Locks belong to the file, found by device and inode number in one table under one spin lock:
//! they are rare, short and never on a path that must be fast. Record locks are owned by a
//! descriptor table (that is Linux' notion of "process" here), the others by an open file.
//!
//! A wait for a record lock records whom it waits for, so that a circle is found and refused
//! (`EDEADLK`) before anybody sleeps in it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::file::Flock;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::descriptor::FdTable;
use super::open_file::OpenFile;
use crate::schedule::WaitQueue;

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A descriptor table, by address.
    Table(usize),
    /// An open file, by address.
    Description(usize),
}

impl Owner {
    /// A process, by its descriptor table.
    pub fn of_table(table: &FdTable) -> Owner {
        Owner::Table((&raw const *table).addr())
    }

    /// An open file.
    pub fn of_description(file: &OpenFile) -> Owner {
        Owner::Description((&raw const *file).addr())
    }
}

/// A locked range, both ends included.
#[derive(Clone, Copy)]
struct Record {
    owner: Owner,
    pid: i32,
    first: u64,
    last: u64,
    exclusive: bool,
}

#[derive(Default)]
struct FileLocks {
    records: Vec<Record>,
    whole: Vec<(Owner, bool)>,
    queue: Option<Arc<WaitQueue>>,
}

/// Whom somebody waits for, and at which file.
struct Wait {
    holder: Owner,
    file: (u64, u64),
}

#[derive(Default)]
struct Table {
    files: BTreeMap<(u64, u64), FileLocks>,
    /// Who waits for whom.
    waiting: BTreeMap<Owner, Wait>,
}

static TABLE: SpinLock<Table> =
    SpinLock::new(Table { files: BTreeMap::new(), waiting: BTreeMap::new() });

impl FileLocks {
    /// A lock of somebody else that keeps `wanted` from being taken.
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

    /// Takes the owner's locks out of a range, splitting those that reach beyond.
    fn clear(&mut self, owner: Owner, first: u64, last: u64) {
        let mut kept = Vec::with_capacity(self.records.len() + 1);
        for held in self.records.drain(..) {
            if held.owner != owner || held.last < first || last < held.first {
                kept.push(held);
                continue;
            }
            if held.first < first {
                kept.push(Record { last: first - 1, ..held });
            }
            if held.last > last {
                kept.push(Record { first: last + 1, ..held });
            }
        }
        self.records = kept;
    }

    /// Adds a lock, joining it with neighbours of the same kind.
    fn add(&mut self, mut new: Record) {
        self.clear(new.owner, new.first, new.last);
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
        let at = self.records.iter().position(|held| held.first > new.first);
        self.records.insert(at.unwrap_or(self.records.len()), new);
    }

    fn is_idle(&self) -> bool {
        self.records.is_empty()
            && self.whole.is_empty()
            && self.queue.as_ref().is_none_or(|queue| Arc::strong_count(queue) == 1)
    }
}

impl Table {
    /// Runs `change` on a file's locks and wakes those who wait for them.
    fn change(&mut self, file: (u64, u64), change: impl FnOnce(&mut FileLocks)) {
        let Some(locks) = self.files.get_mut(&file) else { return };
        change(locks);
        if let Some(queue) = &locks.queue {
            queue.wake_all();
        }
        // Those who are woken look again; until then nobody may think that they still wait.
        self.waiting.retain(|_, wait| wait.file != file);
        if locks.is_idle() {
            self.files.remove(&file);
        }
    }

    /// Whether waiting for `blocker` would close a circle back to `owner`.
    fn would_deadlock(&self, owner: Owner, blocker: Owner) -> bool {
        let mut next = blocker;
        for _ in 0..=self.waiting.len() {
            if next == owner {
                return true;
            }
            match self.waiting.get(&next) {
                Some(wait) => next = wait.holder,
                None => return false,
            }
        }
        false
    }
}

/// Works out the range that a `struct flock` means.
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

fn record(file: &OpenFile, owner: Owner, pid: i32, lock: &Flock) -> Result<Record> {
    let (first, last) = range(file, lock)?;
    let exclusive = match lock.l_type {
        F_RDLCK | F_UNLCK => false,
        F_WRLCK => true,
        _ => return Err(Errno::EINVAL),
    };
    Ok(Record { owner, pid, first, last, exclusive })
}

/// `F_GETLK` and `F_OFD_GETLK`: puts a conflicting lock into `lock`, or `F_UNLCK`.
pub fn query(file: &OpenFile, owner: Owner, lock: &mut Flock) -> Result<()> {
    let unlock_asked = lock.l_type == F_UNLCK && matches!(owner, Owner::Table(_));
    if unlock_asked {
        return Err(Errno::EINVAL);
    }
    let wanted = record(file, owner, 0, lock)?;
    let identity = file.metadata()?.identity();
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

/// `F_SETLK`, `F_SETLKW` (`wait`) and their description twins. `pid` is what others see.
pub fn set(file: &OpenFile, owner: Owner, pid: i32, lock: &Flock, wait: bool) -> Result<()> {
    let wanted = record(file, owner, pid, lock)?;
    let identity = file.metadata()?.identity();
    match lock.l_type {
        F_RDLCK if !file.readable() => return Err(Errno::EBADF),
        F_WRLCK if !file.writable() => return Err(Errno::EBADF),
        F_UNLCK => {
            let (first, last) = (wanted.first, wanted.last);
            TABLE.lock().change(identity, |locks| locks.clear(owner, first, last));
            return Ok(());
        }
        _ => {}
    }
    if matches!(owner, Owner::Description(_)) {
        file.note_locks();
    }
    let attempt = || -> Result<()> {
        let mut table = TABLE.lock();
        let locks = table.files.entry(identity).or_default();
        match locks.conflict(&wanted) {
            Some(held) => {
                if wait && matches!(owner, Owner::Table(_)) {
                    if table.would_deadlock(owner, held.owner) {
                        return Err(Errno::EDEADLK);
                    }
                    table.waiting.insert(owner, Wait { holder: held.owner, file: identity });
                }
                Err(Errno::EAGAIN)
            }
            None => {
                locks.add(wanted);
                // A lock turned from exclusive to shared lets others in.
                if let Some(queue) = &locks.queue {
                    queue.wake_all();
                }
                // With the lock itself, lest somebody who finds it held takes its new holder for
                // one who waits.
                table.waiting.remove(&owner);
                Ok(())
            }
        }
    };
    let outcome = take(identity, wait, attempt);
    TABLE.lock().waiting.remove(&owner);
    outcome
}

/// Runs `attempt` until it does not say `EAGAIN`, sleeping in between if `wait`.
fn take(identity: (u64, u64), wait: bool, attempt: impl Fn() -> Result<()>) -> Result<()> {
    match attempt() {
        Err(Errno::EAGAIN) if wait => {}
        other => return other,
    }
    let queue = {
        let mut table = TABLE.lock();
        let locks = table.files.entry(identity).or_default();
        Arc::clone(locks.queue.get_or_insert_with(|| Arc::new(WaitQueue::new())))
    };
    let outcome = queue.wait_interruptible(None, || match attempt() {
        Err(Errno::EAGAIN) => None,
        other => Some(other),
    });
    drop(queue);
    TABLE.lock().change(identity, |_| {});
    outcome.unwrap_or(Err(Errno::ERESTARTSYS))
}

/// `flock(2)`
pub fn flock(file: &OpenFile, operation: i32) -> Result<()> {
    const LOCK_SH: i32 = 1;
    const LOCK_EX: i32 = 2;
    const LOCK_NB: i32 = 4;
    const LOCK_UN: i32 = 8;
    let owner = Owner::of_description(file);
    let identity = file.metadata()?.identity();
    let exclusive = match operation & !LOCK_NB {
        LOCK_SH => false,
        LOCK_EX => true,
        LOCK_UN => {
            TABLE.lock().change(identity, |locks| locks.whole.retain(|held| held.0 != owner));
            return Ok(());
        }
        _ => return Err(Errno::EINVAL),
    };
    file.note_locks();
    // A change of kind gives the old lock up first (`flock(2)`, NOTES).
    {
        let mut table = TABLE.lock();
        let held = table
            .files
            .get(&identity)
            .and_then(|locks| locks.whole.iter().find(|held| held.0 == owner).map(|held| held.1));
        if held == Some(exclusive) {
            return Ok(());
        }
        if held.is_some() {
            table.change(identity, |locks| locks.whole.retain(|held| held.0 != owner));
        }
    }
    let attempt = || {
        let mut table = TABLE.lock();
        let locks = table.files.entry(identity).or_default();
        if locks.whole.iter().any(|held| held.1 || exclusive) {
            return Err(Errno::EAGAIN);
        }
        locks.whole.push((owner, exclusive));
        Ok(())
    };
    take(identity, operation & LOCK_NB == 0, attempt)
}

/// The last reference to an open file is going away: its `flock` and description locks end.
pub fn release_open_file(file: &OpenFile) {
    let Ok(metadata) = file.metadata() else { return };
    let owner = Owner::of_description(file);
    TABLE.lock().change(metadata.identity(), |locks| {
        locks.records.retain(|held| held.owner != owner);
        locks.whole.retain(|held| held.0 != owner);
    });
}

/// A descriptor of `file` is closed in `table`: the record locks of its process on the file end.
pub fn release_record_locks(table: &FdTable, file: &OpenFile) {
    let Ok(metadata) = file.metadata() else { return };
    let owner = Owner::of_table(table);
    TABLE.lock().change(metadata.identity(), |locks| {
        locks.records.retain(|held| held.owner != owner);
    });
}

/// One line of `/proc/locks`: kind, mode, pid, identity and range.
pub struct Shown {
    /// `POSIX`, `OFDLCK` or `FLOCK`.
    pub kind: &'static str,
    /// Whether it excludes everybody else.
    pub exclusive: bool,
    /// The process, -1 for none.
    pub pid: i32,
    /// Device and inode number.
    pub file: (u64, u64),
    /// The range, both ends included.
    pub range: (u64, u64),
}

/// All locks held, for `/proc/locks`.
pub fn all() -> Vec<Shown> {
    let table = TABLE.lock();
    let mut shown = Vec::new();
    for (&file, locks) in &table.files {
        for held in &locks.records {
            let kind = if matches!(held.owner, Owner::Table(_)) { "POSIX" } else { "OFDLCK" };
            shown.push(Shown {
                kind,
                exclusive: held.exclusive,
                pid: held.pid,
                file,
                range: (held.first, held.last),
            });
        }
        for &(_, exclusive) in &locks.whole {
            let range = (0, i64::MAX as u64);
            shown.push(Shown { kind: "FLOCK", exclusive, pid: -1, file, range });
        }
    }
    shown
}
