//! Descriptors in flight: counted while they are in a message, collected when no program can reach
//! them, and closed without recursion.
//!
//! A descriptor that was sent waits in the queue of a socket. That socket may be in flight itself,
//! and so on: sockets can hold each other in a cycle of which no program has a descriptor any more.
//! [`collect`] looks for such cycles as Linux does (net/unix/garbage.c of 6.1):
//!
//! * *Candidates* are sockets in flight all of whose references are in flight.
//! * From each candidate's count, the references that wait in queues of candidates are subtracted.
//!   A candidate with references left waits in a queue from which a program can receive it. Every
//!   socket that waits in its own queue can then be received, too.
//! * The other candidates are garbage. Their queues are emptied, which frees them.
//!
//! **Why the counts can be trusted.** They are fixed while [`FLIGHT`] is held: a thread that sends
//! or receives a socket takes this lock before the message enters a queue or after it left one. A
//! reference that moves meanwhile is found in no queue, so the socket it refers to is kept. A
//! program that could put such a reference back into a queue would hold a descriptor of a
//! candidate, which then would not be a candidate.
//!
//! **When.** A collection is due when as many sockets were closed as there are in flight, or when
//! twice as many are in flight as the last collection left. So its cost per socket is constant.
//!
//! **Closing without recursion, and without memory.** A dropped queue may hold the last reference
//! to a socket whose queue holds the last reference to another, thousands deep. [`bury`] takes the
//! queue of each such socket away before the socket is dropped. The queues still to be emptied are
//! joined through their endpoints ([`Graves`]): a list that had to grow would make the end of a
//! socket depend on memory.
//!
//! **How many.** As on Linux (`too_many_unix_fds`) the descriptors that a user has in flight count
//! against RLIMIT_NOFILE of the process that sends, and also against [`MOST_OF_USER`]; a process
//! with CAP_SYS_RESOURCE or CAP_SYS_ADMIN passes both. So no user takes them from another.
//!
//! Lock order: [`FLIGHT`], then an endpoint's lock, then that of an endpoint that waits to be
//! accepted there.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::endpoint::Endpoint;
use super::message::{Descriptors, Message};
use super::socket::Socket;
use crate::reclaim::growth::Grow;
use crate::vfs::open_file::OpenFile;
use crate::vfs::users;

/// The most descriptors that a user without privilege has in flight, whatever RLIMIT_NOFILE is.
pub const MOST_OF_USER: usize = 16 * 1024;
/// Below this number of sockets in flight, their number alone starts no collection.
const FEW: usize = 64;

/// The sockets in flight, by the address of their open file.
static FLIGHT: SpinLock<BTreeMap<usize, Travelling>> = SpinLock::new(BTreeMap::new());
/// The number of sockets in flight, and the number at which the next collection is due.
static SOCKETS: AtomicUsize = AtomicUsize::new(0);
static DUE: AtomicUsize = AtomicUsize::new(FEW);
/// Sockets closed since the last collection.
static CLOSED: AtomicUsize = AtomicUsize::new(0);
static COLLECTING: AtomicBool = AtomicBool::new(false);

struct Travelling {
    file: Weak<OpenFile>,
    endpoint: Weak<Endpoint>,
    /// How many references to the file are in flight.
    count: usize,
}

fn key(file: &Arc<OpenFile>) -> usize {
    Arc::as_ptr(file).addr()
}

impl Descriptors {
    /// Puts these files in flight, for a user who may have `most` there. `ETOOMANYREFS` when there
    /// are more already; `ENOMEM`.
    pub fn send(files: Vec<Arc<OpenFile>>, user: u32, most: usize) -> Result<Self> {
        if files.is_empty() {
            return Ok(Self::default());
        }
        let user = users::of(user)?;
        let is_beyond = || user.files_in_flight.get() > most;
        if is_beyond() || SOCKETS.load(Ordering::Relaxed) >= DUE.load(Ordering::Relaxed) {
            collect();
        }
        if is_beyond() {
            return Err(Errno::ETOOMANYREFS);
        }
        depart(&files);
        user.files_in_flight.add(files.len());
        Ok(Self { files, user: Some(user) })
    }

    /// Takes the files out of flight. Not under an endpoint's lock.
    pub fn take(&mut self) -> Vec<Arc<OpenFile>> {
        let files = core::mem::take(&mut self.files);
        if let Some(user) = self.user.take() {
            arrive(&files);
            user.files_in_flight.give(files.len());
        }
        files
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Counts the sockets among files that are sent.
fn depart(files: &[Arc<OpenFile>]) {
    for file in files {
        let Some(socket) = file.ops_as::<Socket>() else { continue };
        let mut flight = FLIGHT.lock();
        let travelling = flight.entry(key(file)).or_insert_with(|| Travelling {
            file: Arc::downgrade(file),
            endpoint: Arc::downgrade(socket.endpoint()),
            count: 0,
        });
        travelling.count += 1;
        SOCKETS.store(flight.len(), Ordering::Relaxed);
    }
}

/// Uncounts files that were received or dropped.
fn arrive(files: &[Arc<OpenFile>]) {
    for file in files {
        if file.ops_as::<Socket>().is_none() {
            continue;
        }
        let mut flight = FLIGHT.lock();
        if let Some(travelling) = flight.get_mut(&key(file)) {
            travelling.count -= 1;
            if travelling.count == 0 {
                let gone = flight.remove(&key(file));
                SOCKETS.store(flight.len(), Ordering::Relaxed);
                drop(flight);
                drop(gone);
            }
        }
    }
}

/// Called when a socket was closed: it may have been the last way to reach others.
pub fn closed() {
    let travelling = SOCKETS.load(Ordering::Relaxed);
    if travelling != 0 && CLOSED.fetch_add(1, Ordering::Relaxed) + 1 >= travelling {
        collect();
    }
}

/// A socket all of whose references are in flight.
struct Candidate {
    key: usize,
    endpoint: Arc<Endpoint>,
    /// References that were not found in a candidate's queue.
    left: usize,
    reachable: bool,
}

/// Finds sockets that no program can reach and closes them. Does nothing without memory for the
/// search.
fn collect() {
    if COLLECTING.swap(true, Ordering::Acquire) {
        return;
    }
    CLOSED.store(0, Ordering::Relaxed);
    let mut candidates = Vec::new();
    let mut queues = VecDeque::new();
    {
        let flight = FLIGHT.lock();
        if candidates.make_room_exact(flight.len()).is_ok() {
            for (&key, travelling) in flight.iter() {
                if travelling.file.strong_count() == travelling.count
                    && let Some(endpoint) = travelling.endpoint.upgrade()
                {
                    let left = travelling.count;
                    candidates.push(Candidate { key, endpoint, left, reachable: false });
                }
            }
            mark(&mut candidates);
            for garbage in candidates.iter().filter(|candidate| !candidate.reachable) {
                garbage.endpoint.take_messages(&mut queues);
            }
        }
    }
    // Closing them starts no nested collection: `COLLECTING` is set.
    bury(queues, Graves::default());
    // The next collection is due when the number of remaining sockets has doubled.
    DUE.store((2 * SOCKETS.load(Ordering::Relaxed)).max(FEW), Ordering::Relaxed);
    COLLECTING.store(false, Ordering::Release);
}

/// Marks the candidates that a program can receive, and all that wait in their queues.
fn mark(candidates: &mut [Candidate]) {
    let mut pending = Vec::new();
    if pending.make_room_exact(candidates.len()).is_err() {
        candidates.iter_mut().for_each(|candidate| candidate.reachable = true);
        return;
    }
    for at in 0..candidates.len() {
        let endpoint = candidates[at].endpoint.clone();
        endpoint.for_each_waiting(&mut |file| {
            if let Ok(found) = candidates.binary_search_by_key(&key(file), |other| other.key) {
                candidates[found].left = candidates[found].left.saturating_sub(1);
            }
        });
    }
    for (at, candidate) in candidates.iter_mut().enumerate() {
        if candidate.left != 0 {
            candidate.reachable = true;
            pending.push(at);
        }
    }
    while let Some(at) = pending.pop() {
        let endpoint = candidates[at].endpoint.clone();
        endpoint.for_each_waiting(&mut |file| {
            if let Ok(found) = candidates.binary_search_by_key(&key(file), |other| other.key)
                && !candidates[found].reachable
            {
                candidates[found].reachable = true;
                pending.push(found);
            }
        });
    }
}

/// Closed endpoints whose messages are still to be dropped, joined through the endpoints.
#[derive(Default)]
pub struct Graves(Option<Arc<Endpoint>>);

impl Graves {
    /// Adds an endpoint that was ended, with the messages that it had.
    pub fn add(&mut self, endpoint: &Arc<Endpoint>, messages: VecDeque<Message>) {
        if !messages.is_empty() {
            endpoint.inter(messages, self.0.take());
            self.0 = Some(Arc::clone(endpoint));
        }
    }

    /// Takes one; returns the messages that it had.
    fn open(&mut self) -> Option<VecDeque<Message>> {
        let endpoint = self.0.take()?;
        let (messages, next) = endpoint.exhume();
        self.0 = next;
        Some(messages)
    }
}

/// Drops messages that will never be received, and those of closed endpoints. Not under a lock:
/// closing a file may sleep.
pub fn bury(mut messages: VecDeque<Message>, mut graves: Graves) {
    loop {
        while let Some(mut message) = messages.pop_front() {
            for file in message.descriptors.take() {
                // This is the last reference; with its queue taken away, the socket drops no other
                // sockets.
                if Arc::strong_count(&file) == 1
                    && let Some(socket) = file.ops_as::<Socket>()
                {
                    let more = socket.endpoint().end(&mut graves);
                    graves.add(socket.endpoint(), more);
                }
            }
            let origin = message.origin.clone();
            drop(message);
            if let Some(origin) = origin.upgrade() {
                origin.arrived();
            }
        }
        match graves.open() {
            Some(more) => messages = more,
            None => return,
        }
    }
}
