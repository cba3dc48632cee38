//! Which signals there are, and sets of those that the kernel treats alike.

use hayate_abi::signal::*;

/// Signals whose default is to be ignored.
pub(in crate::process) const IGNORED_BY_DEFAULT: SignalSet =
    bit(SIGCHLD) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGCONT);
/// Signals whose default is to stop the process.
pub(in crate::process) const STOPS: SignalSet =
    bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);
/// Signals whose default is to end the process with a core file.
pub(in crate::process) const CORE: SignalSet = bit(SIGQUIT)
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
pub(super) const SYNCHRONOUS: SignalSet =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGFPE) | bit(SIGSYS);
/// Signals that nothing can block, catch or ignore.
pub const UNBLOCKABLE: SignalSet = bit(SIGKILL) | bit(SIGSTOP);

/// Whether a number names a signal.
pub fn is_signal(number: u32) -> bool {
    (1..=NSIG).contains(&number)
}
