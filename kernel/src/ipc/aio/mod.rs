//! Contexts of asynchronous input and output (`io_setup(2)`; fs/aio.c of Linux 6.1).
//!
//! A context is an open file without a name that its process maps: the mapping is the ring of
//! events ([`hayate_aio_ring`]), its address the context's identifier. So a context needs no table
//! in the process. A call finds it in the region at that address, and it ends with the region: by
//! `io_destroy(2)`, exec, exit, or when the program unmaps it. A fork does not copy it: the child
//! has zeroes there. (Linux copies the mapping of a ring that serves the parent alone.)
//!
//! **Requests.** Reading, writing and `fsync` are done before `io_submit(2)` returns, as Linux does
//! for files that are cached (`O_DIRECT` is the exception there, and means nothing in memory). Only
//! waiting for a file's readiness ends later: see [`poll`].
//!
//! A request has a place in the ring from its beginning, so its event always fits.
//!
//! Locks: `reading`, which sleeps, then `state`, a leaf.

pub mod poll;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use hayate_abi::{Errno, Result};
use hayate_aio_ring::{EVENT, HEAD, Ring, TAIL};
use hayate_machine::cpu;
use hayate_machine::frames::Frame;
use hayate_machine::sync::{Lazy, SpinLock};

use super::eventfd;
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::{Mutex, WaitQueue, Woken};
use crate::vfs::anonymous;
use crate::vfs::anonymous::AnonymousInode;
use crate::vfs::inode::FileKind;
use crate::vfs::mount::Mount;
use crate::vfs::open_file::flags::O_RDWR;
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::users::Limit;

/// The most events that all contexts may be made for (`fs.aio-max-nr`).
pub static MOST: Limit = Limit::new(|| 0x10000);
/// The events that they are made for (`fs.aio-nr`).
static USED: AtomicUsize = AtomicUsize::new(0);

/// The pseudo file system of the rings (`AIO_RING_MAGIC`).
static RINGS: Lazy<Arc<Mount>> = Lazy::new(|| anonymous::pseudo("aio", 0xa10a_10a1));

/// The events that all contexts are made for.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// A part of [`MOST`] that a context has.
struct Share(usize);

impl Share {
    /// `EAGAIN`: there are not so many.
    fn take(events: usize) -> Result<Share> {
        let most = MOST.get();
        let next = |used: usize| used.checked_add(events).filter(|&sum| sum <= most);
        let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map(|_| Share(events)).map_err(|_| Errno::EAGAIN)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What a request says of itself in its event.
#[derive(Clone, Copy)]
pub struct Named {
    /// The program's own word.
    pub data: u64,
    /// The address of its `struct iocb`.
    pub request: u64,
}

impl Named {
    /// The event of the request (`struct io_event`). The second result is always 0.
    fn event(self, result: i64) -> [u8; EVENT] {
        let mut event = [0; EVENT];
        let words = [self.data, self.request, result as u64, 0];
        for (to, word) in event.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        event
    }
}

/// A request that waits for a file. It is in its context's list as long as it waits; the one that
/// takes it out ends it.
pub trait Waits: Send + Sync {
    /// The address of its `struct iocb`.
    fn request(&self) -> u64;

    /// Ends it without events. It was taken out of the list.
    fn give_up(&self, context: &Context);
}

/// A context.
pub struct Context {
    me: Weak<Context>,
    /// The space that it serves ([`crate::memory::Space::serial`]).
    space: u64,
    ring: Ring,
    memory: Arc<PageCache>,
    /// The pages of `memory`, from the first.
    pages: Vec<Frame>,
    state: SpinLock<State>,
    /// Locked by the thread that takes events.
    reading: Mutex<()>,
    /// Woken when an event is there, when a request ends, and when it is destroyed.
    changes: WaitQueue,
    _share: Share,
}

struct State {
    tail: u32,
    /// Requests that have a place in the ring.
    on_their_way: u32,
    destroyed: bool,
    /// Those that wait for a file.
    polls: Vec<Arc<dyn Waits>>,
}

/// Makes a context for so many events, for the space with this serial number; returns its file.
///
/// # Errors
/// `EINVAL` (too many), `EAGAIN` (more than all may have), `ENOMEM`.
pub fn open(events: u32, space: u64) -> Result<Arc<OpenFile>> {
    let ring = Ring::sized(events, cpu::count() as u32).ok_or(Errno::EINVAL)?;
    let share = Share::take(events as usize)?;
    let memory = PageCache::memory(ring.bytes() as u64);
    let mut pages = Vec::new();
    growth::relieved(|| pages.make_room_exact(memory.page_count() as usize))?;
    for index in 0..memory.page_count() {
        pages.push(growth::relieved(|| memory.page(index))?);
    }
    if let Some(first) = pages.first() {
        first.write(0, &ring.header());
    }
    let context = Arc::new_cyclic(|me| Context {
        me: me.clone(),
        space,
        ring,
        memory,
        pages,
        state: SpinLock::new(State {
            tail: 0,
            on_their_way: 0,
            destroyed: false,
            polls: Vec::new(),
        }),
        reading: Mutex::new(()),
        changes: WaitQueue::new(),
        _share: share,
    });
    let inode = AnonymousInode::new(RINGS.filesystem().device(), FileKind::Regular, 0o600);
    let place = anonymous::location(&RINGS, b"/[aio] (deleted)", inode);
    OpenFile::new(context, place, O_RDWR)
}

impl Context {
    /// The context of a file, if it is that of one which serves the space with this serial number.
    pub fn of(file: &OpenFile, space: u64) -> Option<&Context> {
        file.ops_as::<Context>().filter(|context| context.space == space)
    }

    /// Its ring, to be mapped.
    pub fn memory(&self) -> &Arc<PageCache> {
        &self.memory
    }

    /// The most requests of one `io_submit(2)`.
    pub fn places(&self) -> usize {
        self.ring.places as usize
    }

    /// Where the program has taken events to: an allegation.
    fn head(&self) -> u32 {
        self.pages.first().and_then(|page| page.load_u32(HEAD)).unwrap_or(0)
    }

    /// Begins a request: `EAGAIN` without room in the ring, `EINVAL` if it is destroyed.
    pub fn begin(&self) -> Result<Begun<'_>> {
        let mut state = self.state.lock();
        if state.destroyed {
            return Err(Errno::EINVAL);
        }
        if !self.ring.has_room(self.head(), state.tail, state.on_their_way) {
            return Err(Errno::EAGAIN);
        }
        state.on_their_way += 1;
        Ok(Begun { context: self })
    }

    /// Ends a request that has a place: with an event, or without one if it did not come about.
    fn end(&self, event: Option<&[u8; EVENT]>) {
        let mut state = self.state.lock();
        state.on_their_way -= 1;
        if let Some(event) = event {
            let (page, at) = self.ring.place(state.tail);
            if let Some(page) = self.pages.get(page) {
                page.write(at, event);
            }
            state.tail = self.ring.next(state.tail);
            // A library that sees the tail sees the event.
            fence(Ordering::Release);
            if let Some(first) = self.pages.first() {
                first.write(TAIL, &state.tail.to_le_bytes());
            }
        }
        drop(state);
        self.changes.wake_all();
    }

    /// Reports how a request went, and tells its eventfd.
    fn complete(&self, named: Named, result: i64, eventfd: Option<&OpenFile>) {
        self.end(Some(&named.event(result)));
        if let Some(eventfd) = eventfd {
            eventfd::signal(eventfd);
        }
    }

    /// Takes at least `least` events and at most `most`, unless `deadline` passes (monotonic ns;
    /// `Some(0)`: does not wait). `put` gets each with its number. Returns how many.
    ///
    /// # Errors
    /// `EINVAL` (it was destroyed); `EINTR`; the error of `put` for the first event.
    pub fn take(
        &self,
        (least, most): (usize, usize),
        deadline: Option<u64>,
        mut put: impl FnMut(usize, &[u8; EVENT]) -> Result<()>,
    ) -> Result<usize> {
        let mut taken = 0;
        loop {
            let outcome = self.take_those_there(&mut taken, most, &mut put);
            if self.state.lock().destroyed {
                return Err(Errno::EINVAL);
            }
            match outcome {
                Err(error) if taken == 0 => return Err(error),
                Err(_) => return Ok(taken),
                Ok(()) if taken >= least || deadline == Some(0) => return Ok(taken),
                Ok(()) => {}
            }
            let happened = || {
                let state = self.state.lock();
                let is_there = self.ring.waiting(self.head(), state.tail) != 0;
                (is_there || state.destroyed).then_some(())
            };
            match self.changes.wait_interruptible(deadline, happened) {
                Ok(()) => {}
                Err(_) if taken != 0 => return Ok(taken),
                Err(Woken::TimedOut) => return Ok(0),
                Err(Woken::Interrupted) => return Err(Errno::EINTR),
            }
        }
    }

    fn take_those_there(
        &self,
        taken: &mut usize,
        most: usize,
        put: &mut impl FnMut(usize, &[u8; EVENT]) -> Result<()>,
    ) -> Result<()> {
        let _reading = self.reading.lock();
        let mut head = self.ring.wrap(self.head());
        while *taken < most && self.ring.waiting(head, self.state.lock().tail) != 0 {
            let mut event = [0; EVENT];
            let (page, at) = self.ring.place(head);
            if let Some(page) = self.pages.get(page) {
                page.read(at, &mut event);
            }
            put(*taken, &event)?;
            *taken += 1;
            head = self.ring.next(head);
            if let Some(first) = self.pages.first() {
                first.write(HEAD, &head.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Destroys it: gives up the requests that wait for files, and waits for those that other
    /// threads are carrying out. `EINVAL`: it is destroyed already.
    pub fn destroy(&self) -> Result<()> {
        let polls = {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.destroyed, true) {
                return Err(Errno::EINVAL);
            }
            core::mem::take(&mut state.polls)
        };
        for poll in polls {
            poll.give_up(self);
        }
        self.changes.wake_all();
        self.changes.wait(|| (self.state.lock().on_their_way == 0).then_some(()));
        Ok(())
    }

    /// Gives up the request that waits for a file and has its `struct iocb` at this address; its
    /// event comes (`io_cancel(2)`). `EINVAL`: there is none.
    pub fn cancel(&self, request: u64) -> Result<()> {
        let poll = {
            let mut state = self.state.lock();
            let at = state.polls.iter().position(|poll| poll.request() == request);
            at.map(|at| state.polls.swap_remove(at)).ok_or(Errno::EINVAL)?
        };
        poll.give_up(self);
        Ok(())
    }
}

impl FileOps for Context {
    fn traits(&self) -> Traits {
        Traits::empty()
    }

    /// The last mapping is gone.
    fn release(&self, _: &OpenFile) {
        let polls = core::mem::take(&mut self.state.lock().polls);
        for poll in polls {
            poll.give_up(self);
        }
    }
}

/// A request that has a place in the ring. Dropped without an event, it did not come about.
pub struct Begun<'a> {
    context: &'a Context,
}

impl Begun<'_> {
    /// Reports how it went, and tells its eventfd.
    pub fn complete(self, named: Named, result: i64, eventfd: Option<&OpenFile>) {
        self.context.complete(named, result, eventfd);
        core::mem::forget(self);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.context.end(None);
    }
}
