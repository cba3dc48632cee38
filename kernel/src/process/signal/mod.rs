//! Signals (`signal(7)`).
//!
//! A pending signal is in a [`Queue`]: each process has one for signals to the process, each thread
//! one for signals to the thread. The process's [`Actions`] say how each signal is handled. The
//! sender (`send.rs`) queues the signal and interrupts a thread that does not block it. That thread
//! takes the signal on its way back to user mode (`deliver.rs`), where it ends, stops (`stop.rs`)
//! or enters a handler (`frame.rs`).
//!
//! No lock covers all of this. Only the thread itself changes its mask of blocked signals, and it
//! looks at the queues afterwards; a sender queues first and looks at the masks afterwards. So one
//! of the two always sees the other. A superfluous interruption does no harm: the thread finds no
//! signal and continues.
//!
//! Lock order: `Process::control` before `Process::threads` before queues and actions, which are
//! leaves.

pub mod actions;
pub mod deliver;
pub mod frame;
pub mod queue;
pub mod send;
pub(super) mod sets;
pub mod signalfd;
pub mod stop;
pub mod stopping;
pub mod take;

pub use actions::{ActionTable, Actions, Disposition};
pub use queue::Queue;
pub use send::raise;
pub use sets::{UNBLOCKABLE, is_signal};

pub use hayate_abi::signal::*;
