//! System V message passing (`sysvipc(7)`): shared memory, semaphores and messages.
//!
//! | file | contents |
//! |---|---|
//! | [`head`] | what objects of all kinds have |
//! | [`objects`] | the table of one kind of object, by identifier and key |
//! | [`shm`] | segments of shared memory |
//! | [`sem`] | sets of semaphores |
//! | [`msg`] | queues of messages |
//! | [`traces`] | what the end of a thread has to know |
//!
//! What follows from numbers alone (identifiers, permissions, operations, order) is in the crate
//! `hayate_ipc_rules`. An object is found under its table's lock and then has its own, so that two
//! sets or segments share nothing. It may be removed in between: each call looks, under the
//! object's lock, whether it still is there (`EIDRM`). Each IPC namespace ([`super::namespace`])
//! has tables of its own.
//!
//! Lock order: a table's lock, then an object's. Both are spin locks; an object is dropped without
//! them, since its memory may be large.
//!
//! All that users can make here is bounded: objects by number, segments by the memory that all of
//! them may hold together ([`shm`]), the rest by an account ([`super::account`]).

pub mod head;
pub mod msg;
pub mod objects;
pub mod sem;
pub mod shm;
pub mod traces;

use hayate_machine::time;

/// The time of the realtime clock in seconds, as the objects note it.
fn now() -> i64 {
    (time::realtime_ns() / 1_000_000_000) as i64
}
