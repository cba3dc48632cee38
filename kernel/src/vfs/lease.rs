//! Leases: a program is told before another process opens a file in a way that conflicts
//! (`F_SETLEASE`, fcntl(2)).
//!
//! An open file holds a read lease (broken by writers) or a write lease (broken by any other open).
//! A thread that opens or truncates the file *breaks* the conflicting leases: their holders get a
//! signal, and the thread waits until the holders gave up their leases or downgraded them, or until
//! `/proc/sys/fs/lease-break-time` is over.
//!
//! While there are no leases, opening and truncating load only one counter. Leases belong to the
//! file, found by device and inode number in one table.
//!
//! A write lease requires that its open file is the only one. Open files are counted with the
//! content of the file (`page_cache/access.rs`), by whatever name they were opened; a mapping and a
//! running program count through their open files. A file of the overlay that was copied up has two
//! contents, and both count. No open can be missed: the lease is entered before the count is read,
//! and an opener is counted before it looks for leases. A file without a page cache (such as the
//! text files of `/proc`) gets no write lease: `EAGAIN`.
//!
//! Locks: the table is a spin lock and a leaf. It is not held when signals are sent and waits
//! begin.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::time;

use super::inode::{FileKind, Inode};
use super::open_file;
use super::open_file::flags::{O_ACCMODE, O_NONBLOCK, O_RDONLY};
use super::open_file::{Marks, OpenFile};
use super::signal_owner::{Band, SignalOwner};
use super::users::Limit;
use crate::credentials::{Capability, Credentials};
use crate::reclaim::growth::Grow;
use crate::recycle;
use crate::recycle::pools;
use crate::schedule::{WaitQueue, Woken};

/// Seconds that a holder has to give up a lease; 0 means no limit.
pub static BREAK_TIME: Limit = Limit::new(|| 45);
/// Whether new leases are granted.
pub static ENABLED: Limit = Limit::new(|| 1);

/// The kind of a lease, or the kind that it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseKind {
    /// No lease.
    None = 2,
    /// Broken by writers.
    Read = 0,
    /// Broken by any other open.
    Write = 1,
}

impl LeaseKind {
    /// Converts from `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub fn parse(number: i32) -> Result<LeaseKind> {
        match number {
            0 => Ok(LeaseKind::Read),
            1 => Ok(LeaseKind::Write),
            2 => Ok(LeaseKind::None),
            _ => Err(Errno::EINVAL),
        }
    }
}

struct Lease {
    /// The address of the open file.
    file: usize,
    fd: i32,
    kind: LeaseKind,
    owner: Arc<SignalOwner>,
    /// Once the lease is broken: when it becomes a read lease by itself (`reads_at`), and when it
    /// ends by itself (`ends_at`; monotonic ns).
    reads_at: Option<u64>,
    ends_at: Option<u64>,
}

impl Lease {
    /// Whether it conflicts with an open that writes (`writes`) or only reads.
    fn conflicts(&self, writes: bool) -> bool {
        self.kind == LeaseKind::Write || writes
    }

    /// Returns the kind that it is to become (`target_leasetype`).
    fn target(&self) -> LeaseKind {
        match (self.ends_at, self.reads_at) {
            (Some(_), _) => LeaseKind::None,
            (None, Some(_)) => LeaseKind::Read,
            (None, None) => self.kind,
        }
    }

    /// Applies the deadlines that passed until `now`; `None` when the lease is over.
    fn aged(mut self, now: u64) -> Option<Lease> {
        if self.ends_at.is_some_and(|end| end <= now) {
            self.owner.reset();
            return None;
        }
        if self.reads_at.is_some_and(|end| end <= now) {
            self.kind = LeaseKind::Read;
            self.reads_at = None;
        }
        Some(self)
    }
}

/// The leases of one file, at least one, and the threads that wait for a change.
#[derive(Default)]
struct File {
    leases: Vec<Lease>,
    changes: Arc<WaitQueue>,
}

static TABLE: SpinLock<BTreeMap<(u64, u64), File>> = SpinLock::new(BTreeMap::new());

/// The number of leases in the system; usually zero.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Changes the leases of a file, after removing expired ones, and wakes the threads that wait for a
/// change.
fn change<T>(file: (u64, u64), work: impl FnOnce(&mut Vec<Lease>) -> T) -> T {
    let now = time::monotonic_ns();
    let mut table = TABLE.lock();
    let entry = table.entry(file).or_default();
    let before = entry.leases.len();
    // Removes expired leases without allocating.
    let mut index = 0;
    while index < entry.leases.len() {
        match entry.leases.swap_remove(index).aged(now) {
            Some(lease) => {
                entry.leases.push(lease);
                let last = entry.leases.len() - 1;
                entry.leases.swap(index, last);
                index += 1;
            }
            None => continue,
        }
    }
    let result = work(&mut entry.leases);
    COUNT.fetch_add(entry.leases.len() as u32, Ordering::SeqCst);
    COUNT.fetch_sub(before as u32, Ordering::SeqCst);
    let changes = Arc::clone(&entry.changes);
    let empty = if entry.leases.is_empty() { table.remove(&file) } else { None };
    drop(table);
    drop(empty);
    changes.wake_all();
    result
}

fn address(file: &OpenFile) -> usize {
    core::ptr::from_ref(file).addr()
}

/// `F_GETLEASE`
pub fn get(file: &OpenFile) -> Result<LeaseKind> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(LeaseKind::None);
    }
    let identity = file.inode().identity()?;
    let mine = |lease: &&Lease| lease.file == address(file);
    Ok(change(identity, |leases| leases.iter().find(mine).map_or(LeaseKind::None, Lease::target)))
}

/// `F_SETLEASE` through the descriptor `fd`.
pub fn set(file: &OpenFile, fd: i32, kind: LeaseKind, credentials: &Credentials) -> Result<()> {
    let attributes = file.inode().attributes();
    if credentials.fsuid != attributes.uid && !credentials.has(Capability::Lease) {
        return Err(Errno::EACCES);
    }
    if attributes.kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    if kind == LeaseKind::None {
        return if remove(file)? { Ok(()) } else { Err(Errno::EAGAIN) };
    }
    check_others(file, kind)?;
    let identity = file.inode().identity()?;
    let new = change(identity, |leases| enter(leases, file, fd, kind))?;
    if new {
        file.mark(Marks::LEASE);
        fence(Ordering::SeqCst);
        if let Err(error) = check_others(file, kind) {
            remove(file)?;
            return Err(error);
        }
    }
    file.owner().set_caller();
    Ok(())
}

/// Adds or changes a lease; returns whether it is new.
fn enter(leases: &mut Vec<Lease>, file: &OpenFile, fd: i32, kind: LeaseKind) -> Result<bool> {
    let mine = address(file);
    for other in leases.iter().filter(|lease| lease.file != mine) {
        if kind == LeaseKind::Write || other.ends_at.is_some() {
            return Err(Errno::EAGAIN);
        }
    }
    if let Some(lease) = leases.iter_mut().find(|lease| lease.file == mine) {
        (lease.kind, lease.fd, lease.reads_at) = (kind, fd, None);
        return Ok(false);
    }
    if ENABLED.get() == 0 {
        return Err(Errno::EINVAL);
    }
    leases.make_room(1)?;
    let owner = Arc::clone(file.owner());
    leases.push(Lease { file: mine, fd, kind, owner, reads_at: None, ends_at: None });
    Ok(true)
}

/// Removes the lease of an open file; returns whether there was one.
fn remove(file: &OpenFile) -> Result<bool> {
    let identity = file.inode().identity()?;
    let mine = address(file);
    let removed = change(identity, |leases| {
        let at = leases.iter().position(|lease| lease.file == mine)?;
        Some(leases.swap_remove(at))
    });
    if let Some(lease) = &removed {
        lease.owner.reset();
    }
    Ok(removed.is_some())
}

/// Registers what ends leases; boot calls it once.
pub fn init() {
    open_file::at_end(Marks::LEASE, release);
}

/// Called when the open file ends.
fn release(file: &OpenFile) {
    // Without metadata there is no file with leases either.
    let _ = remove(file);
}

/// Checks that other open files do not rule out the lease (`check_conflicting_open`, fs/locks.c):
/// `EAGAIN`.
fn check_others(file: &OpenFile, kind: LeaseKind) -> Result<()> {
    if is_free(file, kind) {
        return Ok(());
    }
    // A file that was mapped by an ended program and is kept does not count as an open file.
    pools::drop_all(Some(recycle::ResourceKind::Attachment));
    pools::drop_all(Some(recycle::ResourceKind::Image));
    if is_free(file, kind) { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Whether no other open file rules out the lease.
fn is_free(file: &OpenFile, kind: LeaseKind) -> bool {
    let inode = file.inode();
    let (mut readers, mut writers) = (0, 0);
    for page_cache in inode.page_cache().into_iter().chain(inode.earlier_page_cache()) {
        readers += page_cache.readers();
        writers += page_cache.writers();
    }
    let own = (usize::from(!file.writable()), usize::from(file.writable()));
    match kind {
        LeaseKind::None => true,
        LeaseKind::Read => writers == 0,
        LeaseKind::Write => (readers, writers) == own,
    }
}

/// Breaks the leases that conflict with an open with these flags, and waits for their holders; with
/// `O_NONBLOCK` fails with `EWOULDBLOCK` instead.
#[inline]
pub fn break_for(inode: &Arc<dyn Inode>, flags: u32) -> Result<()> {
    if COUNT.load(Ordering::SeqCst) == 0 { Ok(()) } else { break_leases(inode, flags) }
}

#[cold]
fn break_leases(inode: &Arc<dyn Inode>, flags: u32) -> Result<()> {
    let identity = inode.identity()?;
    let writes = flags & O_ACCMODE != O_RDONLY;
    let end = match BREAK_TIME.get() as u64 {
        0 => u64::MAX,
        seconds => time::monotonic_ns().saturating_add(seconds.saturating_mul(1_000_000_000)),
    };
    while let Some((owner, fd)) = change(identity, |leases| break_one(leases, writes, end)) {
        owner.tell(fd, Band::Message);
    }
    loop {
        let Some((queue, deadline)) = in_the_way(identity, writes) else { return Ok(()) };
        if flags & O_NONBLOCK != 0 {
            return Err(Errno::EAGAIN);
        }
        let gone = || match in_the_way(identity, writes) {
            Some((_, later)) if later == deadline => None,
            _ => Some(()),
        };
        let until = (deadline != u64::MAX).then_some(deadline);
        match queue.wait_interruptible(until, gone) {
            Err(Woken::Interrupted) => return Err(Errno::ERESTARTSYS),
            // Removes the leases whose time is over.
            Ok(()) | Err(Woken::TimedOut) => change(identity, |_| ()),
        }
    }
}

/// Marks the next conflicting lease that is not yet marked as broken; returns the owner and
/// descriptor to signal.
fn break_one(leases: &mut [Lease], writes: bool, end: u64) -> Option<(Arc<SignalOwner>, i32)> {
    for lease in leases.iter_mut().filter(|lease| lease.conflicts(writes)) {
        let told = lease.ends_at.is_some() || !writes && lease.reads_at.is_some();
        if told {
            continue;
        }
        if writes {
            lease.ends_at = Some(end);
        } else {
            lease.reads_at = Some(end);
        }
        return Some((Arc::clone(&lease.owner), lease.fd));
    }
    None
}

/// Returns the queue on which to wait for the conflicting leases, and the deadline; `None` when
/// none conflicts.
fn in_the_way(file: (u64, u64), writes: bool) -> Option<(Arc<WaitQueue>, u64)> {
    let table = TABLE.lock();
    let entry = table.get(&file)?;
    let mut conflicts = entry.leases.iter().filter(|lease| lease.conflicts(writes)).peekable();
    conflicts.peek()?;
    let ends = conflicts.filter_map(|lease| match (lease.ends_at, lease.reads_at) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    });
    Some((Arc::clone(&entry.changes), ends.min().unwrap_or(u64::MAX)))
}
