//! Reading ahead while the reader goes on.
//!
//! Who reads a cached file in order asks here for what comes next ([`ask`]) and does not wait; two
//! executions of the kernel's own read it ([`Plate::readahead`]), so that with the reader's own there
//! are up to three requests on their way to a disk. A page that is being read is marked so in its plate:
//! a reader who arrives too early waits for that same request.
//!
//! What is asked for is a hint. When the list is full, or the plate goes before its turn comes, nothing
//! is lost but time.
//!
//! Lock order: the list's lock is a leaf.
//!
//! Road not taken: requests that finish in the disk's interrupt. Finding where a file's pages lie may
//! itself read from the disk and sleep, and so needs an execution.

use alloc::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use hayate_machine::sync::SpinLock;

use super::plate::{Plate, Reader};
use crate::schedule::{self, WaitQueue};

/// How many pages are asked for at a time.
pub const WINDOW: u64 = 32;
/// How many requests may wait.
const MOST: usize = 32;
/// How many executions read.
const READERS: usize = 2;

struct Request {
    plate: Weak<Plate>,
    first: u64,
    count: u64,
    reader: Reader,
}

static REQUESTS: SpinLock<ArrayVec<Request, MOST>> = SpinLock::new(ArrayVec::new_const());
static ASKED: WaitQueue = WaitQueue::new();

/// Starts the readers: once, when there is a disk.
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

/// Asks for the pages `first..first + count` that are missing and inside the size.
pub fn ask(plate: &Arc<Plate>, first: u64, count: u64) {
    ask_for(Reader::Other, plate, first, count);
}

/// The same for a certain reader.
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

/// Asks for all of a long range, as far as there is room on the list.
pub fn ask_all(plate: &Arc<Plate>, first: u64, count: u64) {
    let end = first.saturating_add(count).min(plate.page_count());
    let mut at = first;
    while at < end {
        ask(plate, at, WINDOW.min(end - at));
        at += WINDOW;
    }
}
