//! Segments of shared memory (`shmget(2)`, `shmop(2)`, `shmctl(2)`).
//!
//! A segment is a page cache without a file, as shared anonymous memory is, with a name: its
//! identifier. A process attaches it; the mapping ([`crate::memory`]) then holds an [`Attachment`],
//! and the last part of the mapping that is unmapped drops it. A segment that was removed is
//! destroyed with its last attachment.
//!
//! **The number of attachments** (`shm_nattch`) is not counted by fork, exec and exit. Each mapping
//! that shmat made has one object that all of its parts share, in whatever space: the parts that a
//! fork copied, or that mprotect split off. So the number of attachments is that of the references
//! to these objects ([`Attached`]), and is added up when somebody asks. A thread that looks at
//! another's mappings (`/proc/PID/maps`) holds references meanwhile, and counts as well. The times
//! and processes of the last attachment and detachment are noted where regions with a segment are
//! copied and removed; a space without segments has one flag that says so.
//!
//! **Memory.** Pages of segments outlive processes, so that no killed process gives them back. All
//! segments together may have half of the machine's memory, as many as a tmpfs; a program that
//! touches a page beyond it gets SIGBUS, as with a full tmpfs. `shmget` refuses a segment that is
//! larger than all memory with `ENOMEM`, as Linux does, and what exceeds `kernel.shmall` with
//! `ENOSPC`.
//!
//! There is no swap, so `SHM_LOCK` only counts, against `RLIMIT_MEMLOCK`.
//!
//! Lock order: see [`super`]. A space's lock comes before a segment's, but never before the
//! table's: a segment is destroyed where the attachment is dropped, with no lock held.
//!
//! Road not taken: Linux' counter that each mapping raises and lowers. Fork and exit would pay for
//! it with every mapping.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::ids::PRIVATE;
use hayate_ipc_rules::permission::Permission;
use hayate_machine::frames;
use hayate_machine::frames::Frame;
use hayate_machine::sync::{Lazy, SpinLock};

use super::head::Head;
use super::now;
use super::objects::{Object, Objects};
use crate::credentials::Capability;
use crate::ipc::account::{Share, Total};
use crate::ipc::actor::{Actor, READ};
use crate::namespace::{Handle, Home};
use crate::page_cache::cache::{PAGE, PageCache};
use crate::page_cache::source::PageSource;
use crate::reclaim::growth::Grow;
use crate::vfs::caller;
use crate::vfs::users;
use crate::vfs::users::Holdings;

/// `SHM_NORESERVE`
const NO_RESERVE: u32 = 0o10000;
/// `SHM_HUGETLB`
const HUGE: u32 = 0o4000;
/// `SHM_DEST`, in a mode: destroyed with the last attachment.
const DESTROYED: u32 = 0o1000;
/// `SHM_LOCKED`, in a mode.
const LOCKED: u32 = 0o2000;

/// `SHMMNI`
const MOST: usize = 4096;
/// `SHMMAX` and `SHMALL` (`include/uapi/linux/shm.h`).
const UNLIMITED: u64 = u64::MAX - (1 << 24);

/// All segments of a namespace, and its settings.
pub struct Segments {
    /// The table.
    pub objects: Objects<Segment>,
    /// The largest segment, in bytes (`kernel.shmmax`).
    pub largest: AtomicU64,
    /// The most pages of all segments, whether touched or not (`kernel.shmall`).
    pub most_pages: AtomicU64,
    /// Whether a segment is destroyed with its last attachment, removed or not
    /// (`kernel.shm_rmid_forced`).
    forced: AtomicBool,
    /// The pages of all segments, whether touched or not.
    pages: Handle<Total>,
}

/// Those of the first namespace.
pub static FIRST: Segments = {
    static PAGES: Total = Total::new();
    Segments::with(Handle::First(&PAGES))
};

impl Segments {
    /// Those of another namespace.
    pub fn another() -> Segments {
        Segments::with(Handle::another())
    }

    const fn with(pages: Handle<Total>) -> Segments {
        Segments {
            objects: Objects::new(MOST),
            largest: AtomicU64::new(UNLIMITED),
            most_pages: AtomicU64::new(UNLIMITED),
            forced: AtomicBool::new(false),
            pages,
        }
    }

    /// Whether `kernel.shm_rmid_forced` is set.
    pub fn is_forced(&self) -> bool {
        self.forced.load(Ordering::Relaxed)
    }

    /// Sets `kernel.shm_rmid_forced`; with it, destroys the segments of ended threads without
    /// attachments.
    pub fn set_forced(&self, forced: bool) {
        self.forced.store(forced, Ordering::Relaxed);
        if forced {
            self.destroy_orphans();
        }
    }

    /// The pages of all segments: as they were asked for, and those in memory.
    pub fn pages(&self) -> (u64, u64) {
        let mut resident = 0;
        // Nothing in it fails.
        let _ = self.objects.for_each(|segment| {
            resident += segment.memory.resident();
            Ok(())
        });
        (self.pages.sum() as u64, resident)
    }

    /// The thread with these traces ends: its segments have no maker any more (`exit_shm`,
    /// ipc/shm.c).
    pub(super) fn maker_ends(&self, serial: u64) {
        let orphan = |segment: &Arc<Segment>| {
            let mut state = segment.state.lock();
            if state.maker == serial {
                state.maker = 0;
            }
            Ok(())
        };
        // Nothing in it fails.
        let _ = self.objects.for_each(orphan);
        if self.is_forced() {
            self.destroy_orphans();
        }
    }

    /// Destroys what has neither attachments nor a maker (`shm_destroy_orphaned`).
    fn destroy_orphans(&self) {
        let destroy = |segment: &Arc<Segment>| {
            if segment.state.lock().maker == 0 {
                segment.destroy_if_unused(self);
            }
            Ok(())
        };
        let _ = self.objects.for_each(destroy);
    }

    /// Checks what a new segment of so many bytes needs, and takes its share of the pages.
    fn admit(&self, bytes: u64, flags: u32) -> Result<Share> {
        if bytes == 0 || bytes > self.largest.load(Ordering::Relaxed) {
            return Err(Errno::EINVAL);
        }
        let pages = bytes.div_ceil(PAGE as u64);
        let most = self.most_pages.load(Ordering::Relaxed) as usize;
        let share = self.pages.share(pages as usize, most).ok_or(Errno::ENOSPC)?;
        if flags & HUGE != 0 {
            return Err(huge(flags));
        }
        if bytes > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        if flags & NO_RESERVE == 0 && pages > frames::total() as u64 {
            return Err(Errno::ENOMEM);
        }
        Ok(share)
    }
}

impl Handle<Segments> {
    /// `shmget(2)`: the identifier of a segment that is found or made. `maker` tells the number of
    /// the thread that makes it (`Traces::maker`).
    pub fn obtain(
        &self,
        actor: &Actor,
        maker: impl Fn() -> u64,
        (key, size, flags): (i32, usize, u32),
    ) -> Result<i32> {
        self.objects.obtain(actor, (key, size, flags), || {
            let size = size as u64;
            let share = self.admit(size, flags)?;
            Ok(Draft {
                home: self.home(),
                key,
                size,
                memory: PageCache::memory_counted(size, ACCOUNT.clone()),
                share,
                permission: actor.permission(flags),
                creator: actor.process,
                maker: maker(),
            })
        })
    }
}

/// Counts the pages that segments have in memory.
struct Account {
    used: Total,
}

static ACCOUNT: Lazy<Arc<Account>> = Lazy::new(|| Arc::new(Account { used: Total::new() }));

impl PageSource for Account {
    fn read_pages(&self, _: u64, _: &[Frame]) -> Result<usize> {
        Err(Errno::EIO)
    }

    fn charge(&self, pages: u64) -> Result<()> {
        let is_added = self.used.add(pages as usize, frames::total() / 2);
        if is_added { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    fn uncharge(&self, pages: u64) {
        self.used.subtract(pages as usize);
    }

    fn memory_only(&self) -> bool {
        true
    }
}

/// What a mapping of a segment has one of: its references are the attachments.
pub trait Attached: Send + Sync {}

/// A segment.
pub struct Segment {
    id: i32,
    /// The table that it is in; a segment that is attached may outlive it.
    home: Home<Segments>,
    /// The key that it was made with, which is its name in `/proc/PID/maps`.
    key: i32,
    size: u64,
    memory: Arc<PageCache>,
    _share: Share,
    state: SpinLock<State>,
}

struct State {
    head: Head,
    /// The mappings that shmat made.
    mappings: Vec<Option<Weak<dyn Attached>>>,
    /// The free places among them; it has room for all.
    free: Vec<usize>,
    attached_at: i64,
    detached_at: i64,
    creator: u32,
    last: u32,
    /// The thread that made it (`Traces::maker`); 0: it has ended.
    maker: u64,
    /// The user whose locked pages it counts among.
    locker: Option<Arc<Holdings>>,
}

impl State {
    /// The mappings that shmat made and that are there.
    fn live(&self) -> usize {
        self.mappings.len() - self.free.len()
    }

    fn attachments(&self) -> usize {
        self.mappings.iter().flatten().map(Weak::strong_count).sum()
    }

    /// Whether it goes now: it has no attachment and is not to outlive the last, as its mode or the
    /// setting of its namespace says.
    fn goes(&self, forced: bool) -> bool {
        self.head.is_there
            && self.live() == 0
            && (forced || self.head.permission.mode & DESTROYED != 0)
    }
}

/// What `shmctl` and `/proc/sysvipc/shm` show of a segment.
#[allow(missing_docs, reason = "named as in shmctl(2)")]
pub struct Status {
    pub id: i32,
    pub key: i32,
    pub permission: Permission,
    pub size: u64,
    pub attached_at: i64,
    pub detached_at: i64,
    pub changed_at: i64,
    pub creator: u32,
    pub last: u32,
    pub attachments: usize,
    pub resident: u64,
}

/// A segment before it has an identifier.
pub struct Draft {
    home: Home<Segments>,
    key: i32,
    size: u64,
    memory: Arc<PageCache>,
    share: Share,
    permission: Permission,
    creator: u32,
    maker: u64,
}

impl Object for Segment {
    type Draft = Draft;

    fn finish(draft: Draft, id: i32) -> Segment {
        Segment {
            id,
            home: draft.home,
            key: draft.key,
            size: draft.size,
            memory: draft.memory,
            _share: draft.share,
            state: SpinLock::new(State {
                head: Head::new(draft.permission, draft.key),
                mappings: Vec::new(),
                free: Vec::new(),
                attached_at: 0,
                detached_at: 0,
                creator: draft.creator,
                last: 0,
                maker: draft.maker,
                locker: None,
            }),
        }
    }

    fn id(&self) -> i32 {
        self.id
    }

    fn check(&self, actor: &Actor, size: usize, flags: u32) -> Result<()> {
        if self.size < size as u64 {
            return Err(Errno::EINVAL);
        }
        actor.may(&self.state.lock().head.permission, flags)
    }
}

/// Why there is no segment of huge pages: `EINVAL` for a size that the processor does not have,
/// `ENOMEM` because there is no pool of them (`nr_hugepages` is 0).
fn huge(flags: u32) -> Errno {
    // MAP_HUGE_SHIFT; 0 is the usual size, else the logarithm: 2 MiB or 1 GiB.
    match flags >> 26 & 0x3f {
        0 | 21 | 30 => Errno::ENOMEM,
        _ => Errno::EINVAL,
    }
}

impl Segment {
    /// Its pages.
    pub fn memory(&self) -> &Arc<PageCache> {
        &self.memory
    }

    /// Its size in bytes, which need not be whole pages.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What is shown of it.
    pub fn status(&self) -> Status {
        let resident = self.memory.resident();
        let state = self.state.lock();
        Status {
            id: self.id,
            key: state.head.key,
            permission: state.head.permission,
            size: self.size,
            attached_at: state.attached_at,
            detached_at: state.detached_at,
            changed_at: state.head.changed_at,
            creator: state.creator,
            last: state.last,
            attachments: state.attachments(),
            resident,
        }
    }

    /// Begins an attachment for these accesses: `EACCES`, `EIDRM`, `ENOMEM`. As long as it is
    /// there, so is the segment.
    pub fn attach(self: &Arc<Self>, actor: &Actor, wanted: u32) -> Result<Attachment> {
        let mut state = self.state.lock();
        state.head.open(actor, wanted)?;
        let place = match state.free.pop() {
            Some(place) => place,
            None => {
                let all = state.mappings.len() + 1;
                let kept = state.free.len();
                state.free.make_room(all - kept)?;
                state.mappings.make_room(1)?;
                state.mappings.push(None);
                all - 1
            }
        };
        drop(state);
        Ok(Attachment { segment: self.clone(), place, is_mapped: AtomicBool::new(false) })
    }

    /// Notes that the calling process attached it.
    fn note_attached(&self) {
        let mut state = self.state.lock();
        state.attached_at = now();
        state.last = caller::process();
    }

    /// Notes that the calling process detached it.
    fn note_detached(&self) {
        let mut state = self.state.lock();
        state.detached_at = now();
        state.last = caller::process();
    }

    /// Removes it from the table that it is in (`IPC_RMID`), or marks it so that its last
    /// attachment does: `EPERM`, `EIDRM`.
    pub fn remove(&self, all: &Segments, actor: &Actor) -> Result<()> {
        let mut table = all.objects.lock();
        let mut state = self.state.lock();
        state.head.own(actor)?;
        state.head.permission.mode |= DESTROYED;
        state.head.key = PRIVATE;
        if state.live() != 0 {
            table.forget_key(self.id);
            return Ok(());
        }
        state.head.is_there = false;
        drop(state);
        let gone = table.remove(self.id);
        drop(table);
        drop(gone);
        Ok(())
    }

    /// Destroys it if it has no attachment any more and is not to outlive the last.
    fn destroy_if_unused(&self, all: &Segments) {
        let mut table = all.objects.lock();
        let mut state = self.state.lock();
        if !state.goes(all.is_forced()) {
            return;
        }
        state.head.is_there = false;
        drop(state);
        let gone = table.remove(self.id);
        drop(table);
        drop(gone);
    }

    /// Changes its owner and mode (`IPC_SET`): `EPERM`, `EIDRM`.
    pub fn set(&self, actor: &Actor, new: (u32, u32, u32)) -> Result<()> {
        let mut state = self.state.lock();
        state.head.own(actor)?;
        state.head.set(new);
        Ok(())
    }

    /// Looks whether the caller may read it: `EACCES`; `EIDRM`.
    pub fn check_readable(&self, actor: &Actor) -> Result<()> {
        self.state.lock().head.open(actor, READ)
    }

    /// Locks it in memory or unlocks it (`SHM_LOCK`, `SHM_UNLOCK`): `EPERM`, `EIDRM`, and `ENOMEM`
    /// beyond `limit` (`RLIMIT_MEMLOCK`, in bytes).
    pub fn lock(&self, actor: &Actor, lock: bool, limit: u64) -> Result<()> {
        let privileged = actor.has(Capability::IpcLock);
        let holdings = users::of(actor.credentials.uid)?;
        let pages = self.memory.page_count() as usize;
        let mut state = self.state.lock();
        if !privileged {
            let owns = state.head.permission.is_owner(actor.credentials.euid);
            if !owns || (lock && limit == 0) {
                return Err(Errno::EPERM);
            }
        }
        state.head.exists()?;
        if lock == (state.head.permission.mode & LOCKED != 0) {
            return Ok(());
        }
        if lock {
            let all = holdings.locked_pages.add(pages);
            if all as u64 > limit / PAGE as u64 && !privileged {
                holdings.locked_pages.give(pages);
                return Err(Errno::ENOMEM);
            }
            state.head.permission.mode |= LOCKED;
            state.locker = Some(holdings);
        } else {
            state.head.permission.mode &= !LOCKED;
            if let Some(locker) = state.locker.take() {
                locker.locked_pages.give(pages);
            }
        }
        Ok(())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(locker) = self.state.get_mut().locker.take() {
            locker.locked_pages.give(self.memory.page_count() as usize);
        }
    }
}

/// One mapping of a segment, made by shmat, with all parts that it was split into and all copies
/// that forks made. It belongs to the object that is [`Attached`].
pub struct Attachment {
    segment: Arc<Segment>,
    place: usize,
    /// Whether the mapping was made, so that its end is a detachment.
    is_mapped: AtomicBool,
}

impl Attachment {
    /// The segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The number and the key in the name of the mapping.
    pub fn name(&self) -> (i32, i32) {
        (self.segment.id, self.segment.key)
    }

    /// Names the object whose references are the attachments.
    pub fn belong_to(&self, owner: Weak<dyn Attached>) {
        if let Some(place) = self.segment.state.lock().mappings.get_mut(self.place) {
            *place = Some(owner);
        }
    }

    /// Notes that the calling process mapped it, or that its fork copied it.
    pub fn note_attached(&self) {
        self.is_mapped.store(true, Ordering::Relaxed);
        self.segment.note_attached();
    }

    /// Notes that the calling process unmapped a part.
    pub fn note_detached(&self) {
        self.segment.note_detached();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.is_mapped.load(Ordering::Relaxed) {
            self.segment.note_detached();
        }
        let all = self.segment.home.get();
        let goes = {
            let mut state = self.segment.state.lock();
            if let Some(place) = state.mappings.get_mut(self.place) {
                *place = None;
            }
            // There is room for all places.
            state.free.push(self.place);
            state.goes(all.as_ref().is_some_and(|all| all.is_forced()))
        };
        // Without its table it ends with the last reference.
        if let Some(all) = all.filter(|_| goes) {
            self.segment.destroy_if_unused(&all);
        }
    }
}

/// The pages of the segments of all namespaces that are in memory.
pub fn resident_pages() -> u64 {
    ACCOUNT.used.sum() as u64
}
