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
pub mod signalfd;
pub mod stop;

pub use actions::{ActionTable, Actions, Disposition};
pub use queue::Queue;

pub use hayate_abi::signal::*;

/// Signals whose default is to be ignored.
const IGNORED_BY_DEFAULT: SignalSet = bit(SIGCHLD) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGCONT);
/// Signals whose default is to stop the process.
const STOPS: SignalSet = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);
/// Signals whose default is to end the process with a core file.
const CORE: SignalSet = bit(SIGQUIT)
    | bit(SIGILL)
    | bit(SIGTRAP)
    | bit(SIGABRT)
    | bit(SIGBUS)
    | bit(SIGFPE)
    | bit(SIGSEGV)
    | bit(SIGXCPU)
    | bit(SIGXFSZ)
    | bit(SIGSYS);
/// Signals that an instruction of the thread itself raises; these are taken first.
const SYNCHRONOUS: SignalSet =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGFPE) | bit(SIGSYS);
/// Signals that nothing can block, catch or ignore.
pub const UNBLOCKABLE: SignalSet = bit(SIGKILL) | bit(SIGSTOP);

/// Whether a number names a signal.
pub fn is_signal(number: u32) -> bool {
    (1..=NSIG).contains(&number)
}

/// Sends the current thread a signal about an action of its own (SIGPIPE, SIGXFSZ).
pub fn raise(signal: u32) {
    super::current().signal_self(signal);
}
