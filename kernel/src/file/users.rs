//! What each user holds of things that are limited for each user: watches of epoll and of inotify,
//! inotify instances, pages of pipes.
//!
//! The count of a user is found by the real user id when such a thing is made, and kept by the
//! thing from then on: it is given back to whom it was taken from, whoever closes it. Users who
//! hold nothing are forgotten when a new one comes.
//!
//! Locks: `USERS` is a spin lock and a leaf.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

/// A number that may not pass a limit.
#[derive(Default)]
pub struct Count(AtomicUsize);

impl Count {
    /// Adds one unless there are `most` already; says whether it did.
    pub fn take(&self, most: usize) -> bool {
        let next = |held: usize| (held < most).then_some(held + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Adds `more`, gives the sum.
    pub fn add(&self, more: usize) -> usize {
        self.0.fetch_add(more, Ordering::Relaxed) + more
    }

    /// Gives `less` back.
    pub fn give(&self, less: usize) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

/// What a user holds.
#[derive(Default)]
pub struct Holdings {
    /// Files watched by epoll (`fs.epoll.max_user_watches`).
    pub epoll_watches: Count,
    /// Instances of inotify (`fs.inotify.max_user_instances`).
    pub inotify_instances: Count,
    /// Files watched by inotify (`fs.inotify.max_user_watches`).
    pub inotify_watches: Count,
    /// Pages that pipes may fill (`fs.pipe-user-pages-soft`).
    pub pipe_pages: Count,
}

/// By user id, sorted.
static USERS: SpinLock<Vec<(u32, Weak<Holdings>)>> = SpinLock::new(Vec::new());

/// What the user with this id holds.
pub fn of(user: u32) -> Result<Arc<Holdings>> {
    let mut users = USERS.lock();
    let place = match users.binary_search_by_key(&user, |entry| entry.0) {
        Ok(found) => {
            if let Some(holdings) = users.get(found).and_then(|entry| entry.1.upgrade()) {
                return Ok(holdings);
            }
            users.remove(found);
            found
        }
        Err(_) => {
            users.retain(|entry| entry.1.strong_count() != 0);
            users.partition_point(|entry| entry.0 < user)
        }
    };
    users.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    let holdings = Arc::new(Holdings::default());
    users.insert(place, (user, Arc::downgrade(&holdings)));
    Ok(holdings)
}

/// A limit that the administrator can change, and that follows the size of memory until then.
pub struct Limit {
    value: AtomicUsize,
    initial: fn() -> usize,
}

/// No value yet: the limit is as it was at first.
const UNSET: usize = usize::MAX;

impl Limit {
    /// A limit that `initial` knows.
    pub const fn new(initial: fn() -> usize) -> Limit {
        Limit { value: AtomicUsize::new(UNSET), initial }
    }

    /// The limit now.
    pub fn get(&self) -> usize {
        match self.value.load(Ordering::Relaxed) {
            UNSET => (self.initial)(),
            value => value,
        }
    }

    /// Changes it.
    pub fn set(&self, value: usize) {
        self.value.store(value.min(UNSET - 1), Ordering::Relaxed);
    }
}
