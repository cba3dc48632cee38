//! Sessions (`setsid(2)`, `credentials(7)`); [`super::job_control`] makes them and ends them.

use alloc::sync::Arc;

use hayate_machine::sync::{Lazy, SpinLock};

use crate::tty::state::Tty;

/// A session: the processes of one login.
pub struct Session {
    id: u32,
    terminal: SpinLock<Option<Arc<Tty>>>,
}

static FIRST: Lazy<Arc<Session>> = Lazy::new(|| Arc::new(Session::new(0)));

impl Session {
    /// Makes a session without a controlling terminal. Its number is that of its leader.
    pub const fn new(id: u32) -> Session {
        Session { id, terminal: SpinLock::new(None) }
    }

    /// The session of the first process until that makes one (number 0, as in Linux).
    pub fn first() -> Arc<Session> {
        FIRST.clone()
    }

    /// Its number: that of its leader.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its controlling terminal.
    pub fn terminal(&self) -> Option<Arc<Tty>> {
        self.terminal.lock().clone()
    }

    /// Sets its controlling terminal.
    pub(super) fn set_terminal(&self, terminal: Option<Arc<Tty>>) {
        let old = core::mem::replace(&mut *self.terminal.lock(), terminal);
        drop(old);
    }
}
