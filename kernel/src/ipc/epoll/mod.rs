//! `epoll(7)`: a set of files, and the list of those that may be ready.
//!
//! Each watched file has an [`Item`] that listens on the file's wait queues. A notification puts
//! the item on the ready list and wakes the threads that wait for the set. Whether the file really
//! has events is asked only when the list is collected. A level-triggered item goes back to the end
//! of the list as long as its file has events.
//!
//! An item refers to its file weakly; the end of the open file takes the item out of the set, as on
//! Linux. Sets within sets are handled in `nesting.rs`.
//!
//! Locks: `nesting::lock` while sets are joined, then `items`, a sleeping lock (registering polls
//! the file). `ready` is a spin lock taken under the lock of a file's wait queue; under it only
//! this set's own wait queue is taken.

pub mod nesting;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::{Listener, Mutex, WaitQueue, Woken};
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::O_RDWR;
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar, Watch, Watcher};
use crate::vfs::users::{Holdings, Limit};

/// `EPOLLEXCLUSIVE`: accepted, but every waiter is woken, which the flag permits.
const EXCLUSIVE: u32 = 1 << 28;
/// `EPOLLWAKEUP`: keeps the system from suspending; has no effect here, as there is no suspending.
const WAKEUP: u32 = 1 << 29;
/// `EPOLLONESHOT`
const ONESHOT: u32 = 1 << 30;
/// `EPOLLET`
const EDGE: u32 = 1 << 31;
/// Errors and hang-ups are reported whether asked for or not.
const ALWAYS: u32 = Events::ERR.union(Events::HUP).bits();
const MODES: u32 = EXCLUSIVE | WAKEUP | ONESHOT | EDGE;

/// Bits allowed together with `EXCLUSIVE` (`EPOLLEXCLUSIVE_OK_BITS`, fs/eventpoll.c).
const BESIDE_EXCLUSIVE: u32 =
    Events::IN.union(Events::OUT).bits() | ALWAYS | WAKEUP | EDGE | EXCLUSIVE;

/// The number of files that one user may watch (`/proc/sys/fs/epoll/max_user_watches`); by default
/// as many as fill a 25th of memory.
pub static MAX_USER_WATCHES: Limit = Limit::new(|| {
    /// An item, its listener and their entries in tables.
    const COST: usize = 256;
    hayate_machine::frames::total() * crate::page_cache::cache::PAGE / 25 / COST
});

/// One watched file.
pub struct Item {
    set: Weak<Epoll>,
    file: Weak<OpenFile>,
    fd: i32,
    /// Events and modes; the events are cleared once a one-shot item was reported.
    interest: AtomicU32,
    data: AtomicU64,
    queued: AtomicBool,
    /// The user's count of watches, which `retire` decrements once.
    holdings: Arc<Holdings>,
    retired: AtomicBool,
}

type Key = (usize, i32);

/// A set.
pub struct Epoll {
    me: Weak<Epoll>,
    /// Its open file, which lists the watches of the sets that contain this one.
    file: Once<Weak<OpenFile>>,
    /// The number and the result of the last traversal that visited this set.
    visited: nesting::Visited,
    holdings: Arc<Holdings>,
    items: Mutex<BTreeMap<Key, Arc<Item>>>,
    /// Items of `items`, and items that are leaving it, each at most once. There is always capacity
    /// for all of them: a notification cannot wait for memory. An item is added by its listener, or
    /// by a caller that has `items` locked and finds the item there. It is removed when it has left
    /// `items` and its listener is on no queue any more.
    ready: SpinLock<VecDeque<Arc<Item>>>,
    /// The number of items that have left `items` but may still be in `ready`.
    leaving: AtomicUsize,
    waiters: WaitQueue,
}

fn key(file: &Arc<OpenFile>, fd: i32) -> Key {
    (Arc::as_ptr(file).addr(), fd)
}

/// Opens an empty set on the account of a user.
pub fn open(user: u32) -> Result<Arc<OpenFile>> {
    let holdings = crate::vfs::users::of(user)?;
    let set = Arc::new_cyclic(|me| Epoll {
        me: me.clone(),
        file: Once::new(),
        visited: nesting::Visited::default(),
        holdings,
        items: Mutex::new(BTreeMap::new()),
        ready: SpinLock::new(VecDeque::new()),
        leaving: AtomicUsize::new(0),
        waiters: WaitQueue::new(),
    });
    let file = anonymous::open("[eventpoll]", Arc::clone(&set) as _, O_RDWR)?;
    set.file.call_once(|| Arc::downgrade(&file));
    Ok(file)
}

impl Item {
    /// Returns the events of the file that are wanted.
    fn look(&self, file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let interest = self.interest.load(Ordering::Acquire) & !MODES;
        file.poll(registrar) & Events::from_bits_retain(interest)
    }

    /// Marks an item as taken out of its set.
    fn retire(&self) {
        self.interest.store(0, Ordering::Release);
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.holdings.epoll_watches.give(1);
        }
    }

    fn enqueue(self: Arc<Self>) {
        let Some(set) = self.set.upgrade() else { return };
        if !self.queued.swap(true, Ordering::AcqRel) {
            // There is capacity: see `Epoll::ready`.
            set.ready.lock().push_back(self);
        }
        set.waiters.wake_all();
    }
}

impl Listener for ItemListener {
    fn notify(&self, events: u32) {
        let interest = self.0.interest.load(Ordering::Acquire);
        if events & interest & !MODES != 0 {
            Arc::clone(&self.0).enqueue();
        }
    }
}

/// The listener that is on the wait queues for an item.
struct ItemListener(Arc<Item>);

impl Watcher for Item {
    fn file_ended(&self) {
        self.retire();
        if let Some(set) = self.set.upgrade() {
            let mut items = set.items.lock();
            items.retain(|_, other| !core::ptr::eq(Arc::as_ptr(other), self));
            set.forget(self);
        }
    }
}

/// Returns the set that watches.
fn set_of(watch: &Watch) -> Option<Arc<Epoll>> {
    let watcher = watch.watcher.upgrade()?;
    let any: &dyn Any = &*watcher;
    any.downcast_ref::<Item>()?.set.upgrade()
}

fn belongs_to(watch: &Watch, item: &Arc<Item>) -> bool {
    core::ptr::addr_eq(watch.watcher.as_ptr(), Arc::as_ptr(item))
}

impl Epoll {
    /// Returns the set behind an open file, if it is one.
    pub fn of(file: &OpenFile) -> Result<&Epoll> {
        file.ops_as::<Epoll>().ok_or(Errno::EINVAL)
    }

    /// `EPOLL_CTL_ADD`
    pub fn add(&self, file: &Arc<OpenFile>, fd: i32, interest: u32, data: u64) -> Result<()> {
        if !file.traits().contains(Traits::POLLABLE) {
            return Err(Errno::EPERM);
        }
        let inner = Epoll::of(file).ok();
        if interest & EXCLUSIVE != 0 && (inner.is_some() || interest & !BESIDE_EXCLUSIVE != 0) {
            return Err(Errno::EINVAL);
        }
        // Joining two sets, or adding a file to a set that is in another, makes paths longer.
        let joins = inner.is_some() || self.is_watched();
        let nested = joins.then(nesting::lock);
        if let (Some(inner), Some(turn)) = (inner, &nested) {
            nesting::check_depth(self, inner, turn)?;
        }
        self.insert(file, fd, interest | ALWAYS, data)?;
        if nested.is_some()
            && let Err(error) = nesting::check_paths(file)
        {
            // Another thread may have removed the file already.
            let _ = self.remove(file, fd);
            return Err(error);
        }
        Ok(())
    }

    fn insert(&self, file: &Arc<OpenFile>, fd: i32, interest: u32, data: u64) -> Result<()> {
        let mut items = self.items.lock();
        if items.contains_key(&key(file, fd)) {
            return Err(Errno::EEXIST);
        }
        if !self.holdings.epoll_watches.take(MAX_USER_WATCHES.get()) {
            return Err(Errno::ENOSPC);
        }
        let item = Arc::new(Item {
            set: self.me.clone(),
            file: Arc::downgrade(file),
            fd,
            interest: AtomicU32::new(interest),
            data: AtomicU64::new(data),
            queued: AtomicBool::new(false),
            holdings: Arc::clone(&self.holdings),
            retired: AtomicBool::new(false),
        });
        let room = {
            let mut ready = self.ready.lock();
            let most = items.len() + self.leaving.load(Ordering::Relaxed) + 1;
            let missing = most.saturating_sub(ready.len());
            ready.make_room(missing)
        };
        let listener: Arc<dyn Listener> = Arc::new(ItemListener(Arc::clone(&item)));
        let entry: Arc<dyn Watcher> = item.clone();
        let watch = Watch { watcher: Arc::downgrade(&entry), listener: Arc::clone(&listener) };
        room.and_then(|()| file.add_watch(watch)).inspect_err(|_| item.retire())?;
        items.insert(key(file, fd), Arc::clone(&item));
        let mut registrar = Registrar::listen(&listener);
        let found = item.look(file, &mut registrar);
        if let Err(error) = registrar.is_whole() {
            items.remove(&key(file, fd));
            self.end(&item, file);
            return Err(error);
        }
        if !found.is_empty() {
            item.enqueue();
        }
        Ok(())
    }

    /// Whether another set contains this one.
    fn is_watched(&self) -> bool {
        self.file.get().and_then(Weak::upgrade).is_some_and(|file| file.has_watches())
    }

    /// Takes an item's listener off its file's wait queues, and the item off the ready list. The
    /// item has left `items`, which the caller may have locked.
    fn end(&self, item: &Arc<Item>, file: &OpenFile) {
        item.retire();
        if let Some(watch) = file.take_watch(|watch| belongs_to(watch, item)) {
            file.poll(&mut Registrar::Unlisten(&watch.listener));
        }
        self.forget(item);
    }

    fn forget(&self, item: &Item) {
        if item.queued.load(Ordering::Acquire) {
            self.ready.lock().retain(|other| !core::ptr::eq(Arc::as_ptr(other), item));
        }
    }

    /// `EPOLL_CTL_MOD`
    pub fn modify(&self, file: &Arc<OpenFile>, fd: i32, interest: u32, data: u64) -> Result<()> {
        if interest & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        let interest = interest | ALWAYS;
        let items = self.items.lock();
        let item = items.get(&key(file, fd)).cloned().ok_or(Errno::ENOENT)?;
        if item.interest.load(Ordering::Acquire) & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        item.data.store(data, Ordering::Relaxed);
        item.interest.store(interest, Ordering::Release);
        drop(items);
        if !item.look(file, &mut Registrar::Query).is_empty() {
            let items = self.items.lock();
            if items.get(&key(file, fd)).is_some_and(|here| Arc::ptr_eq(here, &item)) {
                item.enqueue();
            }
        }
        Ok(())
    }

    /// `EPOLL_CTL_DEL`
    pub fn remove(&self, file: &Arc<OpenFile>, fd: i32) -> Result<()> {
        let item = {
            let mut items = self.items.lock();
            let item = items.remove(&key(file, fd)).ok_or(Errno::ENOENT)?;
            item.retire();
            self.leaving.fetch_add(1, Ordering::Relaxed);
            item
        };
        self.end(&item, file);
        self.leaving.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// What names the file that is watched under the number `fd`, after `skip` others of that
    /// number (`ep_find_tfd`): the address of the open file. Fails with `ENOENT`.
    pub fn watched(&self, fd: i32, skip: u32) -> Result<usize> {
        let items = self.items.lock();
        let mut found = items.values().filter(|item| item.fd == fd);
        found.nth(skip as usize).map(|item| item.file.as_ptr().addr()).ok_or(Errno::ENOENT)
    }

    /// Takes up to `most` ready entries, as events and data. On `ENOMEM` none is taken.
    fn collect(&self, most: usize) -> Result<Vec<(u32, u64)>> {
        let mut found = Vec::new();
        let mut again: Vec<Arc<Item>> = Vec::new();
        // Each item once, even if it becomes ready again meanwhile.
        let count = self.ready.lock().len();
        growth::relieved(|| found.make_room_exact(count.min(most)))?;
        growth::relieved(|| again.make_room_exact(count.min(most)))?;
        for _ in 0..count {
            if found.len() >= most {
                break;
            }
            let Some(item) = self.ready.lock().pop_front() else { break };
            item.queued.store(false, Ordering::Release);
            let Some(file) = item.file.upgrade() else { continue };
            let events = item.look(&file, &mut Registrar::Query);
            if events.is_empty() {
                continue;
            }
            let interest = item.interest.load(Ordering::Acquire);
            found.push((events.bits(), item.data.load(Ordering::Relaxed)));
            if interest & ONESHOT != 0 {
                item.interest.store(interest & MODES, Ordering::Release);
            } else if interest & EDGE == 0 {
                again.push(item);
            }
        }
        if again.is_empty() {
            return Ok(found);
        }
        let items = self.items.lock();
        for item in again {
            // An item that was removed meanwhile has an empty interest.
            if item.interest.load(Ordering::Acquire) != 0
                && !item.queued.swap(true, Ordering::AcqRel)
            {
                self.ready.lock().push_back(item);
            }
        }
        drop(items);
        // A thread that looked meanwhile saw the list without these items, and sleeps. It is woken,
        // finds them, puts them back and wakes the next one (`ep_done_scan`, fs/eventpoll.c).
        self.waiters.wake_one();
        Ok(found)
    }

    /// Waits for events until `deadline` (monotonic ns; `Some(0)` does not wait). An interruption
    /// fails with `EINTR` as on Linux, because `ERESTARTNOHAND` would restart the call.
    pub fn wait(&self, most: usize, deadline: Option<u64>) -> Result<Vec<(u32, u64)>> {
        loop {
            let found = self.collect(most)?;
            if !found.is_empty() || deadline == Some(0) {
                return Ok(found);
            }
            let woken = self
                .waiters
                .wait_interruptible(deadline, || (!self.ready.lock().is_empty()).then_some(()));
            match woken {
                Ok(()) => {}
                Err(Woken::Interrupted) => return Err(Errno::EINTR),
                Err(Woken::TimedOut) => return self.collect(most),
            }
        }
    }
}

impl FileOps for Epoll {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.waiters);
        // The list is not locked between two steps. A thread that collects events may take items
        // off the front meanwhile: it reports those that are ready, puts the level-triggered ones
        // among them back, and then tells the listeners.
        let mut at = 0;
        loop {
            let Some(item) = self.ready.lock().get(at).cloned() else { return Events::empty() };
            let file = item.file.upgrade();
            if file.is_some_and(|file| !item.look(&file, &mut Registrar::Query).is_empty()) {
                return Events::READABLE;
            }
            at += 1;
        }
    }

    fn release(&self, _: &OpenFile) {
        let items = core::mem::take(&mut *self.items.lock());
        for item in items.into_values() {
            item.retire();
            if let Some(file) = item.file.upgrade()
                && let Some(watch) = file.take_watch(|watch| belongs_to(watch, &item))
            {
                file.poll(&mut Registrar::Unlisten(&watch.listener));
            }
        }
        self.ready.lock().clear();
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for item in self.items.lock().values() {
            let Some(file) = item.file.upgrade() else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let line = format!(
                "tfd: {:8} events: {:8x} data: {:16x}  pos:{} ino:{:x} sdev:{:x}\n",
                item.fd,
                item.interest.load(Ordering::Relaxed),
                item.data.load(Ordering::Relaxed),
                *file.lock_position(),
                metadata.number,
                crate::vfs::watch::shown_device(metadata.device),
            );
            if text.make_room(line.len()).is_err() {
                break;
            }
            text.extend_from_slice(line.as_bytes());
        }
        Some(text)
    }
}
