//! The bytes that an endpoint has sent and that are not yet received, limited by SO_SNDBUF.
//!
//! As on Linux (`sock_alloc_send_pskb`, `sk_wmem_alloc`), a message counts against the socket that
//! sent it, with its bytes and a fixed overhead, until all of it has left the receiver's queue. A
//! sender may begin a message while it has less than its limit in flight, so one message may exceed
//! the limit. So small messages count with what they cost the kernel: a socket with the default
//! limit holds some 277 messages of one byte.
//!
//! A [`Charge`] is part of a message; dropping it needs no lock.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::vfs::socket_options::{RECEIVE_DEFAULT, SEND_DEFAULT};

/// The overhead of a message: the least that Linux charges (`SKB_TRUESIZE(0)` with the rounding of
/// its allocator).
const OVERHEAD: usize = 768;

/// The two buffer sizes, and the number of bytes in flight.
pub struct Account {
    in_flight: AtomicUsize,
    send: AtomicUsize,
    receive: AtomicUsize,
}

/// The bytes that a message counts for; uncounted when dropped.
pub struct Charge {
    account: Arc<Account>,
    size: usize,
}

impl Account {
    /// Makes an account with nothing in flight and default sizes.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicUsize::new(0),
            send: AtomicUsize::new(SEND_DEFAULT),
            receive: AtomicUsize::new(RECEIVE_DEFAULT),
        })
    }

    /// Returns SO_SNDBUF, as getsockopt(2) does: twice the value that was set.
    pub fn send_size(&self) -> usize {
        self.send.load(Ordering::Relaxed)
    }

    /// Returns SO_RCVBUF. A Unix-domain socket obeys its sender's limit, not this one (socket(7)).
    pub fn receive_size(&self) -> usize {
        self.receive.load(Ordering::Relaxed)
    }

    /// SIOCOUTQ: returns the bytes that were sent and not yet received, with the overhead.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Sets SO_SNDBUF, to the size that is to be kept.
    pub fn set_send_size(&self, size: usize) {
        self.send.store(size, Ordering::Relaxed);
    }

    /// Sets SO_RCVBUF.
    pub fn set_receive_size(&self, size: usize) {
        self.receive.store(size, Ordering::Relaxed);
    }

    /// Whether another message may be sent now.
    pub fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) < self.send_size()
    }

    /// Whether enough is free that a sender should be woken and a poll should report the socket as
    /// writable (`unix_writable`).
    pub fn is_writable(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) * 4 <= self.send_size()
    }

    /// Counts a message of `length` bytes; `None` when the limit is reached.
    pub fn charge(self: &Arc<Self>, length: usize) -> Option<Charge> {
        let size = length.saturating_add(OVERHEAD);
        self.in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
                (sum < self.send_size()).then(|| sum.saturating_add(size))
            })
            .ok()?;
        Some(Charge { account: Arc::clone(self), size })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.in_flight.fetch_sub(self.size, Ordering::Relaxed);
    }
}
