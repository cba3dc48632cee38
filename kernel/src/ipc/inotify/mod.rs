//! Watching files (`inotify(7)`).
//!
//! An instance has watches, each on one inode, which is found by device and inode number in a
//! global table. A report looks up the inode there and adds an event to the queue of every instance
//! that wants it. While there are no watches in the system, nothing of this is touched (see
//! [`crate::vfs::watch`]).
//!
//! `events.rs` keeps the queue of an instance; this module finds the instances.
//!
//! Locks: the table's, then an instance's; both spin.

mod events;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::user::UserPtr;

use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;
use crate::vfs::anonymous;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::inode::Inode;
use crate::vfs::open_file::flags::{O_NONBLOCK, O_RDONLY};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::signal_owner::Band;
use crate::vfs::transfer::Output;
use crate::vfs::users;
use crate::vfs::users::{Holdings, Limit};
use crate::vfs::watch;
use crate::vfs::watch::{Mask, WATCHES, Watchers};
use events::{Event, Queue};

/// The most events that wait in a new instance (`/proc/sys/fs/inotify/max_queued_events`).
pub static MAX_QUEUED_EVENTS: Limit = Limit::new(|| 16384);
/// The most instances of one user.
pub static MAX_USER_INSTANCES: Limit = Limit::new(|| 128);
/// The most watches of one user; by default as many as fill a hundredth of memory
/// (`inotify_user_setup`).
pub static MAX_USER_WATCHES: Limit = Limit::new(|| {
    /// A watch, and the inode that it keeps in memory.
    const COST: usize = 1280;
    (hayate_machine::frames::total() * crate::page_cache::cache::PAGE / 100 / COST)
        .clamp(8192, 1 << 20)
});

/// The events that a caller may ask for: all.
const ALL: Mask = Mask::from_bits_truncate(0xfff);

struct State {
    events: Queue,
    /// By watch number: the key of the watch in the table.
    watches: BTreeMap<i32, (u64, u64)>,
    last: i32,
}

/// An instance.
pub struct Inotify {
    me: Weak<Inotify>,
    holdings: Arc<Holdings>,
    state: SpinLock<State>,
    arrivals: WaitQueue,
    signals: Signals,
}

struct Watch {
    instance: Weak<Inotify>,
    holdings: Arc<Holdings>,
    number: i32,
    mask: Mask,
    /// Keeps the inode number from being reused.
    _inode: Arc<dyn Inode>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.holdings.inotify_watches.give(1);
    }
}

static TABLE: SpinLock<BTreeMap<(u64, u64), Vec<Watch>>> = SpinLock::new(BTreeMap::new());

/// Opens an instance, counted for a user; `flags` may contain `O_NONBLOCK`. `EMFILE` when the user
/// has too many.
pub fn open(flags: u32, user: u32) -> Result<Arc<OpenFile>> {
    let holdings = users::of(user)?;
    if !holdings.inotify_instances.take(MAX_USER_INSTANCES.get()) {
        return Err(Errno::EMFILE);
    }
    let events = Queue::new(MAX_QUEUED_EVENTS.get());
    let instance = Arc::new_cyclic(|me| Inotify {
        me: me.clone(),
        holdings,
        state: SpinLock::new(State { events, watches: BTreeMap::new(), last: 0 }),
        arrivals: WaitQueue::new(),
        signals: Signals::new(),
    });
    anonymous::open("inotify", instance, O_RDONLY | flags & O_NONBLOCK)
}

impl Drop for Inotify {
    fn drop(&mut self) {
        self.holdings.inotify_instances.give(1);
    }
}

impl Inotify {
    /// Returns the instance behind an open file.
    pub fn of(file: &OpenFile) -> Result<&Inotify> {
        file.ops_as::<Inotify>().ok_or(Errno::EINVAL)
    }

    /// `inotify_add_watch(2)`: returns the watch's number. A mask may contain no events.
    pub fn add(&self, inode: &Arc<dyn Inode>, mask: Mask) -> Result<i32> {
        let kept = mask & (ALL | Mask::ONESHOT | Mask::EXCL_UNLINK);
        let identity = inode.identity()?;
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
        let added = self.add_new(watches, identity, inode, kept);
        if watches.is_empty() {
            table.remove(&identity);
        }
        added
    }

    fn add_new(
        &self,
        watches: &mut Vec<Watch>,
        identity: (u64, u64),
        inode: &Arc<dyn Inode>,
        mask: Mask,
    ) -> Result<i32> {
        let mut state = self.state.lock();
        let number = state.last.checked_add(1).ok_or(Errno::ENOSPC)?;
        watches.make_room(1)?;
        if !self.holdings.inotify_watches.take(MAX_USER_WATCHES.get()) {
            return Err(Errno::ENOSPC);
        }
        state.last = number;
        state.watches.insert(number, identity);
        watches.push(Watch {
            instance: self.me.clone(),
            holdings: Arc::clone(&self.holdings),
            number,
            mask,
            _inode: Arc::clone(inode),
        });
        WATCHES.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// `inotify_rm_watch(2)`
    pub fn remove(&self, number: i32) -> Result<()> {
        let identity = self.state.lock().watches.remove(&number).ok_or(Errno::EINVAL)?;
        let taken = take_watch(identity, &self.me, number);
        self.push(Event::about(number, Mask::IGNORED));
        drop(taken);
        Ok(())
    }

    fn push(&self, event: Event) {
        if self.state.lock().events.push(event) {
            self.arrivals.wake_all();
            self.signals.tell(Band::In);
        }
    }
}

/// Removes one watch from the table; the caller drops it after it has released its locks.
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

/// Ends watches that were removed from the table.
fn end(watches: Vec<Watch>) {
    WATCHES.fetch_sub(watches.len() as u32, Ordering::Relaxed);
    for watch in watches {
        if let Some(instance) = watch.instance.upgrade() {
            instance.state.lock().watches.remove(&watch.number);
            instance.push(Event::about(watch.number, Mask::IGNORED));
        }
    }
}

/// This interface, for [`crate::vfs::watch`].
struct Instances;

impl Watchers for Instances {
    fn tell(&self, identity: (u64, u64), what: watch::Event<'_>) {
        let mut hit: Vec<(Arc<Inotify>, i32, bool)> = Vec::new();
        if let Some(watches) = TABLE.lock().get(&identity) {
            for watch in watches {
                let wanted = watch.mask.intersects(what.mask & ALL)
                    && !(what.unlinked && watch.mask.contains(Mask::EXCL_UNLINK));
                if wanted && let Some(instance) = watch.instance.upgrade() {
                    if hit.make_room(1).is_err() {
                        instance.state.lock().events.lose();
                        continue;
                    }
                    hit.push((instance, watch.number, watch.mask.contains(Mask::ONESHOT)));
                }
            }
        }
        // `DELETE_SELF` and `MOVE_SELF` come without `ISDIR` (inotify_handle_inode_event).
        let silent = what.mask.intersects(Mask::MOVE_SELF | Mask::DELETE_SELF);
        let mask = if silent { what.mask - Mask::ISDIR } else { what.mask };
        for (instance, number, once) in hit {
            match Event::new(number, mask, what.cookie, what.name) {
                Ok(event) => instance.push(event),
                Err(_) => _ = instance.state.lock().events.lose(),
            }
            if once {
                // If another thread has removed the watch already, nothing is left to do.
                let _ = instance.remove(number);
            }
        }
    }

    fn end(&self, identity: (u64, u64)) {
        let ended = TABLE.lock().remove(&identity);
        end(ended.unwrap_or_default());
    }

    fn end_all(&self, device: u64) {
        loop {
            let mut table = TABLE.lock();
            let next = table.range((device, 0)..=(device, u64::MAX)).next().map(|(&key, _)| key);
            let Some(watches) = next.and_then(|key| table.remove(&key)) else { return };
            drop(table);
            for watch in &watches {
                if let Some(instance) = watch.instance.upgrade() {
                    instance.push(Event::about(watch.number, Mask::UNMOUNT));
                }
            }
            end(watches);
        }
    }
}

/// Registers the interface; boot calls it once.
pub fn init() {
    watch::register(&Instances);
}

impl FileOps for Inotify {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        let room = out.remaining();
        let take = || self.state.lock().events.take(room);
        let bytes = match take() {
            Some(bytes) => bytes?,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => {
                self.arrivals.wait_interruptible(None, take).map_err(|_| Errno::ERESTARTSYS)??
            }
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
        let bytes = self.state.lock().events.size();
        UserPtr::<i32>::new(arg as usize).write(&(bytes as i32))?;
        Ok(0)
    }

    fn signals(&self, _: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.signals, Interest::BOTH))
    }

    fn release(&self, _: &OpenFile) {
        let watches = core::mem::take(&mut self.state.lock().watches);
        for (number, identity) in watches {
            drop(take_watch(identity, &self.me, number));
        }
    }
    /// Returns the watches, the newest first (`inotify_fdinfo`, fs/notify/fdinfo.c).
    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let table = TABLE.lock();
        let state = self.state.lock();
        for (&number, identity) in state.watches.iter().rev() {
            let watches = table.get(identity).map(Vec::as_slice).unwrap_or_default();
            let mine = |watch: &&Watch| watch.instance.as_ptr() == self.me.as_ptr();
            let Some(watch) = watches.iter().find(mine) else { continue };
            let line = format!(
                "inotify wd:{number:x} ino:{:x} sdev:{:x} mask:{:x} ignored_mask:0 \n",
                identity.1,
                watch::shown_device(identity.0),
                watch.mask.bits(),
            );
            if text.make_room(line.len()).is_err() {
                break;
            }
            text.extend_from_slice(line.as_bytes());
        }
        Some(text)
    }
}
