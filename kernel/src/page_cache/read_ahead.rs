//! Read-ahead in the background.
//!
//! A thread that reads a cached file in order requests the following pages here ([`ask`]) and does
//! not wait. Two kernel threads read them ([`PageCache::readahead`]), so that with the reader's own
//! up to three requests are on their way to a disk. A page that is being read is marked as loading
//! in its page cache: a reader that needs it too early waits for that same request.
//!
//! A request is a hint. If the list is full, or the page cache is dropped before its turn comes,
//! only time is lost.
//!
//! Lock order: the list's lock is a leaf.
//!
//! Road not taken: completing requests in the disk's interrupt handler. Finding where a file's
//! pages lie may itself read from the disk and sleep, and so needs a thread.

use alloc::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use hayate_machine::sync::SpinLock;

use super::cache::PageCache;
use super::load::Reader;
use crate::drivers::io;
use crate::reclaim::charge;
use crate::schedule;
use crate::schedule::WaitQueue;

/// Pages in one request.
pub const WINDOW: u64 = 32;
/// The most requests that can wait.
const MOST: usize = 32;
/// The number of threads that read.
const READERS: usize = io::READERS;

struct ReadAhead {
    page_cache: Weak<PageCache>,
    first: u64,
    count: u64,
    reader: Reader,
    /// Whom the pages are charged to: who asked.
    owner: u32,
    /// The group on whose behalf the disk is asked.
    group: u32,
}

static REQUESTS: SpinLock<ArrayVec<ReadAhead, MOST>> = SpinLock::new(ArrayVec::new_const());
static ASKED: WaitQueue = WaitQueue::new();

/// Starts the threads that read: once, when there is a disk.
///
/// # Errors
/// `ENOMEM`.
pub fn start() -> hayate_abi::Result<()> {
    for number in 0..READERS {
        schedule::start_kernel("read-ahead", move || {
            loop {
                let request = ASKED.wait(|| REQUESTS.lock().pop_at(0));
                if let Some(page_cache) = request.page_cache.upgrade() {
                    let ReadAhead { reader, owner, group, first, count, .. } = request;
                    io::on_behalf(number, group, || {
                        page_cache.read_on_behalf(owner, reader, first, count);
                    });
                }
            }
        })?;
    }
    Ok(())
}

/// Requests the missing pages of `first..first + count` that are inside the size.
pub fn ask(page_cache: &Arc<PageCache>, first: u64, count: u64) {
    ask_for(Reader::Other, page_cache, first, count);
}

/// Like [`ask`], for the given purpose.
pub fn ask_for(reader: Reader, page_cache: &Arc<PageCache>, first: u64, count: u64) {
    if page_cache.is_memory()
        || first >= page_cache.page_count()
        || page_cache.peek(first).is_some()
    {
        return;
    }
    // A group that has read too much already does without.
    if page_cache.device().is_some_and(io::reads_too_much) {
        return;
    }
    let owner = charge::current_owner();
    let group = io::current();
    {
        let mut requests = REQUESTS.lock();
        let same = |other: &ReadAhead| {
            other.first == first
                && core::ptr::eq(other.page_cache.as_ptr(), Arc::as_ptr(page_cache))
        };
        if requests.is_full() || requests.iter().any(same) {
            return;
        }
        let page_cache = Arc::downgrade(page_cache);
        requests.push(ReadAhead { page_cache, first, count, reader, owner, group });
    }
    ASKED.wake_one();
}

/// Requests all of a long range, as far as there is room on the list.
pub fn ask_all(page_cache: &Arc<PageCache>, first: u64, count: u64) {
    let end = first.saturating_add(count).min(page_cache.page_count());
    let mut at = first;
    while at < end {
        ask(page_cache, at, WINDOW.min(end - at));
        at += WINDOW;
    }
}
