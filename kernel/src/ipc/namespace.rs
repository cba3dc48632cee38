//! IPC namespaces (ipc_namespaces(7)): the objects of System V and the message queues of POSIX that
//! the threads in one see, and their settings.
//!
//! An object does not move: it is in the table of one namespace. A namespace goes with the last
//! handle, and what nobody else holds goes with it: sets and queues, segments without attachments,
//! names of POSIX queues. A segment that is still attached, a queue that is open and a file system
//! that is mounted live on without it.
//!
//! The memory that objects take is bounded for all namespaces together ([`super::account`],
//! [`shm`]), since nobody gets more of the machine by a namespace.

use alloc::sync::Arc;

use super::mqueue::tree;
use super::sysv::{msg, sem, shm};
use crate::namespace::{self, Handle};
use crate::user_namespace::{self, UserNamespace};
use crate::vfs::users::Counted;

/// An IPC namespace.
pub struct IpcNamespace {
    /// Its number.
    pub number: u64,
    /// Queues of messages of System V.
    pub msg: msg::Queues,
    /// Sets of semaphores of System V.
    pub sem: sem::Sets,
    /// Segments of shared memory of System V.
    pub shm: Handle<shm::Segments>,
    /// Message queues of POSIX.
    pub mqueue: Handle<tree::Queues>,
    /// The user namespace that it belongs to.
    pub owner: Handle<UserNamespace>,
    /// Its place among those of the user who made it.
    _counted: Option<Counted>,
}

/// The first one.
pub static FIRST: IpcNamespace = IpcNamespace {
    number: namespace::first::IPC,
    msg: msg::Queues::first(),
    sem: sem::Sets::first(),
    shm: Handle::First(&shm::FIRST),
    mqueue: Handle::First(&tree::FIRST),
    owner: user_namespace::first(),
    _counted: None,
};

impl IpcNamespace {
    /// Another one, without objects and with the settings that a machine boots with, as in Linux.
    pub fn another(owner: Handle<UserNamespace>, counted: Counted) -> Handle<IpcNamespace> {
        Handle::Other(Arc::new(IpcNamespace {
            number: namespace::number(),
            msg: msg::Queues::another(),
            sem: sem::Sets::another(),
            shm: Handle::Other(Arc::new(shm::Segments::another())),
            mqueue: Handle::Other(Arc::new(tree::Queues::another())),
            owner,
            _counted: Some(counted),
        }))
    }
}
