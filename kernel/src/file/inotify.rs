//! Watching files (`inotify(7)`).
//!
//! An instance has watches, each on one inode, found by device and inode number in a global
//! table. A report looks the inode up there and puts an event into the queue of every instance
//! that wants it. Nothing of this is touched while there are no watches in the system (see
//! [`super::notify`]).
//!
//! Locks: the table's, then an instance's; both spin.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::user::UserPtr;

use super::anonymous;
use super::inode::{FileKind, Inode};
use super::notify::{Mask, WATCHES};
use super::open_file::flags::{O_NONBLOCK, O_RDONLY};
use super::open_file::{FileOps, OpenFile, Traits};
use super::poll::{Events, Registrar};
use super::transfer::Output;
use crate::schedule::WaitQueue;

/// Events that wait at most (`fs.inotify.max_queued_events`).
const QUEUE_MAX: usize = 16384;
/// Watches of one instance at most (`fs.inotify.max_user_watches` is of this order).
const WATCHES_MAX: usize = 65536;

/// What a caller may ask for: all events.
const ALL: Mask = Mask::from_bits_truncate(0xfff);

#[derive(Clone, PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: Mask,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    /// The length in the program's buffer: the name padded to the size of the head.
    fn size(&self) -> usize {
        const HEAD: usize = 16;
        let name =
            if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(HEAD) };
        HEAD + name
    }

    fn encode(&self) -> Vec<u8> {
        let size = self.size();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&self.watch.to_le_bytes());
        bytes.extend_from_slice(&self.mask.bits().to_le_bytes());
        bytes.extend_from_slice(&self.cookie.to_le_bytes());
        bytes.extend_from_slice(&(size as u32 - 16).to_le_bytes());
        bytes.extend_from_slice(&self.name);
        bytes.resize(size, 0);
        bytes
    }
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// By watch number: where the watch is found in the table.
    watches: BTreeMap<i32, (u64, u64)>,
    last: i32,
}

/// An instance.
pub struct Inotify {
    me: Weak<Inotify>,
    state: SpinLock<State>,
    arrivals: WaitQueue,
}

struct Watch {
    instance: Weak<Inotify>,
    number: i32,
    mask: Mask,
    /// Keeps the inode number from being used again.
    _inode: Arc<dyn Inode>,
}

static TABLE: SpinLock<BTreeMap<(u64, u64), Vec<Watch>>> = SpinLock::new(BTreeMap::new());

/// Opens an instance; `flags` has `O_NONBLOCK` or not.
pub fn open(flags: u32) -> Result<Arc<OpenFile>> {
    let instance = Arc::new_cyclic(|me| Inotify {
        me: me.clone(),
        state: SpinLock::new(State::default()),
        arrivals: WaitQueue::new(),
    });
    anonymous::open("inotify", instance, O_RDONLY | flags & O_NONBLOCK)
}

impl Inotify {
    /// The instance behind an open file.
    pub fn of(file: &OpenFile) -> Result<&Inotify> {
        file.ops_as::<Inotify>().ok_or(Errno::EINVAL)
    }

    /// `inotify_add_watch(2)`: gives the watch's number.
    pub fn add(&self, inode: &Arc<dyn Inode>, mask: Mask) -> Result<i32> {
        if !mask.intersects(ALL) {
            return Err(Errno::EINVAL);
        }
        if mask.contains(Mask::MASK_ADD) && mask.contains(Mask::MASK_CREATE) {
            return Err(Errno::EINVAL);
        }
        let kept = mask & (ALL | Mask::ONESHOT | Mask::EXCL_UNLINK);
        let identity = inode.metadata()?.identity();
        let mut table = TABLE.lock();
        let watches = table.entry(identity).or_default();
        let mine = watches.iter_mut().find(|watch| watch.instance.as_ptr() == self.me.as_ptr());
        if let Some(watch) = mine {
            if mask.contains(Mask::MASK_CREATE) {
                return Err(Errno::EEXIST);
            }
            watch.mask = if mask.contains(Mask::MASK_ADD) { watch.mask | kept } else { kept };
            return Ok(watch.number);
        }
        let mut state = self.state.lock();
        if state.watches.len() >= WATCHES_MAX {
            return Err(Errno::ENOSPC);
        }
        state.last = state.last.checked_add(1).ok_or(Errno::ENOSPC)?;
        let number = state.last;
        state.watches.insert(number, identity);
        watches.push(Watch {
            instance: self.me.clone(),
            number,
            mask: kept,
            _inode: Arc::clone(inode),
        });
        WATCHES.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// `inotify_rm_watch(2)`
    pub fn remove(&self, number: i32) -> Result<()> {
        let identity = self.state.lock().watches.remove(&number).ok_or(Errno::EINVAL)?;
        let taken = take_watch(identity, &self.me, number);
        self.push(Event { watch: number, mask: Mask::IGNORED, cookie: 0, name: Vec::new() });
        drop(taken);
        Ok(())
    }

    fn push(&self, event: Event) {
        let mut state = self.state.lock();
        if state.events.back() == Some(&event) {
            return;
        }
        if state.events.len() >= QUEUE_MAX {
            let lost = Event { watch: -1, mask: Mask::Q_OVERFLOW, cookie: 0, name: Vec::new() };
            if state.events.back() != Some(&lost) {
                state.events.push_back(lost);
            }
        } else {
            state.events.push_back(event);
        }
        drop(state);
        self.arrivals.wake_all();
    }

    /// Takes as many whole events as fit into `room` bytes.
    fn take(&self, room: usize) -> Option<Result<Vec<u8>>> {
        let mut state = self.state.lock();
        let first = state.events.front()?;
        if first.size() > room {
            return Some(Err(Errno::EINVAL));
        }
        let mut bytes = Vec::new();
        while let Some(event) = state.events.front() {
            if bytes.len() + event.size() > room {
                break;
            }
            bytes.extend_from_slice(&event.encode());
            state.events.pop_front();
        }
        Some(Ok(bytes))
    }
}

/// Takes one watch out of the table; dropped by the caller after its locks.
fn take_watch(identity: (u64, u64), instance: &Weak<Inotify>, number: i32) -> Option<Watch> {
    let mut table = TABLE.lock();
    let watches = table.get_mut(&identity)?;
    let at = watches
        .iter()
        .position(|watch| watch.number == number && watch.instance.ptr_eq(instance))?;
    let taken = watches.swap_remove(at);
    if watches.is_empty() {
        table.remove(&identity);
    }
    WATCHES.fetch_sub(1, Ordering::Relaxed);
    Some(taken)
}

/// Tells the watchers of the inode with this identity.
fn tell(identity: (u64, u64), mask: Mask, name: Option<&[u8]>, cookie: u32) {
    let mut hit: Vec<(Arc<Inotify>, i32, bool)> = Vec::new();
    if let Some(watches) = TABLE.lock().get(&identity) {
        for watch in watches {
            if watch.mask.intersects(mask & ALL)
                && let Some(instance) = watch.instance.upgrade()
            {
                hit.push((instance, watch.number, watch.mask.contains(Mask::ONESHOT)));
            }
        }
    }
    for (instance, number, once) in hit {
        let name = name.unwrap_or_default().to_vec();
        instance.push(Event { watch: number, mask, cookie, name });
        if once {
            // Somebody else may have removed it: then there is nothing left to do.
            let _ = instance.remove(number);
        }
    }
}

fn with_kind(inode: &Arc<dyn Inode>, mask: Mask) -> Mask {
    let directory = inode.attributes().kind == FileKind::Directory;
    if directory { mask | Mask::ISDIR } else { mask }
}

/// Tells the watchers of an inode: about an entry `name` of it, or about itself.
pub(super) fn report(inode: &Arc<dyn Inode>, mask: Mask, name: Option<&[u8]>, cookie: u32) {
    let Ok(metadata) = inode.metadata() else { return };
    let mask = if name.is_none() { with_kind(inode, mask) } else { mask };
    tell(metadata.identity(), mask, name, cookie);
}

/// Tells the watchers of a file at a place and those of its directory.
pub(super) fn report_place(location: &super::mount::Location, mask: Mask) {
    let Some(inode) = location.dentry.inode() else { return };
    let mask = with_kind(&inode, mask);
    if let Some(parent) = location.dentry.parent().and_then(|parent| parent.inode())
        && let Ok(metadata) = parent.metadata()
    {
        tell(metadata.identity(), mask, Some(&location.dentry.name()), 0);
    }
    report(&inode, mask, None, 0);
}

/// Tells the watchers of an open file and of its directory.
pub(super) fn report_open_file(file: &OpenFile, mask: Mask) {
    if !file.path_only() {
        report_place(file.location(), mask);
    }
}

/// Tells the watchers of a file that lost its last name, and ends their watches.
pub(super) fn report_gone(inode: &Arc<dyn Inode>) {
    let Ok(metadata) = inode.metadata() else { return };
    if metadata.links != 0 && metadata.kind != FileKind::Directory {
        return;
    }
    tell(metadata.identity(), Mask::DELETE_SELF, None, 0);
    let ended = TABLE.lock().remove(&metadata.identity()).unwrap_or_default();
    WATCHES.fetch_sub(ended.len() as u32, Ordering::Relaxed);
    for watch in ended {
        if let Some(instance) = watch.instance.upgrade() {
            instance.state.lock().watches.remove(&watch.number);
            let (mask, name) = (Mask::IGNORED, Vec::new());
            instance.push(Event { watch: watch.number, mask, cookie: 0, name });
        }
    }
}

/// Tells the watchers of a renaming: both directories and the file itself.
pub(super) fn report_renamed(
    old_directory: &Arc<dyn Inode>,
    old_name: &[u8],
    new_directory: &Arc<dyn Inode>,
    new_name: &[u8],
    moved: &Arc<dyn Inode>,
) {
    static COOKIE: AtomicU32 = AtomicU32::new(1);
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed);
    let kind = with_kind(moved, Mask::empty());
    report(old_directory, Mask::MOVED_FROM | kind, Some(old_name), cookie);
    report(new_directory, Mask::MOVED_TO | kind, Some(new_name), cookie);
    report(moved, Mask::MOVE_SELF, None, 0);
}

impl FileOps for Inotify {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        let room = out.remaining();
        let bytes = match self.take(room) {
            Some(bytes) => bytes?,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => self
                .arrivals
                .wait_interruptible(None, || self.take(room))
                .map_err(|_| Errno::ERESTARTSYS)??,
        };
        out.put(&bytes)
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.arrivals);
        if self.state.lock().events.is_empty() { Events::empty() } else { Events::READABLE }
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        const FIONREAD: u32 = 0x541b;
        if command != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let bytes: usize = self.state.lock().events.iter().map(Event::size).sum();
        UserPtr::<i32>::new(arg as usize).write(&(bytes as i32))?;
        Ok(0)
    }

    fn release(&self, _: &OpenFile) {
        let watches = core::mem::take(&mut self.state.lock().watches);
        for (number, identity) in watches {
            drop(take_watch(identity, &self.me, number));
        }
    }
}
