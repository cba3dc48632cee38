//! Terminals: the console and pseudo terminals.
//!
//! # Design
//!
//! A [`Tty`] is the side of a terminal that programs use: its line discipline (a pure state
//! machine, `hayate-line-discipline`), window size, session and foreground process group, and a
//! bounded ring of bytes on their way to the screen. What is at the other end is a *master*: a
//! process that holds the other half of a pseudo terminal (`pty`), or the thread that carries the
//! bytes of the console to and from its device (`console`). A master hands in what was typed with
//! [`Tty::type_in`] and takes what is to be shown with [`Tty::take_output`]; it never sleeps in
//! either, so the same code serves both.
//!
//! Job control needs to know who is calling and to signal process groups. Processes are above this
//! room, so [`job::JobControl`] is a trait that they register at boot.
//!
//! # Lock order
//!
//! `reading` or `writing` (sleeping locks: one reader and one writer at a time, so that lines and
//! writes come out whole, as Linux's `atomic_read_lock` and `atomic_write_lock`) before `state`
//! (spin). Signals are sent and queues are woken after `state` was released.
//!
//! # The road not taken
//!
//! Linux puts a flip buffer and a work queue between driver and discipline, because drivers receive
//! in interrupt context. Here the console's interrupt only wakes its thread, and everything else is
//! called from processes, so there is nothing to defer.

pub mod console;
pub mod devices;
pub mod devpts;
mod ioctl;
pub mod job;
mod operations;
pub mod pty;
mod state;

pub use state::{Tty, Window};

use hayate_abi::Result;

/// Sets up `/dev/tty`, `/dev/console` and the pseudo terminals. The devpts file system is mounted
/// by whoever wants it.
pub fn init() -> Result<()> {
    devices::register()
}
