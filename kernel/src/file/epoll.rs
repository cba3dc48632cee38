//! `epoll(7)`: a set of files and the list of those that have something.
//!
//! Each watched file has an [`Item`] that listens on the file's wait queues. A notification puts
//! the item on the ready list and wakes those who wait for the set; whether there truly is
//! something is asked only when the list is collected. A level-triggered item goes back to the
//! end of the list as long as there is.
//!
//! An item refers to its file weakly; the end of the open file takes it out of the set, as Linux
//! does.
//!
//! Locks: `items` is a sleeping lock (registering asks the file). `ready` is a spin lock taken
//! under the lock of a file's wait queue; nothing but this set's own queue is taken under it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::anonymous;
use super::open_file::flags::O_RDWR;
use super::open_file::{FileOps, OpenFile, Traits};
use super::poll::{Events, Registrar};
use crate::schedule::{Listener, Mutex, WaitQueue, Woken};

/// `EPOLLEXCLUSIVE`: accepted; every waiter is woken, which it allows.
const EXCLUSIVE: u32 = 1 << 28;
/// `EPOLLWAKEUP`: about suspending, of which there is none.
const WAKEUP: u32 = 1 << 29;
/// `EPOLLONESHOT`
const ONESHOT: u32 = 1 << 30;
/// `EPOLLET`
const EDGE: u32 = 1 << 31;
/// Errors and hang-ups are told whether asked for or not.
const ALWAYS: u32 = Events::ERR.union(Events::HUP).bits();
const MODES: u32 = EXCLUSIVE | WAKEUP | ONESHOT | EDGE;

/// How deep sets may contain sets (`EP_MAX_NESTS`).
const DEPTH_MAX: usize = 4;

/// One watched file.
pub struct Item {
    set: Weak<Epoll>,
    file: Weak<OpenFile>,
    fd: i32,
    /// Events and modes; events are empty once a one-shot went off.
    interest: AtomicU32,
    data: AtomicU64,
    queued: AtomicBool,
}

type Key = (usize, i32);

/// A set.
pub struct Epoll {
    me: Weak<Epoll>,
    items: Mutex<BTreeMap<Key, Arc<Item>>>,
    ready: SpinLock<VecDeque<Arc<Item>>>,
    waiters: WaitQueue,
}

fn key(file: &Arc<OpenFile>, fd: i32) -> Key {
    (Arc::as_ptr(file).addr(), fd)
}

/// Opens an empty set.
pub fn open() -> Result<Arc<OpenFile>> {
    let set = Arc::new_cyclic(|me| Epoll {
        me: me.clone(),
        items: Mutex::new(BTreeMap::new()),
        ready: SpinLock::new(VecDeque::new()),
        waiters: WaitQueue::new(),
    });
    anonymous::open("[eventpoll]", set, O_RDWR)
}

impl Item {
    /// What the file has of what is wanted.
    fn look(&self, file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let interest = self.interest.load(Ordering::Acquire) & !MODES;
        file.poll(registrar) & Events::from_bits_retain(interest)
    }

    fn enqueue(self: Arc<Self>) {
        let Some(set) = self.set.upgrade() else { return };
        if !self.queued.swap(true, Ordering::AcqRel) {
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

/// What sits on the wait queues for an item.
struct ItemListener(Arc<Item>);

/// The link from an open file back to a set that watches it, kept by the file.
pub struct Watch {
    item: Weak<Item>,
    listener: Arc<dyn Listener>,
}

impl Watch {
    /// The open file is going away: take the item off its queues and out of the set.
    pub(super) fn end(&self, file: &OpenFile) {
        file.poll(&mut Registrar::Unlisten(&self.listener));
        let Some(item) = self.item.upgrade() else { return };
        item.interest.store(0, Ordering::Release);
        if let Some(set) = item.set.upgrade() {
            let mut items = set.items.lock();
            items.retain(|_, other| !Arc::ptr_eq(other, &item));
        }
    }

    fn belongs_to(&self, item: &Arc<Item>) -> bool {
        self.item.as_ptr() == Arc::as_ptr(item)
    }
}

impl Epoll {
    /// The set behind an open file, if it is one.
    pub fn of(file: &OpenFile) -> Result<&Epoll> {
        file.ops_as::<Epoll>().ok_or(Errno::EINVAL)
    }

    /// Whether this set contains `target`, itself or in a set it contains; and no deeper than
    /// allowed (`ELOOP`).
    fn check_nesting(&self, target: &Epoll, depth: usize) -> Result<()> {
        if core::ptr::eq(self, target) || depth > DEPTH_MAX {
            return Err(Errno::ELOOP);
        }
        let inner: Vec<Arc<OpenFile>> =
            self.items.lock().values().filter_map(|item| item.file.upgrade()).collect();
        for file in inner {
            if let Ok(set) = Epoll::of(&file) {
                set.check_nesting(target, depth + 1)?;
            }
        }
        Ok(())
    }

    /// `EPOLL_CTL_ADD`
    pub fn add(&self, file: &Arc<OpenFile>, fd: i32, interest: u32, data: u64) -> Result<()> {
        let interest = interest | ALWAYS;
        if !file.traits().contains(Traits::POLLABLE) {
            return Err(Errno::EPERM);
        }
        if let Ok(inner) = Epoll::of(file) {
            if interest & EXCLUSIVE != 0 {
                return Err(Errno::EINVAL);
            }
            inner.check_nesting(self, 0)?;
        }
        let mut items = self.items.lock();
        if items.contains_key(&key(file, fd)) {
            return Err(Errno::EEXIST);
        }
        let item = Arc::new(Item {
            set: self.me.clone(),
            file: Arc::downgrade(file),
            fd,
            interest: AtomicU32::new(interest),
            data: AtomicU64::new(data),
            queued: AtomicBool::new(false),
        });
        let listener: Arc<dyn Listener> = Arc::new(ItemListener(Arc::clone(&item)));
        items.insert(key(file, fd), Arc::clone(&item));
        let found = item.look(file, &mut Registrar::Listen(&listener));
        file.add_watch(Watch { item: Arc::downgrade(&item), listener });
        drop(items);
        if !found.is_empty() {
            item.enqueue();
        }
        Ok(())
    }

    /// `EPOLL_CTL_MOD`
    pub fn modify(&self, file: &Arc<OpenFile>, fd: i32, interest: u32, data: u64) -> Result<()> {
        let interest = interest | ALWAYS;
        let item = self.items.lock().get(&key(file, fd)).cloned().ok_or(Errno::ENOENT)?;
        let old = item.interest.load(Ordering::Acquire);
        if (old | interest) & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        item.data.store(data, Ordering::Relaxed);
        item.interest.store(interest, Ordering::Release);
        if !item.look(file, &mut Registrar::Query).is_empty() {
            item.enqueue();
        }
        Ok(())
    }

    /// `EPOLL_CTL_DEL`
    pub fn remove(&self, file: &Arc<OpenFile>, fd: i32) -> Result<()> {
        let item = self.items.lock().remove(&key(file, fd)).ok_or(Errno::ENOENT)?;
        item.interest.store(0, Ordering::Release);
        if let Some(watch) = file.take_watch(|watch| watch.belongs_to(&item)) {
            file.poll(&mut Registrar::Unlisten(&watch.listener));
        }
        Ok(())
    }

    /// Takes what is ready now, up to `most` entries, as events and data.
    fn collect(&self, most: usize) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        let mut again: Vec<Arc<Item>> = Vec::new();
        // Each item once, even if it comes back meanwhile.
        let count = self.ready.lock().len();
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
        for item in again {
            if !item.queued.swap(true, Ordering::AcqRel) {
                self.ready.lock().push_back(item);
            }
        }
        found
    }

    /// Waits for events until `deadline` (monotonic ns; `Some(0)` looks only). `ERESTARTNOHAND`
    /// would restart, so an interruption is `EINTR`, as in Linux.
    pub fn wait(&self, most: usize, deadline: Option<u64>) -> Result<Vec<(u32, u64)>> {
        loop {
            let found = self.collect(most);
            if !found.is_empty() || deadline == Some(0) {
                return Ok(found);
            }
            let woken = self
                .waiters
                .wait_interruptible(deadline, || (!self.ready.lock().is_empty()).then_some(()));
            match woken {
                Ok(()) => {}
                Err(Woken::Interrupted) => return Err(Errno::EINTR),
                Err(Woken::TimedOut) => return Ok(self.collect(most)),
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
        let candidates: Vec<Arc<Item>> = self.ready.lock().iter().cloned().collect();
        let ready = candidates.iter().any(|item| {
            let file = item.file.upgrade();
            file.is_some_and(|file| !item.look(&file, &mut Registrar::Query).is_empty())
        });
        if ready { Events::READABLE } else { Events::empty() }
    }

    fn release(&self, _: &OpenFile) {
        let items = core::mem::take(&mut *self.items.lock());
        for item in items.into_values() {
            item.interest.store(0, Ordering::Release);
            if let Some(file) = item.file.upgrade()
                && let Some(watch) = file.take_watch(|watch| watch.belongs_to(&item))
            {
                file.poll(&mut Registrar::Unlisten(&watch.listener));
            }
        }
        self.ready.lock().clear();
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for item in self.items.lock().values() {
            let line = format!(
                "tfd: {:8} events: {:8x} data: {:16x}\n",
                item.fd,
                item.interest.load(Ordering::Relaxed),
                item.data.load(Ordering::Relaxed),
            );
            text.extend_from_slice(line.as_bytes());
        }
        Some(text)
    }
}
