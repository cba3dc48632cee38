//! The privilege level of a space: whether programs in it run in ring 0.
//!
//! See [`machine::paging`] for how a space changes its level, and [`crate::supervisor::switch`] for
//! which processes may ask for it. The mode belongs to the space and not to the process: all
//! threads in a space run in one mode, as does the child of a vfork, which borrows the space. Fork
//! inherits the mode; a new space is in user mode.

use hayate_abi::{Errno, Result};

use crate::memory::space::Space;

impl Space {
    /// Whether programs in it run in ring 0.
    #[inline]
    pub fn is_supervisor(&self) -> bool {
        self.table.is_supervisor()
    }

    /// Whether programs in it ever ran in ring 0. Such a space has trampolines and changed text,
    /// and is not kept for another start.
    #[inline]
    pub fn was_supervisor(&self) -> bool {
        self.table.was_supervisor()
    }

    /// Moves the space to ring 0 or back. When this returns, no processor executes instructions of
    /// the space in the old mode any more. Returns whether the mode changed.
    ///
    /// # Errors
    /// `EPERM`: the space must stay in user mode ([`stay_user`](Self::stay_user)).
    pub fn set_supervisor(&self, supervisor: bool) -> Result<bool> {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        if supervisor && inner.user_only {
            return Err(Errno::EPERM);
        }
        if edit.is_supervisor() == supervisor {
            return Ok(false);
        }
        // A space that ran in ring 0 is not kept for the next start.
        inner.origin = None;
        edit.set_supervisor(supervisor);
        Ok(true)
    }

    /// Forbids supervisor mode for this space, until another program begins in it, and all spaces
    /// forked from it. For a new space in which no thread executes yet.
    pub fn stay_user(&self) {
        self.table.lock().user_only = true;
    }

    /// Moves the space to ring 3 if it is not there, and forbids supervisor mode as
    /// [`stay_user`](Self::stay_user) does. When this returns, no processor executes instructions
    /// of the space in ring 0 any more.
    pub fn return_to_user(&self) {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        inner.user_only = true;
        if edit.is_supervisor() {
            inner.origin = None;
            edit.set_supervisor(false);
        }
    }

    /// A number that is unique to this stay of the space in supervisor mode.
    #[inline]
    pub fn stay(&self) -> u64 {
        self.table.stay()
    }

    /// How many system calls were made in supervisor mode: by function call, and by trap.
    pub fn supervisor_calls(&self) -> (u64, u64) {
        self.table.supervisor_calls()
    }
}
