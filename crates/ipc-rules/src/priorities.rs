//! POSIX message queues: which message comes first, which waiter is served first, and what a queue
//! may hold (`ipc/mqueue.c` of Linux 6.1, `mq_overview(7)`).

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::NoMemory;

/// Priorities are below this (`MQ_PRIO_MAX`).
pub const PRIORITIES: u32 = 32768;
/// The most messages that any queue may hold (`HARD_MSGMAX`).
pub const MOST_MESSAGES: i64 = 65536;
/// The largest message that any queue may take (`HARD_MSGSIZEMAX`).
pub const LARGEST_MESSAGE: i64 = 16 << 20;

/// Messages by priority, and those of one priority in the order in which they came.
#[derive(Debug)]
pub struct Prioritized<M> {
    heap: BinaryHeap<Entry<M>>,
    /// The number of messages that ever came.
    arrivals: u64,
}

#[derive(Debug)]
struct Entry<M> {
    priority: u32,
    arrival: u64,
    message: M,
}

impl<M> Ord for Entry<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.cmp(&other.priority).then(other.arrival.cmp(&self.arrival))
    }
}

impl<M> PartialOrd for Entry<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> PartialEq for Entry<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<M> Eq for Entry<M> {}

impl<M> Default for Prioritized<M> {
    fn default() -> Self {
        Prioritized { heap: BinaryHeap::new(), arrivals: 0 }
    }
}

impl<M> Prioritized<M> {
    /// The number of messages.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(&mut self) -> Result<(), NoMemory> {
        self.heap.try_reserve(1).map_err(|_| NoMemory)
    }

    /// Adds a message, for which [`reserve`](Self::reserve) made room, or [`pop`](Self::pop) since.
    pub fn push(&mut self, priority: u32, message: M) {
        self.heap.push(Entry { priority, arrival: self.arrivals, message });
        self.arrivals += 1;
    }

    /// Takes the first message of the highest priority, and returns it with its priority.
    pub fn pop(&mut self) -> Option<(u32, M)> {
        self.heap.pop().map(|entry| (entry.priority, entry.message))
    }
}

/// Those that wait, by rank, of which a smaller one is served earlier; those of one rank in the
/// order in which they came (`wq_add`).
#[derive(Debug)]
pub struct Ranked<W> {
    /// The last one is served first.
    all: Vec<(i32, W)>,
}

impl<W> Default for Ranked<W> {
    fn default() -> Self {
        Ranked { all: Vec::new() }
    }
}

impl<W> Ranked<W> {
    /// Makes room for one more.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(&mut self) -> Result<(), NoMemory> {
        self.all.try_reserve(1).map_err(|_| NoMemory)
    }

    /// Adds one, for which [`reserve`](Self::reserve) made room.
    pub fn enter(&mut self, rank: i32, waiter: W) {
        let place = self.all.partition_point(|&(other, _)| other > rank);
        self.all.insert(place, (rank, waiter));
    }

    /// Takes the one that is served next.
    pub fn take_first(&mut self) -> Option<W> {
        self.all.pop().map(|(_, waiter)| waiter)
    }

    /// Removes those for which `is_it` is true.
    pub fn leave(&mut self, is_it: impl Fn(&W) -> bool) {
        self.all.retain(|(_, waiter)| !is_it(waiter));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &W> {
        self.all.iter().map(|(_, waiter)| waiter)
    }
}

/// What a queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The most messages.
    pub messages: usize,
    /// The largest message.
    pub size: usize,
}

/// The settings of `/proc/sys/fs/mqueue` that decide about the [`Shape`] of a new queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `msg_max`
    pub most_messages: i64,
    /// `msgsize_max`
    pub largest_message: i64,
    /// `msg_default`
    pub default_messages: i64,
    /// `msgsize_default`
    pub default_size: i64,
}

impl Shape {
    /// The shape of a new queue, for which a program wants a number and a size of messages, or
    /// nothing (`mqueue_get_inode`). `None` if it may not have them. Privilege is that of
    /// `CAP_SYS_RESOURCE`.
    pub fn of_new(wanted: Option<(i64, i64)>, limits: &Limits, privileged: bool) -> Option<Shape> {
        let (messages, size) = wanted.unwrap_or((
            limits.most_messages.min(limits.default_messages),
            limits.largest_message.min(limits.default_size),
        ));
        let (most, largest) = if privileged {
            (MOST_MESSAGES, LARGEST_MESSAGE)
        } else {
            (limits.most_messages, limits.largest_message)
        };
        if messages <= 0 || size <= 0 || messages > most || size > largest {
            return None;
        }
        Some(Shape { messages: usize::try_from(messages).ok()?, size: usize::try_from(size).ok()? })
    }

    /// The bytes that it counts for in `RLIMIT_MSGQUEUE`: all messages, each with a `struct
    /// msg_msg`, and a node of Linux' tree for each priority that they may have (getrlimit(2)).
    /// The largest shape has a terabyte, so that this does not overflow.
    pub fn charge(self) -> usize {
        const MESSAGE: usize = 48;
        const NODE: usize = 48;
        let nodes = self.messages.min(PRIORITIES as usize);
        self.messages.saturating_mul(self.size + MESSAGE).saturating_add(nodes * NODE)
    }
}
