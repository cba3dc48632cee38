//! Signals (`signal(7)`).
//!
//! A signal waits in a [`Queue`]: each process has one for signals to the process, each thread
//! one for signals to the thread. What to do about it stands in the process's [`Actions`]. The
//! sender (`send.rs`) queues and interrupts a thread that may take the signal; that thread takes
//! it on its way back to user mode (`deliver.rs`), where it ends, stops (`stop.rs`) or enters a
//! handler (`frame.rs`).
//!
//! There is no lock around all of it. A mask of blocked signals is changed by its own thread
//! only, which looks at the queues afterwards; a sender queues first and looks at the masks
//! afterwards. So one of the two always sees the other, and an interruption too many does no
//! harm: the thread finds nothing and goes on.
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
/// Signals whose default is to dump core; we end the process without one.
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
/// Signals that an instruction of the thread itself raises: they are taken before others.
const SYNCHRONOUS: SignalSet =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGFPE) | bit(SIGSYS);
/// Signals that nothing can block, catch or ignore.
pub const UNBLOCKABLE: SignalSet = bit(SIGKILL) | bit(SIGSTOP);

/// Whether a number names a signal.
pub fn is_signal(number: u32) -> bool {
    (1..=NSIG).contains(&number)
}

/// Sends the current thread a signal for what it just did (SIGPIPE, SIGXFSZ).
pub fn raise(signal: u32) {
    super::current().signal_self(signal);
}
