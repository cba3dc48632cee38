//! POSIX message queues (`mq_overview(7)`).
//!
//! | file | contents |
//! |---|---|
//! | [`settings`] | what the administrator allows (`/proc/sys/fs/mqueue`) |
//! | [`message`] | a message |
//! | [`notice`] | how a process is told that a message came to an empty queue |
//! | `waiter` | a thread that waits to send or to receive |
//! | [`queue`] | a queue: messages, waiters, notice |
//! | `file` | a queue as a file: read, polled, changed as other files |
//! | [`tree`] | the file system, and the calls that open and remove queues by name |
//!
//! # Design
//!
//! A queue is an inode of a file system that exists once in each IPC namespace and may be mounted
//! any number of times, as in Linux (ipc/mqueue.c). So permission, `stat`, `unlink`, inotify and
//! descriptors need nothing of their own, and a queue that has lost its name goes with its last
//! descriptor.
//!
//! A thread that waits leaves in the queue what it waits for: a sender its message, a receiver an
//! empty place. A thread that makes room or has a message serves the first of them, so that the order
//! (crate `hayate_ipc_rules`, by scheduling priority and then by arrival) is kept, and no message of
//! a later sender overtakes. A thread that gives up takes itself out under the queue's lock, and then
//! looks whether it was served meanwhile.
//!
//! Bounded: the number of queues by a setting, what a user's queues may hold by `RLIMIT_MSGQUEUE`,
//! what all messages hold by the [`account`](super::account).
//!
//! Lock order: the lock of the tree's names, or a queue's lock; then a waiter's. All are spin locks;
//! messages, notices and queues are dropped without them.
//!
//! Road not taken: `write(2)` as a way to send. Linux has none (the call fails with `EINVAL`).

mod file;
pub mod message;
pub mod notice;
pub mod queue;
pub mod settings;
pub mod tree;
mod waiter;

use crate::vfs::descriptor;

/// Registers the file system, and what the close of a descriptor ends.
pub fn init() {
    tree::register();
    descriptor::at_close(queue::closed);
}
