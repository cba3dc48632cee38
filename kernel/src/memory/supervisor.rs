//! The mode of a space: whether programs in it run in ring 0.
//!
//! See [`machine::paging`] for how a space changes sides, and [`crate::process::mode`] for who may
//! ask for it. The mode belongs to the space and not to the process: all threads in a space run in
//! one mode, the child of a vfork that borrows it too. A fork inherits it; a new space is the
//! user's.

use hayate_abi::{Errno, Result};

use super::space::Space;

impl Space {
    /// Whether programs in it run in ring 0.
    #[inline]
    pub fn is_supervisor(&self) -> bool {
        self.table.is_supervisor()
    }

    /// Whether programs in it ever ran in ring 0: it has trampolines and changed text then, and is
    /// not kept for another start.
    #[inline]
    pub fn was_supervisor(&self) -> bool {
        self.table.was_supervisor()
    }

    /// Moves it to ring 0 or back. When this returns no processor executes an instruction of it
    /// in the old mode any more. Says whether anything changed.
    ///
    /// # Errors
    /// `EPERM`: it is to stay in user mode ([`stay_user`](Self::stay_user)).
    pub fn set_supervisor(&self, supervisor: bool) -> Result<bool> {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        if supervisor && inner.user_only {
            return Err(Errno::EPERM);
        }
        if edit.is_supervisor() == supervisor {
            return Ok(false);
        }
        // What once ran in ring 0 is not kept for the next.
        inner.origin = None;
        edit.set_supervisor(supervisor);
        Ok(true)
    }

    /// Neither it nor what is forked from it ever goes to supervisor mode. For a new space that
    /// nobody executes in yet.
    pub fn stay_user(&self) {
        self.table.lock().user_only = true;
    }

    /// A number that no other stay of a space in supervisor mode has.
    #[inline]
    pub fn stay(&self) -> u64 {
        self.table.stay()
    }

    /// How many system calls were made in supervisor mode: by function call, and by trap.
    pub fn supervisor_calls(&self) -> (u64, u64) {
        self.table.supervisor_calls()
    }
}
