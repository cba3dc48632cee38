//! The per-user counts of limited objects: watches of epoll and of inotify, inotify instances,
//! pages of pipes, descriptors in messages, connections that wait to be accepted; locked
//! segments of shared memory, message queues of POSIX, and namespaces.
//!
//! The count of a user is found by the real user id when such an object is made, and the object
//! keeps a reference to it: so the count that was raised is also the one that is lowered, whichever
//! user closes the object. The entries of users without objects are dropped when a new user comes.
//!
//! Locks: `USERS` is a spin lock and a leaf.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::reclaim::growth::Grow;
use hayate_abi::Result;
use hayate_machine::frames;
use hayate_machine::sync::SpinLock;

/// A number that may not pass a limit.
#[derive(Default)]
pub struct Count(AtomicUsize);

impl Count {
    /// Adds one unless the count is `most` already; returns whether it did.
    pub fn take(&self, most: usize) -> bool {
        self.claim(1, most)
    }

    /// Adds `more` unless the count is more than `most` then; returns whether it did.
    pub fn claim(&self, more: usize, most: usize) -> bool {
        let next = |held: usize| held.checked_add(more).filter(|&sum| sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Returns the number.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `more`; returns the sum.
    pub fn add(&self, more: usize) -> usize {
        self.0.fetch_add(more, Ordering::Relaxed) + more
    }

    /// Subtracts `less`.
    pub fn give(&self, less: usize) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

/// Returns the bytes of messages in flight beyond which a user gets little more: a sixteenth of
/// memory.
pub fn most_in_flight() -> usize {
    frames::total() * (4096 / 16)
}

/// The counts of a user.
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
    /// Descriptors in messages between Unix-domain sockets.
    pub files_in_flight: Count,
    /// Bytes in such messages, and in the queues of netlink sockets.
    pub bytes_in_flight: Count,
    /// Bytes of connections that wait to be accepted.
    pub unaccepted: Count,
    /// Pages of shared memory that `SHM_LOCK` locked (`RLIMIT_MEMLOCK`).
    pub locked_pages: Count,
    /// Bytes of POSIX message queues (`RLIMIT_MSGQUEUE`).
    pub message_queues: Count,
    /// UTS namespaces (`user.max_uts_namespaces`).
    pub uts_namespaces: Count,
    /// IPC namespaces (`user.max_ipc_namespaces`).
    pub ipc_namespaces: Count,
    /// Mount namespaces (`user.max_mnt_namespaces`).
    pub mount_namespaces: Count,
    /// PID namespaces (`user.max_pid_namespaces`).
    pub pid_namespaces: Count,
    /// Network namespaces (`user.max_net_namespaces`).
    pub network_namespaces: Count,
    /// Cgroup namespaces (`user.max_cgroup_namespaces`).
    pub cgroup_namespaces: Count,
    /// User namespaces (`user.max_user_namespaces`).
    pub user_namespaces: Count,
}

/// One namespace among those of a user (`/proc/sys/user`).
pub struct Counted {
    user: Arc<Holdings>,
    which: fn(&Holdings) -> &Count,
}

impl Counted {
    /// Counts one more in a count of the user; `None` if there are `most` already.
    pub fn new(
        user: Arc<Holdings>,
        which: fn(&Holdings) -> &Count,
        most: usize,
    ) -> Option<Counted> {
        // Not made before it is counted: its end subtracts.
        which(&user).take(most).then_some(())?;
        Some(Counted { user, which })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.user).give(1);
    }
}

/// By user id, sorted.
static USERS: SpinLock<Vec<(u32, Weak<Holdings>)>> = SpinLock::new(Vec::new());

/// Returns the counts of the user with this id.
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
    users.make_room(1)?;
    let holdings = Arc::new(Holdings::default());
    users.insert(place, (user, Arc::downgrade(&holdings)));
    Ok(holdings)
}

/// Returns the counts of a user; `None` for the superuser, who is not bounded, and without memory
/// for the counts, which are few: then what is made counts for nobody.
pub fn limited(user: u32) -> Option<Arc<Holdings>> {
    if user == 0 { None } else { of(user).ok() }
}

/// A limit that the administrator can change; before that, it follows the size of memory.
pub struct Limit {
    value: AtomicUsize,
    initial: fn() -> usize,
}

/// The administrator has set no value.
const UNSET: usize = usize::MAX;

impl Limit {
    /// Makes a limit whose first value `initial` computes.
    pub const fn new(initial: fn() -> usize) -> Limit {
        Limit { value: AtomicUsize::new(UNSET), initial }
    }

    /// Returns the limit now.
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
