//! The terminal's view of processes: the caller's session and group, and signals to process groups.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;

use super::groups;
use super::groups::{Groups, signal};
use super::state::Tty;
use crate::vfs::open_file::OpenFile;

/// The attributes of a caller that job control needs.
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

/// The interface to the process layer; `process` registers it once at boot.
pub trait JobControl: Groups {
    /// Returns the calling process.
    fn caller(&self) -> Caller;

    /// Returns the number of a group or session as the caller sees it; 0 if it does not.
    fn shown(&self, number: u32) -> u32;

    /// Returns the group that has this number for the caller; one that is none if there is none.
    fn meant(&self, number: u32) -> u32;

    /// Returns the controlling terminal of the caller's session.
    fn controlling_terminal(&self) -> Option<Arc<Tty>>;

    /// Makes `terminal` the controlling terminal of session `session`; `None` takes it away.
    fn set_controlling_terminal(&self, session: u32, terminal: Option<Arc<Tty>>);

    /// Takes the controlling terminal away from the calling process alone (TIOCNOTTY).
    fn forget_controlling_terminal(&self);

    /// Whether the process group exists.
    fn group_exists(&self, group: u32) -> bool;

    /// Whether the process group exists and belongs to the session.
    fn group_in_session(&self, group: u32, session: u32) -> bool;

    /// Whether the caller blocks or ignores `signal`.
    fn blocks_or_ignores(&self, signal: u32) -> bool;

    /// Whether no member of the caller's process group has a parent in another group of the same
    /// session, so that no process could continue the group (POSIX, "orphaned process group").
    fn group_is_orphaned(&self, group: u32) -> bool;
}

static CONTROL: Once<&'static dyn JobControl> = Once::new();

/// Registers the process layer; later calls change nothing.
pub fn register(control: &'static dyn JobControl) {
    groups::register(control);
    CONTROL.call_once(|| control);
}

/// Returns the process layer, once it has registered.
pub fn control() -> Option<&'static dyn JobControl> {
    CONTROL.get().copied()
}

/// Checks that the caller is not a background process that would read, change settings, or (under
/// TOSTOP) write.
///
/// Returns `Ok` for a foreground process and for a process that `signal` cannot stop. Otherwise it
/// sends the signal to the caller's group and fails with ERESTARTSYS, to restart the call, or with
/// EIO if no process could ever continue the group (`__tty_check_change`, Linux 6.1
/// `drivers/tty/tty_jobctrl.c`). A reader that blocks SIGTTIN gets EIO; a writer that blocks
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

/// TIOCSCTTY: only a session leader without a terminal may take one. With `steal`, a privileged
/// caller takes it from another session (ioctl_tty(2)).
pub(super) fn take_as_controlling(tty: &Arc<Tty>, file: &OpenFile, steal: bool) -> Result<()> {
    let control = control().ok_or(Errno::ENOTTY)?;
    let caller = control.caller();
    let (session, _) = tty.session_and_foreground();
    if caller.leads_session && session == Some(caller.session) {
        return Ok(());
    }
    if !caller.leads_session || control.controlling_terminal().is_some() {
        return Err(Errno::EPERM);
    }
    if let Some(other) = session {
        if !(steal && caller.privileged) {
            return Err(Errno::EPERM);
        }
        control.set_controlling_terminal(other, None);
    }
    if !file.readable() && !caller.privileged {
        return Err(Errno::EPERM);
    }
    tty.set_session(Some(caller.session), Some(caller.group));
    control.set_controlling_terminal(caller.session, Some(tty.clone()));
    Ok(())
}
