//! The thread that calls, as objects of System V and POSIX see it, and what it may do with them.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::permission::Permission;

use crate::credentials::{Capability, Credentials};
use crate::namespace::Handle;
use crate::user_namespace::UserNamespace;

/// Reading, for all three classes of users.
pub const READ: u32 = 0o444;
/// Writing, likewise.
pub const WRITE: u32 = 0o222;
/// Executing, likewise.
pub const EXECUTE: u32 = 0o111;

/// The thread that calls.
pub struct Actor {
    /// Its credentials.
    pub credentials: Arc<Credentials>,
    /// The number of its process.
    pub process: u32,
    /// The user namespace that its IPC namespace belongs to.
    pub over: Handle<UserNamespace>,
}

impl Actor {
    /// The permission of an object that it makes with the mode in `flags`.
    pub fn permission(&self, flags: u32) -> Permission {
        Permission::new(self.credentials.euid, self.credentials.egid, flags)
    }

    /// Fails with `EACCES` if it may not use an object so (`ipcperms`, ipc/util.c).
    pub fn may(&self, permission: &Permission, wanted: u32) -> Result<()> {
        let own = &self.credentials;
        let is_member = |group| own.in_group(group);
        if permission.allows(own.euid, is_member, wanted) || self.has(Capability::IpcOwner) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Fails with `EPERM` if it may not change or remove an object (`ipcctl_obtain_check`).
    pub fn owns(&self, permission: &Permission) -> Result<()> {
        let may = permission.is_owner(self.credentials.euid) || self.has(Capability::SysAdmin);
        if may { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether it may use a capability for what its IPC namespace belongs to.
    pub fn has(&self, capability: Capability) -> bool {
        self.credentials.has_in(&self.over, capability)
    }
}
