//! Rules of System V and POSIX message passing, without locks, sleep or memory of programs.
//!
//! * [`ids`]: the identifiers of System V objects, which carry a sequence number;
//! * [`permission`]: which user may do what with an object;
//! * [`semaphores`]: sets of semaphores, their operations, waiters and undo;
//! * [`messages`]: which message of a System V queue a receiver gets;
//! * [`priorities`]: the order of POSIX queues, and what such a queue may hold.
//!
//! A list that a program can make long grows by requests that can fail ([`NoMemory`]), made before
//! anything changes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ids;
pub mod messages;
pub mod permission;
pub mod priorities;
pub mod semaphores;

/// Memory for a list is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;
