//! The signals that a terminal sends to process groups and sessions, by itself or for its master.
//!
//! Processes are a higher layer: it registers once at boot, with the rest of job control
//! ([`super::job`]).

use hayate_machine::sync::Once;

/// The services of sessions and process groups for a terminal.
pub trait Groups: Send + Sync {
    /// Sends `signal` to every process of a group.
    fn signal_group(&self, group: u32, signal: u32);

    /// Sends `signal` to the leader of a session.
    fn signal_session_leader(&self, session: u32, signal: u32);

    /// Takes its controlling terminal away from a session.
    fn take_terminal_away(&self, session: u32);
}

static GROUPS: Once<&'static dyn Groups> = Once::new();

/// Registers the process layer; later calls change nothing.
pub(super) fn register(groups: &'static dyn Groups) {
    GROUPS.call_once(|| groups);
}

/// Returns the process layer, once it has registered.
pub fn groups() -> Option<&'static dyn Groups> {
    GROUPS.get().copied()
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
