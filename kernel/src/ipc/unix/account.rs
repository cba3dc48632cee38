//! The bytes that an endpoint has sent and that are not yet received, limited by SO_SNDBUF.
//!
//! As on Linux (`sock_alloc_send_pskb`, `sk_wmem_alloc`), a message counts against the socket that
//! sent it, with its bytes and a fixed overhead, until all of it has left the receiver's queue. A
//! sender may begin a message while it has less than its limit in flight, so one message may exceed
//! the limit. So small messages count with what they cost the kernel: a socket with the default
//! limit holds some 277 messages of one byte.
//!
//! A user may have thousands of sockets, so what they all have in flight counts for the user as
//! well, but for the superuser, and is bounded by a part of memory; Linux has only the limit of
//! each socket. Beyond the bound a socket has one message of [`LEAST`] bytes in flight, so that a
//! thread that waits is woken when that is read; beyond twice the bound a message is refused.
//!
//! A [`Charge`] is part of a message; dropping it needs no lock.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};

use crate::vfs::socket_options::{RECEIVE_DEFAULT, SEND_DEFAULT};
use crate::vfs::unaccepted::Unaccepted;
use crate::vfs::users;
use crate::vfs::users::Holdings;

/// The overhead of a message: the least that Linux charges (`SKB_TRUESIZE(0)` with the rounding of
/// its allocator).
const OVERHEAD: usize = 768;

/// The bytes of the message that a socket may have in flight, however much its user has.
pub const LEAST: usize = 4096;

/// The two buffer sizes, and the number of bytes in flight.
pub struct Account {
    in_flight: AtomicUsize,
    send: AtomicUsize,
    receive: AtomicUsize,
    /// The counts of its user; `None` for the superuser.
    user: Option<Arc<Holdings>>,
}

/// The bytes that a message counts for; uncounted when dropped.
pub struct Charge {
    account: Arc<Account>,
    size: usize,
}

impl Account {
    /// Makes an account of a user, with nothing in flight and default sizes.
    pub fn new(user: u32) -> Arc<Self> {
        Arc::new(Self {
            user: users::limited(user),
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
        let in_flight = self.in_flight();
        if self.is_pressed() { in_flight == 0 } else { in_flight * 4 <= self.send_size() }
    }

    /// Whether its user has so much in flight that only small messages are taken.
    pub fn is_pressed(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.bytes_in_flight.get() > users::most_in_flight())
    }

    /// Counts a connection that waits to be accepted by the listener with this account. `None` when
    /// its user has too many.
    pub fn count_waiting(&self, bytes: usize) -> Option<Unaccepted> {
        Unaccepted::count(self.user.as_ref(), bytes)
    }

    /// Counts a message of `length` bytes; `None` when the limit is reached. `ENOBUFS` when its
    /// user has too much in flight.
    pub fn charge(self: &Arc<Self>, length: usize) -> Result<Option<Charge>> {
        let size = length.saturating_add(OVERHEAD);
        if let Some(user) = &self.user {
            let sum = user.bytes_in_flight.add(size);
            let is_first = self.in_flight() == 0;
            if sum > users::most_in_flight()
                && (!is_first || length > LEAST || sum > 2 * users::most_in_flight())
            {
                user.bytes_in_flight.give(size);
                return if is_first { Err(Errno::ENOBUFS) } else { Ok(None) };
            }
        }
        let counted = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
            (sum < self.send_size()).then(|| sum.saturating_add(size))
        });
        if counted.is_err() {
            self.uncount(size);
            return Ok(None);
        }
        Ok(Some(Charge { account: Arc::clone(self), size }))
    }

    fn uncount(&self, size: usize) {
        if let Some(user) = &self.user {
            user.bytes_in_flight.give(size);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.uncount(self.size);
        self.account.in_flight.fetch_sub(self.size, Ordering::Relaxed);
    }
}
