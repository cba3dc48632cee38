//! The memory that the queues of sockets hold together, and its bounds.
//!
//! Every socket has a limit of its own, and a program may have thousands of sockets. So the pages
//! that the queues of TCP, and those of UDP and its relatives, pin are counted, and bounded as on
//! Linux: `net.ipv4.tcp_mem` and `udp_mem` (tcp(7), udp(7)), three numbers of pages each. Up to the
//! first nothing is refused. A UDP socket gets no more than 4096 bytes beyond the first, and
//! nothing beyond the last (`__sk_mem_raise_allocated`). Beyond the second a TCP socket that holds
//! more than its share of the last, and beyond the last every one, takes only a little at a time:
//! [`Pressure::Shared`].
//!
//! On Linux one user can have all of that, and the others nothing. Here the pages are counted for
//! each user as well, and one that has more than half of the last bound (for UDP, of the second)
//! stops earlier: at the last bound of TCP, where others go on up to twice as many pages, and at
//! the second of UDP.
//!
//! What is counted is the memory that pieces pin, not the bytes that they show: a whole run for a
//! small part of one, and at least half a frame for any piece, which may share its frame with
//! others (see [`Slice::pinned`](super::slice::Slice::pinned)).
//!
//! The counts have a part for each processor, which goes into the whole when it reaches
//! [`SLACK`]: on a packet's way no processor writes what others write. A whole may so be wrong by
//! as many pages for each processor.
//!
//! Not counted: the queues of Unix sockets, which are counted for each user where they are
//! (`ipc::unix::account`), and those of netlink and packet sockets, which have only a limit for
//! each socket, as on Linux.

use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

use hayate_machine::cpu::PerCpu;
use hayate_machine::{frames, per_cpu};
use hayate_tcp::Pressure;

/// The bytes of a page.
const PAGE: usize = 4096;
/// The part of a count that a processor keeps for itself.
const SLACK: isize = 16;
/// Bytes that a datagram socket may hold beyond the first bound (`net.ipv4.udp_rmem_min`).
const LEAST: usize = 4096;
/// The least of the middle bound.
const LEAST_BOUND: usize = 128;

/// The counts of users: the superuser's, those of others by their number (users whose numbers leave
/// the same rest share one), and that of packets that no user is known for.
const USERS: usize = 64;
/// The user of a [`Charge`] for which none is known.
pub const NOBODY: u32 = u32::MAX;

/// A count: of a pool the pages, the sockets, then the pages of each user.
#[derive(Clone, Copy)]
struct Count(usize);

const PAGES: usize = 0;
const SOCKETS: usize = 1;
const FIRST_USER: usize = 2;
/// The counts of a pool.
const OF_POOL: usize = FIRST_USER + USERS;
const COUNTS: usize = 2 * OF_POOL;

per_cpu! {
    static PARTS: PerCpu<[AtomicIsize; COUNTS]> =
        PerCpu::new([const { AtomicIsize::new(0) }; COUNTS]);
}

static WHOLES: [AtomicIsize; COUNTS] = [const { AtomicIsize::new(0) }; COUNTS];

impl Count {
    #[inline]
    fn add(self, change: isize) {
        let part = &PARTS.here()[self.0];
        let sum = part.fetch_add(change, Relaxed) + change;
        if sum.abs() >= SLACK {
            WHOLES[self.0].fetch_add(part.swap(0, Relaxed), Relaxed);
        }
    }

    #[inline]
    fn whole(self) -> usize {
        WHOLES[self.0].load(Relaxed).max(0) as usize
    }
}

/// The memory of the sockets of a protocol.
pub struct Pool {
    /// The first of its counts.
    first: usize,
    bounds: [AtomicUsize; 3],
}

/// TCP's.
pub static TCP: Pool = Pool::new(0);
/// That of UDP, ICMP echo and raw sockets.
pub static UDP: Pool = Pool::new(OF_POOL);

/// Sets the bounds by the memory that is free now; at boot (`tcp_init_mem`, `udp_init`).
pub(super) fn init() {
    let free = frames::counts().free;
    for (pool, part) in [(&TCP, 16), (&UDP, 8)] {
        let middle = (free / part).max(LEAST_BOUND);
        let low = middle / 4 * 3;
        pool.set_bounds([low, middle, 2 * low]);
    }
}

impl Pool {
    const fn new(first: usize) -> Pool {
        Pool { first, bounds: [const { AtomicUsize::new(usize::MAX) }; 3] }
    }

    #[inline]
    fn pages(&self) -> Count {
        Count(self.first + PAGES)
    }

    fn sockets(&self) -> Count {
        Count(self.first + SOCKETS)
    }

    #[inline]
    fn user(&self, user: u32) -> Count {
        let place = match user {
            0 => 0,
            NOBODY => USERS - 1,
            other => 1 + other as usize % (USERS - 2),
        };
        Count(self.first + FIRST_USER + place)
    }

    /// Returns the bounds, in pages.
    pub fn bounds(&self) -> [usize; 3] {
        self.bounds.each_ref().map(|bound| bound.load(Relaxed))
    }

    /// Sets them.
    pub fn set_bounds(&self, bounds: [usize; 3]) {
        for (own, bound) in self.bounds.iter().zip(bounds) {
            own.store(bound, Relaxed);
        }
    }

    #[inline]
    fn bound(&self, which: usize) -> usize {
        self.bounds[which].load(Relaxed)
    }
}

/// What a socket counts for in its pool; nothing any more when it is dropped.
pub struct Charge {
    pool: &'static Pool,
    user: Count,
    pages: usize,
}

impl Charge {
    /// Counts another socket of a user, which holds nothing yet.
    pub fn new(pool: &'static Pool, user: u32) -> Charge {
        pool.sockets().add(1);
        Charge { pool, user: pool.user(user), pages: 0 }
    }

    /// Counts the pages of so many bytes instead of those before.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        let pages = bytes.div_ceil(PAGE);
        if pages != self.pages {
            let change = pages as isize - self.pages as isize;
            self.pool.pages().add(change);
            self.user.add(change);
            self.pages = pages;
        }
    }

    /// Returns the bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    /// Whether a datagram socket that holds `own` bytes may hold another datagram.
    #[inline]
    pub fn admits(&self, own: usize) -> bool {
        let pages = self.pool.pages().whole();
        pages <= self.pool.bound(0) || self.admits_least(pages, own)
    }

    #[cold]
    fn admits_least(&self, pages: usize, own: usize) -> bool {
        let [_, middle, most] = self.pool.bounds();
        let has_much = self.user.whole() > middle / 2;
        own < LEAST && pages <= if has_much { middle } else { most }
    }

    /// Returns how scarce memory is for a stream socket.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        let pages = self.pool.pages().whole();
        if pages <= self.pool.bound(1) { Pressure::None } else { self.share(pages) }
    }

    #[cold]
    fn share(&self, pages: usize) -> Pressure {
        let most = self.pool.bound(2);
        let has_much = self.user.whole() > most / 2;
        if pages > most.saturating_mul(if has_much { 1 } else { 2 }) {
            Pressure::Exhausted
        } else if pages > most || self.pages.saturating_mul(self.pool.sockets().whole()) >= most {
            Pressure::Shared
        } else {
            Pressure::None
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
        self.pool.sockets().add(-1);
    }
}
