//! What a terminal needs of the processes above it: who calls, and signals to process groups.

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;

use super::Tty;
use alloc::sync::Arc;

/// The caller of a terminal operation, as far as job control asks.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Its session.
    pub session: u32,
    /// Its process group.
    pub group: u32,
    /// It leads its session.
    pub leads_session: bool,
    /// It may take terminals from others (CAP_SYS_ADMIN).
    pub privileged: bool,
}

/// Registered once by `process` at boot.
pub trait JobControl: Send + Sync {
    /// Who is calling.
    fn caller(&self) -> Caller;

    /// The controlling terminal of the caller's session.
    fn controlling_terminal(&self) -> Option<Arc<Tty>>;

    /// Makes `terminal` the controlling terminal of session `session`, or takes it away.
    fn set_controlling_terminal(&self, session: u32, terminal: Option<Arc<Tty>>);

    /// Takes the controlling terminal away from the calling process alone (TIOCNOTTY).
    fn forget_controlling_terminal(&self);

    /// True when there is such a process group.
    fn group_exists(&self, group: u32) -> bool;

    /// True when the process group exists and belongs to the session.
    fn group_in_session(&self, group: u32, session: u32) -> bool;

    /// Sends `signal` to every process of a group.
    fn signal_group(&self, group: u32, signal: u32);

    /// Sends `signal` to the leader of a session.
    fn signal_session_leader(&self, session: u32, signal: u32);

    /// The caller blocks or ignores `signal`.
    fn blocks_or_ignores(&self, signal: u32) -> bool;

    /// The caller's process group has no member whose parent is in another group of the same
    /// session, so nobody could continue it (POSIX, "orphaned process group").
    fn group_is_orphaned(&self, group: u32) -> bool;
}

static CONTROL: Once<&'static dyn JobControl> = Once::new();

/// Registers the processes' side; later calls change nothing.
pub fn register(control: &'static dyn JobControl) {
    CONTROL.call_once(|| control);
}

/// The processes' side, once they have registered.
pub fn control() -> Option<&'static dyn JobControl> {
    CONTROL.get().copied()
}

/// Signals of job control by their Linux numbers.
pub mod signal {
    #![allow(missing_docs)]
    pub const HUP: u32 = 1;
    pub const INT: u32 = 2;
    pub const QUIT: u32 = 3;
    pub const CONT: u32 = 18;
    pub const TSTP: u32 = 20;
    pub const TTIN: u32 = 21;
    pub const TTOU: u32 = 22;
    pub const WINCH: u32 = 28;
}

/// What a background process may not do: read, or change settings, or (under TOSTOP) write.
///
/// Returns `Ok` for a foreground process and for one that `signal` cannot stop; otherwise the
/// signal was sent to the caller's group and the call is to be restarted (ERESTARTSYS), or EIO
/// when nobody could ever continue the group (`__tty_check_change`, Linux 6.1
/// `drivers/tty/tty_jobctrl.c`). A reader that blocks SIGTTIN gets EIO, a writer that blocks
/// SIGTTOU goes on.
pub fn check_background(tty: &Tty, signal: u32) -> Result<()> {
    let Some(control) = control() else { return Ok(()) };
    let caller = control.caller();
    let (session, foreground) = tty.session_and_foreground();
    if session != Some(caller.session) || foreground.is_none() || foreground == Some(caller.group) {
        return Ok(());
    }
    let reading = signal == signal::TTIN;
    if control.blocks_or_ignores(signal) {
        return if reading { Err(Errno::EIO) } else { Ok(()) };
    }
    if control.group_is_orphaned(caller.group) {
        return Err(Errno::EIO);
    }
    control.signal_group(caller.group, signal);
    Err(Errno::ERESTARTSYS)
}
