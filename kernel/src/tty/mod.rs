//! Terminals: the console and pseudo terminals.
//!
//! # Design
//!
//! A [`Tty`] is the program side of a terminal: its line discipline (a pure state machine,
//! `hayate-line-discipline`), window size, session and foreground process group, and a bounded ring
//! of bytes on their way to the screen. At the other end is a *master*: a process that holds the
//! other half of a pseudo terminal (`pty`), or the thread that carries the bytes of the console to
//! and from its device (`console`). A master passes typed bytes to [`Tty::type_in`] and takes
//! output with [`Tty::take_output`]; it never sleeps in either, so the same code serves both.
//!
//! Job control needs to know the calling process and to signal process groups. Processes are a
//! higher layer, so [`groups::Groups`] and [`job::JobControl`] are traits that the process layer
//! registers at boot.
//!
//! # Layers, lowest first
//!
//! | file | contents |
//! |---|---|
//! | [`groups`] | signals to process groups and sessions |
//! | [`state`] | the terminal itself |
//! | [`job`] | its controlling session, and who may use it |
//! | [`ioctl`] | its ioctls, on both sides |
//! | [`operations`], [`pty`], [`console`] | an open terminal; a master; the device's threads |
//! | [`devices`] | the device nodes |
//! | [`devpts`] | the directory of slaves |
//!
//! # Lock order
//!
//! `reading` or `writing` (sleeping locks that admit one reader and one writer at a time, so that
//! lines and writes stay whole, as Linux's `atomic_read_lock` and `atomic_write_lock`), then
//! `state` (spin). Signals are sent and wait queues are woken after `state` was released.
//!
//! # Road not taken
//!
//! Linux puts a flip buffer and a work queue between driver and discipline, because drivers receive
//! in interrupt context. Here the console's interrupt handler only wakes its thread, and all other
//! callers are processes, so there is nothing to defer.

pub mod console;
pub mod devices;
pub mod devpts;
pub mod groups;
mod ioctl;
pub mod job;
mod operations;
pub mod pty;
pub mod state;

pub use state::{Tty, Window};

use hayate_abi::Result;

/// Sets up `/dev/tty`, `/dev/console` and the pseudo terminals. Mounting devpts is left to user
/// space.
pub fn init() -> Result<()> {
    devices::register()
}

/// Hangs up the controlling terminal of the current process, if it has one (`vhangup(2)`).
pub fn hang_up_own() {
    if let Some(tty) = job::control().and_then(|control| control.controlling_terminal()) {
        tty.hang_up();
    }
}

/// Waits until the host has all output that programs wrote to the console (at most one second) and
/// to ports (at most five seconds each): output that is still queued when the machine is switched
/// off is lost.
pub fn settle_output() {
    console::settle();
    crate::drivers::virtio_console::drain();
}
