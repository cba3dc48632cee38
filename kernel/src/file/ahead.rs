//! Read-ahead in the background.
//!
//! A thread that reads a cached file in order requests the following pages here ([`ask`]) and does
//! not wait. Two kernel threads read them ([`Plate::readahead`]), so that with the reader's own up
//! to three requests are on their way to a disk. A page that is being read is marked as loading in
//! its page cache: a reader that needs it too early waits for that same request.
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

use super::plate::{Plate, Reader};
use crate::schedule::{self, WaitQueue};

/// Pages in one request.
pub const WINDOW: u64 = 32;
/// The most requests that can wait.
const MOST: usize = 32;
/// The number of threads that read.
const READERS: usize = 2;

struct Request {
    plate: Weak<Plate>,
    first: u64,
    count: u64,
    reader: Reader,
}

static REQUESTS: SpinLock<ArrayVec<Request, MOST>> = SpinLock::new(ArrayVec::new_const());
static ASKED: WaitQueue = WaitQueue::new();

/// Starts the threads that read: once, when there is a disk.
///
/// # Errors
/// `ENOMEM`.
pub fn start() -> hayate_abi::Result<()> {
    for _ in 0..READERS {
        schedule::start_kernel("read-ahead", || {
            loop {
                let request = ASKED.wait(|| REQUESTS.lock().pop_at(0));
                if let Some(plate) = request.plate.upgrade() {
                    plate.read_for(request.reader, request.first, request.count);
                }
            }
        })?;
    }
    Ok(())
}

/// Requests the missing pages of `first..first + count` that are inside the size.
pub fn ask(plate: &Arc<Plate>, first: u64, count: u64) {
    ask_for(Reader::Other, plate, first, count);
}

/// Like [`ask`], for the given purpose.
pub fn ask_for(reader: Reader, plate: &Arc<Plate>, first: u64, count: u64) {
    if plate.is_memory() || first >= plate.page_count() || plate.peek(first).is_some() {
        return;
    }
    {
        let mut requests = REQUESTS.lock();
        let same = |other: &Request| {
            other.first == first && core::ptr::eq(other.plate.as_ptr(), Arc::as_ptr(plate))
        };
        if requests.is_full() || requests.iter().any(same) {
            return;
        }
        requests.push(Request { plate: Arc::downgrade(plate), first, count, reader });
    }
    ASKED.wake_one();
}

/// Requests all of a long range, as far as there is room on the list.
pub fn ask_all(plate: &Arc<Plate>, first: u64, count: u64) {
    let end = first.saturating_add(count).min(plate.page_count());
    let mut at = first;
    while at < end {
        ask(plate, at, WINDOW.min(end - at));
        at += WINDOW;
    }
}
